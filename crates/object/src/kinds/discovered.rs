//! Kinds out of what an API server says it serves (`APIGroupDiscoveryList`).

use std::borrow::Cow;

use kiln_value::{Str, Value};

use super::{Kind, KindNames, builtin};

/// The kinds of a discovery document, the built-in ones left out.
pub(super) fn read(discovery: &Value) -> Vec<Kind> {
    let mut kinds = Vec::new();
    for group in list(discovery, "items") {
        let name = group.str_at(["metadata", "name"]).unwrap_or_default();
        for version in list(group, "versions") {
            let Some(version_name) = version.str_at(["version"]) else { continue };
            for resource in list(version, "resources") {
                kinds.extend(kind(name, version_name, resource));
            }
        }
    }
    kinds
}

fn kind(group: &str, version: &str, resource: &Value) -> Option<Kind> {
    let kind = resource.str_at(["responseKind", "kind"])?;
    let known = builtin::kinds()
        .iter()
        .any(|known| known.kind == kind && known.group == group && known.version == version);
    if known {
        return None;
    }
    let texts = |field: &str| -> Vec<Str> {
        list(resource, field).filter_map(Value::as_str).map(Str::new).collect()
    };
    let verbs = texts("verbs");
    let subresources: Vec<_> = list(resource, "subresources")
        .filter_map(|subresource| subresource.str_at(["subresource"]))
        .filter_map(|name| {
            [builtin::SCALE, builtin::STATUS].into_iter().find(|known| known.name == name)
        })
        .collect();
    Some(Kind {
        group: group.into(),
        version: version.into(),
        kind: kind.into(),
        plural: resource.str_at(["resource"])?.into(),
        singular: resource.str_at(["singularResource"]).map(Str::new),
        list_kind: None,
        namespaced: resource.str_at(["scope"]) == Some("Namespaced"),
        short_names: KindNames::Read(texts("shortNames")),
        categories: KindNames::Read(texts("categories")),
        subresources: Cow::Owned(subresources),
        verbs: builtin::nearest_verbs(|verb| verbs.iter().any(|known| known == verb)),
        served: true,
        storage: false,
    })
}

fn list<'v>(value: &'v Value, field: &str) -> impl Iterator<Item = &'v Value> {
    value.get(field).and_then(Value::as_list).into_iter().flat_map(|list| list.iter())
}

#[cfg(test)]
mod tests {
    use crate::{Gvk, Kinds};
    use kiln_value::value;

    #[test]
    fn what_a_server_serves_joins_the_built_in_kinds() {
        let kinds = Kinds::discovered(&value!({"items": [
            {"metadata": {"name": "apps"}, "versions": [{"version": "v1", "resources": [
                {"resource": "deployments", "responseKind": {"kind": "Deployment"}, "scope": "Namespaced",
                 "verbs": ["get"]},
            ]}]},
            {"metadata": {"name": "metrics.k8s.io"}, "versions": [{"version": "v1beta1", "resources": [
                {"resource": "nodes", "responseKind": {"kind": "NodeMetrics"}, "scope": "Cluster",
                 "verbs": ["get", "list"], "singularResource": ""},
            ]}]},
            {"metadata": {"name": "example.com"}, "versions": [{"version": "v1", "resources": [
                {"resource": "widgets", "responseKind": {"kind": "Widget"}, "scope": "Namespaced",
                 "verbs": ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"],
                 "shortNames": ["wd"], "subresources": [{"subresource": "status"}]},
            ]}]},
        ]}));
        assert_eq!(kinds.iter().count(), Kinds::builtin().iter().count() + 2);
        let widget = kinds.find("wd").unwrap();
        assert!(widget.is_namespaced() && widget.subresource("status").is_some());
        assert!(widget.verbs().contains(&"watch"));
        let metrics = kinds.get(&Gvk::new("metrics.k8s.io/v1beta1", "NodeMetrics")).unwrap();
        assert!(!metrics.is_namespaced() && !metrics.verbs().contains(&"watch"));
        assert!(kinds.find("deploy").unwrap().verbs().contains(&"watch"));
        assert_eq!(
            Kinds::discovered(&value!("nonsense")).iter().count(),
            Kinds::builtin().iter().count()
        );
    }
}
