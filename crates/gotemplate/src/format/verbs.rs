//! One value under one verb.

use kiln_text::float::{self, Style};
use kiln_text::quote::{quote, quote_to_ascii};

use kiln_value::Str;

use super::{MAX_DEPTH, Sink, too_deep};
use crate::error::Refusal;
use crate::marked::Marked;
use crate::meter::Meter;
use crate::value::Dyn;

/// The flags, width and precision between `%` and the verb.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Flags {
    pub(super) width: Option<usize>,
    pub(super) precision: Option<usize>,
    pub(super) minus: bool,
    pub(super) plus: bool,
    pub(super) sharp: bool,
    pub(super) space: bool,
    pub(super) zero: bool,
    /// `%#v`: Go syntax.
    pub(super) sharp_v: bool,
}

pub(super) struct Printer<'m> {
    pub(super) out: Sink<'m>,
    pub(super) flags: Flags,
}

impl<'m> Printer<'m> {
    pub(super) fn new(meter: &'m Meter) -> Self {
        Printer { out: Sink::new(meter), flags: Flags::default() }
    }

    /// Writes a value that was handed over directly.
    pub(super) fn argument(&mut self, value: &Dyn, verb: char) -> Result<(), Refusal> {
        match verb {
            'T' | 'v' if value.is_nil() => self.padded("<nil>"),
            'T' => self.text(value.type_name(), 's'),
            _ => self.value(value, verb, 0),
        }
    }

    fn value(&mut self, value: &Dyn, verb: char, depth: usize) -> Result<(), Refusal> {
        self.out.meter.step(1)?;
        if depth > MAX_DEPTH {
            return Err(too_deep());
        }
        match value {
            Dyn::Missing | Dyn::Nil => match (depth, verb) {
                (1.., _) if self.flags.sharp_v => self.out.push("interface {}(nil)"),
                (1.., _) => self.out.push("<nil>"),
                _ => self.out.push(&format!("%!{verb}(<nil>)")),
            },
            Dyn::Bool(truth) => match verb {
                't' | 'v' => self.padded(if *truth { "true" } else { "false" }),
                _ => self.bad(value, verb),
            },
            Dyn::Int(int) | Dyn::Int64(int) => self.integer(value, i128::from(*int), verb),
            Dyn::Uint8(uint) => self.unsigned(value, u64::from(*uint), verb),
            Dyn::Uint64(uint) => self.unsigned(value, *uint, verb),
            Dyn::Float(float) => self.float(value, *float, verb),
            Dyn::Complex(real, imaginary) => self.complex(value, *real, *imaginary, verb),
            Dyn::Text(text) => match verb {
                'v' | 's' | 'x' | 'X' | 'q' => self.marked(text, verb),
                _ => self.bad(value, verb),
            },
            Dyn::Bytes(bytes) => match verb {
                's' | 'x' | 'X' | 'q' => {
                    self.marked(&Marked::data(String::from_utf8_lossy(bytes).into_owned()), verb)
                }
                _ => {
                    let items = bytes.iter().map(|byte| Dyn::Uint8(*byte)).collect();
                    self.value(&Dyn::list(items), verb, depth)
                }
            },
            Dyn::List(list) => {
                let (open, between, close) = match self.flags.sharp_v {
                    true => (format!("{}{{", value.type_name()), ", ", "}"),
                    false => ("[".to_owned(), " ", "]"),
                };
                self.out.push(&open)?;
                for (position, item) in list.items().iter().enumerate() {
                    if position > 0 {
                        self.out.push(between)?;
                    }
                    self.value(item, verb, depth + 1)?;
                }
                self.out.push(close)
            }
            Dyn::Map(map) if let Some(named) = map.named.filter(|_| map.is_record) => {
                self.out.push(if named.embedded > 0 { "{{" } else { "{" })?;
                for (position, field) in named.fields.iter().enumerate() {
                    let inner_ends = position == named.embedded && position > 0;
                    self.out.push(if inner_ends {
                        "} "
                    } else if position > 0 {
                        " "
                    } else {
                        ""
                    })?;
                    self.value(&map.get(field.name).unwrap_or(Dyn::Nil), verb, depth + 1)?;
                }
                self.out.push("}")
            }
            Dyn::Map(map) => {
                let (open, between, close) = match self.flags.sharp_v {
                    true => (format!("{}{{", value.type_name()), ", ", "}"),
                    false => ("map[".to_owned(), " ", "]"),
                };
                self.out.push(&open)?;
                for (position, (key, item)) in map.entries().into_iter().enumerate() {
                    if position > 0 {
                        self.out.push(between)?;
                    }
                    self.value(&Dyn::Text(Marked::data(key)), verb, depth + 1)?;
                    self.out.push(":")?;
                    self.value(&item, verb, depth + 1)?;
                }
                self.out.push(close)
            }
            Dyn::Time(_) | Dyn::Version(_) | Dyn::Duration(_) => match (verb, value) {
                ('v' | 's' | 'x' | 'X' | 'q', _) => {
                    self.marked(&Marked::data(stringer(value)), verb)
                }
                (_, Dyn::Duration(duration)) => {
                    self.integer(value, i128::from(duration.as_nanos()), verb)
                }
                _ => self.bad(value, verb),
            },
        }
    }

    /// Go: a verb that a value cannot have shows what the value is.
    fn bad(&mut self, value: &Dyn, verb: char) -> Result<(), Refusal> {
        self.out.push(&format!("%!{verb}({}=", value.type_name()))?;
        self.value(value, 'v', 0)?;
        self.out.push(")")
    }

    /// Writes with spaces (or zeros) up to the width, which counts characters.
    fn padded(&mut self, text: &str) -> Result<(), Refusal> {
        let missing = self.flags.width.unwrap_or(0).saturating_sub(text.chars().count());
        if missing == 0 {
            return self.out.push(text);
        }
        if self.flags.minus {
            self.out.push(text)?;
            return self.out.repeat(" ", missing);
        }
        self.out.repeat(if self.flags.zero { "0" } else { " " }, missing)?;
        self.out.push(text)
    }

    fn padded_with_spaces(&mut self, text: &str) -> Result<(), Refusal> {
        let zero = std::mem::take(&mut self.flags.zero);
        let result = self.padded(text);
        self.flags.zero = zero;
        result
    }

    /// Writes a text with its marks.
    fn marked(&mut self, text: &Marked, verb: char) -> Result<(), Refusal> {
        let start = self.out.text.len();
        let as_it_is = self.flags.width.is_none() && self.flags.precision.is_none();
        self.text(text, verb)?;
        let end = self.out.text.len();
        if !text.has_data() {
            return Ok(());
        }
        match verb {
            'v' | 's' if as_it_is && !self.flags.sharp_v => {
                self.out.keep(text.parts_of(0..text.len(), start))
            }
            'q' if as_it_is && self.out.text[start..].starts_with('"') => {
                self.out.mark(start + 1..end - 1, Some(Str::new(text.as_str())))
            }
            _ => self.out.mark(start..end, None),
        }
    }

    /// Writes something that is data.
    fn as_data(
        &mut self,
        write: impl FnOnce(&mut Self) -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        let start = self.out.text.len();
        write(self)?;
        self.out.mark(start..self.out.text.len(), None)
    }

    fn text(&mut self, text: &str, verb: char) -> Result<(), Refusal> {
        if matches!(verb, 'x' | 'X') {
            return self.hexadecimal(text.as_bytes(), verb);
        }
        let cut = match self.flags.precision {
            Some(characters) => {
                text.char_indices().nth(characters).map_or(text, |(end, _)| &text[..end])
            }
            None => text,
        };
        if verb == 'q' || self.flags.sharp_v {
            let backquoted = self.flags.sharp
                && !cut.contains(|c: char| {
                    c == '`' || c == '\u{FEFF}' || c != '\t' && c < ' ' || c == '\x7f'
                });
            let quoted = if backquoted {
                format!("`{cut}`")
            } else if self.flags.plus {
                quote_to_ascii(cut)
            } else {
                quote(cut)
            };
            return self.padded(&quoted);
        }
        self.padded(cut)
    }

    fn hexadecimal(&mut self, bytes: &[u8], verb: char) -> Result<(), Refusal> {
        let bytes = &bytes[..self.flags.precision.unwrap_or(bytes.len()).min(bytes.len())];
        let prefix = if verb == 'x' { "0x" } else { "0X" };
        let mut text = String::new();
        self.out.meter.make(bytes.len() as u64 * 5)?;
        for (position, byte) in bytes.iter().enumerate() {
            if self.flags.space && position > 0 {
                text.push(' ');
            }
            if self.flags.sharp && (self.flags.space || position == 0) {
                text.push_str(prefix);
            }
            text.push_str(&match verb {
                'x' => format!("{byte:02x}"),
                _ => format!("{byte:02X}"),
            });
        }
        self.padded(&text)
    }

    fn unsigned(&mut self, value: &Dyn, uint: u64, verb: char) -> Result<(), Refusal> {
        if verb == 'v' && self.flags.sharp_v {
            return self.padded(&format!("{uint:#x}"));
        }
        self.integer(value, i128::from(uint), verb)
    }

    fn integer(&mut self, value: &Dyn, int: i128, verb: char) -> Result<(), Refusal> {
        let size = int.unsigned_abs();
        let digits = match verb {
            'v' | 'd' => size.to_string(),
            'b' => format!("{size:b}"),
            'o' | 'O' => format!("{size:o}"),
            'x' => format!("{size:x}"),
            'X' => format!("{size:X}"),
            // A number of the data can stand for any character.
            'c' => return self.as_data(|printer| printer.padded(&character(int).to_string())),
            'q' => return self.as_data(|printer| printer.quoted_character(character(int))),
            'U' => return self.as_data(|printer| printer.code_point(int)),
            _ => return self.bad(value, verb),
        };
        let signed = int < 0 || self.flags.plus || self.flags.space;
        let least = match (self.flags.precision, self.flags.width) {
            (Some(0), _) if int == 0 => return self.padded_with_spaces(""),
            (Some(precision), _) => precision,
            (None, Some(width)) if self.flags.zero && !self.flags.minus => {
                width - usize::from(signed && width > 0)
            }
            _ => 0,
        };
        self.out.meter.make(least as u64)?;
        let mut text = "0".repeat(least.saturating_sub(digits.len())) + &digits;
        let prefix = match verb {
            'O' => "0o",
            'b' if self.flags.sharp => "0b",
            'o' if self.flags.sharp && !text.starts_with('0') => "0",
            'x' if self.flags.sharp => "0x",
            'X' if self.flags.sharp => "0X",
            _ => "",
        };
        text.insert_str(0, prefix);
        match (int < 0, self.flags.plus, self.flags.space) {
            (true, ..) => text.insert(0, '-'),
            (_, true, _) => text.insert(0, '+'),
            (_, _, true) => text.insert(0, ' '),
            _ => {}
        }
        self.padded_with_spaces(&text)
    }

    fn quoted_character(&mut self, c: char) -> Result<(), Refusal> {
        let double = if self.flags.plus {
            quote_to_ascii(c.encode_utf8(&mut [0; 4]))
        } else {
            quote(c.encode_utf8(&mut [0; 4]))
        };
        let inside = match c {
            '\'' => "\\'",
            '"' => "\"",
            _ => &double[1..double.len() - 1],
        };
        self.padded(&format!("'{inside}'"))
    }

    fn code_point(&mut self, int: i128) -> Result<(), Refusal> {
        let digits = self.flags.precision.unwrap_or(4).max(4);
        self.out.meter.make(digits as u64)?;
        let mut text = format!("U+{int:0digits$X}");
        if self.flags.sharp {
            text.push_str(&format!(" '{}'", character(int)));
        }
        self.padded_with_spaces(&text)
    }

    fn float(&mut self, value: &Dyn, float: f64, verb: char) -> Result<(), Refusal> {
        let Some(mut text) = self.float_text(float, verb) else { return self.bad(value, verb) };
        if self.flags.sharp && verb != 'b' && float.is_finite() {
            text = with_point(&text, verb, self.flags.precision);
        }
        let negative = text.starts_with('-');
        if text.starts_with('+') {
            text.remove(0);
        }
        if !float.is_finite() {
            if !negative && (self.flags.plus || float.is_infinite()) {
                text.insert(0, '+');
            } else if self.flags.space && !negative {
                text.insert(0, ' ');
            }
            return self.padded_with_spaces(&text);
        }
        if !negative && self.flags.plus {
            text.insert(0, '+');
        } else if !negative && self.flags.space {
            text.insert(0, ' ');
        }
        let has_sign = text.starts_with(['-', '+']);
        if has_sign && self.flags.zero && !self.flags.minus {
            // The sign stands before the zeros.
            let missing = self.flags.width.unwrap_or(0).saturating_sub(text.len());
            self.out.push(&text[..1])?;
            self.out.repeat("0", missing)?;
            return self.out.push(&text[1..]);
        }
        self.padded(&text)
    }

    fn float_text(&self, value: f64, verb: char) -> Option<String> {
        let precision = self.flags.precision;
        Some(match verb {
            'v' | 'g' => float::format(value, Style::General, precision),
            'G' => float::format(value, Style::General, precision).to_uppercase(),
            'e' => float::format(value, Style::Exponent, Some(precision.unwrap_or(6))),
            'E' => {
                float::format(value, Style::Exponent, Some(precision.unwrap_or(6))).to_uppercase()
            }
            'f' | 'F' => float::format(value, Style::Fixed, Some(precision.unwrap_or(6))),
            'x' => hexadecimal_float(value, precision),
            'X' => hexadecimal_float(value, precision).to_uppercase(),
            'b' => {
                let (mantissa, exponent) = binary(value);
                let sign = if value.is_sign_negative() { "-" } else { "" };
                format!("{sign}{mantissa}p{exponent:+}")
            }
            _ => return None,
        })
    }

    fn complex(
        &mut self,
        value: &Dyn,
        real: f64,
        imaginary: f64,
        verb: char,
    ) -> Result<(), Refusal> {
        if self.float_text(real, verb).is_none() {
            return self.bad(value, verb);
        }
        self.out.push("(")?;
        self.float(value, real, verb)?;
        let plus = std::mem::replace(&mut self.flags.plus, true);
        self.float(value, imaginary, verb)?;
        self.flags.plus = plus;
        self.out.push("i)")
    }
}

/// A float under `#`: with a point, and with the zeros that `%g` leaves out.
fn with_point(text: &str, verb: char, precision: Option<usize>) -> String {
    let hexadecimal = matches!(verb, 'x' | 'X');
    let is_exponent = |c: char| matches!(c, 'p' | 'P') || !hexadecimal && matches!(c, 'e' | 'E');
    let (number, exponent) = text.split_at(text.find(is_exponent).unwrap_or(text.len()));
    let wanted = match verb {
        'v' | 'g' | 'G' | 'x' => precision.unwrap_or(6),
        _ => 0,
    };
    let digits = number.trim_start_matches(['-', '+', '0', '.']);
    let mut given = digits.chars().filter(|c| *c != '.').count();
    let point = if number.contains('.') { "" } else { "." };
    // A zero before the point counts once.
    if !point.is_empty() && number.trim_start_matches(['-', '+']) == "0" {
        given += 1;
    }
    let zeros = "0".repeat(wanted.saturating_sub(given).min(float::MAX_PRECISION));
    format!("{number}{point}{zeros}{exponent}")
}

/// The text of types that print themselves.
pub(crate) fn stringer(value: &Dyn) -> String {
    match value {
        Dyn::Time(time) => time.format("2006-01-02 15:04:05.999999999 -0700 MST"),
        Dyn::Version(version) => version.to_string(),
        Dyn::Duration(duration) => duration.to_string(),
        _ => String::new(),
    }
}

fn character(int: i128) -> char {
    u32::try_from(int).ok().and_then(char::from_u32).unwrap_or(char::REPLACEMENT_CHARACTER)
}

/// The mantissa as an integer, and its power of two.
fn binary(value: f64) -> (u64, i32) {
    let bits = value.to_bits();
    let fraction = bits & ((1 << 52) - 1);
    match i32::try_from(bits >> 52 & 0x7FF).unwrap_or(0) {
        0 => (fraction, -1074),
        exponent => (fraction | 1 << 52, exponent - 1075),
    }
}

fn hexadecimal_float(value: f64, precision: Option<usize>) -> String {
    if !value.is_finite() {
        return float::print(value);
    }
    let sign = if value.is_sign_negative() { "-" } else { "" };
    let (mut mantissa, mut exponent) = binary(value);
    if mantissa == 0 {
        exponent = 0;
    } else {
        // One digit before the point: the highest bit is bit 60.
        let shift = mantissa.leading_zeros() - 3;
        mantissa <<= shift;
        exponent += 60 - i32::try_from(shift).unwrap_or(0);
        if let Some(digits) = precision.filter(|digits| *digits < 15) {
            let dropped = 60 - 4 * digits;
            let half = 1_u64 << (dropped - 1);
            let rest = mantissa & ((1 << dropped) - 1);
            mantissa >>= dropped;
            if rest > half || rest == half && mantissa & 1 == 1 {
                mantissa += 1;
            }
            mantissa <<= dropped;
            if mantissa >> 61 != 0 {
                mantissa >>= 1;
                exponent += 1;
            }
        }
    }
    let fraction = format!("{:015x}", mantissa & ((1 << 60) - 1));
    let fraction = match precision {
        None => fraction.trim_end_matches('0').to_owned(),
        Some(digits) => {
            let digits = digits.min(float::MAX_PRECISION);
            format!("{fraction:0<digits$}")[..digits].to_owned()
        }
    };
    let point = if fraction.is_empty() { "" } else { "." };
    let direction = if exponent < 0 { '-' } else { '+' };
    format!("{sign}0x{}{point}{fraction}p{direction}{:02}", mantissa >> 60, exponent.abs())
}
