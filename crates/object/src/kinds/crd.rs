//! Kinds out of CustomResourceDefinitions, `v1` and `v1beta1`.

use std::borrow::Cow;

use kiln_value::{Str, Value};

use super::{Kind, KindNames, Subresource, builtin};

/// Why a CustomResourceDefinition cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("CustomResourceDefinition {definition}: {field} {problem}")]
pub struct CrdError {
    /// Its name, as far as known.
    pub definition: String,
    pub field: String,
    /// What is wrong with it.
    pub problem: String,
}

pub(super) fn read(definition: &Value) -> Result<Vec<Kind>, CrdError> {
    let error = |field: &str, problem: &str| CrdError {
        definition: crate::metadata::name(definition).unwrap_or("without a name").to_owned(),
        field: field.to_owned(),
        problem: problem.to_owned(),
    };
    if definition.get("kind").and_then(Value::as_str) != Some("CustomResourceDefinition") {
        return Err(error("kind", "must be CustomResourceDefinition"));
    }
    let text = |path: &[&str]| {
        definition.str_at(path.iter().copied()).filter(|text| !text.is_empty()).map(Str::new)
    };
    let needed =
        |path: &[&str]| text(path).ok_or_else(|| error(&path.join("."), "is missing; give it"));
    let group = needed(&["spec", "group"])?;
    let kind = needed(&["spec", "names", "kind"])?;
    let plural = needed(&["spec", "names", "plural"])?;
    for known in builtin::kinds().iter().filter(|known| known.group == group) {
        if known.plural == plural {
            return Err(error("spec.names.plural", "is that of a built-in kind; choose another"));
        }
        if known.kind == kind {
            return Err(error("spec.names.kind", "is built in; choose another"));
        }
    }
    let namespaced = match text(&["spec", "scope"]).as_deref() {
        Some("Namespaced") => true,
        Some("Cluster") => false,
        // In v1beta1 the scope may be missing.
        None => true,
        Some(_) => return Err(error("spec.scope", "must be Namespaced or Cluster")),
    };
    let names = |field: &str| {
        let names = definition.get_path(["spec", "names", field]).and_then(Value::as_list);
        let names = names.into_iter().flat_map(|names| names.iter());
        KindNames::Read(names.filter_map(Value::as_str).map(Str::new).collect())
    };
    let top = definition.get_path(["spec", "subresources"]);
    let versions = versions(definition);
    if versions.is_empty() {
        return Err(error("spec.versions", "has no version; give at least one"));
    }
    let mut kinds = Vec::new();
    for (i, version) in versions.iter().enumerate() {
        let missing = || error(&format!("spec.versions[{i}].name"), "is missing; give it");
        let name = version.get("name").and_then(Value::as_str).ok_or_else(missing)?;
        let flag = |field| version.get(field).and_then(Value::as_bool).unwrap_or(false);
        kinds.push(Kind {
            group: group.clone(),
            version: Str::new(name),
            kind: kind.clone(),
            plural: plural.clone(),
            singular: text(&["spec", "names", "singular"]),
            list_kind: text(&["spec", "names", "listKind"]),
            namespaced,
            short_names: names("shortNames"),
            categories: names("categories"),
            subresources: Cow::Owned(subresources(version.get("subresources").or(top))),
            verbs: builtin::CUSTOM_VERBS,
            served: flag("served"),
            storage: flag("storage"),
        });
    }
    Ok(kinds)
}

/// The versions; in v1beta1 a single one may stand alone.
fn versions(definition: &Value) -> Vec<Value> {
    let versions = definition.get_path(["spec", "versions"]).and_then(Value::as_list);
    if let Some(versions) = versions.filter(|versions| !versions.is_empty()) {
        return versions.to_vec();
    }
    let single = definition.str_at(["spec", "version"]);
    let version = |name: &str| kiln_value::value!({"name": name, "served": true, "storage": true});
    single.map(version).into_iter().collect()
}

fn subresources(declared: Option<&Value>) -> Vec<Subresource> {
    let has = |name| declared.and_then(|declared| declared.get(name)).is_some_and(|v| !v.is_null());
    let all = [builtin::SCALE, builtin::STATUS];
    all.into_iter().filter(|subresource| has(subresource.name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Gvk, Kinds};
    use kiln_value::value;

    fn widgets() -> Value {
        value!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "widgets.example.com"},
            "spec": {
                "group": "example.com", "scope": "Cluster",
                "names": {
                    "kind": "Widget", "plural": "widgets", "singular": "wid", "shortNames": ["wd", "po"],
                    "listKind": "Widgets", "categories": ["all"],
                },
                "versions": [
                    {"name": "v1alpha1", "served": false, "storage": false},
                    {"name": "v1beta1", "served": true, "storage": true},
                    {"name": "v1", "served": true, "storage": false, "subresources": {"status": {}}},
                ],
            },
        })
    }

    #[test]
    fn custom_kinds_join_the_built_in_ones() {
        let kinds = Kinds::builtin().with_crd(&widgets()).unwrap();
        let preferred = kinds.preferred("example.com", "Widget").unwrap();
        assert_eq!(preferred.version(), "v1");
        assert!(preferred.subresource("status").is_some());
        assert!(preferred.subresource("scale").is_none());
        assert_eq!(preferred.list_kind(), "Widgets");
        for name in ["wd", "wid", "widget", "widgets.example.com", "WIDGETS"] {
            assert_eq!(kinds.find(name), Some(preferred), "{name}");
        }
        assert_eq!(kinds.find("po").map(Kind::kind), Some("Pod"));
        assert_eq!(kinds.is_namespaced(&Gvk::new("example.com/v1", "Widget")), Some(false));
        assert!(kinds.get(&Gvk::new("example.com/v1alpha1", "Widget")).is_none());
        assert_eq!(kinds.versions("example.com", "Widget").count(), 3);
        let stored = kinds.versions("example.com", "Widget").find(|kind| kind.is_storage());
        assert_eq!(stored.map(Kind::version), Some("v1beta1"));
        let again = kinds.clone().with_crd(&widgets()).unwrap();
        assert_eq!(again.iter().count(), 70);
        assert_eq!(kinds.without("example.com", "Widget").iter().count(), 68);
    }

    #[test]
    fn the_old_form_has_one_version_and_shared_subresources() {
        let definition = value!({
            "apiVersion": "apiextensions.k8s.io/v1beta1", "kind": "CustomResourceDefinition",
            "spec": {
                "group": "example.com", "version": "v1", "scope": "Namespaced",
                "names": {"kind": "Old", "plural": "olds"},
                "subresources": {"scale": {"specReplicasPath": ".spec.replicas"}},
            },
        });
        let kinds = Kinds::builtin().with_crd(&definition).unwrap();
        let old = kinds.get(&Gvk::new("example.com/v1", "Old")).unwrap();
        assert!(old.is_namespaced() && old.is_storage());
        assert_eq!(old.subresource("scale").map(|scale| scale.kind), Some("Scale"));
        assert_eq!(old.singular(), "old");
    }

    #[test]
    fn built_in_kinds_are_not_replaced() {
        for (group, kind, plural, field) in [
            ("apps", "Deployment", "deployments", "spec.names.plural"),
            ("rbac.authorization.k8s.io", "Thing", "clusterrolebindings", "spec.names.plural"),
            ("networking.k8s.io", "NetworkPolicy", "things", "spec.names.kind"),
        ] {
            let mut definition = widgets();
            for (path, text) in [
                (vec!["spec", "group"], group),
                (vec!["spec", "names", "kind"], kind),
                (vec!["spec", "names", "plural"], plural),
            ] {
                definition.set(path, text).unwrap();
            }
            let error = Kinds::builtin().with_crd(&definition).unwrap_err();
            assert_eq!(error.field, field, "{plural}.{group}");
        }
        // The same names in another group are another kind.
        let mut definition = widgets();
        definition.set(["spec", "names", "kind"], "Deployment").unwrap();
        definition.set(["spec", "names", "plural"], "deployments").unwrap();
        let kinds = Kinds::builtin().with_crd(&definition).unwrap();
        assert_eq!(kinds.find("deployments").map(Kind::group), Some("apps"));
        // A kind with another plural takes the place of the one before.
        let mut definition = widgets();
        definition.set(["spec", "names", "kind"], "Other").unwrap();
        let kinds = Kinds::builtin().with_crd(&widgets()).unwrap().with_crd(&definition).unwrap();
        assert_eq!(kinds.iter().count(), 70);
        assert_eq!(kinds.custom("example.com", "widgets").map(Kind::kind), Some("Other"));
    }

    #[test]
    fn mistakes_name_the_field() {
        let without = |path: &[&str]| {
            let mut definition = widgets();
            definition.remove(path.iter().copied());
            Kinds::builtin().with_crd(&definition).unwrap_err().to_string()
        };
        let start = "CustomResourceDefinition widgets.example.com: ";
        assert_eq!(without(&["spec", "group"]), format!("{start}spec.group is missing; give it"));
        assert_eq!(
            without(&["spec", "versions"]),
            format!("{start}spec.versions has no version; give at least one")
        );
        assert_eq!(without(&["kind"]), format!("{start}kind must be CustomResourceDefinition"));
    }
}
