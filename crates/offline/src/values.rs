//! Kyverno's values and user files: what a cluster, or the request, would have known.

use std::sync::Arc;

use kiln_diagnostic::{Diagnostic, SourceLocation, did_you_mean};
use kiln_engine::User;
use kiln_object::Gvk;
use kiln_rules::{Operation, RuleId};
use kiln_value::{Map, Path, Str, Value, value};
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
    subresources: Vec<Subresource>,
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

/// A kind whose objects are requests to a subresource of another kind.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Subresource {
    subresource: ApiResource,
    parent_resource: ApiResource,
}

/// What discovery says about a resource; the rest of it says nothing about rules.
#[derive(Clone, Debug, Deserialize)]
struct ApiResource {
    name: Str,
    kind: Str,
    #[serde(default)]
    group: Str,
    #[serde(default)]
    version: Str,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct NamespaceLabels {
    name: Str,
    #[serde(default)]
    labels: Map,
}

/// What to say of a file that does not say what it is, or says that it is something else. Kyverno reads it all the same.
pub fn remark_kind(document: &Document, what: &str, kind: &str) -> Option<Diagnostic> {
    let value = document.value();
    let remark = match value.str_at(["kind"]) {
        // Kyverno: older examples write Value.
        Some(said) if said != kind && !(kind == "Values" && said == "Value") => {
            Diagnostic::warning(format!(
                "the {what} says that it is {said:?} and is read as {kind}"
            ))
            .at(document.locate(&Path::root().join("kind")))
        }
        Some(_) if value.get("apiVersion").is_some() => return None,
        _ => Diagnostic::warning(format!("the {what} does not say what it is"))
            .at(SourceLocation::new(Arc::clone(document.source()), 0..0)),
    };
    let hint = format!("begin it with apiVersion: cli.kyverno.io/v1alpha1 and kind: {kind}");
    Some(remark.hint(hint))
}

impl Values {
    /// Reads a values file.
    ///
    /// # Errors
    /// When the document has another form, or names an operation that does not exist, with the place.
    pub fn read(document: &Document) -> Result<Self, Diagnostic> {
        let values: Values = document.read()?;
        match values.wrong_operation() {
            Some((path, problem)) => Err(problem.at(document.locate(&path))),
            None => Ok(values),
        }
    }

    /// What is wrong with the first operation that does not exist, and where it is.
    pub fn wrong_operation(&self) -> Option<(Path, Diagnostic)> {
        let root = Path::root();
        let mut all = vec![(root.join("globalValues"), &self.global_values)];
        for (at, policy) in self.policies.iter().enumerate() {
            let path = root.join("policies").join(at);
            for (at, resource) in policy.resources.iter().enumerate() {
                all.push((path.join("resources").join(at).join("values"), &resource.values));
            }
            for (at, rule) in policy.rules.iter().enumerate() {
                all.push((path.join("rules").join(at).join("values"), &rule.values));
            }
        }
        all.into_iter().find_map(|(path, values)| {
            let problem = check_operation(OPERATION, values.get(OPERATION)?).err()?;
            Some((path.join(OPERATION), problem))
        })
    }

    /// Sets a value by hand, which counts more than any file.
    ///
    /// # Errors
    /// When it is an operation that does not exist.
    pub fn set(&mut self, name: &str, value: Value) -> Result<(), Diagnostic> {
        check_operation(name, &value)?;
        self.set.insert(name, value);
        Ok(())
    }

    /// Sets the operation of all requests.
    pub fn set_operation(&mut self, operation: Operation) {
        self.set.insert(OPERATION, operation.as_str());
    }

    /// These values on top of others, which count less.
    #[must_use]
    pub fn over(self, mut others: Values) -> Self {
        extend(&mut others.global_values, &self.global_values);
        extend(&mut others.set, &self.set);
        others.policies.extend(self.policies);
        others.namespace_selector.extend(self.namespace_selector);
        others.namespaces.extend(self.namespaces);
        others.subresources.extend(self.subresources);
        others
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
        // Kyverno reads them as Namespaces, whatever they are called.
        let whole = self.namespaces.iter().map(|namespace| {
            let mut object = namespace.clone();
            let _ = object.set(["apiVersion"], "v1");
            let _ = object.set(["kind"], "Namespace");
            object
        });
        labelled.chain(whole)
    }

    /// The kind and the subresource that objects of a kind are sent to, if the file says that they are.
    pub(crate) fn parent_of(&self, kind: &Gvk) -> Option<(Gvk, Str)> {
        let found = self.subresources.iter().find(|entry| entry.subresource.is(kind))?;
        let ApiResource { group, version, kind, .. } = &found.parent_resource;
        let parent = Gvk { group: group.clone(), version: version.clone(), kind: kind.clone() };
        let (_, name) = found.subresource.name.split_once('/')?;
        Some((parent, name.into()))
    }

    /// What a rule is given for a resource.
    pub(crate) fn given(&self, rule: &RuleId, resource: &str) -> Map {
        let mut given = self.global_values.clone();
        for values in self.of_policy(rule) {
            for of_resource in values.resources.iter().filter(|r| r.name == resource) {
                extend(&mut given, &of_resource.values);
            }
            for of_rule in values.rules.iter().filter(|r| r.means(rule)) {
                extend(&mut given, &of_rule.values);
            }
        }
        extend(&mut given, &self.set);
        given
    }

    /// What a rule is given for the elements of its loops: lists, with a value for each element.
    pub(crate) fn given_each(&self, rule: &RuleId) -> Map {
        let mut given = Map::new();
        for values in self.of_policy(rule) {
            for of_rule in values.rules.iter().filter(|r| r.means(rule)) {
                extend(&mut given, &of_rule.foreach_values);
            }
        }
        given
    }

    fn of_policy(&self, rule: &RuleId) -> impl Iterator<Item = &PolicyValues> {
        // Most runs have no values at all, and then nothing is worked out.
        let policy = if self.policies.is_empty() { String::new() } else { rule.policy.key() };
        let name = rule.policy.name.clone();
        self.policies.iter().filter(move |p| p.name == policy || p.name == name)
    }
}

impl RuleValues {
    /// A rule that was rewritten for the controllers of Pods is given what the rule is given that it was made from.
    fn means(&self, rule: &RuleId) -> bool {
        let of = |prefix: &str| rule.rule.strip_prefix(prefix) == Some(self.name.as_str());
        self.name == rule.rule || of("autogen-") || of("autogen-cronjob-")
    }
}

impl ApiResource {
    fn is(&self, kind: &Gvk) -> bool {
        self.kind == kind.kind
            && self.group == kind.group
            && (self.version.is_empty() || self.version == kind.version)
    }
}

/// The name of the one value that the run itself heeds.
const OPERATION: &str = "request.operation";

fn check_operation(name: &str, value: &Value) -> Result<(), Diagnostic> {
    if name != OPERATION {
        return Ok(());
    }
    let text = value.as_str().unwrap_or_default();
    // Kyverno: an empty one is none.
    if text.is_empty() && value.as_str().is_some() || text.parse::<Operation>().is_ok() {
        return Ok(());
    }
    let shown = value.as_str().map_or_else(|| kiln_value::json::to_string(value), str::to_owned);
    let meant = did_you_mean(&shown.to_uppercase(), Operation::ALL.map(Operation::as_str));
    let hint = match meant {
        Some(meant) => format!("did you mean {meant:?}?"),
        None => "use CREATE, UPDATE, DELETE or CONNECT".to_owned(),
    };
    Err(Diagnostic::error(format!("{OPERATION} {shown:?} is not an operation")).hint(hint))
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

#[cfg(test)]
mod tests {
    use kiln_fields::kyverno_cli as table;
    use kiln_testkit::TypeShape;

    use super::*;

    #[test]
    fn the_readers_have_the_fields_of_the_tables() {
        const OPEN: &[&str] = &["globalValues", "values", "foreachValues", "labels", "extra"];
        let none = Vec::<String>::new();
        assert_eq!(TypeShape::of::<Values>(OPEN).differences(&table::VALUES_FILE), none);
        assert_eq!(TypeShape::of::<UserFile>(OPEN).differences(&table::USER_FILE), none);
    }
}
