//! Who else has a say before something is stored: what is built in, webhooks, admission policies.
//!
//! Changes come before checks, and every check sees the object as it will be stored.

mod builtin;
mod policies;
mod quota;
mod webhooks;

pub(crate) use quota::status as quota_status;

use kiln_value::Value;

use crate::access::authorization::User;
use crate::request::paths::RequestTarget;
use crate::server::Server;
use crate::status::RequestFailure;

/// What happens to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteOperation {
    Create,
    Update,
    Delete,
}

impl WriteOperation {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            WriteOperation::Create => "CREATE",
            WriteOperation::Update => "UPDATE",
            WriteOperation::Delete => "DELETE",
        }
    }
}

/// A write that is being decided on.
pub(crate) struct Review<'r> {
    pub(crate) target: &'r RequestTarget,
    pub(crate) user: &'r User,
    pub(crate) operation: WriteOperation,
    pub(crate) old: Option<&'r Value>,
    pub(crate) dry_run: bool,
}

/// What admission keeps between requests.
#[derive(Debug, Default)]
pub(crate) struct Admission {
    pub(crate) policies: policies::CompiledExpressions,
}

/// Runs the mutating phase of admission.
pub(crate) fn change(
    server: &Server,
    review: &Review<'_>,
    object: &mut Value,
    warnings: &mut Vec<String>,
) -> Result<(), RequestFailure> {
    builtin::change(server, review, object)?;
    policies::change(server, review, object)?;
    webhooks::change(server, review, object, warnings)
}

/// Runs the validating phase of admission.
pub(crate) fn check(
    server: &Server,
    review: &Review<'_>,
    object: &mut Value,
    warnings: &mut Vec<String>,
) -> Result<(), RequestFailure> {
    builtin::warn(server, review, object, warnings);
    policies::check(server, review, object, warnings)?;
    webhooks::check(server, review, object, warnings)?;
    quota::check(server, review, object)
}
