//! Definitions of custom resources that many clusters have, by the name under which people install them.
//!
//! They say what a cluster serves, not what is in an object: every field is allowed. What they fill in is in
//! `common_defaults`. The table is `common.txt`.

use kiln_value::{Value, value};

use super::{common_defaults, usual_plural};

const TABLE: &str = include_str!("common.txt");

/// The names of the sets, in alphabetical order.
pub fn names() -> impl Iterator<Item = &'static str> {
    lines().filter(|line| !line.starts_with(' '))
}

/// The CustomResourceDefinitions of a set; none when there is no set of this name.
pub fn definitions(name: &str) -> Option<Vec<Value>> {
    let mut lines = lines().skip_while(|line| *line != name);
    lines.next()?;
    let lines = lines.take_while(|line| line.starts_with(' '));
    Some(lines.flat_map(of_line).collect())
}

fn lines() -> impl Iterator<Item = &'static str> {
    TABLE.lines().filter(|line| !line.is_empty() && !line.starts_with('#'))
}

/// The definitions of one line: all kinds of a group with the same versions.
fn of_line(line: &'static str) -> impl Iterator<Item = Value> {
    let mut words = line.split_whitespace();
    let group = words.next().unwrap_or_default();
    let versions = words.next().unwrap_or_default();
    words.map(move |word| definition(group, versions, word))
}

fn definition(group: &str, versions: &str, word: &str) -> Value {
    let mut parts = word.split('/');
    let name = parts.next().unwrap_or_default();
    let (kind, plural) = match name.split_once('=') {
        Some((kind, plural)) => (kind, plural.to_owned()),
        None => (name, usual_plural(name)),
    };
    let (mut scope, mut subresources) = ("Namespaced", value!({"status": {}}));
    for part in parts {
        match part {
            "cluster" => scope = "Cluster",
            _ => subresources = value!({}),
        }
    }
    let versions: Value = versions
        .split(',')
        .enumerate()
        .map(|(at, version)| {
            let is_stored = at == 0;
            let schema = common_defaults::schema(group, version, kind);
            value!({
                "name": version,
                "served": true,
                "storage": is_stored,
                "schema": {"openAPIV3Schema": schema},
                "subresources": (subresources.clone())
            })
        })
        .collect();
    let (singular, list) = (kind.to_lowercase(), format!("{kind}List"));
    // API servers ask for it in groups of Kubernetes' own, and look at nothing else in it.
    let annotations = match group.ends_with(".k8s.io") || group.ends_with(".kubernetes.io") {
        true => value!({"api-approved.kubernetes.io": "unapproved, for tests"}),
        false => value!({}),
    };
    value!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": (format!("{plural}.{group}")), "annotations": annotations},
        "spec": {
            "group": group,
            "names": {"kind": kind, "listKind": list, "plural": plural, "singular": singular},
            "scope": scope,
            "versions": versions
        }
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::{Gvk, Kinds};

    #[test]
    fn every_set_can_be_used() {
        let all: Vec<&str> = names().collect();
        let sorted: BTreeSet<&str> = all.iter().copied().collect();
        assert_eq!(all, sorted.into_iter().collect::<Vec<_>>(), "in order, and each once");
        let (mut kinds, mut seen) = (Kinds::builtin(), BTreeSet::new());
        for name in all {
            let definitions = definitions(name).unwrap();
            assert!(!definitions.is_empty(), "{name} defines nothing");
            for definition in definitions {
                let called = definition.str_at(["metadata", "name"]).unwrap().to_owned();
                kinds = kinds.with_crd(&definition).unwrap_or_else(|why| panic!("{called}: {why}"));
                assert!(seen.insert(called.clone()), "{called} is there twice");
                let approval = ["metadata", "annotations", "api-approved.kubernetes.io"];
                let is_theirs = called.ends_with(".k8s.io") || called.ends_with(".kubernetes.io");
                assert_eq!(definition.get_path(approval).is_some(), is_theirs, "{called}");
            }
        }
        for (version, kind, plural, is_namespaced) in [
            ("cert-manager.io/v1", "ClusterIssuer", "clusterissuers", false),
            ("networking.istio.io/v1", "VirtualService", "virtualservices", true),
            ("consul.hashicorp.com/v1alpha1", "Mesh", "meshes", true),
            ("source.toolkit.fluxcd.io/v1beta2", "GitRepository", "gitrepositories", true),
            ("monitoring.coreos.com/v1", "Prometheus", "prometheuses", true),
            ("gateway.networking.k8s.io/v1", "Gateway", "gateways", true),
            ("consul.hashicorp.com/v1alpha1", "ServiceDefaults", "servicedefaults", true),
            ("telemetry.istio.io/v1", "Telemetry", "telemetries", true),
        ] {
            let found = kinds.get(&Gvk::new(version, kind)).unwrap();
            assert_eq!((found.plural(), found.is_namespaced()), (plural, is_namespaced), "{kind}");
        }
        assert_eq!(definitions("nobody"), None);
        assert_eq!(definitions("  argoproj.io"), None);
    }
}
