//! Times: RFC 3339 texts unless a Go layout is given.

use std::time::{SystemTime, UNIX_EPOCH};

use kiln_text::Duration;
use kiln_text::time::Time;
use kiln_value::Value;

use super::{Arguments, JmesPathFunction, Parameter, STRING, function, parameter};
use crate::eval::EvalFault;

const TIME: &[Parameter] = &[parameter("time", STRING)];
const TWO_TIMES: &[Parameter] = &[parameter("a", STRING), parameter("b", STRING)];
const TIME_AND_DURATION: &[Parameter] = &[parameter("time", STRING), parameter("duration", STRING)];

pub(super) static FUNCTIONS: &[JmesPathFunction] = &[
    function(
        "time_add",
        TIME_AND_DURATION,
        "string",
        "the time so much later, in the same zone",
        time_add,
    ),
    function(
        "time_after",
        TWO_TIMES,
        "boolean",
        "whether the first time is later than the second",
        |args| Ok(Value::Bool(time(args, 0)? > time(args, 1)?)),
    ),
    function(
        "time_before",
        TWO_TIMES,
        "boolean",
        "whether the first time is earlier than the second",
        |args| Ok(Value::Bool(time(args, 0)? < time(args, 1)?)),
    ),
    function(
        "time_between",
        &[parameter("time", STRING), parameter("start", STRING), parameter("end", STRING)],
        "boolean",
        "whether a time is later than a start and earlier than an end",
        time_between,
    ),
    function(
        "time_diff",
        TWO_TIMES,
        "string",
        "the duration from the first time to the second",
        |args| args.text(time(args, 1)?.since(&time(args, 0)?).to_string()),
    ),
    function("time_now", &[], "string", "the present time, in UTC", time_now).ignoring_arguments(),
    function("time_now_utc", &[], "string", "the present time, in UTC", time_now)
        .ignoring_arguments(),
    function(
        "time_parse",
        &[parameter("layout", STRING), parameter("text", STRING)],
        "string",
        "the time that a text gives in a Go layout; an integer as layout means Unix seconds",
        time_parse,
    ),
    function(
        "time_since",
        &[parameter("layout", STRING), parameter("start", STRING), parameter("end", STRING)],
        "string",
        "the duration from start to end; an empty layout means RFC 3339, an empty end now",
        time_since,
    ),
    function(
        "time_to_cron",
        TIME,
        "string",
        "the cron schedule `minute hour day month weekday` of a time",
        |args| args.text(time(args, 0)?.to_cron()),
    ),
    function(
        "time_truncate",
        TIME_AND_DURATION,
        "string",
        "the time rounded down to a multiple of a duration",
        |args| args.text(time(args, 0)?.truncate(duration(args, 1)?).rfc3339()),
    ),
    function("time_utc", TIME, "string", "the time in UTC", |args| {
        args.text(time(args, 0)?.utc().rfc3339())
    }),
];

fn time(args: &Arguments<'_>, at: usize) -> Result<Time, EvalFault> {
    let text = args.string(at)?;
    Time::parse_rfc3339(text).map_err(|error| args.fail(error))
}

fn duration(args: &Arguments<'_>, at: usize) -> Result<Duration, EvalFault> {
    Duration::parse(args.string(at)?).map_err(|error| args.fail(error))
}

fn now(args: &Arguments<'_>) -> Result<Time, EvalFault> {
    let now = args.sources().now().ok_or_else(|| args.fail("there is no clock here"))?;
    from_system(now).ok_or_else(|| args.fail("the clock is beyond all times"))
}

fn from_system(time: SystemTime) -> Option<Time> {
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => Time::from_unix(i64::try_from(after.as_secs()).ok()?, after.subsec_nanos()),
        Err(before) => {
            let before = before.duration();
            let seconds = i64::try_from(before.as_secs()).ok()?.checked_neg()?;
            match before.subsec_nanos() {
                0 => Time::from_unix(seconds, 0),
                nanos => Time::from_unix(seconds.checked_sub(1)?, 1_000_000_000 - nanos),
            }
        }
    }
}

fn time_now(args: &Arguments<'_>) -> Result<Value, EvalFault> {
    args.text(now(args)?.rfc3339())
}

fn time_add(args: &Arguments<'_>) -> Result<Value, EvalFault> {
    let later = time(args, 0)?.checked_add(duration(args, 1)?);
    args.text(later.ok_or_else(|| args.fail("the result is beyond all times"))?.rfc3339())
}

fn time_between(args: &Arguments<'_>) -> Result<Value, EvalFault> {
    let (time, start, end) = (time(args, 0)?, time(args, 1)?, time(args, 2)?);
    Ok(Value::Bool(start < time && time < end))
}

fn time_parse(args: &Arguments<'_>) -> Result<Value, EvalFault> {
    let (layout, text) = (args.string(0)?, args.string(1)?);
    let time = if layout.parse::<i64>().is_ok() {
        let seconds = text
            .parse()
            .map_err(|_| args.fail(format_args!("{text:?} is not a number of seconds")))?;
        Time::from_unix(seconds, 0).ok_or_else(|| args.fail("the time is beyond all times"))?
    } else {
        Time::parse(layout, text).map_err(|error| args.fail(error))?
    };
    args.text(time.rfc3339())
}

fn time_since(args: &Arguments<'_>) -> Result<Value, EvalFault> {
    let layout = args.string(0)?;
    let read = |at: usize| match layout {
        "" => time(args, at),
        layout => {
            let text = args.string(at)?;
            Time::parse(layout, text).map_err(|error| args.fail(error))
        }
    };
    let start = read(1)?;
    let end = if args.string(2)?.is_empty() { now(args)? } else { read(2)? };
    args.text(end.since(&start).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_before_1970_count_too() {
        let half = std::time::Duration::from_millis(500);
        let time = from_system(UNIX_EPOCH - half).unwrap();
        assert_eq!(time.rfc3339_nano(), "1969-12-31T23:59:59.5Z");
        assert_eq!(
            from_system(UNIX_EPOCH + half).unwrap().rfc3339_nano(),
            "1970-01-01T00:00:00.5Z"
        );
    }
}
