//! Reading times by layout.

use std::fmt;

use super::civil::{Date, is_leap};
use super::layout::{self, Element, MONTHS, OffsetForm, Pad, WEEKDAYS};
use super::{Time, Zone};
use crate::quote::go_time_quote;

/// Why a text does not fit a layout; prints Go's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseTimeError {
    layout: String,
    text: String,
    /// What is wrong, or which element of the layout the rest of the text does not fit.
    problem: Problem,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Problem {
    Mismatch { rest: Vec<u8>, element: Vec<u8> },
    Message(String),
}

impl fmt::Display for ParseTimeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = go_time_quote(self.text.as_bytes());
        match &self.problem {
            Problem::Mismatch { rest, element } => {
                let layout = go_time_quote(self.layout.as_bytes());
                let (rest, element) = (go_time_quote(rest), go_time_quote(element));
                write!(f, "parsing time {text} as {layout}: cannot parse {rest} as {element}")
            }
            Problem::Message(message) => write!(f, "parsing time {text}: {message}"),
        }
    }
}

impl std::error::Error for ParseTimeError {}

pub(super) fn parse(layout: &str, text: &str) -> Result<Time, ParseTimeError> {
    read(layout.as_bytes(), text.as_bytes()).map_err(|problem| ParseTimeError {
        layout: layout.to_owned(),
        text: text.to_owned(),
        problem,
    })
}

fn read(mut layout: &[u8], text: &[u8]) -> Result<Time, Problem> {
    let mut fields = TimeFields::default();
    let mut rest = text;
    loop {
        let next = layout::next(layout);
        let (at, length) = next.map_or((layout.len(), 0), |(at, _, length)| (at, length));
        let (plain, after) = layout.split_at(at);
        rest = skip(rest, plain)
            .map_err(|rest| Problem::Mismatch { rest: rest.to_vec(), element: plain.to_vec() })?;
        let Some((_, element, _)) = next else { break };
        let (name, after) = after.split_at(length);
        layout = after;
        let fraction_follows =
            matches!(layout::next(layout), Some((_, Element::Fraction { .. }, _)));
        let hold = rest;
        fields.read(element, &mut rest, fraction_follows).map_err(|bad| match bad {
            Bad::Value => Problem::Mismatch { rest: hold.to_vec(), element: name.to_vec() },
            Bad::Range(what) => Problem::Message(format!("{what} out of range")),
        })?;
    }
    if !rest.is_empty() {
        return Err(Problem::Message(format!("extra text: {}", go_time_quote(rest))));
    }
    fields.finish().map_err(|problem| Problem::Message(problem.to_owned()))
}

enum Bad {
    /// The text does not fit the element.
    Value,
    /// It does, but there is no such hour, minute, ...
    Range(&'static str),
}

#[derive(Default)]
struct TimeFields {
    year: i64,
    month: Option<u32>,
    day: Option<u32>,
    year_day: Option<u32>,
    hour: u32,
    minute: u32,
    second: u32,
    nanos: u32,
    before_noon: bool,
    after_noon: bool,
    utc: bool,
    offset: Option<i32>,
    zone_name: String,
}

impl TimeFields {
    fn read(
        &mut self,
        element: Element,
        rest: &mut &[u8],
        fraction_follows: bool,
    ) -> Result<(), Bad> {
        match element {
            Element::LongYear => {
                if !rest.first().is_some_and(u8::is_ascii_digit) {
                    return Err(Bad::Value);
                }
                self.year = signed(take(rest, 4)?)?;
            }
            Element::ShortYear => {
                let year = signed(take(rest, 2)?)?;
                self.year = year + if year >= 69 { 1900 } else { 2000 };
            }
            Element::LongMonth => self.month = Some(name(rest, &MONTHS, false)? + 1),
            Element::ShortMonth => self.month = Some(name(rest, &MONTHS, true)? + 1),
            Element::Month(pad) => {
                let month = number(rest, pad)?;
                self.month = Some(within(month, (1..=12).contains(&month), "month")?);
            }
            // The day of the week must be one, but need not be the right one.
            Element::LongWeekday => drop(name(rest, &WEEKDAYS, false)?),
            Element::ShortWeekday => drop(name(rest, &WEEKDAYS, true)?),
            Element::Day(pad) => {
                if pad == Pad::Space {
                    skip_space(rest);
                }
                self.day = Some(number(rest, pad)?);
            }
            Element::YearDay(pad) => {
                if pad == Pad::Space {
                    skip_space(rest);
                    skip_space(rest);
                }
                let digits = rest.iter().take(3).take_while(|b| b.is_ascii_digit()).count();
                if digits == 0 || (pad == Pad::Zero && digits != 3) {
                    return Err(Bad::Value);
                }
                let number = signed(take(rest, digits)?)?;
                self.year_day = u32::try_from(number).ok();
            }
            Element::Hour24 => {
                let hour = number(rest, Pad::None)?;
                self.hour = within(hour, hour < 24, "hour")?;
            }
            Element::Hour12(pad) => {
                let hour = number(rest, pad)?;
                self.hour = within(hour, hour <= 12, "hour")?;
            }
            Element::Minute(pad) => {
                let minute = number(rest, pad)?;
                self.minute = within(minute, minute < 60, "minute")?;
            }
            Element::Second(pad) => {
                let second = number(rest, pad)?;
                self.second = within(second, second < 60, "second")?;
                // Go: a fraction is read even where the layout has none.
                if !fraction_follows {
                    self.read_fraction(rest)?;
                }
            }
            Element::Noon(upper) => {
                let (before, after) = if upper { (b"AM", b"PM") } else { (b"am", b"pm") };
                let text = take(rest, 2)?;
                match text {
                    _ if text == before => self.before_noon = true,
                    _ if text == after => self.after_noon = true,
                    _ => return Err(Bad::Value),
                }
            }
            Element::ZoneName => {
                if rest.starts_with(b"UTC") {
                    *rest = &rest[3..];
                    self.utc = true;
                } else {
                    let length = zone_name(rest).ok_or(Bad::Value)?;
                    self.zone_name = String::from_utf8_lossy(take(rest, length)?).into_owned();
                }
            }
            Element::Offset { z: true, .. } if rest.first() == Some(&b'Z') => {
                *rest = &rest[1..];
                self.utc = true;
            }
            Element::Offset { form, .. } => self.offset = Some(offset(rest, form)?),
            Element::Fraction { digits, trim: false, .. } => {
                self.nanos = nanos(take(rest, digits + 1)?)?;
            }
            Element::Fraction { trim: true, .. } => self.read_fraction(rest)?,
        }
        Ok(())
    }

    /// Reads a fraction of any length, if there is one.
    fn read_fraction(&mut self, rest: &mut &[u8]) -> Result<(), Bad> {
        if matches!(rest.first(), Some(b'.' | b',')) {
            let digits = rest[1..].iter().take_while(|byte| byte.is_ascii_digit()).count();
            if digits > 0 {
                self.nanos = nanos(take(rest, digits + 1)?)?;
            }
        }
        Ok(())
    }

    fn finish(self) -> Result<Time, &'static str> {
        let hour = match self.hour {
            ..12 if self.after_noon => self.hour + 12,
            12 if self.before_noon => 0,
            hour => hour,
        };
        let date = self.date()?;
        let of_day = i64::from(hour * 3600 + self.minute * 60 + self.second);
        let seconds = date.to_days() * 86_400 + of_day;
        let time = |seconds| Time { seconds, nanos: self.nanos, zone: Zone::UTC };
        if self.utc {
            return Ok(time(seconds));
        }
        Ok(match self.offset {
            Some(0) if self.zone_name.is_empty() => time(seconds),
            Some(offset) => {
                time(seconds - i64::from(offset)).in_zone(Zone::fixed(&self.zone_name, offset))
            }
            None if self.zone_name.is_empty() => time(seconds),
            // Go: the hours in `GMT+3` move the clock that is shown, not the instant.
            None => {
                let hours = self.zone_name.strip_prefix("GMT").and_then(|hours| hours.parse().ok());
                let offset = hours.map_or(0, |hours: i32| hours * 3600);
                time(seconds).in_zone(Zone::fixed(&self.zone_name, offset))
            }
        })
    }

    /// The date from month and day, or from the day of the year; both must agree.
    fn date(&self) -> Result<Date, &'static str> {
        let first = Date { year: self.year, month: 1, day: 1 };
        if let Some(year_day) = self.year_day {
            let last = if is_leap(self.year) { 366 } else { 365 };
            if !(1..=last).contains(&year_day) {
                return Err("day-of-year out of range");
            }
            let date = Date::from_days(first.to_days() + i64::from(year_day) - 1);
            if self.month.is_some_and(|month| month != date.month) {
                return Err("day-of-year does not match month");
            }
            if self.day.is_some_and(|day| day != date.day) {
                return Err("day-of-year does not match day");
            }
            return Ok(date);
        }
        let date = Date { month: self.month.unwrap_or(1), day: self.day.unwrap_or(1), ..first };
        if !(1..=date.days_in_month()).contains(&date.day) {
            return Err("day out of range");
        }
        Ok(date)
    }
}

fn within(number: u32, holds: bool, what: &'static str) -> Result<u32, Bad> {
    if holds { Ok(number) } else { Err(Bad::Range(what)) }
}

fn take<'t>(rest: &mut &'t [u8], length: usize) -> Result<&'t [u8], Bad> {
    let (taken, after) = rest.split_at_checked(length).ok_or(Bad::Value)?;
    *rest = after;
    Ok(taken)
}

fn skip_space(rest: &mut &[u8]) {
    if let Some(after) = rest.strip_prefix(b" ") {
        *rest = after;
    }
}

/// Skips plain text; any number of spaces stands for any other. The error is where it differs.
fn skip<'t>(mut text: &'t [u8], mut plain: &[u8]) -> Result<&'t [u8], &'t [u8]> {
    while let Some(&byte) = plain.first() {
        if byte == b' ' {
            if text.first().is_some_and(|&byte| byte != b' ') {
                return Err(text);
            }
            (plain, text) = (without_spaces(plain), without_spaces(text));
        } else if text.first() == Some(&byte) {
            (plain, text) = (&plain[1..], &text[1..]);
        } else {
            return Err(text);
        }
    }
    Ok(text)
}

/// The text without leading spaces; other white space stays.
fn without_spaces(text: &[u8]) -> &[u8] {
    &text[text.iter().take_while(|&&byte| byte == b' ').count()..]
}

/// One or two digits; exactly two where the layout has a zero in front.
fn number(rest: &mut &[u8], pad: Pad) -> Result<u32, Bad> {
    let digits = rest.iter().take(2).take_while(|byte| byte.is_ascii_digit()).count();
    if digits == 0 || (pad == Pad::Zero && digits == 1) {
        return Err(Bad::Value);
    }
    u32::try_from(signed(take(rest, digits)?)?).map_err(|_| Bad::Value)
}

/// Decimal digits, with a sign if there is one.
fn signed(digits: &[u8]) -> Result<i64, Bad> {
    std::str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok()).ok_or(Bad::Value)
}

/// The number of a month or weekday, by its name or the first three letters, in any case.
fn name(rest: &mut &[u8], names: &[&str], short: bool) -> Result<u32, Bad> {
    for (number, name) in (0..).zip(names) {
        let name = if short { &name[..3] } else { name };
        if rest.get(..name.len()).is_some_and(|text| text.eq_ignore_ascii_case(name.as_bytes())) {
            *rest = &rest[name.len()..];
            return Ok(number);
        }
    }
    Err(Bad::Value)
}

/// Nanoseconds from a separator and digits; what is below a nanosecond is cut off.
fn nanos(text: &[u8]) -> Result<u32, Bad> {
    let Some((b'.' | b',', digits)) = text.split_first() else { return Err(Bad::Value) };
    let digits = &digits[..digits.len().min(9)];
    let number = signed(digits)?;
    let number = u32::try_from(number).map_err(|_| Bad::Range("fractional second"))?;
    Ok(number * 10_u32.pow(9 - u32::try_from(digits.len()).unwrap_or(9)))
}

/// Seconds east of UTC.
fn offset(rest: &mut &[u8], form: OffsetForm) -> Result<i32, Bad> {
    let (length, colons): (usize, &[usize]) = match form {
        OffsetForm::Hours => (3, &[]),
        OffsetForm::Minutes => (5, &[]),
        OffsetForm::ColonMinutes => (6, &[3]),
        OffsetForm::Seconds => (7, &[]),
        OffsetForm::ColonSeconds => (9, &[3, 6]),
    };
    let text = take(rest, length)?;
    if colons.iter().any(|&at| text[at] != b':') {
        return Err(Bad::Value);
    }
    let digits: Vec<u8> = text[1..].iter().copied().filter(|&byte| byte != b':').collect();
    let mut parts = [0; 3];
    for (part, mut digits) in parts.iter_mut().zip(digits.chunks(2)) {
        *part = number(&mut digits, Pad::Zero)?.cast_signed();
    }
    let [hours, minutes, seconds] = parts;
    // Go: 24 hours and 60 minutes do occur in the wild.
    match (hours, minutes, seconds) {
        (25.., ..) => return Err(Bad::Range("time zone offset hour")),
        (_, 61.., _) => return Err(Bad::Range("time zone offset minute")),
        (.., 61..) => return Err(Bad::Range("time zone offset second")),
        _ => {}
    }
    let offset = (hours * 60 + minutes) * 60 + seconds;
    match text[0] {
        b'+' => Ok(offset),
        b'-' => Ok(-offset),
        _ => Err(Bad::Value),
    }
}

/// How long the zone abbreviation is that the text begins with.
fn zone_name(text: &[u8]) -> Option<usize> {
    if text.len() < 3 {
        return None;
    }
    if text.starts_with(b"ChST") || text.starts_with(b"MeST") {
        return Some(4);
    }
    if text.starts_with(b"GMT") {
        return Some(3 + signed_hours(&text[3..]).unwrap_or(0));
    }
    if matches!(text[0], b'+' | b'-') {
        return signed_hours(text);
    }
    let upper = text.iter().take(6).take_while(|byte| byte.is_ascii_uppercase()).count();
    match upper {
        3 => Some(3),
        4 if text[3] == b'T' || text.starts_with(b"WITA") => Some(4),
        5 if text[4] == b'T' => Some(5),
        _ => None,
    }
}

/// The length of a sign and a number of at most 23 hours.
fn signed_hours(text: &[u8]) -> Option<usize> {
    let digits = text.get(1..)?.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let hours = signed(&text[1..=digits]).ok()?;
    (matches!(text[0], b'+' | b'-') && hours <= 23).then_some(digits + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_are_read_as_in_go() {
        for (layout, text, time) in [
            ("2006-01-02T15:04:05Z07:00", "2020-02-29T23:59:59,5Z", "2020-02-29T23:59:59.5Z"),
            ("2006-01-02T15:04:05Z07:00", "2020-02-29T23:59:59+24:00", "2020-02-29T23:59:59+24:00"),
            ("Mon Jan _2 15:04:05 2006", "thu FEB  4 21:00:57 2010", "2010-02-04T21:00:57Z"),
            ("Mon Jan _2 15:04:05 MST 2006", "Thu Feb 4 21:00:57 PST 2010", "2010-02-04T21:00:57Z"),
            ("15:04 MST", "15:04 GMT+3", "0000-01-01T18:04:00+03:00"),
            ("3:04PM", "12:30AM", "0000-01-01T00:30:00Z"),
            ("3:04pm", "1:30pm", "0000-01-01T13:30:00Z"),
            ("06", "69", "1969-01-01T00:00:00Z"),
            ("06", "68", "2068-01-01T00:00:00Z"),
            ("2006 002", "2020 060", "2020-02-29T00:00:00Z"),
            ("2006 __2", "2021   1", "2021-01-01T00:00:00Z"),
            ("2006-01-02 -0700", "2021-01-01 +0530", "2021-01-01T00:00:00+05:30"),
            ("05.000", "07.123", "0000-01-01T00:00:07.123Z"),
            ("05.999", "07", "0000-01-01T00:00:07Z"),
            ("05", "07.1234567891", "0000-01-01T00:00:07.123456789Z"),
            ("January 2, 2006", "may 5, 2024", "2024-05-05T00:00:00Z"),
        ] {
            let got = Time::parse(layout, text).unwrap_or_else(|e| panic!("{e}"));
            assert_eq!(got.rfc3339_nano(), time, "{text} as {layout}");
        }
    }

    #[test]
    fn errors_are_gos() {
        let rfc3339 = "2006-01-02T15:04:05Z07:00";
        for (layout, text, error) in [
            (
                rfc3339,
                "2020-02-29",
                r#"parsing time "2020-02-29" as "2006-01-02T15:04:05Z07:00": cannot parse "" as "T""#,
            ),
            (
                rfc3339,
                "2020-02-30T00:00:00Z",
                r#"parsing time "2020-02-30T00:00:00Z": day out of range"#,
            ),
            (
                rfc3339,
                "2020-01-01T24:00:00Z",
                r#"parsing time "2020-01-01T24:00:00Z": hour out of range"#,
            ),
            (
                rfc3339,
                "2020-01-01T00:00:00Zx",
                r#"parsing time "2020-01-01T00:00:00Zx": extra text: "x""#,
            ),
            ("é", "e", r#"parsing time "e" as "\xc3\xa9": cannot parse "e" as "\xc3\xa9""#),
            ("Jan", "Foo", r#"parsing time "Foo" as "Jan": cannot parse "Foo" as "Jan""#),
            ("2006 002", "2021 366", r#"parsing time "2021 366": day-of-year out of range"#),
            ("MST", "ABCDEF", r#"parsing time "ABCDEF" as "MST": cannot parse "ABCDEF" as "MST""#),
        ] {
            assert_eq!(Time::parse(layout, text).unwrap_err().to_string(), error);
        }
    }
}
