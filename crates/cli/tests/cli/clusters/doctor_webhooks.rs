//! `kiln doctor` about webhooks, certificates and what an engine says of itself, with a server in the engine's place.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use kiln_certificates::{CertificateNames, Certificates, Pair, Stored};
use kiln_value::json;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use crate::clusters::doctor_patient::{Patient, patiently};

const DAY: i64 = 24 * 3600;
const CONFIGURATION: &str = "kyverno-resource-mutating-webhook-cfg";
const STALE: &str = "watch of v1/Secret: it received nothing for too long";

fn now() -> i64 {
    i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()).unwrap()
}

fn names() -> CertificateNames {
    CertificateNames { others: vec!["127.0.0.1".to_owned()], ..CertificateNames::usual("kyverno") }
}

/// Certificates that were made some time ago.
fn made(ago: i64) -> Certificates {
    Certificates::ensure(&Stored::default(), &names(), now() - ago).unwrap()
}

impl Patient {
    fn store(&self, certificates: &Certificates) {
        for secret in certificates.secrets(&names()) {
            self.cluster.apply(&json::to_string(&secret)).unwrap();
        }
    }

    /// Registers one webhook, which is asked about nothing.
    fn register(&self, called: &str, bundle: &str, failure_policy: &str) {
        self.cluster
            .apply(&format!(
                "apiVersion: admissionregistration.k8s.io/v1\nkind: MutatingWebhookConfiguration\n\
                 metadata: {{name: {CONFIGURATION}}}\nwebhooks:\n\
                 - name: mutate.kyverno.svc\n  admissionReviewVersions: [v1]\n  sideEffects: None\n  \
                 failurePolicy: {failure_policy}\n  objectSelector: {{matchLabels: {{nobody: has-this}}}}\n  \
                 clientConfig: {{{called}, caBundle: {bundle}}}\n"
            ))
            .unwrap();
    }

    /// A pod at an address, as its node would tell.
    fn pod(&self, name: &str, labels: &str, port: u16, address: Option<IpAddr>, ready: bool) {
        let pod = format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, namespace: kyverno, labels: {{{labels}}}}}\n\
             spec: {{containers: [{{name: a, image: none, ports: [{{name: https, containerPort: {port}}}]}}]}}\n"
        );
        // Pods need an account, which the controllers of Kubernetes make.
        let _ = patiently(|| self.cluster.apply(&pod), Result::is_ok);
        let at = address.map_or_else(String::new, |address| {
            format!(r#""podIP": "{address}", "podIPs": [{{"ip": "{address}"}}], "#)
        });
        let ready = if ready { "True" } else { "False" };
        let status = format!(
            r#"{{"status": {{{at}"conditions": [{{"type": "Ready", "status": "{ready}"}}]}}}}"#
        );
        let patch = ["--subresource=status", "--type=merge", "--patch", &status];
        let patch = [&["patch", "pod", name, "--namespace=kyverno"][..], &patch].concat();
        self.cluster.kubectl(&patch).unwrap();
    }

    /// Says who is behind the Service.
    fn endpoint(&self, address: IpAddr, port: u16, ready: bool) {
        self.cluster
            .apply(&format!(
                "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata:\n  name: kyverno-svc-1\n  namespace: kyverno\n  \
                 labels: {{kubernetes.io/service-name: kyverno-svc}}\naddressType: IPv4\n\
                 ports: [{{name: https, port: {port}}}]\n\
                 endpoints: [{{addresses: ['{address}'], conditions: {{ready: {ready}}}}}]\n\
                 ---\napiVersion: v1\nkind: Endpoints\nmetadata: {{name: kyverno-svc, namespace: kyverno}}\n\
                 subsets: [{{addresses: [{{ip: '{address}', targetRef: {{kind: Pod, name: engine, namespace: kyverno}}}}], ports: [{{name: https, port: {port}}}]}}]\n"
            ))
            .unwrap();
    }
}

const BY_SERVICE: &str = "service: {namespace: kyverno, name: kyverno-svc, path: /mutate}";
const SERVICE: &str = "
apiVersion: v1
kind: Service
metadata: {name: kyverno-svc, namespace: kyverno}
spec: {ports: [{name: https, port: 443, targetPort: 443}]}
";

/// A server that says one thing to every client, until it is dropped.
struct Stub {
    port: u16,
    says: Arc<Mutex<&'static str>>,
    listener: TcpListener,
}

impl Stub {
    fn start(served: &Pair) -> Self {
        let chain = CertificateDer::pem_slice_iter(served.certificates.as_bytes());
        let chain: Vec<_> = chain.map(Result::unwrap).collect();
        let key = PrivateKeyDer::from_pem_slice(served.key.as_bytes()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .unwrap();
        let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let says = Arc::new(Mutex::new("ok"));
        let (accepting, config, words) =
            (listener.try_clone().unwrap(), Arc::new(config), Arc::clone(&says));
        std::thread::spawn(move || {
            while let Ok((connection, _)) = accepting.accept() {
                let words = *words.lock().unwrap();
                if words.is_empty() {
                    return;
                }
                // A client that does not trust it closes the connection.
                let _ = answer(&config, connection, words);
            }
        });
        Stub { port, says, listener }
    }

    fn say(&self, words: &'static str) {
        *self.says.lock().unwrap() = words;
    }
}

impl Drop for Stub {
    fn drop(&mut self) {
        self.say("");
        let _ =
            TcpStream::connect((Ipv4Addr::LOCALHOST, self.listener.local_addr().unwrap().port()));
    }
}

fn answer(config: &Arc<ServerConfig>, connection: TcpStream, words: &str) -> std::io::Result<()> {
    connection.set_read_timeout(Some(Duration::from_secs(5)))?;
    let session = ServerConnection::new(Arc::clone(config)).map_err(std::io::Error::other)?;
    let mut stream = StreamOwned::new(session, connection);
    let mut asked = Vec::new();
    let mut part = [0; 1024];
    while !asked.windows(4).any(|end| end == b"\r\n\r\n") {
        match stream.read(&mut part)? {
            0 => return Ok(()),
            length => asked.extend_from_slice(&part[..length]),
        }
    }
    let found = asked.starts_with(b"GET /health ");
    let status = if found { "200 OK" } else { "404 Not Found" };
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{words}\n",
        words.len() + 1
    )?;
    stream.flush()?;
    stream.conn.send_close_notify();
    stream.flush()
}

/// An address of this machine that is not only its own; none where there is no network.
fn address() -> Option<IpAddr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    // Nothing is sent: this only asks which address would be used.
    socket.connect((Ipv4Addr::new(192, 0, 2, 1), 9)).ok()?;
    Some(socket.local_addr().ok()?.ip()).filter(|address| !address.is_loopback())
}

#[test]
fn webhooks_that_call_a_service() {
    let Some(patient) = Patient::new() else { return };
    let certificates = made(0);
    patient.store(&certificates);
    patient.register(BY_SERVICE, &certificates.ca_bundle(), "Fail");
    let which = format!("mutate.kyverno.svc in {CONFIGURATION}");
    patient.says(&[&format!(
        "problem  webhooks: {which} calls the Service kyverno/kyverno-svc, which does not exist: matching \
         requests are denied"
    )]);

    patient.cluster.apply(SERVICE).unwrap();
    let nobody = format!(
        "problem  webhooks: no pod answers behind the Service kyverno/kyverno-svc that {which} calls: "
    );
    patient.says(&[
        &format!("{nobody}matching requests are denied"),
        "warning  watches: cannot reach the engine through the Service kyverno-svc",
    ]);
    patient.register(BY_SERVICE, &certificates.ca_bundle(), "Ignore");
    patient.says(&[&format!("{nobody}rules do not act")]);
    let Some(address) = address() else {
        eprintln!("skipped in part: this machine has no address but its own");
        return;
    };
    let stub = Stub::start(&certificates.serving);
    // API servers pass requests on to pods only.
    patient.pod("engine", "", 443, Some(address), true);
    patient.endpoint(address, stub.port, false);
    patient.says(&[&nobody]);
    patient.endpoint(address, stub.port, true);
    patient.says(&[
        &format!("ok       webhooks: {CONFIGURATION} is registered and answers"),
        "ok       watches: the engine says that everything is healthy",
    ]);
    stub.say(STALE);
    let said = patient.says(&[&format!("problem  watches: {STALE}")]);
    assert!(!said.contains("everything is healthy"), "{said}");
}

#[test]
fn every_pod_of_an_engine_is_asked_ready_or_not() {
    let Some(patient) = Patient::new() else { return };
    let certificates = made(0);
    patient.store(&certificates);
    patient.register(BY_SERVICE, &certificates.ca_bundle(), "Fail");
    patient.cluster.apply(SERVICE).unwrap();
    let labels = |component: &str| {
        format!("app.kubernetes.io/name: kiln, app.kubernetes.io/component: {component}")
    };
    patient.pod("kiln-c", &labels("controller"), 9443, None, false);
    patient.says(&["problem  watches: the pod kiln-c is not ready, and does not answer: "]);
    patient.cluster.kubectl(&["delete", "pod", "kiln-c", "-n", "kyverno", "--force"]).unwrap();

    let Some(address) = address() else {
        eprintln!("skipped in part: this machine has no address but its own");
        return;
    };
    // The one that is well is the only one that the Service knows.
    let (well, unwell) = (Stub::start(&certificates.serving), Stub::start(&certificates.serving));
    patient.pod("kiln-a", &labels("admission"), well.port, Some(address), true);
    patient.pod("kiln-b", &labels("controller"), unwell.port, Some(address), false);
    patient.endpoint(address, well.port, true);
    patient.says(&["ok       watches: 2 pods say that everything is healthy"]);
    unwell.say(STALE);
    let said = patient.says(&[&format!("problem  watches: the pod kiln-b: {STALE}")]);
    assert!(!said.contains("everything is healthy") && !said.contains("kiln-a"), "{said}");
}

#[test]
fn webhooks_that_call_an_address() {
    let Some(patient) = Patient::new() else { return };
    let certificates = made(0);
    patient.store(&certificates);
    let stub = Stub::start(&certificates.serving);
    let origin = format!("https://127.0.0.1:{}", stub.port);
    let called = format!("url: '{origin}/mutate'");
    patient.register(&called, &certificates.ca_bundle(), "Fail");
    patient.says(&[
        &format!("ok       webhooks: {CONFIGURATION} is registered and answers"),
        "ok       watches: the engine says that everything is healthy",
    ]);
    stub.say(STALE);
    patient.says(&[&format!("problem  watches: {STALE}")]);

    // Another server answers.
    let foreign = Stub::start(&made(0).serving);
    let elsewhere = format!("https://127.0.0.1:{}", foreign.port);
    patient.register(&format!("url: '{elsewhere}/mutate'"), &certificates.ca_bundle(), "Fail");
    let which = format!("mutate.kyverno.svc in {CONFIGURATION}");
    patient.says(&[&format!(
        "problem  webhooks: {which} calls {elsewhere}, which shows an untrusted certificate: matching \
         requests are denied: "
    )]);

    patient.register(&called, &certificates.ca_bundle(), "Fail");
    drop(stub);
    let said = patient.says(&[&format!(
        "problem  webhooks: {which} calls {origin}, which does not answer: matching requests are denied: "
    )]);
    assert!(!said.contains("is registered and answers"), "{said}");
}

#[test]
fn certificates_and_what_webhooks_trust() {
    let Some(patient) = Patient::new() else { return };
    let [authority, serving] = [names().authority_secret(), names().serving_secret()];
    let certificates = made(0);
    let check = |stored: &Certificates, bundle: &str, wanted: &[String]| {
        patient.store(stored);
        patient.register(BY_SERVICE, bundle, "Fail");
        let wanted: Vec<&str> = wanted.iter().map(String::as_str).collect();
        patient.says(&wanted)
    };
    let distrust = format!(
        "problem  certificates: the certificate in the Secret {serving} is not what {CONFIGURATION} trusts: "
    );
    let said = check(
        &certificates,
        &certificates.ca_bundle(),
        &[
            format!(
                "ok       certificates: the certificate in the Secret {authority} is valid for 36"
            ),
            format!(
                "ok       certificates: the certificate in the Secret {serving} is valid for 1"
            ),
        ],
    );
    assert!(!said.contains("trusts"), "{said}");

    let ended = made(400 * DAY);
    check(
        &ended,
        &ended.ca_bundle(),
        &[
            format!("problem  certificates: the certificate in the Secret {authority} has expired"),
            format!("problem  certificates: the certificate in the Secret {serving} has expired"),
            format!("problem  certificates: {CONFIGURATION} trusts no valid certificate"),
        ],
    );

    // 150 days are the life of what is served.
    let soon = made(147 * DAY + DAY / 2);
    let said = check(
        &soon,
        &soon.ca_bundle(),
        &[format!(
            "warning  certificates: the certificate in the Secret {serving} is valid for 2 more days"
        )],
    );
    assert!(!said.contains("trusts"), "{said}");

    let tomorrow = made(-30 * DAY);
    check(
        &tomorrow,
        &certificates.ca_bundle(),
        &[format!(
            "problem  certificates: the certificate in the Secret {serving} is not valid yet"
        )],
    );

    // A user put another certificate in its place: its own, or one of another authority.
    let key = rcgen::generate_simple_self_signed(names().all()).unwrap();
    let own = Pair { certificates: key.cert.pem(), key: key.signing_key.serialize_pem() };
    for foreign in [own, made(0).serving] {
        let replaced = Certificates { serving: foreign, ..certificates.clone() };
        let said = check(&replaced, &certificates.ca_bundle(), std::slice::from_ref(&distrust));
        assert_eq!(said.matches("is not what").count(), 1, "{said}");
    }
    // One for others is as bad.
    let others = CertificateNames { service: "other".into(), ..names() };
    let stored = Stored { authority: Some(certificates.authority.clone()), serving: None };
    let others = Certificates::ensure(&stored, &others, now()).unwrap();
    check(&others, &certificates.ca_bundle(), &[distrust]);

    // Only its owner renews what an authority without a key signed.
    let own = |made: Certificates| Certificates {
        authority: Pair { key: String::new(), ..made.authority.clone() },
        ..made
    };
    let hints = || {
        let found = patient.finds("certificates");
        let wrong = found.into_iter().filter(|[state, ..]| state != "ok");
        wrong.map(|[_, message, hint]| (message, hint)).collect::<Vec<_>>()
    };
    for made in [own(ended), own(soon)] {
        patient.store(&made);
        patient.register(BY_SERVICE, &made.ca_bundle(), "Fail");
        let found = hints();
        assert!(!found.is_empty());
        for (message, hint) in found {
            assert!(hint.contains("the authority is your own"), "{message}: {hint}");
            assert!(hint.contains("you renew it"), "{message}: {hint}");
            assert!(!hint.contains("delete") && !hint.contains("makes a new one"), "{hint}");
        }
    }
    patient.cluster.kubectl(&["delete", "secret", "-n", "kyverno", &serving]).unwrap();
    let missing = format!("problem  certificates: the Secret {serving} holds no certificate");
    let said = patient.says(&[&missing]);
    assert!(!said.contains("`kiln run` makes it"), "{said}");
}

/// A configuration of one webhook, which is asked about nothing.
fn other(name: &str, called: &str, failure_policy: &str) -> String {
    format!(
        "---\napiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingWebhookConfiguration\n\
         metadata: {{name: {name}}}\nwebhooks:\n- name: a.example.org\n  admissionReviewVersions: [v1]\n  \
         sideEffects: None\n  failurePolicy: {failure_policy}\n  clientConfig: {{service: {{{called}}}}}\n  \
         rules: [{{apiGroups: [nowhere.example.org], apiVersions: ['*'], operations: ['*'], resources: ['*']}}]\n"
    )
}

/// A Service, with a ready endpoint.
fn ready(namespace: &str, service: &str) -> String {
    format!(
        "---\napiVersion: v1\nkind: Service\nmetadata: {{name: {service}, namespace: {namespace}}}\n\
         spec: {{ports: [{{name: https, port: 443}}]}}\n\
         ---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata:\n  name: {service}-1\n  namespace: {namespace}\n  \
         labels: {{kubernetes.io/service-name: {service}}}\naddressType: IPv4\nports: [{{name: https, port: 443}}]\n\
         endpoints: [{{addresses: ['10.9.8.7'], conditions: {{ready: true}}}}]\n"
    )
}

/// A Deployment with an image; there is no node that would run it.
fn deployment(namespace: &str, image: &str) -> String {
    format!(
        "---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: other, namespace: {namespace}}}\nspec:\n  \
         selector: {{matchLabels: {{a: b}}}}\n  template:\n    metadata: {{labels: {{a: b}}}}\n    \
         spec: {{containers: [{{name: c, image: '{image}'}}]}}\n"
    )
}

#[test]
fn webhooks_of_other_engines_are_gone_only_when_these_are() {
    let Some(patient) = Patient::new() else { return };
    let cluster = &patient.cluster;
    for namespace in ["prod", "kubemod-system"] {
        cluster.kubectl(&["create", "namespace", namespace]).unwrap();
    }
    for (name, called, failure_policy) in [
        ("here", "namespace: kyverno, name: kyverno-svc, path: /exceptionvalidate", "Fail"),
        ("idle", "namespace: kyverno, name: kyverno-svc, path: /verifymutate", "Ignore"),
        ("prod", "namespace: prod, name: kyverno-svc, path: /policyvalidate", "Ignore"),
        ("kubemod", "namespace: kubemod-system, name: kubemod-webhook-service, path: /v", "Fail"),
    ] {
        cluster.apply(&other(name, called, failure_policy)).unwrap();
    }
    let which = |state: &str, name: &str, calls: &str| {
        format!("{state:<8} webhooks: ValidatingWebhookConfiguration {name} (calls {calls}) is of ")
    };
    let here = which("problem", "here", "kyverno/kyverno-svc/exceptionvalidate");
    let idle = which("warning", "idle", "kyverno/kyverno-svc/verifymutate");
    let prod = which("warning", "prod", "prod/kyverno-svc");
    let kubemod = which("problem", "kubemod", "kubemod-system/kubemod-webhook-service");
    let waits = "lets requests wait for a call that fails before they go on";
    let gone = |which: &str, effect: &str| format!("{which}an engine that is gone, and {effect}");
    patient.says(&[
        &gone(&here, "refuses requests"),
        "         `kubectl delete validatingwebhookconfiguration here`",
        &gone(&idle, waits),
        &gone(&prod, waits),
        &gone(&kubemod, "refuses requests"),
    ]);

    // Both run, but no pod is ready yet.
    cluster.apply(&deployment("kyverno", "registry:5000/mirror/kyverno:v1")).unwrap();
    cluster.apply(&deployment("kubemod-system", "kubemod/kubemod:v0.20")).unwrap();
    let said = patient.says(&[
        &format!("{here}Kyverno, which has no ready pod, and refuses requests"),
        &format!("{idle}Kyverno, which has no ready pod, and {waits}"),
        &gone(&prod, waits),
        &format!("{kubemod}KubeMod, which has no ready pod, and refuses requests"),
    ]);
    assert_eq!(said.matches("is gone").count(), 1, "{said}");

    // They answer.
    for (namespace, service) in [
        ("kyverno", "kyverno-svc"),
        ("prod", "kyverno-svc"),
        ("kubemod-system", "kubemod-webhook-service"),
    ] {
        cluster.apply(&ready(namespace, service)).unwrap();
    }
    let said = patient.says(&[]);
    for silent in [&here, &idle, &prod, &kubemod] {
        assert!(!said.contains(silent.as_str()), "{said}");
    }

    // Kyverno is stopped, and Kiln answers in its place, but not at these paths.
    let scale = ["scale", "deployment", "other", "--namespace=kyverno", "--replicas=0"];
    cluster.kubectl(&scale).unwrap();
    let said = patient.says(&[&gone(&here, "refuses requests"), &gone(&idle, waits)]);
    assert!(!said.contains(&prod) && !said.contains(&kubemod), "{said}");
}

#[test]
fn a_service_that_many_webhooks_call_is_looked_at_once() {
    let Some(patient) = Patient::new() else { return };
    patient.cluster.apply(&ready("kyverno", "kyverno-svc")).unwrap();
    let webhook = |name: &str| {
        format!(
            "- name: {name}.kyverno.svc\n  admissionReviewVersions: [v1]\n  sideEffects: None\n  \
             objectSelector: {{matchLabels: {{nobody: has-this}}}}\n  clientConfig: {{{BY_SERVICE}}}\n"
        )
    };
    let configuration = format!(
        "apiVersion: admissionregistration.k8s.io/v1\nkind: MutatingWebhookConfiguration\n\
         metadata: {{name: {CONFIGURATION}}}\nwebhooks:\n{}",
        ["a", "b", "c"].map(webhook).concat()
    );
    patient.cluster.apply(&configuration).unwrap();
    let lists = || -> u64 {
        let metrics = patient.cluster.kubectl(&["get", "--raw", "/metrics"]).unwrap();
        let labels = ["resource=\"endpointslices\"", "scope=\"namespace\"", "verb=\"LIST\""];
        metrics
            .lines()
            .filter(|line| line.starts_with("apiserver_request_total{"))
            .filter(|line| labels.iter().all(|label| line.contains(label)))
            .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
            .map(|count| count as u64)
            .sum()
    };
    let before = lists();
    patient.says(&[&format!("problem  certificates: {CONFIGURATION} trusts no valid certificate")]);
    assert_eq!(lists() - before, 1);
}
