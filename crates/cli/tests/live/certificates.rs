//! Certificates that ran out, and that are renewed while requests come.

use std::thread::sleep;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use kiln_certificates::{CertificateNames, Certificates, Stored};
use kiln_testkit::control_plane::ControlPlane;
use kiln_value::json;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

use crate::harness::{Cluster, Engine, PATIENCE, cluster, under_load};

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
fn names() -> CertificateNames {
    let others = ["127.0.0.1".to_owned(), "localhost".to_owned()];
    CertificateNames { others: others.into(), ..CertificateNames::usual("kyverno") }
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

/// The authorities that webhooks trust.
fn trusted(cluster: &Cluster) -> Vec<Vec<u8>> {
    let all = "go-template={{range .items}}{{range .webhooks}}{{.clientConfig.caBundle | base64decode}}{{end}}{{end}}";
    let bundles = cluster.kubectl(&["get", "mutatingwebhookconfigurations", "-o", all]).unwrap();
    let read = CertificateDer::pem_slice_iter(bundles.as_bytes());
    let mut found: Vec<Vec<u8>> = read.map(|one| one.unwrap().to_vec()).collect();
    found.sort();
    found.dedup();
    found
}

/// Whether an engine answers over a new connection to a client that trusts these authorities.
fn alive(engine: &Engine, authorities: Vec<Vec<u8>>) -> Result<String, String> {
    let request = http::Request::get("/livez").body(Vec::new()).unwrap();
    engine.ask(request, Some(authorities))
}

/// Which authorities have signed the certificate that an engine serves.
fn signers(engine: &Engine, authorities: &[Vec<u8>]) -> Vec<bool> {
    authorities.iter().map(|one| alive(engine, vec![one.clone()]).is_ok()).collect()
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
    let before_the_change = |seconds: i64| {
        let soon = now() + seconds;
        let both = Certificates::ensure(&stored(&old), &names(), soon - 3600).unwrap();
        assert_eq!(both.serving, old.serving, "the old one signs until then");
        store(&cluster, &both);
        let mut engine = cluster.whole(&[]);
        cluster.wait("it answers", || is_answered(&cluster, &format!("wait-{}", now())).is_ok());
        // The API server keeps its connections: others begin one each time, and trust whom webhooks trust.
        let (before, authorities) = (serving(&cluster), trusted(&cluster));
        let signers = signers(&engine, &authorities);
        let left = soon - now();
        if left <= 0 {
            engine.terminate();
            return None;
        }
        Some((engine, before, authorities, signers, Duration::from_secs(left.unsigned_abs())))
    };
    // A machine that was too slow to see the change gets more time.
    let seen = [25, 75, 225].into_iter().find_map(before_the_change);
    let (mut engine, before, authorities, signers_before, left) = seen.expect("it was never ready");
    let plane: &ControlPlane = &cluster;
    let connects = |what: &str| {
        let answer = alive(&engine, trusted(&cluster));
        assert_eq!(answer.as_deref(), Ok("ok\n"), "a new connection {what}");
    };
    under_load(
        |name| is_answered(plane, name),
        || {
            cluster.wait_for(left + PATIENCE, "another certificate is served", || {
                connects("while the old one is served");
                serving(&cluster) != before
            });
            for _ in 0..30 {
                connects("while the new one is taken into use");
                sleep(Duration::from_millis(100));
            }
        },
    );
    let signers_after = signers(&engine, &authorities);
    assert_eq!(signers_before.iter().filter(|signs| **signs).count(), 1, "one of them signed");
    let others: Vec<bool> = signers_before.iter().map(|signed| !signed).collect();
    assert_eq!((authorities.len(), signers_after), (2, others), "and the other one after it");
    engine.terminate();
    cluster.kubectl(&["delete", "clusterpolicy", "certified"]).unwrap();
    cluster.kubectl(&["delete", "namespace", "certified", "--wait=false"]).unwrap();
}
