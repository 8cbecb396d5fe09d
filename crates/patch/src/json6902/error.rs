//! Why a JSON patch was refused.

use std::fmt;

use kiln_value::{MAX_DEPTH, Value, json};

/// A patch that is malformed or does not apply: which operation, and why.
#[derive(Clone, Debug, PartialEq)]
pub struct JsonPatchError {
    /// The position of the operation, from 0; `None` when the patch as a whole is wrong.
    pub index: Option<usize>,
    /// How many operations the patch has.
    pub operations: usize,
    /// Its `op`, if it has one.
    pub op: Option<String>,
    /// Its `path`, if it has one.
    pub path: Option<String>,
    /// What is wrong.
    pub problem: Box<JsonPatchProblem>,
}

/// What is wrong with an operation, or with what it met.
#[derive(Clone, Debug, PartialEq)]
pub enum JsonPatchProblem {
    /// The patch is not a list; the name of what it is.
    NotAPatch(&'static str),
    /// There are more operations than allowed.
    TooManyOperations {
        /// How many there are.
        count: usize,
        /// How many there may be.
        limit: usize,
    },
    /// An operation is not a map; the name of what it is.
    NotAnOperation(&'static str),
    /// `op` is none of the six.
    UnknownOp(String),
    /// A member that the operation needs is not there.
    MissingMember(&'static str),
    /// A member has the wrong type.
    WrongMember { member: &'static str, found: &'static str },
    /// A pointer does not begin with `/`.
    NoLeadingSlash(String),
    /// A pointer has a `~` that is neither `~0` nor `~1`.
    BadEscape(String),
    /// A map has no such key.
    NoSuchKey {
        /// The pointer to the map.
        map: String,
        key: String,
        /// Some of the keys that it has.
        known: Vec<String>,
    },
    /// A list is too short.
    NoSuchElement {
        /// The pointer to the list.
        list: String,
        /// The index as written.
        index: String,
        /// How many elements there are.
        length: usize,
    },
    /// What stands for an element is not an index.
    NotAnIndex {
        /// The pointer to the list.
        list: String,
        /// What was written.
        step: String,
    },
    /// The pointer goes on below something that is neither a map nor a list.
    NotAContainer {
        /// The pointer to it.
        at: String,
        found: &'static str,
    },
    /// The document as a whole cannot be patched like this.
    WholeDocument,
    /// A place is moved to a place below itself.
    MoveBelowItself,
    /// A test found something else.
    TestFailed {
        wanted: Value,
        /// What was there, if anything.
        found: Option<Value>,
    },
    /// The result would nest too deep.
    TooDeep,
    /// Copies would add more than allowed.
    TooMuchCopied {
        /// How many bytes they may add.
        limit: usize,
    },
    /// Filling up short lists would add more nulls than allowed.
    TooMuchPadding {
        /// How many they may add.
        limit: usize,
    },
}

impl JsonPatchError {
    pub(super) fn whole(problem: JsonPatchProblem) -> Self {
        JsonPatchError {
            index: None,
            operations: 0,
            op: None,
            path: None,
            problem: Box::new(problem),
        }
    }
}

impl fmt::Display for JsonPatchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(index) = self.index {
            write!(f, "operation {} of {}", index + 1, self.operations)?;
            match (&self.op, &self.path) {
                (Some(op), Some(path)) => write!(f, " ({op} {path:?}): ")?,
                (Some(only), None) | (None, Some(only)) => write!(f, " ({only:?}): ")?,
                (None, None) => f.write_str(": ")?,
            }
        }
        self.problem.fmt(f)
    }
}

impl std::error::Error for JsonPatchError {}

/// Names the empty pointer "the document".
struct PointerInWords<'p>(&'p str);

impl fmt::Display for PointerInWords<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_empty() { "the document" } else { self.0 })
    }
}

impl fmt::Display for JsonPatchProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use JsonPatchProblem::*;
        match self {
            NotAPatch(found) => {
                write!(f, "a JSON patch must be a list of operations, found {found}")
            }
            TooManyOperations { count, limit } => {
                write!(f, "the patch has {count} operations, at most {limit} are allowed")
            }
            NotAnOperation(found) => write!(f, "an operation must be a map, found {found}"),
            UnknownOp(op) => {
                write!(f, "unknown op {op:?}; it must be add, remove, replace, move, copy or test")
            }
            MissingMember(member) => write!(f, "the operation needs {member:?}"),
            WrongMember { member, found } => {
                write!(f, "{member:?} must be a string, found {found}")
            }
            NoLeadingSlash(pointer) => {
                write!(f, "the pointer {pointer:?} must be empty or begin with \"/\"")
            }
            BadEscape(pointer) => {
                write!(f, "the pointer {pointer:?} has a \"~\" that is neither \"~0\" nor \"~1\"")
            }
            NoSuchKey { map, key, known } => {
                write!(f, "{} has no {key:?}", PointerInWords(map))?;
                match known.as_slice() {
                    [] => f.write_str(": it is empty"),
                    known => write!(f, "; it has {}", known.join(", ")),
                }
            }
            NoSuchElement { list, index, length } => {
                let s = if *length == 1 { "" } else { "s" };
                write!(
                    f,
                    "{} has no element {index}: it has {length} element{s}",
                    PointerInWords(list)
                )
            }
            NotAnIndex { list, step } => {
                write!(f, "{} is a list, and {step:?} is not an index", PointerInWords(list))
            }
            NotAContainer { at, found } => {
                write!(f, "{} has no members: it is a {found}", PointerInWords(at))
            }
            WholeDocument => f.write_str(
                "the document as a whole cannot be changed like this; name a place in it",
            ),
            MoveBelowItself => f.write_str("a value cannot move to a place below itself"),
            TestFailed { wanted, found: None } => {
                write!(f, "the test wants {}, found nothing", excerpt(wanted))
            }
            TestFailed { wanted, found: Some(found) } => {
                write!(f, "the test wants {}, found {}", excerpt(wanted), excerpt(found))
            }
            TooDeep => write!(f, "the result would nest deeper than {MAX_DEPTH} levels"),
            TooMuchCopied { limit } => {
                write!(f, "the copies of this patch would add more than {limit} bytes")
            }
            TooMuchPadding { limit } => {
                write!(f, "the patch would fill short lists with more than {limit} nulls")
            }
        }
    }
}

/// A value as JSON, cut where it gets long.
fn excerpt(value: &Value) -> String {
    const LONGEST: usize = 120;
    let scalar = !matches!(value, Value::List(_) | Value::Map(_));
    let mut budget = LONGEST * 8;
    if !scalar && super::measure::measure(value, &mut budget).is_none() {
        return format!("a large {}", value.type_name());
    }
    let mut text = json::to_string(value);
    if text.len() > LONGEST {
        let end = (0..=LONGEST).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        text.truncate(end);
        text.push_str("...");
    }
    text
}
