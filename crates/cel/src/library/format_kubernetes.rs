//! `format` in the release of the extension that Kubernetes keeps to: parts of lists and maps are
//! written as literals, and floats as people in the United States write them.

use kiln_text::float::{self, Style};
use kiln_text::quote::quote;

use super::format::{Clause, FormatWriter, write};
use crate::Val;
use crate::error::{EvalFailure, failure};
use crate::eval::Context;
use crate::value::time::format_duration;

/// Digits after the point of floats in lists and maps, and of those with an exponent.
const PRECISION: usize = 6;

pub(super) fn run(context: &mut Context<'_>, args: &[Val]) -> Result<Val, EvalFailure> {
    write(context, args, clause)
}

fn clause(
    writer: &mut FormatWriter<'_, '_>,
    clause: Clause,
    value: &Val,
) -> Result<(), EvalFailure> {
    let refused = |what: &str| {
        let name = value.type_name();
        Err(failure(format!(
            "error during formatting: {what} clause can only be used on {}, was given {name}",
            if what == "decimal" { "integers" } else { "doubles" }
        )))
    };
    match (clause.verb, value) {
        ('s', Val::List(_) | Val::Map(_)) => literal(writer, value),
        // Not words but signs, as conversions to text have them.
        ('s', Val::Double(x)) => writer.push(&float::print(*x)),
        ('d', Val::Double(_)) => refused("decimal"),
        ('f' | 'e', _) => match (float_of(value), clause.verb) {
            (None, 'f') => refused("fixed-point"),
            (None, _) => refused("scientific"),
            (Some(x), _) if x.is_nan() => writer.push("NaN"),
            (Some(x), _) if x.is_infinite() => writer.push(if x < 0.0 { "-∞" } else { "∞" }),
            (Some(x), 'f') => {
                writer.push(&grouped(&float::format(x, Style::Fixed, Some(clause.precision))))
            }
            // The precision is taken for a width, and texts are longer than that.
            (Some(x), _) => {
                writer.push(&raised(&float::format(x, Style::Exponent, Some(PRECISION))))
            }
        },
        _ => writer.clause(clause, value),
    }
}

fn float_of(value: &Val) -> Option<f64> {
    match value {
        Val::Double(x) => Some(*x),
        Val::String(text) => match text.as_str() {
            "NaN" => Some(f64::NAN),
            "Infinity" => Some(f64::INFINITY),
            "-Infinity" => Some(f64::NEG_INFINITY),
            _ => None,
        },
        _ => None,
    }
}

/// A comma after each thousand.
fn grouped(number: &str) -> String {
    let (whole, fraction) = number.split_at(number.find('.').unwrap_or(number.len()));
    let (sign, digits) = whole.split_at(usize::from(whole.starts_with('-')));
    let mut text = sign.to_owned();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text + fraction
}

/// `1.5e-03` as `1.5×10⁻⁰³`.
fn raised(number: &str) -> String {
    const DIGITS: [char; 10] = ['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹'];
    let (mantissa, exponent) = number.split_once('e').unwrap_or((number, "+00"));
    let mut text = format!("{mantissa}×10");
    for c in exponent.chars() {
        match c.to_digit(10) {
            Some(digit) => text.push(DIGITS[digit as usize]),
            None if c == '-' => text.push('⁻'),
            None => {}
        }
    }
    text
}

/// A part of a list or a map, as expressions write it.
fn literal(writer: &mut FormatWriter<'_, '_>, value: &Val) -> Result<(), EvalFailure> {
    match value {
        Val::Null => writer.push("null"),
        Val::Bool(b) => writer.push(if *b { "true" } else { "false" }),
        Val::Int(i) => writer.push(&i.to_string()),
        Val::UInt(u) => writer.push(&u.to_string()),
        Val::Double(x) if x.is_finite() => {
            writer.push(&float::format(*x, Style::Fixed, Some(PRECISION)))
        }
        Val::Double(x) => writer.push(&quote(&float::print(*x))),
        Val::String(text) => writer.push(&quote(text)),
        Val::Bytes(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => writer.push(&format!("b{}", quote(text))),
            Err(_) => Err(failure("invalid UTF-8 in bytes, cannot convert to string")),
        },
        Val::Type(name) => writer.push(name),
        Val::Timestamp(moment) => writer.push(&format!("timestamp({})", quote(&moment.text()?))),
        Val::Duration(span) => {
            writer.push(&format!("duration({})", quote(&format_duration(*span))))
        }
        Val::List(list) => {
            writer.push("[")?;
            for (at, element) in list.iter().enumerate() {
                writer.push(if at > 0 { ", " } else { "" })?;
                literal(writer, &element)?;
            }
            writer.push("]")
        }
        Val::Map(map) => {
            let mut entries = Vec::with_capacity(map.len());
            for (key, value) in map.iter() {
                entries.push((key_literal(&key)?, value));
            }
            entries.sort_by(|a, b| a.0.cmp(&b.0));
            writer.push("{")?;
            for (at, (key, value)) in entries.iter().enumerate() {
                writer.push(if at > 0 { ", " } else { "" })?;
                writer.push(key)?;
                writer.push(":")?;
                literal(writer, value)?;
            }
            writer.push("}")
        }
        other => Err(unprintable(other)),
    }
}

fn key_literal(key: &Val) -> Result<String, EvalFailure> {
    match key {
        Val::String(text) => Ok(quote(text)),
        Val::Bool(b) => Ok(b.to_string()),
        Val::Int(i) => Ok(i.to_string()),
        Val::UInt(u) => Ok(u.to_string()),
        other => Err(unprintable(other)),
    }
}

fn unprintable(value: &Val) -> EvalFailure {
    failure(format!("no formatting function for {}", value.type_name()))
}
