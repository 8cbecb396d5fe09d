//! `kiln doctor` about webhooks, certificates and what an engine says of itself, with a server in the engine's place.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use kiln_admission::certificates::{Certificates, Names, Pair, Stored};
use kiln_testkit::control_plane::ControlPlane;
use kiln_value::json;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use crate::harness::Folder;

const DAY: i64 = 24 * 3600;
const CONFIGURATION: &str = "kyverno-resource-mutating-webhook-cfg";
const STALE: &str = "watch of v1/Secret: nothing was heard of it for too long";

fn now() -> i64 {
    i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()).unwrap()
}

fn names() -> Names {
    Names { others: vec!["127.0.0.1".to_owned()], ..Names::usual("kyverno") }
}

/// Certificates that were made some time ago.
fn made(ago: i64) -> Certificates {
    Certificates::ensure(&Stored::default(), &names(), now() - ago).unwrap()
}

/// A cluster with what `kiln install` prints, and no engine.
struct Patient {
    cluster: ControlPlane,
    folder: Folder,
}

impl Patient {
    fn new() -> Option<Self> {
        let cluster = ControlPlane::for_test()?;
        let folder = Folder::with(&[]);
        cluster.apply(&folder.kiln(&["install", "--no-workload"]).stdout).unwrap();
        Some(Patient { cluster, folder })
    }

    /// What doctor says has these lines, or lines that begin so.
    #[track_caller]
    fn says(&self, wanted: &[&str]) -> String {
        let kubeconfig = self.cluster.kubeconfig().display().to_string();
        let run = self.folder.kiln(&["doctor", "--kubeconfig", &kubeconfig]);
        for wanted in wanted {
            let mut lines = run.stdout.lines();
            assert!(
                lines.any(|line| line.starts_with(wanted)),
                "{wanted:?} is missing in\n{}{}",
                run.stdout,
                run.stderr
            );
        }
        run.stdout
    }

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
        let begin = Instant::now();
        while let Err(error) = self.cluster.apply(&pod) {
            assert!(begin.elapsed() < Duration::from_secs(60), "no account for pods: {error}");
            std::thread::sleep(Duration::from_millis(200));
        }
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

/// A server that says one thing to whoever asks, until it is dropped.
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
                // Whoever does not trust it goes away, which is their right.
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
        "problem  webhooks: {which} calls the Service kyverno/kyverno-svc, which is not there: requests that it is \
         asked about are refused"
    )]);

    patient.cluster.apply(SERVICE).unwrap();
    let nobody = format!(
        "problem  webhooks: nobody answers behind the Service kyverno/kyverno-svc that {which} calls: "
    );
    patient.says(&[
        &format!("{nobody}requests that it is asked about are refused"),
        "warning  watches: the engine cannot be asked through the Service kyverno-svc",
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
        &format!("ok       webhooks: {CONFIGURATION} is registered, and somebody answers"),
        "ok       watches: the engine says that all is well",
    ]);
    stub.say(STALE);
    let said = patient.says(&[&format!("problem  watches: {STALE}")]);
    assert!(!said.contains("all is well"), "{said}");
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
    patient.says(&["ok       watches: 2 pods say that all is well"]);
    unwell.say(STALE);
    let said = patient.says(&[&format!("problem  watches: the pod kiln-b: {STALE}")]);
    assert!(!said.contains("all is well") && !said.contains("kiln-a"), "{said}");
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
        &format!("ok       webhooks: {CONFIGURATION} is registered, and somebody answers"),
        "ok       watches: the engine says that all is well",
    ]);
    stub.say(STALE);
    patient.says(&[&format!("problem  watches: {STALE}")]);

    // Somebody else is there.
    let foreign = Stub::start(&made(0).serving);
    let elsewhere = format!("https://127.0.0.1:{}", foreign.port);
    patient.register(&format!("url: '{elsewhere}/mutate'"), &certificates.ca_bundle(), "Fail");
    let which = format!("mutate.kyverno.svc in {CONFIGURATION}");
    patient.says(&[&format!(
        "problem  webhooks: {which} calls {elsewhere}, where nobody answers whom it trusts: requests that it is asked \
         about are refused: "
    )]);

    patient.register(&called, &certificates.ca_bundle(), "Fail");
    drop(stub);
    let said = patient.says(&[&format!(
        "problem  webhooks: {which} calls {origin}, where nobody answers: requests that it is asked about are refused: "
    )]);
    assert!(!said.contains("is registered, and somebody answers"), "{said}");
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
                "ok       certificates: the certificate in the Secret {authority} counts for 36"
            ),
            format!("ok       certificates: the certificate in the Secret {serving} counts for 1"),
        ],
    );
    assert!(!said.contains("trusts"), "{said}");

    let ended = made(400 * DAY);
    check(
        &ended,
        &ended.ca_bundle(),
        &[
            format!("problem  certificates: the certificate in the Secret {authority} has ended"),
            format!("problem  certificates: the certificate in the Secret {serving} has ended"),
            format!("problem  certificates: {CONFIGURATION} trusts no certificate that counts"),
        ],
    );

    // 150 days are the life of what is served.
    let soon = made(147 * DAY + DAY / 2);
    let said = check(
        &soon,
        &soon.ca_bundle(),
        &[format!(
            "warning  certificates: the certificate in the Secret {serving} counts for 2 days"
        )],
    );
    assert!(!said.contains("trusts"), "{said}");

    let tomorrow = made(-30 * DAY);
    check(
        &tomorrow,
        &certificates.ca_bundle(),
        &[format!(
            "problem  certificates: the certificate in the Secret {serving} does not count yet"
        )],
    );

    // Somebody put another certificate in its place: its own, or one of another authority.
    let key = rcgen::generate_simple_self_signed(names().all()).unwrap();
    let own = Pair { certificates: key.cert.pem(), key: key.signing_key.serialize_pem() };
    for foreign in [own, made(0).serving] {
        let replaced = Certificates { serving: foreign, ..certificates.clone() };
        let said = check(&replaced, &certificates.ca_bundle(), std::slice::from_ref(&distrust));
        assert_eq!(said.matches("is not what").count(), 1, "{said}");
    }
    // One for others is as bad.
    let others = Names { service: "other".into(), ..names() };
    let stored = Stored { authority: Some(certificates.authority.clone()), serving: None };
    let others = Certificates::ensure(&stored, &others, now()).unwrap();
    check(&others, &certificates.ca_bundle(), &[distrust]);
}
