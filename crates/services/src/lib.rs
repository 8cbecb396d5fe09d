//! Asks services for rules: only those that users allow, and within limits.
//!
//! Rules ask through [`kiln_engine::Outside`], which is the one gate: a context entry's `apiCall.service` and CEL's
//! `http` library alike. Nothing is asked unless its host is on the list; what a name leads to is looked at before
//! anybody connects, and the address that was looked at is the one that is connected to. Redirects are not followed,
//! and no credentials are added.
//!
//! | module | holds |
//! |---|---|
//! | [`allowed`] | the list of hosts, and addresses that nobody reaches by a name |
//! | here | the request itself |

pub mod allowed;

use std::sync::Arc;
use std::time::Duration;

use kiln_engine::{Outside, OutsideError, ServiceAnswer, ServiceRequest};
use kiln_rules::Method;
use kiln_value::{KeyTable, Value, json};
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem};
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{DefaultConnector, NextTimeout};
use ureq::{Agent, Body, http};

pub use allowed::{Allowed, Host};

/// How long a service may take.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The most bytes of an answer.
const MOST_BYTES: u64 = 2 << 20;

/// Asks the services that users allow.
#[derive(Clone, Debug, Default)]
pub struct Services {
    allowed: Arc<Allowed>,
    timeout: Option<Duration>,
    most_bytes: Option<u64>,
}

impl Services {
    /// Asks the services of a list.
    pub fn new(allowed: Allowed) -> Self {
        Services { allowed: Arc::new(allowed), timeout: None, most_bytes: None }
    }

    /// With other limits than the usual ones.
    #[must_use]
    pub fn within(self, timeout: Duration, most_bytes: u64) -> Self {
        Services { timeout: Some(timeout), most_bytes: Some(most_bytes), ..self }
    }

    /// Whether any service may be asked.
    pub fn are_off(&self) -> bool {
        self.allowed.is_empty()
    }

    fn ask(&self, request: &ServiceRequest<'_>) -> Result<http::Response<Body>, OutsideError> {
        let url = request.url;
        let uri: http::Uri = url
            .parse()
            .map_err(|error| OutsideError::refused(format!("{url:?} is no address: {error}")))?;
        let host = self.allowed.permits(&uri).map_err(OutsideError::refused)?;
        let config = Agent::config_builder()
            .tls_config(tls(request.ca_bundle).map_err(OutsideError::failed)?)
            .timeout_global(Some(self.timeout.unwrap_or(TIMEOUT)))
            .http_status_as_error(false)
            .max_idle_connections(0)
            // Where a redirect leads, nobody has allowed.
            .max_redirects(0)
            .max_redirects_will_error(false)
            // A proxy would look up names itself.
            .proxy(None)
            .user_agent(concat!("kiln/", env!("CARGO_PKG_VERSION")))
            .build();
        let resolver = Guarded { host, inner: DefaultResolver::default() };
        let agent = Agent::with_parts(config, DefaultConnector::default(), resolver);
        let mut builder = http::Request::builder().uri(uri).header("accept", "application/json");
        for (name, value) in request.headers {
            builder = builder.header(name.as_str(), value.as_str());
        }
        let unsendable = |error: &http::Error| {
            OutsideError::refused(format!("{url} cannot be asked like this: {error}"))
        };
        let answer = match request.method {
            Method::Get => {
                let asked = builder.method("GET").body(()).map_err(|error| unsendable(&error))?;
                agent.run(asked)
            }
            Method::Post | Method::Put => {
                let body = request.body.map(json::to_string).unwrap_or_default();
                let asked = builder
                    .method(request.method.as_str())
                    .header("content-type", "application/json")
                    .body(body)
                    .map_err(|error| unsendable(&error))?;
                agent.run(asked)
            }
        };
        answer.map_err(|error| match error {
            // What the resolver refuses is no failure of the network.
            ureq::Error::Other(why) if why.is::<allowed::Kept>() => {
                OutsideError::refused(format!("{url}: {why}"))
            }
            error => OutsideError::failed(format!("{url} does not answer: {error}")),
        })
    }
}

impl Outside for Services {
    fn call(&self, request: &ServiceRequest<'_>) -> Result<Value, OutsideError> {
        self.exchange(request)?.good(request.url)
    }

    fn exchange(&self, request: &ServiceRequest<'_>) -> Result<ServiceAnswer, OutsideError> {
        let mut answer = self.ask(request)?;
        let most = self.most_bytes.unwrap_or(MOST_BYTES);
        let bytes = answer.body_mut().with_config().limit(most).read_to_vec();
        let bytes = bytes.map_err(|error| match error {
            ureq::Error::BodyExceedsLimit(_) => {
                OutsideError::failed(format!("{} answers with more than {most} bytes", request.url))
            }
            error => {
                OutsideError::failed(format!("the answer of {} broke off: {error}", request.url))
            }
        })?;
        let body = json::parse_bytes(&bytes, &mut KeyTable::new()).ok();
        Ok(ServiceAnswer { status: answer.status().as_u16(), body })
    }
}

/// Looks up names, and keeps back addresses that a name must not lead to.
#[derive(Debug)]
struct Guarded {
    host: Host,
    inner: DefaultResolver,
}

impl Resolver for Guarded {
    fn resolve(
        &self,
        uri: &http::Uri,
        config: &ureq::config::Config,
        timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, ureq::Error> {
        let found = self.inner.resolve(uri, config, timeout)?;
        for address in &found {
            self.host.leads_to(address.ip()).map_err(|kept| ureq::Error::Other(Box::new(kept)))?;
        }
        Ok(found)
    }
}

/// How connections are encrypted: with the authorities of the machine, or with those that are given in PEM.
///
/// # Errors
/// When the authorities cannot be read.
pub fn tls(authorities: Option<&str>) -> Result<TlsConfig, String> {
    let roots: Vec<Certificate<'static>> = match authorities {
        Some(pem) => {
            let mut roots = Vec::new();
            for item in parse_pem(pem.as_bytes()) {
                match item.map_err(|error| format!("the certificates to trust: {error}"))? {
                    PemItem::Certificate(certificate) => roots.push(certificate),
                    _ => return Err("the certificates to trust hold something else".to_owned()),
                }
            }
            roots
        }
        // SSL_CERT_FILE and SSL_CERT_DIR are honoured.
        None => rustls_native_certs::load_native_certs()
            .certs
            .iter()
            .map(|der| Certificate::from_der(der).to_owned())
            .collect(),
    };
    Ok(TlsConfig::builder()
        .root_certs(RootCerts::new_with_certs(&roots))
        .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .build())
}
