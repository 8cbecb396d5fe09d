//! The four timestamp forms that go-yaml knows, brought to RFC 3339 as Go prints it.

/// The moment in RFC 3339, if the text is a timestamp for go-yaml.
///
/// `2001-1-2`, `2001-1-2 3:4:5.6` and `2001-1-2T3:4:5Z` (also `t`, also with an offset): fields
/// other than the year may have one digit, fractions end without zeros, an offset of zero is `Z`.
pub(crate) fn to_rfc3339(text: &str) -> Option<String> {
    // Cheapest test first: nearly everything that begins with a digit is not a date.
    let bytes = text.as_bytes();
    if bytes.get(4) != Some(&b'-') || !bytes[..4].iter().all(u8::is_ascii_digit) {
        return None;
    }
    let mut rest = Rest(text);
    let year = rest.0[..4].parse::<u32>().ok()?;
    rest.0 = &rest.0[4..];
    rest.skip(b'-')?;
    let month = rest.one_or_two_digits()?;
    rest.skip(b'-')?;
    let day = rest.one_or_two_digits()?;
    if !(1..=12).contains(&month) || day < 1 || day > days_in(month, year) {
        return None;
    }
    let date = format!("{year:04}-{month:02}-{day:02}");
    if rest.0.is_empty() {
        return Some(date + "T00:00:00Z");
    }
    let separator = rest.0.as_bytes()[0];
    if !matches!(separator, b'T' | b't' | b' ') {
        return None;
    }
    rest.0 = &rest.0[1..];
    if separator == b' ' {
        // Go skips further blanks where its layout has one.
        rest.0 = rest.0.trim_start_matches(' ');
    }
    let hour = rest.one_or_two_digits()?;
    rest.skip(b':')?;
    let minute = rest.one_or_two_digits()?;
    rest.skip(b':')?;
    let second = rest.one_or_two_digits()?;
    if hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let fraction = rest.fraction();
    let offset = match separator {
        b' ' => rest.0.is_empty().then(|| "Z".to_owned())?,
        _ => rest.offset()?,
    };
    let point = if fraction.is_empty() { "" } else { "." };
    Some(format!("{date}T{hour:02}:{minute:02}:{second:02}{point}{fraction}{offset}"))
}

fn days_in(month: u32, year: u32) -> u32 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if year.is_multiple_of(400) || year.is_multiple_of(4) && !year.is_multiple_of(100) => 29,
        2 => 28,
        _ => 31,
    }
}

struct Rest<'t>(&'t str);

impl<'t> Rest<'t> {
    fn skip(&mut self, byte: u8) -> Option<()> {
        if self.0.as_bytes().first() != Some(&byte) {
            return None;
        }
        self.0 = &self.0[1..];
        Some(())
    }

    fn one_or_two_digits(&mut self) -> Option<u32> {
        let count = self.0.bytes().take(2).take_while(u8::is_ascii_digit).count();
        let number = self.0[..count].parse().ok()?;
        self.0 = &self.0[count..];
        Some(number)
    }

    /// At most nine digits after a point or comma, without the zeros at the end.
    fn fraction(&mut self) -> &'t str {
        let text = self.0;
        if !text.starts_with(['.', ',']) {
            return "";
        }
        let count = text[1..].bytes().take_while(u8::is_ascii_digit).count();
        if count == 0 {
            return "";
        }
        self.0 = &text[1 + count..];
        text[1..=count.min(9)].trim_end_matches('0')
    }

    /// `Z` or `±hh:mm`, and nothing after it.
    fn offset(&self) -> Option<String> {
        match self.0.as_bytes() {
            b"Z" | b"+00:00" | b"-00:00" => Some("Z".to_owned()),
            [b'+' | b'-', h1, h2, b':', m1, m2]
                if [h1, h2, m1, m2].iter().all(|b| b.is_ascii_digit())
                    && self.0[1..3] <= *"24"
                    && self.0[4..6] <= *"60" =>
            {
                Some(self.0.to_owned())
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::to_rfc3339;

    #[test]
    fn reads_the_forms_of_go_yaml() {
        for (text, wanted) in [
            ("2020-01-02", Some("2020-01-02T00:00:00Z")),
            ("2020-1-2", Some("2020-01-02T00:00:00Z")),
            ("2020-01-02 03:04:05", Some("2020-01-02T03:04:05Z")),
            ("2001-12-14t21:59:43.10-05:00", Some("2001-12-14T21:59:43.1-05:00")),
            ("2001-12-14T21:59:43+00:00", Some("2001-12-14T21:59:43Z")),
            ("2020-01-02T03:04:05.123456789123Z", Some("2020-01-02T03:04:05.123456789Z")),
            ("2020-01-02T03:04:05.000Z", Some("2020-01-02T03:04:05Z")),
            ("2020-02-29", Some("2020-02-29T00:00:00Z")),
            ("2021-02-29", None),
            ("2020-13-01", None),
            ("2020-01-00", None),
            ("2001-12-14 21:59:43.10 -5", None),
            ("2020-01-02T03:04:05", None),
            ("2020-01-02T24:00:00Z", None),
            ("20200-01-02", None),
            ("2020-01-02x", None),
            ("2020-", None),
        ] {
            assert_eq!(to_rfc3339(text).as_deref(), wanted, "{text}");
        }
    }
}
