//! `format`: printf-like texts.

use std::fmt::Write as _;

use kiln_text::float::{self, Style};

use crate::Val;
use crate::error::{EvalFailure, failure, no_such_overload};
use crate::eval::Context;
use crate::value::CelList;
use crate::value::time::format_duration;

/// Digits after the point when the clause names none.
const PRECISION: usize = 6;
/// More digits than any float has.
const MAX_PRECISION: usize = 1000;

pub(super) fn run(context: &mut Context<'_>, args: &[Val]) -> Result<Val, EvalFailure> {
    write(context, args, newest)
}

fn newest(
    writer: &mut FormatWriter<'_, '_>,
    clause: Clause,
    value: &Val,
) -> Result<(), EvalFailure> {
    writer.clause(clause, value)
}

/// Writes a text with each of its clauses written by a function.
pub(super) fn write<'c>(
    context: &mut Context<'c>,
    args: &[Val],
    write_clause: impl Fn(&mut FormatWriter<'_, 'c>, Clause, &Val) -> Result<(), EvalFailure>,
) -> Result<Val, EvalFailure> {
    let [Val::String(text), Val::List(values)] = args else { return Err(no_such_overload()) };
    context.meter.charge_text(text.len() as u64)?;
    let mut writer = FormatWriter { context, out: String::with_capacity(text.len()) };
    let mut next = 0;
    let mut rest = text.as_str();
    while let Some(at) = rest.find('%') {
        writer.push(&rest[..at])?;
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('%') {
            writer.push("%")?;
            rest = after;
            continue;
        }
        let (clause, after) = Clause::parse(rest)?;
        rest = after;
        let value = argument(values, next)?;
        next += 1;
        write_clause(&mut writer, clause, &value)?;
    }
    writer.push(rest)?;
    Ok(Val::from(writer.out))
}

/// Whether a text works with so many values; `argument` says whether a verb takes the value at a place.
pub(crate) fn verify(
    text: &str,
    count: usize,
    mut argument: impl FnMut(char, usize) -> Result<(), String>,
) -> Result<(), String> {
    let mut next = 0;
    let mut rest = text;
    while let Some(at) = rest.find('%') {
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('%') {
            rest = after;
            continue;
        }
        let (clause, after) = Clause::parse(rest).map_err(|error| error.to_string())?;
        rest = after;
        if next >= count {
            return Err(format!("index {next} out of range"));
        }
        if !VERBS.contains(clause.verb) {
            return Err(unknown(clause.verb));
        }
        argument(clause.verb, next)?;
        next += 1;
    }
    if next < count {
        return Err(format!(
            "too many arguments supplied to string.format (expected {next}, got {count})"
        ));
    }
    Ok(())
}

const VERBS: &str = "sdfeboxX";

fn unknown(verb: char) -> String {
    format!("could not parse formatting clause: unrecognized formatting clause \"{verb}\"")
}

fn argument(values: &CelList, index: usize) -> Result<Val, EvalFailure> {
    values.get(index).ok_or_else(|| failure(format!("index {index} out of range")))
}

#[derive(Clone, Copy)]
pub(super) struct Clause {
    pub(super) verb: char,
    pub(super) precision: usize,
}

impl Clause {
    fn parse(text: &str) -> Result<(Clause, &str), EvalFailure> {
        let mut rest = text;
        let mut precision = PRECISION;
        if let Some(after) = text.strip_prefix('.') {
            let digits = after.find(|c: char| !c.is_ascii_digit()).unwrap_or(after.len());
            let (number, after) = after.split_at(digits);
            precision =
                number.parse().ok().filter(|precision| *precision <= MAX_PRECISION).ok_or_else(
                    || failure(format!("invalid precision {number:?} in formatting clause")),
                )?;
            rest = after;
        }
        let verb = rest.chars().next().ok_or_else(|| failure("unexpected end of string"))?;
        Ok((Clause { verb, precision }, &rest[verb.len_utf8()..]))
    }
}

pub(super) struct FormatWriter<'c, 'h> {
    context: &'c mut Context<'h>,
    out: String,
}

impl FormatWriter<'_, '_> {
    pub(super) fn push(&mut self, text: &str) -> Result<(), EvalFailure> {
        self.context.meter.charge_text(text.len() as u64)?;
        self.out.push_str(text);
        Ok(())
    }

    pub(super) fn clause(&mut self, clause: Clause, value: &Val) -> Result<(), EvalFailure> {
        let refused = || {
            let name = value.type_name();
            failure(format!(
                "error during formatting: %{} clause cannot be used on {name}",
                clause.verb
            ))
        };
        let text = match clause.verb {
            's' => return self.value(value),
            'd' => match value {
                Val::Int(i) => i.to_string(),
                Val::UInt(u) => u.to_string(),
                Val::Double(x) => special(*x).map_or_else(|| float::print(*x), str::to_owned),
                _ => return Err(refused()),
            },
            'f' => match as_float(value) {
                Some(x) => special(x).map_or_else(
                    || float::format(x, Style::Fixed, Some(clause.precision)),
                    str::to_owned,
                ),
                None => return Err(refused()),
            },
            'e' => match as_float(value) {
                Some(x) => special(x).map_or_else(
                    || float::format(x, Style::Exponent, Some(clause.precision)),
                    str::to_owned,
                ),
                None => return Err(refused()),
            },
            'b' => match value {
                Val::Int(i) => signed(*i, |size| format!("{size:b}")),
                Val::UInt(u) => format!("{u:b}"),
                Val::Bool(b) => u8::from(*b).to_string(),
                _ => return Err(refused()),
            },
            'o' => match value {
                Val::Int(i) => signed(*i, |size| format!("{size:o}")),
                Val::UInt(u) => format!("{u:o}"),
                _ => return Err(refused()),
            },
            'x' => self.hex(value)?.ok_or_else(refused)?,
            'X' => self.hex(value)?.ok_or_else(refused)?.to_ascii_uppercase(),
            other => return Err(failure(unknown(other))),
        };
        self.push(&text)
    }

    fn hex(&mut self, value: &Val) -> Result<Option<String>, EvalFailure> {
        let bytes = match value {
            Val::Int(i) => return Ok(Some(signed(*i, |size| format!("{size:x}")))),
            Val::UInt(u) => return Ok(Some(format!("{u:x}"))),
            Val::String(text) => text.as_bytes(),
            Val::Bytes(bytes) => bytes,
            _ => return Ok(None),
        };
        self.context.meter.charge_text(2 * bytes.len() as u64)?;
        let mut text = String::with_capacity(2 * bytes.len());
        for byte in bytes {
            let _ = write!(text, "{byte:02x}");
        }
        Ok(Some(text))
    }

    /// Any value as text, as `%s` shows it.
    fn value(&mut self, value: &Val) -> Result<(), EvalFailure> {
        match value {
            Val::Null => self.push("null"),
            Val::Bool(b) => self.push(if *b { "true" } else { "false" }),
            Val::Int(i) => self.push(&i.to_string()),
            Val::UInt(u) => self.push(&u.to_string()),
            Val::Double(x) => match special(*x) {
                Some(word) => self.push(word),
                // The newest release never takes exponents.
                None => self.push(&float::format(*x, Style::Fixed, None)),
            },
            Val::String(text) => self.push(text),
            Val::Bytes(bytes) => match std::str::from_utf8(bytes) {
                Ok(text) => self.push(text),
                Err(_) => Err(failure("invalid UTF-8 in bytes, cannot convert to string")),
            },
            Val::Duration(duration) => self.push(&format_duration(*duration)),
            Val::Timestamp(timestamp) => self.push(&timestamp.text()?),
            Val::Type(name) => self.push(name),
            Val::List(list) => {
                self.push("[")?;
                for (at, element) in list.iter().enumerate() {
                    self.push(if at > 0 { ", " } else { "" })?;
                    self.value(&element)?;
                }
                self.push("]")
            }
            Val::Map(map) => self.map(map),
            other => Err(failure(format!(
                "error during formatting: string clause can only be used on strings, bools, bytes, \
                 ints, doubles, maps, lists, types, durations, and timestamps, was given {}",
                other.type_name()
            ))),
        }
    }

    /// Entries sorted by the text of their keys.
    fn map(&mut self, map: &crate::value::Map) -> Result<(), EvalFailure> {
        let mut entries = Vec::with_capacity(map.len());
        for (key, value) in map.iter() {
            self.context.meter.charge(1)?;
            let mut text = FormatWriter { context: self.context, out: String::new() };
            text.value(&key)?;
            entries.push((text.out, value));
        }
        entries.sort_by(|a, b| a.0.cmp(&b.0));
        self.push("{")?;
        for (at, (key, value)) in entries.iter().enumerate() {
            self.push(if at > 0 { ", " } else { "" })?;
            self.push(key)?;
            self.push(": ")?;
            self.value(value)?;
        }
        self.push("}")
    }
}

fn as_float(value: &Val) -> Option<f64> {
    match value {
        Val::Double(x) => Some(*x),
        Val::Int(i) => Some(*i as f64),
        Val::UInt(u) => Some(*u as f64),
        _ => None,
    }
}

fn special(x: f64) -> Option<&'static str> {
    if x.is_nan() {
        Some("NaN")
    } else if x.is_infinite() {
        Some(if x > 0.0 { "Infinity" } else { "-Infinity" })
    } else {
        None
    }
}

/// Rust leaves the sign to two's complement; people expect a minus.
fn signed(i: i64, digits: impl Fn(u64) -> String) -> String {
    let text = digits(i.unsigned_abs());
    if i < 0 { format!("-{text}") } else { text }
}
