//! OpenAPI documents and CRDs that users hand in.

use kiln_schema::{KindScope, KubernetesVersion, ListType, MapType, Schema};
use kiln_value::{Map, value};

#[test]
fn a_document_names_kinds_merge_keys_and_scopes() {
    let document = value!({
        "definitions": {
            "v1alpha1.MyCRD": {
                "type": "object",
                "properties": {
                    "spec": {"$ref": "#/definitions/spec"},
                    "status": {"type": "object", "properties": {
                        "conditions": {"type": "array", "items": {"type": "object"},
                            "x-kubernetes-list-map-keys": ["type", "reason"],
                            "x-kubernetes-patch-strategy": "merge"}}},
                },
                "x-kubernetes-group-version-kind": [
                    {"group": "example.com", "version": "v1alpha1", "kind": "MyCRD"},
                    {"group": "", "version": "v1", "kind": "Mine"},
                ],
            },
            "spec": {"properties": {"template": {"allOf": [{"$ref": "#/definitions/template"}]}}},
            "template": {"properties": {"containers": {
                "type": "array",
                "items": {"$ref": "#/definitions/a~1b"},
                "x-kubernetes-patch-merge-key": "name",
                "x-kubernetes-patch-strategy": "merge,retainKeys",
            }}},
            "a/b": {"properties": {"env": {"additionalProperties": {
                "type": "array", "x-kubernetes-list-type": "set"}}}},
        },
        "paths": {
            "/apis/example.com/v1alpha1/mycrds": {"get": {"x-kubernetes-group-version-kind":
                {"group": "example.com", "version": "v1alpha1", "kind": "MyCRD"}}},
            "/apis/example.com/v1alpha1/namespaces/{namespace}/mycrds": {"get": {"x-kubernetes-group-version-kind":
                {"group": "example.com", "version": "v1alpha1", "kind": "MyCRD"}}},
            "/api/v1/mines": {"get": {"x-kubernetes-group-version-kind":
                {"version": "v1", "kind": "Mine"}}},
        },
    });
    let schema = Schema::builtin_scopes(KubernetesVersion::V1_21).with_openapi(&document).unwrap();
    let root = schema.root("example.com/v1alpha1", "MyCRD").unwrap();
    assert_eq!(schema.root("v1", "Mine"), Some(root));
    let containers = root.at(["spec", "template", "containers"]).unwrap();
    assert_eq!(containers.merge_key(), Some("name"));
    assert!(containers.patch_strategy().merges() && containers.patch_strategy().retains_keys());
    let env = containers.items().unwrap().at(["env", "whatever"]).unwrap();
    assert_eq!(env.list_type(), Some(ListType::Set));
    let conditions = root.at(["status", "conditions"]).unwrap();
    assert_eq!(conditions.element_keys(), ["type", "reason"]);
    assert_eq!(schema.scope("example.com/v1alpha1", "MyCRD"), Some(KindScope::Namespaced));
    assert_eq!(schema.scope("v1", "Mine"), Some(KindScope::Cluster));
    // The document replaces the built-in types, not the scopes.
    assert!(schema.root("v1", "Pod").is_none());
    assert_eq!(schema.scope("v1", "Pod"), Some(KindScope::Namespaced));
    assert_eq!(schema.scope("v1", "Node"), Some(KindScope::Cluster));
}

#[test]
fn what_a_field_says_goes_before_what_its_type_says() {
    let document = value!({"components": {"schemas": {
        "root": {
            "x-kubernetes-group-version-kind": [{"version": "v1", "kind": "Root"}],
            "properties": {
                "plain": {"$ref": "#/components/schemas/atomic"},
                "opened": {"$ref": "#/components/schemas/atomic", "x-kubernetes-map-type": "granular"},
            },
        },
        "atomic": {"x-kubernetes-map-type": "atomic", "properties": {"l": {"type": "array"}}},
    }}});
    let schema = Schema::empty().with_openapi(&document).unwrap();
    let root = schema.root("v1", "Root").unwrap();
    assert_eq!(root.field("plain").unwrap().map_type(), MapType::Atomic);
    assert_eq!(root.field("opened").unwrap().map_type(), MapType::Granular);
    assert!(root.at(["opened", "l"]).is_some());
}

#[test]
fn circles_and_long_chains_of_references_end() {
    let mut definitions = Map::new();
    for i in 0..100_000 {
        let next = format!("#/definitions/d{}", i + 1);
        definitions.insert(format!("d{i}"), value!({"properties": {"next": {"$ref": next}}}));
    }
    definitions.insert("a", value!({"$ref": "#/definitions/b"}));
    definitions.insert("b", value!({"$ref": "#/definitions/a"}));
    definitions.insert(
        "root",
        value!({
            "properties": {"chain": {"$ref": "#/definitions/d0"}, "circle": {"$ref": "#/definitions/a"},
                "lost": {"$ref": "#/definitions/nowhere"}, "self": {"$ref": "#/definitions/root"}},
            "x-kubernetes-group-version-kind": [{"version": "v1", "kind": "Root"}],
        }),
    );
    let schema = Schema::empty().with_openapi(&value!({ "definitions": definitions })).unwrap();
    let root = schema.root("v1", "Root").unwrap();
    assert_eq!(root.at(["self", "self"]), Some(root));
    assert!(root.field("lost").is_none());
    let mut chain = root.field("chain").unwrap();
    let mut length = 0;
    while let Some(next) = chain.field("next") {
        chain = next;
        length += 1;
    }
    assert_eq!(length, 99_999);
}

#[test]
fn documents_of_another_kind_are_refused_with_the_place() {
    for (document, wanted) in [
        (
            value!([1]),
            "cannot read the schema: wanted an OpenAPI document with definitions or components.schemas, found list",
        ),
        (
            value!({"definitions": "x"}),
            "cannot read the schema: definitions must be a map of definitions, found string",
        ),
    ] {
        let error = Schema::empty().with_openapi(&document).unwrap_err();
        assert_eq!(error.to_string(), wanted);
    }
    for (crd, wanted) in [
        (value!({}), "cannot read the schema: spec.group must be a string, found nothing"),
        (
            value!({"spec": {"group": "g", "names": {"kind": "K"}, "scope": "Cluster", "versions": 3}}),
            "cannot read the schema: spec.versions must be a list of versions, found number",
        ),
    ] {
        assert_eq!(Schema::empty().with_crd(&crd).unwrap_err().to_string(), wanted);
    }
}

#[test]
fn odd_parts_of_a_document_count_for_nothing() {
    let document = value!({"definitions": {
        "root": {
            "x-kubernetes-group-version-kind": [{"version": "v1", "kind": "Root"}, 7, {"version": 1}],
            "properties": {"a": 5, "b": {"items": [1], "x-kubernetes-list-map-keys": "x"}, "c": {"allOf": {}}},
            "additionalProperties": true,
        },
        "other": null,
    }, "paths": {"/x": 1, "/y": {"get": {"x-kubernetes-group-version-kind": "Pod"}}}});
    let schema = Schema::empty().with_openapi(&document).unwrap();
    let root = schema.root("v1", "Root").unwrap();
    assert!(root.field("a").is_none() && root.field("c").is_none());
    assert!(root.field("b").unwrap().element_keys().is_empty());
    assert_eq!(schema.kinds().count(), 1);
}

#[test]
fn later_layers_answer_first() {
    let crd = value!({"spec": {"group": "apps", "names": {"kind": "Deployment"}, "scope": "Cluster",
        "versions": [{"name": "v1"}, {"name": "v9"}]}});
    let schema = Schema::builtin(KubernetesVersion::V1_36).with_crd(&crd).unwrap();
    assert!(schema.root("apps/v1", "Deployment").unwrap().field("spec").is_none());
    assert!(schema.root("apps/v9", "Deployment").is_some());
    assert!(schema.root("apps/v1", "DaemonSet").unwrap().field("spec").is_some());
    assert_eq!(schema.scope("apps/v1", "Deployment"), Some(KindScope::Namespaced));
    assert_eq!(schema.scope("apps/v9", "Deployment"), Some(KindScope::Cluster));
    let object = value!({"apiVersion": "apps/v1", "kind": "StatefulSet"});
    assert!(schema.root_of(&object).is_some() && schema.root_of(&value!(1)).is_none());
}
