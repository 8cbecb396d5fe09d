//! Connections: how many, how long, how much they may send, and how they end.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::body::{Body as _, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::GracefulShutdown;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio_rustls::TlsAcceptor;

use super::Desk;
use super::answer::{self, Answer, Asked, text};
use super::carriers::{CarrierLimits, Carriers};
use super::tls::Served;
use super::turns::Turns;
use crate::state::Shared;

/// What strangers may cost.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections at once.
    pub connections: usize,
    /// Reviews at once.
    pub reviews: usize,
    /// How long a handshake may take.
    pub handshake: Duration,
    /// How long the head of a request may take, and the first request of a connection.
    pub head: Duration,
    /// How long the body of a request may take.
    pub body: Duration,
    /// How long a connection may go on without a request. API servers close theirs after 90 seconds.
    pub idle: Duration,
    /// How long connections that are there may go on when the process ends.
    pub drain: Duration,
    /// Requests that are written down for whoever acts.
    pub carriers: CarrierLimits,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            connections: 512,
            reviews: 128,
            handshake: Duration::from_secs(5),
            head: Duration::from_secs(5),
            body: Duration::from_secs(10),
            idle: Duration::from_secs(300),
            drain: Duration::from_secs(10),
            carriers: CarrierLimits::default(),
        }
    }
}

/// The longest head of a request.
const HEAD_BYTES: usize = 32 << 10;
/// Requests at once on one connection.
const STREAMS: u32 = 128;

/// Accepts connections until the server is closed, and then lets those that are there come to their end.
pub(crate) async fn serve(
    shared: &Shared,
    listener: TcpListener,
    certificate: &Served,
    desk: watch::Receiver<Arc<Desk>>,
    limits: Limits,
    mut closed: watch::Receiver<bool>,
) {
    let acceptor = match certificate.config(shared.options.client_ca.as_ref()) {
        Ok(config) => TlsAcceptor::from(config),
        Err(error) => {
            shared.health.bad("server", format!("cannot encrypt: {error}"));
            return std::future::pending().await;
        }
    };
    shared.health.good("server", None);
    let connections = Arc::new(Semaphore::new(limits.connections));
    let reviews = Arc::new(Semaphore::new(limits.reviews));
    let turns = Turns::for_machine(Handle::current());
    let carriers = Carriers::new(limits.carriers, Instant::now());
    let graceful = GracefulShutdown::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = closed.wait_for(|closed| *closed) => break,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Out of files, mostly: a moment later there may be some again.
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let Ok(permit) = Arc::clone(&connections).try_acquire_owned() else {
            let labels = [("path", ""), ("operation", ""), ("answer", "too many connections")];
            shared.metrics.count("kiln_admission_requests_total", &labels);
            continue;
        };
        let connection = Connection {
            shared: shared.clone(),
            desk: desk.clone(),
            reviews: Arc::clone(&reviews),
            carriers: carriers.clone(),
            turns: turns.clone(),
            is_known: false,
            limits,
        };
        let watcher = graceful.watcher();
        let acceptor = acceptor.clone();
        tokio::spawn(async move {
            connection.serve(stream, acceptor, watcher, permit).await;
        });
    }
    drop(listener);
    if tokio::time::timeout(limits.drain, graceful.shutdown()).await.is_err() {
        tracing::warn!("some connections did not come to their end");
    }
    turns.close();
}

/// What a connection is used for.
struct Use(Mutex<UseState>);

struct UseState {
    /// When a request last began or ended, or the connection itself began.
    since: Instant,
    requests: u64,
    under_way: u64,
}

/// A request that is under way.
struct Used(Arc<Use>);

impl Use {
    fn new() -> Self {
        Use(Mutex::new(UseState { since: Instant::now(), requests: 0, under_way: 0 }))
    }

    fn state(&self) -> MutexGuard<'_, UseState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Comes when no request came for too long.
    async fn over(&self, limits: &Limits) {
        loop {
            let left = {
                let state = self.state();
                let most = if state.requests == 0 { limits.head } else { limits.idle };
                match state.under_way {
                    0 => most.saturating_sub(state.since.elapsed()),
                    _ => most,
                }
            };
            if left.is_zero() {
                return;
            }
            tokio::time::sleep(left).await;
        }
    }
}

impl Used {
    fn begin(connection: &Arc<Use>) -> Self {
        let mut state = connection.state();
        state.requests += 1;
        state.under_way += 1;
        Used(Arc::clone(connection))
    }
}

impl Drop for Used {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.under_way -= 1;
        state.since = Instant::now();
    }
}

struct Connection {
    shared: Shared,
    desk: watch::Receiver<Arc<Desk>>,
    reviews: Arc<Semaphore>,
    carriers: Carriers,
    turns: Turns,
    /// Whoever is at the other end has shown a certificate, or need not.
    is_known: bool,
    limits: Limits,
}

impl Connection {
    async fn serve(
        mut self,
        stream: TcpStream,
        acceptor: TlsAcceptor,
        watcher: hyper_util::server::graceful::Watcher,
        permit: OwnedSemaphorePermit,
    ) {
        let limits = self.limits;
        let _ = stream.set_nodelay(true);
        let stream = match tokio::time::timeout(limits.handshake, acceptor.accept(stream)).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return tracing::debug!(%error, "a handshake failed"),
            Err(_) => return tracing::debug!("a handshake took too long"),
        };
        let shown = stream.get_ref().1.peer_certificates().is_some_and(|chain| !chain.is_empty());
        self.is_known = shown || self.shared.options.client_ca.is_none();
        // Both sides agreed on it; waiting for bytes that tell would have no end.
        let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
        let builder = Builder::new(TokioExecutor::new());
        let mut builder = if is_http2 { builder.http2_only() } else { builder.http1_only() };
        builder
            .http1()
            .timer(TokioTimer::new())
            .header_read_timeout(limits.head)
            .max_buf_size(HEAD_BYTES.max(8192));
        builder
            .http2()
            .timer(TokioTimer::new())
            .max_concurrent_streams(STREAMS)
            .max_header_list_size(HEAD_BYTES as u32)
            .keep_alive_interval(Some(Duration::from_secs(20)))
            .keep_alive_timeout(Duration::from_secs(10));
        let connection = Arc::new(self);
        let use_of = Arc::new(Use::new());
        let counted = Arc::clone(&use_of);
        let service = service_fn(move |request: Request<Incoming>| {
            let (connection, used) = (Arc::clone(&connection), Used::begin(&counted));
            async move {
                let answer = connection.respond(request).await;
                drop(used);
                Ok::<_, Infallible>(answer)
            }
        });
        let serving = builder.serve_connection(TokioIo::new(stream), service).into_owned();
        tokio::select! {
            served = watcher.watch(serving) => if let Err(error) = served {
                tracing::debug!(%error, "a connection broke off");
            },
            () = use_of.over(&limits) => tracing::debug!("a connection is not used"),
        }
        drop(permit);
    }

    async fn respond(&self, request: Request<Incoming>) -> Answer {
        let asked = Asked::new(request.method().clone(), request.uri());
        if !asked.is_review() {
            return answer::plain(&self.shared, &asked);
        }
        if !self.is_known {
            // Whoever only looks after the process has no certificate; reviews come from the API server.
            let labels =
                [("path", asked.counted()), ("operation", ""), ("answer", "unknown client")];
            self.shared.metrics.count("kiln_admission_requests_total", &labels);
            return text(StatusCode::FORBIDDEN, "show a client certificate\n");
        }
        let Ok(_permit) = self.reviews.acquire().await else {
            return text(StatusCode::SERVICE_UNAVAILABLE, "the process ends\n");
        };
        let desk = self.desk.borrow().clone();
        let most = desk.settings.review_bytes;
        let too_long = || {
            let words = format!("the review has more than {most} bytes\n");
            text(StatusCode::PAYLOAD_TOO_LARGE, &words)
        };
        // Who announces too much need not send it.
        if request.body().size_hint().lower() > most as u64 {
            return too_long();
        }
        let body = Limited::new(request.into_body(), most).collect();
        let body = match tokio::time::timeout(self.limits.body, body).await {
            Ok(Ok(body)) => body.to_bytes(),
            Ok(Err(error)) if error.is::<LengthLimitError>() => return too_long(),
            Ok(Err(error)) => {
                return text(StatusCode::BAD_REQUEST, &format!("the review broke off: {error}\n"));
            }
            Err(_) => return text(StatusCode::REQUEST_TIMEOUT, "the review did not come\n"),
        };
        let told = answer::Told {
            shared: self.shared.clone(),
            carriers: self.carriers.clone(),
            turns: self.turns.clone(),
        };
        answer::review(told, desk, asked, body).await
    }
}
