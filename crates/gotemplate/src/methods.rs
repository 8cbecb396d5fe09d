//! What can be asked of values that are not data: times, durations and versions.

use std::cmp::Ordering;
use std::rc::Rc;

use crate::error::Refusal;
use crate::format;
use crate::functions::ParameterType::{Int, Text, Time, Version as VersionType};
use crate::functions::{FunctionCall, TemplateFunction, any, function, int, text};
use crate::helm;
use crate::semver::SprigVersion;
use crate::value::{Dyn, Elem};

/// The method of this name that the value has. The value becomes the first argument.
pub(crate) fn find(value: &Dyn, name: &str) -> Option<&'static TemplateFunction> {
    let table = match value {
        Dyn::Time(_) => TIME,
        Dyn::Version(_) => VERSION,
        Dyn::Duration(_) => DURATION,
        Dyn::Map(map) => map.named?.methods,
        Dyn::List(list) if list.elem == Elem::Versions => helm::VERSION_SET,
        _ => return None,
    };
    table.iter().find(|method| method.name == name)
}

const TIME: &[TemplateFunction] = &[
    function("AddDate", &[Int, Int, Int], None, add_date, ""),
    function("After", &[Time], None, after, ""),
    function("Before", &[Time], None, before, ""),
    function("Day", &[], None, |_, a| number(a, |t| i64::from(t.date().day)), ""),
    function("Equal", &[Time], None, same, ""),
    function("Format", &[Text], None, |_, a| Ok(of(a, |t| t.format(text(a, 1))).into()), ""),
    function("Hour", &[], None, |_, a| number(a, |t| i64::from(t.hour())), ""),
    function(
        "IsZero",
        &[],
        None,
        |_, a| Ok((of(a, kiln_text::Time::unix) == -62_135_596_800).into()),
        "",
    ),
    function("Minute", &[], None, |_, a| number(a, |t| i64::from(t.minute())), ""),
    function("Month", &[], None, |_, a| Ok(of(a, |t| t.format("January")).into()), ""),
    function("Nanosecond", &[], None, |_, a| number(a, |t| i64::from(t.nanosecond())), ""),
    function("Second", &[], None, |_, a| number(a, |t| i64::from(t.second())), ""),
    function("String", &[], None, shown, ""),
    function("Sub", &[Time], None, since, ""),
    function("UTC", &[], None, utc, ""),
    function("Unix", &[], None, |_, a| Ok(Dyn::Int64(of(a, kiln_text::Time::unix))), ""),
    function("UnixMicro", &[], None, |_, a| unix_in(a, 1_000_000), ""),
    function("UnixMilli", &[], None, |_, a| unix_in(a, 1_000), ""),
    function("UnixNano", &[], None, |_, a| unix_in(a, 1_000_000_000), ""),
    function("Weekday", &[], None, |_, a| Ok(of(a, |t| t.format("Monday")).into()), ""),
    function("Year", &[], None, |_, a| number(a, |t| t.date().year), ""),
    function("YearDay", &[], None, |_, a| number(a, |t| i64::from(t.date().year_day())), ""),
];

const DURATION: &[TemplateFunction] = &[
    function("Hours", &[], None, |_, a| Ok(Dyn::Float(seconds(a) / 3600.0)), ""),
    function("Minutes", &[], None, |_, a| Ok(Dyn::Float(seconds(a) / 60.0)), ""),
    function("Seconds", &[], None, |_, a| Ok(Dyn::Float(seconds(a))), ""),
    function("String", &[], None, shown, ""),
];

const VERSION: &[TemplateFunction] = &[
    function("Compare", &[VersionType], None, |_, a| Ok(Dyn::Int(order(a) as i64)), ""),
    function("Equal", &[VersionType], None, |_, a| Ok(order(a).is_eq().into()), ""),
    function("GreaterThan", &[VersionType], None, |_, a| Ok(order(a).is_gt().into()), ""),
    function("IncMajor", &[], None, |_, a| raised(a, |v| (v.major.saturating_add(1), 0, 0)), ""),
    function(
        "IncMinor",
        &[],
        None,
        |_, a| raised(a, |v| (v.major, v.minor.saturating_add(1), 0)),
        "",
    ),
    function("IncPatch", &[], None, |_, a| raised(a, next_patch), ""),
    function("LessThan", &[VersionType], None, |_, a| Ok(order(a).is_lt().into()), ""),
    function("Major", &[], None, |_, a| part(a, |v| Dyn::Uint64(v.major)), ""),
    function("Metadata", &[], None, |_, a| part(a, |v| v.metadata.as_str().into()), ""),
    function("Minor", &[], None, |_, a| part(a, |v| Dyn::Uint64(v.minor)), ""),
    function("Original", &[], None, |_, a| part(a, |v| v.original.as_str().into()), ""),
    function("Patch", &[], None, |_, a| part(a, |v| Dyn::Uint64(v.patch)), ""),
    function("Prerelease", &[], None, |_, a| part(a, |v| v.pre.as_str().into()), ""),
    function("String", &[], None, shown, ""),
];

type Result = std::result::Result<Dyn, Refusal>;

/// What a function says of the time; there always is one.
fn of<R>(a: &[Dyn], ask: impl FnOnce(&kiln_text::Time) -> R) -> R
where
    R: Default,
{
    match any(a, 0) {
        Dyn::Time(time) => ask(time),
        _ => R::default(),
    }
}

fn number(a: &[Dyn], ask: impl FnOnce(&kiln_text::Time) -> i64) -> Result {
    Ok(Dyn::Int(of(a, ask)))
}

fn shown(call: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    format::plain(any(a, 0), call.meter).map(Dyn::from)
}

fn compared(a: &[Dyn]) -> Ordering {
    match (any(a, 0), any(a, 1)) {
        (Dyn::Time(a), Dyn::Time(b)) => a.cmp(b),
        _ => Ordering::Equal,
    }
}

fn after(_: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    Ok(compared(a).is_gt().into())
}

fn before(_: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    Ok(compared(a).is_lt().into())
}

fn same(_: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    Ok(compared(a).is_eq().into())
}

fn since(_: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    match (any(a, 0), any(a, 1)) {
        (Dyn::Time(a), Dyn::Time(b)) => Ok(Dyn::Duration(a.since(b))),
        _ => Ok(Dyn::Nil),
    }
}

fn utc(_: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    match any(a, 0) {
        Dyn::Time(time) => Ok(Dyn::Time(Rc::new(time.utc()))),
        _ => Ok(Dyn::Nil),
    }
}

/// The time since 1970 in parts of a second.
fn unix_in(a: &[Dyn], parts: i64) -> Result {
    let of_second = |t: &kiln_text::Time| i64::from(t.nanosecond()) / (1_000_000_000 / parts);
    let since = of(a, |t| t.unix().wrapping_mul(parts).wrapping_add(of_second(t)));
    Ok(Dyn::Int64(since))
}

/// Years, months and days later. A day that the month does not have is one of the next month.
fn add_date(_: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    let Dyn::Time(time) = any(a, 0) else { return Ok(Dyn::Nil) };
    let date = time.date();
    let later = || {
        let months = int(a, 2).checked_add(i64::from(date.month) - 1)?;
        let year = date.year.checked_add(int(a, 1))?.checked_add(months.div_euclid(12))?;
        let month = u32::try_from(months.rem_euclid(12)).ok()? + 1;
        // Beyond that the calendar cannot count.
        year.checked_mul(366).filter(|days| days.unsigned_abs() < 1 << 50)?;
        let mut moved = date;
        (moved.year, moved.month) = (year, month);
        let days = moved.to_days().checked_add(int(a, 3))?;
        let seconds = days.checked_sub(date.to_days())?.checked_mul(86_400)?;
        kiln_text::Time::from_unix(time.unix().checked_add(seconds)?, time.nanosecond())
    };
    let later = later().ok_or("the date is too far away")?;
    Ok(Dyn::Time(Rc::new(later.in_zone(time.zone().clone()))))
}

fn seconds(a: &[Dyn]) -> f64 {
    match any(a, 0) {
        Dyn::Duration(duration) => duration.as_secs_f64(),
        _ => 0.0,
    }
}

fn order(a: &[Dyn]) -> Ordering {
    match (any(a, 0), any(a, 1)) {
        (Dyn::Version(a), Dyn::Version(b)) => a.compare(b),
        _ => Ordering::Equal,
    }
}

fn part(a: &[Dyn], ask: impl FnOnce(&SprigVersion) -> Dyn) -> Result {
    match any(a, 0) {
        Dyn::Version(version) => Ok(ask(version)),
        _ => Ok(Dyn::Nil),
    }
}

fn raised(a: &[Dyn], numbers: impl FnOnce(&SprigVersion) -> (u64, u64, u64)) -> Result {
    part(a, |version| {
        let (major, minor, patch) = numbers(version);
        let original = format!("{major}.{minor}.{patch}");
        let next = SprigVersion {
            major,
            minor,
            patch,
            pre: String::new(),
            metadata: String::new(),
            original,
        };
        Dyn::Version(Rc::new(next))
    })
}

/// A pre-release is raised to its release.
fn next_patch(version: &SprigVersion) -> (u64, u64, u64) {
    let patch = match version.pre.is_empty() {
        true => version.patch.saturating_add(1),
        false => version.patch,
    };
    (version.major, version.minor, patch)
}
