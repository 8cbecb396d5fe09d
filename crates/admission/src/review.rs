//! The wire: an AdmissionReview in, an AdmissionReview out.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kiln_engine::Event;
use kiln_object::{Gvk, Kinds, metadata};
use kiln_patch::JsonPatch;
use kiln_rules::Operation;
use kiln_value::json::{self, JsonError};
use kiln_value::{KeyTable, Map, Str, Value};
use thiserror::Error;

/// What an API server asks.
#[derive(Clone, Debug)]
pub struct ReviewRequest {
    /// The name of the question, which the answer repeats.
    pub uid: Str,
    /// What happens to which object, and who wants it.
    pub event: Event,
}

/// Why a review cannot be answered.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum BadReview {
    /// It is longer than it may be.
    #[error("the review has more than {0} bytes")]
    TooLarge(usize),
    #[error("the review is not JSON: {0}")]
    Json(JsonError),
    /// It is something else.
    #[error("expected an AdmissionReview of admission.k8s.io/v1, found {0}")]
    NotAReview(String),
    /// It asks nothing that can be answered.
    #[error("the review has no request that can be read: {0}")]
    NoRequest(&'static str),
}

impl BadReview {
    /// The status of HTTP that says the same.
    pub fn status(&self) -> u16 {
        match self {
            BadReview::TooLarge(_) => 413,
            _ => 400,
        }
    }
}

impl ReviewRequest {
    /// Reads a review of at most so many bytes.
    ///
    /// # Errors
    /// When it is not a review that can be answered.
    pub fn read(bytes: &[u8], most: usize, kinds: &Kinds) -> Result<Self, BadReview> {
        if bytes.len() > most {
            return Err(BadReview::TooLarge(most));
        }
        let review = json::parse_bytes(bytes, &mut KeyTable::new()).map_err(BadReview::Json)?;
        let kind = (review.str_at(["apiVersion"]), review.str_at(["kind"]));
        if kind != (Some("admission.k8s.io/v1"), Some("AdmissionReview")) {
            let found = match kind {
                (Some(version), Some(kind)) => clip(&format!("{kind} of {version}"), 200),
                _ => format!("a {} without apiVersion and kind", review.type_name()),
            };
            return Err(BadReview::NotAReview(found));
        }
        let request = review.get("request").ok_or(BadReview::NoRequest("it is missing"))?;
        let uid = request.str_at(["uid"]).filter(|uid| !uid.is_empty());
        let uid: Str = uid.ok_or(BadReview::NoRequest("it has no uid"))?.into();
        let mut event =
            Event::of_request(request).ok_or(BadReview::NoRequest("its operation is unknown"))?;
        for object in [&event.object, &event.old_object].into_iter().flatten() {
            if !matches!(object, Value::Map(_)) {
                return Err(BadReview::NoRequest("its object is not an object"));
            }
        }
        complete(&mut event, request, kinds);
        Ok(ReviewRequest { uid, event })
    }
}

/// Adds what is said elsewhere in the request.
fn complete(event: &mut Event, request: &Value, kinds: &Kinds) {
    if event.operation == Some(Operation::Delete) {
        event.object = None;
    }
    // The name of an object that the server named, and of one that is deleted with many others, is only
    // in the object.
    if event.name.is_empty()
        && let Some(name) = event.trigger().and_then(metadata::name)
    {
        event.name = name.into();
    }
    let resource = |field: &str| request.str_at(["resource", field]).unwrap_or_default();
    if !event.subresource.is_empty() {
        // What is sent to a subresource has a kind of its own; rules name that of the parent.
        let parent =
            kinds.by_resource(resource("group"), resource("version"), resource("resource"));
        if let Some(parent) = parent {
            event.kind = parent.gvk();
        }
    }
    for key in ["kind", "requestKind", "resource", "requestResource"] {
        if let Some(value @ Value::Map(_)) = request.get(key) {
            event.context.given.insert(format!("request.{key}"), value.clone());
        }
    }
}

/// The namespace of what a request is about, as the object itself has it.
pub(crate) fn namespace_of(event: &Event, kinds: &Kinds) -> Str {
    match kinds.is_namespaced(&event.kind) {
        Some(false) => Str::default(),
        _ => event.namespace.clone().unwrap_or_default(),
    }
}

/// The response for the API server.
#[derive(Debug, Default)]
pub struct Response {
    /// Why the request is refused; none when it is not.
    pub refusal: Option<Refusal>,
    /// Warnings for users.
    pub warnings: Vec<String>,
    /// What to change in the object; nothing when empty.
    pub patch: Option<JsonPatch>,
}

/// Why a request is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The status of HTTP.
    pub code: u16,
    /// The message for users.
    pub message: String,
}

/// API servers cut single warnings here.
const WARNING_BYTES: usize = 256;
/// And take no more than this of all together.
const WARNINGS_BYTES: usize = 4096;
/// A refusal longer than this does not help.
const MESSAGE_BYTES: usize = 32 << 10;

impl Response {
    /// Lets the request go on.
    pub fn allowed() -> Self {
        Response::default()
    }

    /// Refuses the request.
    pub fn refused(message: impl Into<String>) -> Self {
        let refusal = Refusal { code: 403, message: message.into() };
        Response { refusal: Some(refusal), ..Response::default() }
    }

    /// Refuses the request as rules that check objects do.
    // Kyverno: a denied request is a bad request (400), for every client.
    pub fn denied(message: impl Into<String>) -> Self {
        let refusal = Refusal { code: 400, message: message.into() };
        Response { refusal: Some(refusal), ..Response::default() }
    }

    /// Says that the request could not be looked at.
    pub fn failed(message: impl Into<String>) -> Self {
        let refusal = Refusal { code: 500, message: message.into() };
        Response { refusal: Some(refusal), ..Response::default() }
    }

    /// Whether the request goes on.
    pub fn is_allowed(&self) -> bool {
        self.refusal.is_none()
    }

    /// The review that answers a request.
    pub fn to_value(&self, uid: &str) -> Value {
        let mut response = Map::new();
        response.insert("uid", uid);
        response.insert("allowed", self.is_allowed());
        if let Some(refusal) = &self.refusal {
            let mut status = Map::new();
            status.insert("code", u64::from(refusal.code));
            status.insert("message", clip(&refusal.message, MESSAGE_BYTES));
            response.insert("status", status);
        }
        let warnings = self.clipped_warnings();
        if !warnings.is_empty() {
            response.insert("warnings", Value::from_iter(warnings));
        }
        if let Some(patch) = &self.patch
            && self.is_allowed()
        {
            let operations = patch.to_value();
            if operations.as_list().is_some_and(|operations| !operations.is_empty()) {
                response.insert("patchType", "JSONPatch");
                response.insert("patch", STANDARD.encode(json::to_string(&operations)));
            }
        }
        let mut review = Map::new();
        review.insert("apiVersion", "admission.k8s.io/v1");
        review.insert("kind", "AdmissionReview");
        review.insert("response", response);
        Value::Map(review)
    }

    /// The review that answers a request, as bytes.
    pub fn to_bytes(&self, uid: &str) -> Vec<u8> {
        json::to_string(&self.to_value(uid)).into_bytes()
    }

    fn clipped_warnings(&self) -> Vec<String> {
        let mut left = WARNINGS_BYTES;
        let mut clipped = Vec::new();
        for warning in &self.warnings {
            let one_line = warning.replace(['\r', '\n'], " ");
            let warning = clip(&one_line, WARNING_BYTES);
            if clipped.contains(&warning) {
                continue;
            }
            let Some(rest) = left.checked_sub(warning.len()) else { break };
            left = rest;
            clipped.push(warning);
        }
        clipped
    }
}

/// At most so many bytes of a text, with a mark where something is missing.
pub(crate) fn clip(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    let mut end = most.saturating_sub('…'.len_utf8());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}…", &text[..end])
}

/// The kind of a request's own object, which for a subresource is not that of its parent.
pub(crate) fn sent_kind(event: &Event) -> Gvk {
    event.trigger().and_then(Gvk::of).unwrap_or_else(|| event.kind.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_patch::diff;
    use kiln_schema::Schema;
    use kiln_value::value;

    fn read(review: &Value) -> Result<ReviewRequest, BadReview> {
        ReviewRequest::read(json::to_string(review).as_bytes(), 1 << 20, &Kinds::builtin())
    }

    #[test]
    fn what_is_no_review_is_said_to_be_none() {
        let kinds = Kinds::builtin();
        let read = |text: &str| ReviewRequest::read(text.as_bytes(), 4096, &kinds).unwrap_err();
        assert_eq!(read(&" ".repeat(5000)), BadReview::TooLarge(4096));
        assert!(matches!(read("{"), BadReview::Json(_)));
        assert!(matches!(read(&"[".repeat(2000)), BadReview::Json(_)));
        for (text, says) in [
            ("null", "a null without apiVersion and kind"),
            ("[]", "a list without apiVersion and kind"),
            (r#"{"apiVersion":"v1","kind":"Pod"}"#, "Pod of v1"),
            (r#"{"apiVersion":"admission.k8s.io/v1beta1","kind":"AdmissionReview"}"#, "v1beta1"),
            (r#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}"#, "it is missing"),
            (
                r#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{}}"#,
                "it has no uid",
            ),
            (
                r#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"1","operation":"WISH"}}"#,
                "its operation is unknown",
            ),
            (
                r#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"1","operation":"CREATE","object":[]}}"#,
                "its object is not an object",
            ),
        ] {
            let error = read(text);
            assert!(error.to_string().contains(says), "{text}: {error}");
            assert_eq!(error.status(), 400);
        }
    }

    #[test]
    fn names_and_parents_are_found_where_they_are() {
        let request = read(&value!({
            "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "request": {
                "uid": "1", "operation": "DELETE", "namespace": "dev",
                "kind": {"group": "", "version": "v1", "kind": "Secret"},
                "oldObject": {"metadata": {"name": "gone"}}, "object": {},
            },
        }))
        .unwrap();
        assert_eq!(request.event.name, "gone");
        assert_eq!(request.event.object, None);
        let request = read(&value!({
            "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "request": {
                "uid": "1", "operation": "CONNECT", "namespace": "dev", "name": "web", "subResource": "exec",
                "kind": {"group": "", "version": "v1", "kind": "PodExecOptions"},
                "resource": {"group": "", "version": "v1", "resource": "pods"},
                "object": {"apiVersion": "v1", "kind": "PodExecOptions"},
            },
        }))
        .unwrap();
        assert_eq!(request.event.kind, Gvk::new("v1", "Pod"));
        assert_eq!(sent_kind(&request.event), Gvk::new("v1", "PodExecOptions"));
        let kind = request.event.context.given.get("request.kind").unwrap();
        assert_eq!(kind.str_at(["kind"]), Some("PodExecOptions"));
    }

    #[test]
    fn an_answer_repeats_the_name_and_holds_the_patch() {
        let patch = diff(&value!({"a": 1}), &value!({"a": 1, "b": 2}), &Schema::empty());
        let response = Response { patch: Some(patch), ..Response::default() };
        let answer = response.to_value("42");
        assert_eq!(answer.str_at(["response", "uid"]), Some("42"));
        let patch = STANDARD.decode(answer.str_at(["response", "patch"]).unwrap()).unwrap();
        assert_eq!(patch, br#"[{"op":"add","path":"/b","value":2}]"#);
        let refused = Response::refused("no").to_value("42");
        assert_eq!(refused.get_path(["response", "allowed"]), Some(&Value::Bool(false)));
        assert_eq!(refused.str_at(["response", "status", "message"]), Some("no"));
    }

    #[test]
    fn warnings_are_cut_as_servers_cut_them() {
        let warnings = vec!["ä".repeat(300), "two\nlines".into(), "two\nlines".into()];
        let answer = Response { warnings, ..Response::default() }.to_value("1");
        let warnings = answer.get_path(["response", "warnings"]).and_then(Value::as_list).unwrap();
        assert_eq!(warnings.len(), 2);
        assert!(warnings[0].as_str().is_some_and(|text| text.len() <= 256 && text.ends_with('…')));
        assert_eq!(warnings[1].as_str(), Some("two lines"));
        let many = (0..100).map(|n| format!("{n:0>200}")).collect();
        let answer = Response { warnings: many, ..Response::default() }.to_value("1");
        assert_eq!(
            answer.get_path(["response", "warnings"]).and_then(Value::as_list).map(|w| w.len()),
            Some(20)
        );
    }
}
