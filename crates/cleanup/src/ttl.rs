//! Values of the TTL label: `30s`, `2weeks`, `2030-01-02`, `2030-01-02T150405Z`.

use std::fmt;

use kiln_text::{Duration, Time};

/// The label that says when its object is to be deleted.
pub const TTL_LABEL: &str = "cleanup.kyverno.io/ttl";
/// The annotation that says what becomes of what the object owns.
pub const PROPAGATION_ANNOTATION: &str = "cleanup.kyverno.io/propagation-policy";

/// When an object with the label is to be deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ttl {
    /// So many seconds after it was created.
    AfterCreation(i64),
    /// At this time, in seconds since 1970.
    At(i64),
}

/// Why a text is not a time to live.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseTtlError(String);

impl fmt::Display for ParseTtlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ParseTtlError {}

const MINUTE: i64 = 60;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;
const NANOS: i64 = 1_000_000_000;

/// Units with what one of them is, in nanoseconds.
const UNITS: [(&[&str], i64); 8] = [
    (&["ns"], 1),
    (&["us"], 1_000),
    (&["ms"], 1_000_000),
    (&["s", "sec", "secs", "second", "seconds"], NANOS),
    (&["m", "min", "mins", "minute", "minutes"], MINUTE * NANOS),
    (&["h", "hr", "hrs", "hour", "hours"], HOUR * NANOS),
    (&["d", "day", "days"], DAY * NANOS),
    (&["w", "wk", "wks", "week", "weeks"], 7 * DAY * NANOS),
];

impl Ttl {
    /// Reads the value of the label.
    ///
    /// # Errors
    /// When it is neither a duration nor a time.
    pub fn parse(text: &str) -> Result<Self, ParseTtlError> {
        // Kyverno: the first form that fits counts. Unlike there, the whole value must fit: `release-2h` is none.
        if let Some(nanos) = Duration::parse(text).ok().map(Duration::as_nanos).or(summed(text)) {
            return match nanos {
                0.. => Ok(Ttl::AfterCreation(nanos / NANOS)),
                _ => Err(ParseTtlError(format!("the duration {text:?} is negative"))),
            };
        }
        for layout in ["2006-01-02T150405Z", "2006-01-02"] {
            if let Ok(time) = Time::parse(layout, text) {
                return Ok(Ttl::At(time.unix()));
            }
        }
        let message = format!(
            "{text:?} is neither a duration such as 4h or 2weeks nor a time such as 2030-01-02 or 2030-01-02T150405Z"
        );
        Err(ParseTtlError(message))
    }

    /// When an object is due that was created at a time, in seconds since 1970.
    pub fn due(self, created: i64) -> i64 {
        match self {
            // Kyverno: from its creation, not from when it got the label.
            Ttl::AfterCreation(seconds) => created.saturating_add(seconds),
            Ttl::At(time) => time,
        }
    }
}

/// Numbers with units, added up; none when something else is there, or it is too much.
fn summed(text: &str) -> Option<i64> {
    let mut rest = text;
    let mut sum: i64 = 0;
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let number: i64 = rest.get(..digits)?.parse().ok()?;
        rest = rest.get(digits..)?;
        let letters = rest.bytes().take_while(u8::is_ascii_alphabetic).count();
        let unit = rest.get(..letters)?;
        rest = rest.get(letters..)?;
        let (_, nanos) = UNITS.iter().find(|(names, _)| names.contains(&unit))?;
        sum = sum.checked_add(number.checked_mul(*nanos)?)?;
    }
    (!text.is_empty()).then_some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_count_from_creation_and_times_do_not() {
        let midnight = Time::parse_rfc3339("2030-01-02T00:00:00Z").unwrap().unix();
        for (text, expected) in [
            ("0s", Ttl::AfterCreation(0)),
            ("30s", Ttl::AfterCreation(30)),
            ("1500ms", Ttl::AfterCreation(1)),
            ("1h30m", Ttl::AfterCreation(5_400)),
            ("720h0m0s", Ttl::AfterCreation(30 * DAY)),
            ("4hours", Ttl::AfterCreation(4 * HOUR)),
            ("1d", Ttl::AfterCreation(DAY)),
            ("2weeks", Ttl::AfterCreation(14 * DAY)),
            ("1w2d3hr4min5sec", Ttl::AfterCreation(9 * DAY + 3 * HOUR + 4 * MINUTE + 5)),
            ("2030-01-02", Ttl::At(midnight)),
            ("2030-01-02T150405Z", Ttl::At(midnight + 15 * HOUR + 4 * MINUTE + 5)),
        ] {
            assert_eq!(Ttl::parse(text), Ok(expected), "{text}");
        }
        assert_eq!(Ttl::AfterCreation(30).due(100), 130);
        assert_eq!(Ttl::At(30).due(100), 30);
        assert_eq!(Ttl::AfterCreation(i64::MAX).due(100), i64::MAX);
    }

    #[test]
    fn the_whole_value_must_fit() {
        for text in [
            "",
            "10ay",
            "10",
            "s",
            "release-2h",
            "2h-release",
            "1y",
            "2030-13-01",
            "2030-01-02T15",
            "-5s",
            "99999999999999999999d",
            "2030-01-02T15:04:05Z",
            "1 d",
        ] {
            assert!(Ttl::parse(text).is_err(), "{text:?}");
        }
    }
}
