//! What can go wrong with an expression, and where in it.

use std::fmt;
use std::sync::Arc;

use crate::Span;

/// An expression that could not be compiled: one or more problems, in the order of their places.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompileError {
    source: Arc<str>,
    /// The problems; never empty.
    pub issues: Vec<Issue>,
}

/// One problem of an expression, with its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Issue {
    /// What is wrong, in the words that users of CEL know.
    pub message: String,
    /// Bytes of the expression.
    pub span: Span,
}

impl Issue {
    pub(crate) fn new(message: impl Into<String>, span: Span) -> Self {
        Issue { message: message.into(), span }
    }
}

impl CompileError {
    pub(crate) fn new(source: &str, mut issues: Vec<Issue>) -> Self {
        issues.sort_by_key(|issue| issue.span.start);
        CompileError { source: source.into(), issues }
    }

    /// The text that was compiled.
    pub fn source_text(&self) -> &str {
        &self.source
    }
}

impl fmt::Display for CompileError {
    // cel-go: `ERROR: <input>:L:C: message`, the line, and a caret below the place.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, issue) in self.issues.iter().enumerate() {
            if at > 0 {
                f.write_str("\n")?;
            }
            let position = issue.span.position(&self.source);
            write!(f, "ERROR: <input>:{position}: {}", issue.message)?;
            if let Some(line) = self.source.lines().nth(position.line - 1) {
                let shown = line.replace('\t', " ");
                let dots = ".".repeat(position.column - 1);
                write!(f, "\n | {shown}\n | {dots}^")?;
            }
        }
        Ok(())
    }
}

impl std::error::Error for CompileError {}

/// Why an evaluation ended without a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EvalError {
    /// What kind of failure it is.
    pub kind: EvalErrorKind,
    /// What happened, in the words that users of CEL know.
    pub message: String,
    /// The part of the expression at fault, if one is known.
    pub span: Option<Span>,
    /// The policy variable whose expression failed, when it was not the evaluated one.
    pub variable: Option<Arc<str>>,
    /// What to write instead.
    pub hint: Option<String>,
}

/// Kinds of failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EvalErrorKind {
    /// An ordinary CEL error; `||` and `&&` may absorb it.
    Value,
    /// A budget is used up; nothing absorbs it.
    Budget,
    /// The caller interrupted the evaluation; nothing absorbs it.
    Interrupted,
}

impl fmt::Display for EvalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.variable {
            Some(name) => write!(f, "variable {name:?}: {}", self.message),
            None => f.write_str(&self.message),
        }
    }
}

impl std::error::Error for EvalError {}

/// An error that passes through the evaluator; boxed, because success is the common case.
pub(crate) type EvalFailure = Box<EvalError>;

/// An ordinary CEL error.
pub(crate) fn failure(message: impl Into<String>) -> EvalFailure {
    Box::new(EvalError {
        kind: EvalErrorKind::Value,
        message: message.into(),
        span: None,
        variable: None,
        hint: None,
    })
}

/// The error of a call for which no overload fits the values.
pub(crate) fn no_such_overload() -> EvalFailure {
    failure("no such overload")
}

impl EvalError {
    /// Says where, unless a more exact place is known already.
    pub(crate) fn at(mut self: Box<Self>, span: Span) -> Box<Self> {
        self.span.get_or_insert(span);
        self
    }

    pub(crate) fn is_absorbable(&self) -> bool {
        self.kind == EvalErrorKind::Value
    }
}
