//! The way to an API server, as the parts of a process use it: a connection in `kiln run`, a function call in a world.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use http::{Method, StatusCode};
use kiln_cluster::{ApiError, Reason};
use kiln_value::Value;

/// An API server, asked as one user.
pub trait Api: Sync {
    /// Sends something, and reads the answer. An empty content type means JSON.
    ///
    /// # Errors
    /// What the server says, or why it says nothing.
    fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        content_type: &str,
    ) -> impl Future<Output = Result<Value, ApiError>> + Send;

    /// The time, in milliseconds since 1970.
    fn now(&self) -> u64;
}

/// Reads something.
///
/// # Errors
/// What the server says, or why it says nothing.
pub async fn get<A: Api>(api: &A, path: &str) -> Result<Value, ApiError> {
    api.send(Method::GET, path, None, "").await
}

/// The result of work whose answers are all there at once, as those of a world are. None when it waits for something.
pub fn at_once<T>(work: impl Future<Output = T>) -> Option<T> {
    let mut context = Context::from_waker(Waker::noop());
    match pin!(work).poll(&mut context) {
        Poll::Ready(result) => Some(result),
        Poll::Pending => None,
    }
}

/// What kind of failure a status of HTTP is.
pub fn reason_of(status: StatusCode) -> Reason {
    match status.as_u16() {
        404 => Reason::NotFound,
        409 => Reason::Conflict,
        410 => Reason::Gone,
        401 | 403 => Reason::Forbidden,
        429 | 500..=599 => Reason::Unavailable,
        _ => Reason::Invalid,
    }
}

/// What kind of failure a `Status` is.
pub fn sort(status: StatusCode, value: &Value) -> ApiError {
    let message = value.str_at(["message"]).unwrap_or_default().to_owned();
    let causes = value.get_path(["details", "causes"]).and_then(Value::as_list);
    let has_cause = |wanted: &str| {
        causes.is_some_and(|causes| {
            causes.iter().any(|cause| cause.str_at(["reason"]) == Some(wanted))
        })
    };
    let about = |field: &str| value.str_at(["details", field]).unwrap_or_default();
    let reason = match (value.str_at(["reason"]).unwrap_or_default(), reason_of(status)) {
        ("AlreadyExists", _) => Reason::AlreadyExists,
        ("Expired", _) => Reason::Gone,
        ("Forbidden", _) if has_cause("NamespaceTerminating") => Reason::NamespaceTerminating,
        // Something is missing, but no object has a name: the path leads nowhere.
        ("NotFound", _) if about("name").is_empty() => Reason::UnknownKind,
        (_, reason) => reason,
    };
    let seconds = value.get_path(["details", "retryAfterSeconds"]).and_then(Value::as_i64);
    ApiError {
        reason,
        message,
        retry_after_seconds: seconds.and_then(|seconds| u32::try_from(seconds).ok()),
    }
}

#[cfg(test)]
mod tests {
    use kiln_value::value;

    use super::*;

    #[test]
    fn failures_are_sorted_by_what_to_do_about_them() {
        for (code, body, expected) in [
            (404, value!({"reason": "NotFound", "details": {"name": "a"}}), Reason::NotFound),
            (404, value!({"reason": "NotFound", "details": {}}), Reason::UnknownKind),
            (409, value!({"reason": "AlreadyExists"}), Reason::AlreadyExists),
            (409, value!({"reason": "Conflict"}), Reason::Conflict),
            (410, value!({"reason": "Expired"}), Reason::Gone),
            (403, value!({"reason": "Forbidden"}), Reason::Forbidden),
            (
                403,
                value!({"reason": "Forbidden", "details": {"causes": [{"reason": "NamespaceTerminating"}]}}),
                Reason::NamespaceTerminating,
            ),
            (422, value!({"reason": "Invalid"}), Reason::Invalid),
            (400, value!({"reason": "BadRequest"}), Reason::Invalid),
            (429, value!({"reason": "TooManyRequests"}), Reason::Unavailable),
            (500, value!({"reason": "InternalError"}), Reason::Unavailable),
            (503, value!({"reason": "ServiceUnavailable"}), Reason::Unavailable),
        ] {
            let error = sort(StatusCode::from_u16(code).unwrap(), &body);
            assert_eq!(error.reason, expected, "{body:?}");
        }
        let asked =
            sort(StatusCode::TOO_MANY_REQUESTS, &value!({"details": {"retryAfterSeconds": 7}}));
        assert_eq!(asked.retry_after_seconds, Some(7));
    }
}
