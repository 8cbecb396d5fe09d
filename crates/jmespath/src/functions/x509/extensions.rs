//! The extensions of certificates and requests, as Go's `crypto/x509` shows them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use kiln_value::{Map, Value};

use super::der::{
    BOOLEAN, DerReader, Element, IA5_STRING, INTEGER, OBJECT_ID, OCTET_STRING, Result, SEQUENCE,
    explicit, implicit,
};
use super::{base64, list, object_id};

/// An extension as it stands in the certificate.
pub(super) struct Extension<'d> {
    pub(super) id: Vec<u32>,
    pub(super) critical: bool,
    pub(super) value: &'d [u8],
}

impl<'d> Extension<'d> {
    pub(super) fn read(element: Element<'d>) -> Result<Self> {
        let mut inside = element.inside();
        let id = inside.expect(OBJECT_ID)?.object_id()?;
        let critical =
            inside.optional(BOOLEAN)?.map(Element::boolean).transpose()?.unwrap_or(false);
        let value = inside.expect(OCTET_STRING)?.content;
        inside.end()?;
        Ok(Extension { id, critical, value })
    }

    pub(super) fn to_value(&self) -> Value {
        object([
            ("Id", object_id(&self.id)),
            ("Critical", Value::Bool(self.critical)),
            ("Value", base64(self.value)),
        ])
    }
}

fn object<const N: usize>(entries: [(&str, Value); N]) -> Value {
    Value::Map(entries.into_iter().collect())
}

/// The numbers that Go gives to the purposes it knows.
fn purpose(id: &[u32]) -> Option<i64> {
    Some(match id {
        [2, 5, 29, 37, 0] => 0,
        [1, 3, 6, 1, 5, 5, 7, 3, number @ 1..=9] => i64::from(*number),
        [1, 3, 6, 1, 4, 1, 311, 10, 3, 3] => 10,
        [2, 16, 840, 1, 113_730, 4, 1] => 11,
        [1, 3, 6, 1, 4, 1, 311, 2, 1, 22] => 12,
        [1, 3, 6, 1, 4, 1, 311, 61, 1, 1] => 13,
        _ => return None,
    })
}

/// Puts what an extension says into the fields of a certificate.
///
/// Answers whether the extension is understood.
pub(super) fn apply(extension: &Extension<'_>, fields: &mut Map) -> Result<bool> {
    let value = DerReader(extension.value);
    match extension.id.as_slice() {
        [2, 5, 29, 14] => {
            let id = whole(value, OCTET_STRING)?;
            fields.insert("SubjectKeyId", base64(id.content));
        }
        [2, 5, 29, 15] => {
            let (bytes, count) = whole(value, super::der::BIT_STRING)?.bits()?;
            let set = |bit: &usize| bytes[bit / 8] & (0x80 >> (bit % 8)) != 0;
            let usage: i64 = (0..count.min(9)).filter(set).map(|bit| 1 << bit).sum();
            fields.insert("KeyUsage", usage);
        }
        [2, 5, 29, 17] => return alternative_names(whole(value, SEQUENCE)?, fields),
        [2, 5, 29, 19] => basic_constraints(whole(value, SEQUENCE)?, fields)?,
        [2, 5, 29, 30] => return name_constraints(whole(value, SEQUENCE)?, extension, fields),
        [2, 5, 29, 31] => {
            let points = distribution_points(whole(value, SEQUENCE)?)?;
            fields.insert("CRLDistributionPoints", list(points));
        }
        [2, 5, 29, 32] => {
            let mut ids = Vec::new();
            for policy in whole(value, SEQUENCE)?.elements()? {
                ids.push(policy.inside().expect(OBJECT_ID)?.object_id()?);
            }
            fields.insert("PolicyIdentifiers", list(ids.iter().map(|id| object_id(id)).collect()));
            fields.insert("Policies", list(ids.iter().map(|id| dotted(id)).collect()));
        }
        [2, 5, 29, 33] => {
            let mut mappings = Vec::new();
            for mapping in whole(value, SEQUENCE)?.elements()? {
                let mut inside = mapping.inside();
                let issuer = inside.expect(OBJECT_ID)?.object_id()?;
                let subject = inside.expect(OBJECT_ID)?.object_id()?;
                mappings.push(object([
                    ("IssuerDomainPolicy", dotted(&issuer)),
                    ("SubjectDomainPolicy", dotted(&subject)),
                ]));
            }
            fields.insert("PolicyMappings", list(mappings));
        }
        [2, 5, 29, 35] => {
            let mut inside = whole(value, SEQUENCE)?.inside();
            if let Some(id) = inside.optional(implicit(0))? {
                fields.insert("AuthorityKeyId", base64(id.content));
            }
        }
        [2, 5, 29, 36] => {
            let mut inside = whole(value, SEQUENCE)?.inside();
            for (tag, name) in [(0, "RequireExplicitPolicy"), (1, "InhibitPolicyMapping")] {
                if let Some(number) = inside.optional(implicit(tag))? {
                    count(number.small()?, name, fields);
                }
            }
        }
        [2, 5, 29, 37] => {
            let (mut known, mut unknown) = (Vec::new(), Vec::new());
            for element in whole(value, SEQUENCE)?.elements()? {
                let id = element.object_id()?;
                match purpose(&id) {
                    Some(number) => known.push(Value::from(number)),
                    None => unknown.push(object_id(&id)),
                }
            }
            fields.insert("ExtKeyUsage", list(known));
            fields.insert("UnknownExtKeyUsage", list(unknown));
        }
        [2, 5, 29, 54] => count(whole(value, INTEGER)?.small()?, "InhibitAnyPolicy", fields),
        [1, 3, 6, 1, 5, 5, 7, 1, 1] => authority_information(whole(value, SEQUENCE)?, fields)?,
        _ => return Ok(false),
    }
    Ok(true)
}

fn whole<'d>(mut value: DerReader<'d>, tag: u8) -> Result<Element<'d>> {
    let element = value.expect(tag)?;
    value.end()?;
    Ok(element)
}

fn count(number: i64, name: &str, fields: &mut Map) {
    fields.insert(name, number);
    fields.insert(format!("{name}Zero"), number == 0);
}

fn dotted(id: &[u32]) -> Value {
    Value::from(id.iter().map(ToString::to_string).collect::<Vec<_>>().join("."))
}

fn basic_constraints(element: Element<'_>, fields: &mut Map) -> Result<()> {
    let mut inside = element.inside();
    let authority = inside.optional(BOOLEAN)?.map(Element::boolean).transpose()?.unwrap_or(false);
    let length = inside.optional(INTEGER)?.map(Element::small).transpose()?.unwrap_or(-1);
    fields.insert("IsCA", authority);
    fields.insert("MaxPathLen", length);
    fields.insert("MaxPathLenZero", length == 0);
    fields.insert("BasicConstraintsValid", true);
    Ok(())
}

fn ascii(element: Element<'_>) -> Result<String> {
    Element { tag: IA5_STRING, ..element }.text()
}

/// Names that a certificate is for besides its subject; also those of requests.
fn alternative_names(names: Element<'_>, fields: &mut Map) -> Result<bool> {
    let (mut dns, mut emails, mut addresses, mut uris) = (vec![], vec![], vec![], vec![]);
    for name in names.elements()? {
        match name.tag {
            tag if tag == implicit(1) => emails.push(Value::from(ascii(name)?)),
            tag if tag == implicit(2) => dns.push(Value::from(ascii(name)?)),
            tag if tag == implicit(6) => uris.push(url(&ascii(name)?)),
            tag if tag == implicit(7) => addresses.push(address(name.content)?),
            _ => {}
        }
    }
    let understood = [&dns, &emails, &addresses, &uris].iter().any(|names| !names.is_empty());
    fields.insert("DNSNames", list(dns));
    fields.insert("EmailAddresses", list(emails));
    fields.insert("IPAddresses", list(addresses));
    fields.insert("URIs", list(uris));
    Ok(understood)
}

fn address(bytes: &[u8]) -> Result<Value> {
    let address = if let Ok(four) = <[u8; 4]>::try_from(bytes) {
        IpAddr::V4(Ipv4Addr::from(four))
    } else if let Ok(sixteen) = <[u8; 16]>::try_from(bytes) {
        IpAddr::V6(Ipv6Addr::from(sixteen)).to_canonical()
    } else {
        return Err(format!("an IP address of {} bytes", bytes.len()));
    };
    Ok(Value::from(address.to_string()))
}

/// A URL as the fields of Go's `url.URL`.
fn url(text: &str) -> Value {
    let (rest, fragment) = text.split_once('#').unwrap_or((text, ""));
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (scheme, rest) = rest.split_once(':').unwrap_or(("", rest));
    let (authority, path) = match rest.strip_prefix("//") {
        Some(rest) => rest.split_at(rest.find('/').unwrap_or(rest.len())),
        None => ("", rest),
    };
    let (user, host) = match authority.rsplit_once('@') {
        Some((_, host)) => (Value::map(), host),
        None => (Value::Null, authority),
    };
    let opaque = !scheme.is_empty() && !path.is_empty() && !rest.starts_with('/');
    let (opaque, path) = if opaque { (path, "") } else { ("", path) };
    object([
        ("Scheme", Value::from(scheme.to_ascii_lowercase())),
        ("Opaque", Value::from(opaque)),
        ("User", user),
        ("Host", Value::from(host)),
        ("Path", Value::from(path)),
        ("RawPath", Value::from("")),
        ("OmitHost", Value::Bool(false)),
        ("ForceQuery", Value::Bool(text.ends_with('?'))),
        ("RawQuery", Value::from(query)),
        ("Fragment", Value::from(fragment)),
        ("RawFragment", Value::from("")),
    ])
}

fn name_constraints(
    element: Element<'_>,
    extension: &Extension<'_>,
    fields: &mut Map,
) -> Result<bool> {
    let mut inside = element.inside();
    let mut understood = true;
    for (tag, prefix) in [(0, "Permitted"), (1, "Excluded")] {
        let Some(subtrees) = inside.optional(explicit(tag))? else { continue };
        let (mut dns, mut emails, mut ranges, mut uris) = (vec![], vec![], vec![], vec![]);
        for subtree in subtrees.elements()? {
            let base = subtree.inside().next()?;
            match base.tag {
                tag if tag == implicit(1) => emails.push(Value::from(ascii(base)?)),
                tag if tag == implicit(2) => dns.push(Value::from(ascii(base)?)),
                tag if tag == implicit(6) => uris.push(Value::from(ascii(base)?)),
                tag if tag == implicit(7) => {
                    let (ip, mask) = base.content.split_at(base.content.len() / 2);
                    ranges.push(object([("IP", address(ip)?), ("Mask", base64(mask))]));
                }
                _ => understood = false,
            }
        }
        fields.insert(format!("{prefix}DNSDomains"), list(dns));
        fields.insert(format!("{prefix}EmailAddresses"), list(emails));
        fields.insert(format!("{prefix}IPRanges"), list(ranges));
        fields.insert(format!("{prefix}URIDomains"), list(uris));
    }
    fields.insert("PermittedDNSDomainsCritical", extension.critical);
    Ok(understood)
}

fn distribution_points(points: Element<'_>) -> Result<Vec<Value>> {
    let mut uris = Vec::new();
    for point in points.elements()? {
        let Some(name) = point.inside().optional(explicit(0))? else { continue };
        let Some(full) = name.inside().optional(explicit(0))? else { continue };
        for name in full.elements()? {
            if name.tag == implicit(6) {
                uris.push(Value::from(ascii(name)?));
            }
        }
    }
    Ok(uris)
}

fn authority_information(descriptions: Element<'_>, fields: &mut Map) -> Result<()> {
    let (mut responders, mut issuers) = (Vec::new(), Vec::new());
    for description in descriptions.elements()? {
        let mut inside = description.inside();
        let method = inside.expect(OBJECT_ID)?.object_id()?;
        let location = inside.next()?;
        if location.tag != implicit(6) {
            continue;
        }
        match method.as_slice() {
            [1, 3, 6, 1, 5, 5, 7, 48, 1] => responders.push(Value::from(ascii(location)?)),
            [1, 3, 6, 1, 5, 5, 7, 48, 2] => issuers.push(Value::from(ascii(location)?)),
            _ => {}
        }
    }
    fields.insert("OCSPServer", list(responders));
    fields.insert("IssuingCertificateURL", list(issuers));
    Ok(())
}
