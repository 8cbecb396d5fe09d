//! Whether the certificates that the API server trusts webhooks by count.

use kiln_admission::certificates::{Names, Stored, bundle_validity, validity};
use kiln_object::Gvk;

use super::Examination;

const DAY: i64 = 24 * 3600;
/// So long before its end a certificate that nobody renewed is worth a word.
const SOON: i64 = 7 * DAY;
const RENEWAL: &str = "`kiln run` renews certificates 30 days before their end: look at its logs, or delete the Secret and it makes a new one";

/// Looks at the Secrets.
pub(super) fn look(look: &mut Examination<'_>) {
    let about = "certificates";
    let names = Names {
        service: look.service.into(),
        namespace: look.settings.namespace.clone(),
        others: Vec::new(),
    };
    let secret = || Gvk::new("v1", "Secret");
    let authority = look.object(about, secret(), &names.authority_secret());
    let serving = look.object(about, secret(), &names.serving_secret());
    let stored = Stored::read(authority.as_ref(), serving.as_ref());
    for (name, pair) in
        [(names.authority_secret(), stored.authority), (names.serving_secret(), stored.serving)]
    {
        let Some(pair) = pair else {
            let message = format!("the Secret {name} holds no certificate");
            look.doubtful(about, message, "`kiln run` makes it when it serves admission");
            continue;
        };
        judge(look, &format!("the Secret {name}"), &validity(&pair.certificates));
    }
}

/// Looks at what a webhook trusts; whether there is nothing to complain about.
pub(super) fn bundle(look: &mut Examination<'_>, which: &str, bundle: &str) -> bool {
    let counts = bundle_validity(bundle);
    let now = look.now;
    if counts.iter().any(|(from, until)| *from <= now && now < *until) {
        return true;
    }
    let message = format!("{which} trusts no certificate that counts");
    look.bad("certificates", message, "`kiln run` writes the bundle: look at its logs");
    false
}

fn judge(look: &mut Examination<'_>, which: &str, counts: &[(i64, i64)]) {
    let (about, now) = ("certificates", look.now);
    match counts.first() {
        None => look.bad(about, format!("{which} holds no certificate"), RENEWAL),
        Some((from, _)) if *from > now => {
            let hint = "compare the clock of this machine and of the engine's";
            look.bad(about, format!("the certificate in {which} does not count yet"), hint);
        }
        Some((_, until)) if *until <= now => {
            look.bad(about, format!("the certificate in {which} has ended"), RENEWAL);
        }
        Some((_, until)) => {
            let days = (until - now) / DAY;
            let message = format!("the certificate in {which} counts for {days} days");
            if until - now < SOON {
                look.doubtful(about, message, RENEWAL);
            } else {
                look.good(about, message);
            }
        }
    }
}
