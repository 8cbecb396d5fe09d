//! Map keys: shared, one word wide, usually interned by the reader that made them.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::collections::HashSet;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;

use arcstr::ArcStr;
use rustc_hash::FxBuildHasher;

/// A map key: an immutable shared string that is one pointer wide.
///
/// Equal keys that came from one [`KeyTable`] are the same allocation, which makes both comparing
/// and storing them cheap. Nothing depends on that: keys made apart compare by their text.
#[derive(Clone)]
pub struct Key(ArcStr);

impl Key {
    /// Makes a key of its own (not interned).
    pub fn new(text: &str) -> Self {
        Key(ArcStr::from(text))
    }

    /// The text of the key.
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }
}

impl Deref for Key {
    type Target = str;
    fn deref(&self) -> &str {
        self.as_str()
    }
}

impl AsRef<str> for Key {
    fn as_ref(&self) -> &str {
        self.as_str()
    }
}

impl Borrow<str> for Key {
    fn borrow(&self) -> &str {
        self.as_str()
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        ArcStr::ptr_eq(&self.0, &other.0) || self.as_str() == other.as_str()
    }
}

impl Eq for Key {}

impl PartialEq<str> for Key {
    fn eq(&self, other: &str) -> bool {
        self.as_str() == other
    }
}

impl PartialEq<&str> for Key {
    fn eq(&self, other: &&str) -> bool {
        self.as_str() == *other
    }
}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_str().hash(state);
    }
}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Key {
    fn cmp(&self, other: &Self) -> Ordering {
        self.as_str().cmp(other.as_str())
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_str().fmt(f)
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl From<&str> for Key {
    fn from(text: &str) -> Self {
        Key::new(text)
    }
}

impl From<String> for Key {
    fn from(text: String) -> Self {
        Key(ArcStr::from(text))
    }
}

impl From<&String> for Key {
    fn from(text: &String) -> Self {
        Key::new(text)
    }
}

/// Interns keys for as long as one reader lives.
///
/// It belongs to a reader, not to the process: a hostile stream of ever new keys costs memory only
/// until its reader is dropped. Only short keys are kept, for the same reason.
#[derive(Debug, Default)]
pub struct KeyTable {
    seen: HashSet<Key, FxBuildHasher>,
}

impl KeyTable {
    /// Keys longer than this are data rather than field names, and are not worth remembering.
    const LONGEST: usize = 64;
    /// Beyond this many different keys, input is data rather than objects.
    const MOST: usize = 16_384;

    /// An empty table.
    pub fn new() -> Self {
        Self::default()
    }

    /// The key with this text, shared with earlier ones where possible.
    pub fn intern(&mut self, text: &str) -> Key {
        if let Some(key) = self.seen.get(text) {
            return key.clone();
        }
        let key = Key::new(text);
        if text.len() <= Self::LONGEST && self.seen.len() < Self::MOST {
            self.seen.insert(key.clone());
        }
        key
    }
}
