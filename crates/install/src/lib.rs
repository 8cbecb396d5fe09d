//! What a cluster needs before Kiln runs in it, as objects to apply.
//!
//! [`manifests`] gives them in an order in which they can be applied: definitions of custom resources, the
//! namespace, accounts and rights, settings, and the workload. Names and labels are the ones that users of
//! Kyverno know, so that their roles, bindings and scripts keep working.
//!
//! Rights follow the accounts, of which there are three that act: `kyverno-admission-controller` answers reviews,
//! `kyverno-background-controller` writes objects, and `kiln` is the pod, which may do nothing but act as
//! those two. What rules write is for users to allow, through aggregated roles; see [`Options::grant`].

mod access;
mod definitions;
mod monitoring;
mod workload;

use kiln_value::{Value, value};

pub use definitions::definitions;
pub use monitoring::{alerts, dashboard};

/// What users decide about an installation.
#[derive(Clone, Debug)]
pub struct Options {
    /// The namespace that the engine lives in.
    pub namespace: String,
    /// The image that holds the `kiln` binary.
    pub image: String,
    /// How many pods run; those that answer requests, when the sides are split.
    pub replicas: u32,
    /// Whether requests are answered and rules carried out by Deployments of their own.
    pub split: bool,
    /// What rules may read and write from the start.
    pub grant: Grant,
    /// The namespaces, with commas and wildcards, of which PolicyExceptions hold for all policies; the engine's own if left
    /// out.
    pub exceptions: Option<String>,
    /// Whether there is anything that runs: a Deployment and what belongs to it.
    pub workload: bool,
    /// Whether Prometheus and Grafana, where they run, get to know the engine.
    pub monitoring: bool,
}

/// What rules may read and write from the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grant {
    /// What every user with the role view may read. Users add roles with the aggregation labels for all else.
    View,
    /// Also the kinds that rules commonly make: ConfigMaps, Secrets, NetworkPolicies, quotas, limits, roles and
    /// their bindings, namespaces, nodes and pods.
    Standard,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            namespace: "kyverno".to_owned(),
            image: format!("kiln:{}", env!("CARGO_PKG_VERSION")),
            replicas: 1,
            split: false,
            grant: Grant::View,
            exceptions: None,
            workload: true,
            monitoring: false,
        }
    }
}

/// All objects, in the order in which they can be applied.
pub fn manifests(options: &Options) -> Vec<Value> {
    let mut objects = definitions();
    objects.push(value!({
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": options.namespace, "labels": labels("namespace")},
    }));
    objects.extend(access::objects(options));
    objects.push(workload::settings(options));
    if options.workload {
        objects.extend(workload::objects(options));
    }
    if options.monitoring {
        objects.extend(monitoring::objects(options));
    }
    objects
}

/// The labels of an object of ours.
fn labels(component: &str) -> Value {
    value!({
        "app.kubernetes.io/part-of": "kyverno",
        "app.kubernetes.io/instance": "kyverno",
        "app.kubernetes.io/name": "kiln",
        "app.kubernetes.io/component": component,
    })
}
