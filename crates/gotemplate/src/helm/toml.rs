//! Values to TOML, as the library that Helm uses writes them: plain keys of a table first, then its tables, indented.

use std::fmt::Write as _;

use kiln_text::float;

use crate::error::Refusal;
use crate::format::{MAX_DEPTH, too_deep};
use crate::meter::Meter;
use crate::sprig::encoding::json;
use crate::value::{Dyn, Map};

type Result<R> = std::result::Result<R, Refusal>;

/// A map as TOML.
pub(super) fn encode(value: &Dyn, meter: &Meter) -> Result<String> {
    let mut encoder = Encoder { out: String::new(), meter };
    match value {
        Dyn::Map(map) => encoder.table(&mut Vec::new(), map)?,
        Dyn::Missing | Dyn::Nil => return Err("toml: cannot encode a nil value".into()),
        other => {
            let found = other.type_name();
            return Err(
                format!("toml: top-level values must be Go maps or structs, not {found}").into()
            );
        }
    }
    Ok(encoder.out)
}

struct Encoder<'m> {
    out: String,
    meter: &'m Meter,
}

impl Encoder<'_> {
    fn table(&mut self, path: &mut Vec<String>, map: &Map) -> Result<()> {
        if path.len() > MAX_DEPTH {
            return Err(too_deep());
        }
        let mut tables = Vec::new();
        for (key, value) in map.entries() {
            self.meter.step(1)?;
            match &value {
                Dyn::Missing | Dyn::Nil => {}
                Dyn::Map(_) => tables.push((key, value)),
                Dyn::List(list) if is_list_of_tables(&value) => {
                    // A list of no tables is written in its place.
                    if list.items().is_empty() {
                        self.entry(path, &key, &value)?;
                    } else {
                        tables.push((key, value));
                    }
                }
                _ => self.entry(path, &key, &value)?,
            }
        }
        for (key, value) in tables {
            path.push(key_text(&key));
            match &value {
                Dyn::Map(map) => {
                    self.header(path, "[", "]")?;
                    self.table(path, map)?;
                }
                Dyn::List(list) => {
                    for item in list.items() {
                        if let Dyn::Map(map) = item {
                            self.header(path, "[[", "]]")?;
                            self.table(path, map)?;
                        }
                    }
                }
                _ => {}
            }
            path.pop();
        }
        Ok(())
    }

    fn header(&mut self, path: &[String], open: &str, close: &str) -> Result<()> {
        if path.len() == 1 && !self.out.is_empty() {
            self.out.push('\n');
        }
        self.indent(path.len() - 1);
        let _ = writeln!(self.out, "{open}{}{close}", path.join("."));
        self.meter.make(path.iter().map(|key| key.len() as u64 + 4).sum())
    }

    fn indent(&mut self, depth: usize) {
        self.out.extend(std::iter::repeat_n("  ", depth));
    }

    fn entry(&mut self, path: &[String], key: &str, value: &Dyn) -> Result<()> {
        self.indent(path.len());
        self.out.push_str(&key_text(key));
        self.out.push_str(" = ");
        self.inline(value, 0)?;
        self.out.push('\n');
        self.meter.make(key.len() as u64 + 4)
    }

    fn inline(&mut self, value: &Dyn, depth: usize) -> Result<()> {
        self.meter.step(1)?;
        if depth > MAX_DEPTH {
            return Err(too_deep());
        }
        match value {
            Dyn::Bool(truth) => self.out.push_str(if *truth { "true" } else { "false" }),
            Dyn::Float(number) => self.out.push_str(&float_text(*number)),
            Dyn::Text(text) => {
                self.meter.make(text.len() as u64)?;
                self.out.push_str(&quoted(text));
            }
            Dyn::List(list) => {
                self.out.push('[');
                for (at, item) in list.items().iter().enumerate() {
                    if at > 0 {
                        self.out.push_str(", ");
                    }
                    if item.is_nil() {
                        return Err("toml: cannot encode array with nil element".into());
                    }
                    self.inline(item, depth + 1)?;
                }
                self.out.push(']');
            }
            Dyn::Map(map) => {
                self.out.push('{');
                let present = map.entries().into_iter().filter(|(_, value)| !value.is_nil());
                for (at, (key, item)) in present.enumerate() {
                    if at > 0 {
                        self.out.push_str(", ");
                    }
                    self.out.push_str(&key_text(&key));
                    self.out.push_str(" = ");
                    self.inline(&item, depth + 1)?;
                }
                self.out.push('}');
            }
            other => match other.as_integer() {
                Some(int) => {
                    let _ = write!(self.out, "{int}");
                }
                // Times and versions are texts.
                None => {
                    let text = json::value_of(other, self.meter, 0)?;
                    self.out.push_str(&quoted(text.as_str().unwrap_or_default()));
                }
            },
        }
        self.meter.make(8)
    }
}

/// Whether a list holds tables only.
fn is_list_of_tables(value: &Dyn) -> bool {
    match value {
        Dyn::List(list) => {
            !list.items().is_empty() && list.items().iter().all(|item| matches!(item, Dyn::Map(_)))
        }
        _ => false,
    }
}

fn key_text(key: &str) -> String {
    let bare = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_');
    if !key.is_empty() && key.bytes().all(bare) { key.to_owned() } else { quoted(key) }
}

/// A whole number is still a float.
fn float_text(number: f64) -> String {
    if number.is_nan() {
        return "nan".to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    let text = float::print(number);
    match text.split_once('e') {
        Some(_) => text,
        None if text.contains('.') => text,
        None => format!("{text}.0"),
    }
}

fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '\t' => out.push_str("\\t"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\0'..='\u{1f}' | '\u{7f}' => {
                let _ = write!(out, "\\u{:04x}", c as u32);
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}
