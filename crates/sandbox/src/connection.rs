//! Connections: requests in, answers and watches out.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http::header::CONTENT_TYPE;
use http::{HeaderName, HeaderValue, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Body as _, Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use kiln_apiserver::{ApiRequest, LONGEST_BODY, Response, ResponseOrWatch, Server, Watch};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{RwLock, Semaphore, watch};
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;

use crate::bodies::{Bodies, Unread};
use crate::journal::Journal;

/// Connections at once.
const CONNECTIONS: usize = 4096;
/// Bytes of bodies at once, of all requests that are not answered yet: a number of the longest.
const BODIES: usize = 32 * LONGEST_BODY;
/// How long a handshake, a head and a body may take.
const HANDSHAKE: Duration = Duration::from_secs(5);
const HEAD: Duration = Duration::from_secs(30);
const BODY: Duration = Duration::from_secs(30);
/// How often a quiet watch is looked at, for bookmarks.
const QUIET: Duration = Duration::from_secs(20);

type Answered = http::Response<UnsyncBoxBody<Bytes, Infallible>>;

/// What every connection shares.
#[derive(Clone, Debug)]
pub(crate) struct ConnectionHost {
    pub(crate) server: Arc<Server>,
    pub(crate) journal: Option<Arc<Journal>>,
    /// Held by all writers: the end waits for them.
    pub(crate) writing: Arc<RwLock<()>>,
    pub(crate) bodies: Bodies,
    pub(crate) revisions: watch::Receiver<u64>,
    /// Requests wait until this is true.
    pub(crate) open: watch::Receiver<bool>,
    pub(crate) stopped: watch::Receiver<bool>,
}

/// The room for bodies of all connections.
pub(crate) fn bodies() -> Bodies {
    Bodies::new(BODIES)
}

/// Comes when the sandbox ends.
pub(crate) async fn ended(stopped: &mut watch::Receiver<bool>) {
    let _ = stopped.wait_for(|stopped| *stopped).await;
}

/// Accepts connections until the sandbox ends.
pub(crate) async fn accept(listener: TcpListener, acceptor: TlsAcceptor, host: ConnectionHost) {
    let connections = Arc::new(Semaphore::new(CONNECTIONS));
    let mut stopped = host.stopped.clone();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = ended(&mut stopped) => return,
        };
        let Ok((stream, _)) = accepted else {
            // Out of files, mostly: a moment later there may be some again.
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let Ok(permit) = Arc::clone(&connections).try_acquire_owned() else { continue };
        let (acceptor, host) = (acceptor.clone(), host.clone());
        tokio::spawn(async move {
            serve(stream, acceptor, host).await;
            drop(permit);
        });
    }
}

async fn serve(stream: TcpStream, acceptor: TlsAcceptor, host: ConnectionHost) {
    let _ = stream.set_nodelay(true);
    let Ok(Ok(stream)) = tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await else {
        return;
    };
    let mut builder = Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEAD);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(1000)
        .keep_alive_interval(Some(Duration::from_secs(30)));
    let mut stopped = host.stopped.clone();
    let (asked, mut first) = watch::channel(false);
    let service = service_fn(move |request: http::Request<Incoming>| {
        let _ = asked.send(true);
        let host = host.clone();
        async move { Ok::<_, Infallible>(host.respond(request).await) }
    });
    // Before the first request nothing else counts the time: a silent client is disconnected.
    let silence = async move {
        if tokio::time::timeout(HEAD, first.wait_for(|asked| *asked)).await.is_ok() {
            std::future::pending::<()>().await;
        }
    };
    let serving = builder.serve_connection(TokioIo::new(stream), service);
    tokio::pin!(serving);
    tokio::select! {
        served = serving.as_mut() => {
            if let Err(error) = served {
                tracing::debug!(%error, "a connection was cut off");
            }
        }
        () = silence => tracing::debug!("a connection said nothing"),
        () = ended(&mut stopped) => {
            serving.as_mut().graceful_shutdown();
            let _ = tokio::time::timeout(Duration::from_millis(200), serving).await;
        }
    }
}

fn full(response: Response) -> Answered {
    let mut answer = http::Response::new(Full::new(Bytes::from(response.body)).boxed_unsync());
    *answer.status_mut() =
        StatusCode::from_u16(response.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    for (name, value) in &response.headers {
        if let (Ok(name), Ok(value)) =
            (HeaderName::try_from(name.as_str()), HeaderValue::from_str(value))
        {
            answer.headers_mut().append(name, value);
        }
    }
    answer
}

fn refusal(status: u16, message: &str) -> Answered {
    let reason = match status {
        400 => "BadRequest",
        413 => "RequestEntityTooLarge",
        503 => "ServiceUnavailable",
        500 => "InternalError",
        _ => "Timeout",
    };
    let body = format!(
        "{{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"metadata\":{{}},\"status\":\"Failure\",\"message\":\"{message}\",\"reason\":\"{reason}\",\"code\":{status}}}\n"
    );
    let headers = vec![("Content-Type".to_owned(), "application/json".to_owned())];
    full(Response { status, headers, body: body.into_bytes() })
}

impl ConnectionHost {
    /// Keeps what was written, if it is to be kept; the client may be answered when this returns.
    pub(crate) fn keep(&self) -> Result<(), String> {
        self.journal.as_ref().map_or(Ok(()), |journal| journal.keep(&self.server))
    }

    async fn respond(mut self, request: http::Request<Incoming>) -> Answered {
        if self.open.wait_for(|open| *open).await.is_err() {
            return refusal(503, "the sandbox ends");
        }
        let (head, body) = request.into_parts();
        let too_large =
            || refusal(413, &format!("Request entity too large: limit is {LONGEST_BODY}"));
        if body.size_hint().lower() > LONGEST_BODY as u64 {
            return too_large();
        }
        let headers = head.headers.iter().filter_map(|(name, value)| {
            Some((name.as_str().to_owned(), value.to_str().ok()?.to_owned()))
        });
        let mut request = ApiRequest {
            method: head.method.as_str().to_owned(),
            path: head.uri.path().to_owned(),
            query: head.uri.query().unwrap_or_default().to_owned(),
            headers: headers.collect(),
            body: Vec::new(),
        };
        let wanted = match self.server.wants_body(&request) {
            Ok(wanted) => wanted,
            Err(refused) => return full(refused),
        };
        // Held until the request is answered.
        let mut room = None;
        if wanted {
            let received = self.bodies.receive(body, LONGEST_BODY);
            match tokio::time::timeout(BODY, received).await {
                Ok(Ok(received)) => (request.body, room) = received,
                Ok(Err(Unread::TooLong)) => return too_large(),
                Ok(Err(Unread::BrokeOff)) => return refusal(400, "the body was cut off"),
                Err(_) if self.bodies.is_full() => {
                    return refusal(503, "too many large requests at once; try again later");
                }
                Err(_) => return refusal(408, "the body did not come"),
            }
        }
        let writes = !matches!(head.method.as_str(), "GET" | "HEAD");
        let answer = if writes {
            // Webhooks and disks take their time: other connections go on meanwhile.
            let writing = Arc::clone(&self.writing).read_owned().await;
            if *self.stopped.borrow() {
                return refusal(503, "the sandbox ends");
            }
            let host = self.clone();
            let work = tokio::task::spawn_blocking(move || {
                let answer = host.server.handle(&request);
                drop((request, room));
                let kept = host.keep();
                drop(writing);
                kept.map(|()| answer)
            });
            match work.await {
                Ok(Ok(answer)) => answer,
                Ok(Err(error)) => {
                    tracing::error!(%error, "cannot write to disk");
                    return refusal(500, "the write cannot be kept on disk");
                }
                Err(error) => {
                    tracing::error!(%error, "a request was cut off");
                    return refusal(500, "an error in the sandbox itself");
                }
            }
        } else {
            self.server.handle(&request)
        };
        match answer {
            ResponseOrWatch::Response(response) => full(response),
            ResponseOrWatch::Watch(watch) => self.follow(*watch),
        }
    }

    fn follow(self, watch: Watch) -> Answered {
        let mut answer = http::Response::new(());
        answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(watch.content_type()));
        let end = Instant::now() + Duration::from_secs(watch.timeout_seconds);
        let follower = Follower { host: self, watch, end, over: false };
        let stream = stream::unfold(follower, |mut follower| async move {
            let bytes = follower.next().await?;
            Some((Ok::<_, Infallible>(Frame::data(Bytes::from(bytes))), follower))
        });
        answer.map(|()| StreamBody::new(stream).boxed_unsync())
    }
}

/// A watch that is sent to a client.
struct Follower {
    host: ConnectionHost,
    watch: Watch,
    end: Instant,
    over: bool,
}

impl Follower {
    /// The next bytes; none when the watch is over.
    async fn next(&mut self) -> Option<Vec<u8>> {
        if self.over {
            return None;
        }
        loop {
            self.host.revisions.borrow_and_update();
            let bytes = self.watch.next(&self.host.server);
            if self.watch.is_over() {
                self.over = true;
            }
            if !bytes.is_empty() {
                return Some(bytes);
            }
            if self.over {
                return None;
            }
            let quiet = Instant::now() + QUIET;
            tokio::select! {
                changed = self.host.revisions.changed() => if changed.is_err() { return None },
                () = tokio::time::sleep_until(quiet.min(self.end)) => {
                    if Instant::now() >= self.end {
                        self.over = true;
                        let last = self.watch.finish(&self.host.server);
                        return (!last.is_empty()).then_some(last);
                    }
                }
                () = ended(&mut self.host.stopped) => return None,
            }
        }
    }
}
