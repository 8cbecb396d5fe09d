//! Where an engine is that webhooks reach by an address: on a developer's machine, or in a sandbox.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kiln_admission::webhooks::CONFIGURATIONS;
use kiln_live::Reader;
use kiln_object::{Gvk, ObjectId};
use kiln_value::Value;
use ureq::Agent;
use ureq::http::Uri;
use ureq::tls::{PemItem, RootCerts, TlsConfig, parse_pem};

/// How long it may take to say how it is.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The most bytes of what it says.
const MOST_BYTES: u64 = 1 << 20;

/// An address, and whom to trust there.
pub(super) struct Address {
    /// Such as `https://127.0.0.1:9443`.
    pub(super) origin: String,
    /// Certificates, as a webhook configuration has them.
    bundle: String,
}

/// The address in the engine's webhooks; none if they call a Service.
pub(super) fn of_webhooks(reader: &Reader) -> Option<Address> {
    CONFIGURATIONS.iter().find_map(|(kind, name)| {
        let gvk = Gvk::new("admissionregistration.k8s.io/v1", kind);
        let found = reader.object(&ObjectId::new(gvk, "", name)).ok()??;
        let webhooks = found.get("webhooks")?.as_list()?;
        let config =
            webhooks.iter().filter_map(|webhook| webhook.get("clientConfig")).find_map(|config| {
                let uri: Uri = config.str_at(["url"])?.parse().ok()?;
                Some((uri, config))
            });
        let (uri, config) = config?;
        Some(Address {
            origin: format!("{}://{}", uri.scheme_str()?, uri.authority()?),
            bundle: config.get("caBundle").and_then(Value::as_str).unwrap_or_default().to_owned(),
        })
    })
}

impl Address {
    /// What the engine says of itself.
    pub(super) fn health(&self) -> Result<String, String> {
        let pem = STANDARD.decode(&self.bundle).map_err(|error| error.to_string())?;
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
            .build()
            .into();
        let mut response = agent
            .get(format!("{}/health", self.origin))
            .call()
            .map_err(|error| error.to_string())?;
        response
            .body_mut()
            .with_config()
            .limit(MOST_BYTES)
            .read_to_string()
            .map_err(|error| error.to_string())
    }
}
