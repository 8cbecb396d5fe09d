//! Asks services for rules: only those that users allow, and within limits.
//!
//! Rules ask through [`kiln_engine::ExternalData`], which is the one gate: a context entry's `apiCall.service` and CEL's
//! `http` library alike. Nothing is asked unless its host is on the list; what a name leads to is looked at before
//! a connection is made, and the address that was looked at is the one that is connected to. Redirects are not followed,
//! and no credentials are added.
//!
//! The list itself is [`kiln_engine::HostAllowlist`].

use std::io::Read as _;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use kiln_engine::{
    AllowedHost, ExternalData, ExternalDataError, HostAllowlist, RefusedAddress, ServiceAnswer,
    ServiceRequest,
};
use kiln_rules::Method;
use kiln_value::{KeyTable, Value, json};
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem};
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{DefaultConnector, NextTimeout};
use ureq::{Agent, Body, http};

/// How long a service may take.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The most bytes of an answer.
const MOST_BYTES: u64 = 2 << 20;
/// The most lookups of names at once, in the whole process: each has a thread, and the system's resolver cannot be asked
/// to stop, so a lookup goes on when no caller waits for it any more.
const MOST_LOOKUPS: usize = 128;
/// The lookups that are under way.
static LOOKUPS: AtomicUsize = AtomicUsize::new(0);

/// Asks the services that users allow.
#[derive(Clone, Debug, Default)]
pub struct Services {
    allowed: Arc<HostAllowlist>,
    timeout: Option<Duration>,
    most_bytes: Option<u64>,
}

impl Services {
    /// Asks the services of a list.
    pub fn new(allowed: HostAllowlist) -> Self {
        Services { allowed: Arc::new(allowed), timeout: None, most_bytes: None }
    }

    /// With other limits than the usual ones.
    #[must_use]
    pub fn within(self, timeout: Duration, most_bytes: u64) -> Self {
        Services { timeout: Some(timeout), most_bytes: Some(most_bytes), ..self }
    }

    /// The same services, which answer within this time if theirs is not shorter.
    #[must_use]
    pub fn no_longer_than(&self, time: Duration) -> Self {
        let timeout = self.timeout.unwrap_or(TIMEOUT).min(time);
        Services { timeout: Some(timeout), ..self.clone() }
    }

    /// Whether any service may be asked.
    pub fn are_off(&self) -> bool {
        self.allowed.is_empty()
    }

    fn ask(&self, request: &ServiceRequest<'_>) -> Result<http::Response<Body>, ExternalDataError> {
        let url = request.url;
        let uri: http::Uri = url.parse().map_err(|error| {
            ExternalDataError::refused(format!("{url:?} is not an address: {error}"))
        })?;
        let host = self.allowed.permits(&uri).map_err(ExternalDataError::refused)?;
        let config = Agent::config_builder()
            .tls_config(tls(request.ca_bundle).map_err(ExternalDataError::failed)?)
            .timeout_global(Some(self.timeout.unwrap_or(TIMEOUT)))
            .http_status_as_error(false)
            .max_idle_connections(0)
            // The target of a redirect is not on the allowlist.
            .max_redirects(0)
            .max_redirects_will_error(false)
            // A proxy would look up names itself.
            .proxy(None)
            .user_agent(concat!("kiln/", env!("CARGO_PKG_VERSION")))
            .build();
        let resolver = Guarded { host };
        let agent = Agent::with_parts(config, DefaultConnector::default(), resolver);
        let mut builder = http::Request::builder().uri(uri).header("accept", "application/json");
        for (name, value) in request.headers {
            builder = builder.header(name.as_str(), value.as_str());
        }
        let unsendable = |error: &http::Error| {
            ExternalDataError::refused(format!("{url} cannot be asked like this: {error}"))
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
            // What the resolver refuses is not a failure of the network.
            ureq::Error::Other(why) if why.is::<RefusedAddress>() => {
                ExternalDataError::refused(format!("{url}: {why}"))
            }
            error => ExternalDataError::failed(format!("{url} does not answer: {error}")),
        })
    }
}

impl ExternalData for Services {
    fn call(&self, request: &ServiceRequest<'_>) -> Result<Value, ExternalDataError> {
        self.exchange(request)?.good(request.url)
    }

    fn exchange(&self, request: &ServiceRequest<'_>) -> Result<ServiceAnswer, ExternalDataError> {
        let mut answer = self.ask(request)?;
        let most = self.most_bytes.unwrap_or(MOST_BYTES);
        let bytes = read_within(answer.body_mut(), most).map_err(|error| {
            ExternalDataError::failed(format!(
                "the response of {} was cut off: {error}",
                request.url
            ))
        })?;
        let bytes = bytes.ok_or_else(|| {
            ExternalDataError::failed(format!(
                "{} answers with more than {most} bytes",
                request.url
            ))
        })?;
        let body = json::parse_bytes(&bytes, &mut KeyTable::new()).ok();
        Ok(ServiceAnswer { status: answer.status().as_u16(), body })
    }
}

/// The bytes of an answer, unpacked where it comes compressed; none where these are more than `most`.
///
/// # Errors
/// When the answer breaks off, or is not what its headers say.
pub fn read_within(body: &mut Body, most: u64) -> Result<Option<Vec<u8>>, std::io::Error> {
    let mut bytes = Vec::new();
    // ureq's own limit counts what comes over the wire: a few kilobytes there can be gigabytes here.
    let read = body.as_reader().take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    Ok((read as u64 <= most).then_some(bytes))
}

/// Looks up names, and keeps back addresses that a name must not lead to.
#[derive(Debug)]
struct Guarded {
    host: AllowedHost,
}

impl Resolver for Guarded {
    fn resolve(
        &self,
        uri: &http::Uri,
        config: &ureq::config::Config,
        timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, ureq::Error> {
        let found = look_up(uri, config, timeout)?;
        for address in &found {
            self.host.leads_to(address.ip()).map_err(|kept| ureq::Error::Other(Box::new(kept)))?;
        }
        Ok(found)
    }
}

/// Where a name leads, if that is known in time.
fn look_up(
    uri: &http::Uri,
    config: &ureq::config::Config,
    timeout: NextTimeout,
) -> Result<ResolvedSocketAddrs, ureq::Error> {
    let name = uri.host().unwrap_or_default();
    if name.trim_matches(['[', ']']).parse::<IpAddr>().is_ok() {
        return DefaultResolver::default().resolve(uri, config, timeout);
    }
    let lookup = Lookup::begin(&LOOKUPS).ok_or_else(|| {
        ureq::Error::Io(std::io::Error::other("too many names are being looked up"))
    })?;
    let (tell, told) = mpsc::sync_channel(1);
    let (uri, config) = (uri.clone(), config.clone());
    let looking = thread::Builder::new().name("lookup".to_owned()).spawn(move || {
        let found = DefaultResolver::default().resolve(&uri, &config, NextTimeout::default());
        drop(lookup);
        let _ = tell.send(found);
    });
    looking.map_err(ureq::Error::Io)?;
    told.recv_timeout(*timeout.after).map_err(|_| ureq::Error::Timeout(timeout.reason))?
}

/// A lookup that is under way.
#[derive(Debug)]
struct Lookup(&'static AtomicUsize);

impl Lookup {
    fn begin(lookups: &'static AtomicUsize) -> Option<Self> {
        let one_more = |count| (count < MOST_LOOKUPS).then_some(count + 1);
        let begun = lookups.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more);
        // Lazily: one that was never begun must not be counted down.
        begun.is_ok().then(|| Lookup(lookups))
    }
}

impl Drop for Lookup {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_a_most_of_lookups() {
        static LOOKUPS: AtomicUsize = AtomicUsize::new(0);
        let mut all: Vec<Lookup> =
            (0..MOST_LOOKUPS).map(|_| Lookup::begin(&LOOKUPS).unwrap()).collect();
        assert!(Lookup::begin(&LOOKUPS).is_none());
        all.pop();
        all.push(Lookup::begin(&LOOKUPS).unwrap());
        drop(all);
        assert_eq!(LOOKUPS.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn names_and_addresses_are_looked_up() {
        let config = Agent::config_builder().build();
        let read = |text: &str| text.parse::<http::Uri>().unwrap();
        let (known, address) = (read("http://localhost:80/"), read("http://10.0.0.7:80/"));
        assert!(look_up(&known, &config, NextTimeout::default()).is_ok());
        let found = look_up(&address, &config, NextTimeout::default()).unwrap();
        assert_eq!(found[0].to_string(), "10.0.0.7:80");
    }

    #[test]
    fn time_is_only_taken_away() {
        let services = Services::default();
        let second = Duration::from_secs(1);
        assert_eq!(services.no_longer_than(second).timeout, Some(second));
        assert_eq!(services.no_longer_than(TIMEOUT * 2).timeout, Some(TIMEOUT));
        let short = services.within(second, 10);
        assert_eq!(short.no_longer_than(TIMEOUT).timeout, Some(second));
        assert_eq!(short.no_longer_than(TIMEOUT).most_bytes, Some(10));
    }
}
