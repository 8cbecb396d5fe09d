//! The few fields of a certificate that decide when it is renewed.
//!
//! Certificates come from Secrets that others may have written: whatever is in them, reading ends and gives
//! nothing rather than something wrong.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use time::{Date, Month, Time, UtcDateTime};

/// A certificate, as far as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Certificate {
    /// The text that it was read from.
    pub(crate) pem: String,
    der: Vec<u8>,
    /// Seconds since 1970 from which it counts.
    pub(crate) not_before: i64,
    /// Seconds since 1970 until which it counts.
    pub(crate) not_after: i64,
}

const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
const END: &str = "-----END CERTIFICATE-----";

/// The certificates in a text, one behind the other. What is none is skipped.
pub(crate) fn certificates(text: &str) -> Vec<Certificate> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(start) = rest.find(BEGIN) {
        let body = &rest[start + BEGIN.len()..];
        let Some(end) = body.find(END) else { break };
        let base64: String = body[..end].chars().filter(|c| !c.is_ascii_whitespace()).collect();
        if let Ok(der) = STANDARD.decode(base64)
            && let Some((not_before, not_after)) = validity(&der)
        {
            let pem = format!("{BEGIN}\n{}\n{END}\n", body[..end].trim());
            found.push(Certificate { pem, der, not_before, not_after });
        }
        rest = &body[end + END.len()..];
    }
    found
}

impl Certificate {
    /// Whether it was signed by the key of this identifier.
    pub(crate) fn is_signed_by(&self, key_identifier: &[u8]) -> bool {
        // The identifier of the signing key has the tag [0].
        self.contains(0x80, key_identifier)
    }

    /// Whether it stands for a name or an address.
    pub(crate) fn is_for(&self, name: &str) -> bool {
        match name.parse::<std::net::IpAddr>() {
            Ok(std::net::IpAddr::V4(address)) => self.contains(0x87, &address.octets()),
            Ok(std::net::IpAddr::V6(address)) => self.contains(0x87, &address.octets()),
            Err(_) => self.contains(0x82, name.as_bytes()),
        }
    }

    /// Whether a value with this tag is somewhere in it.
    fn contains(&self, tag: u8, value: &[u8]) -> bool {
        let Ok(length) = u8::try_from(value.len()) else { return false };
        if length >= 0x80 {
            return false;
        }
        let wanted = [&[tag, length], value].concat();
        self.der.windows(wanted.len()).any(|part| part == wanted)
    }
}

/// From when to when a certificate counts.
fn validity(der: &[u8]) -> Option<(i64, i64)> {
    let (certificate, _) = element(der, 0x30)?;
    let (mut rest, _) = element(certificate, 0x30)?;
    if rest.first() == Some(&0xa0) {
        rest = element(rest, 0xa0)?.1;
    }
    // Serial number, signature algorithm, issuer.
    for tag in [0x02, 0x30, 0x30] {
        rest = element(rest, tag)?.1;
    }
    let (validity, _) = element(rest, 0x30)?;
    let (not_before, rest) = moment(validity)?;
    let (not_after, _) = moment(rest)?;
    Some((not_before, not_after))
}

/// The content of an element, and what follows it.
fn element(der: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (&found, rest) = der.split_first()?;
    if found != tag {
        return None;
    }
    let (&first, mut rest) = rest.split_first()?;
    let mut length = usize::from(first);
    if first >= 0x80 {
        let count = usize::from(first & 0x7f);
        if count == 0 || count > 4 {
            return None;
        }
        let (bytes, after) = rest.split_at_checked(count)?;
        length = bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte));
        rest = after;
    }
    rest.split_at_checked(length)
}

fn moment(der: &[u8]) -> Option<(i64, &[u8])> {
    let utc = element(der, 0x17);
    let (text, rest) = utc.or_else(|| element(der, 0x18))?;
    let text = std::str::from_utf8(text).ok()?.strip_suffix('Z')?;
    let (year, rest_of_text) = match utc {
        Some(_) => {
            let (year, rest) = text.split_at_checked(2)?;
            let year: i32 = year.parse().ok()?;
            (if year < 50 { 2000 + year } else { 1900 + year }, rest)
        }
        None => {
            let (year, rest) = text.split_at_checked(4)?;
            (year.parse().ok()?, rest)
        }
    };
    let number = |at: usize| rest_of_text.get(at * 2..at * 2 + 2)?.parse::<u8>().ok();
    let date =
        Date::from_calendar_date(year, Month::try_from(number(0)?).ok()?, number(1)?).ok()?;
    let time = Time::from_hms(number(2)?, number(3)?, number(4)?).ok()?;
    Some((UtcDateTime::new(date, time).unix_timestamp(), rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn times_are_read_in_both_forms() {
        let utc = b"\x17\x0d700101000010Z";
        assert_eq!(moment(utc).unwrap().0, 10);
        let general = b"\x18\x0f20500101000000Z";
        assert_eq!(moment(general).unwrap().0, 2_524_608_000);
        for bad in
            [&b"\x17\x0d7001010000"[..], b"\x17\x0d701301000010Z", b"\x18\x03abZ", b"\x17\x00", b""]
        {
            assert_eq!(moment(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn what_is_no_certificate_is_passed_over() {
        assert_eq!(certificates(""), []);
        assert_eq!(certificates("-----BEGIN CERTIFICATE-----\nAAAA\n"), []);
        assert_eq!(certificates(&format!("{BEGIN}\nMIIB\n{END}\n{BEGIN}\n!\n{END}")), []);
    }

    proptest! {
        #[test]
        fn reading_ends(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = validity(&bytes);
            let text = format!("{BEGIN}\n{}\n{END}", STANDARD.encode(&bytes));
            let _ = certificates(&text);
        }
    }
}
