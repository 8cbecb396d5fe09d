//! Certificates of one's own, in Secrets of an API server that has nothing else.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use kiln_certificates::{CertificateNames, Certificates, Pair};
use kiln_runtime::RuntimeOptions;
use kiln_runtime::policy_store::Registry;
use kiln_value::{Value, json};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::support::{Running, Setup, start_with, until};

const SERVICE: &str = "kyverno-svc.kyverno.svc";

/// An API server that has Secrets, and takes whatever is stored.
#[derive(Clone, Default)]
struct Cluster(Arc<Mutex<Held>>);

#[derive(Default)]
struct Held {
    secrets: BTreeMap<String, Value>,
    /// How often Secrets were read.
    reads: usize,
    /// What was stored.
    stored: Vec<String>,
}

impl Cluster {
    async fn start(&self) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let cluster = self.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(cluster.clone().answer(stream));
            }
        });
        address
    }

    async fn answer(self, mut stream: TcpStream) {
        let mut all = Vec::new();
        let (head, body) = loop {
            let text = String::from_utf8_lossy(&all).into_owned();
            if let Some((head, body)) = text.split_once("\r\n\r\n") {
                let head = head.to_lowercase();
                let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
                if body.len() >= length.map_or(0, |length| length.trim().parse().unwrap()) {
                    break (text.lines().next().unwrap_or_default().to_owned(), body.to_owned());
                }
            }
            let mut piece = [0; 4096];
            match stream.read(&mut piece).await {
                Ok(count) if count > 0 => all.extend_from_slice(&piece[..count]),
                _ => return,
            }
        };
        let mut words = head.split(' ');
        let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let (status, body) = self.does(method, path, body);
        let answer = format!(
            "HTTP/1.1 {status}\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        let _ = stream.write_all(answer.as_bytes()).await;
    }

    fn does(&self, method: &str, path: &str, body: String) -> (&'static str, String) {
        let mut held = self.0.lock().unwrap();
        if method != "GET" {
            held.stored.push(body.clone());
            return ("201 Created", body);
        }
        let secret = path.split_once("/secrets/").map(|(_, name)| name.to_owned());
        held.reads += usize::from(secret.is_some());
        match secret.and_then(|name| held.secrets.get(&name).cloned()) {
            Some(secret) => ("200 OK", json::to_string(&secret)),
            None => {
                let status =
                    r#"{"kind":"Status","code":404,"reason":"NotFound","details":{"name":"it"}}"#;
                ("404 Not Found", status.to_owned())
            }
        }
    }

    /// Stores an authority without its key, and a pair.
    fn give(&self, authority: &str, serving: &Pair) {
        let authority = Pair { certificates: authority.to_owned(), key: String::new() };
        let names = CertificateNames::usual("kyverno");
        let made = Certificates { authority, serving: serving.clone(), changed: false, next: 0 };
        let mut held = self.0.lock().unwrap();
        let both = [names.authority_secret(), names.serving_secret()];
        held.secrets = both.into_iter().zip(made.secrets(&names)).collect();
    }

    /// Whether webhooks were stored that trust this authority.
    fn trusts(&self, authority: &str) -> bool {
        let authority = Pair { certificates: authority.to_owned(), key: String::new() };
        let serving = authority.clone();
        let bundle = Certificates { authority, serving, changed: false, next: 0 }.ca_bundle();
        self.0.lock().unwrap().stored.iter().any(|object| object.contains(&bundle))
    }

    fn reads(&self) -> usize {
        self.0.lock().unwrap().reads
    }
}

type Authority = CertifiedIssuer<'static, KeyPair>;

/// All authorities have the same name, as those that are renewed do.
fn authority() -> Authority {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name.push(DnType::CommonName, "somebody's own");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// A pair for a name that counts for so many seconds.
fn pair(authority: &Authority, name: &str, seconds: u64) -> Pair {
    let mut params = CertificateParams::new([name.to_owned()]).unwrap();
    params.not_after = (SystemTime::now() + Duration::from_secs(seconds)).into();
    let key = KeyPair::generate().unwrap();
    let certificates = params.signed_by(&key, authority).unwrap().pem();
    Pair { certificates, key: key.serialize_pem() }
}

async fn start(cluster: &Cluster, webhook_url: Option<&str>) -> Running {
    let options =
        RuntimeOptions { webhook_url: webhook_url.map(str::to_owned), ..RuntimeOptions::default() };
    let cluster = cluster.start().await;
    start_with(Setup { options, cluster, ..Setup::default() }).await
}

fn problems(running: &Running) -> String {
    running.shared.health.keeps_from_answering().join("; ")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_of_ones_own_that_ends_is_told_and_looked_at_in_peace() {
    let (cluster, own) = (Cluster::default(), authority());
    let began = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    cluster.give(&own.pem(), &pair(&own, SERVICE, 6));
    let running = start(&cluster, None).await;
    until("being ready", || problems(&running).is_empty()).await;
    assert!(cluster.trusts(&own.pem()));
    until("the end of the certificate", || !problems(&running).is_empty()).await;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    assert!(now >= began + 6, "not before it has ended");
    let told = problems(&running);
    let words = ["certificates: the serving certificate has expired", "kyverno-tls-pair"];
    assert!(words.iter().all(|words| told.contains(words)), "{told}");
    // Whatever else happens meanwhile, the two Secrets are read every two seconds at most.
    let (before, began) = (cluster.reads(), Instant::now());
    for _ in 0..50 {
        running.registry.send_modify(|registry| {
            let policies = registry.policies.clone();
            *registry = Arc::new(Registry { policies, complete: true, ..Registry::default() });
        });
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let reads = cluster.reads() - before;
    // On a busy machine the fifty changes take longer than five seconds.
    let seconds = usize::try_from(began.elapsed().as_secs()).unwrap();
    assert!((1..=seconds + 3).contains(&reads), "{reads} reads in {seconds} seconds");
    cluster.give(&own.pem(), &pair(&own, SERVICE, 3600));
    until("being ready again", || problems(&running).is_empty()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_authority_is_trusted_with_what_it_signed() {
    let (cluster, old, new) = (Cluster::default(), authority(), authority());
    // A user has renewed one of two Secrets.
    cluster.give(&new.pem(), &pair(&old, SERVICE, 3600));
    let running = start(&cluster, None).await;
    until("a word about it", || problems(&running).contains("has not signed")).await;
    assert!(!cluster.trusts(&new.pem()), "no configuration trusts it");
    cluster.give(&new.pem(), &pair(&new, SERVICE, 3600));
    until("being ready", || problems(&running).is_empty()).await;
    assert!(cluster.trusts(&new.pem()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_of_ones_own_is_for_the_name_in_the_url() {
    for (name, serves) in [("kiln.example.org", true), (SERVICE, false)] {
        let (cluster, own) = (Cluster::default(), authority());
        cluster.give(&own.pem(), &pair(&own, name, 3600));
        let running = start(&cluster, Some("https://Kiln.example.org:9443")).await;
        until("being ready", || problems(&running).is_empty()).await;
        assert_eq!(cluster.trusts(&own.pem()), serves, "{name}");
    }
}
