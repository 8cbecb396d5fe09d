//! Printing times by layout.

use std::fmt::Write as _;

use super::Time;
use super::layout::{self, Element, MONTHS, OffsetForm, Pad, WEEKDAYS};

pub(super) fn format(time: &Time, layout: &str) -> String {
    let mut out = String::with_capacity(layout.len() + 10);
    let mut rest = layout;
    // Elements begin and end at ASCII characters, so the layout is cut between characters.
    while let Some((at, element, length)) = layout::next(rest.as_bytes()) {
        out.push_str(&rest[..at]);
        print(time, element, &mut out);
        rest = &rest[at + length..];
    }
    out.push_str(rest);
    out
}

fn print(time: &Time, element: Element, out: &mut String) {
    let date = time.date();
    let name = |names: &[&'static str], number: u32| {
        usize::try_from(number).ok().and_then(|i| names.get(i).copied()).unwrap_or("")
    };
    let month = || name(&MONTHS, date.month - 1);
    let weekday = || name(&WEEKDAYS, date.weekday());
    let _ = match element {
        Element::LongYear if date.year < 0 => write!(out, "-{:04}", -date.year),
        Element::LongYear => write!(out, "{:04}", date.year),
        Element::ShortYear => write!(out, "{:02}", date.year.abs() % 100),
        Element::LongMonth => write!(out, "{}", month()),
        Element::ShortMonth => write!(out, "{}", &month()[..3]),
        Element::Month(pad) => number(out, date.month, 2, pad),
        Element::LongWeekday => write!(out, "{}", weekday()),
        Element::ShortWeekday => write!(out, "{}", &weekday()[..3]),
        Element::Day(pad) => number(out, date.day, 2, pad),
        Element::YearDay(pad) => number(out, date.year_day(), 3, pad),
        Element::Hour24 => number(out, time.hour(), 2, Pad::Zero),
        // Noon is 12PM, midnight is 12AM.
        Element::Hour12(pad) => number(out, (time.hour() + 11) % 12 + 1, 2, pad),
        Element::Minute(pad) => number(out, time.minute(), 2, pad),
        Element::Second(pad) => number(out, time.second(), 2, pad),
        Element::Noon(upper) => out.write_str(match (time.hour() >= 12, upper) {
            (true, true) => "PM",
            (false, true) => "AM",
            (true, false) => "pm",
            (false, false) => "am",
        }),
        Element::ZoneName if time.zone().name().is_empty() => {
            offset(out, time.zone().offset(), OffsetForm::Minutes)
        }
        Element::ZoneName => out.write_str(time.zone().name()),
        Element::Offset { z: true, .. } if time.zone().offset() == 0 => out.write_str("Z"),
        Element::Offset { form, .. } => offset(out, time.zone().offset(), form),
        Element::Fraction { digits, trim, separator } => {
            fraction(out, time.nanosecond(), digits, trim, char::from(separator))
        }
    };
}

fn number(out: &mut String, number: u32, width: usize, pad: Pad) -> std::fmt::Result {
    match pad {
        Pad::None => write!(out, "{number}"),
        Pad::Space => write!(out, "{number:width$}"),
        Pad::Zero => write!(out, "{number:0width$}"),
    }
}

fn offset(out: &mut String, seconds: i32, form: OffsetForm) -> std::fmt::Result {
    // Go: less than a minute west of UTC has a plus sign.
    let sign = if seconds / 60 < 0 { '-' } else { '+' };
    let seconds = seconds.abs();
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    match form {
        OffsetForm::Hours => write!(out, "{sign}{hours:02}"),
        OffsetForm::Minutes => write!(out, "{sign}{hours:02}{minutes:02}"),
        OffsetForm::ColonMinutes => write!(out, "{sign}{hours:02}:{minutes:02}"),
        OffsetForm::Seconds => write!(out, "{sign}{hours:02}{minutes:02}{seconds:02}"),
        OffsetForm::ColonSeconds => write!(out, "{sign}{hours:02}:{minutes:02}:{seconds:02}"),
    }
}

fn fraction(
    out: &mut String,
    nanos: u32,
    digits: usize,
    trim: bool,
    separator: char,
) -> std::fmt::Result {
    let all = format!("{nanos:09}");
    let shown = &all[..digits.min(9)];
    let shown = if trim { shown.trim_end_matches('0') } else { shown };
    if shown.is_empty() { Ok(()) } else { write!(out, "{separator}{shown}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_print_as_in_go() {
        let time = Time::parse_rfc3339("2009-02-04T21:00:57.012345678-08:00").unwrap();
        for (layout, text) in [
            ("Mon Jan _2 15:04:05 2006", "Wed Feb  4 21:00:57 2009"),
            ("Monday, 02-January-06 03:04PM", "Wednesday, 04-February-09 09:00PM"),
            ("3:4:5pm", "9:0:57pm"),
            ("2006-002 __2", "2009-035  35"),
            ("_2006 Month Monte", "_2009 Month Monte"),
            ("1/2/06", "2/4/09"),
            (".000 ,000000 .999999999 .00000000000", ".012 ,012345 .012345678 .012345678"),
            (".9 .99 .0001", " .01 .0002"),
            ("MST -07 -0700 -07:00 -07:00:00 -070000", "-0800 -08 -0800 -08:00 -08:00:00 -080000"),
            ("Z07 Z0700 Z07:00", "-08 -0800 -08:00"),
            ("é2006é", "é2009é"),
            ("", ""),
        ] {
            assert_eq!(time.format(layout), text, "{layout}");
        }
        assert_eq!(time.utc().format("MST Z07:00 -0700"), "UTC Z +0000");
        assert_eq!(time.rfc3339(), "2009-02-04T21:00:57-08:00");
        assert_eq!(time.rfc3339_nano(), "2009-02-04T21:00:57.012345678-08:00");
    }
}
