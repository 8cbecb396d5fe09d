//! The HTTPS server, spoken to over sockets: good requests, and all the others.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kiln_controller::Hint;
use kiln_live::events::Happened;
use kiln_live::health::Health;
use kiln_live::metrics::Metrics;
use kiln_live::registry::{Registry, StoredPolicy, compile};
use kiln_live::serve::{CarrierLimits, ClientAuthority, Limits, serve_on};
use kiln_live::{Client, Options, Shared};
use kiln_object::{Kinds, ObjectId};
use kiln_value::Value;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::client::WantsClientCert;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, ConfigBuilder, DigitallySignedStruct, SignatureScheme};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

const POLICIES: &str = "
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: label, uid: u, generation: 1}
spec:
  rules:
  - name: team
    match: {any: [{resources: {kinds: [ConfigMap]}}]}
    mutate: {patchStrategicMerge: {metadata: {labels: {team: a}}}}
---
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: make, uid: v, generation: 1}
spec:
  rules:
  - name: quota
    match: {any: [{resources: {kinds: [Namespace]}}]}
    generate: {apiVersion: v1, kind: ResourceQuota, name: q, namespace: default, data: {spec: {}}}
---
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: watched, uid: w, generation: 1}
spec:
  rules:
  - name: shells
    match: {any: [{resources: {kinds: [Pod/exec]}}]}
    generate: {apiVersion: v1, kind: ConfigMap, name: shell, namespace: default, data: {data: {}}}
";

struct Running {
    address: SocketAddr,
    hints: mpsc::Receiver<Hint>,
    happened: mpsc::Receiver<Happened>,
    stop: watch::Sender<bool>,
    done: tokio::task::JoinHandle<()>,
    shared: Shared,
    _registry: watch::Sender<Arc<Registry>>,
    _kinds: watch::Sender<Kinds>,
    _folder: tempfile::TempDir,
}

async fn start(limits: Limits) -> Running {
    start_with(limits, None).await
}

async fn start_with(limits: Limits, client_ca: Option<ClientAuthority>) -> Running {
    // A cluster that does not answer: reviews of plain rules need none.
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("config");
    let config = "
apiVersion: v1
kind: Config
current-context: c
clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
users: [{name: u, user: {token: t}}]
";
    std::fs::write(&file, config).unwrap();
    let _ = ring::default_provider().install_default();
    let options = Options { kubeconfig: Some(file), client_ca, ..Options::default() };
    let client = Client::connect(&options, None).await.unwrap();
    let builtin = Kinds::builtin();
    let documents =
        kiln_yaml::read_bytes("p", POLICIES.as_bytes(), kiln_yaml::ReadOptions::kubernetes())
            .unwrap();
    let policies = documents.into_iter().map(|document| {
        let object = document.into_value();
        let compiled = compile(&object, &builtin);
        assert!(compiled.is_ok());
        StoredPolicy { id: ObjectId::of(&object).unwrap(), object, compiled }
    });
    let registry = Registry { policies: policies.collect(), complete: true, ..Registry::default() };
    let (kinds_sender, kinds) = watch::channel(builtin);
    let (registry_sender, registry) = watch::channel(Arc::new(registry));
    let (stop, shutdown) = watch::channel(false);
    let (hints_sender, hints) = mpsc::channel(16);
    let (happened_sender, happened) = mpsc::channel(16);
    let shared = Shared {
        options: Arc::new(options),
        controller: client.clone(),
        admission: client,
        kinds,
        registry,
        globals: watch::Sender::new(Arc::default()),
        hints: hints_sender,
        webhooks: watch::Sender::new(BTreeMap::new()),
        happened: happened_sender,
        troubles: watch::Sender::new(None),
        work: watch::Sender::default(),
        rights: Arc::default(),
        health: Arc::new(Health::default()),
        metrics: Arc::new(Metrics::default()),
        shutdown,
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let done = tokio::spawn(serve_on(shared.clone(), listener, true, limits));
    let running = Running {
        address,
        hints,
        happened,
        stop,
        done,
        shared,
        _registry: registry_sender,
        _kinds: kinds_sender,
        _folder: folder,
    };
    // The first certificate takes a moment.
    let began = Instant::now();
    while running.get("/health/liveness").await.is_none() {
        assert!(began.elapsed() < Duration::from_secs(30), "the server does not start");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    running
}

impl Running {
    async fn connect(&self) -> Option<TlsStream<TcpStream>> {
        self.connect_with(client().with_no_client_auth()).await
    }

    async fn connect_with(&self, config: ClientConfig) -> Option<TlsStream<TcpStream>> {
        let stream = TcpStream::connect(self.address).await.ok()?;
        let name = ServerName::try_from("kyverno-svc.kyverno.svc").unwrap();
        TlsConnector::from(Arc::new(config)).connect(name, stream).await.ok()
    }

    /// Status and body of an answer to some bytes; none when the connection ends without one.
    async fn say(&self, bytes: &[u8]) -> Option<(u16, String)> {
        say(self.connect().await?, bytes).await
    }

    async fn get(&self, path: &str) -> Option<(u16, String)> {
        self.say(format!("GET {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").as_bytes())
            .await
    }

    async fn post(&self, path: &str, body: &str) -> Option<(u16, String)> {
        self.say(&posted(path, body)).await
    }
}

fn posted(path: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!(
        "POST {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"
    )
    .into_bytes()
}

async fn say(mut stream: TlsStream<TcpStream>, bytes: &[u8]) -> Option<(u16, String)> {
    stream.write_all(bytes).await.ok()?;
    read_answer(&mut stream).await
}

/// A client that does not ask who the server is.
fn client() -> ConfigBuilder<ClientConfig, WantsClientCert> {
    ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Anybody(ring::default_provider())))
}

async fn read_answer(stream: &mut TlsStream<TcpStream>) -> Option<(u16, String)> {
    let mut all = Vec::new();
    // An end without a farewell is an end.
    let _ =
        tokio::time::timeout(Duration::from_secs(20), stream.read_to_end(&mut all)).await.ok()?;
    let text = String::from_utf8_lossy(&all).into_owned();
    let status = text.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()?;
    Some((status, text.split_once("\r\n\r\n")?.1.to_owned()))
}

/// A client that trusts everybody: what is tested here is not who the server is.
#[derive(Debug)]
struct Anybody(CryptoProvider);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(
            message,
            certificate,
            signature,
            &self.0.signature_verification_algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(
            message,
            certificate,
            signature,
            &self.0.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

fn review(kind: &str, namespace: &str) -> String {
    format!(
        r#"{{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{{"uid":"7","operation":"CREATE","name":"a","namespace":"{namespace}","kind":{{"group":"","version":"v1","kind":"{kind}"}},"userInfo":{{"username":"ann"}},"object":{{"apiVersion":"v1","kind":"{kind}","metadata":{{"name":"a"}}}}}}}}"#
    )
}

fn short() -> Limits {
    Limits {
        handshake: Duration::from_millis(300),
        head: Duration::from_millis(300),
        body: Duration::from_millis(300),
        drain: Duration::from_secs(5),
        ..Limits::default()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reviews_are_answered_and_triggers_told() {
    let mut running = start(Limits::default()).await;
    let (status, body) =
        running.post("/mutate/fail?timeout=10s", &review("ConfigMap", "dev")).await.unwrap();
    assert_eq!(status, 200);
    let answer = kiln_value::json::parse(&body).unwrap();
    assert_eq!(answer.str_at(["response", "uid"]), Some("7"));
    assert_eq!(answer.get_path(["response", "allowed"]), Some(&Value::Bool(true)));
    assert_eq!(answer.str_at(["response", "patchType"]), Some("JSONPatch"));
    let (status, _) = running.post("/validate/ignore", &review("Namespace", "a")).await.unwrap();
    assert_eq!(status, 200);
    let hint = running.hints.recv().await.unwrap();
    assert_eq!((hint.name.as_str(), hint.user.username.as_str()), ("a", "ann"));
    assert!(!hint.passed_over);
    let Some(Happened::Mutated { rule, object }) = running.happened.recv().await else {
        panic!("a change of an object is told")
    };
    assert_eq!((rule.rule.as_str(), object.name.as_str()), ("team", "a"));
    // What somebody sends who is kept out is told too, so that nobody acts on it.
    let node = review("Namespace", "a").replace(r#""ann""#, r#""n","groups":["system:nodes"]"#);
    assert_eq!(running.post("/validate/ignore", &node).await.unwrap().0, 200);
    assert!(running.hints.recv().await.unwrap().passed_over);
    let (_, metrics) = running.get("/metrics").await.unwrap();
    for number in
        ["process_resident_memory_bytes ", "process_cpu_seconds_total ", "process_open_fds "]
    {
        let value = metrics.lines().find_map(|line| line.strip_prefix(number));
        assert!(
            value.is_some_and(|value| value.parse::<f64>().unwrap() >= 0.0),
            "{number}: {metrics}"
        );
    }
    for line in [
        r#"kiln_admission_requests_total{path="/mutate/fail",operation="CREATE",answer="patched"} 1"#,
        r#"kiln_rule_results_total{policy="label",rule="team",result="pass"} 1"#,
    ] {
        assert!(metrics.lines().any(|found| found == line), "{line} in {metrics}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readiness_is_lost_with_a_watch_and_liveness_is_not() {
    let running = start(Limits::default()).await;
    // Nobody takes the webhooks here.
    running.shared.health.good("webhooks", None);
    let status = async |path: &str| running.get(path).await.map(|answer| answer.0);
    for path in ["/healthz", "/livez", "/health/liveness", "/readyz", "/health/readiness"] {
        assert_eq!(status(path).await, Some(200), "{path}");
    }
    running.shared.health.bad("rules: watch of kyverno.io/v1/ClusterPolicy", "it fell silent");
    let (code, words) = running.get("/readyz").await.unwrap();
    assert_eq!(
        (code, words.as_str()),
        (503, "rules: watch of kyverno.io/v1/ClusterPolicy: it fell silent\n")
    );
    assert_eq!(status("/healthz").await, Some(200));
    running.shared.health.forget("rules: watch of kyverno.io/v1/ClusterPolicy");
    running.shared.health.bad("controller", "it has not read everything yet");
    running.shared.health.bad("global context: prices: watch of v1/Secret", "forbidden");
    assert_eq!(status("/readyz").await, Some(200), "reviews can be answered");
    let (_, words) = running.get("/health").await.unwrap();
    assert!(words.contains("prices") && words.contains("controller"), "{words}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_makes_no_sense_is_refused() {
    let running = start(Limits::default()).await;
    for (path, body, expected) in [
        ("/mutate/fail", "{", 400),
        ("/mutate/fail", "{}", 400),
        ("/mutate/fail", r#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}"#, 400),
        ("/nowhere", "{}", 404),
        ("/metrics", "{}", 405),
    ] {
        assert_eq!(
            running.post(path, body).await.map(|answer| answer.0),
            Some(expected),
            "{path} {body}"
        );
    }
    assert_eq!(running.get("/mutate/fail").await.map(|answer| answer.0), Some(405));
    let deep = format!("{}{}", "[".repeat(200_000), "]".repeat(200_000));
    assert_eq!(running.post("/mutate/fail", &deep).await.map(|answer| answer.0), Some(400));
    let head = "POST /mutate/fail HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: 99999999\r\n\r\n";
    assert_eq!(running.say(head.as_bytes()).await.map(|answer| answer.0), Some(413));
    let long = format!("GET / HTTP/1.1\r\nhost: a\r\nx: {}\r\n\r\n", "y".repeat(100_000));
    assert_ne!(running.say(long.as_bytes()).await.map(|answer| answer.0), Some(200));
    assert_eq!(running.get("/health/liveness").await.map(|answer| answer.0), Some(200));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_clients_are_left() {
    let running = start(short()).await;
    // Nothing that could be a handshake, or nothing at all.
    let mut silent = TcpStream::connect(running.address).await.unwrap();
    let mut noise = TcpStream::connect(running.address).await.unwrap();
    noise.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    // A head that never ends, and a body that never comes.
    let mut head = running.connect().await.unwrap();
    head.write_all(b"POST /mutate/fail HTTP/1.1\r\nhost").await.unwrap();
    let mut body = running.connect().await.unwrap();
    body.write_all(b"POST /mutate/fail HTTP/1.1\r\nhost: a\r\ncontent-length: 10\r\n\r\n{")
        .await
        .unwrap();
    // Those who shake hands and then say nothing, or not enough to tell what they want, in both protocols.
    let mut mute = Vec::new();
    for (is_http2, bytes) in [
        (false, b"".as_slice()),
        (false, b"PRI * HT"),
        (true, b""),
        (true, b"PRI * HT"),
        (true, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0"),
    ] {
        let mut config = client().with_no_client_auth();
        config.alpn_protocols = if is_http2 { vec![b"h2".to_vec()] } else { Vec::new() };
        let mut stream = running.connect_with(config).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        mute.push(stream);
    }
    let mut buffer = Vec::new();
    let patience = Duration::from_secs(10);
    for (number, stream) in mute.iter_mut().enumerate() {
        let ended = tokio::time::timeout(patience, stream.read_to_end(&mut buffer)).await;
        assert!(ended.is_ok(), "connection {number} goes on without a request");
    }
    for stream in [&mut silent, &mut noise] {
        let ended = tokio::time::timeout(patience, stream.read_to_end(&mut buffer)).await;
        assert!(ended.is_ok(), "a connection without a handshake goes on");
    }
    let ended = tokio::time::timeout(patience, head.read_to_end(&mut buffer)).await;
    assert!(ended.is_ok(), "a head without an end goes on");
    let mut answer = [0; 12];
    tokio::time::timeout(patience, body.read_exact(&mut answer)).await.unwrap().unwrap();
    assert_eq!(&answer, b"HTTP/1.1 408");
    assert_eq!(running.get("/health/liveness").await.map(|answer| answer.0), Some(200));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn there_is_a_most_of_connections() {
    let running = start(Limits { connections: 2, ..Limits::default() }).await;
    // Whoever looked whether it serves may not be gone yet.
    let connected = async || {
        let began = Instant::now();
        loop {
            if let Some(stream) = running.connect().await {
                return stream;
            }
            assert!(began.elapsed() < Duration::from_secs(10), "places are not given back");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let one = connected().await;
    let two = connected().await;
    assert!(running.connect().await.is_none(), "a third connection is closed");
    drop((one, two));
    connected().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_end_lets_requests_come_to_theirs() {
    let running = start(short()).await;
    let mut stream = running.connect().await.unwrap();
    let text = review("ConfigMap", "dev");
    let head =
        format!("POST /mutate/fail HTTP/1.1\r\nhost: a\r\ncontent-length: {}\r\n\r\n", text.len());
    stream.write_all(head.as_bytes()).await.unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;
    running.stop.send(true).unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;
    stream.write_all(text.as_bytes()).await.unwrap();
    let (status, _) = read_answer(&mut stream).await.unwrap();
    assert_eq!(status, 200);
    tokio::time::timeout(Duration::from_secs(10), running.done).await.unwrap().unwrap();
    assert!(!running.shared.health.problems().is_empty(), "it is no longer ready");
}

/// An authority, and a client that it knows.
fn authority() -> (String, ClientConfig) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(["api-server".to_owned()]).unwrap();
    let certificate = params.signed_by(&key, &authority).unwrap();
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let client = client().with_client_auth_cert(vec![certificate.der().clone()], key).unwrap();
    (authority.pem(), client)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reviews_of_clients_without_a_certificate_are_refused_where_one_is_asked_for() {
    let (pem, known) = authority();
    let (_, stranger) = authority();
    let clients = ClientAuthority::read(pem.as_bytes()).unwrap();
    let running = start_with(Limits::default(), Some(clients)).await;
    let review = review("ConfigMap", "dev");
    let (status, words) = running.post("/mutate/fail", &review).await.unwrap();
    assert_eq!((status, words.as_str()), (403, "show a client certificate\n"));
    // Probes and metrics need none.
    assert_eq!(running.get("/health/liveness").await.map(|answer| answer.0), Some(200));
    let asked = async |client: ClientConfig| {
        let stream = running.connect_with(client).await?;
        say(stream, &posted("/mutate/fail", &review)).await
    };
    let (status, body) = asked(known).await.unwrap();
    assert_eq!(status, 200);
    assert!(body.contains("JSONPatch"), "{body}");
    assert_eq!(asked(stranger).await, None, "a certificate of somebody else is worse than none");
    for wrong in ["", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
        assert!(ClientAuthority::read(wrong.as_bytes()).is_err(), "{wrong}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn made_up_reviews_are_not_written_down_without_end() {
    let carriers = CarrierLimits { burst: 3, per_second: 0, ..CarrierLimits::default() };
    let running = start(Limits { carriers, ..Limits::default() }).await;
    for number in 0..10 {
        let exec = format!(
            r#"{{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{{"uid":"{number}","operation":"CONNECT","name":"a","namespace":"dev","subResource":"exec","kind":{{"group":"","version":"v1","kind":"PodExecOptions"}},"resource":{{"group":"","version":"v1","resource":"pods"}},"userInfo":{{"username":"ann"}},"object":{{"apiVersion":"v1","kind":"PodExecOptions","command":["sh"]}}}}}}"#
        );
        let (status, body) = running.post("/validate/ignore", &exec).await.unwrap();
        assert_eq!(status, 200, "{body}");
    }
    // Nobody takes what is written here, and what is held back is not even tried.
    let (_, metrics) = running.get("/metrics").await.unwrap();
    for (outcome, count) in [("failed", 3), ("held back", 7)] {
        let line = format!("kiln_requests_written_total{{outcome=\"{outcome}\"}} {count}");
        assert!(metrics.lines().any(|found| found == line), "{line} in {metrics}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_that_are_opened_and_reset_end_their_connection() {
    let running = start(Limits::default()).await;
    let mut config = client().with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let mut stream = running.connect_with(config).await.unwrap();
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.unwrap();
    // POST /policyvalidate of https://a, and at once: never mind.
    let path = b"/policyvalidate";
    let mut head = vec![0x83, 0x87, 0x04, path.len() as u8];
    head.extend_from_slice(path);
    head.extend_from_slice(&[0x01, 1, b'a']);
    let mut sent = 0;
    for number in 0..20_000_u32 {
        let id = (2 * number + 1).to_be_bytes();
        let mut frames = vec![0, 0, head.len() as u8, 0x01, 0x04];
        frames.extend_from_slice(&id);
        frames.extend_from_slice(&head);
        frames.extend_from_slice(&[0, 0, 4, 0x03, 0]);
        frames.extend_from_slice(&id);
        frames.extend_from_slice(&[0, 0, 0, 8]);
        if stream.write_all(&frames).await.is_err() {
            break;
        }
        sent += 1;
    }
    let mut answer = Vec::new();
    let ended =
        tokio::time::timeout(Duration::from_secs(20), stream.read_to_end(&mut answer)).await;
    assert!(ended.is_ok(), "the connection goes on after {sent} streams");
    assert_eq!(running.get("/health/liveness").await.map(|answer| answer.0), Some(200));
}
