//! Connections: how many, how long, how much they may send, and how they end.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::{Request, StatusCode};
use hyper::body::{Body as _, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use kiln_admission::BadReview;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio_rustls::TlsAcceptor;

use super::AdmissionState;
use super::audits::MOST_WAITING;
use super::body_budget::{Bodies, Unread};
use super::connection_slots::{ConnectionSlot, ConnectionSlots, InFlightRequest};
use super::review_pool::ReviewPool;
use super::routes::{self, Asked, ServedResponse, text};
use super::tls::Served;
use super::update_request_limiter::{CarrierLimits, Carriers};
use crate::state::AppState;
use crate::supervisor::caught;

/// What strangers may cost.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionLimits {
    /// Connections at once. When there are so many, one without a request at work makes room for a new one.
    pub connections: usize,
    /// Reviews at once, each until it is really over: also one whose client gave up.
    pub reviews: usize,
    /// Bytes of reviews at once that are received, or wait for their turn.
    pub bytes: usize,
    /// How long a handshake may take.
    pub handshake: Duration,
    /// How long the head of a request may take, and the first request of a connection.
    pub head: Duration,
    /// How long the body of a request may take.
    pub body: Duration,
    /// How long a connection may go on without a request. API servers close theirs after 90 seconds.
    pub idle: Duration,
    /// How long connections may go on when the process ends, or when they are to make room.
    pub drain: Duration,
    /// Requests that are stored for the leader.
    pub carriers: CarrierLimits,
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        ConnectionLimits {
            connections: 512,
            reviews: 128,
            bytes: 64 << 20,
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
/// What a connection may send before it is read: with 512 connections, 128 MiB.
const WINDOW: u32 = 256 << 10;

/// Accepts connections until the server is closed, and then lets those that are there come to their end.
pub(crate) async fn serve(
    shared: &AppState,
    listener: TcpListener,
    certificate: &Served,
    desk: watch::Receiver<Arc<AdmissionState>>,
    limits: ConnectionLimits,
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
    let places = ConnectionSlots::new(limits.connections);
    let bodies = Bodies::new(limits.bytes);
    let reviews = Arc::new(Semaphore::new(limits.reviews));
    let turns = ReviewPool::for_machine(Handle::current());
    let audits = Arc::new(Semaphore::new(MOST_WAITING));
    let carriers = Carriers::new(limits.carriers, Instant::now());
    // Nothing is ever said by it: it ends with the last connection.
    let (alive, mut all_ended) = mpsc::channel::<Infallible>(1);
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
        let Some(place) = places.take() else {
            let labels = [("path", ""), ("operation", ""), ("answer", "too many connections")];
            shared.metrics.count("kiln_admission_requests_total", &labels);
            continue;
        };
        let connection = Connection {
            shared: shared.clone(),
            desk: desk.clone(),
            bodies: bodies.clone(),
            reviews: Arc::clone(&reviews),
            carriers: carriers.clone(),
            turns: turns.clone(),
            audits: Arc::clone(&audits),
            is_known: false,
            limits,
        };
        let (acceptor, closed, alive) = (acceptor.clone(), closed.clone(), alive.clone());
        let metrics = Arc::clone(&shared.metrics);
        tokio::spawn(async move {
            let serving = connection.serve(stream, acceptor, closed, &place);
            caught(&metrics, "connection", serving).await;
            drop((place, alive));
        });
    }
    drop((listener, alive));
    if tokio::time::timeout(limits.drain, all_ended.recv()).await.is_err() {
        tracing::warn!("some connections did not finish");
    }
    turns.close();
}

struct Connection {
    shared: AppState,
    desk: watch::Receiver<Arc<AdmissionState>>,
    bodies: Bodies,
    reviews: Arc<Semaphore>,
    carriers: Carriers,
    turns: ReviewPool,
    audits: Arc<Semaphore>,
    /// The client has shown a certificate, or need not.
    is_known: bool,
    limits: ConnectionLimits,
}

impl Connection {
    async fn serve(
        mut self,
        stream: TcpStream,
        acceptor: TlsAcceptor,
        mut closed: watch::Receiver<bool>,
        place: &ConnectionSlot,
    ) {
        let limits = self.limits;
        let _ = stream.set_nodelay(true);
        let shaken = tokio::select! {
            shaken = tokio::time::timeout(limits.handshake, acceptor.accept(stream)) => shaken,
            () = place.is_given_up() => return tracing::debug!("dropping a handshake to make room"),
        };
        let stream = match shaken {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return tracing::debug!(%error, "a handshake failed"),
            Err(_) => return tracing::debug!("a handshake took too long"),
        };
        place.used.begins();
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
            .initial_connection_window_size(WINDOW)
            .initial_stream_window_size(WINDOW)
            .max_header_list_size(HEAD_BYTES as u32)
            .keep_alive_interval(Some(Duration::from_secs(20)))
            .keep_alive_timeout(Duration::from_secs(10));
        let connection = Arc::new(self);
        let used = Arc::clone(&place.used);
        let service = service_fn(move |request: Request<Incoming>| {
            let (connection, used) = (Arc::clone(&connection), InFlightRequest::begin(&used));
            async move {
                // Other requests of the connection go on.
                let responding = connection.respond(request, used);
                let answer = caught(&connection.shared.metrics, "request", responding).await;
                Ok::<_, Infallible>(answer.unwrap_or_else(routes::broken))
            }
        });
        let mut serving = pin!(builder.serve_connection(TokioIo::new(stream), service));
        let served = tokio::select! {
            served = serving.as_mut() => Some(served),
            () = place.is_over(&limits) => None,
            _ = closed.wait_for(|closed| *closed) => None,
        };
        let served = match served {
            Some(served) => served,
            None => {
                // The client is notified, and has an answer to what is under way.
                serving.as_mut().graceful_shutdown();
                tokio::select! {
                    served = serving.as_mut() => served,
                    () = tokio::time::sleep(limits.drain) => {
                        return tracing::debug!("a connection did not finish");
                    }
                    () = place.is_cut() => return tracing::debug!("closing a connection"),
                }
            }
        };
        if let Err(error) = served {
            tracing::debug!(%error, "a connection was cut off");
        }
    }

    async fn respond(
        &self,
        request: Request<Incoming>,
        mut used: InFlightRequest,
    ) -> ServedResponse {
        let asked = Asked::new(request.method().clone(), request.uri());
        if !asked.is_review() {
            return routes::plain(&self.shared, &asked);
        }
        // What is turned away here counts as what routes answer does: otherwise an overload shows in no metric.
        let reject = |answer: &str, status: StatusCode, words: &str| {
            let labels = [("path", asked.counted()), ("operation", ""), ("answer", answer)];
            self.shared.metrics.count("kiln_admission_requests_total", &labels);
            text(status, &format!("{words}\n"))
        };
        if !self.is_known {
            // Probes have no certificate; reviews come from the API server.
            let words = "show a client certificate";
            return reject("unknown client", StatusCode::FORBIDDEN, words);
        }
        let desk = self.desk.borrow().clone();
        let most = desk.settings.review_bytes;
        let too_large = || {
            let words = BadReview::TooLarge(most).to_string();
            reject("too large", StatusCode::PAYLOAD_TOO_LARGE, &words)
        };
        // Who announces too much need not send it.
        if request.body().size_hint().lower() > most as u64 {
            return too_large();
        }
        let body = self.bodies.receive(request.into_body(), most);
        let body = match tokio::time::timeout(self.limits.body, body).await {
            Ok(Ok(body)) => body,
            Ok(Err(Unread::TooLong)) => return too_large(),
            Ok(Err(Unread::NoRoom | Unread::MadeRoom)) => {
                let words = "too many concurrent reviews";
                return reject("too many reviews", StatusCode::SERVICE_UNAVAILABLE, words);
            }
            Ok(Err(Unread::BrokeOff(error))) => {
                let words = format!("the review was cut off: {error}");
                return reject("cut off", StatusCode::BAD_REQUEST, &words);
            }
            Err(_) => {
                let words = "timed out waiting for the review";
                return reject("slow client", StatusCode::REQUEST_TIMEOUT, words);
            }
        };
        used.is_received();
        let told = routes::Told {
            shared: self.shared.clone(),
            carriers: self.carriers.clone(),
            reviews: Arc::clone(&self.reviews),
            turns: self.turns.clone(),
            audits: Arc::clone(&self.audits),
        };
        routes::review(told, desk, asked, body).await
    }
}
