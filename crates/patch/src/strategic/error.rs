//! Why a strategic merge was refused, and where.

use std::fmt;

use kiln_value::{Path, SegmentRef, Value};

/// A patch that is malformed or does not fit the object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StrategicMergeError {
    /// Where in the object.
    pub path: Path,
    /// What is wrong.
    pub problem: StrategicProblem,
}

/// What is wrong with a patch, or with what it met.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StrategicProblem {
    /// The patch as a whole is not a map; the name of what it is.
    NotAMap(&'static str),
    /// There is no schema for the kind of the object.
    UnknownKind {
        /// Its apiVersion, as far as it has one.
        api_version: String,
        /// Its kind, as far as it has one.
        kind: String,
    },
    /// There is no schema for a field, so how it merges is not known.
    UnknownField,
    /// Object and patch have different kinds of values here.
    KindsDiffer { object: &'static str, patch: &'static str },
    /// `$patch` says something that does not exist here.
    UnknownDirective(String),
    /// `$patch: merge`, which is the default and cannot be asked for here.
    MergeDirective,
    /// A directive is not what it must be.
    MalformedDirective {
        /// The key of the directive.
        directive: String,
        /// What it must be.
        wanted: &'static str,
    },
    /// The patch sets a key that its own `$retainKeys` does not name.
    NotRetained(String),
    /// A list element lacks the key that tells elements apart.
    NoMergeKey {
        key: String,
        /// The position of the element, in the list that has it.
        element: usize,
    },
    /// The value of a merge key is a list or a map.
    MergeKeyNotScalar(String),
    /// The schema says that the list merges, but not by which key.
    NoKeyInSchema,
    /// The elements of a list to be merged are of several kinds, or null.
    MixedElements,
    /// The elements of a list to be merged are lists.
    ListOfLists,
    /// `$setElementOrder/…` names no element in either list.
    NothingToOrder,
    /// The patch has elements in another order than its own `$setElementOrder/…`, or more of them.
    OrderDiffers,
    /// The list has elements whose keys are missing or not unique, and too many of them.
    TooManyUnclearElements {
        /// How many there may be.
        limit: usize,
    },
}

impl StrategicProblem {
    pub(super) fn unknown_kind(object: &Value) -> Self {
        let text = |key| object.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        StrategicProblem::UnknownKind { api_version: text("apiVersion"), kind: text("kind") }
    }
}

impl fmt::Display for StrategicMergeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.path.is_root() {
            return write!(f, "cannot merge the patch: {}", self.problem);
        }
        write!(f, "cannot merge the patch at {}: {}", self.path, self.problem)
    }
}

impl std::error::Error for StrategicMergeError {}

impl fmt::Display for StrategicProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use StrategicProblem::*;
        match self {
            NotAMap(found) => write!(f, "a patch must be a map, found {found}"),
            UnknownKind { api_version, kind } if api_version.is_empty() || kind.is_empty() => {
                f.write_str("the object has no apiVersion and kind, so its merge keys are unknown")
            }
            UnknownKind { api_version, kind } => write!(
                f,
                "the merge keys of {api_version} {kind} are unknown; use a merge patch instead"
            ),
            UnknownField => f.write_str("the schema does not know this field"),
            KindsDiffer { object, patch } => {
                write!(f, "the object has a {object}, the patch a {patch}")
            }
            UnknownDirective(found) => {
                write!(f, "unknown \"$patch\": {found}; it must be replace or delete")
            }
            MergeDirective => f.write_str(
                "\"$patch\": merge is not possible here; leave it out, merging is the rule",
            ),
            MalformedDirective { directive, wanted } => write!(f, "{directive:?} must be {wanted}"),
            NotRetained(key) => {
                write!(f, "the patch sets {key:?}, which its $retainKeys does not name")
            }
            NoMergeKey { key, element } => write!(
                f,
                "element {element} has no {key:?}, which identifies the elements of this list"
            ),
            MergeKeyNotScalar(key) => {
                write!(f, "{key:?} identifies the elements of this list and must be a scalar")
            }
            NoKeyInSchema => f.write_str("the schema names no key for the elements of this list"),
            MixedElements => f.write_str(
                "the elements of this list must all be of one kind, and none of them null",
            ),
            ListOfLists => f.write_str("a list of lists cannot be merged"),
            NothingToOrder => f.write_str("$setElementOrder is given, but both lists are empty"),
            OrderDiffers => f.write_str(
                "the patch has other elements than its $setElementOrder, or another order",
            ),
            TooManyUnclearElements { limit } => write!(
                f,
                "elements without their keys, or with the same ones, are among more than {limit}"
            ),
        }
    }
}

/// The way from the root to where a merge is, kept on the stack; it becomes a path only when
/// something goes wrong.
pub(super) struct Trail<'t> {
    before: Option<(&'t Trail<'t>, SegmentRef<'t>)>,
}

impl<'t> Trail<'t> {
    pub(super) fn root() -> Self {
        Trail { before: None }
    }

    pub(super) fn then(&'t self, segment: impl Into<SegmentRef<'t>>) -> Trail<'t> {
        Trail { before: Some((self, segment.into())) }
    }

    pub(super) fn error(&self, problem: StrategicProblem) -> StrategicMergeError {
        StrategicMergeError { path: self.path(), problem }
    }

    pub(super) fn path(&self) -> Path {
        let mut segments = Vec::new();
        let mut trail = self;
        while let Some((before, segment)) = trail.before {
            segments.push(segment);
            trail = before;
        }
        segments.into_iter().rev().collect()
    }
}
