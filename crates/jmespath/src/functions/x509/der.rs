//! DER: tagged elements one after the other, some with elements inside.
//!
//! A reader never looks beyond the bytes it was given and never recurses by itself.

use kiln_text::time::Time;

pub(super) const BOOLEAN: u8 = 0x01;
pub(super) const INTEGER: u8 = 0x02;
pub(super) const BIT_STRING: u8 = 0x03;
pub(super) const OCTET_STRING: u8 = 0x04;
pub(super) const OBJECT_ID: u8 = 0x06;
pub(super) const UTF8_STRING: u8 = 0x0c;
pub(super) const NUMERIC_STRING: u8 = 0x12;
pub(super) const PRINTABLE_STRING: u8 = 0x13;
pub(super) const T61_STRING: u8 = 0x14;
pub(super) const IA5_STRING: u8 = 0x16;
pub(super) const UTC_TIME: u8 = 0x17;
pub(super) const GENERALIZED_TIME: u8 = 0x18;
pub(super) const BMP_STRING: u8 = 0x1e;
pub(super) const SEQUENCE: u8 = 0x30;
pub(super) const SET: u8 = 0x31;

/// The tag of a context-specific element that holds bytes.
pub(super) const fn implicit(number: u8) -> u8 {
    0x80 | number
}

/// The tag of a context-specific element that holds elements.
pub(super) const fn explicit(number: u8) -> u8 {
    0xa0 | number
}

pub(super) type Result<T> = std::result::Result<T, String>;

#[derive(Clone, Copy, Debug)]
pub(super) struct Element<'d> {
    pub(super) tag: u8,
    /// What it holds.
    pub(super) content: &'d [u8],
    /// With its tag and length.
    pub(super) full: &'d [u8],
}

/// Elements one after the other.
#[derive(Clone, Copy, Debug)]
pub(super) struct DerReader<'d>(pub(super) &'d [u8]);

impl<'d> DerReader<'d> {
    pub(super) fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    /// The next element.
    pub(super) fn next(&mut self) -> Result<Element<'d>> {
        let malformed = || "malformed DER".to_owned();
        let (&tag, rest) = self.0.split_first().ok_or_else(malformed)?;
        let (&first, rest) = rest.split_first().ok_or_else(malformed)?;
        // Tags in several bytes and indefinite lengths have no place in certificates.
        if tag & 0x1f == 0x1f {
            return Err(malformed());
        }
        let (length, rest) = if first < 0x80 {
            (usize::from(first), rest)
        } else {
            let count = usize::from(first & 0x7f);
            if count == 0 || count > 4 || rest.len() < count || rest[0] == 0 {
                return Err(malformed());
            }
            let (digits, rest) = rest.split_at(count);
            let length = digits.iter().fold(0_usize, |sum, digit| sum << 8 | usize::from(*digit));
            if length < 0x80 {
                return Err(malformed());
            }
            (length, rest)
        };
        if rest.len() < length {
            return Err(malformed());
        }
        let (content, after) = rest.split_at(length);
        let full = &self.0[..self.0.len() - after.len()];
        self.0 = after;
        Ok(Element { tag, content, full })
    }

    /// The next element, which must have this tag.
    pub(super) fn expect(&mut self, tag: u8) -> Result<Element<'d>> {
        let element = self.next()?;
        if element.tag == tag {
            Ok(element)
        } else {
            Err(format!("unexpected element {:#04x} where {tag:#04x} belongs", element.tag))
        }
    }

    /// The next element if it has this tag.
    pub(super) fn optional(&mut self, tag: u8) -> Result<Option<Element<'d>>> {
        if self.0.first() == Some(&tag) { self.next().map(Some) } else { Ok(None) }
    }

    pub(super) fn end(self) -> Result<()> {
        if self.is_empty() { Ok(()) } else { Err("trailing data".to_owned()) }
    }
}

impl<'d> Element<'d> {
    pub(super) fn inside(self) -> DerReader<'d> {
        DerReader(self.content)
    }

    /// The elements inside.
    pub(super) fn elements(self) -> Result<Vec<Element<'d>>> {
        let mut inside = self.inside();
        let mut elements = Vec::new();
        while !inside.is_empty() {
            elements.push(inside.next()?);
        }
        Ok(elements)
    }

    pub(super) fn boolean(self) -> Result<bool> {
        match self.content {
            [0] => Ok(false),
            [0xff] => Ok(true),
            _ => Err("malformed boolean".to_owned()),
        }
    }

    /// A small integer.
    pub(super) fn small(self) -> Result<i64> {
        let (&first, _) = self.content.split_first().ok_or("malformed integer")?;
        if self.content.len() > 8 {
            return Err("integer too large".to_owned());
        }
        let start = if first & 0x80 == 0 { 0 } else { -1 };
        Ok(self.content.iter().fold(start, |sum: i64, byte| sum << 8 | i64::from(*byte)))
    }

    /// A large integer that is not negative, in decimal.
    pub(super) fn decimal(self) -> Result<String> {
        // The conversion is quadratic; Go refuses RSA keys beyond this size too.
        const LONGEST: usize = 2049;
        match self.content {
            [] => Err("malformed integer".to_owned()),
            bytes if bytes.len() > LONGEST => Err("integer too large".to_owned()),
            [first, ..] if first & 0x80 != 0 => Err("negative integer".to_owned()),
            bytes => Ok(decimal(bytes)),
        }
    }

    /// The bits of a bit string in whole bytes, and how many there are.
    pub(super) fn bits(self) -> Result<(&'d [u8], usize)> {
        match self.content.split_first() {
            Some((&unused, bytes)) if unused < 8 && (unused == 0 || !bytes.is_empty()) => {
                Ok((bytes, bytes.len() * 8 - usize::from(unused)))
            }
            _ => Err("malformed bit string".to_owned()),
        }
    }

    pub(super) fn object_id(self) -> Result<Vec<u32>> {
        let malformed = || "malformed object identifier".to_owned();
        let mut arcs = Vec::new();
        let mut arc = 0_u32;
        let mut open = false;
        for byte in self.content {
            if !open && *byte == 0x80 {
                return Err(malformed());
            }
            arc = arc.checked_mul(128).ok_or_else(malformed)? | u32::from(byte & 0x7f);
            open = byte & 0x80 != 0;
            if open {
                continue;
            }
            if arcs.is_empty() {
                let first = (arc / 40).min(2);
                arcs.extend([first, arc - first * 40]);
            } else {
                arcs.push(arc);
            }
            arc = 0;
        }
        if open || arcs.is_empty() { Err(malformed()) } else { Ok(arcs) }
    }

    /// A text of one of the types that names have.
    pub(super) fn text(self) -> Result<String> {
        let utf8 = || String::from_utf8(self.content.to_vec()).map_err(|e| e.to_string());
        match self.tag {
            UTF8_STRING => utf8(),
            PRINTABLE_STRING | NUMERIC_STRING | IA5_STRING if self.content.is_ascii() => utf8(),
            T61_STRING => Ok(self.content.iter().map(|byte| char::from(*byte)).collect()),
            BMP_STRING if self.content.len().is_multiple_of(2) => {
                let units: Vec<u16> = self
                    .content
                    .chunks_exact(2)
                    .map(|pair| u16::from_be_bytes([pair[0], pair[1]]))
                    .collect();
                Ok(String::from_utf16_lossy(&units).trim_end_matches('\0').to_owned())
            }
            tag => Err(format!("malformed or unsupported text of type {tag:#04x}")),
        }
    }

    pub(super) fn time(self) -> Result<Time> {
        let text = std::str::from_utf8(self.content).map_err(|_| "malformed time")?;
        let digits = match (self.tag, text.get(..2).and_then(|year| year.parse::<u32>().ok())) {
            // RFC 5280: two digits from 50 on are of the twentieth century.
            (UTC_TIME, Some(year)) => format!("{}{text}", if year >= 50 { "19" } else { "20" }),
            (GENERALIZED_TIME, Some(_)) => text.to_owned(),
            _ => return Err("malformed time".to_owned()),
        };
        Time::parse("20060102150405Z0700", &digits)
            .or_else(|error| match self.tag {
                UTC_TIME => Time::parse("200601021504Z0700", &digits),
                _ => Err(error),
            })
            .map_err(|error| error.to_string())
    }
}

/// A number given by its bytes, largest first, in decimal.
fn decimal(bytes: &[u8]) -> String {
    const BASE: u64 = 1_000_000_000;
    let mut groups: Vec<u64> = Vec::new();
    for byte in bytes {
        let mut carry = u64::from(*byte);
        for group in &mut groups {
            let sum = *group * 256 + carry;
            *group = sum % BASE;
            carry = sum / BASE;
        }
        if carry > 0 {
            groups.push(carry);
        }
    }
    let mut text = groups.last().copied().unwrap_or(0).to_string();
    for group in groups.iter().rev().skip(1) {
        text.push_str(&format!("{group:09}"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_keep_to_their_bytes() {
        let mut reader = DerReader(&[0x30, 3, 1, 1, 0xff, 2, 1, 5]);
        let sequence = reader.expect(SEQUENCE).unwrap();
        assert!(sequence.elements().unwrap()[0].boolean().unwrap());
        assert_eq!(reader.expect(INTEGER).unwrap().small(), Ok(5));
        assert!(reader.next().is_err());
        for bad in [
            &[0x30, 5, 1][..],
            &[0x30, 0x80, 0, 0],
            &[0x30, 0x81, 5, 0, 0, 0, 0, 0],
            &[0x30, 0x85, 1, 1, 1, 1, 1],
            &[0x1f, 1, 1],
            &[0x30],
        ] {
            assert!(DerReader(bad).next().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn numbers_and_identifiers() {
        assert_eq!(decimal(&[0; 40]), "0");
        assert_eq!(decimal(&[1, 0, 0, 0, 0, 0, 0, 0, 0]), "18446744073709551616");
        assert_eq!(decimal(&[0xff; 8]), "18446744073709551615");
        let id =
            |content: &'static [u8]| Element { tag: OBJECT_ID, content, full: content }.object_id();
        assert_eq!(id(&[0x55, 4, 3]), Ok(vec![2, 5, 4, 3]));
        assert_eq!(
            id(&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 11]),
            Ok(vec![1, 2, 840, 113_549, 1, 1, 11])
        );
        assert!(id(&[0x80, 1]).is_err() && id(&[0x85]).is_err() && id(&[]).is_err());
    }
}
