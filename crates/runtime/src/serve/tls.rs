//! The certificate that is served now. Connections that are there keep the one they began with.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use kiln_certificates::{Certificates, Pair};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier as _;
use rustls::crypto::ring;
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{ClientHello, ResolvesServerCert, VerifierBuilderError, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::{CertificateError, Error, RootCertStore, ServerConfig, version};

/// Why certificates are not served, or not asked for.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("the certificate cannot be read: {0}")]
    ReadCertificate(pem::Error),
    #[error("the key cannot be read: {0}")]
    ReadKey(pem::Error),
    #[error("certificate and key do not match: {0}")]
    Match(Error),
    #[error("no certificates: {0}")]
    ReadAuthorities(pem::Error),
    #[error("the certificate is invalid: {0}")]
    AddAuthority(Error),
    #[error("no authority: {0}")]
    Verify(VerifierBuilderError),
}

/// The certificate that is served now. Cloning copies a pointer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Served(Arc<RwLock<Option<Arc<CertifiedKey>>>>);

impl Served {
    /// Serves another certificate from now on.
    pub(crate) fn set(&self, pair: &Pair) -> Result<(), TlsError> {
        let chain: Result<Vec<CertificateDer<'static>>, _> =
            CertificateDer::pem_slice_iter(pair.certificates.as_bytes()).collect();
        let chain = chain.map_err(TlsError::ReadCertificate)?;
        let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).map_err(TlsError::ReadKey)?;
        let key = CertifiedKey::from_der(chain, key, &ring::default_provider())
            .map_err(TlsError::Match)?;
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

/// Whether what is served was signed by its authority, perhaps by way of certificates that stand behind it. Only what is
/// known to be wrong counts as wrong: API servers know algorithms that this process does not.
pub(crate) fn is_signed(made: &Certificates, called: &str, now: i64) -> bool {
    let read = |pem: &str| -> Vec<CertificateDer<'static>> {
        CertificateDer::pem_slice_iter(pem.as_bytes()).filter_map(Result::ok).collect()
    };
    let trusted = read(&made.authority.certificates);
    let chain = read(&made.serving.certificates);
    let (Some((first, rest)), Ok(name)) = (chain.split_first(), ServerName::try_from(called))
    else {
        return true;
    };
    // A certificate that is its own authority is trusted as it is.
    if trusted.contains(first) {
        return true;
    }
    let mut roots = RootCertStore::empty();
    if roots.add_parsable_certificates(trusted).1 > 0 {
        return true;
    }
    let provider = Arc::new(ring::default_provider());
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build();
    let Ok(verifier) = verifier else { return true };
    let now = UnixTime::since_unix_epoch(Duration::from_secs(u64::try_from(now).unwrap_or(0)));
    let verified = verifier.verify_server_cert(first, rest, &name, &[], now);
    !matches!(
        verified,
        Err(Error::InvalidCertificate(
            CertificateError::UnknownIssuer | CertificateError::BadSignature
        ))
    )
}

/// Whose certificates clients have to show before their reviews are answered.
#[derive(Clone, Debug)]
pub struct ClientAuthority(Arc<dyn ClientCertVerifier>);

impl ClientAuthority {
    /// Reads certificates of authorities in PEM.
    ///
    /// # Errors
    /// When they cannot be read, or there is none.
    pub fn read(pem: &[u8]) -> Result<Self, TlsError> {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(pem) {
            let certificate = certificate.map_err(TlsError::ReadAuthorities)?;
            roots.add(certificate).map_err(TlsError::AddAuthority)?;
        }
        let provider = Arc::new(ring::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
            .allow_unauthenticated()
            .build()
            .map_err(TlsError::Verify)?;
        Ok(ClientAuthority(verifier))
    }
}

impl ResolvesServerCert for Served {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[cfg(test)]
mod tests {
    use kiln_certificates::{CertificateNames, Stored};
    use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};

    use super::*;

    const CALLED: &str = "kyverno-svc.kyverno.svc";

    fn now() -> i64 {
        i64::try_from(UnixTime::now().as_secs()).unwrap()
    }

    fn authority(name: &str) -> CertificateParams {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params
    }

    fn signed(authority: String, serving: String) -> bool {
        let pair = |certificates| Pair { certificates, key: String::new() };
        let (authority, serving) = (pair(authority), pair(serving));
        is_signed(&Certificates { authority, serving, changed: false, next: 0 }, CALLED, now())
    }

    #[test]
    fn what_another_authority_signed_is_known_for_it() {
        // Authorities of Kiln have all the same name.
        let make = || {
            let made = Certificates::ensure(
                &Stored::default(),
                &CertificateNames::usual("kyverno"),
                now(),
            );
            made.map(|made| (made.authority.certificates, made.serving.certificates)).unwrap()
        };
        let ((old, by_old), (new, by_new)) = (make(), make());
        assert!(signed(old.clone(), by_old.clone()));
        assert!(!signed(new.clone(), by_old.clone()) && !signed(old.clone(), by_new.clone()));
        // An authority beside the one before it.
        let both = new + &old;
        assert!(signed(both.clone(), by_old) && signed(both, by_new));
    }

    #[test]
    fn certificates_in_between_and_those_that_sign_themselves_are_good() {
        let new_key = || KeyPair::generate().unwrap();
        let root = CertifiedIssuer::self_signed(authority("root"), new_key()).unwrap();
        let between = CertifiedIssuer::signed_by(authority("between"), new_key(), &root).unwrap();
        let params = CertificateParams::new([CALLED.to_owned()]).unwrap();
        let serving = params.signed_by(&new_key(), &between).unwrap().pem();
        assert!(signed(root.pem(), serving.clone() + &between.pem()));
        assert!(!signed(root.pem(), serving), "the signer is unknown");
        for is_ca in [IsCa::NoCa, IsCa::Ca(BasicConstraints::Unconstrained)] {
            let mut params = CertificateParams::new([CALLED.to_owned()]).unwrap();
            params.is_ca = is_ca;
            let own = params.self_signed(&new_key()).unwrap().pem();
            assert!(signed(own.clone(), own));
        }
        assert!(signed(String::new(), String::new()), "that is for others to judge");
    }
}
