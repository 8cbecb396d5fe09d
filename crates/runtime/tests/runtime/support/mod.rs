//! A server for tests, and clients that speak to it.
#![allow(dead_code, reason = "every test uses a part of it")]

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kiln_engine::ObservedRequest;
use kiln_object::{Kinds, ObjectId};
use kiln_runtime::events::Happened;
use kiln_runtime::health::Health;
use kiln_runtime::metrics::Metrics;
use kiln_runtime::policy_store::{Registry, StoredPolicy, compile};
use kiln_runtime::serve::{ConnectionLimits, serve_on};
use kiln_runtime::{AppState, Client, Clients, NewsChannels, PartProgress, RuntimeOptions};
use rustls::client::WantsClientCert;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, ConfigBuilder, DigitallySignedStruct, SignatureScheme};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

pub(crate) const POLICIES: &str = "
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

pub(crate) struct Running {
    pub(crate) address: SocketAddr,
    pub(crate) hints: mpsc::Receiver<ObservedRequest>,
    pub(crate) happened: mpsc::Receiver<Happened>,
    pub(crate) stop: watch::Sender<bool>,
    pub(crate) done: tokio::task::JoinHandle<()>,
    pub(crate) shared: AppState,
    pub(crate) registry: watch::Sender<Arc<Registry>>,
    _kinds: watch::Sender<Kinds>,
    _folder: tempfile::TempDir,
}

/// What a server is started with.
pub(crate) struct Setup {
    pub(crate) limits: ConnectionLimits,
    pub(crate) options: RuntimeOptions,
    pub(crate) policies: String,
    /// Where the API server is.
    pub(crate) cluster: String,
}

impl Default for Setup {
    fn default() -> Self {
        Setup {
            limits: ConnectionLimits::default(),
            options: RuntimeOptions::default(),
            policies: POLICIES.to_owned(),
            // A cluster that does not answer: reviews of plain rules need none.
            cluster: "http://127.0.0.1:1".to_owned(),
        }
    }
}

pub(crate) async fn start(limits: ConnectionLimits) -> Running {
    start_with(Setup { limits, ..Setup::default() }).await
}

/// A file that says where the API server is.
pub(crate) fn kubeconfig(cluster: &str) -> (tempfile::TempDir, std::path::PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("config");
    let config = format!(
        "{{apiVersion: v1, kind: Config, current-context: c, clusters: [{{name: c, cluster: {{server: '{cluster}'}}}}], \
         contexts: [{{name: c, context: {{cluster: c, user: u}}}}], users: [{{name: u, user: {{token: t}}}}]}}"
    );
    std::fs::write(&file, config).unwrap();
    (folder, file)
}

pub(crate) async fn start_with(setup: Setup) -> Running {
    let (folder, file) = kubeconfig(&setup.cluster);
    let _ = ring::default_provider().install_default();
    let options = RuntimeOptions { kubeconfig: Some(file), ..setup.options };
    let client = Client::connect(&options, None).await.unwrap();
    let builtin = Kinds::builtin();
    let documents =
        kiln_yaml::read_bytes("p", setup.policies.as_bytes(), kiln_yaml::ReadOptions::kubernetes())
            .unwrap();
    let policies = documents.into_iter().map(|document| {
        let object = document.into_value();
        let compiled = compile(&object, &builtin);
        assert!(compiled.is_ok(), "{compiled:?}");
        StoredPolicy {
            id: ObjectId::of(&object).unwrap(),
            object,
            reconciled: compiled.clone(),
            compiled,
            not_run: Arc::default(),
        }
    });
    let registry = Registry { policies: policies.collect(), complete: true, ..Registry::default() };
    let (kinds_sender, kinds) = watch::channel(builtin);
    let (registry_sender, registry) = watch::channel(Arc::new(registry));
    let (stop, shutdown) = watch::channel(false);
    let (hints_sender, hints) = mpsc::channel(16);
    let (happened_sender, happened) = mpsc::channel(16);
    let shared = AppState {
        options: Arc::new(options),
        clients: Clients { controller: client.clone(), admission: client.clone(), cleanup: client },
        kinds,
        rumours: kiln_runtime::discovery::Rumours::default(),
        registry,
        globals: watch::Sender::new(Arc::default()),
        news: NewsChannels {
            hints: hints_sender,
            happened: happened_sender,
            findings: mpsc::channel(64).0,
        },
        progress: PartProgress {
            webhooks: watch::Sender::new(BTreeMap::new()),
            troubles: watch::Sender::new(None),
            work: watch::Sender::default(),
            deletions: watch::Sender::default(),
        },
        rights: Arc::default(),
        health: Arc::new(Health::default()),
        metrics: Arc::new(Metrics::default()),
        shutdown,
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let done = tokio::spawn(serve_on(shared.clone(), listener, true, setup.limits));
    let running = Running {
        address,
        hints,
        happened,
        stop,
        done,
        shared,
        registry: registry_sender,
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

/// Waits until something holds.
pub(crate) async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < Duration::from_secs(30), "{what} does not come to hold");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

impl Running {
    pub(crate) async fn connect(&self) -> Option<TlsStream<TcpStream>> {
        self.connect_with(client().with_no_client_auth()).await
    }

    pub(crate) async fn connect_with(&self, config: ClientConfig) -> Option<TlsStream<TcpStream>> {
        let stream = TcpStream::connect(self.address).await.ok()?;
        let name = ServerName::try_from("kyverno-svc.kyverno.svc").unwrap();
        TlsConnector::from(Arc::new(config)).connect(name, stream).await.ok()
    }

    /// Status and body of an answer to some bytes; none when the connection ends without one.
    pub(crate) async fn say(&self, bytes: &[u8]) -> Option<(u16, String)> {
        say(self.connect().await?, bytes).await
    }

    pub(crate) async fn get(&self, path: &str) -> Option<(u16, String)> {
        self.say(format!("GET {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").as_bytes())
            .await
    }

    pub(crate) async fn post(&self, path: &str, body: &str) -> Option<(u16, String)> {
        self.say(&posted(path, body)).await
    }
}

pub(crate) fn posted(path: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!(
        "POST {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"
    )
    .into_bytes()
}

pub(crate) async fn say(mut stream: TlsStream<TcpStream>, bytes: &[u8]) -> Option<(u16, String)> {
    stream.write_all(bytes).await.ok()?;
    read_answer(&mut stream).await
}

/// A client that does not ask who the server is.
pub(crate) fn client() -> ConfigBuilder<ClientConfig, WantsClientCert> {
    ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Anybody(ring::default_provider())))
}

pub(crate) async fn read_answer(stream: &mut TlsStream<TcpStream>) -> Option<(u16, String)> {
    let mut all = Vec::new();
    // An end without a farewell is an end.
    let _ =
        tokio::time::timeout(Duration::from_secs(20), stream.read_to_end(&mut all)).await.ok()?;
    let text = String::from_utf8_lossy(&all).into_owned();
    let status = text.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()?;
    Some((status, text.split_once("\r\n\r\n")?.1.to_owned()))
}

/// A client that trusts every certificate: what is tested here is not who the server is.
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

pub(crate) fn review(kind: &str, namespace: &str) -> String {
    format!(
        r#"{{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{{"uid":"7","operation":"CREATE","name":"a","namespace":"{namespace}","kind":{{"group":"","version":"v1","kind":"{kind}"}},"userInfo":{{"username":"ann"}},"object":{{"apiVersion":"v1","kind":"{kind}","metadata":{{"name":"a"}}}}}}}}"#
    )
}
