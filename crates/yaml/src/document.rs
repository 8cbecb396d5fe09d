//! Documents: a value, and where it came from.

use std::sync::{Arc, OnceLock};

use kiln_diagnostic::{Diagnostic, Source, SourceLocation, did_you_mean};
use kiln_value::de::Problem;
use kiln_value::{KeyTable, Path, TypeError, Value, from_value, json};
use serde::de::DeserializeOwned;

use crate::compose::Composer;
use crate::events::decode;
use crate::options::{DuplicateKeys, ReadOptions, ScalarTable};
use crate::span::{Nowhere, Places, Spot, Track};

/// One YAML or JSON value with where it came from.
#[derive(Clone, Debug)]
pub struct Document {
    value: Value,
    text: DocumentText,
    /// Where its text begins in the source.
    start: usize,
    /// How it was read, so that it can be read again with places.
    options: ReadOptions,
}

/// The text of a document.
#[derive(Clone, Debug)]
enum DocumentText {
    /// It was read from this.
    Read(Arc<Source>),
    /// There was only a value: its text is written when a place is asked for, once for all clones.
    Unwritten { name: Arc<str>, source: Arc<OnceLock<Arc<Source>>> },
}

impl Document {
    /// The document of a value that came without a text, such as a stored object. Its text, by which places are found, is
    /// the value as JSON, and is written when a place is asked for: most are asked for none.
    pub fn from_value(name: &str, value: Value, options: ReadOptions) -> Self {
        let text = DocumentText::Unwritten { name: name.into(), source: Arc::default() };
        Document { value, text, start: 0, options }
    }
    pub fn value(&self) -> &Value {
        &self.value
    }

    /// The value, without where it came from.
    pub fn into_value(self) -> Value {
        self.value
    }

    /// The text it came from.
    pub fn source(&self) -> &Arc<Source> {
        match &self.text {
            DocumentText::Read(source) => source,
            DocumentText::Unwritten { name, source } => source.get_or_init(|| {
                Arc::new(Source::new(&**name, json::to_string_pretty(&self.value)))
            }),
        }
    }

    /// Where the document begins.
    pub fn place(&self) -> SourceLocation {
        self.locate(&Path::root())
    }

    /// Where the value at this path is, or the last thing on the way there.
    ///
    /// Reads the document again, so that reading it for the first time needs to keep no places. Who
    /// asks for many takes [`Document::places`] once.
    pub fn locate(&self, path: &Path) -> SourceLocation {
        self.places().value(path)
    }

    /// Where the key of this path is, or the last thing on the way there.
    pub fn locate_key(&self, path: &Path) -> SourceLocation {
        self.places().key(path)
    }

    /// The places of all keys and values.
    pub fn places(&self) -> Places {
        let mut keys = KeyTable::new();
        let composed =
            Composer::<Spot>::new(self.source(), self.start, &self.options, &mut keys).document();
        let root = match composed {
            Ok(Some(composed)) => composed.track,
            // JSON that YAML cannot read; the beginning is the best there is.
            _ => Spot::scalar(self.start..self.start),
        };
        Places::new(Arc::clone(self.source()), root)
    }

    /// The text of the value at this path as it stands in the source: `1.50`, where the value is
    /// 1.5. `None` when there is no such value.
    pub fn written(&self, path: &Path) -> Option<&str> {
        self.value.get_path(path)?;
        self.source().text().get(self.locate(path).span())
    }

    /// The text at this path as it is meant, where kustomize reads folded text (`>`) twice and
    /// adds line breaks. `None` when there is no text.
    pub fn unfolded_twice(&self, path: &Path) -> Option<String> {
        let options = ReadOptions { scalars: ScalarTable::V2, ..self.options };
        let mut keys = KeyTable::new();
        let composed =
            Composer::<Nowhere>::new(self.source(), self.start, &options, &mut keys).document();
        let value = composed.ok()??.value;
        Some(value.get_path(path)?.as_str()?.to_owned())
    }

    /// Reads a typed thing from the value.
    ///
    /// # Errors
    /// With the place of what does not fit, and with the nearest name when one is unknown.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, Diagnostic> {
        from_value(&self.value).map_err(|error| self.explain(&error))
    }

    /// A diagnostic with the place of a type error in this document.
    pub fn explain(&self, error: &TypeError) -> Diagnostic {
        let places = self.places();
        let (place, hint) = match &error.problem {
            Problem::UnknownField { field, expected } => {
                (places.key(&error.path), nearest(field, expected, "the fields here are"))
            }
            Problem::UnknownVariant { variant, expected } => {
                let hint = did_you_mean(variant, expected.iter().copied());
                (places.value(&error.path), hint.map(|meant| format!("did you mean {meant:?}?")))
            }
            Problem::MissingField(field) => {
                (places.key(&error.path), Some(format!("add {field:?} here")))
            }
            Problem::Other(_) => (places.value(&error.path), None),
        };
        Diagnostic::error(error.to_string()).at(place).maybe_hint(hint)
    }
}

fn nearest(field: &str, expected: &[&'static str], otherwise: &str) -> Option<String> {
    if let Some(meant) = did_you_mean(field, expected.iter().copied()) {
        return Some(format!("did you mean {meant:?}?"));
    }
    (!expected.is_empty()).then(|| format!("{otherwise} {}", expected.join(", ")))
}

/// Reads sources, sharing keys between all documents it has read.
#[derive(Debug)]
pub struct Reader {
    options: ReadOptions,
    keys: KeyTable,
}

impl Reader {
    /// A reader.
    pub fn new(options: ReadOptions) -> Self {
        Reader { options, keys: KeyTable::new() }
    }

    /// The documents of a text. Empty ones (nothing but comments) are left out.
    ///
    /// # Errors
    /// At the first thing that is wrong, with its place.
    pub fn read(&mut self, source: &Arc<Source>) -> Result<Vec<Document>, Diagnostic> {
        decode::check(source, &self.options.limits)?;
        if let Some(value) = self.read_json(source) {
            return Ok(vec![self.document(value, source, 0)]);
        }
        let options = self.options;
        let start = if source.text().starts_with('\u{feff}') { '\u{feff}'.len_utf8() } else { 0 };
        let mut composer = Composer::<Nowhere>::new(source, start, &options, &mut self.keys);
        let mut documents = Vec::new();
        while let Some(composed) = composer.document().map_err(|fault| *fault)? {
            if !composed.empty {
                documents.push(Document {
                    value: composed.value,
                    text: DocumentText::Read(Arc::clone(source)),
                    start: line_start(source.text(), composed.start),
                    options,
                });
            }
        }
        Ok(documents)
    }

    /// The documents of these bytes: UTF-8, or UTF-16 behind a byte order mark.
    ///
    /// # Errors
    /// As [`Reader::read`], and when the bytes are not text.
    pub fn read_bytes(&mut self, name: &str, bytes: &[u8]) -> Result<Vec<Document>, Diagnostic> {
        self.read(&decode::source(name, bytes, &self.options.limits)?)
    }

    fn document(&self, value: Value, source: &Arc<Source>, start: usize) -> Document {
        let text = DocumentText::Read(Arc::clone(source));
        Document { value, text, start, options: self.options }
    }

    /// The value of a text that is one JSON object or list and means the same as YAML.
    pub(crate) fn read_json(&mut self, source: &Source) -> Option<Value> {
        let text = source.text().as_bytes();
        let first = text.iter().find(|b| !b.is_ascii_whitespace())?;
        if !matches!(first, b'{' | b'[') || differs_in_yaml(text) {
            return None;
        }
        let read = match self.options.duplicate_keys {
            DuplicateKeys::LastWins => json::parse_bytes,
            // With duplicates, the YAML reader says where both are.
            DuplicateKeys::Refuse => json::parse_bytes_unique,
        };
        let value = read(text, &mut self.keys).ok()?;
        match self.options.scalars {
            ScalarTable::V3 => Some(value),
            // Integral floats are rare enough to leave them to the YAML reader.
            ScalarTable::V2 => (!has_integral_float(&value)).then_some(value),
        }
    }
}

/// Whether a text that is JSON would mean something else as YAML: because of merge keys, or because
/// of characters that YAML takes for line breaks or refuses.
fn differs_in_yaml(text: &[u8]) -> bool {
    memchr::memmem::find(text, b"\"<<\"").is_some()
        || memchr::memchr(0x7f, text).is_some()
        || memchr::memchr_iter(0xc2, text).any(|at| text.get(at + 1).is_some_and(|b| *b < 0xa0))
        || memchr::memchr_iter(0xe2, text)
            .any(|at| matches!(text.get(at + 1..at + 3), Some([0x80, 0xa8 | 0xa9])))
}

fn has_integral_float(value: &Value) -> bool {
    match value {
        Value::Number(kiln_value::Number::Float(f)) => f.fract() == 0.0,
        Value::List(list) => list.iter().any(has_integral_float),
        Value::Map(map) => map.values().any(has_integral_float),
        _ => false,
    }
}

/// A document can be read again from the line on which it begins.
fn line_start(text: &str, at: usize) -> usize {
    let breaks = |c: char| matches!(c, '\n' | '\r' | '\u{85}' | '\u{2028}' | '\u{2029}');
    let before = &text[..at];
    before
        .rfind(breaks)
        .map_or(0, |end| end + before[end..].chars().next().map_or(1, char::len_utf8))
}

/// The documents of a text; see [`Reader::read`].
///
/// # Errors
/// At the first thing that is wrong, with its place.
pub fn read(source: &Arc<Source>, options: ReadOptions) -> Result<Vec<Document>, Diagnostic> {
    Reader::new(options).read(source)
}

/// The documents of these bytes; see [`Reader::read_bytes`].
///
/// # Errors
/// At the first thing that is wrong, with its place.
pub fn read_bytes(
    name: &str,
    bytes: &[u8],
    options: ReadOptions,
) -> Result<Vec<Document>, Diagnostic> {
    Reader::new(options).read_bytes(name, bytes)
}
