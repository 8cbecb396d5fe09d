//! Whether the certificates that the API server trusts webhooks by count.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kiln_certificates::{CertificateNames, Pair, Stored, bundle_validity, validity};
use kiln_object::Gvk;
use kiln_value::Value;
use rustls::RootCertStore;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier as _;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};

use super::Checks;

const DAY: i64 = 24 * 3600;
/// So long before its end a certificate that was not renewed is reported.
const SOON: i64 = 7 * DAY;

/// Who renews certificates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Renewal {
    Kiln,
    /// For an authority that was stored without its key: what is stored is served as it is, and nothing is made in its place.
    Owner,
    /// The Secret of the authority cannot be read.
    Unknown,
}

impl Renewal {
    fn of(authority: Option<&Pair>, is_read: bool) -> Self {
        let is_own = |pair: &Pair| pair.key.is_empty() && !validity(&pair.certificates).is_empty();
        match authority {
            _ if !is_read => Renewal::Unknown,
            Some(pair) if is_own(pair) => Renewal::Owner,
            _ => Renewal::Kiln,
        }
    }
}

/// Whom certificates stand for, and the Secrets that hold them.
fn names(checks: &Checks<'_>) -> CertificateNames {
    CertificateNames {
        service: checks.service.into(),
        namespace: checks.settings.namespace.clone(),
        others: Vec::new(),
    }
}

/// What to do about certificates that are not good.
fn renewal(checks: &Checks<'_>) -> String {
    let (authority, serving) = (names(checks).authority_secret(), names(checks).serving_secret());
    match checks.renewal {
        Renewal::Kiln => {
            "`kiln run` renews certificates 30 days before their end: look at its logs, or delete the Secret and it makes a new one"
                .to_owned()
        }
        Renewal::Owner => format!(
            "the authority is your own (the Secret {authority} has no key), and you renew it and what it signs: store what \
             it signed anew, with its key, in the Secret {serving}, or another authority and what that signed in both"
        ),
        Renewal::Unknown => format!(
            "`kiln run` renews certificates 30 days before their end unless the authority is your own (the Secret \
             {authority} has no key, and cannot be read here): look at its logs"
        ),
    }
}

/// What engines serve, as a Secret holds it.
#[derive(Clone, Debug)]
pub(super) struct Served {
    secret: String,
    /// Certificates in PEM.
    chain: String,
}

/// Looks at the Secrets.
pub(super) fn check(checks: &mut Checks<'_>) {
    let about = "certificates";
    let names = names(checks);
    let secret = || Gvk::new("v1", "Secret");
    let authority = checks.object(about, secret(), &names.authority_secret());
    let serving = checks.object(about, secret(), &names.serving_secret());
    let found = |read: &Result<Option<Value>, _>| read.as_ref().ok().cloned().flatten();
    let stored = Stored::read(found(&authority).as_ref(), found(&serving).as_ref());
    checks.served = stored
        .serving
        .as_ref()
        .map(|pair| Served { secret: names.serving_secret(), chain: pair.certificates.clone() });
    checks.renewal = Renewal::of(stored.authority.as_ref(), authority.is_ok());
    for (name, is_read, pair) in [
        (names.authority_secret(), authority.is_ok(), stored.authority),
        (names.serving_secret(), serving.is_ok(), stored.serving),
    ] {
        let Some(pair) = pair else {
            if !is_read {
                continue;
            }
            let message = format!("the Secret {name} holds no certificate");
            match checks.renewal {
                Renewal::Owner => checks.bad(about, message, &renewal(checks)),
                _ => checks.doubtful(
                    about,
                    message,
                    "start `kiln run` with admission: it makes the Secret",
                ),
            }
            continue;
        };
        judge(checks, &format!("the Secret {name}"), &validity(&pair.certificates));
    }
}

/// Looks at what a webhook trusts, and whether that is what is served by the name that it calls; whether there is
/// nothing to complain about.
pub(super) fn bundle(
    checks: &mut Checks<'_>,
    configuration: &str,
    bundle: &str,
    called: &str,
) -> bool {
    let (about, now) = ("certificates", checks.now);
    let counts = bundle_validity(bundle);
    if !counts.iter().any(|(from, until)| *from <= now && now < *until) {
        let message = format!("{configuration} trusts no valid certificate");
        let hint = match checks.renewal {
            Renewal::Owner => renewal(checks),
            _ => "look at the logs of `kiln run`, which writes the bundle".to_owned(),
        };
        checks.bad(about, message, &hint);
        return false;
    }
    let Some(Served { secret, chain }) = checks.served.clone() else { return true };
    let Err(why) = trust(bundle, &chain, called, now) else { return true };
    let message =
        format!("the certificate in the Secret {secret} is not what {configuration} trusts: {why}");
    checks.bad(about, message, &renewal(checks));
    false
}

/// Whether a client that trusts some certificates accepts what is served. Whether it counts at this
/// moment is another question.
fn trust(bundle: &str, chain: &str, called: &str, now: i64) -> Result<(), String> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let read = |pem: &[u8]| -> Vec<CertificateDer<'static>> {
        CertificateDer::pem_slice_iter(pem).filter_map(Result::ok).collect()
    };
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(read(&STANDARD.decode(bundle).map_err(|error| text(&error))?));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
        .build()
        .map_err(|error| text(&error))?;
    let served = read(chain.as_bytes());
    let (first, rest) = served.split_first().ok_or("it holds none")?;
    let name = ServerName::try_from(called.to_owned()).map_err(|error| text(&error))?;
    let (from, until) = validity(chain).first().copied().unwrap_or((now, now + 1));
    let moment = u64::try_from(now.min(until - 1).max(from)).unwrap_or_default();
    let moment = UnixTime::since_unix_epoch(Duration::from_secs(moment));
    let verified = verifier.verify_server_cert(first, rest, &name, &[], moment);
    verified.map(|_| ()).map_err(|error| text(&error))
}

fn judge(checks: &mut Checks<'_>, which: &str, counts: &[(i64, i64)]) {
    let (about, now, renewal) = ("certificates", checks.now, renewal(checks));
    match counts.first() {
        None => checks.bad(about, format!("{which} holds no certificate"), &renewal),
        Some((from, _)) if *from > now => {
            let hint = "compare the clock of this machine and of the engine's";
            checks.bad(about, format!("the certificate in {which} is not valid yet"), hint);
        }
        Some((_, until)) if *until <= now => {
            checks.bad(about, format!("the certificate in {which} has expired"), &renewal);
        }
        Some((_, until)) => {
            let days = (until - now) / DAY;
            let message = format!("the certificate in {which} is valid for {days} more days");
            if until - now < SOON {
                checks.doubtful(about, message, &renewal);
            } else {
                checks.good(about, message);
            }
        }
    }
}
