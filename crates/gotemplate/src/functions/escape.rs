//! Escaping for HTML, JavaScript and the query of an address.

use std::fmt::Write as _;

use super::FunctionCall;
use crate::error::Refusal;
use crate::format;
use crate::value::Dyn;

/// The arguments as one text.
fn joined(call: &FunctionCall<'_>, arguments: &[Dyn]) -> Result<String, Refusal> {
    let shown = |value: &Dyn| match value {
        Dyn::Missing | Dyn::Nil => Dyn::from("<no value>"),
        other => other.clone(),
    };
    let arguments: Vec<Dyn> = arguments.iter().map(shown).collect();
    let text = format::print(&arguments, call.meter)?;
    // An escape takes at most six bytes for one.
    call.meter.make(text.len() as u64 * 6)?;
    Ok(text.to_string())
}

pub(super) fn html(call: &FunctionCall<'_>, arguments: &[Dyn]) -> Result<Dyn, Refusal> {
    let mut out = String::new();
    for c in joined(call, arguments)?.chars() {
        match c {
            '"' => out.push_str("&#34;"),
            '\'' => out.push_str("&#39;"),
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '\0' => out.push('\u{FFFD}'),
            c => out.push(c),
        }
    }
    Ok(out.into())
}

pub(super) fn js(call: &FunctionCall<'_>, arguments: &[Dyn]) -> Result<Dyn, Refusal> {
    let mut out = String::new();
    for c in joined(call, arguments)?.chars() {
        match c {
            '\\' | '\'' | '"' => out.extend(['\\', c]),
            '<' | '>' | '&' | '=' | '\0'..'\x20' => {
                let _ = write!(out, "\\u{:04X}", u32::from(c));
            }
            _ if c.is_ascii() || is_print(c) => out.push(c),
            c => {
                let _ = write!(out, "\\u{:04X}", u32::from(c));
            }
        }
    }
    Ok(out.into())
}

fn is_print(c: char) -> bool {
    let quoted = kiln_text::quote::quote(c.encode_utf8(&mut [0; 4]));
    !quoted.contains('\\')
}

pub(super) fn urlquery(call: &FunctionCall<'_>, arguments: &[Dyn]) -> Result<Dyn, Refusal> {
    Ok(query_escape(&joined(call, arguments)?).into())
}

/// As Go's `url.QueryEscape`.
pub(crate) fn query_escape(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                out.push(char::from(byte));
            }
            b' ' => out.push('+'),
            _ => {
                let _ = write!(out, "%{byte:02X}");
            }
        }
    }
    out
}
