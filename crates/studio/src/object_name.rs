//! Names of objects and rules, as pages show them.

use kiln_object::{Gvk, ObjectId};
use kiln_rules::RuleId;
use serde::Serialize;

/// What an object is called.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectName {
    /// Empty for objects of the cluster.
    pub namespace: String,
    pub kind: String,
    pub name: String,
    pub api_version: String,
}

impl ObjectName {
    /// The name that a claim or an annotation spells out, `apps/v1/Deployment/shop/web`; what reads otherwise is a name
    /// without a kind.
    pub fn read(text: &str) -> Self {
        let parts: Vec<&str> = text.split('/').collect();
        // A group has a dot or is one of the few old ones; a version begins with v and a digit.
        let is_version = |part: &str| {
            part.strip_prefix('v')
                .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
        };
        let Some(at) = parts.iter().take(2).position(|part| is_version(part)) else {
            return ObjectName {
                namespace: String::new(),
                kind: String::new(),
                name: text.to_owned(),
                api_version: String::new(),
            };
        };
        let (namespace, name) = match &parts[at + 1..] {
            [_, namespace, name] => (*namespace, *name),
            [_, name] => ("", *name),
            _ => ("", text),
        };
        let kind = parts.get(at + 1).copied().unwrap_or_default();
        ObjectName {
            namespace: namespace.to_owned(),
            kind: kind.to_owned(),
            name: name.to_owned(),
            api_version: parts[..=at].join("/"),
        }
    }

    /// `shop/web`, or `web`.
    pub fn path(&self) -> String {
        match self.namespace.as_str() {
            "" => self.name.clone(),
            namespace => format!("{namespace}/{}", self.name),
        }
    }
}

impl From<&ObjectId> for ObjectName {
    fn from(id: &ObjectId) -> Self {
        ObjectName {
            namespace: id.namespace.to_string(),
            kind: id.gvk.kind.to_string(),
            name: id.name.to_string(),
            api_version: api_version(&id.gvk),
        }
    }
}

fn api_version(gvk: &Gvk) -> String {
    match gvk.group.as_str() {
        "" => gvk.version.to_string(),
        group => format!("{group}/{}", gvk.version),
    }
}

/// A rule by the names of its policy and its own.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct RuleName {
    /// `name`, or `namespace/name`.
    pub policy: String,
    /// Empty where nothing names it.
    pub rule: String,
}

impl From<&RuleId> for RuleName {
    fn from(id: &RuleId) -> Self {
        RuleName { policy: id.policy.key(), rule: id.rule.to_string() }
    }
}

impl RuleName {
    /// The rule in one word, without a name that says nothing.
    pub fn short(&self) -> String {
        match self.rule.as_str() {
            "" => self.policy.clone(),
            rule if rule == self.policy => self.policy.clone(),
            rule => format!("{}/{rule}", self.policy),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for (text, namespace, kind, name, version) in [
            ("v1/Secret/shop/pull", "shop", "Secret", "pull", "v1"),
            ("v1/Namespace/shop", "", "Namespace", "shop", "v1"),
            ("apps/v1/Deployment/shop/web", "shop", "Deployment", "web", "apps/v1"),
            ("whatever", "", "", "whatever", ""),
            ("v1", "", "", "v1", "v1"),
        ] {
            let read = ObjectName::read(text);
            let fields = (read.namespace.as_str(), read.kind.as_str(), read.name.as_str());
            assert_eq!(fields, (namespace, kind, name), "{text}");
            assert_eq!(read.api_version, version, "{text}");
        }
    }
}
