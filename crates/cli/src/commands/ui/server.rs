//! Serves the web application to browsers of this machine, and answers its calls.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use kiln_diagnostic::Diagnostic;
use kiln_studio::playground::Playground;
use kiln_value::{Map, Value, json};

use super::assets;
use super::http::{HttpRequest, HttpResponse};
use crate::system_env::SystemEnv;

/// The most connections at once.
const MAX_CONNECTIONS: usize = 64;

/// A cluster that the application shows.
pub(in crate::commands) trait ShownCluster: Send + Sync {
    /// What it is called, and whether it may be changed.
    fn about(&self) -> (String, bool);

    /// Answers a call.
    ///
    /// # Errors
    /// What keeps it from being answered.
    fn call(&self, method: &str, request: &Value) -> Result<Value, Diagnostic>;
}

/// What is served.
pub(in crate::commands) struct Studio {
    /// The files that the command was started with.
    pub(in crate::commands) workspace: Option<Value>,
    pub(in crate::commands) cluster: Option<Box<dyn ShownCluster>>,
}

/// A server that runs until the process ends.
pub(in crate::commands) struct StudioServer {
    address: SocketAddr,
    token: String,
}

impl StudioServer {
    /// Listens on loopback and serves from threads of its own.
    ///
    /// # Errors
    /// When it cannot listen.
    pub(in crate::commands) fn start(
        listen: SocketAddr,
        studio: Studio,
    ) -> Result<Self, Diagnostic> {
        if !listen.ip().is_loopback() {
            return Err(Diagnostic::error(format!(
                "{listen} is not an address of this machine alone"
            ))
            .hint("listen on 127.0.0.1"));
        }
        let cannot = |error: std::io::Error| {
            Diagnostic::error(format!("cannot listen on {listen}: {error}"))
                .hint("port 0 takes a free one")
        };
        let listener = TcpListener::bind(listen).map_err(cannot)?;
        let address = listener.local_addr().map_err(cannot)?;
        let token = random_token()?;
        let service =
            Arc::new(Service { address, token: token.clone(), studio, page: Mutex::default() });
        std::thread::spawn(move || accept(&listener, &service));
        Ok(StudioServer { address, token })
    }

    /// The address to open: the token is in its fragment, which browsers do not send or log.
    pub(in crate::commands) fn url(&self) -> String {
        format!("http://{}/#token={}", self.address, self.token)
    }
}

/// 128 random bits.
fn random_token() -> Result<String, Diagnostic> {
    let mut bytes = [0; 16];
    let provider = rustls::crypto::ring::default_provider();
    provider
        .secure_random
        .fill(&mut bytes)
        .map_err(|_| Diagnostic::error("the system gives no random numbers"))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

fn accept(listener: &TcpListener, service: &Arc<Service>) {
    let open = Arc::new(AtomicUsize::new(0));
    for stream in listener.incoming().flatten() {
        if open.fetch_add(1, Ordering::SeqCst) >= MAX_CONNECTIONS {
            open.fetch_sub(1, Ordering::SeqCst);
            continue;
        }
        let (service, open) = (Arc::clone(service), Arc::clone(&open));
        // Deep documents need as much stack as the commands have.
        let builder = std::thread::Builder::new().stack_size(STACK_SIZE);
        let _ = builder.spawn(move || {
            service.serve(&stream);
            open.fetch_sub(1, Ordering::SeqCst);
        });
    }
}

const STACK_SIZE: usize = 16 << 20;

struct Service {
    address: SocketAddr,
    token: String,
    studio: Studio,
    page: Mutex<Playground>,
}

impl Service {
    fn serve(&self, stream: &TcpStream) {
        let response = match HttpRequest::read(stream) {
            Ok(request) => self.answer(&request),
            Err(status) => HttpResponse::refusal(status),
        };
        // A client that is gone needs no answer.
        let _ = response.write(stream);
    }

    fn answer(&self, request: &HttpRequest) -> HttpResponse {
        if !self.is_own(request) {
            return HttpResponse::refusal(403);
        }
        match (request.method.as_str(), request.path.as_str()) {
            ("GET", "/" | "/index.html") => HttpResponse {
                status: 200,
                content_type: "text/html; charset=utf-8",
                body: assets::index().into_bytes(),
            },
            ("POST", "/api/call") => {
                let given = request.header("kiln-token").unwrap_or_default();
                if !is_equal(given.as_bytes(), self.token.as_bytes()) {
                    return HttpResponse::refusal(401);
                }
                if request.header("content-type") != Some("application/json") {
                    return HttpResponse::refusal(400);
                }
                HttpResponse::json(200, self.call(&String::from_utf8_lossy(&request.body)))
            }
            ("GET", path) => match assets::asset(path) {
                Some(asset) => HttpResponse {
                    status: 200,
                    content_type: asset.content_type,
                    body: asset.bytes.to_vec(),
                },
                None => HttpResponse::refusal(404),
            },
            _ => HttpResponse::refusal(405),
        }
    }

    /// Whether the page that asks is ours, under an address of ours: another name that leads here is a rebinding attack, another origin a
    /// page that has no business here.
    fn is_own(&self, request: &HttpRequest) -> bool {
        let port = self.address.port();
        let hosts = [
            self.address.to_string(),
            format!("localhost:{port}"),
            format!("{}:{port}", Ipv4Addr::LOCALHOST),
        ];
        let Some(host) = request.header("host") else { return false };
        let site = request.header("sec-fetch-site");
        hosts.iter().any(|own| own == host)
            && request.header("origin").is_none_or(|origin| origin == format!("http://{host}"))
            && site.is_none_or(|site| matches!(site, "same-origin" | "none"))
    }

    fn call(&self, text: &str) -> String {
        let request = json::parse(text).unwrap_or_default();
        let method = request.str_at(["method"]).unwrap_or_default();
        let answer = match (method, &self.studio.cluster) {
            ("state", _) => Ok(self.state()),
            (method, Some(cluster)) if method == "health" || method.starts_with("cluster.") => {
                cluster.call(method, &request)
            }
            _ => {
                // A panic in another call leaves nothing half done: answers are computed, not stored.
                let mut page = self.page.lock().unwrap_or_else(PoisonError::into_inner);
                return page.call(text, &SystemEnv);
            }
        };
        let answer = answer.unwrap_or_else(|problem| {
            let error = Map::from_iter([
                ("severity", problem.severity.as_str().to_owned()),
                ("message", problem.to_string()),
            ]);
            Value::from(Map::from_iter([("error", Value::from(error))]))
        });
        json::to_string(&answer)
    }

    fn state(&self) -> Value {
        let mut fields = Map::new();
        if let Some(workspace) = &self.studio.workspace {
            fields.insert("workspace", workspace.clone());
        }
        if let Some(cluster) = &self.studio.cluster {
            let (name, writable) = cluster.about();
            let about = [("name", Value::from(name)), ("writable", Value::from(writable))];
            fields.insert("cluster", Value::from(Map::from_iter(about)));
        }
        Value::from(fields)
    }
}

/// Compares without telling by its time how much is equal.
fn is_equal(given: &[u8], wanted: &[u8]) -> bool {
    given.len() == wanted.len()
        && given.iter().zip(wanted).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
}
