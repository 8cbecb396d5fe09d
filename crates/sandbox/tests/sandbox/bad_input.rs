//! Clients that send too much, too little, too slowly, or nonsense: each gets a clear answer, all other clients go on
//! being served, and memory stays bounded.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine as _;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty};
use hyper_util::rt::{TokioExecutor, TokioIo};
use kiln_apiserver::{ApiRequest, LONGEST_BODY};
use kiln_sandbox::{Sandbox, SandboxOptions};
use kiln_value::{Value, json};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// A sandbox, and what is needed to reach it.
struct Place {
    sandbox: Sandbox,
    address: SocketAddr,
    token: String,
    roots: Arc<RootCertStore>,
}

impl Place {
    async fn start() -> Self {
        let sandbox = Sandbox::start(&SandboxOptions::default()).await.expect("a sandbox");
        let field = |name: &str| {
            let line = sandbox.kubeconfig().lines().find_map(|line| line.trim().strip_prefix(name));
            line.expect("a field").to_owned()
        };
        let authority = base64::engine::general_purpose::STANDARD
            .decode(field("certificate-authority-data: "))
            .expect("base64");
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(&authority).expect("PEM")).expect("an authority");
        let token = field("token: ");
        Place { address: sandbox.address(), token, roots: Arc::new(roots), sandbox }
    }

    async fn connect(&self, protocol: &str) -> TlsStream<TcpStream> {
        let mut config = ClientConfig::builder()
            .with_root_certificates(Arc::clone(&self.roots))
            .with_no_client_auth();
        config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
        let stream = TcpStream::connect(self.address).await.expect("a connection");
        let name = ServerName::try_from("localhost").expect("a name");
        TlsConnector::from(Arc::new(config)).connect(name, stream).await.expect("a handshake")
    }

    /// The lines before a body.
    fn head(&self, method: &str, path: &str, content_type: &str, more: &str) -> String {
        format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: Bearer {}\r\n\
             Content-Type: {content_type}\r\n{more}\r\n",
            self.token
        )
    }

    /// Sends a request; the answer's status and body.
    async fn ask(&self, method: &str, path: &str, content_type: &str, body: &[u8]) -> (u16, Value) {
        let length = format!("Content-Length: {}\r\n", body.len());
        let mut stream = self.connect("http/1.1").await;
        let head = self.head(method, path, content_type, &length);
        stream.write_all(head.as_bytes()).await.expect("a head is taken");
        // A server that refuses a body may not read it to its end.
        let _ = stream.write_all(body).await;
        answer(&mut stream).await
    }

    async fn is_well(&self) {
        let (status, version) = self.ask("GET", "/version", "application/json", b"").await;
        assert_eq!((status, version.str_at(["major"])), (200, Some("1")));
    }
}

/// Reads an answer to the end of its connection.
async fn answer(stream: &mut TlsStream<TcpStream>) -> (u16, Value) {
    let mut bytes = Vec::new();
    let reading = tokio::time::timeout(Duration::from_secs(30), stream.read_to_end(&mut bytes));
    let _ = reading.await.expect("an end");
    let text = String::from_utf8_lossy(&bytes);
    let status = text.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    let body = text.split_once("\r\n\r\n").map(|(_, body)| body).unwrap_or_default();
    (status, json::parse(body).unwrap_or_else(|_| Value::from(body)))
}

/// Asserts that an answer is a `Status` that says why.
fn assert_refused(what: &str, (status, body): &(u16, Value), wanted: u16) {
    assert_eq!(*status, wanted, "{what}: {body:?}");
    assert_eq!(body.str_at(["kind"]), Some("Status"), "{what}: {body:?}");
    assert_eq!(body.get("code").and_then(Value::as_i64), Some(i64::from(wanted)), "{what}");
    assert!(body.str_at(["message"]).is_some_and(|message| !message.is_empty()), "{what}");
}

/// Held by tests that measure memory: all tests share one process.
static MEASURING: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// The memory of this process, in bytes.
fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").expect("memory");
    let pages: usize = text.split(' ').nth(1).and_then(|pages| pages.parse().ok()).expect("pages");
    pages * 4096
}

#[tokio::test(flavor = "multi_thread")]
async fn too_large_bodies_are_refused() {
    let place = Place::start().await;
    let map = format!(
        r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"a"}},"data":{{"x":"{}"}}}}"#,
        "x".repeat(LONGEST_BODY)
    );
    for content_type in
        ["application/json", "application/yaml", "application/vnd.kubernetes.protobuf"]
    {
        let refused = place.ask("POST", CONFIG_MAPS, content_type, map.as_bytes()).await;
        assert_refused(content_type, &refused, 413);
        assert_eq!(
            refused.1.str_at(["message"]),
            Some("Request entity too large: limit is 3145728")
        );
    }
    // One that only says so is not waited for.
    let began = Instant::now();
    let mut stream = place.connect("http/1.1").await;
    let head =
        place.head("POST", CONFIG_MAPS, "application/json", "Content-Length: 99999999999\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    assert_refused("announced", &answer(&mut stream).await, 413);
    assert!(began.elapsed() < Duration::from_secs(10));
    // One that never ends.
    let mut stream = place.connect("http/1.1").await;
    let head =
        place.head("POST", CONFIG_MAPS, "application/json", "Transfer-Encoding: chunked\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    let chunk = format!("10000\r\n{}\r\n", " ".repeat(0x10000));
    for _ in 0..100 {
        if stream.write_all(chunk.as_bytes()).await.is_err() {
            break;
        }
    }
    assert_refused("endless", &answer(&mut stream).await, 413);
    // What fits into a request and not into a ConfigMap.
    let data = "x".repeat((1 << 20) + 1);
    let map = format!(
        r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"a"}},"data":{{"x":"{data}"}}}}"#
    );
    let refused = place.ask("POST", CONFIG_MAPS, "application/json", map.as_bytes()).await;
    assert_refused("data", &refused, 422);
    place.is_well().await;
    place.sandbox.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_of_strangers_is_kept() {
    let _measuring = MEASURING.lock().await;
    let place = Place::start().await;
    let before = resident();
    let mut streams = Vec::new();
    let body = vec![b' '; LONGEST_BODY - 100];
    for (i, path) in [CONFIG_MAPS, "/version", "/healthz"].iter().cycle().take(90).enumerate() {
        let mut stream = place.connect("http/1.1").await;
        let method = if i % 2 == 0 { "POST" } else { "GET" };
        let token = if i % 4 == 0 { "Authorization: Bearer x\r\n" } else { "" };
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\n{token}Content-Length: {LONGEST_BODY}\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        // All but the end. A server that refuses it may not read it.
        let _ = tokio::time::timeout(Duration::from_millis(300), stream.write_all(&body)).await;
        streams.push(stream);
    }
    let grown = resident().saturating_sub(before);
    assert!(grown < 100 << 20, "{grown} bytes more");
    // They are answered without the end of what they sent.
    let mut first = place.connect("http/1.1").await;
    let head = format!(
        "POST {CONFIG_MAPS} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 1000\r\n\r\n"
    );
    first.write_all(head.as_bytes()).await.unwrap();
    assert_refused("a stranger", &answer(&mut first).await, 401);
    place.is_well().await;
    drop(streams);
    place.sandbox.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn all_bodies_together_have_a_limit() {
    const CLIENTS: usize = 60;
    let _measuring = MEASURING.lock().await;
    let place = Arc::new(Place::start().await);
    let before = resident();
    let mut streams = Vec::new();
    let body = vec![b' '; LONGEST_BODY - 100];
    for _ in 0..CLIENTS {
        let mut stream = place.connect("http/1.1").await;
        let length = format!("Content-Length: {LONGEST_BODY}\r\n");
        let head = place.head("POST", CONFIG_MAPS, "application/json", &length);
        stream.write_all(head.as_bytes()).await.unwrap();
        let _ = tokio::time::timeout(Duration::from_millis(300), stream.write_all(&body)).await;
        streams.push(stream);
    }
    let grown = resident().saturating_sub(before);
    assert!(grown < 160 << 20, "{grown} bytes more");
    // Reading goes on, and when the others are gone there is room for writes.
    place.is_well().await;
    drop(streams);
    let map = br#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}"#;
    let (status, _) = place.ask("POST", CONFIG_MAPS, "application/json", map).await;
    assert_eq!(status, 201);
    Arc::into_inner(place).expect("it is not shared").sandbox.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn watches_end_before_clocks_do() {
    let place = Place::start().await;
    let mut stream = place.connect("http/1.1").await;
    let path = format!("{CONFIG_MAPS}?watch=1&timeoutSeconds=9223372036854775807");
    let head = place.head("GET", &path, "application/json", "");
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut heard = [0; 15];
    stream.read_exact(&mut heard).await.expect("an answer");
    assert_eq!(&heard, b"HTTP/1.1 200 OK");
    place.is_well().await;
    place.sandbox.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn broken_bodies_are_refused() {
    let place = Place::start().await;
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let wide = format!("{{\"a\":{}}}", "{\"a\":".repeat(5000));
    let protobuf = |rest: &[u8]| [b"k8s\0".as_slice(), rest].concat();
    let (json_type, proto) = ("application/json", "application/vnd.kubernetes.protobuf");
    let cases: Vec<(&str, &str, Vec<u8>)> = vec![
        ("nothing", json_type, Vec::new()),
        ("half", json_type, b"{\"a\":".to_vec()),
        ("no object", json_type, b"[1,2]".to_vec()),
        ("no text", json_type, vec![0xff, 0xfe, 0x00]),
        (
            "no characters",
            json_type,
            b"{\"kind\":\"ConfigMap\",\"apiVersion\":\"v1\",\"data\":{\"x\":\"\xff\"}}".to_vec(),
        ),
        ("deep", json_type, deep.clone().into_bytes()),
        ("deep and open", json_type, wide.into_bytes()),
        (
            "numbers",
            json_type,
            br#"{"apiVersion":"v1","kind":"ConfigMap","data":{"x":1e999999}}"#.to_vec(),
        ),
        (
            "another kind",
            json_type,
            br#"{"apiVersion":"v1","kind":"Secret","metadata":{"name":"a"}}"#.to_vec(),
        ),
        ("deep YAML", "application/yaml", deep.into_bytes()),
        (
            "aliases",
            "application/yaml",
            b"a: &a [x,x]\nb: &b [*a,*a]\nc: &c [*b,*b]\nkind: [*c\n".to_vec(),
        ),
        ("no envelope", proto, b"abcd".to_vec()),
        ("an envelope", proto, protobuf(b"")),
        ("half an envelope", proto, protobuf(b"\x0a\x0f\x0a\x02v1")),
        ("an endless number", proto, protobuf(&[0xff; 64])),
        ("a length beyond the end", proto, protobuf(b"\x12\xff\xff\xff\xff\x0f")),
        ("groups", proto, protobuf(&[0x0b; 10_000])),
    ];
    for (what, content_type, body) in cases {
        let refused = place.ask("POST", CONFIG_MAPS, content_type, &body).await;
        assert_refused(what, &refused, 400);
        assert_eq!(refused.1.str_at(["reason"]), Some("BadRequest"), "{what}");
        assert!(json::to_string(&refused.1).len() < 1 << 20, "{what}");
    }
    let refused = place.ask("POST", CONFIG_MAPS, "text/html", b"<html>").await;
    assert_refused("a page", &refused, 415);
    let path = "/api/v1/configmaps?labelSelector=(((";
    assert_refused(path, &place.ask("GET", path, json_type, b"").await, 400);
    place.is_well().await;
    place.sandbox.stop().await;
}

/// On one thread, so that the clock can be put forward.
#[tokio::test]
async fn slow_clients_are_let_go() {
    let place = Place::start().await;
    let mut never = TcpStream::connect(place.address).await.unwrap();
    let mut silent = place.connect("http/1.1").await;
    let mut head = place.connect("http/1.1").await;
    head.write_all(b"GET /version HTTP/1.1\r\nHost: localhost\r\nX-Slow: ").await.unwrap();
    let mut body = place.connect("http/1.1").await;
    let first = place.head("POST", CONFIG_MAPS, "application/json", "Content-Length: 100\r\n");
    body.write_all(first.as_bytes()).await.unwrap();
    body.write_all(b"{\"apiVersion\":").await.unwrap();
    // No client waits for them.
    place.is_well().await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(31)).await;
    tokio::time::resume();
    assert_refused("a slow body", &answer(&mut body).await, 408);
    let mut end = [0; 1];
    let patience = Duration::from_secs(10);
    for (what, read) in [
        ("no handshake", tokio::time::timeout(patience, never.read(&mut end)).await),
        ("no request", tokio::time::timeout(patience, silent.read(&mut end)).await),
    ] {
        let ended = read.unwrap_or_else(|_| panic!("{what}: still open"));
        assert!(ended.is_err() || ended.is_ok_and(|n| n == 0), "{what}");
    }
    let (status, _) = answer(&mut head).await;
    assert!(status == 0 || status == 408, "a slow head is not answered with {status}");
    place.is_well().await;
    place.sandbox.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_that_nobody_reads_holds_nothing_up() {
    let _measuring = MEASURING.lock().await;
    let place = Place::start().await;
    let mut watching = place.connect("http/1.1").await;
    let path = format!("{CONFIG_MAPS}?watch=true&timeoutSeconds=60");
    let head = place.head("GET", &path, "application/json", "");
    watching.write_all(head.as_bytes()).await.unwrap();
    tokio::time::sleep(Duration::from_millis(200)).await;
    let before = resident();
    let sandbox = Arc::new(place.sandbox);
    let writing = Arc::clone(&sandbox);
    // 180 MB of news.
    tokio::task::spawn_blocking(move || {
        let text = "x".repeat(900 << 10);
        for i in 0..200 {
            let map = format!(
                r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"large"}},"data":{{"i":"{i}","x":"{text}"}}}}"#
            );
            let target = format!("{CONFIG_MAPS}/large?fieldManager=t&force=true");
            let request =
                ApiRequest::new("PATCH", &target).with_body("application/apply-patch+yaml", map);
            let response = writing.send(request);
            assert!(response.status < 300, "{}", String::from_utf8_lossy(&response.body));
        }
    })
    .await
    .unwrap();
    let grown = resident().saturating_sub(before);
    assert!(grown < 150 << 20, "{grown} bytes more");
    // A client that reads at last gets how it began, and that it must list again.
    let mut bytes = Vec::new();
    let mut part = vec![0; 1 << 16];
    let reading = async {
        while let Ok(read @ 1..) = watching.read(&mut part).await {
            bytes.extend_from_slice(&part[..read]);
            if bytes.windows(9).any(|window| window == b"\"Expired\"") {
                break;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(30), reading).await.expect("the watch ends");
    let text = String::from_utf8_lossy(&bytes);
    assert!(text.contains("too old resource version"), "it missed something and gets an error");
    Arc::into_inner(sandbox).expect("it is not shared").stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_watches_hear_the_same() {
    const WATCHES: usize = 1000;
    let _measuring = MEASURING.lock().await;
    let place = Place::start().await;
    let mut senders = Vec::new();
    for _ in 0..8 {
        let stream = TokioIo::new(place.connect("h2").await);
        let (sender, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), stream).await.unwrap();
        tokio::spawn(connection);
        senders.push(sender);
    }
    let before = resident();
    let mut watches = Vec::new();
    for i in 0..WATCHES {
        // Some with a selection, some as tables: each has its own form of the event.
        let (query, accept) = match i % 4 {
            0 => ("", "application/json"),
            1 => ("&labelSelector=app%3Dx", "application/json"),
            2 => ("", "application/json;as=Table;v=v1;g=meta.k8s.io"),
            _ => ("", "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"),
        };
        let uri = format!("https://localhost{CONFIG_MAPS}?watch=true&resourceVersion=1{query}");
        let request = http::Request::builder()
            .uri(uri)
            .header("authorization", format!("Bearer {}", place.token))
            .header("accept", accept)
            .body(Empty::<Bytes>::new())
            .unwrap();
        let response = senders[i % 8].send_request(request).await.unwrap();
        assert_eq!(response.status(), 200);
        watches.push(response.into_body());
    }
    let map = br#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"news","labels":{"app":"x"}}}"#;
    let began = Instant::now();
    let (status, _) = place.ask("POST", CONFIG_MAPS, "application/json", map).await;
    assert_eq!(status, 201);
    for (i, watch) in watches.iter_mut().enumerate() {
        let mut heard = Vec::new();
        let listening = async {
            while !heard.windows(6).any(|window| window == b"\"news\"") {
                let frame = watch.frame().await.expect("not over").expect("a frame");
                heard.extend(frame.into_data().expect("data"));
            }
        };
        let heard_it = tokio::time::timeout(Duration::from_secs(30), listening).await;
        assert!(heard_it.is_ok(), "watch {i} heard {}", String::from_utf8_lossy(&heard));
        assert!(heard.windows(7).any(|window| window == b"\"ADDED\""), "watch {i}");
    }
    let took = began.elapsed();
    let grown = resident().saturating_sub(before);
    assert!(grown < 256 << 20, "{grown} bytes for {WATCHES} watches");
    assert!(took < Duration::from_secs(30), "{took:?}");
    drop(watches);
    place.is_well().await;
    place.sandbox.stop().await;
}
