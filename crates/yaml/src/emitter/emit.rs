//! Values to YAML, byte for byte as `sigs.k8s.io/yaml` (go-yaml v2 behind JSON) prints them.
//!
//! Where the original fails, this does not: control characters are written as escapes, infinity and
//! NaN as `.inf` and `.nan`. A key `<<` is quoted, so that it is not read as a merge.

use std::io;

use kiln_value::{Key, List, Map, Number, Value};

use crate::emitter::float;
use crate::emitter::order;
use crate::emitter::scalar::Page;
use crate::emitter::style::{Style, analyze, fold_next_line};

/// How to write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EmitOptions {
    /// The order of map keys.
    pub key_order: KeyOrder,
}

/// The order of map keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeyOrder {
    /// go-yaml's natural order: `k9` before `k10`, letters after everything else.
    #[default]
    Natural,
    /// The order that the map has.
    AsIs,
}

/// A value as YAML, keys in natural order.
pub fn emit(value: &Value) -> String {
    let mut out = String::new();
    emit_into(&mut out, value, &EmitOptions::default());
    out
}

/// Several values as YAML documents with `---` between them, keys in natural order.
pub fn emit_documents<'v>(values: impl IntoIterator<Item = &'v Value>) -> String {
    let mut out = String::new();
    for (at, value) in values.into_iter().enumerate() {
        if at > 0 {
            out.push_str("---\n");
        }
        emit_into(&mut out, value, &EmitOptions::default());
    }
    out
}

/// Appends a value as one YAML document. `out` must be empty or end with a line break.
pub fn emit_into(out: &mut String, value: &Value, options: &EmitOptions) {
    Emitter { page: Page::new(out), order: Vec::new(), options }.root(value);
}

/// Writes documents one after the other, with `---` between them.
#[derive(Debug)]
pub struct Writer<W> {
    to: W,
    options: EmitOptions,
    buffer: String,
    begun: bool,
}

impl<W: io::Write> Writer<W> {
    /// A writer.
    pub fn new(to: W, options: EmitOptions) -> Self {
        Writer { to, options, buffer: String::new(), begun: false }
    }

    /// Writes one more document.
    ///
    /// # Errors
    /// When the underlying writer fails.
    pub fn write(&mut self, value: &Value) -> io::Result<()> {
        self.buffer.clear();
        if self.begun {
            self.buffer.push_str("---\n");
        }
        self.begun = true;
        emit_into(&mut self.buffer, value, &self.options);
        self.to.write_all(self.buffer.as_bytes())
    }

    /// What was written to.
    pub fn into_inner(self) -> W {
        self.to
    }
}

/// go-yaml v2: longer keys are written with `? `.
const LONGEST_SIMPLE_KEY: usize = 128;

const STEP: usize = 2;

struct Emitter<'o> {
    page: Page<'o>,
    /// The key orders of all open maps that were not in order.
    order: Vec<u32>,
    options: &'o EmitOptions,
}

impl Emitter<'_> {
    fn root(&mut self, value: &Value) {
        match value {
            Value::Map(map) if !map.is_empty() => self.map(map, 0, false),
            Value::List(list) if !list.is_empty() => self.list(list, 0, false),
            scalar => self.scalar_line(scalar, STEP),
        }
    }

    /// The entries of a map, the first on the line that is already begun or each on its own.
    fn map(&mut self, map: &Map, indent: usize, mut begun: bool) {
        let entries = map.as_slice();
        let in_order = self.options.key_order == KeyOrder::AsIs
            || order::is_sorted(entries.iter().map(|(key, _)| key.as_str()));
        if in_order {
            for (key, value) in entries {
                self.entry(key, value, indent, std::mem::take(&mut begun));
            }
            return;
        }
        // One vector serves all open maps as a stack, so that a map costs no allocation. Most maps are in order and do not get here.
        let first = self.order.len();
        // Maps have fewer than 2^32 entries.
        self.order.extend(0..entries.len() as u32);
        order::sort(&mut self.order[first..], |at| entries[at as usize].0.as_str());
        for at in first..first + entries.len() {
            let (key, value) = &entries[self.order[at] as usize];
            self.entry(key, value, indent, std::mem::take(&mut begun));
        }
        self.order.truncate(first);
    }

    fn entry(&mut self, key: &Key, value: &Value, indent: usize, begun: bool) {
        if !begun {
            self.page.pad(indent);
        }
        let analysis = analyze(key);
        let style = if key == "<<" { Style::DoubleQuoted } else { analysis.style };
        if analysis.multiline || key.len() > LONGEST_SIMPLE_KEY {
            self.page.push("? ");
            self.page.string_line(key, style, indent + STEP);
            self.page.pad(indent);
            self.page.push(":");
            // After an explicit key everything may begin on the line of the colon.
            self.value_on_line(value, indent);
            return;
        }
        self.page.string(key, style, indent + STEP, false);
        self.page.push(":");
        match value {
            Value::Map(map) if !map.is_empty() => {
                self.page.end_line();
                self.map(map, indent + STEP, false);
            }
            Value::List(list) if !list.is_empty() => {
                self.page.end_line();
                // go-yaml v2: a list is not indented below its key.
                self.list(list, indent, false);
            }
            scalar => {
                self.page.push(" ");
                self.scalar_line(scalar, indent + STEP);
            }
        }
    }

    fn list(&mut self, list: &List, indent: usize, mut begun: bool) {
        for element in list {
            if !std::mem::take(&mut begun) {
                self.page.pad(indent);
            }
            self.page.push("-");
            self.value_on_line(element, indent);
        }
    }

    /// A value that begins on the line of the `-` or `:` before it.
    fn value_on_line(&mut self, value: &Value, indent: usize) {
        self.page.push(" ");
        match value {
            Value::Map(map) if !map.is_empty() => self.map(map, indent + STEP, true),
            Value::List(list) if !list.is_empty() => self.list(list, indent + STEP, true),
            scalar => self.scalar_line(scalar, indent + STEP),
        }
    }

    fn scalar_line(&mut self, value: &Value, indent: usize) {
        match value {
            Value::String(text) => {
                let text = fold_next_line(text);
                self.page.string_line(&text, analyze(&text).style, indent);
                return;
            }
            Value::Null => self.page.push("null"),
            Value::Bool(true) => self.page.push("true"),
            Value::Bool(false) => self.page.push("false"),
            Value::Number(Number::Float(float)) => float::write(self.page.text(), *float),
            Value::Number(number) => {
                use std::fmt::Write;
                let _ = write!(self.page.text(), "{number}");
            }
            // Only empty ones get here.
            Value::List(_) => self.page.push("[]"),
            Value::Map(_) => self.page.push("{}"),
        }
        self.page.end_line();
    }
}
