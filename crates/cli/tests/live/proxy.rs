//! A proxy between an engine and the API server that does to requests what networks and servers do.
//!
//! The engine speaks plain HTTP to it; it speaks to the API server as the administrator, and what the engine says
//! about whom it acts as goes through. It counts writes, and does what the test says to those that the test means.

use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use kube::config::{KubeConfigOptions, Kubeconfig};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};

type Error = Box<dyn std::error::Error + Send + Sync>;
type Body = UnsyncBoxBody<Bytes, Error>;

/// What happens to a request.
#[derive(Clone)]
pub(crate) enum Fault {
    /// It is answered with a status, and never reaches the API server.
    Status(u16),
    /// It is asked to come back after some seconds.
    Busy(u16),
    /// It waits.
    Slow(Duration),
    /// The connection breaks before the API server hears of it.
    LostBefore,
    /// The API server does it, and the answer is lost.
    LostAfter,
    /// A watch says nothing from its beginning on.
    Stalled,
    /// Something is done first: a process is killed, say.
    Do(Arc<dyn Fn() + Send + Sync>, Box<Fault>),
}

/// Whether a request is meant, by method, path and query.
type Meant = dyn Fn(&Method, &str) -> bool + Send + Sync;

/// Which requests are meant, and what happens to them.
struct Rule {
    meant: Box<Meant>,
    fault: Fault,
    /// Let so many pass first.
    skip: usize,
    /// And then so many are meant.
    times: usize,
}

#[derive(Default)]
struct State {
    rules: Vec<Rule>,
    /// The writes that came, in order.
    writes: Vec<(Method, String)>,
    /// Those that the API server answered, and how.
    answered: Vec<(Method, String, StatusCode)>,
}

/// A proxy that ends with this value.
pub(crate) struct Proxy {
    state: Arc<Mutex<State>>,
    kubeconfig: PathBuf,
    /// Changing it breaks every watch that goes on.
    broken: watch::Sender<u64>,
    runtime: Option<tokio::runtime::Runtime>,
}

impl Drop for Proxy {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

pub(crate) fn is_watch(path: &str) -> bool {
    path.contains("watch=true")
}

fn is_write(method: &Method) -> bool {
    matches!(*method, Method::POST | Method::PUT | Method::PATCH | Method::DELETE)
}

impl Proxy {
    /// Starts one in front of the API server that a kubeconfig names.
    pub(crate) fn start(kubeconfig: &Path, folder: &Path) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let state = Arc::new(Mutex::new(State::default()));
        let broken = watch::Sender::new(0);
        let (client, listener) = runtime.block_on(async {
            let read = Kubeconfig::read_from(kubeconfig).unwrap();
            let chosen = KubeConfigOptions::default();
            let mut config = kube::Config::from_custom_kubeconfig(read, &chosen).await.unwrap();
            config.read_timeout = None;
            let client = kube::Client::try_from(config).unwrap();
            (client, TcpListener::bind("127.0.0.1:0").await.unwrap())
        });
        let address = listener.local_addr().unwrap();
        let file = folder.join(format!("proxy-{}.kubeconfig", address.port()));
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
             clusters: [{{name: c, cluster: {{server: 'http://{address}'}}}}]\n\
             contexts: [{{name: c, context: {{cluster: c, user: u}}}}]\nusers: [{{name: u, user: {{}}}}]\n"
        );
        std::fs::write(&file, text).unwrap();
        let shared = Shared { state: Arc::clone(&state), client, broken: broken.subscribe() };
        runtime.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let shared = shared.clone();
                tokio::spawn(async move {
                    let service = service_fn(move |request| answer(shared.clone(), request));
                    let builder = Builder::new(TokioExecutor::new());
                    let _ = builder.serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        Proxy { state, kubeconfig: file, broken, runtime: Some(runtime) }
    }

    /// The kubeconfig that leads here.
    pub(crate) fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// From now on, does something to requests: lets `skip` of those that are meant pass, then it happens to `times`.
    pub(crate) fn fault(
        &self,
        meant: impl Fn(&Method, &str) -> bool + Send + Sync + 'static,
        skip: usize,
        times: usize,
        fault: Fault,
    ) {
        let rule = Rule { meant: Box::new(meant), fault, skip, times };
        self.lock().rules.push(rule);
    }

    /// Does nothing to requests any more.
    pub(crate) fn calm(&self) {
        self.lock().rules.clear();
    }

    /// Breaks every watch that goes on.
    pub(crate) fn break_watches(&self) {
        self.broken.send_modify(|count| *count += 1);
    }

    /// Forgets the writes so far.
    pub(crate) fn forget(&self) {
        let mut state = self.lock();
        state.writes.clear();
        state.answered.clear();
    }

    /// The writes whose path has some words in it, trials left out.
    pub(crate) fn writes(&self, words: &str) -> Vec<String> {
        let state = self.lock();
        let meant =
            |(_, path): &&(Method, String)| path.contains(words) && !path.contains("dryRun");
        state.writes.iter().filter(meant).map(|(method, path)| format!("{method} {path}")).collect()
    }

    /// The writes whose path has some words in it and that the API server answered well, trials left out.
    pub(crate) fn done(&self, words: &str) -> Vec<String> {
        let state = self.lock();
        let done = state.answered.iter().filter(|(_, path, status)| {
            status.is_success() && path.contains(words) && !path.contains("dryRun")
        });
        done.map(|(method, path, _)| format!("{method} {path}")).collect()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Clone)]
struct Shared {
    state: Arc<Mutex<State>>,
    client: kube::Client,
    broken: watch::Receiver<u64>,
}

impl Shared {
    /// What happens to a request.
    fn fault(&self, method: &Method, path: &str) -> Option<Fault> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if is_write(method) {
            state.writes.push((method.clone(), path.to_owned()));
        }
        let mut found = None;
        for rule in &mut state.rules {
            if found.is_some() || rule.times == 0 || !(rule.meant)(method, path) {
                continue;
            }
            if rule.skip > 0 {
                rule.skip -= 1;
                continue;
            }
            rule.times -= 1;
            found = Some(rule.fault.clone());
        }
        found
    }
}

fn status(code: u16, retry_after: u16) -> Response<Body> {
    let body = format!(
        r#"{{"kind":"Status","apiVersion":"v1","status":"Failure","message":"made up","code":{code}}}"#
    );
    let mut response = Response::new(whole(body.into()));
    *response.status_mut() = StatusCode::from_u16(code).unwrap();
    if code == 429 {
        response.headers_mut().insert("retry-after", http::HeaderValue::from(retry_after));
    }
    response
}

fn whole(bytes: Bytes) -> Body {
    Full::new(bytes).map_err(|never| match never {}).boxed_unsync()
}

/// An answer that never comes to its end.
fn broken_off() -> Result<Response<Body>, std::io::Error> {
    Err(std::io::Error::other("the connection breaks"))
}

async fn answer(
    shared: Shared,
    request: Request<Incoming>,
) -> Result<Response<Body>, std::io::Error> {
    let method = request.method().clone();
    let path = request.uri().path_and_query().map(ToString::to_string).unwrap_or_default();
    let mut fault = shared.fault(&method, &path);
    if let Some(Fault::Do(act, then)) = fault {
        act();
        fault = Some(*then);
    }
    match fault {
        None | Some(Fault::LostAfter) => {}
        Some(Fault::Status(code)) => return Ok(status(code, 1)),
        Some(Fault::Busy(seconds)) => return Ok(status(429, seconds)),
        Some(Fault::Slow(time)) => tokio::time::sleep(time).await,
        Some(Fault::LostBefore) => return broken_off(),
        Some(Fault::Stalled) => {
            return Ok(Response::new(silence()));
        }
        Some(Fault::Do(..)) => unreachable!("one thing is done at a time"),
    }
    let lost = matches!(fault, Some(Fault::LostAfter));
    let forwarded = forward(&shared, request).await;
    if is_write(&method)
        && let Ok(response) = &forwarded
    {
        let mut state = shared.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.answered.push((method, path.clone(), response.status()));
    }
    if lost {
        return broken_off();
    }
    let Ok(response) = forwarded else { return broken_off() };
    let (head, body) = response.into_parts();
    let body = match is_watch(&path) {
        true => breakable(body, shared.broken.clone()),
        false => body.map_err(Error::from).boxed_unsync(),
    };
    Ok(Response::from_parts(head, body))
}

async fn forward(
    shared: &Shared,
    request: Request<Incoming>,
) -> Result<Response<kube::client::Body>, Error> {
    let (mut head, body) = request.into_parts();
    let path = head.uri.path_and_query().map(ToString::to_string).unwrap_or_default();
    head.uri = path.parse()?;
    for name in ["host", "connection", "content-length", "transfer-encoding"] {
        head.headers.remove(name);
    }
    head.version = http::Version::HTTP_11;
    let body = body.collect().await?.to_bytes();
    let request = Request::from_parts(head, kube::client::Body::from(body));
    Ok(shared.client.send(request).await?)
}

/// A body whose parts come from somewhere else.
struct Piped(mpsc::Receiver<Result<Frame<Bytes>, Error>>);

impl hyper::body::Body for Piped {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        self.0.poll_recv(context)
    }
}

/// A body that says nothing, and does not end.
fn silence() -> Body {
    let (sender, parts) = mpsc::channel(1);
    tokio::spawn(async move { sender.closed().await });
    Piped(parts).boxed_unsync()
}

/// A body that breaks when watches are broken.
fn breakable(mut body: kube::client::Body, mut broken: watch::Receiver<u64>) -> Body {
    broken.mark_unchanged();
    let (sender, parts) = mpsc::channel(16);
    tokio::spawn(async move {
        loop {
            let part = tokio::select! {
                part = body.frame() => part.map(|part| part.map_err(Error::from)),
                _ = broken.changed() => Some(Err(Error::from("the watch breaks"))),
                () = sender.closed() => return,
            };
            let Some(part) = part else { return };
            let ends = part.is_err();
            if sender.send(part).await.is_err() || ends {
                return;
            }
        }
    });
    Piped(parts).boxed_unsync()
}
