//! Why a part of an evaluation failed.

use std::error::Error;
use std::fmt;
use std::ops::Range;

use kiln_diagnostic::Diagnostic;
use kiln_object::ObjectId;
use kiln_rules::Origin;
use kiln_value::Path;
use kiln_variables::conditions::ConditionError;
use kiln_variables::{Problem, QueryError, SubstituteError};

use crate::input::limits::Exceeded;
use crate::input::view::ReadError;
use crate::output::lineage::Loop;

/// Why a part of an evaluation failed.
///
/// A host must not delete anything because of a failure, except copies whose source is known to be gone
/// ([`FailureKind::SourceMissing`]).
#[derive(Clone, Debug, PartialEq)]
pub struct Failure {
    /// What kind of failure, for hosts that act on it.
    pub kind: FailureKind,
    /// What failed and why.
    pub message: String,
    /// What to do next.
    pub hint: Option<String>,
    /// Which part of the rule's document it is about, if one.
    pub path: Option<Path>,
    /// Which part of the text at that path, in bytes.
    pub part: Option<Range<usize>>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum FailureKind {
    /// A value that the rule asks for is not there, or an expression failed.
    Value,
    /// Objects could not be read, or a service could not be asked. It may work later.
    Read,
    /// There is no such kind here, or this host calls no such service.
    Unserved,
    /// The host may not read it.
    Forbidden,
    /// The author of the policy may not do it. No default stands in for what they may not see.
    Denied,
    /// Whether the author of the policy may do it is unknown at the moment; until then they may not.
    Undecided,
    /// The rule asks for something that it may not read.
    OutOfReach,
    /// What is to be copied is not there.
    SourceMissing(Box<MissingSource>),
    /// What the rule makes is not an object that can be written.
    Target,
    /// A patch does not fit the object, or is none.
    Patch,
    /// Two parts of the rule make different objects of one name.
    Conflict,
    /// A budget is used up.
    Limit,
    /// The rule fires on its own objects.
    Loop,
    /// A mistake in Kiln itself: the evaluation panicked, and a host caught it.
    Panic,
}

/// A copy that cannot be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingSource {
    /// What is missing.
    pub source: ObjectId,
    /// What the copy would be called; none when that cannot be known without the source.
    pub target: Option<ObjectId>,
}

impl Failure {
    pub(crate) fn new(kind: FailureKind, message: impl Into<String>) -> Self {
        Failure { kind, message: message.into(), hint: None, path: None, part: None }
    }

    #[must_use]
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    #[must_use]
    pub(crate) fn at(mut self, path: &Path) -> Self {
        self.path.get_or_insert_with(|| path.clone());
        self
    }

    /// Says what was being done, in front of the message.
    #[must_use]
    pub(crate) fn while_doing(mut self, what: impl fmt::Display) -> Self {
        self.message = format!("{what}: {}", self.message);
        self
    }

    /// Leaves out what may quote a value: the place in the rule says which expression failed.
    pub(crate) fn leave_out_values(&mut self) {
        let what = match self.kind {
            FailureKind::Value => "an expression has no value",
            FailureKind::Target => "what the rule makes is not an object that can be written",
            FailureKind::Patch => "a patch does not fit",
            FailureKind::Conflict => "two parts of the rule make different objects of one name",
            _ => return,
        };
        let place = self.path.as_ref().map_or_else(String::new, |path| format!(" ({path})"));
        self.message =
            format!("{what}{place}; the reason is left out, since the rule read a Secret");
        self.hint = Some("try the rule with `kiln apply` and a Secret without secrets".to_owned());
    }

    /// Whether nothing further should be tried.
    pub(crate) fn is_final(&self) -> bool {
        matches!(self.kind, FailureKind::Limit | FailureKind::Loop)
    }

    /// Whether nothing may be taken instead, neither a default nor another answer.
    pub(crate) fn bars_defaults(&self) -> bool {
        self.is_final() || matches!(self.kind, FailureKind::Denied | FailureKind::Undecided)
    }

    /// Whether what could not be had may well be there.
    pub(crate) fn leaves_doubt(&self) -> bool {
        matches!(self.kind, FailureKind::Read | FailureKind::Forbidden)
    }

    /// The failure with its place in the rule's document.
    pub fn diagnose(&self, origin: &Origin) -> Diagnostic {
        let path = self.path.as_ref().unwrap_or(origin.path());
        let place = match &self.part {
            Some(part) => origin.place_of_part(path, part.clone()),
            None => origin.place_of(path),
        };
        Diagnostic::error(&self.message).at(place).maybe_hint(self.hint.clone())
    }

    /// The failure behind an error of an expression: that of a value it could not load, or its own.
    pub(crate) fn of_query(error: &QueryError) -> Self {
        if let Some(inner) = loaded(error) {
            return inner;
        }
        let limit = error
            .expression_error()
            .is_some_and(|error| error.kind() == kiln_jmespath::ErrorKind::Limit);
        let kind = if limit { FailureKind::Limit } else { FailureKind::Value };
        let mut failure = Failure::new(kind, error.message());
        failure.hint = error.hint().map(str::to_owned);
        failure
    }
}

/// The failure to load a value, if that is what is behind an error.
fn loaded(error: &(dyn Error + 'static)) -> Option<Failure> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(failure) = error.downcast_ref::<Failure>() {
            return Some(failure.clone());
        }
        next = error.source();
    }
    None
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        match &self.hint {
            Some(hint) => write!(f, " ({hint})"),
            None => Ok(()),
        }
    }
}

impl Error for Failure {}

impl From<kiln_jmespath::Error> for Failure {
    fn from(error: kiln_jmespath::Error) -> Self {
        Failure::of_query(&QueryError::from(error))
    }
}

impl From<SubstituteError> for Failure {
    fn from(error: SubstituteError) -> Self {
        let hint = error.hint();
        let mut failure = match &error.problem {
            Problem::Query(query) => match loaded(query) {
                Some(inner) => inner,
                None => Failure { message: error.to_string(), ..Failure::of_query(query) },
            },
            Problem::Limit(_) => Failure::new(FailureKind::Limit, error.to_string()),
            _ => Failure::new(FailureKind::Value, error.to_string()),
        };
        failure.hint = failure.hint.or(hint);
        failure.at(&error.path)
    }
}

impl From<ConditionError> for Failure {
    fn from(error: ConditionError) -> Self {
        match error {
            ConditionError::Substitute(error) => error.into(),
            ConditionError::Compare { .. } => {
                Failure::new(FailureKind::Limit, error.to_string()).at(error.path())
            }
        }
    }
}

impl From<ReadError> for Failure {
    fn from(error: ReadError) -> Self {
        let kind = match &error {
            ReadError::OutOfReach { .. } | ReadError::Protected(_) | ReadError::Withheld(_) => {
                FailureKind::OutOfReach
            }
            ReadError::Exceeded(_) => FailureKind::Limit,
            ReadError::UnknownKind(_) => FailureKind::Unserved,
            ReadError::Forbidden(_) => FailureKind::Forbidden,
            ReadError::Denied(_) => FailureKind::Denied,
            ReadError::Undecided(_) => FailureKind::Undecided,
            ReadError::Unavailable(_) => FailureKind::Read,
        };
        let failure = Failure::new(kind, error.to_string());
        match error {
            ReadError::Protected(_) => failure.hint(
                "write the namespace into the rule, or remove it from kiln.protectedNamespaces",
            ),
            _ => failure,
        }
    }
}

impl From<Exceeded> for Failure {
    fn from(exceeded: Exceeded) -> Self {
        Failure::new(FailureKind::Limit, exceeded.to_string())
            .hint("narrow the match or the list, or raise the limit")
    }
}

impl From<Loop> for Failure {
    fn from(looped: Loop) -> Self {
        Failure::new(FailureKind::Loop, looped.to_string())
            .hint("exclude the objects that the rule makes, or leave skipBackgroundRequests on")
    }
}
