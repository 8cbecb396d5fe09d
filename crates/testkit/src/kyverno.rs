//! Objects as Kyverno's controllers leave them in a cluster.

use kiln_value::{Value, value};

/// What made an object.
#[derive(Clone, Copy, Debug)]
pub enum MadeBy<'a> {
    /// A rule of a ClusterPolicy, or of a Policy in a namespace.
    Rule {
        policy: &'a str,
        /// The policy's namespace; empty for a ClusterPolicy.
        namespace: &'a str,
        rule: &'a str,
    },
    /// A GeneratingPolicy or a NamespacedGeneratingPolicy: its labels do not tell them apart.
    GeneratingPolicy(&'a str),
}

/// An object with the labels that Kyverno gives it: of a trigger and perhaps a source, both as the cluster has them.
///
/// # Panics
/// When the object has no metadata.
pub fn made_by_kyverno(
    mut object: Value,
    by: MadeBy<'_>,
    trigger: &Value,
    source: Option<&Value>,
) -> Value {
    let mut label = |key: &str, text: &str| {
        object.set(["metadata", "labels", key], text).expect("an object has metadata");
    };
    label("app.kubernetes.io/managed-by", "kyverno");
    let mut name = |part: &str, text: &str| label(&format!("generate.kyverno.io/{part}"), text);
    match by {
        MadeBy::Rule { policy, namespace, rule } => {
            name("policy-name", policy);
            name("policy-namespace", namespace);
            name("rule-name", rule);
            identify(&mut name, "trigger", trigger);
            if let Some(source) = source {
                identify(&mut name, "source", source);
            }
        }
        MadeBy::GeneratingPolicy(policy) => {
            name("policy-name", policy);
            name("trigger-name", metadata(trigger, "name"));
            identify(&mut name, "trigger", trigger);
            if let Some(source) = source {
                name("source-uid", metadata(source, "uid"));
            }
        }
    }
    object
}

/// A copy of a source as Kyverno makes one: with all labels and annotations of the source, and with the label that it
/// gives to sources.
///
/// # Panics
/// When the source is not an object.
pub fn copied_by_kyverno(source: &Value, namespace: &str, name: &str) -> Value {
    let mut copy = source.clone();
    for field in ["uid", "resourceVersion", "creationTimestamp", "generation", "managedFields"] {
        copy.remove(["metadata", field]);
    }
    let mut set = |path: [&str; 2], text: &str| {
        copy.set(path, text).expect("a source has metadata");
    };
    set(["metadata", "namespace"], namespace);
    set(["metadata", "name"], name);
    let labels = ["metadata", "labels", "generate.kyverno.io/clone-source"];
    copy.set(labels, value!("")).expect("a source has metadata");
    copy
}

fn identify(name: &mut impl FnMut(&str, &str), role: &str, object: &Value) {
    let api_version = object.str_at(["apiVersion"]).unwrap_or_default();
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    for (part, text) in [
        ("group", group),
        ("version", version),
        ("kind", object.str_at(["kind"]).unwrap_or_default()),
        ("namespace", metadata(object, "namespace")),
        ("uid", metadata(object, "uid")),
    ] {
        name(&format!("{role}-{part}"), text);
    }
}

fn metadata<'v>(object: &'v Value, field: &str) -> &'v str {
    object.str_at(["metadata", field]).unwrap_or_default()
}
