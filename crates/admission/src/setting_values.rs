//! The texts of settings as values, each with its own error.

use kiln_engine::ResourceFilter;
use kiln_object::selector::SelectorError;
use kiln_text::duration::ParseDurationError;
use kiln_text::quantity::{ParseQuantityError, Quantity};
use kiln_value::{Map, Str, Value, json};

/// Why the text of a key cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingError {
    #[error("{0:?} is neither true nor false")]
    ReadFlag(String),
    #[error("{0:?} is not a number")]
    ReadNumber(String),
    #[error(transparent)]
    ReadQuantity(#[from] ParseQuantityError),
    /// A quantity, but not one of bytes.
    #[error("{0:?} is not a size")]
    ReadSize(String),
    #[error("{text:?} is not a duration: {source}")]
    ReadDuration { text: String, source: ParseDurationError },
    /// A time between two scans that would keep the cluster busy with nothing else.
    #[error("{text:?} is shorter than {shortest}s")]
    TooOften { text: String, shortest: u64 },
    #[error("{0:?} is not written [Kind,namespace,name]")]
    ReadFilter(String),
    #[error("it is neither JSON nor YAML: {0}")]
    ReadDocument(String),
    #[error("it holds {0} documents instead of one")]
    SeveralDocuments(usize),
    #[error("it is not {0}")]
    WrongShape(&'static str),
    #[error("condition {at} has no {key}")]
    IncompleteCondition { at: usize, key: &'static str },
    #[error("{key}: {source}")]
    ReadSelector { key: &'static str, source: SelectorError },
    #[error("{word:?} is none of {known}")]
    UnknownWord { word: String, known: String },
    #[error("{0}")]
    ReadAuthors(String),
    #[error("{0}")]
    ReadServices(String),
}

/// Reads `[Kind,namespace,name]` one behind the other, perhaps on several lines.
pub(crate) fn read_filters(text: &str) -> Result<Vec<ResourceFilter>, SettingError> {
    let mut filters = Vec::new();
    for part in text.split(']') {
        let part = part.trim();
        if part.is_empty() {
            continue;
        }
        let wrong = || SettingError::ReadFilter(part.to_owned());
        let inside = part.trim_start_matches(',').trim().strip_prefix('[').ok_or_else(wrong)?;
        let mut parts = inside.split(',').map(str::trim);
        let kind = parts.next().filter(|kind| !kind.is_empty()).ok_or_else(wrong)?;
        // Kyverno: what is left out is empty, which only cluster-scoped objects meet.
        let namespace = parts.next().unwrap_or_default();
        let name = parts.next().unwrap_or_default();
        if parts.next().is_some() {
            return Err(wrong());
        }
        filters.push(ResourceFilter::new(kind, namespace, name).ok_or_else(wrong)?);
    }
    Ok(filters)
}

pub(crate) fn words(text: &str) -> impl Iterator<Item = Str> {
    text.split(',').map(str::trim).filter(|word| !word.is_empty()).map(Str::from)
}

pub(crate) fn read_flag(text: &str) -> Result<bool, SettingError> {
    match text.trim() {
        "true" => Ok(true),
        "false" | "" => Ok(false),
        other => Err(SettingError::ReadFlag(other.to_owned())),
    }
}

pub(crate) fn read_size(text: &str) -> Result<u64, SettingError> {
    let read = Quantity::parse(text.trim())?;
    let bytes = read.value().and_then(|bytes| u64::try_from(bytes).ok());
    bytes.ok_or_else(|| SettingError::ReadSize(text.to_owned()))
}

pub(crate) fn read_document(text: &str) -> Result<Value, SettingError> {
    if let Ok(read) = json::parse(text) {
        return Ok(read);
    }
    let options = kiln_yaml::ReadOptions::kubernetes();
    let mut documents = kiln_yaml::read_bytes("value", text.as_bytes(), options)
        .map_err(|error| SettingError::ReadDocument(error.message))?;
    match documents.len() {
        1 => Ok(documents.remove(0).into_value()),
        several => Err(SettingError::SeveralDocuments(several)),
    }
}

pub(crate) fn read_texts(text: &str) -> Result<Map, SettingError> {
    match read_document(text)? {
        Value::Map(map) if map.values().all(|value| value.as_str().is_some()) => Ok(map),
        Value::Null => Ok(Map::new()),
        _ => Err(SettingError::WrongShape("a map of strings")),
    }
}

pub(crate) fn read_conditions(text: &str) -> Result<Vec<Value>, SettingError> {
    let list = match read_document(text)? {
        Value::List(list) => list.into_vec(),
        Value::Null => Vec::new(),
        _ => return Err(SettingError::WrongShape("a list of conditions")),
    };
    for (at, condition) in list.iter().enumerate() {
        for key in ["name", "expression"] {
            if condition.str_at([key]).is_none_or(str::is_empty) {
                return Err(SettingError::IncompleteCondition { at, key });
            }
        }
    }
    Ok(list)
}

/// The values of a list of words with commas.
pub(crate) fn listed<T: Copy>(
    text: &str,
    known: &[T],
    word: impl Fn(&T) -> &'static str,
) -> Result<Vec<T>, SettingError> {
    let words = text.split(',').map(str::trim).filter(|word| !word.is_empty());
    words
        .map(|written| {
            let found = known.iter().find(|known| word(known) == written);
            found.copied().ok_or_else(|| {
                let all: Vec<_> = known.iter().map(&word).collect();
                SettingError::UnknownWord { word: written.to_owned(), known: all.join(", ") }
            })
        })
        .collect()
}
