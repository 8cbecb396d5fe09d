//! The tables of the supported versions, against each other and against the kinds that are read from them.

use std::collections::BTreeSet;

use kiln_object::Kinds;
use kiln_object::kubernetes::{TABLE_1_36, TABLE_1_37, kind_rows};
use kiln_schema::types::{newest_types, types};
use kiln_schema::{KindScope, KubernetesVersion, ListType, Schema};

const VERSIONS: [(KubernetesVersion, &str); 2] =
    [(KubernetesVersion::V1_36, TABLE_1_36), (KubernetesVersion::V1_37, TABLE_1_37)];

#[test]
fn every_kind_of_a_table_has_its_scope_and_type() {
    for (version, table) in VERSIONS {
        let schema = Schema::builtin(version);
        let mut count = 0;
        for row in kind_rows(table) {
            let scope = if row.namespaced { KindScope::Namespaced } else { KindScope::Cluster };
            assert_eq!(schema.scope(row.api_version, row.kind), Some(scope), "{row:?}");
            assert!(schema.root(row.api_version, row.kind).is_some(), "{version:?} {row:?}");
            count += 1;
        }
        assert!(count >= 68, "{version:?}: {count}");
    }
    assert_eq!(Kinds::builtin().iter().count(), kind_rows(TABLE_1_36).count());
}

#[test]
fn a_newer_version_only_adds_kinds() {
    let names = |table| -> BTreeSet<(String, String)> {
        kind_rows(table).map(|row| (row.api_version.into(), row.kind.into())).collect()
    };
    let (old, new) = (names(TABLE_1_36), names(TABLE_1_37));
    assert_eq!(old.difference(&new).count(), 0);
    let added: Vec<String> = new.difference(&old).map(|(_, kind)| kind.clone()).collect();
    assert_eq!(
        added,
        [
            "ClusterTrustBundle",
            "PodCertificateRequest",
            "DeviceTaintRule",
            "StorageVersionMigration"
        ]
    );
}

/// `KubernetesVersion::NEWEST` serves clusters of every version: what merges how must not change between them.
#[test]
fn a_newer_version_merges_the_fields_of_an_older_one_alike() {
    let (old, new) =
        (Schema::builtin(KubernetesVersion::V1_36), Schema::builtin(KubernetesVersion::NEWEST));
    let mut seen = 0;
    for (api_version, kind, _) in old.kinds() {
        let Some(id) = types().kind(api_version, kind) else { continue };
        let (Some(before), Some(now)) = (old.root(api_version, kind), new.root(api_version, kind))
        else {
            panic!("{api_version} {kind} is not in both");
        };
        for part in ["spec", "status", "metadata"] {
            let Some(kiln_schema::types::SchemaType::Struct(part_id)) =
                types().field(id, part).map(|field| field.ty.clone())
            else {
                continue;
            };
            for field in types().fields(part_id) {
                let (Some(before), Some(now)) =
                    (before.at([part, field.name]), now.at([part, field.name]))
                else {
                    continue;
                };
                // An alpha field, off by default, of which 1.37 made another type.
                if field.name == "nodeAllocatableResourceClaimStatuses" {
                    continue;
                }
                assert_eq!(before.list_type(), now.list_type(), "{kind} {part}.{}", field.name);
                assert_eq!(before.merge_key(), now.merge_key(), "{kind} {part}.{}", field.name);
                assert_eq!(before.map_type(), now.map_type(), "{kind} {part}.{}", field.name);
                seen += 1;
            }
        }
    }
    assert!(seen > 300, "{seen}");
}

#[test]
fn merge_rules_follow_the_table() {
    for (version, _) in VERSIONS {
        let schema = Schema::builtin(version);
        let at = |api_version, kind, path: &[&'static str]| {
            schema.root(api_version, kind).and_then(|root| root.at(path.iter().copied())).unwrap()
        };
        let containers = at("v1", "Pod", &["spec", "containers"]);
        assert_eq!(containers.list_type(), Some(ListType::Map));
        assert_eq!(containers.merge_key(), Some("name"));
        assert!(containers.patch_strategy().merges());
        let ports = containers.items().and_then(|one| one.field("ports")).unwrap();
        assert_eq!(ports.element_keys(), ["containerPort", "protocol"]);
        let strategy = at("apps/v1", "Deployment", &["spec", "strategy"]);
        assert!(strategy.patch_strategy().retains_keys());
        assert!(strategy.field("rollingUpdate").is_some(), "it has the fields of its type, too");
        let finalizers = at("v1", "Namespace", &["metadata", "finalizers"]);
        assert_eq!(finalizers.list_type(), Some(ListType::Set));
    }
    assert!(newest_types().kind("certificates.k8s.io/v1", "ClusterTrustBundle").is_some());
    assert!(types().kind("certificates.k8s.io/v1", "ClusterTrustBundle").is_none());
}
