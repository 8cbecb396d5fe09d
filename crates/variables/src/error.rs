//! What can go wrong in a substitution, and where.

use std::error::Error;
use std::fmt;
use std::ops::Range;

use kiln_value::Path;

use crate::query::QueryError;
use crate::reference::{Reason, Unresolved};

/// A document that could not be substituted.
///
/// `Display` gives one line: the action, the expression, the place, the reason; [`hint`](Self::hint)
/// says what to do next.
#[derive(Debug)]
pub struct SubstituteError {
    /// The place of the text at fault; for a key, the place of its map.
    pub path: Path,
    /// Whether the text at fault is a key.
    pub in_key: bool,
    /// The bytes at fault inside the text as written, where they are known.
    pub span: Option<Range<usize>>,
    /// The expression, reference or key at fault, as it was when it failed.
    pub expression: String,
    /// What is wrong.
    pub problem: Problem,
}

/// What can be wrong.
#[derive(Debug)]
pub enum Problem {
    /// The expression of a variable failed.
    Query(QueryError),
    /// Nothing stands between the braces of a variable.
    EmptyVariable,
    /// A reference leads to nothing.
    MissingReference,
    /// A reference names no place.
    EmptyReference,
    /// A reference leads to something that is not text.
    ReferenceToOther(&'static str),
    /// A key became something that is not text.
    KeyNotText(&'static str),
    /// Two keys of a map became the same.
    DuplicateKey(String),
    /// A budget is used up.
    Limit(Limit),
}

/// A budget of a substitution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Variables inside variables.
    Rounds(usize),
    /// Bytes that are made or inserted.
    Bytes(usize),
    /// Levels of lists and maps in the result.
    Depth(usize),
}

impl SubstituteError {
    /// The same error in a document that is itself at `outer` in a larger one.
    #[must_use]
    pub(crate) fn below(mut self, outer: &Path) -> Self {
        self.path = outer.segments().iter().chain(self.path.segments()).collect();
        self
    }

    /// What to do next.
    pub fn hint(&self) -> Option<String> {
        match &self.problem {
            Problem::Query(error) => match error.hint() {
                None if error.is_not_found() => {
                    Some(format!("write {{{{ {} || '' }}}} if it may be absent", self.expression))
                }
                hint => hint.map(str::to_owned),
            },
            Problem::EmptyVariable => {
                Some(r"write an expression between the braces, or \{{ for plain braces".into())
            }
            Problem::MissingReference | Problem::EmptyReference => {
                Some(format!(r"write \{} to keep it as text", self.expression))
            }
            Problem::ReferenceToOther(_) => Some(
                "a reference needs text; numbers take an operator in front, as in $(<=./x)".into(),
            ),
            Problem::KeyNotText(_) => Some("use to_string() to make text of it".into()),
            Problem::DuplicateKey(_) => Some("one of the two values would be lost".into()),
            Problem::Limit(_) => None,
        }
    }
}

impl fmt::Display for SubstituteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SubstituteError { expression, problem, .. } = self;
        match problem {
            Problem::Query(_) => write!(f, "cannot resolve {{{{ {expression} }}}}")?,
            Problem::EmptyVariable => write!(f, "cannot resolve {{{{ }}}}")?,
            Problem::MissingReference | Problem::EmptyReference | Problem::ReferenceToOther(_) => {
                write!(f, "cannot resolve {expression}")?;
            }
            Problem::KeyNotText(_) | Problem::DuplicateKey(_) => {
                write!(f, "cannot rename the key {expression:?}")?;
            }
            Problem::Limit(_) => f.write_str("cannot substitute")?,
        }
        match (self.path.is_root(), self.in_key) {
            (true, false) => {}
            (true, true) => f.write_str(" in a key")?,
            (false, false) => write!(f, " at {}", self.path)?,
            (false, true) => write!(f, " in a key of {}", self.path)?,
        }
        write!(f, ": {problem}")
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Problem::Query(error) => f.write_str(error.message()),
            Problem::EmptyVariable => f.write_str("the expression is empty"),
            Problem::MissingReference => {
                f.write_str("there is nothing at this place of the document")
            }
            Problem::EmptyReference => f.write_str("the reference names no place"),
            Problem::ReferenceToOther(found) => write!(f, "it leads to a {found}"),
            Problem::KeyNotText(found) => {
                write!(f, "a key must be a string, and this is a {found}")
            }
            Problem::DuplicateKey(key) => write!(f, "the map has a key {key:?} already"),
            Problem::Limit(limit) => limit.fmt(f),
        }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Limit::Rounds(limit) => {
                write!(f, "variables stand inside variables more than {limit} times")
            }
            Limit::Bytes(limit) => write!(f, "the result takes more than {limit} bytes"),
            Limit::Depth(limit) => write!(f, "the result nests deeper than {limit} levels"),
        }
    }
}

impl Error for SubstituteError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &self.problem {
            Problem::Query(error) => Some(error),
            _ => None,
        }
    }
}

impl From<&Unresolved> for SubstituteError {
    fn from(unresolved: &Unresolved) -> Self {
        SubstituteError {
            path: unresolved.path.clone(),
            in_key: unresolved.in_key,
            span: Some(unresolved.span.clone()),
            expression: unresolved.reference.clone(),
            problem: match unresolved.reason {
                Reason::Missing => Problem::MissingReference,
                Reason::Empty => Problem::EmptyReference,
                Reason::NotText(found) => Problem::ReferenceToOther(found),
            },
        }
    }
}
