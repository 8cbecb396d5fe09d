//! `x509_decode`: certificates and requests in the JSON form of Go's `crypto/x509`.
//!
//! Only what is read is checked; signatures are not verified. Keys must be RSA, as in Kyverno.

mod der;
mod extensions;

use ::base64::Engine;
use ::base64::engine::general_purpose::STANDARD;
use kiln_value::{Key, Map, Value};

use self::der::{
    BIT_STRING, BMP_STRING, BOOLEAN, DerReader, Element, IA5_STRING, INTEGER, NUMERIC_STRING,
    OBJECT_ID, OCTET_STRING, PRINTABLE_STRING, Result, SEQUENCE, SET, T61_STRING, UTF8_STRING,
    explicit,
};
use self::extensions::Extension;
use super::{Arguments, JmesPathFunction, STRING, function, parameter};
use crate::eval::EvalFault;
use crate::number;

pub(super) static FUNCTIONS: &[JmesPathFunction] = &[function(
    "x509_decode",
    &[parameter("pem", STRING)],
    "object",
    "the fields of a PEM certificate or certificate request with an RSA key",
    x509_decode,
)];

fn x509_decode(args: &Arguments<'_>) -> std::result::Result<Value, EvalFault> {
    let text = args.string(0)?;
    args.step(text.len())?;
    let value = decode_certificate(text).map_err(|problem| args.fail(problem))?;
    args.charge(&value)?;
    Ok(value)
}

/// The fields of a certificate or certificate request in PEM, which must have an RSA key.
///
/// # Errors
/// In words, when the text is something else.
pub fn decode_certificate(text: &str) -> std::result::Result<Value, String> {
    match pem(text) {
        None => Err("the text has no PEM block".to_owned()),
        Some((kind, bytes)) => match kind {
            "CERTIFICATE" => certificate(&bytes),
            "CERTIFICATE REQUEST" => request(&bytes),
            kind => Err(format!(
                "the PEM block is a {kind}, neither a CERTIFICATE nor a CERTIFICATE REQUEST"
            )),
        },
    }
}

/// The first block of a PEM text: its type and its bytes.
fn pem(text: &str) -> Option<(&str, Vec<u8>)> {
    // Each broken block before the first good one costs a look at the whole rest.
    const MOST_BROKEN: usize = 16;
    let mut rest = text;
    for _ in 0..MOST_BROKEN {
        let at = rest.find("-----BEGIN ")?;
        let at_line_start = at == 0 || rest.as_bytes()[at - 1] == b'\n';
        rest = &rest[at + "-----BEGIN ".len()..];
        let (kind, after) = rest.split_once('\n')?;
        let Some(kind) = kind.trim_end().strip_suffix("-----") else { continue };
        let (body, has_end) = match after.split_once(&format!("-----END {kind}-----")) {
            Some((body, _)) => (body, body.is_empty() || body.ends_with('\n')),
            None => continue,
        };
        // Headers, if there are any, end with an empty line.
        let body = match body.split_once("\n\n") {
            Some((headers, body)) if headers.contains(':') => body,
            _ => body,
        };
        let joined: String = body.chars().filter(|c| !c.is_ascii_whitespace()).collect();
        match STANDARD.decode(joined) {
            Ok(bytes) if at_line_start && has_end => return Some((kind, bytes)),
            _ => {}
        }
    }
    None
}

fn base64(bytes: &[u8]) -> Value {
    Value::from(STANDARD.encode(bytes))
}

/// A list, or null if it is empty: Go's lists are nil until something is in them.
fn list(values: Vec<Value>) -> Value {
    if values.is_empty() { Value::Null } else { Value::from(values) }
}

fn object_id(id: &[u32]) -> Value {
    id.iter().map(|arc| Value::from(*arc)).collect()
}

/// The fields that a certificate always has, at their zero values.
const CERTIFICATE_LISTS: [&str; 23] = [
    "AuthorityKeyId",
    "CRLDistributionPoints",
    "DNSNames",
    "EmailAddresses",
    "ExcludedDNSDomains",
    "ExcludedEmailAddresses",
    "ExcludedIPRanges",
    "ExcludedURIDomains",
    "ExtKeyUsage",
    "ExtraExtensions",
    "IPAddresses",
    "IssuingCertificateURL",
    "OCSPServer",
    "PermittedDNSDomains",
    "PermittedEmailAddresses",
    "PermittedIPRanges",
    "PermittedURIDomains",
    "Policies",
    "PolicyIdentifiers",
    "PolicyMappings",
    "SubjectKeyId",
    "URIs",
    "UnknownExtKeyUsage",
];
const CERTIFICATE_NUMBERS: [&str; 5] =
    ["InhibitAnyPolicy", "InhibitPolicyMapping", "KeyUsage", "MaxPathLen", "RequireExplicitPolicy"];
const CERTIFICATE_FLAGS: [&str; 7] = [
    "BasicConstraintsValid",
    "InhibitAnyPolicyZero",
    "InhibitPolicyMappingZero",
    "IsCA",
    "MaxPathLenZero",
    "PermittedDNSDomainsCritical",
    "RequireExplicitPolicyZero",
];

fn certificate(bytes: &[u8]) -> Result<Value> {
    let mut outer = DerReader(bytes);
    let certificate = outer.expect(SEQUENCE)?;
    outer.end()?;
    let mut parts = certificate.inside();
    let signed = parts.expect(SEQUENCE)?;
    let algorithm = parts.expect(SEQUENCE)?;
    let (signature, _) = parts.expect(BIT_STRING)?.bits()?;
    parts.end()?;

    let mut inside = signed.inside();
    let version = match inside.optional(explicit(0))? {
        Some(version) => version.inside().expect(INTEGER)?.small()?,
        None => 0,
    };
    if !(0..=2).contains(&version) {
        return Err("invalid version".to_owned());
    }
    let serial = inside.expect(INTEGER)?.decimal()?;
    let inner_algorithm = inside.expect(SEQUENCE)?;
    if inner_algorithm.full != algorithm.full {
        return Err("the inner and outer signature algorithms differ".to_owned());
    }
    let issuer = inside.expect(SEQUENCE)?;
    let mut validity = inside.expect(SEQUENCE)?.inside();
    let (not_before, not_after) = (validity.next()?.time()?, validity.next()?.time()?);
    let subject = inside.expect(SEQUENCE)?;
    let key = inside.expect(SEQUENCE)?;
    // Unique identifiers of issuer and subject, which are unused.
    inside.optional(der::implicit(1))?;
    inside.optional(der::implicit(2))?;
    let extensions = match inside.optional(explicit(3))? {
        Some(extensions) => read_extensions(extensions.inside().expect(SEQUENCE)?)?,
        None => Vec::new(),
    };

    let mut fields = Map::new();
    for name in CERTIFICATE_LISTS {
        fields.insert(name, Value::Null);
    }
    for name in CERTIFICATE_NUMBERS {
        fields.insert(name, 0);
    }
    for name in CERTIFICATE_FLAGS {
        fields.insert(name, false);
    }
    let mut unhandled = Vec::new();
    for extension in &extensions {
        if !extensions::apply(extension, &mut fields)? && extension.critical {
            unhandled.push(object_id(&extension.id));
        }
    }
    fields.insert("UnhandledCriticalExtensions", list(unhandled));
    fields.insert("Raw", base64(certificate.full));
    fields.insert("RawTBSCertificate", base64(signed.full));
    fields.insert("RawIssuer", base64(issuer.full));
    fields.insert("RawSignatureAlgorithm", base64(algorithm.full));
    fields.insert("Version", version + 1);
    // Go writes all digits; the query reads them back as a float.
    fields.insert("SerialNumber", number::number(serial.parse().unwrap_or(f64::MAX)));
    fields.insert("Issuer", name(issuer)?);
    fields.insert("NotBefore", not_before.rfc3339_nano());
    fields.insert("NotAfter", not_after.rfc3339_nano());
    common(&mut fields, subject, key, algorithm, signature, &extensions)?;
    Ok(Value::Map(fields))
}

fn request(bytes: &[u8]) -> Result<Value> {
    let mut outer = DerReader(bytes);
    let request = outer.expect(SEQUENCE)?;
    outer.end()?;
    let mut parts = request.inside();
    let signed = parts.expect(SEQUENCE)?;
    let algorithm = parts.expect(SEQUENCE)?;
    let (signature, _) = parts.expect(BIT_STRING)?.bits()?;
    parts.end()?;

    let mut inside = signed.inside();
    let version = inside.expect(INTEGER)?.small()?;
    let subject = inside.expect(SEQUENCE)?;
    let key = inside.expect(SEQUENCE)?;
    let attributes = match inside.optional(explicit(0))? {
        Some(attributes) => attributes.elements()?,
        None => Vec::new(),
    };
    let mut extensions = Vec::new();
    for attribute in &attributes {
        let mut inside = attribute.inside();
        if inside.expect(OBJECT_ID)?.object_id()? == [1, 2, 840, 113_549, 1, 9, 14] {
            extensions = read_extensions(inside.expect(SET)?.inside().expect(SEQUENCE)?)?;
        }
    }

    let mut fields = Map::new();
    for name in ["DNSNames", "EmailAddresses", "ExtraExtensions", "IPAddresses", "URIs"] {
        fields.insert(name, Value::Null);
    }
    if let Some(names) = extensions.iter().find(|extension| extension.id == [2, 5, 29, 17]) {
        extensions::apply(names, &mut fields)?;
    }
    fields
        .insert("Attributes", list(attributes.iter().filter_map(|a| attribute(*a).ok()).collect()));
    fields.insert("Raw", base64(request.full));
    fields.insert("RawTBSCertificateRequest", base64(signed.full));
    fields.insert("Version", version);
    common(&mut fields, subject, key, algorithm, signature, &extensions)?;
    Ok(Value::Map(fields))
}

/// What certificates and requests have in common.
fn common(
    fields: &mut Map,
    subject: Element<'_>,
    key: Element<'_>,
    algorithm: Element<'_>,
    signature: &[u8],
    extensions: &[Extension<'_>],
) -> Result<()> {
    fields.insert("RawSubject", base64(subject.full));
    fields.insert("RawSubjectPublicKeyInfo", base64(key.full));
    fields.insert("Subject", name(subject)?);
    fields.insert("PublicKey", rsa_key(key)?);
    fields.insert("PublicKeyAlgorithm", 1);
    fields.insert("Signature", base64(signature));
    fields.insert("SignatureAlgorithm", signature_algorithm(algorithm)?);
    fields.insert("Extensions", list(extensions.iter().map(Extension::to_value).collect()));
    Ok(())
}

fn read_extensions<'d>(sequence: Element<'d>) -> Result<Vec<Extension<'d>>> {
    let mut extensions: Vec<Extension<'d>> = Vec::new();
    let mut seen = std::collections::HashSet::new();
    for element in sequence.elements()? {
        let extension = Extension::read(element)?;
        if !seen.insert(extension.id.clone()) {
            return Err("an extension occurs twice".to_owned());
        }
        extensions.push(extension);
    }
    Ok(extensions)
}

fn rsa_key(info: Element<'_>) -> Result<Value> {
    let mut parts = info.inside();
    let algorithm = parts.expect(SEQUENCE)?.inside().expect(OBJECT_ID)?.object_id()?;
    if algorithm != [1, 2, 840, 113_549, 1, 1, 1] {
        return Err("the key is not an RSA key".to_owned());
    }
    let (key, _) = parts.expect(BIT_STRING)?.bits()?;
    let mut numbers = DerReader(key).expect(SEQUENCE)?.inside();
    let modulus = numbers.expect(INTEGER)?.decimal()?;
    let exponent = numbers.expect(INTEGER)?.small()?;
    let mut fields = Map::new();
    fields.insert("N", modulus);
    fields.insert("E", exponent);
    Ok(Value::Map(fields))
}

/// The number that Go gives to a signature algorithm; 0 for ones it does not know.
fn signature_algorithm(algorithm: Element<'_>) -> Result<i64> {
    let mut inside = algorithm.inside();
    let id = inside.expect(OBJECT_ID)?.object_id()?;
    Ok(match id.as_slice() {
        [1, 2, 840, 113_549, 1, 1, number] => match number {
            2 => 1,
            4 => 2,
            5 => 3,
            10 => pss_algorithm(inside),
            11..=13 => i64::from(*number) - 7,
            _ => 0,
        },
        [1, 3, 14, 3, 2, 29] => 3,
        [1, 2, 840, 10040, 4, 3] => 7,
        [2, 16, 840, 1, 101, 3, 4, 3, 2] => 8,
        [1, 2, 840, 10045, 4, 1] => 9,
        [1, 2, 840, 10045, 4, 3, number @ 2..=4] => i64::from(*number) + 8,
        [1, 3, 101, 112] => 16,
        _ => 0,
    })
}

/// RSA-PSS names its digest in its parameters.
fn pss_algorithm(mut inside: DerReader<'_>) -> i64 {
    let mut digest = || -> Result<Vec<u32>> {
        let parameters = inside.expect(SEQUENCE)?;
        let digest = parameters.inside().expect(explicit(0))?;
        digest.inside().expect(SEQUENCE)?.inside().expect(OBJECT_ID)?.object_id()
    };
    match digest().as_deref() {
        Ok([2, 16, 840, 1, 101, 3, 4, 2, number @ 1..=3]) => i64::from(*number) + 12,
        _ => 0,
    }
}

/// A distinguished name as Go's `pkix.Name`.
fn name(sequence: Element<'_>) -> Result<Value> {
    let mut names = Vec::new();
    let mut fields = Map::new();
    for field in [
        "Country",
        "ExtraNames",
        "Locality",
        "Organization",
        "OrganizationalUnit",
        "PostalCode",
        "Province",
        "StreetAddress",
    ] {
        fields.insert(field, Value::Null);
    }
    for field in ["CommonName", "SerialNumber"] {
        fields.insert(field, "");
    }
    for set in sequence.elements()? {
        if set.tag != SET {
            return Err("malformed name".to_owned());
        }
        for attribute in set.elements()? {
            let mut inside = attribute.inside();
            let id = inside.expect(OBJECT_ID)?.object_id()?;
            let text = Value::from(inside.next()?.text()?);
            if let [2, 5, 4, number] = id.as_slice() {
                match number {
                    3 => drop(fields.insert("CommonName", text.clone())),
                    5 => drop(fields.insert("SerialNumber", text.clone())),
                    6 => append(&mut fields, "Country", &text),
                    7 => append(&mut fields, "Locality", &text),
                    8 => append(&mut fields, "Province", &text),
                    9 => append(&mut fields, "StreetAddress", &text),
                    10 => append(&mut fields, "Organization", &text),
                    11 => append(&mut fields, "OrganizationalUnit", &text),
                    17 => append(&mut fields, "PostalCode", &text),
                    _ => {}
                }
            }
            names.push(typed(&id, text));
        }
    }
    fields.insert("Names", list(names));
    Ok(Value::Map(fields))
}

fn append(fields: &mut Map, name: &str, text: &Value) {
    let place = fields.get_or_insert_with(name, || Value::Null);
    match place.as_list_mut() {
        Some(texts) => texts.push(text.clone()),
        None => *place = Value::from(vec![text.clone()]),
    }
}

fn typed(id: &[u32], value: Value) -> Value {
    let entries: [(&str, Value); 2] = [("Type", object_id(id)), ("Value", value)];
    Value::Map(entries.into_iter().map(|(key, value)| (Key::new(key), value)).collect())
}

/// An attribute of a request, if it has the form that Go's older type for them can hold.
fn attribute(element: Element<'_>) -> Result<Value> {
    let mut inside = element.inside();
    let id = inside.expect(OBJECT_ID)?.object_id()?;
    let mut sets = Vec::new();
    for sequence in inside.expect(SET)?.elements()? {
        if sequence.tag != SEQUENCE {
            return Err("another form".to_owned());
        }
        let mut pairs = Vec::new();
        for pair in sequence.elements()? {
            if pair.tag != SEQUENCE {
                return Err("another form".to_owned());
            }
            let mut inside = pair.inside();
            let id = inside.expect(OBJECT_ID)?.object_id()?;
            pairs.push(typed(&id, any(inside.next()?)?));
        }
        sets.push(Value::from(pairs));
    }
    Ok(typed(&id, Value::from(sets)))
}

fn any(element: Element<'_>) -> Result<Value> {
    Ok(match element.tag {
        BOOLEAN => Value::Bool(element.boolean()?),
        INTEGER => Value::from(element.small()?),
        OCTET_STRING => base64(element.content),
        OBJECT_ID => object_id(&element.object_id()?),
        UTF8_STRING | PRINTABLE_STRING | NUMERIC_STRING | IA5_STRING | T61_STRING | BMP_STRING => {
            Value::from(element.text()?)
        }
        _ => Value::Null,
    })
}
