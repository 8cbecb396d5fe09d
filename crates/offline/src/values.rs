//! Kyverno's values and user files: what a cluster, or the request, would have known.

use kiln_diagnostic::Diagnostic;
use kiln_engine::User;
use kiln_rules::RuleId;
use kiln_value::{Map, Str, Value, value};
use kiln_yaml::Document;
use serde::Deserialize;

/// Values for expressions, by policy, resource and rule.
///
/// Precedence, from low to high: global values, values of the resource, values set by hand; values of
/// a rule stand beside them, under the names of its context entries.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Values {
    #[serde(default, rename = "apiVersion")]
    _api_version: Str,
    #[serde(default, rename = "kind")]
    _kind: Str,
    #[serde(default, rename = "metadata")]
    _metadata: Value,
    #[serde(default)]
    global_values: Map,
    #[serde(default)]
    policies: Vec<PolicyValues>,
    #[serde(default)]
    namespace_selector: Vec<NamespaceLabels>,
    #[serde(default)]
    namespaces: Vec<Value>,
    #[serde(default)]
    subresources: Vec<Value>,
    #[serde(skip)]
    set: Map,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct PolicyValues {
    name: Str,
    #[serde(default)]
    resources: Vec<ResourceValues>,
    #[serde(default)]
    rules: Vec<RuleValues>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ResourceValues {
    name: Str,
    #[serde(default)]
    values: Map,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RuleValues {
    name: Str,
    #[serde(default)]
    values: Map,
    #[serde(default)]
    foreach_values: Map,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct NamespaceLabels {
    name: Str,
    #[serde(default)]
    labels: Map,
}

impl Values {
    /// Reads a values file.
    ///
    /// # Errors
    /// When the document has another form, with the place.
    pub fn read(document: &Document) -> Result<Self, Diagnostic> {
        document.read()
    }

    /// Sets a value by hand, which counts more than any file.
    pub fn set(&mut self, name: &str, value: Value) {
        self.set.insert(name, value);
    }

    /// The Namespaces that the file describes.
    pub fn namespaces(&self) -> impl Iterator<Item = Value> {
        let labelled = self.namespace_selector.iter().map(|namespace| {
            let mut object = value!({"apiVersion": "v1", "kind": "Namespace"});
            let metadata = Map::from_iter([
                ("name", Value::from(namespace.name.clone())),
                ("labels", Value::from(namespace.labels.clone())),
            ]);
            let _ = object.set(["metadata"], metadata);
            object
        });
        labelled.chain(self.namespaces.iter().cloned())
    }

    /// The subresources that the file describes, each with its parent.
    pub fn subresources(&self) -> &[Value] {
        &self.subresources
    }

    /// What a rule is given for a resource.
    pub(crate) fn given(&self, rule: &RuleId, resource: &str) -> Map {
        let mut given = self.global_values.clone();
        let policy = rule.policy.key();
        for values in
            self.policies.iter().filter(|p| p.name == policy || p.name == rule.policy.name)
        {
            for of_resource in values.resources.iter().filter(|r| r.name == resource) {
                extend(&mut given, &of_resource.values);
            }
            for of_rule in values.rules.iter().filter(|r| r.name == rule.rule) {
                extend(&mut given, &of_rule.values);
                extend(&mut given, &of_rule.foreach_values);
            }
        }
        extend(&mut given, &self.set);
        given
    }
}

fn extend(given: &mut Map, more: &Map) {
    given.extend(more.iter().map(|(key, value)| (key.clone(), value.clone())));
}

/// Kyverno's user file: who sends the requests.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct UserFile {
    #[serde(default, rename = "apiVersion")]
    _api_version: Str,
    #[serde(default, rename = "kind")]
    _kind: Str,
    #[serde(default, rename = "metadata")]
    _metadata: Value,
    #[serde(default)]
    roles: Vec<Str>,
    #[serde(default)]
    cluster_roles: Vec<Str>,
    #[serde(default)]
    user_info: UserInfo,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct UserInfo {
    #[serde(default)]
    username: Str,
    #[serde(default)]
    uid: Str,
    #[serde(default)]
    groups: Vec<Str>,
    #[serde(default)]
    extra: Map,
}

impl UserFile {
    /// Reads a user file.
    ///
    /// # Errors
    /// When the document has another form, with the place.
    pub fn read(document: &Document) -> Result<User, Diagnostic> {
        let file: UserFile = document.read()?;
        Ok(User {
            username: file.user_info.username,
            uid: file.user_info.uid,
            groups: file.user_info.groups,
            extra: file.user_info.extra,
            roles: file.roles,
            cluster_roles: file.cluster_roles,
        })
    }
}
