//! Why a call failed.

use std::fmt;

/// Why a call failed, and the server's words for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiError {
    /// What kind of failure, for callers that act on it.
    pub reason: Reason,
    /// What the server said.
    pub message: String,
    /// How long the server asks to wait before trying again.
    pub retry_after_seconds: Option<u32>,
}

/// What kind of failure, by what can be done about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reason {
    /// There is no such object, or no such namespace.
    NotFound,
    /// There is an object of this name already.
    AlreadyExists,
    /// The object is another one by now: read it again.
    Conflict,
    /// The object is not one that can be stored.
    Invalid,
    /// The user may not do this.
    Forbidden,
    /// The namespace is being deleted and takes nothing new.
    NamespaceTerminating,
    /// The server cannot answer at the moment. The call may have been carried out.
    Unavailable,
    /// The changes that were asked for are no longer kept: list again.
    Gone,
    /// The server does not know this kind.
    UnknownKind,
}

impl Reason {
    /// The word that Kubernetes has for it in a `Status`.
    pub fn as_str(self) -> &'static str {
        match self {
            Reason::NotFound | Reason::UnknownKind => "NotFound",
            Reason::AlreadyExists => "AlreadyExists",
            Reason::Conflict => "Conflict",
            Reason::Invalid => "Invalid",
            Reason::Forbidden | Reason::NamespaceTerminating => "Forbidden",
            Reason::Unavailable => "ServiceUnavailable",
            Reason::Gone => "Expired",
        }
    }

    /// The HTTP status that goes with it.
    pub fn status(self) -> u16 {
        match self {
            Reason::NotFound | Reason::UnknownKind => 404,
            Reason::AlreadyExists | Reason::Conflict => 409,
            Reason::Invalid => 422,
            Reason::Forbidden | Reason::NamespaceTerminating => 403,
            Reason::Unavailable => 503,
            Reason::Gone => 410,
        }
    }
}

impl ApiError {
    /// An error for a reason.
    pub fn new(reason: Reason, message: impl Into<String>) -> Self {
        ApiError { reason, message: message.into(), retry_after_seconds: None }
    }
}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.reason.as_str(), self.message)
    }
}

impl std::error::Error for ApiError {}
