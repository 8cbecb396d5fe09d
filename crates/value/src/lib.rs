//! The one value that every part of Kiln works on.
//!
//! A [`Value`] is immutable in meaning and shared in memory: cloning copies a pointer, and an edit
//! rebuilds only the spine from the root to the edited place (or nothing at all when no one else
//! holds the value). Languages, patches, the YAML reader and the JSON bridge all use it directly,
//! so an object of a megabyte is never converted or copied on the way through.
//!
//! | module | holds |
//! |---|---|
//! | [`value`](Value) | the enum, typed access, path get and edits |
//! | [`map`](Map) | ordered maps: a flat list while small, hashed when large |
//! | [`key`](Key) | one-word shared map keys and the table that interns them while reading |
//! | [`number`](Number) | integers and floats, kept apart |
//! | [`path`](Path) | a place inside a value, printed as users write it |
//! | [`sharing`](shared_with) | values that keep what they have in common once, and what values take in memory |
//! | [`json`] | JSON text in (with line and column), and out, also as Go prints it |
//! | [`de`] | a serde `Deserializer` over values; type errors name the [`Path`] |
//!
//! ```
//! use kiln_value::{Value, json};
//! let mut pod = json::parse(r#"{"kind":"Pod","spec":{"containers":[{"name":"a"}]}}"#).unwrap();
//! let before = pod.clone();
//! pod.set(["metadata", "name"], "web").unwrap();
//! assert_eq!(pod.get_path(["metadata", "name"]).and_then(Value::as_str), Some("web"));
//! assert!(before.get("metadata").is_none());
//! ```

pub mod de;
pub mod json;
mod key;
mod map;
mod number;
mod path;
mod sharing;
mod value;

pub use de::{TypeError, from_value};
pub use key::{Key, KeyTable};
pub use map::Map;
pub use number::Number;
pub use path::{Path, Segment, SegmentRef};
pub use sharing::{memory, shared_with};
pub use smol_str::SmolStr as Str;
pub use value::{Blocked, List, Value};

/// How deep any reader lets lists and maps nest. Code that walks values may recurse because of it.
pub const MAX_DEPTH: usize = 500;

#[doc(hidden)]
pub use serde_json as __serde_json;

/// Builds a [`Value`] from JSON written in place; for tests and fixed objects.
#[macro_export]
macro_rules! value {
    ($($json:tt)+) => { $crate::Value::from($crate::__serde_json::json!($($json)+)) };
}
