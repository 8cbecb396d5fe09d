//! Where the names at the top of an expression come from.

use std::borrow::Cow;

use kiln_value::Value;

use crate::error::RootFailure;

/// The object that an expression is searched in.
///
/// A name at the top of an expression is asked for when, and only when, evaluation reaches it, so a
/// root may load what it gives on first use. What it gives may be borrowed from it or made for the
/// occasion.
pub trait Root {
    /// The value under a name at the top, or `None` when there is no such name.
    ///
    /// # Errors
    /// When the value is there but cannot be had; the search then fails, and nothing in the
    /// expression can catch it.
    fn field(&self, name: &str) -> Result<Option<Cow<'_, Value>>, RootFailure>;

    /// The whole object, for expressions that look at `@` itself.
    ///
    /// # Errors
    /// As [`Root::field`].
    fn whole(&self) -> Result<Cow<'_, Value>, RootFailure>;

    /// The value, when the root is nothing but one; it need then not be a map.
    fn as_value(&self) -> Option<&Value> {
        None
    }
}

impl Root for Value {
    fn field(&self, name: &str) -> Result<Option<Cow<'_, Value>>, RootFailure> {
        Ok(self.get(name).map(Cow::Borrowed))
    }

    fn whole(&self) -> Result<Cow<'_, Value>, RootFailure> {
        Ok(Cow::Borrowed(self))
    }

    fn as_value(&self) -> Option<&Value> {
        Some(self)
    }
}
