//! Certificates as they are made, read back and renewed.

use super::*;

const NOW: i64 = 1_800_000_000;

fn names() -> CertificateNames {
    CertificateNames {
        others: vec!["127.0.0.1".into(), "localhost".into()],
        ..CertificateNames::usual("kyverno")
    }
}

fn ensure(stored: &Stored, now: i64) -> Certificates {
    Certificates::ensure(stored, &names(), now).unwrap()
}

fn stored(certificates: &Certificates) -> Stored {
    let [authority, serving] = certificates.secrets(&names());
    Stored::read(Some(&authority), Some(&serving))
}

#[test]
fn what_is_good_stays() {
    let first = ensure(&Stored::default(), NOW);
    assert!(first.changed);
    let again = ensure(&stored(&first), NOW + 1);
    assert!(!again.changed);
    assert_eq!(again.serving, first.serving);
    assert_eq!(again.authority, first.authority);
    assert_eq!(first.next, NOW + SERVING_LIFE - SERVING_RENEWAL);
}

#[test]
fn an_authority_beside_the_serving_certificate_is_the_users_own() {
    let ours = ensure(&Stored::default(), NOW);
    let [authority, mut serving] = ours.secrets(&names());
    let given = ours.ca_bundle();
    serving.set(["data", "ca.crt"], given.as_str()).unwrap();
    // Whatever the other Secret holds: Kiln may have stored its own authority there before.
    for other in [None, Some(&authority)] {
        let read = Certificates::ensure(&Stored::read(other, Some(&serving)), &names(), NOW);
        let read = read.unwrap();
        assert!(read.are_given() && !read.changed);
        assert_eq!(read.ca_bundle(), given);
    }
    // It is not renewed, either.
    let stored = Stored::read(Some(&authority), Some(&serving));
    let ended = Certificates::ensure(&stored, &names(), NOW + SERVING_LIFE + DAY);
    assert!(matches!(ended, Err(CertificateError::Given { .. })));
}

#[test]
fn a_serving_certificate_is_renewed_by_the_same_authority() {
    let first = ensure(&Stored::default(), NOW);
    let later = ensure(&stored(&first), NOW + SERVING_LIFE - SERVING_RENEWAL);
    assert!(later.changed);
    assert_ne!(later.serving, first.serving);
    assert_eq!(later.authority, first.authority);
}

#[test]
fn a_new_authority_is_known_before_it_signs() {
    let first = ensure(&Stored::default(), NOW);
    let due = NOW + AUTHORITY_LIFE - AUTHORITY_RENEWAL;
    let shortly_before = ensure(&stored(&first), due - 10 * DAY);
    assert_eq!(shortly_before.authority, first.authority);
    let renewed = ensure(&stored(&shortly_before), due);
    assert_eq!(certificates(&renewed.authority.certificates).len(), 2);
    assert_eq!(renewed.serving, shortly_before.serving, "the old one is still served");
    assert!(renewed.next <= due + SPREADING);
    let spread = ensure(&stored(&renewed), due + SPREADING);
    assert_ne!(spread.serving, renewed.serving);
    assert_eq!(spread.authority, renewed.authority);
    let over = ensure(&stored(&spread), NOW + AUTHORITY_LIFE + 1);
    assert_eq!(certificates(&over.authority.certificates).len(), 1);
    assert!(over.changed);
}

#[test]
fn clocks_that_jump_do_no_harm() {
    let first = ensure(&Stored::default(), NOW);
    let back = ensure(&stored(&first), NOW - 365 * DAY);
    assert!(back.changed);
    let far = ensure(&stored(&first), NOW + 10 * 365 * DAY);
    assert!(far.changed);
    assert_eq!(certificates(&far.authority.certificates).len(), 1);
    assert!(ensure(&stored(&first), NOW - SKEW).serving == first.serving);
}

#[test]
fn other_names_and_broken_secrets_make_new_ones() {
    let first = ensure(&Stored::default(), NOW);
    let mut others = names();
    others.others.push("kiln.example.org".into());
    let renewed = Certificates::ensure(&stored(&first), &others, NOW).unwrap();
    assert!(renewed.changed);
    assert_eq!(renewed.authority, first.authority);
    let mut broken = stored(&first);
    broken.serving.as_mut().unwrap().key = "nothing".into();
    assert_ne!(ensure(&broken, NOW).serving, first.serving);
    let mut broken = stored(&first);
    broken.authority.as_mut().unwrap().key = "nothing".into();
    let renewed = ensure(&broken, NOW);
    assert_eq!(certificates(&renewed.authority.certificates).len(), 2);
    let mut foreign = stored(&first);
    foreign.authority = stored(&ensure(&Stored::default(), NOW - DAY)).authority;
    assert_ne!(ensure(&foreign, NOW).serving, first.serving, "another authority signed it");
}

#[test]
fn certificates_of_ones_own_are_served_as_they_are() {
    let made = ensure(&Stored::default(), NOW);
    let [authority, serving] = made.secrets(&names());
    let certificate = authority.get_path(["data", "tls.crt"]).unwrap().clone();
    for key in ["tls.crt", "rootCA.crt"] {
        let mut own = Map::new();
        own.insert(key, certificate.clone());
        let mut secret = Map::new();
        secret.insert("data", own);
        let secret = Value::Map(secret);
        let stored = Stored::read(Some(&secret), Some(&serving));
        // Names that only Kiln would ask for are not wanted of it, and it is not renewed before it ends.
        let mut more = names();
        more.others.push("kiln.example.org".into());
        let kept = Certificates::ensure(&stored, &more, NOW + SERVING_LIFE - 1).unwrap();
        assert!(!kept.changed, "{key}");
        assert_eq!(kept.serving, made.serving);
        assert_eq!(kept.ca_bundle(), made.ca_bundle());
        let refusal = |stored: &Stored, names: &CertificateNames, now| {
            Certificates::ensure(stored, names, now).unwrap_err().to_string()
        };
        assert!(refusal(&stored, &names(), NOW + SERVING_LIFE).contains("has expired"));
        let elsewhere = CertificateNames::usual("elsewhere");
        assert!(refusal(&stored, &elsewhere, NOW).contains("other names"));
        let alone = Stored::read(Some(&secret), None);
        let told = refusal(&alone, &names(), NOW);
        assert!(told.contains("kyverno-svc.kyverno.svc.kyverno-tls-pair holds no"), "{told}");
    }
}

/// What a user with an authority of their own stores, with a certificate for these names.
fn given(authority_life: i64, serving_life: i64, names: &[&str]) -> Stored {
    let key = KeyPair::generate().unwrap();
    let mut params = authority(NOW).unwrap();
    params.not_after = moment(NOW + authority_life);
    let signed = params.self_signed(&key).unwrap().pem();
    let own = KeyPair::generate().unwrap();
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let mut serving = CertificateParams::new(names).unwrap();
    serving.not_before = moment(NOW - SKEW);
    serving.not_after = moment(NOW + serving_life);
    let serving = serving.signed_by(&own, &Issuer::from_params(&params, &key)).unwrap().pem();
    Stored {
        authority: Some(Pair { certificates: signed, key: String::new() }),
        serving: Some(Pair { certificates: serving, key: own.serialize_pem() }),
    }
}

#[test]
fn certificates_of_ones_own_stand_for_the_name_that_is_called() {
    for (name, called, yes) in [
        ("kyverno-svc.kyverno.svc", "kyverno-svc.kyverno.svc", true),
        ("*.kyverno.svc", "kyverno-svc.kyverno.svc", true),
        ("kiln.example.org", "kyverno-svc.kyverno.svc", false),
        ("kiln.example.org", "kiln.example.org", true),
        ("*.example.org", "kiln.example.org", true),
        ("*.example.org", "a.kiln.example.org", false),
        ("kyverno-svc.kyverno.svc", "kiln.example.org", false),
        ("10.0.0.7", "10.0.0.7", true),
        ("10.0.0.8", "10.0.0.7", false),
        ("*.0.0.7", "10.0.0.7", false),
        ("::1", "::1", true),
        ("localhost", "localhost", true),
    ] {
        let stored = given(DAY, DAY, &[name]);
        let made = Certificates::ensure_called(&stored, &names(), called, NOW);
        match made {
            Ok(made) => assert!(yes && made.are_given() && !made.changed, "{name} {called}"),
            Err(error) => {
                let told = error.to_string();
                assert!(!yes && told.contains("other names"), "{name} {called}: {told}");
                assert!(told.contains(&format!("a certificate for {called} ")), "{told}");
            }
        }
    }
}

#[test]
fn certificates_end_with_their_authority() {
    let name = "kyverno-svc.kyverno.svc";
    for (authority, serving) in [(DAY, 2 * DAY), (2 * DAY, DAY)] {
        let stored = given(authority, serving, &[name]);
        let made = ensure(&stored, NOW + DAY - 1);
        assert_eq!((made.end(), made.next), (NOW + DAY, NOW + DAY));
        let ended = Certificates::ensure(&stored, &names(), NOW + DAY).unwrap_err();
        assert!(ended.to_string().contains("has expired"), "{ended}");
    }
    let own = ensure(&Stored::default(), NOW);
    assert_eq!(own.end(), NOW + SERVING_LIFE);
    assert!(!own.are_given());
}

#[test]
fn keys_are_not_shown() {
    let first = ensure(&Stored::default(), NOW);
    assert!(!format!("{first:?}").contains("PRIVATE"));
}
