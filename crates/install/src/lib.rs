//! What a cluster needs before Kiln runs in it, as objects to apply.
//!
//! [`manifests`] gives them in an order in which they can be applied: definitions of custom resources, the
//! namespace, accounts and rights, settings, and the workload. Names and labels are the ones that users of
//! Kyverno know, so that their roles, bindings and scripts keep working.
//!
//! Rights follow the accounts, of which there are three that act: `kyverno-admission-controller` answers reviews,
//! `kyverno-background-controller` writes objects, and `kiln` is the pod, which may do nothing but act as
//! those two. What rules write is for users to allow, through aggregated roles; see [`InstallOptions::grant`].

mod access;
mod certificates;
pub mod chart;
mod definitions;
mod monitoring;
mod options;
mod workload;

use kiln_value::{Map, Value, value};

pub use access::no_longer_installed;
pub use definitions::{definitions, own_definitions};
pub use monitoring::{alerts, dashboard};
pub use options::{
    AllowedResults, BackgroundScan, CertificateSource, Certificates, Config, Controller, Crds,
    DisruptionBudget, Features, Grant, Image, InstallOptions, IssuerRef, Logging, Monitoring,
    NetworkPolicy, OmittedEvents, Permissions, ReportedRules, ServiceAccount, Switch,
    TopologySpread, UninstallHook, over_defaults, published_image, words,
};

/// All objects, in the order in which they can be applied.
pub fn manifests(options: &InstallOptions) -> Vec<Value> {
    let mut objects = Vec::new();
    if options.crds.install {
        let definitions = crds(options).into_iter();
        objects.extend(definitions.map(|definition| marked(options, definition)));
    }
    objects.push(value!({
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": metadata(options, "", &options.namespace, "namespace"),
    }));
    objects.extend(access::objects(options));
    objects.push(workload::settings(options));
    if options.workload {
        objects.extend(certificates::objects(options));
        objects.extend(workload::objects(options));
    }
    objects.extend(monitoring::objects(options));
    objects
}

/// The definitions that are part of an installation. Beside Kyverno those that it installs as well are left to it.
fn crds(options: &InstallOptions) -> Vec<Value> {
    let stands_for_kyverno = options.names().stands_for_kyverno();
    let mut all = definitions();
    all.retain(|definition| {
        stands_for_kyverno
            || !definitions::is_of_kyverno(definition)
            || (options.crds.reports && definitions::is_of_reports(definition))
    });
    if options.crds.own_group || !stands_for_kyverno {
        all.extend(own_definitions());
    }
    if options.open_reports {
        all.extend(definitions::open_reports());
    }
    all
}

/// The labels of an object of ours, without those that users add.
fn labels(options: &InstallOptions, component: &str) -> Map {
    let mut labels = Map::new();
    labels.insert("app.kubernetes.io/part-of", options.name.as_str());
    labels.insert("app.kubernetes.io/instance", options.name.as_str());
    labels.insert("app.kubernetes.io/name", "kiln");
    labels.insert("app.kubernetes.io/component", component);
    labels
}

/// Two maps in one; the second takes precedence.
fn merged(mut first: Map, second: &Map) -> Map {
    for (key, value) in second.iter() {
        first.insert(key.clone(), value.clone());
    }
    first
}

/// Name, namespace (none if empty), labels and annotations of an object.
fn metadata(options: &InstallOptions, namespace: &str, name: &str, component: &str) -> Value {
    let mut metadata = Map::new();
    metadata.insert("name", name);
    if !namespace.is_empty() {
        metadata.insert("namespace", namespace);
    }
    metadata.insert("labels", merged(options.labels.clone(), &labels(options, component)));
    if !options.annotations.is_empty() {
        metadata.insert("annotations", options.annotations.clone());
    }
    Value::Map(metadata)
}

/// An object with what users add to every one.
fn marked(options: &InstallOptions, mut object: Value) -> Value {
    for (field, added) in [("labels", &options.labels), ("annotations", &options.annotations)] {
        if added.is_empty() {
            continue;
        }
        let own = object.get_path(["metadata", field]).and_then(Value::as_map);
        let all = merged(added.clone(), &own.cloned().unwrap_or_default());
        let _ = object.set(["metadata", field], all);
    }
    object
}
