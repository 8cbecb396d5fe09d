//! Points in time as Go's `time` package reads and prints them.
//!
//! A [`Time`] is an instant and the zone it is shown in. Layouts are Go's: the reference time
//! `Mon Jan 2 15:04:05 MST 2006` written as the text should look. There is no clock and no zone
//! database here: callers pass the current time in, and the local zone is UTC, as in a
//! container. So zone abbreviations other than UTC have the offset 0.

mod civil;
mod format;
mod layout;
mod parse;

use std::cmp::Ordering;
use std::fmt;

use smol_str::SmolStr;

use crate::duration::Duration;

pub use civil::Date;
pub use layout::named;
pub use parse::ParseTimeError;

/// Seconds from the zero time, the start of year 1, to the start of 1970.
const ZERO_TO_UNIX: i64 = 62_135_596_800;
/// Seconds either way that stay far from overflow; more than two billion years.
const MAX_SECONDS: i64 = 1 << 56;
const NANOS: i64 = 1_000_000_000;

/// An instant and the zone it is shown in. Equality and order are those of the instants.
#[derive(Clone, Debug)]
pub struct Time {
    /// Seconds since the start of 1970 in UTC.
    seconds: i64,
    nanos: u32,
    zone: Zone,
}

/// A fixed distance from UTC, with a name if the text gave one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Zone {
    offset: i32,
    name: SmolStr,
}

impl Zone {
    /// Universal time.
    pub const UTC: Zone = Zone { offset: 0, name: SmolStr::new_static("UTC") };

    /// A zone east of UTC by so many seconds; names are free and may be empty.
    pub fn fixed(name: &str, offset: i32) -> Self {
        Zone { offset, name: SmolStr::new(name) }
    }

    /// Seconds east of UTC.
    pub fn offset(&self) -> i32 {
        self.offset
    }

    /// The abbreviation, or nothing.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl Time {
    /// The instant so many seconds after the start of 1970, shown in UTC; `None` beyond two billion
    /// years.
    pub fn from_unix(seconds: i64, nanos: u32) -> Option<Self> {
        let seconds = seconds.checked_add(i64::from(nanos) / NANOS)?;
        let nanos = nanos % 1_000_000_000;
        let within = (-MAX_SECONDS..=MAX_SECONDS).contains(&seconds);
        within.then_some(Time { seconds, nanos, zone: Zone::UTC })
    }

    /// Reads a time by a Go layout.
    ///
    /// # Errors
    /// With Go's text, naming the part of the text and of the layout.
    pub fn parse(layout: &str, text: &str) -> Result<Self, ParseTimeError> {
        parse::parse(layout, text)
    }

    /// Reads an RFC 3339 time as Go does: also with a fraction, after a point or a comma.
    ///
    /// # Errors
    /// With Go's text.
    pub fn parse_rfc3339(text: &str) -> Result<Self, ParseTimeError> {
        Time::parse(named::RFC3339, text)
    }

    /// Prints by a Go layout.
    pub fn format(&self, layout: &str) -> String {
        format::format(self, layout)
    }

    /// Prints as RFC 3339 without a fraction.
    pub fn rfc3339(&self) -> String {
        self.format(named::RFC3339)
    }

    /// Prints as RFC 3339 with as many decimal places as needed.
    pub fn rfc3339_nano(&self) -> String {
        self.format(named::RFC3339_NANO)
    }

    /// Seconds since the start of 1970 in UTC.
    pub fn unix(&self) -> i64 {
        self.seconds
    }

    /// Nanoseconds within the second.
    pub fn nanosecond(&self) -> u32 {
        self.nanos
    }

    /// The zone it is shown in.
    pub fn zone(&self) -> &Zone {
        &self.zone
    }

    /// The same instant in UTC.
    #[must_use]
    pub fn utc(&self) -> Self {
        self.in_zone(Zone::UTC)
    }

    /// The same instant in another zone.
    #[must_use]
    pub fn in_zone(&self, zone: Zone) -> Self {
        Time { zone, ..self.clone() }
    }

    /// The date and the seconds of the day, as its zone shows them.
    fn local(&self) -> (Date, u32) {
        let seconds = self.seconds + i64::from(self.zone.offset);
        let of_day = u32::try_from(seconds.rem_euclid(86_400)).unwrap_or(0);
        (Date::from_days(seconds.div_euclid(86_400)), of_day)
    }

    /// The date in its zone.
    pub fn date(&self) -> Date {
        self.local().0
    }

    /// The hour in its zone, 0 to 23.
    pub fn hour(&self) -> u32 {
        self.local().1 / 3600
    }

    /// The minute in its zone.
    pub fn minute(&self) -> u32 {
        self.local().1 / 60 % 60
    }

    /// The second in its zone.
    pub fn second(&self) -> u32 {
        self.local().1 % 60
    }

    /// The time that much later, in the same zone; `None` beyond two billion years.
    pub fn checked_add(&self, duration: Duration) -> Option<Self> {
        let nanos = i64::from(self.nanos) + duration.as_nanos().rem_euclid(NANOS);
        let seconds = self.seconds + duration.as_nanos().div_euclid(NANOS) + nanos / NANOS;
        let later = Time::from_unix(seconds, u32::try_from(nanos % NANOS).ok()?)?;
        Some(later.in_zone(self.zone.clone()))
    }

    /// How much later it is than another time, at most about 292 years either way.
    pub fn since(&self, earlier: &Time) -> Duration {
        let seconds = i128::from(self.seconds) - i128::from(earlier.seconds);
        let nanos = i128::from(self.nanos) - i128::from(earlier.nanos);
        let nanos = seconds * i128::from(NANOS) + nanos;
        let limit = if nanos < 0 { Duration::MIN } else { Duration::MAX };
        i64::try_from(nanos).map_or(limit, Duration::from_nanos)
    }

    /// Rounds down to a multiple of `unit` since the zero time (not since midnight in its zone);
    /// unchanged unless `unit` is positive.
    #[must_use]
    pub fn truncate(&self, unit: Duration) -> Self {
        if unit <= Duration::ZERO {
            return self.clone();
        }
        let since_zero =
            i128::from(self.seconds + ZERO_TO_UNIX) * i128::from(NANOS) + i128::from(self.nanos);
        let surplus = since_zero.rem_euclid(i128::from(unit.as_nanos()));
        let surplus = i64::try_from(surplus).ok().and_then(i64::checked_neg);
        surplus
            .and_then(|nanos| self.checked_add(Duration::from_nanos(nanos)))
            .unwrap_or(self.clone())
    }

    /// The cron schedule that names this minute of the year: minute, hour, day, month, weekday.
    pub fn to_cron(&self) -> String {
        let date = self.date();
        let (minute, hour) = (self.minute(), self.hour());
        format!("{minute} {hour} {} {} {}", date.day, date.month, date.weekday())
    }
}

impl PartialEq for Time {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Time {}

impl PartialOrd for Time {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Time {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.seconds, self.nanos).cmp(&(other.seconds, other.nanos))
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.rfc3339_nano())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::duration;

    fn t(text: &str) -> Time {
        Time::parse_rfc3339(text).unwrap_or_else(|e| panic!("{e}"))
    }

    #[test]
    fn arithmetic_keeps_the_zone() {
        let time = t("2023-06-15T10:00:00+02:00");
        let later = time.checked_add(Duration::parse("36h30m").unwrap()).unwrap();
        assert_eq!(later.rfc3339(), "2023-06-16T22:30:00+02:00");
        assert_eq!(later.utc().rfc3339(), "2023-06-16T20:30:00Z");
        assert_eq!(later.since(&time).to_string(), "36h30m0s");
        let before = time.checked_add(Duration::from_nanos(-1)).unwrap();
        assert_eq!(before.rfc3339_nano(), "2023-06-15T09:59:59.999999999+02:00");
        assert!(before < time);
        assert_eq!(time, t("2023-06-15T08:00:00Z"));
    }

    #[test]
    fn spans_saturate() {
        let (first, last) = (t("0001-01-01T00:00:00Z"), t("9999-12-31T23:59:59Z"));
        assert_eq!(last.since(&first), Duration::MAX);
        assert_eq!(first.since(&last), Duration::MIN);
        assert!(Time::from_unix(i64::MAX, 0).is_none());
    }

    #[test]
    fn truncation_counts_from_the_zero_time() {
        for (time, unit, truncated) in [
            ("2023-06-15T10:47:13.5+02:00", duration::HOUR, "2023-06-15T10:00:00+02:00"),
            ("2023-06-15T10:47:13+05:30", duration::HOUR, "2023-06-15T10:30:00+05:30"),
            ("2023-06-15T10:47:13Z", Duration::ZERO, "2023-06-15T10:47:13Z"),
            ("2023-06-15T10:47:13Z", Duration::parse("24h").unwrap(), "2023-06-15T00:00:00Z"),
            ("0000-06-15T10:47:13Z", duration::MINUTE, "0000-06-15T10:47:00Z"),
        ] {
            assert_eq!(t(time).truncate(unit).rfc3339(), truncated, "{time}");
        }
    }

    #[test]
    fn cron_is_in_the_zone_of_the_time() {
        assert_eq!(t("2023-06-18T23:05:00+02:00").to_cron(), "5 23 18 6 0");
    }
}
