//! The certificates that the API server trusts webhooks by: made, kept in Secrets, renewed in time.
//!
//! ```text
//! nothing stored ─▶ new authority, new serving certificate
//! authority near its end ─▶ new authority; both are trusted while the old one counts
//!   … some time later, when every API server knows the new one ─▶ new serving certificate, signed by it
//! serving certificate near its end, or for other names ─▶ new serving certificate
//! an authority without its key ─▶ the user's own: what is stored is served as it is, or not at all
//! ```
//!
//! The time is given in seconds since 1970. Nothing is stored here: a host writes the Secrets and comes back
//! when it is time.

mod der;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kiln_value::{Map, Str, Value};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use thiserror::Error;
use time::OffsetDateTime;

use crate::der::{Certificate, certificates};

const HOUR: i64 = 3600;
const DAY: i64 = 24 * HOUR;
/// How long an authority counts.
const AUTHORITY_LIFE: i64 = 365 * DAY;
/// How long before its end an authority is renewed.
const AUTHORITY_RENEWAL: i64 = 60 * DAY;
/// How long a serving certificate counts.
const SERVING_LIFE: i64 = 150 * DAY;
/// How long before its end a serving certificate is renewed.
const SERVING_RENEWAL: i64 = 30 * DAY;
/// How far other clocks may be behind.
const SKEW: i64 = HOUR;
/// How long API servers may take to learn of a new authority, before it signs what they see.
const SPREADING: i64 = HOUR;

/// Whom the certificates stand for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateNames {
    /// The Service that API servers call.
    pub service: Str,
    /// Its namespace, which also holds the Secrets.
    pub namespace: Str,
    /// Other names and addresses to be called by.
    pub others: Vec<String>,
}

/// A certificate, or several one behind the other, and the key of the first; both in PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct Pair {
    pub certificates: String,
    pub key: String,
}

impl std::fmt::Debug for Pair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pair").field("certificates", &self.certificates).finish_non_exhaustive()
    }
}

/// What Secrets hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stored {
    /// The authority; older ones that still count stand behind the newest. Without a key it is the user's own.
    pub authority: Option<Pair>,
    /// The certificate and key that the webhook server presents.
    pub serving: Option<Pair>,
}

/// Certificates that are good at some time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificates {
    /// The authority, and older ones that still count.
    pub authority: Pair,
    /// What to serve, with its key.
    pub serving: Pair,
    /// Not all of it is stored.
    pub changed: bool,
    /// When to look again, in seconds since 1970.
    pub next: i64,
}

/// Why there are no certificates.
#[derive(Debug, Error)]
pub enum CertificateError {
    /// The machine cannot make one.
    #[error("cannot make a certificate for the webhooks: {0}")]
    Make(#[from] rcgen::Error),
    /// The user gives an authority without its key, and nothing that could be served.
    #[error(
        "the authority in Secret {authority} has no key, and Secret {serving} {why}: store a certificate for {name} that \
         the authority signed, or remove both Secrets"
    )]
    Given {
        /// The name of the Secret of the authority.
        authority: String,
        /// The name of the Secret of what is served.
        serving: String,
        /// What is wrong with the latter.
        why: &'static str,
        /// Whom the certificate has to stand for.
        name: String,
    },
    /// The user gives an authority that has expired.
    #[error(
        "the authority in Secret {authority} has expired: store another one, and what it signed in Secret {serving}, or \
         remove both Secrets"
    )]
    Ended {
        /// The name of the Secret of the authority.
        authority: String,
        /// The name of the Secret of what is served.
        serving: String,
    },
}

impl CertificateNames {
    /// The names of Kyverno's Service in a namespace.
    pub fn usual(namespace: &str) -> Self {
        CertificateNames {
            service: "kyverno-svc".into(),
            namespace: namespace.into(),
            others: Vec::new(),
        }
    }

    /// The name that API servers call when they reach webhooks through the Service.
    pub fn of_service(&self) -> String {
        format!("{}.{}.svc", self.service, self.namespace)
    }

    /// All names and addresses.
    pub fn all(&self) -> Vec<String> {
        let CertificateNames { service, namespace, others } = self;
        let mut names =
            vec![self.of_service(), format!("{service}.{namespace}"), service.to_string()];
        names.extend(others.iter().cloned());
        names.dedup();
        names
    }

    /// The name of the Secret of the authority.
    pub fn authority_secret(&self) -> String {
        format!("{}.kyverno-tls-ca", self.of_service())
    }

    /// The name of the Secret of what is served.
    pub fn serving_secret(&self) -> String {
        format!("{}.kyverno-tls-pair", self.of_service())
    }
}

impl Stored {
    /// What two Secrets hold. A serving certificate that has its authority beside it, as `ca.crt`, is the user's own: that
    /// is how cert-manager stores it.
    pub fn read(authority: Option<&Value>, serving: Option<&Value>) -> Self {
        let beside = serving.and_then(|secret| Some((field(secret, "ca.crt")?, String::new())));
        let serving =
            serving.and_then(|secret| Some((field(secret, "tls.crt")?, field(secret, "tls.key")?)));
        // Kyverno: an authority of one's own is called rootCA.crt.
        let authority = authority.and_then(|secret| {
            let certificates = field(secret, "tls.crt").or_else(|| field(secret, "rootCA.crt"))?;
            Some((certificates, field(secret, "tls.key").unwrap_or_default()))
        });
        let pair = |(certificates, key)| Pair { certificates, key };
        Stored { authority: beside.or(authority).map(pair), serving: serving.map(pair) }
    }
}

fn field(secret: &Value, key: &str) -> Option<String> {
    let bytes = STANDARD.decode(secret.str_at(["data", key])?).ok()?;
    String::from_utf8(bytes).ok().filter(|text| !text.is_empty())
}

/// From when until when certificates in PEM count, in seconds since 1970.
pub fn validity(pem: &str) -> Vec<(i64, i64)> {
    certificates(pem).iter().map(|found| (found.not_before, found.not_after)).collect()
}

/// The same of what a webhook configuration trusts.
pub fn bundle_validity(bundle: &str) -> Vec<(i64, i64)> {
    let pem = STANDARD.decode(bundle).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    pem.map(|pem| validity(&pem)).unwrap_or_default()
}

impl Certificates {
    /// Certificates that are good now: those that are stored as far as they are, new ones otherwise. An authority without
    /// a key is the user's own: what is stored is served as it is.
    ///
    /// # Errors
    /// When the machine cannot make keys, or the user's own certificate is not good.
    pub fn ensure(
        stored: &Stored,
        names: &CertificateNames,
        now: i64,
    ) -> Result<Self, CertificateError> {
        Self::ensure_called(stored, names, &names.of_service(), now)
    }

    /// The same where API servers call another name than that of the Service, which the user's own certificate has to
    /// stand for.
    ///
    /// # Errors
    /// When the machine cannot make keys, or the user's own certificate is not good.
    pub fn ensure_called(
        stored: &Stored,
        names: &CertificateNames,
        called: &str,
        now: i64,
    ) -> Result<Self, CertificateError> {
        if let Some(authority) = stored
            .authority
            .as_ref()
            .filter(|pair| pair.key.is_empty() && !certificates(&pair.certificates).is_empty())
        {
            return Self::given(authority, stored.serving.as_ref(), names, called, now);
        }
        let counts = |certificate: &Certificate| {
            certificate.not_before <= now + SKEW && now < certificate.not_after
        };
        let mut changed = false;
        let known = stored.authority.as_ref();
        let mut trusted: Vec<Certificate> =
            known.map(|pair| certificates(&pair.certificates)).unwrap_or_default();
        let before = trusted.len();
        let first = trusted.first().cloned();
        trusted.retain(counts);
        changed |= trusted.len() != before;
        let key = known.and_then(|pair| KeyPair::from_pem(&pair.key).ok());
        let usable = first
            .filter(|first| counts(first) && now < first.not_after - AUTHORITY_RENEWAL)
            .zip(key);
        let (newest, key) = match usable {
            Some(usable) => usable,
            None => {
                changed = true;
                let key = KeyPair::generate()?;
                let made = authority(now)?.self_signed(&key)?.pem();
                let made = certificates(&made);
                trusted.splice(0..0, made.iter().cloned());
                match made.into_iter().next() {
                    Some(made) => (made, key),
                    None => return Err(rcgen::Error::CouldNotParseCertificate.into()),
                }
            }
        };
        let identifier = authority(now)?.key_identifier(&key);
        let young = now - (newest.not_before + SKEW) < SPREADING;
        let fresh = |serving: &&Certificate| {
            let signed = serving.is_signed_by(&identifier);
            counts(serving)
                && now < serving.not_after - SERVING_RENEWAL
                && names.all().iter().all(|name| serving.is_for(name))
                // An old authority is as good as the new one until API servers know that.
                && (signed || (young && trusted.len() > 1))
        };
        let held = stored.serving.as_ref().and_then(|pair| {
            let serving = certificates(&pair.certificates).into_iter().next()?;
            KeyPair::from_pem(&pair.key).ok()?;
            fresh(&&serving).then(|| (serving, pair.clone()))
        });
        let (certificate, serving) = match held {
            Some(held) => held,
            None => {
                changed = true;
                let own = KeyPair::generate()?;
                let issuer_params = authority(now)?;
                let issuer = Issuer::from_params(&issuer_params, &key);
                let pem =
                    serving_params(names, now, newest.not_after)?.signed_by(&own, &issuer)?.pem();
                let pair = Pair { certificates: pem, key: own.serialize_pem() };
                match certificates(&pair.certificates).into_iter().next() {
                    Some(certificate) => (certificate, pair),
                    None => return Err(rcgen::Error::CouldNotParseCertificate.into()),
                }
            }
        };
        let signed_by_newest = certificate.is_signed_by(&identifier);
        let mut next =
            (newest.not_after - AUTHORITY_RENEWAL).min(certificate.not_after - SERVING_RENEWAL);
        if !signed_by_newest {
            next = next.min(newest.not_before + SKEW + SPREADING);
        }
        let ends = trusted.iter().map(|certificate| certificate.not_after).min();
        Ok(Certificates {
            authority: Pair {
                certificates: trusted.iter().map(|certificate| certificate.pem.as_str()).collect(),
                key: key.serialize_pem(),
            },
            serving,
            changed,
            next: ends.map_or(next, |end| next.min(end)).max(now + 1),
        })
    }

    fn given(
        authority: &Pair,
        serving: Option<&Pair>,
        names: &CertificateNames,
        called: &str,
        now: i64,
    ) -> Result<Self, CertificateError> {
        let wrong = |why| CertificateError::Given {
            authority: names.authority_secret(),
            serving: names.serving_secret(),
            why,
            name: called.to_owned(),
        };
        let serving = serving.ok_or_else(|| wrong("holds no certificate with its key"))?;
        let first = certificates(&serving.certificates).into_iter().next();
        let first = first.ok_or_else(|| wrong("holds no certificate"))?;
        if now >= first.not_after {
            return Err(wrong("holds a certificate that has expired"));
        }
        if now < first.not_before {
            return Err(wrong("holds a certificate that is not valid yet"));
        }
        if !first.is_for(called) && !wildcard(called).is_some_and(|name| first.is_for(&name)) {
            return Err(wrong("holds a certificate for other names"));
        }
        let trusted = last_end(&authority.certificates);
        if now >= trusted {
            return Err(CertificateError::Ended {
                authority: names.authority_secret(),
                serving: names.serving_secret(),
            });
        }
        Ok(Certificates {
            authority: authority.clone(),
            serving: serving.clone(),
            changed: false,
            next: first.not_after.min(trusted).min(now + HOUR),
        })
    }

    /// Whether the user made them: an authority without its key, and what is served.
    pub fn are_given(&self) -> bool {
        self.authority.key.is_empty()
    }

    /// When what is served expires, in seconds since 1970.
    pub fn end(&self) -> i64 {
        let serving = certificates(&self.serving.certificates);
        let end = serving.first().map_or(i64::MIN, |serving| serving.not_after);
        end.min(last_end(&self.authority.certificates))
    }

    /// What API servers are to trust, as webhook configurations hold it.
    pub fn ca_bundle(&self) -> String {
        STANDARD.encode(&self.authority.certificates)
    }

    /// The Secrets to store.
    pub fn secrets(&self, names: &CertificateNames) -> [Value; 2] {
        let secret = |name: String, pair: &Pair| {
            let mut data = Map::new();
            data.insert("tls.crt", STANDARD.encode(&pair.certificates));
            data.insert("tls.key", STANDARD.encode(&pair.key));
            let mut labels = Map::new();
            labels.insert("cert.kyverno.io/managed-by", "kyverno");
            let mut metadata = Map::new();
            metadata.insert("name", name);
            metadata.insert("namespace", names.namespace.clone());
            metadata.insert("labels", labels);
            let mut object = Map::new();
            object.insert("apiVersion", "v1");
            object.insert("kind", "Secret");
            object.insert("metadata", metadata);
            object.insert("type", "kubernetes.io/tls");
            object.insert("data", data);
            Value::Map(object)
        };
        [
            secret(names.authority_secret(), &self.authority),
            secret(names.serving_secret(), &self.serving),
        ]
    }
}

/// When the last of some certificates ends.
fn last_end(pem: &str) -> i64 {
    let ends = certificates(pem).into_iter().map(|certificate| certificate.not_after);
    ends.max().unwrap_or(i64::MIN)
}

/// The name with a wildcard that stands for a name; none for addresses and for names of one part.
fn wildcard(name: &str) -> Option<String> {
    let is_address = name.parse::<std::net::IpAddr>().is_ok();
    let (_, rest) = name.split_once('.').filter(|_| !is_address)?;
    Some(format!("*.{rest}"))
}

/// An authority from now on. Every authority has the same name; they differ by their keys.
fn authority(now: i64) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, "kiln webhooks");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    params.not_before = moment(now - SKEW);
    params.not_after = moment(now + AUTHORITY_LIFE);
    Ok(params)
}

fn serving_params(
    names: &CertificateNames,
    now: i64,
    end: i64,
) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(names.all())?;
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, names.of_service());
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    params.not_before = moment(now - SKEW);
    params.not_after = moment((now + SERVING_LIFE).min(end));
    Ok(params)
}

fn moment(seconds: i64) -> OffsetDateTime {
    OffsetDateTime::from_unix_timestamp(seconds).unwrap_or(OffsetDateTime::UNIX_EPOCH)
}

#[cfg(test)]
mod tests;
