//! Times and durations. The local zone is UTC, and the clock is the caller's.

use std::rc::Rc;
use std::time::UNIX_EPOCH;

use jiff::tz::TimeZone;
use kiln_text::time::Zone;
use kiln_text::{Duration, Time};

use crate::error::Refusal;
use crate::functions::ParameterType::{Any, Text, Time as TimeType};
use crate::functions::{FunctionCall, TemplateFunction, any, function, text};
use crate::value::Dyn;

pub(super) const TABLE: &[TemplateFunction] = &[
    function("ago", &[Any], None, ago, "how long ago a time is"),
    function("date", &[Text, Any], None, date, "a time by a layout"),
    function("dateInZone", &[Text, Any, Text], None, date_in_zone, "a time by a layout in a zone"),
    function("dateModify", &[Text, TimeType], None, modify, "a time so much later"),
    function(
        "date_in_zone",
        &[Text, Any, Text],
        None,
        date_in_zone,
        "a time by a layout in a zone",
    ),
    function("date_modify", &[Text, TimeType], None, modify, "a time so much later"),
    function("duration", &[Any], None, duration, "seconds as a duration"),
    function("durationRound", &[Any], None, duration_round, "a duration in its greatest unit"),
    function("htmlDate", &[Any], None, html_date, "a time as year, month and day"),
    function(
        "htmlDateInZone",
        &[Any, Text],
        None,
        html_date_in_zone,
        "a time as year, month and day in a zone",
    ),
    function("mustDateModify", &[Text, TimeType], None, must_modify, "a time so much later"),
    function(
        "mustToDate",
        &[Text, Text],
        None,
        must_to_date,
        "the time that a text says by a layout",
    ),
    function("must_date_modify", &[Text, TimeType], None, must_modify, "a time so much later"),
    function("now", &[], None, now, "the present time"),
    function("toDate", &[Text, Text], None, to_date, "the time that a text says by a layout"),
    function("unixEpoch", &[TimeType], None, unix_epoch, "seconds since 1970"),
];

type Result<R = Dyn> = std::result::Result<R, Refusal>;

/// The layout of a date in HTML.
const HTML: &str = "2006-01-02";
/// The zero time, the start of year 1.
const ZERO: i64 = -62_135_596_800;

fn present(call: &FunctionCall<'_>) -> Result<Time> {
    let refused = || Refusal::Refused("there is no clock here".into(), "give the time as a value");
    let now = call.sources.now().ok_or_else(refused)?;
    let since = now.duration_since(UNIX_EPOCH).map_err(|_| refused())?;
    let seconds = i64::try_from(since.as_secs()).map_err(|_| refused())?;
    Time::from_unix(seconds, since.subsec_nanos()).ok_or_else(refused)
}

fn now(call: &FunctionCall<'_>, _: &[Dyn]) -> Result {
    Ok(Dyn::Time(Rc::new(present(call)?)))
}

/// The time that a value means; sprig takes what is none for the present.
fn time_of(call: &FunctionCall<'_>, value: &Dyn) -> Result<Time> {
    match value {
        Dyn::Time(time) => Ok((**time).clone()),
        Dyn::Int(seconds) | Dyn::Int64(seconds) => {
            Time::from_unix(*seconds, 0).ok_or_else(|| "the time is out of range".into())
        }
        _ => present(call),
    }
}

/// A time shown in a zone; an unknown one is UTC.
fn zoned(time: &Time, zone: &str) -> Time {
    if matches!(zone, "" | "UTC" | "Local") {
        return time.utc();
    }
    let offset = jiff::tz::db().get(zone).ok().and_then(|zone: TimeZone| {
        let moment = jiff::Timestamp::from_second(time.unix()).ok()?;
        let info = zone.to_offset_info(moment);
        Some(Zone::fixed(info.abbreviation(), info.offset().seconds()))
    });
    offset.map_or_else(|| time.utc(), |zone| time.in_zone(zone))
}

fn formatted(call: &FunctionCall<'_>, layout: &str, value: &Dyn, zone: &str) -> Result {
    call.meter.make(layout.len() as u64 * 8)?;
    Ok(zoned(&time_of(call, value)?, zone).format(layout).into())
}

fn date(call: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    formatted(call, text(a, 0), any(a, 1), "Local")
}

fn date_in_zone(call: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    formatted(call, text(a, 0), any(a, 1), text(a, 2))
}

fn html_date(call: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    formatted(call, HTML, any(a, 0), "Local")
}

fn html_date_in_zone(call: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    formatted(call, HTML, any(a, 0), text(a, 1))
}

fn must_modify(_: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    let by = Duration::parse(text(a, 0)).map_err(|error| Refusal::from(error.to_string()))?;
    let Dyn::Time(time) = any(a, 1) else { return Ok(Dyn::Nil) };
    let later = time.checked_add(by).ok_or("the time is out of range")?;
    Ok(Dyn::Time(Rc::new(later)))
}

fn modify(call: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    Ok(must_modify(call, a).unwrap_or_else(|_| any(a, 1).clone()))
}

fn must_to_date(_: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    let time = Time::parse(text(a, 0), text(a, 1));
    let time = time.map_err(|error| Refusal::from(error.to_string()))?;
    Ok(Dyn::Time(Rc::new(time)))
}

fn to_date(call: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    must_to_date(call, a).or_else(|_| {
        let zero = Time::from_unix(ZERO, 0).ok_or("the time is out of range")?;
        Ok(Dyn::Time(Rc::new(zero)))
    })
}

fn unix_epoch(_: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    match any(a, 0) {
        Dyn::Time(time) => Ok(time.unix().to_string().into()),
        _ => Ok("0".into()),
    }
}

fn ago(call: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    let since = present(call)?.since(&time_of(call, any(a, 0))?).as_nanos();
    let second = 1_000_000_000;
    let rounded = (since + since.signum() * second / 2) / second;
    let duration = Duration::from_secs(rounded).unwrap_or(Duration::MAX);
    Ok(duration.to_string().into())
}

fn duration(_: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    let seconds = match any(a, 0) {
        Dyn::Text(text) => text.parse().unwrap_or(0),
        Dyn::Int64(seconds) => *seconds,
        _ => 0,
    };
    let nanos: i64 = seconds.wrapping_mul(1_000_000_000);
    Ok(Duration::from_nanos(nanos).to_string().into())
}

fn duration_round(call: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    let nanos = match any(a, 0) {
        Dyn::Text(text) => Duration::parse(text).map_or(0, Duration::as_nanos),
        Dyn::Int64(nanos) => *nanos,
        Dyn::Duration(duration) => duration.as_nanos(),
        Dyn::Time(time) => present(call)?.since(time).as_nanos(),
        _ => 0,
    };
    let size = nanos.unsigned_abs();
    let hour = 3_600_000_000_000_u64;
    let units = [
        (hour * 24 * 365, "y"),
        (hour * 24 * 30, "mo"),
        (hour * 24, "d"),
        (hour, "h"),
        (hour / 60, "m"),
        (hour / 3600, "s"),
    ];
    let unit = units.into_iter().find(|(unit, _)| size > *unit);
    Ok(unit.map_or("0s".to_owned(), |(unit, name)| format!("{}{name}", size / unit)).into())
}
