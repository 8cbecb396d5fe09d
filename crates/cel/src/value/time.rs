//! Timestamps and durations as CEL reads and prints them.

use std::cmp::Ordering;
use std::fmt;

use jiff::SignedDuration;
use jiff::tz::{TimeZone, TimeZoneDatabase};

use kiln_text::time::Zone;
use kiln_text::{Duration, Time};

use crate::error::{EvalFailure, failure};

/// A moment between the years 1 and 9999, to the nanosecond.
#[derive(Clone, Copy, Debug)]
pub struct Timestamp {
    seconds: i64,
    nanos: u32,
    /// The offset from UTC that it was written with, which its text keeps and nothing else sees.
    offset: i32,
}

impl PartialEq for Timestamp {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Timestamp {}

impl PartialOrd for Timestamp {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Timestamp {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.seconds, self.nanos).cmp(&(other.seconds, other.nanos))
    }
}

/// The first and the last second that a timestamp can name.
const EARLIEST: i64 = -62_135_596_800;
const LATEST: i64 = 253_402_300_799;
const NANOS: i128 = 1_000_000_000;

impl Timestamp {
    /// A moment in seconds since 1970; `None` outside the years 1 to 9999.
    pub fn new(seconds: i64, nanos: u32) -> Option<Self> {
        let valid = (EARLIEST..=LATEST).contains(&seconds) && i128::from(nanos) < NANOS;
        valid.then_some(Timestamp { seconds, nanos, offset: 0 })
    }

    /// Whole seconds since 1970, rounded down.
    pub fn seconds(self) -> i64 {
        self.seconds
    }

    /// Nanoseconds after [`Timestamp::seconds`].
    pub fn nanos(self) -> u32 {
        self.nanos
    }

    fn total_nanos(self) -> i128 {
        i128::from(self.seconds) * NANOS + i128::from(self.nanos)
    }

    /// Another moment, written with the same offset.
    fn at_total_nanos(self, total: i128) -> Option<Self> {
        let seconds = i64::try_from(total.div_euclid(NANOS)).ok()?;
        let nanos = u32::try_from(total.rem_euclid(NANOS)).ok()?;
        Some(Timestamp { offset: self.offset, ..Timestamp::new(seconds, nanos)? })
    }

    pub(crate) fn checked_add(self, duration: Duration) -> Option<Self> {
        self.at_total_nanos(self.total_nanos() + i128::from(duration.as_nanos()))
    }

    pub(crate) fn checked_sub(self, duration: Duration) -> Option<Self> {
        self.at_total_nanos(self.total_nanos() - i128::from(duration.as_nanos()))
    }

    pub(crate) fn since(self, earlier: Timestamp) -> Option<Duration> {
        let nanos = self.total_nanos() - earlier.total_nanos();
        i64::try_from(nanos).ok().map(Duration::from_nanos)
    }

    /// Rounds down to a multiple of the unit since the year 1, as Go's `Truncate` does.
    pub(crate) fn truncate(self, unit: Duration) -> Option<Self> {
        Timestamp::from_time(&self.written()?.truncate(unit))
    }

    /// Reads RFC 3339 text.
    pub fn parse(text: &str) -> Option<Self> {
        Timestamp::from_time(&Time::parse_rfc3339(text).ok()?)
    }

    fn from_time(time: &Time) -> Option<Self> {
        let offset = time.zone().offset();
        Some(Timestamp { offset, ..Timestamp::new(time.unix(), time.nanosecond())? })
    }

    /// The moment with the offset that it was written with.
    pub(crate) fn written(self) -> Option<Time> {
        let time = self.time()?;
        Some(if self.offset == 0 { time } else { time.in_zone(Zone::fixed("", self.offset)) })
    }

    /// The text of the moment, with the offset that it was written with.
    pub(crate) fn text(self) -> Result<String, EvalFailure> {
        let time = self.written().ok_or_else(|| failure("timestamp overflow"))?;
        Ok(time.rfc3339_nano())
    }

    /// The moment in UTC.
    pub(crate) fn time(self) -> Option<Time> {
        Time::from_unix(self.seconds, self.nanos)
    }

    /// The moment on the calendar and clock of a time zone: a name, an offset such as `-02:30`, or
    /// UTC.
    pub(crate) fn in_zone(self, zone: Option<&str>) -> Result<Time, EvalFailure> {
        let time = self.time().ok_or_else(|| failure("timestamp overflow"))?;
        match zone {
            None | Some("" | "UTC") => Ok(time),
            Some(name) => Ok(time.in_zone(Zone::fixed(name, self.offset_in(&time_zone(name)?)))),
        }
    }

    fn offset_in(self, zone: &TimeZone) -> i32 {
        // The last hours of the year 9999 are beyond the reach of the time zone library.
        let last = jiff::Timestamp::MAX.as_second();
        let moment = jiff::Timestamp::from_second(self.seconds.min(last));
        moment.map_or(0, |moment| zone.to_offset(moment).seconds())
    }
}

fn time_zone(name: &str) -> Result<TimeZone, EvalFailure> {
    let unknown = || failure(format!("unknown time zone {name}"));
    if let Some((hours, minutes)) = name.split_once(':') {
        let (sign, hours) = match hours.strip_prefix('-') {
            Some(rest) => (-1, rest),
            None => (1, hours.strip_prefix('+').unwrap_or(hours)),
        };
        let number = |text: &str| match text.len() {
            1 | 2 => text.parse::<u8>().ok(),
            _ => None,
        };
        let hours = number(hours).ok_or_else(unknown)?;
        let minutes = number(minutes).filter(|minutes| *minutes < 60).ok_or_else(unknown)?;
        let seconds = sign * (i64::from(hours) * 3600 + i64::from(minutes) * 60);
        let offset = jiff::tz::Offset::try_from(SignedDuration::from_secs(seconds));
        return offset.map(TimeZone::fixed).map_err(|_| unknown());
    }
    // The names are compiled in: an expression must not read files of the machine it runs on.
    TimeZoneDatabase::bundled().get(name).map_err(|_| unknown())
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.time() {
            Some(time) => f.write_str(&time.rfc3339_nano()),
            None => Err(fmt::Error),
        }
    }
}

/// A duration as protobuf's JSON form has it: seconds, with as many decimals as needed.
pub(crate) fn format_duration(duration: Duration) -> String {
    let nanos = duration.as_nanos();
    let (whole, fraction) = (nanos / 1_000_000_000, (nanos % 1_000_000_000).unsigned_abs());
    let sign = if nanos < 0 && whole == 0 { "-" } else { "" };
    if fraction == 0 {
        return format!("{sign}{whole}s");
    }
    let digits = format!("{fraction:09}");
    format!("{sign}{whole}.{}s", digits.trim_end_matches('0'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_print_as_they_were_read() {
        for text in [
            "2009-02-13T23:31:30Z",
            "9999-12-31T23:59:59.999999999Z",
            "0001-01-01T00:00:00Z",
            "2000-02-29T12:00:00.5Z",
            "1900-03-01T00:00:00Z",
        ] {
            assert_eq!(Timestamp::parse(text).unwrap().to_string(), text);
        }
        assert_eq!(
            Timestamp::parse("2023-02-03T23:31:20+02:00").unwrap().to_string(),
            "2023-02-03T21:31:20Z"
        );
        for text in ["2023-02-03T23:31:20.5+02:00", "2023-02-03T23:31:20-02:30"] {
            assert_eq!(Timestamp::parse(text).unwrap().text().unwrap(), text);
        }
        for bad in [
            "0000-01-01T00:00:00Z",
            "10000-01-01T00:00:00Z",
            "2009-02-13",
            "2009-02-13 23:31:30Z",
            "2009-02-29T00:00:00Z",
            "2009-02-13T23:31:30",
            "2009-02-13T23:31:30.Z",
            "",
        ] {
            assert_eq!(Timestamp::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn durations_print_in_seconds() {
        for (nanos, text) in [
            (0, "0s"),
            (1_500_000_000, "1.5s"),
            (-500_000_000, "-0.5s"),
            (-1_000_000_001, "-1.000000001s"),
            (3_600_000_000_000, "3600s"),
        ] {
            assert_eq!(format_duration(Duration::from_nanos(nanos)), text);
        }
    }
}
