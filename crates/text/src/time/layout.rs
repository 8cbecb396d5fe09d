//! The elements of Go's layouts.

/// Layouts that have a name in Go.
pub mod named {
    /// `01/02 03:04:05PM '06 -0700`
    pub const LAYOUT: &str = "01/02 03:04:05PM '06 -0700";
    /// As C's `asctime`.
    pub const ANSIC: &str = "Mon Jan _2 15:04:05 2006";
    /// As the `date` command.
    pub const UNIX_DATE: &str = "Mon Jan _2 15:04:05 MST 2006";
    /// As Ruby's `Time#to_s` once was.
    pub const RUBY_DATE: &str = "Mon Jan 02 15:04:05 -0700 2006";
    /// RFC 822.
    pub const RFC822: &str = "02 Jan 06 15:04 MST";
    /// RFC 822 with a numeric zone.
    pub const RFC822Z: &str = "02 Jan 06 15:04 -0700";
    /// RFC 850.
    pub const RFC850: &str = "Monday, 02-Jan-06 15:04:05 MST";
    /// RFC 1123.
    pub const RFC1123: &str = "Mon, 02 Jan 2006 15:04:05 MST";
    /// RFC 1123 with a numeric zone.
    pub const RFC1123Z: &str = "Mon, 02 Jan 2006 15:04:05 -0700";
    /// RFC 3339.
    pub const RFC3339: &str = "2006-01-02T15:04:05Z07:00";
    /// RFC 3339 with a fraction where there is one.
    pub const RFC3339_NANO: &str = "2006-01-02T15:04:05.999999999Z07:00";
    /// `3:04PM`
    pub const KITCHEN: &str = "3:04PM";
    /// `2006-01-02 15:04:05`
    pub const DATE_TIME: &str = "2006-01-02 15:04:05";
    /// `2006-01-02`
    pub const DATE_ONLY: &str = "2006-01-02";
    /// `15:04:05`
    pub const TIME_ONLY: &str = "15:04:05";
}

pub(super) const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
pub(super) const WEEKDAYS: [&str; 7] =
    ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

/// One element; the names say how the reference time writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Element {
    LongYear,
    ShortYear,
    LongMonth,
    ShortMonth,
    Month(Pad),
    LongWeekday,
    ShortWeekday,
    Day(Pad),
    YearDay(Pad),
    Hour24,
    Hour12(Pad),
    Minute(Pad),
    Second(Pad),
    /// Whether in upper case.
    Noon(bool),
    ZoneName,
    Offset {
        /// Whether UTC is `Z`.
        z: bool,
        form: OffsetForm,
    },
    Fraction {
        digits: usize,
        /// Whether trailing zeros go.
        trim: bool,
        separator: u8,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pad {
    None,
    Space,
    Zero,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OffsetForm {
    Hours,
    Minutes,
    ColonMinutes,
    Seconds,
    ColonSeconds,
}

/// The first element of a layout: its position, itself and its length; `None` if only plain text is
/// left.
pub(super) fn next(layout: &[u8]) -> Option<(usize, Element, usize)> {
    (0..layout.len()).find_map(|at| {
        let (skipped, element, length) = element(&layout[at..])?;
        Some((at + skipped, element, length))
    })
}

/// The element that a layout begins with, after so many plain bytes.
fn element(layout: &[u8]) -> Option<(usize, Element, usize)> {
    use Element::{
        Day, Fraction, Hour12, Hour24, LongMonth, LongWeekday, LongYear, Minute, Month, Noon,
        Offset, Second, ShortMonth, ShortWeekday, ShortYear, YearDay, ZoneName,
    };
    let starts = |text: &str| layout.starts_with(text.as_bytes());
    // `Month` is not a month: the short names end where a lower-case letter does not follow.
    let short = |text: &str| starts(text) && !layout.get(3).is_some_and(u8::is_ascii_lowercase);
    let found = |element, length| Some((0, element, length));
    match layout.first()? {
        b'J' if starts("January") => found(LongMonth, 7),
        b'J' if short("Jan") => found(ShortMonth, 3),
        b'M' if starts("Monday") => found(LongWeekday, 6),
        b'M' if short("Mon") => found(ShortWeekday, 3),
        b'M' if starts("MST") => found(ZoneName, 3),
        b'0' => match layout.get(1)? {
            b'1' => found(Month(Pad::Zero), 2),
            b'2' => found(Day(Pad::Zero), 2),
            b'3' => found(Hour12(Pad::Zero), 2),
            b'4' => found(Minute(Pad::Zero), 2),
            b'5' => found(Second(Pad::Zero), 2),
            b'6' => found(ShortYear, 2),
            b'0' if starts("002") => found(YearDay(Pad::Zero), 3),
            _ => None,
        },
        b'1' if starts("15") => found(Hour24, 2),
        b'1' => found(Month(Pad::None), 1),
        b'2' if starts("2006") => found(LongYear, 4),
        b'2' => found(Day(Pad::None), 1),
        // An underscore before the year is plain text.
        b'_' if starts("_2006") => Some((1, LongYear, 4)),
        b'_' if starts("_2") => found(Day(Pad::Space), 2),
        b'_' if starts("__2") => found(YearDay(Pad::Space), 3),
        b'3' => found(Hour12(Pad::None), 1),
        b'4' => found(Minute(Pad::None), 1),
        b'5' => found(Second(Pad::None), 1),
        b'P' if starts("PM") => found(Noon(true), 2),
        b'p' if starts("pm") => found(Noon(false), 2),
        &sign @ (b'-' | b'Z') => {
            let forms = [
                ("070000", OffsetForm::Seconds),
                ("07:00:00", OffsetForm::ColonSeconds),
                ("0700", OffsetForm::Minutes),
                ("07:00", OffsetForm::ColonMinutes),
                ("07", OffsetForm::Hours),
            ];
            let (text, form) =
                forms.into_iter().find(|(text, _)| layout[1..].starts_with(text.as_bytes()))?;
            found(Offset { z: sign == b'Z', form }, text.len() + 1)
        }
        &separator @ (b'.' | b',') => {
            let digit = *layout.get(1).filter(|digit| matches!(digit, b'0' | b'9'))?;
            let digits = layout[1..].iter().take_while(|&&byte| byte == digit).count();
            if layout.get(1 + digits).is_some_and(u8::is_ascii_digit) {
                return None;
            }
            found(Fraction { digits, trim: digit == b'9', separator }, digits + 1)
        }
        _ => None,
    }
}
