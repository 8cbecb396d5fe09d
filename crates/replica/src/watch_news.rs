//! What is watched, and what a watch tells.

use std::fmt;

use http::StatusCode;
use kiln_cluster::{ApiError, WatchEvent};
use kiln_object::{Change, Gvk, metadata};
use kiln_value::Value;

use crate::api::sort;

/// What a watch tells.
#[derive(Clone, Debug)]
pub enum WatchNews {
    /// Something happened to an object.
    Event(WatchEvent),
    /// Nothing happened up to this revision.
    Upto(u64),
    /// The kind has to be listed again.
    Lost,
}

/// What is followed.
#[derive(Clone, Debug)]
pub struct Subject {
    /// The kind.
    pub gvk: Gvk,
    /// The namespace; empty for all.
    pub namespace: String,
    /// Fields that objects must have; empty for all.
    pub fields: String,
    /// Labels that objects must have; empty for all.
    pub labels: String,
}

impl Subject {
    /// All objects of a kind.
    pub fn all(gvk: Gvk) -> Self {
        Subject { gvk, namespace: String::new(), fields: String::new(), labels: String::new() }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "watch of {}", self.gvk)?;
        if !self.namespace.is_empty() {
            write!(f, " in {}", self.namespace)?;
        }
        for selector in [&self.fields, &self.labels] {
            if !selector.is_empty() {
                write!(f, " with {selector}")?;
            }
        }
        Ok(())
    }
}

/// What one line of a watch tells.
///
/// # Errors
/// The failure that the server tells of.
pub fn read(mut value: Value) -> Result<WatchNews, ApiError> {
    let word = value.str_at(["type"]).unwrap_or_default().to_owned();
    let object = value.as_map_mut().and_then(|map| map.remove("object")).unwrap_or(Value::Null);
    let revision =
        || metadata::resource_version(&object).and_then(|text| text.parse().ok()).unwrap_or(0);
    let change = match Change::read(&word) {
        Some(change) => change,
        None if word == "BOOKMARK" => return Ok(WatchNews::Upto(revision())),
        None => {
            let code = object.get("code").and_then(Value::as_i64).unwrap_or(500);
            let status = u16::try_from(code).ok().and_then(|code| StatusCode::from_u16(code).ok());
            return Err(sort(status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR), &object));
        }
    };
    let revision = revision();
    Ok(WatchNews::Event(WatchEvent { change, object, revision }))
}

#[cfg(test)]
mod tests {
    use kiln_cluster::Reason;
    use kiln_value::json;

    use super::*;

    #[test]
    fn what_a_watch_tells_is_read() {
        let read = |text: &str| read(json::parse(text).unwrap());
        let added = read(r#"{"type":"ADDED","object":{"metadata":{"resourceVersion":"7"}}}"#);
        assert!(matches!(
            added,
            Ok(WatchNews::Event(WatchEvent { change: Change::Added, revision: 7, .. }))
        ));
        let bookmark = read(r#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"9"}}}"#);
        assert!(matches!(bookmark, Ok(WatchNews::Upto(9))));
        let gone =
            read(r#"{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired"}}"#);
        assert_eq!(gone.unwrap_err().reason, Reason::Gone);
        assert_eq!(read("{}").unwrap_err().reason, Reason::Unavailable);
    }
}
