//! Serves the embedded API server on loopback: connections, certificates, a kubeconfig, data on disk.
//!
//! Nothing is decided here: requests are turned into data for [`kiln_apiserver`], answers into bytes.
//!
//! | module | holds |
//! |---|---|
//! | `host` | the clock, chance, and calls to webhooks |
//! | `bodies` | what clients send, and how much of it at once |
//! | `connection` | requests in, answers and watches out |
//! | `journal` | brings what is written to the disk, in order, before clients see it |
//! | `data` | what is stored, on disk |
//! | `kubeconfig` | what clients need to find and trust the server |

mod bodies;
mod connection;
mod data;
mod host;
mod journal;
mod kubeconfig;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use kiln_apiserver::{ApiRequest, Authorization, Response, Server, Settings};
use kiln_certificates::{CertificateNames, Certificates, Stored};
use kiln_value::{Value, json, value};
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::TcpListener;
use tokio::sync::{RwLock, watch};
use tokio_rustls::TlsAcceptor;

use data::Data;
use host::SandboxHost;
use journal::Journal;
pub use kubeconfig::HEADER as KUBECONFIG_HEADER;

/// Why a sandbox does not start, in words for the user.
#[derive(Clone, Debug)]
pub struct StartError {
    /// What is wrong.
    pub message: String,
    /// What to do next.
    pub hint: String,
}

impl std::fmt::Display for StartError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({})", self.message, self.hint)
    }
}

impl std::error::Error for StartError {}

/// Why an object is not stored.
#[derive(Clone, Debug)]
pub struct Refusal {
    /// The server's reason in one word, such as `NotFound`; empty when it has none.
    pub reason: String,
    /// What is wrong.
    pub message: String,
    /// The field that the server names first, such as `spec.containers[0].image`; empty when it names none.
    pub field: String,
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Refusal {}

/// What a user decides about a sandbox.
#[derive(Clone, Debug)]
pub struct SandboxOptions {
    /// The address to listen on; port 0 for any that is free.
    pub listen: SocketAddr,
    /// Where objects are kept across restarts; none for in memory alone.
    pub data: Option<PathBuf>,
    pub authorization: Authorization,
    /// The namespace of the kubeconfig's context.
    pub namespace: String,
    /// Requests wait until [`Sandbox::open`]; those of clients with [`Sandbox::inner_kubeconfig`] do not.
    pub hold: bool,
}

impl Default for SandboxOptions {
    fn default() -> Self {
        SandboxOptions {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            data: None,
            authorization: Authorization::AlwaysAllow,
            namespace: "default".to_owned(),
            hold: false,
        }
    }
}

/// How long the end waits for writes that are under way; webhooks may take their time.
const LAST_WRITES: Duration = Duration::from_secs(5);

/// A sandbox that serves.
#[derive(Debug)]
pub struct Sandbox {
    server: Arc<Server>,
    host_state: Arc<host::HostState>,
    journal: Option<Arc<Journal>>,
    writing: Arc<RwLock<()>>,
    address: SocketAddr,
    kubeconfig: String,
    inner_kubeconfig: String,
    open: watch::Sender<bool>,
    stop: watch::Sender<bool>,
}

impl Sandbox {
    /// Begins to serve on the current runtime.
    ///
    /// # Errors
    /// When the address is taken, or the data cannot be read; in words for the user.
    pub async fn start(options: &SandboxOptions) -> Result<Self, StartError> {
        // The first to set it wins; it is ring either way.
        let _ = ring::default_provider().install_default();
        let (listener, address) = bind(options.listen).await?;
        let (data, kept) = match &options.data {
            None => (None, data::Kept::default()),
            Some(directory) => {
                let (data, kept) = Data::open(directory)?;
                (Some(data), kept)
            }
        };
        let own = |message: String| StartError {
            message,
            hint: "start over with an empty --data".to_owned(),
        };
        let certificates = certificates(kept.certificates.as_ref(), address).map_err(own)?;
        let token = kept.token.clone().map_or_else(host::secret, Ok)?;
        let signing_key = kept.signing_key.clone().map_or_else(host::secret, Ok)?;
        let full = |message: String| StartError { message, hint: "is the disk full?".to_owned() };
        if let Some(data) = &data {
            data.keep_identity(&token, &signing_key, &certificates).map_err(full)?;
        }
        let settings = Settings {
            authorization: options.authorization,
            admin_token: Some(token.clone()),
            signing_key: signing_key.into_bytes(),
            address: address.to_string(),
            ca: certificates.authority.certificates.clone(),
            ..Settings::default()
        };
        let host_state = Arc::new(host::HostState::default());
        let server = Server::with_records(
            settings,
            Box::new(SandboxHost(Arc::clone(&host_state))),
            kept.records,
        );
        let server = Arc::new(server);
        let journal = data.map(|data| Arc::new(Journal::new(Box::new(data))));
        if let Some(journal) = &journal {
            server.keep_records();
            journal.keep_all(&server).map_err(full)?;
        }
        let authority = &certificates.authority.certificates;
        let config = |address| kubeconfig::text(address, authority, &token, &options.namespace);
        let (stop, stopped) = watch::channel(false);
        let acceptor = TlsAcceptor::from(tls(&certificates).map_err(own)?);
        let open = watch::Sender::new(!options.hold);
        let host = connection::ConnectionHost {
            server: Arc::clone(&server),
            journal: journal.clone(),
            writing: Arc::default(),
            bodies: connection::bodies(),
            revisions: host_state.revisions.subscribe(),
            open: open.subscribe(),
            stopped,
        };
        let mut inner_kubeconfig = config(address);
        if options.hold {
            let (listener, address) = bind(SocketAddr::new(options.listen.ip(), 0)).await?;
            let inner = connection::ConnectionHost { open: watch::channel(true).1, ..host.clone() };
            tokio::spawn(connection::accept(listener, acceptor.clone(), inner));
            inner_kubeconfig = config(address);
        }
        tokio::spawn(connection::accept(listener, acceptor, host.clone()));
        let writing = Arc::clone(&host.writing);
        tokio::spawn(settle(host));
        let kubeconfig = config(address);
        Ok(Sandbox {
            server,
            host_state,
            journal,
            writing,
            address,
            kubeconfig,
            inner_kubeconfig,
            open,
            stop,
        })
    }

    /// Lets requests in that wait.
    pub fn open(&self) {
        self.open.send_replace(true);
    }

    /// A kubeconfig for those who work before [`Sandbox::open`].
    pub fn inner_kubeconfig(&self) -> &str {
        &self.inner_kubeconfig
    }

    /// Where it serves.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What clients need, as a kubeconfig.
    pub fn kubeconfig(&self) -> &str {
        &self.kubeconfig
    }

    /// The server itself, for programs in the same process.
    pub fn server(&self) -> &Arc<Server> {
        &self.server
    }

    /// From now on a program of this machine answers for a Service: webhooks that name it are called there.
    pub fn route_service(&self, namespace: &str, name: &str, address: SocketAddr) {
        self.host_state.route(namespace, name, address);
    }

    /// Sends something as the administrator, without a connection.
    pub fn send(&self, request: ApiRequest) -> Response {
        let token = format!("Bearer {}", self.token());
        let writes = !matches!(request.method.as_str(), "GET" | "HEAD");
        let response = self.server.call(&request.with_header("Authorization", &token));
        match &self.journal {
            Some(journal) if writes => match journal.keep(&self.server) {
                Ok(()) => response,
                Err(message) => Response {
                    status: 500,
                    headers: Vec::new(),
                    body: json::to_string(&value!({"message": message})).into_bytes(),
                },
            },
            _ => response,
        }
    }

    fn token(&self) -> String {
        let line = self.kubeconfig.lines().find_map(|line| line.trim().strip_prefix("token: "));
        line.unwrap_or_default().to_owned()
    }

    /// Applies an object as `kubectl apply --server-side` would; where it is, or why not.
    ///
    /// # Errors
    /// What the server says.
    pub fn apply(&self, object: &Value, namespace: &str) -> Result<String, Refusal> {
        let path = self.path_of(object, namespace)?;
        let target = format!("{path}?fieldManager=kiln-up&force=true");
        let body = json::to_string(object);
        let response = self.send(
            ApiRequest::new("PATCH", &target).with_body("application/apply-patch+yaml", body),
        );
        if response.status < 300 {
            return Ok(path);
        }
        Err(refusal(&response.value()))
    }

    /// Deletes an object as `kubectl delete` would.
    ///
    /// # Errors
    /// What the server says.
    pub fn delete(&self, object: &Value, namespace: &str) -> Result<(), Refusal> {
        let path = self.path_of(object, namespace)?;
        let response = self.send(ApiRequest::new("DELETE", &path));
        match response.status {
            status if status < 300 => Ok(()),
            _ => Err(refusal(&response.value())),
        }
    }

    /// Where an object is served.
    fn path_of(&self, object: &Value, namespace: &str) -> Result<String, Refusal> {
        let text = |path: &[&str]| object.str_at(path.iter().copied()).unwrap_or_default();
        let (version, kind, name) =
            (text(&["apiVersion"]), text(&["kind"]), text(&["metadata", "name"]));
        let refused = |reason: &str, message: String, field: &str| Refusal {
            reason: reason.to_owned(),
            message,
            field: field.to_owned(),
        };
        for (field, text) in [("apiVersion", version), ("kind", kind)] {
            if text.is_empty() {
                return Err(refused("BadRequest", format!("it has no {field}"), ""));
            }
        }
        if name.is_empty() {
            return Err(refused("BadRequest", "it has no metadata.name".to_owned(), "metadata"));
        }
        let prefix = if version.contains('/') {
            format!("/apis/{version}")
        } else {
            format!("/api/{version}")
        };
        let list = self.send(ApiRequest::new("GET", &prefix)).value();
        let resources = list.get("resources").and_then(Value::as_list);
        let found = resources.into_iter().flat_map(|list| list.iter()).find(|one| {
            one.str_at(["kind"]) == Some(kind)
                && !one.str_at(["name"]).unwrap_or_default().contains('/')
        });
        let Some(found) = found else {
            return Err(refused("NotServed", format!("{version} {kind} is not served"), "kind"));
        };
        let plural = found.str_at(["name"]).unwrap_or_default();
        if found.get("namespaced").and_then(Value::as_bool) == Some(true) {
            let given = text(&["metadata", "namespace"]);
            let namespace = if given.is_empty() { namespace } else { given };
            return Ok(format!("{prefix}/namespaces/{namespace}/{plural}/{name}"));
        }
        Ok(format!("{prefix}/{plural}/{name}"))
    }

    /// Waits for something to be written after a revision.
    pub async fn changed_after(&self, revision: u64) {
        let mut revisions = self.host_state.revisions.subscribe();
        let _ = revisions.wait_for(|now| *now > revision).await;
    }

    /// The revision of the last write.
    pub fn revision(&self) -> u64 {
        self.server.revision()
    }

    /// Ends it: watches come to their end, what is on disk is complete.
    pub async fn stop(self) {
        self.end().await;
    }

    /// Ends it, for those who share it. Writes under way are finished, later ones are refused, the data is free.
    pub async fn end(&self) {
        let _ = self.stop.send(true);
        if tokio::time::timeout(LAST_WRITES, self.writing.write()).await.is_err() {
            tracing::warn!("a write is still under way");
        }
        if let Some(journal) = self.journal.clone() {
            let server = Arc::clone(&self.server);
            let closed = tokio::task::spawn_blocking(move || journal.close(&server)).await;
            if let Ok(Err(error)) = closed {
                tracing::error!(%error, "cannot write to disk");
            }
        }
        // Answers that are under way get a moment.
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Takes an address.
async fn bind(address: SocketAddr) -> Result<(TcpListener, SocketAddr), StartError> {
    let taken = |error: std::io::Error| StartError {
        message: match error.kind() {
            std::io::ErrorKind::AddrInUse => format!("{address} is taken by another process"),
            std::io::ErrorKind::PermissionDenied => {
                format!("cannot listen on {address}: permission denied")
            }
            _ => format!("cannot listen on {address}: {error}"),
        },
        hint: "choose another --listen; port 0 takes any that is free".to_owned(),
    };
    let listener = TcpListener::bind(address).await.map_err(taken)?;
    let address = listener.local_addr().map_err(taken)?;
    Ok((listener, address))
}

/// Does what controllers do, whenever something changed.
async fn settle(host: connection::ConnectionHost) {
    let mut revisions = host.revisions.clone();
    let mut stopped = host.stopped.clone();
    loop {
        let writing = Arc::clone(&host.writing).read_owned().await;
        if *stopped.borrow() {
            return;
        }
        let round = host.clone();
        let settled = tokio::task::spawn_blocking(move || {
            round.server.settle();
            let kept = round.keep();
            drop(writing);
            kept
        });
        match settled.await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::error!(%error, "cannot write to disk"),
            Err(_) => tracing::error!("a controller of the sandbox panicked"),
        }
        tokio::select! {
            changed = revisions.changed() => if changed.is_err() { return },
            () = connection::ended(&mut stopped) => return,
        }
        // Several writes, one round.
        tokio::time::sleep(Duration::from_millis(2)).await;
        revisions.borrow_and_update();
    }
}

/// Certificates for an address: those that were kept, unless they have ended or are for another one.
fn certificates(
    kept: Option<&data::Identity>,
    address: SocketAddr,
) -> Result<data::Identity, String> {
    let stored = kept.map_or_else(Stored::default, |kept| Stored {
        authority: Some(kept.authority.clone()),
        serving: Some(kept.serving.clone()),
    });
    let names = CertificateNames {
        service: "kubernetes".into(),
        namespace: "default".into(),
        others: vec!["localhost".to_owned(), "127.0.0.1".to_owned(), address.ip().to_string()],
    };
    let (now, _) = host::now();
    let made = Certificates::ensure(&stored, &names, now).map_err(|error| error.to_string())?;
    Ok(data::Identity { authority: made.authority, serving: made.serving })
}

fn tls(identity: &data::Identity) -> Result<Arc<ServerConfig>, String> {
    let pair = &identity.serving;
    let chain: Result<Vec<CertificateDer<'static>>, _> =
        CertificateDer::pem_slice_iter(pair.certificates.as_bytes()).collect();
    let chain = chain.map_err(|error| format!("the certificate cannot be read: {error}"))?;
    let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes())
        .map_err(|error| format!("the key cannot be read: {error}"))?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(|error| format!("certificate and key do not match: {error}"))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// What a Status object says.
fn refusal(status: &Value) -> Refusal {
    let causes = status.get_path(["details", "causes"]).and_then(Value::as_list);
    let first = causes.and_then(|causes| causes.first());
    let field = first.and_then(|cause| cause.str_at(["field"])).unwrap_or_default();
    Refusal {
        reason: status.str_at(["reason"]).unwrap_or_default().to_owned(),
        message: status.str_at(["message"]).unwrap_or("refused").to_owned(),
        field: field.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificates_are_kept_until_another_address_needs_others() {
        let at = |address: &str| address.parse::<SocketAddr>().unwrap();
        let first = certificates(None, at("127.0.0.1:1")).unwrap();
        let again = certificates(Some(&first), at("127.0.0.1:2")).unwrap();
        assert_eq!(again.serving.certificates, first.serving.certificates);
        let moved = certificates(Some(&first), at("127.0.0.2:1")).unwrap();
        assert_ne!(moved.serving.certificates, first.serving.certificates);
        assert_eq!(moved.authority.certificates, first.authority.certificates);
    }

    /// Asks for the health of the server of a kubeconfig.
    fn ask(kubeconfig: &str) -> tokio::task::JoinHandle<u16> {
        let line = kubeconfig.lines().find_map(|line| line.trim().strip_prefix("server: "));
        let url = format!("{}/readyz", line.unwrap());
        tokio::task::spawn_blocking(move || {
            let tls = ureq::tls::TlsConfig::builder().disable_verification(true).build();
            let agent: ureq::Agent = ureq::Agent::config_builder()
                .tls_config(tls)
                .http_status_as_error(false)
                .build()
                .into();
            agent.get(url).call().unwrap().status().as_u16()
        })
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn others_wait_until_it_is_open() {
        let options = SandboxOptions { hold: true, ..SandboxOptions::default() };
        let sandbox = Sandbox::start(&options).await.unwrap();
        assert_ne!(sandbox.kubeconfig(), sandbox.inner_kubeconfig());
        let waits = ask(sandbox.kubeconfig());
        assert_eq!(ask(sandbox.inner_kubeconfig()).await.unwrap(), 200);
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert!(!waits.is_finished());
        sandbox.open();
        assert_eq!(waits.await.unwrap(), 200);
        sandbox.stop().await;
    }
}
