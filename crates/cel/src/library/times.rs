//! Parts of timestamps and durations.

use kiln_text::Time;

use super::Registry;
use crate::Val;
use crate::error::{EvalFailure, no_such_overload};

pub(super) fn register(registry: &mut Registry) {
    // Days of the month exist from one (`getDate`) and from zero; months and days of the year begin
    // at zero, and Sunday is day zero of the week.
    registry.add(
        |_, args| part(args, |at| at.date().year),
        &["(timestamp).getFullYear(): int", "(timestamp).getFullYear(string): int"],
    );
    registry.add(
        |_, args| part(args, |at| i64::from(at.date().month) - 1),
        &["(timestamp).getMonth(): int", "(timestamp).getMonth(string): int"],
    );
    registry.add(
        |_, args| part(args, |at| i64::from(at.date().year_day()) - 1),
        &["(timestamp).getDayOfYear(): int", "(timestamp).getDayOfYear(string): int"],
    );
    registry.add(
        |_, args| part(args, |at| i64::from(at.date().day) - 1),
        &["(timestamp).getDayOfMonth(): int", "(timestamp).getDayOfMonth(string): int"],
    );
    registry.add(
        |_, args| part(args, |at| i64::from(at.date().day)),
        &["(timestamp).getDate(): int", "(timestamp).getDate(string): int"],
    );
    registry.add(
        |_, args| part(args, |at| i64::from(at.date().weekday())),
        &["(timestamp).getDayOfWeek(): int", "(timestamp).getDayOfWeek(string): int"],
    );
    registry.add(
        |_, args| time_part(args, |at| i64::from(at.hour()), 3_600_000_000_000),
        &[
            "(timestamp).getHours(): int",
            "(timestamp).getHours(string): int",
            "(duration).getHours(): int",
        ],
    );
    registry.add(
        |_, args| time_part(args, |at| i64::from(at.minute()), 60_000_000_000),
        &[
            "(timestamp).getMinutes(): int",
            "(timestamp).getMinutes(string): int",
            "(duration).getMinutes(): int",
        ],
    );
    registry.add(
        |_, args| time_part(args, |at| i64::from(at.second()), 1_000_000_000),
        &[
            "(timestamp).getSeconds(): int",
            "(timestamp).getSeconds(string): int",
            "(duration).getSeconds(): int",
        ],
    );
    registry.add(
        |_, args| time_part(args, |at| i64::from(at.nanosecond() / 1_000_000), 1_000_000),
        &[
            "(timestamp).getMilliseconds(): int",
            "(timestamp).getMilliseconds(string): int",
            "(duration).getMilliseconds(): int",
        ],
    );
}

fn part(args: &[Val], read: impl Fn(&Time) -> i64) -> Result<Val, EvalFailure> {
    let at = match args {
        [Val::Timestamp(timestamp)] => timestamp.in_zone(None)?,
        [Val::Timestamp(timestamp), Val::String(zone)] => timestamp.in_zone(Some(zone))?,
        _ => return Err(no_such_overload()),
    };
    Ok(Val::Int(read(&at)))
}

/// Of a timestamp the part of its clock time, of a duration all of it in this unit.
fn time_part(args: &[Val], read: impl Fn(&Time) -> i64, unit: i64) -> Result<Val, EvalFailure> {
    match args {
        [Val::Duration(duration)] => Ok(Val::Int(duration.as_nanos() / unit)),
        _ => part(args, read),
    }
}
