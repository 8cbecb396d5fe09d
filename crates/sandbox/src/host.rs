//! The host: the clock, randomness, calls to webhooks, and notifications of changes.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher as _, Hasher as _};
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use kiln_apiserver::{ServerHost, WebhookCall};
use rustls::crypto::ring;
use tokio::sync::watch;
use ureq::Agent;
use ureq::tls::{Certificate, RootCerts, TlsConfig};
use ureq::unversioned::resolver::{ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{DefaultConnector, NextTimeout};

use crate::StartError;

/// The longest answer of a webhook.
const LONGEST_ANSWER: u64 = 16 << 20;

/// What is shared between the server and its host.
#[derive(Debug)]
pub(crate) struct HostState {
    pub(crate) revisions: watch::Sender<u64>,
    agents: Mutex<HashMap<AgentKey, Agent>>,
    /// Services that programs of this machine answer, by namespace and name.
    services: Mutex<HashMap<(String, String), SocketAddr>>,
    drawn: AtomicU64,
    chance: RandomState,
}

/// The authority that a webhook's certificate must be of, and where to connect if not to the host of its URL.
type AgentKey = (Vec<u8>, Option<String>);

/// Connects to one place, whatever the name.
#[derive(Debug)]
struct OnePlace(SocketAddr);

impl Resolver for OnePlace {
    fn resolve(
        &self,
        _: &ureq::http::Uri,
        _: &ureq::config::Config,
        _: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, ureq::Error> {
        let mut found = self.empty();
        found.push(self.0);
        Ok(found)
    }
}

impl HostState {
    /// From now on a Service is answered at an address.
    pub(crate) fn route(&self, namespace: &str, name: &str, address: SocketAddr) {
        let mut services = self.services.lock().unwrap_or_else(PoisonError::into_inner);
        services.insert((namespace.to_owned(), name.to_owned()), address);
    }
}

impl Default for HostState {
    fn default() -> Self {
        HostState {
            revisions: watch::Sender::new(0),
            agents: Mutex::default(),
            services: Mutex::default(),
            drawn: AtomicU64::new(0),
            chance: RandomState::new(),
        }
    }
}

pub(crate) struct SandboxHost(pub(crate) Arc<HostState>);

/// Seconds and nanoseconds since 1970.
pub(crate) fn now() -> (i64, u32) {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    (i64::try_from(since.as_secs()).unwrap_or(0), since.subsec_nanos())
}

/// A text that cannot be guessed: 256 bits from the random source of the system.
pub(crate) fn secret() -> Result<String, StartError> {
    let mut bytes = [0; 32];
    let drawn = ring::default_provider().secure_random.fill(&mut bytes);
    drawn.map_err(|_| StartError {
        message: "the system gives no random numbers for a token".to_owned(),
        hint: "/dev/urandom must be readable".to_owned(),
    })?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

impl ServerHost for SandboxHost {
    fn now(&self) -> (i64, u32) {
        now()
    }

    fn random(&self) -> u64 {
        let mut hasher = self.0.chance.build_hasher();
        hasher.write_u64(self.0.drawn.fetch_add(1, Ordering::Relaxed));
        hasher.finish()
    }

    fn call(&self, call: &WebhookCall) -> Result<Vec<u8>, String> {
        let agent = self.agent(&call.ca_bundle, call.connect_to.as_deref())?;
        let timeout = Duration::from_secs(u64::from(call.timeout_seconds));
        let request = agent
            .post(&call.url)
            .header("Content-Type", "application/json")
            .config()
            .timeout_global(Some(timeout))
            .http_status_as_error(false)
            .build();
        let mut response = request
            .send(&call.body[..])
            .map_err(|error| format!("Post {:?}: {error}", call.url))?;
        let status = response.status().as_u16();
        let body = response
            .body_mut()
            .with_config()
            .limit(LONGEST_ANSWER)
            .read_to_vec()
            .map_err(|error| error.to_string())?;
        if !(200..300).contains(&status) {
            let words = String::from_utf8_lossy(&body);
            let words: String = words.trim().chars().take(200).collect();
            return Err(format!("the webhook answered with status {status}: {words}"));
        }
        Ok(body)
    }

    fn service(&self, namespace: &str, name: &str, _port: i64) -> Option<String> {
        let services = self.0.services.lock().unwrap_or_else(PoisonError::into_inner);
        let found = services.get(&(namespace.to_owned(), name.to_owned()));
        found.map(ToString::to_string)
    }

    fn changed(&self, revision: u64) {
        self.0.revisions.send_if_modified(|known| {
            let newer = revision > *known;
            *known = revision.max(*known);
            newer
        });
    }
}

impl SandboxHost {
    /// Connections to webhooks that show certificates of this authority.
    fn agent(&self, bundle: &[u8], connect_to: Option<&str>) -> Result<Agent, String> {
        let mut agents = self.0.agents.lock().unwrap_or_else(PoisonError::into_inner);
        let key: AgentKey = (bundle.to_vec(), connect_to.map(str::to_owned));
        if let Some(agent) = agents.get(&key) {
            return Ok(agent.clone());
        }
        let mut tls = TlsConfig::builder();
        if !bundle.is_empty() {
            let certificates: Result<Vec<Certificate<'static>>, _> = ureq::tls::parse_pem(bundle)
                .filter_map(|item| match item {
                    Ok(ureq::tls::PemItem::Certificate(certificate)) => Some(Ok(certificate)),
                    Ok(_) => None,
                    Err(error) => Some(Err(error)),
                })
                .collect();
            let certificates = certificates.map_err(|error| format!("caBundle: {error}"))?;
            tls = tls.root_certs(RootCerts::from(certificates));
        }
        let config = Agent::config_builder().tls_config(tls.build()).max_redirects(0).build();
        let agent: Agent = match connect_to {
            None => config.into(),
            Some(place) => {
                let found = place.to_socket_addrs().ok().and_then(|mut found| found.next());
                let place = found.ok_or_else(|| format!("{place:?} has no address"))?;
                Agent::with_parts(config, DefaultConnector::default(), OnePlace(place))
            }
        };
        agents.insert(key, agent.clone());
        Ok(agent)
    }
}
