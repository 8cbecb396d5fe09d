//! Cron schedules: `*/5 * * * *`, `@daily`, `@every 90s`.
//!
//! Five fields (minute, hour, day of the month, month, day of the week) in UTC, the usual names for whole schedules, and
//! `@every` with a Go duration. Kyverno reads schedules with two parsers that disagree: what only one of them takes
//! (seconds, years, `L`, `W`, `#`, time zones) is refused with its place in the text, so that no schedule is stored that
//! never runs.

use std::fmt;
use std::ops::Range;

use crate::duration::{Duration, SECOND};
use crate::time::Date;

/// When something is to happen, again and again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule(Times);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Times {
    Fields(CronFields),
    /// So many seconds after the last time.
    Every(i64),
}

/// The values that each field takes, as sets of bits.
#[derive(Clone, Debug, PartialEq, Eq)]
struct CronFields {
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
    /// Both fields for days are restricted: one that takes the day will do.
    either_day: bool,
}

/// Why a text is not a schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseScheduleError {
    /// What is wrong.
    pub message: String,
    /// Which part of the text is meant, in bytes.
    pub at: Range<usize>,
}

impl fmt::Display for ParseScheduleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, at character {}", self.message, self.at.start + 1)
    }
}

impl std::error::Error for ParseScheduleError {}

/// A field: what it is called, its lowest and highest value, and names for values.
struct FieldRange {
    name: &'static str,
    low: u32,
    high: u32,
    words: &'static [&'static str],
    /// `?` stands for any value.
    takes_question_mark: bool,
}

const MONTHS: [&str; 12] =
    ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const WEEKDAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

const FIELDS: [FieldRange; 5] = [
    FieldRange { name: "minute", low: 0, high: 59, words: &[], takes_question_mark: false },
    FieldRange { name: "hour", low: 0, high: 23, words: &[], takes_question_mark: false },
    FieldRange {
        name: "day of the month",
        low: 1,
        high: 31,
        words: &[],
        takes_question_mark: true,
    },
    FieldRange { name: "month", low: 1, high: 12, words: &MONTHS, takes_question_mark: false },
    // 7 is Sunday as well.
    FieldRange {
        name: "day of the week",
        low: 0,
        high: 7,
        words: &WEEKDAYS,
        takes_question_mark: true,
    },
];

/// Names for whole schedules.
const NAMES: [(&str, &str); 7] = [
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
    ("@monthly", "0 0 1 * *"),
    ("@weekly", "0 0 * * 0"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@hourly", "0 * * * *"),
];

const DAY: i64 = 86_400;
/// A leap day comes within eight years, also around a year without one; every other date within one.
const LONGEST_WAIT: i64 = 8 * 366 + 1;

impl Schedule {
    /// Reads a schedule.
    ///
    /// # Errors
    /// What is wrong with it, and where.
    pub fn parse(text: &str) -> Result<Self, ParseScheduleError> {
        let words = words(text);
        let Some((first, start)) = words.first().copied() else {
            return Err(error("the schedule is empty", 0..text.len()));
        };
        if first.starts_with('@') {
            return named(text, &words).map(Schedule);
        }
        if first.starts_with("TZ=") || first.starts_with("CRON_TZ=") {
            let message = "schedules are in UTC, and name no time zone";
            return Err(error(message, start..start + first.len()));
        }
        let [minutes, hours, days, months, weekdays] = words.as_slice() else {
            let at = match words.get(5) {
                Some((word, at)) => *at..at + word.len(),
                None => text.trim_end().len()..text.len(),
            };
            let message = format!(
                "a schedule has five fields (minute, hour, day of the month, month, day of the week), and not {}",
                words.len()
            );
            return Err(error(message, at));
        };
        let set = |number: usize, word: &(&str, usize)| set(&FIELDS[number], *word);
        let (minutes, _) = set(0, minutes)?;
        let (hours, _) = set(1, hours)?;
        let (days, any_day) = set(2, days)?;
        let (months, _) = set(3, months)?;
        let (weekdays, any_weekday) = set(4, weekdays)?;
        // Sunday has two numbers.
        let weekdays = (weekdays & 0x7f) | (weekdays >> 7 & 1);
        let either_day = !any_day && !any_weekday;
        Ok(Schedule(Times::Fields(CronFields {
            minutes,
            hours,
            days,
            months,
            weekdays,
            either_day,
        })))
    }

    /// The first time after one, in seconds since 1970; none if there is none, as on a 30th of February.
    pub fn next(&self, after: i64) -> Option<i64> {
        match &self.0 {
            Times::Every(seconds) => after.checked_add(*seconds),
            Times::Fields(fields) => fields.next(after),
        }
    }
}

impl CronFields {
    fn next(&self, after: i64) -> Option<i64> {
        let first = after.div_euclid(60).checked_add(1)?.checked_mul(60)?;
        let (day, rest) = (first.div_euclid(DAY), first.rem_euclid(DAY));
        for day in day..=day + LONGEST_WAIT {
            if !self.takes(Date::from_days(day)) {
                continue;
            }
            let begin = if day == first.div_euclid(DAY) { rest / 60 } else { 0 };
            let time = (begin..DAY / 60)
                .find(|minute| has(self.hours, minute / 60) && has(self.minutes, minute % 60));
            if let Some(minute) = time {
                return day.checked_mul(DAY)?.checked_add(minute * 60);
            }
        }
        None
    }

    fn takes(&self, date: Date) -> bool {
        let (day, weekday) =
            (has(self.days, date.day.into()), has(self.weekdays, date.weekday().into()));
        has(self.months, date.month.into())
            && if self.either_day { day || weekday } else { day && weekday }
    }
}

fn has(set: u64, value: i64) -> bool {
    set >> value & 1 == 1
}

fn error(message: impl Into<String>, at: Range<usize>) -> ParseScheduleError {
    ParseScheduleError { message: message.into(), at }
}

/// The words of a text, and where they begin.
fn words(text: &str) -> Vec<(&str, usize)> {
    let begins = |word: &str| word.as_ptr() as usize - text.as_ptr() as usize;
    text.split_ascii_whitespace().map(|word| (word, begins(word))).collect()
}

fn named(text: &str, words: &[(&str, usize)]) -> Result<Times, ParseScheduleError> {
    let whole = words[0].1..text.trim_end().len();
    match words {
        [("@every", _), (duration, at)] => {
            let part = *at..at + duration.len();
            let parsed = Duration::parse(duration)
                .map_err(|wrong| error(wrong.to_string(), part.clone()))?;
            if parsed <= Duration::ZERO {
                return Err(error("the time between two runs must be positive", part));
            }
            // As the parser that Kyverno admits it by: whole seconds, and at least one.
            Ok(Times::Every((parsed.as_nanos() / SECOND.as_nanos()).max(1)))
        }
        [("@every", _), ..] => {
            Err(error("write @every with one duration, such as @every 90s", whole))
        }
        [(name, _)] => match NAMES.iter().find(|(known, _)| known == name) {
            Some((_, fields)) => Schedule::parse(fields).map(|schedule| schedule.0),
            None => {
                let known: Vec<&str> = NAMES.iter().map(|(known, _)| *known).collect();
                let known = known.join(", ");
                Err(error(format!("{name:?} is not one of {known} and @every"), whole))
            }
        },
        _ => Err(error("nothing may stand behind the name of a schedule", whole)),
    }
}

/// The values of a field, and whether these are all of them.
fn set(
    field: &FieldRange,
    (word, start): (&str, usize),
) -> Result<(u64, bool), ParseScheduleError> {
    let mut all = 0;
    let mut any = false;
    let mut at = start;
    for entry in word.split(',') {
        let (values, every) = entry_values(field, entry, at)?;
        all |= values;
        any |= every;
        at += entry.len() + 1;
    }
    Ok((all, any))
}

fn entry_values(
    field: &FieldRange,
    entry: &str,
    start: usize,
) -> Result<(u64, bool), ParseScheduleError> {
    let whole = start..start + entry.len();
    let (range, step) = match entry.split_once('/') {
        Some((range, step)) => {
            let at = start + range.len() + 1;
            let number: u32 = digits(step).ok_or_else(|| {
                error(
                    format!("the step {step:?} of the {} is not a number", field.name),
                    at..whole.end,
                )
            })?;
            if number == 0 || number > field.high - field.low {
                let message = format!(
                    "the step {number} of the {} is not in 1-{}",
                    field.name,
                    field.high - field.low
                );
                return Err(error(message, at..whole.end));
            }
            (range, Some(number))
        }
        None => (entry, None),
    };
    let any = range == "*" || (range == "?" && field.takes_question_mark);
    let (low, high) = if any {
        (field.low, field.high)
    } else if let Some((low, high)) = range.split_once('-') {
        let at = start + low.len() + 1;
        let (first, last) = (value(field, low, start)?, value(field, high, at)?);
        if first > last {
            let message = format!("the range {range} of the {} ends before it begins", field.name);
            return Err(error(message, start..start + range.len()));
        }
        (first, last)
    } else {
        let first = value(field, range, start)?;
        // `3/5` is `3-59/5`.
        (first, if step.is_some() { field.high } else { first })
    };
    let step_by = step.unwrap_or(1) as usize;
    let values = (low..=high).step_by(step_by).fold(0, |all, value| all | 1 << value);
    Ok((values, any && step_by == 1))
}

fn value(field: &FieldRange, text: &str, start: usize) -> Result<u32, ParseScheduleError> {
    let at = start..start + text.len();
    let word = field.words.iter().position(|word| word.eq_ignore_ascii_case(text));
    if let Some(word) = word {
        return Ok(field.low + u32::try_from(word).unwrap_or(0));
    }
    let (low, high) = (field.low, field.high);
    match digits(text) {
        Some(number) if (low..=high).contains(&number) => Ok(number),
        Some(number) => {
            Err(error(format!("the {} {number} is not in {low}-{high}", field.name), at))
        }
        None => Err(error(format!("{text:?} is not a {}", field.name), at)),
    }
}

/// A number of digits alone; signs are none.
fn digits(text: &str) -> Option<u32> {
    (!text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()))
        .then(|| text.parse().ok())
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Time;

    fn unix(text: &str) -> i64 {
        Time::parse_rfc3339(text).unwrap().unix()
    }

    fn next(schedule: &str, after: &str) -> Option<String> {
        let schedule = Schedule::parse(schedule).unwrap();
        let time = schedule.next(unix(after))?;
        Some(Time::from_unix(time, 0).unwrap().rfc3339())
    }

    #[test]
    fn the_next_time_is_the_first_one_after() {
        for (schedule, after, expected) in [
            ("* * * * *", "2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z"),
            ("* * * * *", "2026-01-01T00:00:59Z", "2026-01-01T00:01:00Z"),
            ("*/5 * * * *", "2026-01-01T00:57:10Z", "2026-01-01T01:00:00Z"),
            ("3/20 * * * *", "2026-01-01T00:23:00Z", "2026-01-01T00:43:00Z"),
            ("10-20/5 1,3 * * *", "2026-01-01T01:20:00Z", "2026-01-01T03:10:00Z"),
            ("0 1 * * *", "2026-12-31T01:00:00Z", "2027-01-01T01:00:00Z"),
            ("0 0 31 * *", "2026-01-31T00:00:00Z", "2026-03-31T00:00:00Z"),
            ("0 0 29 FEB *", "2097-01-01T00:00:00Z", "2104-02-29T00:00:00Z"),
            ("0 0 * jan-mar Mon", "2026-03-31T00:00:00Z", "2027-01-04T00:00:00Z"),
            ("0 0 * * 7", "2026-11-18T00:00:00Z", "2026-11-22T00:00:00Z"),
            ("0 0 ? * 0", "2026-11-18T00:00:00Z", "2026-11-22T00:00:00Z"),
            // One of two restricted days will do; a star, or all steps of one, restricts nothing.
            ("0 0 13 * fri", "2026-11-13T00:00:00Z", "2026-11-20T00:00:00Z"),
            ("0 0 */2 * fri", "2026-11-18T00:00:00Z", "2026-11-19T00:00:00Z"),
            ("0 0 */1 * fri", "2026-11-18T00:00:00Z", "2026-11-20T00:00:00Z"),
            ("0 0 13 * *", "2026-11-13T00:00:00Z", "2026-12-13T00:00:00Z"),
            ("  @hourly ", "2026-01-01T00:00:00Z", "2026-01-01T01:00:00Z"),
            ("@daily", "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"),
            ("@midnight", "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"),
            ("@weekly", "2026-11-18T00:00:00Z", "2026-11-22T00:00:00Z"),
            ("@monthly", "2026-11-18T00:00:00Z", "2026-12-01T00:00:00Z"),
            ("@yearly", "2026-11-18T00:00:00Z", "2027-01-01T00:00:00Z"),
            ("@annually", "2026-11-18T00:00:00Z", "2027-01-01T00:00:00Z"),
            ("@every 90s", "2026-01-01T00:00:05Z", "2026-01-01T00:01:35Z"),
            ("@every 10ms", "2026-01-01T00:00:05Z", "2026-01-01T00:00:06Z"),
        ] {
            assert_eq!(
                next(schedule, after).as_deref(),
                Some(expected),
                "{schedule} after {after}"
            );
        }
        assert_eq!(next("0 0 30 2 *", "2026-01-01T00:00:00Z"), None);
    }

    #[test]
    fn a_time_is_never_passed_over_and_never_in_the_past() {
        let schedule = Schedule::parse("7,43 2-4 1,15 */3 1-5").unwrap();
        let fields = match &schedule.0 {
            Times::Fields(fields) => fields.clone(),
            Times::Every(_) => unreachable!(),
        };
        let (begin, end) = (unix("2026-01-01T00:00:00Z"), unix("2026-05-01T00:00:00Z"));
        let mut expected = Vec::new();
        for minute in begin / 60..end / 60 {
            let time = minute * 60;
            let taken = fields.takes(Date::from_days(time.div_euclid(DAY)))
                && has(fields.hours, time.rem_euclid(DAY) / 3600)
                && has(fields.minutes, minute % 60);
            expected.extend(taken.then_some(time));
        }
        let mut found = Vec::new();
        let mut time = begin - 1;
        while let Some(next) = schedule.next(time).filter(|next| *next < end) {
            assert!(next > time);
            found.push(next);
            time = next;
        }
        assert_eq!(found, expected);
        assert!(expected.len() > 100);
    }

    #[test]
    fn what_is_wrong_is_named_with_its_place() {
        for (text, at, message) in [
            ("", 0..0, "the schedule is empty"),
            ("invalid-schedule", 16..16, "a schedule has five fields"),
            ("* * * *", 7..7, "and not 4"),
            ("* * * * * 2027", 10..14, "and not 6"),
            ("0 * * * * * 2027", 10..11, "and not 7"),
            ("60 * * * *", 0..2, "the minute 60 is not in 0-59"),
            ("1,x * * * *", 2..3, "\"x\" is not a minute"),
            ("* 4-30 * * *", 4..6, "the hour 30 is not in 0-23"),
            ("* * 0 * *", 4..5, "the day of the month 0 is not in 1-31"),
            ("* * L * *", 4..5, "\"L\" is not a day of the month"),
            ("* * 15W * *", 4..7, "\"15W\" is not a day of the month"),
            ("* * * * 5#3", 8..11, "\"5#3\" is not a day of the week"),
            ("* * * 13 *", 6..8, "the month 13 is not in 1-12"),
            ("* * * dec-jan *", 6..13, "ends before it begins"),
            ("*/0 * * * *", 2..3, "the step 0 of the minute is not in 1-59"),
            ("*/x * * * *", 2..3, "the step \"x\" of the minute is not a number"),
            ("? * * * *", 0..1, "\"?\" is not a minute"),
            ("+5 * * * *", 0..2, "\"+5\" is not a minute"),
            ("TZ=UTC * * * * *", 0..6, "name no time zone"),
            ("CRON_TZ=UTC 0 0 * * *", 0..11, "name no time zone"),
            ("@reboot", 0..7, "is not one of @yearly"),
            ("@every", 0..6, "write @every with one duration"),
            ("@every 5", 7..8, "missing unit"),
            ("@every -5s", 7..10, "must be positive"),
            ("@daily x", 0..8, "nothing may stand behind"),
        ] {
            let wrong = Schedule::parse(text).unwrap_err();
            assert_eq!(wrong.at, at, "{text:?}: {wrong}");
            assert!(wrong.message.contains(message), "{text:?}: {wrong}");
        }
    }
}
