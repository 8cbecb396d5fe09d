//! `fmt.Sprintf`: the format string, its flags, widths and argument numbers.

use super::verbs::{Flags, Printer};
use crate::error::Refusal;
use crate::marked::Marked;
use crate::meter::Meter;
use crate::value::Dyn;

/// Go: widths and precisions beyond this are not believed.
const MAX_WIDTH: i64 = 1_000_000;

struct PrintfFormat<'f> {
    text: &'f str,
    at: usize,
    arguments: &'f [Dyn],
    next: usize,
    /// An argument number was given somewhere, so that left-over arguments are not a mistake.
    reordered: bool,
    good_number: bool,
}

/// Writes the arguments by a format.
pub(crate) fn printf(text: &str, arguments: &[Dyn], meter: &Meter) -> Result<Marked, Refusal> {
    let mut printer = Printer::new(meter);
    let mut format =
        PrintfFormat { text, at: 0, arguments, next: 0, reordered: false, good_number: true };
    while let Some(percent) = text[format.at..].find('%') {
        printer.out.push(&text[format.at..format.at + percent])?;
        format.at += percent + 1;
        format.verb(&mut printer)?;
    }
    printer.out.push(&text[format.at..])?;
    if !format.reordered && format.next < arguments.len() {
        printer.flags = Flags::default();
        printer.out.push("%!(EXTRA ")?;
        for (position, argument) in arguments[format.next..].iter().enumerate() {
            if position > 0 {
                printer.out.push(", ")?;
            }
            if argument.is_nil() {
                printer.out.push("<nil>")?;
            } else {
                printer.out.push(argument.type_name())?;
                printer.out.push("=")?;
                printer.argument(argument, 'v')?;
            }
        }
        printer.out.push(")")?;
    }
    Ok(printer.out.finish())
}

impl PrintfFormat<'_> {
    fn byte(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn verb(&mut self, printer: &mut Printer<'_>) -> Result<(), Refusal> {
        self.good_number = true;
        let mut flags = Flags::default();
        while let Some(flag @ (b'#' | b'0' | b'+' | b'-' | b' ')) = self.byte() {
            match flag {
                b'#' => flags.sharp = true,
                b'0' => flags.zero = true,
                b'+' => flags.plus = true,
                b'-' => flags.minus = true,
                _ => flags.space = true,
            }
            self.at += 1;
        }
        let mut after_number = self.argument_number();
        if self.byte() == Some(b'*') {
            self.at += 1;
            match self.integer_argument() {
                None => printer.out.push("%!(BADWIDTH)")?,
                Some(width) => {
                    if width < 0 {
                        flags.minus = true;
                        flags.zero = false;
                    }
                    flags.width = usize::try_from(width.unsigned_abs()).ok();
                }
            }
            after_number = false;
        } else {
            flags.width = self.number();
            if after_number && flags.width.is_some() {
                self.good_number = false;
            }
        }
        if self.byte() == Some(b'.') {
            self.at += 1;
            if after_number {
                self.good_number = false;
            }
            after_number = self.argument_number();
            if self.byte() == Some(b'*') {
                self.at += 1;
                match self.integer_argument() {
                    Some(precision) if precision >= 0 => {
                        flags.precision = usize::try_from(precision).ok();
                    }
                    _ => printer.out.push("%!(BADPREC)")?,
                }
                after_number = false;
            } else {
                flags.precision = Some(self.number().unwrap_or(0));
            }
        }
        if !after_number {
            self.argument_number();
        }
        let Some(verb) = self.text[self.at..].chars().next() else {
            return printer.out.push("%!(NOVERB)");
        };
        self.at += verb.len_utf8();
        if verb == '%' {
            return printer.out.push("%");
        }
        if !self.good_number {
            return printer.out.push(&format!("%!{verb}(BADINDEX)"));
        }
        let Some(argument) = self.arguments.get(self.next) else {
            return printer.out.push(&format!("%!{verb}(MISSING)"));
        };
        self.next += 1;
        if verb == 'v' {
            flags.sharp_v = std::mem::take(&mut flags.sharp);
            flags.plus = false;
        }
        printer.flags = flags;
        printer.argument(argument, verb)
    }

    /// Reads digits; `None` without any, or when the number is not to be believed.
    fn number(&mut self) -> Option<usize> {
        let mut number = None;
        while let Some(digit @ b'0'..=b'9') = self.byte() {
            let grown = number.unwrap_or(0) * 10 + i64::from(digit - b'0');
            if grown > MAX_WIDTH {
                self.at = self.text.len();
                return None;
            }
            number = Some(grown);
            self.at += 1;
        }
        number.and_then(|number| usize::try_from(number).ok())
    }

    /// Reads `[n]`. Whether there was one that could be read.
    fn argument_number(&mut self) -> bool {
        if self.byte() != Some(b'[') {
            return false;
        }
        self.reordered = true;
        let Some(close) = self.text[self.at..].find(']').filter(|close| *close >= 2) else {
            let skipped = self.text[self.at..].find(']').map_or(1, |close| close + 1);
            self.at += skipped;
            self.good_number = false;
            return false;
        };
        let end = self.at + close + 1;
        self.at += 1;
        let number = self.number();
        let read = number.is_some() && self.at + 1 == end;
        self.at = end;
        match number.and_then(|number| number.checked_sub(1)) {
            Some(index) if read && index < self.arguments.len() => self.next = index,
            _ => self.good_number = false,
        }
        read
    }

    fn integer_argument(&mut self) -> Option<i64> {
        let argument = self.arguments.get(self.next)?;
        self.next += 1;
        let integer = i64::try_from(argument.as_integer()?).ok()?;
        (-MAX_WIDTH..=MAX_WIDTH).contains(&integer).then_some(integer)
    }
}
