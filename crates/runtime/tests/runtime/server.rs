//! The HTTPS server, spoken to over sockets: good requests, and all the others.

use std::time::Duration;

use kiln_engine::HostAllowlist;
use kiln_runtime::RuntimeOptions;
use kiln_runtime::events::Happened;
use kiln_runtime::serve::{CarrierLimits, ClientAuthority, ConnectionLimits};
use kiln_value::Value;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::ClientConfig;
use rustls::pki_types::PrivateKeyDer;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_rustls::client::TlsStream;

use crate::support::{
    POLICIES, Running, Setup, client, posted, read_answer, review, say, start, start_with,
};

fn short() -> ConnectionLimits {
    ConnectionLimits {
        handshake: Duration::from_millis(300),
        head: Duration::from_millis(300),
        body: Duration::from_millis(300),
        drain: Duration::from_secs(5),
        ..ConnectionLimits::default()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reviews_are_answered_and_triggers_told() {
    let mut running = start(ConnectionLimits::default()).await;
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
        panic!("a change of an object is reported")
    };
    assert_eq!((rule.rule.as_str(), object.name.as_str()), ("team", "a"));
    // Requests of excluded users are passed on too, so that no rule acts on them.
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
async fn readiness_is_lost_while_rules_are_unknown_and_liveness_is_not() {
    let running = start(ConnectionLimits::default()).await;
    let health = &running.shared.health;
    // No API server takes the webhooks here, nor the certificates.
    health.can_do_without("webhooks");
    health.can_do_without("certificates");
    let status = async |path: &str| running.get(path).await.map(|answer| answer.0);
    for path in ["/healthz", "/livez", "/health/liveness", "/readyz", "/health/readiness"] {
        assert_eq!(status(path).await, Some(200), "{path}");
    }
    health.bad("rules: watch of kyverno.io/v1/ClusterPolicy", "it fell silent");
    let (code, words) = running.get("/readyz").await.unwrap();
    assert_eq!(
        (code, words.as_str()),
        (503, "rules: watch of kyverno.io/v1/ClusterPolicy: it fell silent\n")
    );
    assert_eq!(status("/healthz").await, Some(200));
    // A replica that has known them goes on with what was last read, and says so elsewhere.
    health.can_do_without("rules");
    health.bad("controller", "its caches are not synced yet");
    health.bad("global context: prices: watch of v1/Secret", "forbidden");
    assert_eq!(status("/readyz").await, Some(200), "reviews can be answered");
    let (_, words) = running.get("/health").await.unwrap();
    let (_, metrics) = running.get("/metrics").await.unwrap();
    for part in ["prices", "controller", "rules: watch of kyverno.io/v1/ClusterPolicy"] {
        assert!(words.contains(part), "{part} in {words}");
        let counted = |line: &str| line.starts_with("kiln_problems") && line.contains(part);
        assert!(metrics.lines().any(counted), "{part} in {metrics}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_part_that_is_down_fails_liveness_and_nothing_else() {
    let running = start(ConnectionLimits::default()).await;
    let health = &running.shared.health;
    assert_eq!(running.get("/healthz").await.unwrap(), (200, "ok\n".to_owned()));
    health.down("status", "it panicked; restarting");
    for path in ["/healthz", "/livez", "/health/liveness"] {
        let told = "status: it panicked; restarting\n".to_owned();
        assert_eq!(running.get(path).await.unwrap(), (500, told), "{path}");
    }
    let (_, problems) = running.get("/health").await.unwrap();
    assert!(problems.contains("status: it panicked"), "{problems}");
    let (_, ready) = running.get("/readyz").await.unwrap();
    assert!(!ready.contains("status"), "{ready}");
    let (_, metrics) = running.get("/metrics").await.unwrap();
    assert!(metrics.contains("kiln_problems{part=\"status\"} 1"), "{metrics}");
    assert_eq!(running.post("/mutate/fail", &review("ConfigMap", "dev")).await.unwrap().0, 200);
    health.up("status");
    assert_eq!(running.get("/healthz").await.unwrap().0, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_controller_that_is_busy_holds_up_no_review() {
    let mut running = start(ConnectionLimits::default()).await;
    // There is room for sixteen, and none is taken.
    for number in 0..20 {
        let asked = running.post("/validate/ignore?timeout=2s", &review("Namespace", "a")).await;
        assert_eq!(asked.unwrap().0, 200, "{number}");
    }
    assert!(running.hints.recv().await.is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_makes_no_sense_is_refused() {
    let running = start(ConnectionLimits::default()).await;
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

/// Metrics must show an overload, and clients that send too much or too slowly.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_rejected_before_they_are_read_are_counted() {
    let running = start(ConnectionLimits { bytes: 10, ..short() }).await;
    let head = "POST /mutate/fail HTTP/1.1\r\nhost: a\r\n";
    let answer = async |rest: &str| running.say(format!("{head}{rest}").as_bytes()).await;
    let too_large = answer("connection: close\r\ncontent-length: 99999999\r\n\r\n").await.unwrap();
    assert_eq!(too_large.0, 413);
    assert!(too_large.1.starts_with("the review has more than "), "{}", too_large.1);
    let cut_off =
        answer("connection: close\r\ntransfer-encoding: chunked\r\n\r\nnot hex\r\n").await;
    assert_eq!(cut_off.map(|answer| answer.0), Some(400));
    assert_eq!(answer("content-length: 10\r\n\r\n{").await.map(|answer| answer.0), Some(408));

    // It holds all the room there is, until another body needs some of it.
    let patient = start(ConnectionLimits { bytes: 10, ..ConnectionLimits::default() }).await;
    let mut slow = patient.connect().await.unwrap();
    slow.write_all(format!("{head}content-length: 20\r\n\r\n0123456789").as_bytes()).await.unwrap();
    let rejected = tokio::spawn(async move { read_answer(&mut slow).await });
    while !rejected.is_finished() {
        patient.post("/mutate/fail", "{}").await.unwrap();
    }
    assert_eq!(rejected.await.unwrap().map(|answer| answer.0), Some(503));

    for (running, answers) in [
        (&running, ["too large", "cut off", "slow client"].as_slice()),
        (&patient, &["too many reviews"]),
    ] {
        let (_, metrics) = running.get("/metrics").await.unwrap();
        for answer in answers {
            let line = format!(
                r#"kiln_admission_requests_total{{path="/mutate/fail",operation="",answer="{answer}"}} 1"#
            );
            assert!(metrics.lines().any(|found| found == line), "{line} in {metrics}");
        }
    }
}

/// A service that takes questions and does not answer them until it closes.
struct Silent {
    asked: watch::Receiver<usize>,
    close: watch::Sender<bool>,
}

impl Silent {
    /// How many have asked, when they are at least so many.
    async fn is_asked_by(&mut self, count: usize) -> usize {
        let asked = self.asked.wait_for(|asked| *asked >= count);
        *tokio::time::timeout(Duration::from_secs(20), asked).await.unwrap().unwrap()
    }
}

/// A server whose rules for Secrets ask a service that is silent.
async fn start_with_silent_service(limits: ConnectionLimits) -> (Running, Silent) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (count, asked) = watch::channel(0);
    let (close, closed) = watch::channel(false);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            count.send_modify(|count| *count += 1);
            let mut closed = closed.clone();
            tokio::spawn(async move {
                let _ = closed.wait_for(|closed| *closed).await;
                drop(stream);
            });
        }
    });
    let asks = format!(
        "apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {{name: asks, uid: x, generation: 1}}
spec:
  rules:
  - name: price
    match: {{any: [{{resources: {{kinds: [Secret]}}}}]}}
    context: [{{name: price, apiCall: {{method: GET, service: {{url: 'http://{address}/'}}}}}}]
    mutate: {{patchStrategicMerge: {{metadata: {{labels: {{price: '{{{{ price.of }}}}'}}}}}}}}
"
    );
    let options = RuntimeOptions {
        services: HostAllowlist::read("127.0.0.1").unwrap(),
        ..RuntimeOptions::default()
    };
    let policies = format!("{POLICIES}---\n{asks}");
    let running = start_with(Setup { limits, options, policies, ..Setup::default() }).await;
    (running, Silent { asked, close })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn there_is_a_most_of_connections() {
    let limits = ConnectionLimits { connections: 2, ..ConnectionLimits::default() };
    let (running, mut service) = start_with_silent_service(limits).await;
    let mut busy = Vec::new();
    for number in 1..=2 {
        let mut stream = running.connect().await.unwrap();
        let asks = posted("/mutate/fail?timeout=30s", &review("Secret", "dev"));
        stream.write_all(&asks).await.unwrap();
        assert_eq!(service.is_asked_by(number).await, number);
        busy.push(stream);
    }
    assert!(running.connect().await.is_none(), "a connection with a request in flight stays");
    let _ = service.close.send(true);
    for stream in &mut busy {
        assert_eq!(read_answer(stream).await.map(|answer| answer.0), Some(200));
    }
    assert!(running.connect().await.is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_after_their_first_request_make_room_for_others() {
    let drain = Duration::from_millis(300);
    let limits = ConnectionLimits { connections: 3, drain, ..ConnectionLimits::default() };
    let (running, mut service) = start_with_silent_service(limits).await;
    let mut resting = Vec::new();
    for _ in 0..2 {
        let mut connection = Http2::connect(&running).await;
        connection.ask(GET, "/healthz", None).await;
        assert_eq!(connection.answer().await, Some(OK), "the first request");
        resting.push(connection);
    }
    let mut busy = Http2::connect(&running).await;
    busy.ask(POST, "/mutate/fail?timeout=30s", Some(&review("Secret", "dev"))).await;
    service.is_asked_by(1).await;
    // All slots are taken; a new client gets one all the same, again and again.
    for _ in 0..10 {
        let answer = running.post("/mutate/fail", &review("ConfigMap", "dev")).await;
        assert_eq!(answer.map(|answer| answer.0), Some(200));
    }
    let mut longest = resting.remove(0);
    assert!(longest.is_told_to_go().await, "the one that was idle for longest is evicted");
    // Slow requests are no way to stay.
    let mut slow = Vec::new();
    for _ in 0..4 {
        let mut stream = running.connect().await.unwrap();
        let head = b"POST /mutate/fail HTTP/1.1\r\nhost: a\r\ncontent-length: 10\r\n\r\n{";
        stream.write_all(head).await.unwrap();
        slow.push(stream);
    }
    let answer = running.post("/mutate/fail", &review("ConfigMap", "dev")).await;
    assert_eq!(answer.map(|answer| answer.0), Some(200));
    let _ = service.close.send(true);
    assert_eq!(busy.answer().await, Some(OK), "a busy connection stays");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_after_their_last_request_end() {
    let moment = Duration::from_millis(300);
    let running =
        start(ConnectionLimits { idle: moment, drain: moment, ..ConnectionLimits::default() })
            .await;
    let mut one = running.connect().await.unwrap();
    let mut two = Http2::connect(&running).await;
    for _ in 0..2 {
        one.write_all(b"GET /healthz HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
        let mut answer = [0; 12];
        one.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"HTTP/1.1 200");
        while !answer.ends_with(b"ok\n") {
            answer.rotate_left(1);
            one.read_exact(&mut answer[11..]).await.unwrap();
        }
        two.ask(GET, "/healthz", None).await;
        assert_eq!(two.answer().await, Some(OK));
    }
    let mut rest = Vec::new();
    let ended = tokio::time::timeout(Duration::from_secs(20), one.read_to_end(&mut rest)).await;
    assert!(ended.is_ok(), "a connection goes on without requests");
    assert!(two.is_told_to_go().await, "a connection of HTTP/2 goes on without requests");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_bodies_hold_up_no_reviews() {
    let body = Duration::from_secs(60);
    let running = start(ConnectionLimits { reviews: 1, body, ..ConnectionLimits::default() }).await;
    let mut slow = Vec::new();
    for _ in 0..3 {
        let mut stream = running.connect().await.unwrap();
        let head = b"POST /mutate/fail HTTP/1.1\r\nhost: a\r\ncontent-length: 10\r\n\r\n{";
        stream.write_all(head).await.unwrap();
        slow.push(stream);
    }
    let mut slow_streams = Http2::connect(&running).await;
    for _ in 0..3 {
        slow_streams.begin(POST, "/mutate/fail").await;
    }
    tokio::time::sleep(Duration::from_millis(100)).await;
    let answer = running.post("/mutate/fail", &review("ConfigMap", "dev")).await;
    assert_eq!(answer.map(|answer| answer.0), Some(200));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reviews_that_are_reset_count_until_they_are_over() {
    let (running, mut service) =
        start_with_silent_service(ConnectionLimits { reviews: 3, ..ConnectionLimits::default() })
            .await;
    let mut connection = Http2::connect(&running).await;
    let mut streams = Vec::new();
    for _ in 0..3 {
        let body = review("Secret", "dev");
        streams.push(connection.ask(POST, "/mutate/fail?timeout=30s", Some(&body)).await);
    }
    service.is_asked_by(3).await;
    for _ in 0..9 {
        let body = review("Secret", "dev");
        streams.push(connection.ask(POST, "/mutate/fail?timeout=30s", Some(&body)).await);
    }
    // All of it was sent and accepted; and now: never mind.
    tokio::time::sleep(Duration::from_millis(100)).await;
    for id in streams {
        connection.reset(id).await;
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(*service.asked.borrow(), 3, "no further review is at work");
    let _ = service.close.send(true);
    connection.ask(POST, "/mutate/fail", Some(&review("ConfigMap", "dev"))).await;
    assert_eq!(connection.answer().await, Some(OK), "places are given back");
    assert_eq!(*service.asked.borrow(), 3, "no work is done without a waiting client");
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
    let options = RuntimeOptions { client_ca: Some(clients), ..RuntimeOptions::default() };
    let running = start_with(Setup { options, ..Setup::default() }).await;
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
    assert_eq!(
        asked(stranger).await,
        None,
        "a certificate of another authority is worse than none"
    );
    for wrong in ["", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
        assert!(ClientAuthority::read(wrong.as_bytes()).is_err(), "{wrong}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn made_up_reviews_are_not_written_down_without_end() {
    let carriers = CarrierLimits { burst: 3, per_second: 0, ..CarrierLimits::default() };
    let running = start(ConnectionLimits { carriers, ..ConnectionLimits::default() }).await;
    for number in 0..10 {
        let exec = format!(
            r#"{{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{{"uid":"{number}","operation":"CONNECT","name":"a","namespace":"dev","subResource":"exec","kind":{{"group":"","version":"v1","kind":"PodExecOptions"}},"resource":{{"group":"","version":"v1","resource":"pods"}},"userInfo":{{"username":"ann"}},"object":{{"apiVersion":"v1","kind":"PodExecOptions","command":["sh"]}}}}}}"#
        );
        let (status, body) = running.post("/validate/ignore", &exec).await.unwrap();
        assert_eq!(status, 200, "{body}");
    }
    // What is written here is not taken, and what is held back is not even tried.
    let (_, metrics) = running.get("/metrics").await.unwrap();
    for (outcome, count) in [("failed", 3), ("held back", 7)] {
        let line = format!("kiln_requests_written_total{{outcome=\"{outcome}\"}} {count}");
        assert!(metrics.lines().any(|found| found == line), "{line} in {metrics}");
    }
}

const GET: u8 = 0x82;
const POST: u8 = 0x83;
/// The first byte of the head of an answer of status 200.
const OK: u8 = 0x88;

/// A frame of HTTP/2.
fn frame(kind: u8, flags: u8, id: u32, bytes: &[u8]) -> Vec<u8> {
    let length = u32::try_from(bytes.len()).unwrap().to_be_bytes();
    let mut frame = vec![length[1], length[2], length[3], kind, flags];
    frame.extend_from_slice(&id.to_be_bytes());
    frame.extend_from_slice(bytes);
    frame
}

/// The head of a request for a path of https://a.
fn head(id: u32, method: u8, path: &str, has_body: bool) -> Vec<u8> {
    let mut head = vec![method, 0x87, 0x04, u8::try_from(path.len()).unwrap()];
    head.extend_from_slice(path.as_bytes());
    head.extend_from_slice(&[0x01, 1, b'a']);
    frame(0x01, if has_body { 0x04 } else { 0x05 }, id, &head)
}

/// Ends a stream, because its client is gone.
fn never_mind(id: u32) -> Vec<u8> {
    frame(0x03, 0, id, &[0, 0, 0, 8])
}

/// A connection of HTTP/2 that does as it pleases.
struct Http2 {
    stream: TlsStream<TcpStream>,
    next: u32,
}

impl Http2 {
    async fn connect(running: &Running) -> Self {
        let mut config = client().with_no_client_auth();
        config.alpn_protocols = vec![b"h2".to_vec()];
        let mut stream = running.connect_with(config).await.unwrap();
        stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
        stream.write_all(&frame(0x04, 0, 0, &[])).await.unwrap();
        Http2 { stream, next: 1 }
    }

    /// A new stream.
    fn open(&mut self) -> u32 {
        self.next += 2;
        self.next - 2
    }

    /// Sends the head of a request that a body is to follow.
    async fn begin(&mut self, method: u8, path: &str) {
        let id = self.open();
        self.stream.write_all(&head(id, method, path, true)).await.unwrap();
    }

    /// Sends a request; its stream.
    async fn ask(&mut self, method: u8, path: &str, body: Option<&str>) -> u32 {
        let id = self.open();
        let mut frames = head(id, method, path, body.is_some());
        if let Some(body) = body {
            frames.extend_from_slice(&frame(0x00, 0x01, id, body.as_bytes()));
        }
        self.stream.write_all(&frames).await.unwrap();
        id
    }

    async fn reset(&mut self, id: u32) {
        self.stream.write_all(&never_mind(id)).await.unwrap();
    }

    /// The next frame of a kind; none when the connection ends before.
    async fn receive(&mut self, wanted: u8) -> Option<Vec<u8>> {
        let frames = async {
            loop {
                let mut head = [0; 9];
                self.stream.read_exact(&mut head).await.ok()?;
                let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
                let mut bytes = vec![0; usize::try_from(length).ok()?];
                self.stream.read_exact(&mut bytes).await.ok()?;
                if head[3] == wanted {
                    return Some(bytes);
                }
            }
        };
        tokio::time::timeout(Duration::from_secs(20), frames).await.unwrap()
    }

    /// What the head of the next answer begins with.
    async fn answer(&mut self) -> Option<u8> {
        self.receive(0x01).await?.first().copied()
    }

    /// Whether the server says farewell, and the connection ends.
    async fn is_told_to_go(&mut self) -> bool {
        // GOAWAY; nothing comes behind it, and that comes to its end.
        self.receive(0x07).await.is_some() && self.receive(0x01).await.is_none()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_that_are_opened_and_reset_end_their_connection() {
    let running = start(ConnectionLimits::default()).await;
    let mut connection = Http2::connect(&running).await;
    let mut sent = 0;
    for _ in 0..20_000 {
        let id = connection.open();
        let frames = [head(id, POST, "/policyvalidate", true), never_mind(id)].concat();
        if connection.stream.write_all(&frames).await.is_err() {
            break;
        }
        sent += 1;
    }
    let mut answer = Vec::new();
    let ended = connection.stream.read_to_end(&mut answer);
    let ended = tokio::time::timeout(Duration::from_secs(20), ended).await;
    assert!(ended.is_ok(), "the connection goes on after {sent} streams");
    assert_eq!(running.get("/health/liveness").await.map(|answer| answer.0), Some(200));
}
