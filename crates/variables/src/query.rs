//! The expressions of variables, and who answers them.

use std::fmt;
use std::ops::Range;
use std::sync::{Arc, LazyLock};

use kiln_jmespath::{Error, Expression, JmesPathEnvironment, Root};
use kiln_value::{Str, Value};

/// An expression that was read once. One that could not be read says so when it is evaluated.
#[derive(Clone, Debug)]
pub struct Query {
    text: Arc<str>,
    compiled: Result<Expression, QueryError>,
}

impl Query {
    pub(crate) fn new(text: &str) -> Self {
        Query { text: text.into(), compiled: Expression::compile(text).map_err(QueryError::from) }
    }

    /// The expression as text.
    pub fn text(&self) -> &str {
        &self.text
    }

    pub(crate) fn shared_text(&self) -> Arc<str> {
        Arc::clone(&self.text)
    }

    /// The compiled expression.
    ///
    /// # Errors
    /// When the text is not an expression.
    pub fn expression(&self) -> Result<&Expression, QueryError> {
        self.compiled.as_ref().map_err(Clone::clone)
    }
}

static TO_STRING: LazyLock<Query> = LazyLock::new(|| Query::new("to_string(@)"));

/// A value as text among other text: strings as they are, everything else as `to_string` prints it.
pub(crate) fn text_of(value: &Value) -> Result<Str, QueryError> {
    match value {
        Value::String(text) => Ok(text.clone()),
        other => match TO_STRING.expression()?.search(other, &JmesPathEnvironment::default())? {
            Value::String(text) => Ok(text),
            _ => Err(QueryError::refused("to_string made no text", None)),
        },
    }
}

/// Why an expression has no value.
#[derive(Clone, Debug)]
pub struct QueryError(Reason);

#[derive(Clone, Debug)]
enum Reason {
    Expression(Arc<Error>),
    Refused(Arc<Refused>),
}

#[derive(Debug)]
struct Refused {
    message: String,
    hint: Option<String>,
}

impl QueryError {
    /// An error of a scope itself.
    pub fn refused(message: impl Into<String>, hint: Option<String>) -> Self {
        QueryError(Reason::Refused(Arc::new(Refused { message: message.into(), hint })))
    }

    /// What is wrong.
    pub fn message(&self) -> &str {
        match &self.0 {
            Reason::Expression(error) => error.message(),
            Reason::Refused(refused) => &refused.message,
        }
    }

    /// What to do next.
    pub fn hint(&self) -> Option<&str> {
        match &self.0 {
            Reason::Expression(error) => error.hint_text(),
            Reason::Refused(refused) => refused.hint.as_deref(),
        }
    }

    /// The place inside the expression.
    pub fn span(&self) -> Option<Range<usize>> {
        self.expression_error().map(|error| error.span())
    }

    /// Whether a map lacked a key.
    pub fn is_not_found(&self) -> bool {
        self.expression_error().is_some_and(Error::is_not_found)
    }

    /// The error of the expression, unless the scope refused by itself.
    pub fn expression_error(&self) -> Option<&Error> {
        match &self.0 {
            Reason::Expression(error) => Some(error),
            Reason::Refused(_) => None,
        }
    }
}

impl From<Error> for QueryError {
    fn from(error: Error) -> Self {
        QueryError(Reason::Expression(Arc::new(error)))
    }
}

impl fmt::Display for QueryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.message())
    }
}

impl std::error::Error for QueryError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.expression_error().and_then(std::error::Error::source)
    }
}

/// Where variables get their values.
pub trait VariableScope {
    /// The value of an expression.
    ///
    /// # Errors
    /// When it has none; a missing key is an error too.
    fn evaluate(&self, query: &Query) -> Result<Value, QueryError>;

    /// Whether the request deletes an object, so that `request.object` means the old one.
    fn is_deleting(&self) -> bool;

    /// Whether there is a target, which `{{@}}` then looks into.
    fn has_target(&self) -> bool;
}

/// The scope that a context makes: its operation says whether an object is deleted, its `target` whether
/// there is one.
#[derive(Clone, Copy)]
pub struct ContextScope<'c> {
    context: &'c dyn Root,
    environment: JmesPathEnvironment<'c>,
}

impl<'c> ContextScope<'c> {
    /// A scope over a context.
    pub fn new(context: &'c dyn Root, environment: JmesPathEnvironment<'c>) -> Self {
        ContextScope { context, environment }
    }
}

impl fmt::Debug for ContextScope<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ContextScope")
            .field("environment", &self.environment)
            .finish_non_exhaustive()
    }
}

impl VariableScope for ContextScope<'_> {
    fn evaluate(&self, query: &Query) -> Result<Value, QueryError> {
        Ok(query.expression()?.search(self.context, &self.environment)?)
    }

    fn is_deleting(&self) -> bool {
        let request = self.context.field("request").ok().flatten();
        request.is_some_and(|request| request.str_at(["operation"]) == Some("DELETE"))
    }

    fn has_target(&self) -> bool {
        matches!(self.context.field("target"), Ok(Some(_)))
    }
}
