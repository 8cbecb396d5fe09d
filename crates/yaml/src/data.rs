//! Text of which some parts are data: they fill scalars and make no structure, whatever characters they have.
//!
//! Templates that write YAML put the values of objects between their own text. In place of each value stands a word of
//! letters and digits while the text is read; where the word ends up, the value is filled in. So the structure is that of
//! the template's own text, and a value cannot end the scalar that it stands in.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use kiln_diagnostic::{Diagnostic, Source};
use kiln_value::{KeyTable, Map, Str, Value, json};

use crate::compose::Composer;
use crate::document::Reader;
use crate::events::decode;
use crate::events::event::{Quoting, Scalar};
use crate::options::ReadOptions;
use crate::span::Nowhere;

/// A part of a text that is data.
#[derive(Clone, Debug)]
pub struct Datum {
    /// Where it stands in the text, in bytes.
    pub at: Range<usize>,
    /// What it says where it was written with the escapes of double quotes.
    pub unescaped: Option<Str>,
    /// The list or map that it is the text of: that is what it is if it stands alone, outside of quotes.
    pub structure: Option<Value>,
}

/// A text of which some parts are data.
#[derive(Debug)]
pub struct TextWithData {
    /// The text with a word in place of each datum.
    outline: String,
    /// What every word begins with, and nothing else of the outline holds.
    mark: String,
    filled: Vec<Filled>,
}

#[derive(Debug)]
struct Filled {
    text: Str,
    unescaped: Option<Str>,
    structure: Option<Value>,
}

/// What a scalar is once it is filled.
pub(crate) enum Content {
    Text(String),
    Structure(Value),
}

impl TextWithData {
    /// A text with its data, which stand in order and apart from each other.
    pub fn new(text: &str, data: &[Datum]) -> Self {
        let mark = unused_mark(text, data);
        let (mut outline, mut filled) = (String::with_capacity(text.len()), Vec::new());
        let mut end = 0;
        for (position, datum) in data.iter().enumerate() {
            outline.push_str(&text[end..datum.at.start]);
            end = datum.at.end;
            let next = data.get(position + 1).map_or(text.len(), |next| next.at.start);
            let ends_line = text[end..next].starts_with('\n') || end == text.len();
            // Empty lines behind a value are empty lines, as in any text.
            let said = &text[datum.at.clone()];
            let kept = if ends_line { said.trim_end_matches('\n') } else { said };
            if !kept.is_empty() {
                outline.push_str(&format!("{mark}{}z", filled.len()));
                filled.push(Filled {
                    text: Str::new(kept),
                    unescaped: datum.unescaped.clone().filter(|_| kept.len() == said.len()),
                    structure: datum.structure.clone(),
                });
            }
            outline.push_str(&said[kept.len()..]);
        }
        outline.push_str(&text[end..]);
        TextWithData { outline, mark, filled }
    }

    /// The values of all documents. Empty documents are left out.
    ///
    /// # Errors
    /// At the first thing that is wrong: what the text is without its data has to be YAML.
    pub fn read(&self, name: &str, options: ReadOptions) -> Result<Vec<Value>, Diagnostic> {
        let mut keys = KeyTable::new();
        let source = Arc::new(Source::new(name, self.outline.as_str()));
        decode::check(&source, &options.limits)?;
        if let Some(value) = Reader::new(options).read_json(&source)
            && let Some(filled) = self.fill_strings(&value)
        {
            return Ok(vec![filled]);
        }
        let mut composer = Composer::<Nowhere>::new(&source, 0, &options, &mut keys);
        composer.data = Some(self);
        let mut values = Vec::new();
        let described = |fault: Box<Diagnostic>| {
            let mut fault = *fault;
            fault.message = self.described(&fault.message);
            fault
        };
        while let Some(composed) = composer.document().map_err(described)? {
            if !composed.empty {
                values.push(composed.value);
            }
        }
        Ok(values)
    }

    /// The value of a text that is JSON without its data, which stand in quotes then, and in no key.
    pub fn read_json(&self) -> Option<Value> {
        json::parse(&self.outline).ok().and_then(|value| self.fill_strings(&value))
    }

    /// The values of all documents with words in place of the data; see [`TextWithData::data_in`].
    ///
    /// # Errors
    /// As [`TextWithData::read`].
    pub fn read_outline(&self, name: &str, options: ReadOptions) -> Result<Vec<Value>, Diagnostic> {
        let read = crate::read_bytes(name, self.outline.as_bytes(), options)?;
        Ok(read.into_iter().map(crate::Document::into_value).collect())
    }

    /// Which data stand in a text of the outline, with where their words begin.
    pub fn data_in(&self, text: &str) -> Vec<(usize, usize)> {
        self.words(text).into_iter().map(|(at, index)| (at.start, index)).collect()
    }

    /// Lets a datum say something else.
    pub fn change(&mut self, index: usize, change: impl FnOnce(&str) -> String) {
        let Some(filled) = self.filled.get_mut(index) else { return };
        let text = Str::from(change(&filled.text));
        *filled = Filled { text, unescaped: None, structure: None };
    }

    /// A message of a reader with `{{ … }}` in place of each word.
    fn described(&self, message: &str) -> String {
        let (mut out, mut end) = (String::new(), 0);
        for (at, _) in self.words(message) {
            out.push_str(&message[end..at.start]);
            out.push_str("{{ … }}");
            end = at.end;
        }
        out.push_str(&message[end..]);
        out
    }

    fn words(&self, text: &str) -> Vec<(Range<usize>, usize)> {
        let mut words = Vec::new();
        let mut from = 0;
        while let Some(at) = text[from..].find(&self.mark) {
            let start = from + at;
            let digits = start + self.mark.len();
            let end = text[digits..].find('z').map_or(digits, |length| digits + length);
            from = digits;
            if let Ok(index) = text[digits..end].parse::<usize>()
                && index < self.filled.len()
            {
                words.push((start..end + 1, index));
                from = end + 1;
            }
        }
        words
    }

    /// What a scalar of the outline says; `None` if there is no data in it.
    pub(crate) fn content(&self, scalar: &Scalar<'_>) -> Option<Content> {
        let words = self.words(&scalar.text);
        let plain = scalar.is_plain();
        if let [(at, index)] = words.as_slice()
            && *at == (0..scalar.text.len())
            && plain
            && scalar.properties.tag.is_none()
            && let Some(structure) = &self.filled[*index].structure
        {
            return Some(Content::Structure(structure.clone()));
        }
        let text = self.fill(&scalar.text, scalar.quoting)?;
        Some(Content::Text(match plain {
            // Blanks around a plain scalar do not belong to it.
            true => text.trim_matches([' ', '\t', '\n', '\r']).to_owned(),
            false => text,
        }))
    }

    fn fill(&self, text: &str, quoting: Quoting) -> Option<String> {
        let words = self.words(text);
        if words.is_empty() {
            return None;
        }
        let (mut out, mut end) = (String::with_capacity(text.len()), 0);
        for (at, index) in words {
            let filled = &self.filled[index];
            out.push_str(&text[end..at.start]);
            out.push_str(match (&filled.unescaped, quoting) {
                (Some(unescaped), Quoting::Double) => unescaped,
                _ => &filled.text,
            });
            end = at.end;
        }
        out.push_str(&text[end..]);
        Some(out)
    }

    /// Fills what was read as JSON, where every word stands in quotes. Keys are left to the composer, which knows about
    /// those that are there twice.
    fn fill_strings(&self, value: &Value) -> Option<Value> {
        Some(match value {
            Value::String(text) => {
                self.fill(text, Quoting::Double).map_or_else(|| value.clone(), Value::from)
            }
            Value::List(list) => {
                let filled: Option<Vec<Value>> =
                    list.iter().map(|element| self.fill_strings(element)).collect();
                Value::from(filled?)
            }
            Value::Map(map) => {
                let mut entries = Vec::with_capacity(map.len());
                for (key, element) in map {
                    if !self.words(key).is_empty() {
                        return None;
                    }
                    entries.push((key.clone(), self.fill_strings(element)?));
                }
                Value::Map(Map::from_unique(entries))
            }
            other => other.clone(),
        })
    }
}

/// What words can begin with so that nothing else looks like one. It cannot overlap with itself.
fn unused_mark(text: &str, data: &[Datum]) -> String {
    const START: &str = "kilndata";
    let starts = data.iter().map(|datum| datum.at.end);
    let ends = data.iter().map(|datum| datum.at.start).chain([text.len()]);
    let mut used = HashSet::new();
    for (start, end) in [0].into_iter().chain(starts).zip(ends) {
        for piece in text[start..end].split(START).skip(1) {
            let digits = piece.find(|c: char| !c.is_ascii_digit()).unwrap_or(piece.len());
            used.extend(piece[..digits].parse::<usize>());
        }
    }
    let number = (0..=used.len()).find(|number| !used.contains(number)).unwrap_or(usize::MAX);
    format!("{START}{number}w")
}
