//! Services on sockets: those that answer well, and all the others.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::time::{Duration, Instant};

use kiln_engine::{
    ExternalData as _, ExternalDataError, HostAllowlist, ServiceAnswer, ServiceRequest,
};
use kiln_rules::Method;
use kiln_services::Services;
use kiln_value::{Str, Value, value};

/// A service that gives one answer to each who asks, and hands over what it was asked.
fn service(
    answer: impl AsRef<[u8]> + Send + 'static,
    pause: Duration,
) -> (u16, std::sync::mpsc::Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (asked, questions) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { continue };
            let mut head = vec![0; 16 << 10];
            let count = stream.read(&mut head).unwrap_or(0);
            let _ = asked.send(String::from_utf8_lossy(&head[..count]).into_owned());
            std::thread::sleep(pause);
            let _ = stream.write_all(answer.as_ref());
        }
    });
    (port, questions)
}

fn ask(services: &Services, url: &str) -> Result<Value, ExternalDataError> {
    services.call(&request(url, Method::Get, &[], None))
}

fn request<'r>(
    url: &'r str,
    method: Method,
    headers: &'r [(Str, String)],
    body: Option<&'r Value>,
) -> ServiceRequest<'r> {
    ServiceRequest { url, method, headers, body, ca_bundle: None }
}

fn allowing(list: &str) -> Services {
    Services::new(HostAllowlist::read(list).unwrap()).within(Duration::from_secs(3), 1000)
}

/// A text of 20,002 bytes in JSON, compressed by gzip to less than a hundred.
const PACKED: &[u8] =
    b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\xff\xed\xc1\x21\x01\x00\x00\x00\x02\xa0\x2f\xae\x74\
    \xbe\x37\x0c\x40\x0a\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\
    \x00\xc0\x85\x0c\xdd\xac\x82\xa3\x22\x4e\x00\x00";

const GOOD: &str = "HTTP/1.1 200 OK\r\ncontent-length: 10\r\nconnection: close\r\n\r\n{\"a\": [1]}";

#[test]
fn what_is_allowed_is_asked_as_the_rule_says() {
    let (port, questions) = service(GOOD, Duration::ZERO);
    let services = allowing(&format!("127.0.0.1:{port}"));
    let url = format!("http://127.0.0.1:{port}/prices?of=a");
    assert_eq!(ask(&services, &url), Ok(value!({"a": [1]})));
    let asked = questions.recv().unwrap().to_lowercase();
    assert!(asked.starts_with("get /prices?of=a http/1.1\r\n"), "{asked}");
    assert!(!asked.contains("authorization"), "no credentials of ours: {asked}");
    let body = value!({"name": "web"});
    let headers = [(Str::from("x-team"), "shop".to_owned())];
    let posted = services.exchange(&request(&url, Method::Post, &headers, Some(&body)));
    assert_eq!(posted, Ok(ServiceAnswer { status: 200, body: Some(value!({"a": [1]})) }));
    let asked = questions.recv().unwrap().to_lowercase();
    assert!(asked.starts_with("post /prices?of=a") && asked.contains("x-team: shop"), "{asked}");
}

#[test]
fn what_is_not_allowed_is_not_asked() {
    let (port, questions) = service(GOOD, Duration::ZERO);
    for (list, url) in [
        ("", format!("http://127.0.0.1:{port}/")),
        ("example.com", format!("http://127.0.0.1:{port}/")),
        // A name that leads to this machine, and one that is allowed by a wildcard.
        ("localhost", format!("http://localhost:{port}/")),
        ("*", format!("http://localhost:{port}/")),
        ("127.0.0.1:1", format!("http://127.0.0.1:{port}/")),
    ] {
        let refused = ask(&allowing(list), &url).unwrap_err();
        assert!(refused.refused, "{list:?} {url}: {refused}");
    }
    assert!(questions.try_recv().is_err(), "no connection was made");
    assert!(Services::default().are_off());
}

#[test]
fn redirects_are_not_followed() {
    let (inner, questions) = service(GOOD, Duration::ZERO);
    let moved = format!(
        "HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:{inner}/\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
    );
    let (port, _asked) = service(moved.leak(), Duration::ZERO);
    let services = allowing("127.0.0.1");
    let error = ask(&services, &format!("http://127.0.0.1:{port}/")).unwrap_err();
    assert!(error.message.contains("redirect 302"), "{error}");
    assert!(questions.try_recv().is_err(), "no request was sent there");
}

#[test]
fn the_most_of_bytes_counts_what_is_unpacked() {
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        PACKED.len()
    );
    let (port, _asked) = service([head.as_bytes(), PACKED].concat(), Duration::ZERO);
    let url = format!("http://127.0.0.1:{port}/");
    let error = ask(&allowing("127.0.0.1"), &url).unwrap_err();
    assert!(error.message.contains("more than 1000 bytes"), "{error}");
    let roomy = allowing("127.0.0.1").within(Duration::from_secs(5), 20_002);
    assert_eq!(ask(&roomy, &url), Ok(Value::from("x".repeat(20_000))));
}

#[test]
fn answers_have_a_most_of_bytes_and_time() {
    let services = allowing("127.0.0.1");
    let large = format!(
        "HTTP/1.1 200 OK\r\ncontent-length: 5000\r\nconnection: close\r\n\r\n\"{}\"",
        "x".repeat(4998)
    );
    let (port, _asked) = service(large.leak(), Duration::ZERO);
    let error = ask(&services, &format!("http://127.0.0.1:{port}/")).unwrap_err();
    assert!(error.message.contains("more than 1000 bytes"), "{error}");
    let (port, _asked) = service(GOOD, Duration::from_secs(20));
    let began = Instant::now();
    let error = ask(&services, &format!("http://127.0.0.1:{port}/")).unwrap_err();
    assert!(error.message.contains("does not answer"), "{error}");
    assert!(began.elapsed() < Duration::from_secs(10));
    for (answer, says) in [
        ("HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n", "status 404"),
        ("HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nno", "not JSON"),
    ] {
        let (port, _asked) = service(answer, Duration::ZERO);
        let error = ask(&services, &format!("http://127.0.0.1:{port}/")).unwrap_err();
        assert!(error.message.contains(says) && !error.refused, "{error}");
    }
}
