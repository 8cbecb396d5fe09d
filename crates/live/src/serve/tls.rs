//! The certificate that is served now. Connections that are there keep the one they began with.

use std::sync::{Arc, PoisonError, RwLock};

use kiln_admission::certificates::Pair;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{ClientHello, ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::{RootCertStore, ServerConfig, version};

/// The certificate that is served now. Cloning copies a pointer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Served(Arc<RwLock<Option<Arc<CertifiedKey>>>>);

impl Served {
    /// Serves another certificate from now on.
    pub(crate) fn set(&self, pair: &Pair) -> Result<(), String> {
        let chain: Result<Vec<CertificateDer<'static>>, _> =
            CertificateDer::pem_slice_iter(pair.certificates.as_bytes()).collect();
        let chain = chain.map_err(|error| format!("the certificate cannot be read: {error}"))?;
        let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes())
            .map_err(|error| format!("the key cannot be read: {error}"))?;
        let key = CertifiedKey::from_der(chain, key, &ring::default_provider())
            .map_err(|error| format!("certificate and key do not fit: {error}"))?;
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(key));
        Ok(())
    }

    /// How connections are encrypted: TLS 1.2 and 1.3, HTTP/2 before HTTP/1.1. Clients that show a certificate must
    /// have it from the authority; whether those that show none are heard is decided request by request.
    pub(crate) fn config(
        &self,
        clients: Option<&ClientAuthority>,
    ) -> Result<Arc<ServerConfig>, rustls::Error> {
        let provider = Arc::new(ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&version::TLS13, &version::TLS12])?;
        let config = match clients {
            Some(authority) => config.with_client_cert_verifier(Arc::clone(&authority.0)),
            None => config.with_no_client_auth(),
        };
        let mut config = config.with_cert_resolver(Arc::new(self.clone()));
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }
}

/// Whose certificates clients have to show before their reviews are answered.
#[derive(Clone, Debug)]
pub struct ClientAuthority(Arc<dyn ClientCertVerifier>);

impl ClientAuthority {
    /// Reads certificates of authorities in PEM.
    ///
    /// # Errors
    /// When they cannot be read, or there is none.
    pub fn read(pem: &[u8]) -> Result<Self, String> {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(pem) {
            let certificate = certificate.map_err(|error| format!("no certificates: {error}"))?;
            roots.add(certificate).map_err(|error| format!("a certificate is no good: {error}"))?;
        }
        let provider = Arc::new(ring::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
            .allow_unauthenticated()
            .build()
            .map_err(|error| format!("no authority: {error}"))?;
        Ok(ClientAuthority(verifier))
    }
}

impl ResolvesServerCert for Served {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
