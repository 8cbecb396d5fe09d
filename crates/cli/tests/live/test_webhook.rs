//! A validating webhook of a test: an HTTPS server on loopback that denies what its test says.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use kiln_certificates::{CertificateNames, Certificates, Stored};
use kiln_value::{Value, json, value};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

/// Says why a request is denied; none if it is allowed. It gets the `request` of the review.
pub(crate) type Verdict = fn(&Value) -> Option<String>;

/// A webhook that ends with this value.
pub(crate) struct TestWebhook {
    port: u16,
    bundle: String,
    ended: Arc<AtomicBool>,
}

impl TestWebhook {
    /// Starts a server that answers every review by a verdict.
    pub(crate) fn start(verdict: Verdict) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        let names = CertificateNames {
            others: vec!["127.0.0.1".to_owned()],
            ..CertificateNames::usual("default")
        };
        let made = Certificates::ensure(&Stored::default(), &names, i64::try_from(now).unwrap());
        let made = made.unwrap();
        let certificates: Vec<_> =
            CertificateDer::pem_slice_iter(made.serving.certificates.as_bytes())
                .collect::<Result<_, _>>()
                .unwrap();
        let key = PrivateKeyDer::from_pem_slice(made.serving.key.as_bytes()).unwrap();
        // Without a protocol of its own choice, the API server speaks HTTP/1.1.
        let config =
            ServerConfig::builder().with_no_client_auth().with_single_cert(certificates, key);
        let config = Arc::new(config.unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let ended = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&ended);
        thread::spawn(move || {
            for stream in listener.incoming() {
                if seen.load(Ordering::Relaxed) {
                    return;
                }
                let (Ok(stream), config) = (stream, Arc::clone(&config)) else { continue };
                // A connection that breaks off is the caller's business.
                thread::spawn(move || answer_all(stream, config, verdict));
            }
        });
        TestWebhook { port, bundle: made.ca_bundle(), ended }
    }

    /// How API servers reach it, as a `clientConfig`.
    pub(crate) fn client_config(&self) -> String {
        format!("{{url: 'https://127.0.0.1:{}/', caBundle: {}}}", self.port, self.bundle)
    }
}

impl Drop for TestWebhook {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        // Its thread waits for a connection.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

fn answer_all(stream: TcpStream, config: Arc<ServerConfig>, verdict: Verdict) -> io::Result<()> {
    stream.set_read_timeout(Some(Duration::from_secs(120)))?;
    let connection = ServerConnection::new(config).map_err(io::Error::other)?;
    let mut stream = BufReader::new(StreamOwned::new(connection, stream));
    loop {
        let mut length = 0;
        loop {
            let mut line = String::new();
            if stream.read_line(&mut line)? == 0 {
                return Ok(());
            }
            let line = line.trim().to_ascii_lowercase();
            if let Some(found) = line.strip_prefix("content-length:") {
                length = found.trim().parse().map_err(io::Error::other)?;
            }
            if line.is_empty() {
                break;
            }
        }
        let mut body = vec![0; length];
        stream.read_exact(&mut body)?;
        let answer = review(&String::from_utf8_lossy(&body), verdict);
        write!(
            stream.get_mut(),
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{answer}",
            answer.len()
        )?;
        stream.get_mut().flush()?;
    }
}

fn review(body: &str, verdict: Verdict) -> String {
    let review = json::parse(body).unwrap_or_default();
    let request = review.get("request").cloned().unwrap_or_default();
    let uid = request.str_at(["uid"]).unwrap_or_default();
    let response = match verdict(&request) {
        None => value!({"uid": uid, "allowed": true}),
        Some(why) => {
            value!({"uid": uid, "allowed": false, "status": {"code": 403, "message": why}})
        }
    };
    json::to_string(&value!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response,
    }))
}
