//! Where an engine is that webhooks reach by an address: on a developer's machine, or in a sandbox.

use std::fmt;
use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kiln_value::Value;
use ureq::Agent;
use ureq::http::Uri;
use ureq::tls::{PemItem, RootCerts, TlsConfig, parse_pem};

/// How long it may take to say how it is.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The most bytes of what it says.
const MOST_BYTES: u64 = 1 << 20;

/// An address, and whom to trust there.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Address {
    /// Such as `https://127.0.0.1:9443`.
    pub(super) origin: String,
    /// The name or address of the machine.
    pub(super) host: String,
    /// Certificates, as a webhook configuration has them.
    bundle: String,
}

/// Why an address says nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Unanswered {
    /// Nothing answers, or something that is not Kiln.
    NoAnswer(String),
    /// The server shows an untrusted certificate.
    Distrusted(String),
    /// There is no way from here; perhaps there is one from the API server.
    Unreachable(String),
}

impl fmt::Display for Unanswered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Unanswered::NoAnswer(why)
        | Unanswered::Distrusted(why)
        | Unanswered::Unreachable(why)) = self;
        f.write_str(why)
    }
}

impl Address {
    /// The address that a webhook has in its `clientConfig`; none if it calls a Service.
    pub(super) fn of(config: &Value) -> Option<Self> {
        let uri: Uri = config.str_at(["url"])?.parse().ok()?;
        Some(Address {
            origin: format!("{}://{}", uri.scheme_str()?, uri.authority()?),
            host: uri.host()?.trim_matches(['[', ']']).to_owned(),
            bundle: config.str_at(["caBundle"]).unwrap_or_default().to_owned(),
        })
    }

    /// What the engine says of itself at a path such as `health`.
    pub(super) fn probe(&self, at: &str) -> Result<String, Unanswered> {
        let pem = STANDARD.decode(&self.bundle).unwrap_or_default();
        let roots: Vec<_> = parse_pem(&pem)
            .filter_map(|item| match item {
                Ok(PemItem::Certificate(certificate)) => Some(certificate),
                _ => None,
            })
            .collect();
        let tls = TlsConfig::builder()
            .root_certs(RootCerts::new_with_certs(&roots))
            .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .build();
        let agent: Agent = Agent::config_builder()
            .tls_config(tls)
            .timeout_global(Some(TIMEOUT))
            .max_redirects(0)
            .proxy(None)
            .build()
            .into();
        let asked = agent.get(format!("{}/{at}", self.origin)).call();
        let mut response = asked.map_err(|error| why(&error))?;
        let said = response.body_mut().with_config().limit(MOST_BYTES).read_to_string();
        said.map_err(|error| why(&error))
    }
}

fn why(error: &ureq::Error) -> Unanswered {
    let words = error.to_string();
    match error {
        ureq::Error::Timeout(_) | ureq::Error::HostNotFound => Unanswered::Unreachable(words),
        ureq::Error::Io(error) => match error.kind() {
            ErrorKind::TimedOut | ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable => {
                Unanswered::Unreachable(words)
            }
            ErrorKind::InvalidData => Unanswered::Distrusted(words),
            _ => Unanswered::NoAnswer(words),
        },
        ureq::Error::Rustls(_) | ureq::Error::Tls(_) => Unanswered::Distrusted(words),
        _ => Unanswered::NoAnswer(words),
    }
}

#[cfg(test)]
mod tests {
    use kiln_value::value;

    use super::*;

    #[test]
    fn addresses_are_read_from_webhooks() {
        let read = |url: &str| {
            let address = Address::of(&value!({"url": url, "caBundle": "YQ=="}));
            address.map(|address| (address.origin, address.host))
        };
        let found = |origin: &str, host: &str| Some((origin.to_owned(), host.to_owned()));
        assert_eq!(read("https://a.b:9443/mutate"), found("https://a.b:9443", "a.b"));
        assert_eq!(read("https://[::1]:7/m?a=b"), found("https://[::1]:7", "::1"));
        assert_eq!(read("/mutate"), None);
        assert_eq!(Address::of(&value!({"service": {"name": "a"}})), None);
    }

    #[test]
    fn no_way_from_here_is_not_nobody() {
        let io = |kind: ErrorKind| why(&ureq::Error::Io(kind.into()));
        assert!(matches!(io(ErrorKind::ConnectionRefused), Unanswered::NoAnswer(_)));
        assert!(matches!(io(ErrorKind::HostUnreachable), Unanswered::Unreachable(_)));
        assert!(matches!(why(&ureq::Error::HostNotFound), Unanswered::Unreachable(_)));
        assert!(matches!(why(&ureq::Error::StatusCode(404)), Unanswered::NoAnswer(_)));
    }
}
