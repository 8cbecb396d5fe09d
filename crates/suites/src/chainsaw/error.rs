//! Why a step of a test fails.

use std::fmt;

use super::ApiResponse;

/// What stands in parentheses cannot be evaluated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("({expression}): {problem}")]
pub(super) struct ExpressionError {
    pub(super) expression: String,
    pub(super) problem: ExpressionProblem,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum ExpressionProblem {
    #[error("there is no binding ${0}")]
    FindBinding(String),
    #[error("{0}")]
    Compile(String),
    #[error("{0}")]
    Evaluate(String),
}

/// What a server says of a failure.
#[derive(Clone, Debug)]
pub(super) struct ServerMessage {
    /// Its message, if it has one.
    pub(super) message: Option<String>,
    status: u16,
}

impl ServerMessage {
    pub(super) fn of(answer: &ApiResponse) -> Self {
        let message = answer.value.str_at(["message"]).map(str::to_owned);
        ServerMessage { message, status: answer.status }
    }
}

impl fmt::Display for ServerMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let message = self.message.as_deref().unwrap_or("the server says nothing");
        write!(f, "{message} ({})", self.status)
    }
}

/// Why an operation fails.
#[derive(Clone, Debug, thiserror::Error)]
pub(super) enum OperationError {
    #[error("the namespace {namespace} cannot be made: {answer}")]
    MakeNamespace { namespace: String, answer: ServerMessage },
    #[error("it has no apiVersion or no kind")]
    NoKind,
    #[error("{api_version} {kind} is not served")]
    FindResource { api_version: String, kind: String },
    /// A request that the server did not carry out.
    #[error("{0}")]
    Request(ServerMessage),
    #[error("it is still there")]
    Delete,
    #[error("it exists, and should not")]
    Exists,
    #[error("it does not exist")]
    DoesNotExist,
    #[error(transparent)]
    Evaluate(#[from] ExpressionError),
    /// Something else than was asserted, and what the server said if it refused.
    #[error("{}{}", .differences.join("; "), in_parentheses(.answer.as_ref()))]
    Differs { differences: Vec<String>, answer: Option<ServerMessage> },
    #[error("{0}")]
    RunProgram(String),
}

impl OperationError {
    /// What the server said, if it refused something.
    pub(super) fn server(&self) -> Option<&ServerMessage> {
        match self {
            OperationError::Request(answer) => Some(answer),
            OperationError::Differs { answer, .. } => answer.as_ref(),
            _ => None,
        }
    }
}

fn in_parentheses(answer: Option<&ServerMessage>) -> String {
    answer.map(|answer| format!(" ({answer})")).unwrap_or_default()
}
