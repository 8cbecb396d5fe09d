//! Certificates that ran out, and that are renewed while requests come.

use std::thread::sleep;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use kiln_admission::certificates::{Certificates, Names, Stored};
use kiln_testkit::control_plane::ControlPlane;
use kiln_value::json;

use crate::harness::{Cluster, cluster, under_load};

const DAY: i64 = 24 * 3600;

const LABEL: &str = "
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: certified}
spec:
  rules:
  - name: label
    match: {any: [{resources: {kinds: [ConfigMap], namespaces: [certified]}}]}
    mutate: {patchStrategicMerge: {metadata: {labels: {seen: 'yes'}}}}
";

fn now() -> i64 {
    i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()).unwrap()
}

/// The names that engines on loopback are called by.
fn names() -> Names {
    let others = ["127.0.0.1".to_owned(), "localhost".to_owned()];
    Names { others: others.into(), ..Names::usual("kyverno") }
}

fn stored(made: &Certificates) -> Stored {
    Stored { authority: Some(made.authority.clone()), serving: Some(made.serving.clone()) }
}

fn store(cluster: &Cluster, made: &Certificates) {
    for secret in made.secrets(&names()) {
        cluster.apply(&json::to_string(&secret)).unwrap();
    }
}

fn serving(cluster: &Cluster) -> String {
    let name = names().serving_secret();
    let args = ["get", "secret", &name, "-n", "kyverno", "-o", r"jsonpath={.data.tls\.crt}"];
    cluster.kubectl(&args).unwrap_or_default()
}

/// Whether a request is answered: the failure of a webhook is the failure of the request.
fn is_answered(plane: &ControlPlane, name: &str) -> Result<(), String> {
    let label = "jsonpath={.metadata.labels.seen}";
    match plane.kubectl(&["create", "configmap", name, "-n", "certified", "-o", label]) {
        Ok(label) if label == "yes" => Ok(()),
        other => Err(format!("{name}: {other:?}")),
    }
}

#[test]
fn certificates_that_ran_out_are_renewed_at_the_start_and_others_under_load() {
    let Some(cluster) = cluster() else { return };
    cluster.kubectl(&["create", "namespace", "certified"]).unwrap();
    let long_ago = Certificates::ensure(&Stored::default(), &names(), now() - 400 * DAY).unwrap();
    store(&cluster, &long_ago);
    let mut engine = cluster.whole(&[]);
    cluster.policy(LABEL);
    is_answered(&cluster, "first").unwrap();
    engine.terminate();

    // An authority that is renewed, and whose successor is known to API servers in a moment.
    let old = Certificates::ensure(&Stored::default(), &names(), now() - 310 * DAY).unwrap();
    let old = Certificates::ensure(&stored(&old), &names(), now() - 10 * DAY).unwrap();
    let soon = now() + 25;
    let both = Certificates::ensure(&stored(&old), &names(), soon - 3600).unwrap();
    assert_eq!(both.serving, old.serving, "the old one signs until then");
    store(&cluster, &both);
    let mut engine = cluster.whole(&[]);
    cluster.wait("it answers", || is_answered(&cluster, &format!("wait-{}", now())).is_ok());
    let before = serving(&cluster);
    assert!(now() < soon, "the machine is too slow to see the change");
    let plane: &ControlPlane = &cluster;
    under_load(
        |name| is_answered(plane, name),
        || {
            cluster.wait("another certificate is served", || serving(&cluster) != before);
            // Connections that are there go on; new ones see the new certificate.
            sleep(Duration::from_secs(3));
        },
    );
    engine.terminate();
    cluster.kubectl(&["delete", "clusterpolicy", "certified"]).unwrap();
    cluster.kubectl(&["delete", "namespace", "certified", "--wait=false"]).unwrap();
}
