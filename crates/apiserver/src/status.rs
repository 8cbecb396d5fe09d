//! Why a request fails: the `Status` that clients read, in the words that they compare.

use kiln_value::{Map, Value, json, value};

use crate::request::Response;

/// Why a request fails.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RequestFailure {
    pub(crate) code: u16,
    pub(crate) reason: &'static str,
    pub(crate) message: String,
    pub(crate) details: Option<Value>,
    pub(crate) retry_after: Option<u32>,
    /// Where to go on, in a list that is too old.
    pub(crate) resume: Option<String>,
}

/// What a failure is about: a resource and maybe a name.
#[derive(Clone, Debug, Default)]
pub(crate) struct About {
    pub(crate) group: String,
    pub(crate) resource: String,
    pub(crate) name: String,
}

impl About {
    pub(crate) fn new(group: &str, resource: &str, name: &str) -> Self {
        About { group: group.to_owned(), resource: resource.to_owned(), name: name.to_owned() }
    }

    /// `deployments.apps`.
    fn qualified(&self) -> String {
        qualified(&self.resource, &self.group)
    }

    fn details(&self) -> Map {
        let mut details = Map::new();
        for (field, text) in
            [("name", &self.name), ("group", &self.group), ("kind", &self.resource)]
        {
            if !text.is_empty() {
                details.insert(field, text.as_str());
            }
        }
        details
    }
}

pub(crate) fn qualified(name: &str, group: &str) -> String {
    if group.is_empty() { name.to_owned() } else { format!("{name}.{group}") }
}

impl RequestFailure {
    pub(crate) fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        let message = message.into();
        RequestFailure { code, reason, message, details: None, retry_after: None, resume: None }
    }

    pub(crate) fn with_details(mut self, details: impl Into<Value>) -> Self {
        self.details = Some(details.into());
        self
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        RequestFailure::new(400, "BadRequest", message)
    }

    pub(crate) fn internal(message: impl Into<String>) -> Self {
        RequestFailure::new(500, "", message)
    }

    pub(crate) fn not_found(about: &About) -> Self {
        let message = format!("{} \"{}\" not found", about.qualified(), about.name);
        RequestFailure::new(404, "NotFound", message).with_details(about.details())
    }

    /// There is no such path.
    pub(crate) fn no_resource() -> Self {
        let message = "the server could not find the requested resource";
        RequestFailure::new(404, "NotFound", message).with_details(value!({}))
    }

    pub(crate) fn method() -> Self {
        let message = "the server does not allow this method on the requested resource";
        RequestFailure::new(405, "MethodNotAllowed", message).with_details(value!({}))
    }

    pub(crate) fn exists(about: &About) -> Self {
        let message = format!("{} \"{}\" already exists", about.qualified(), about.name);
        RequestFailure::new(409, "AlreadyExists", message).with_details(about.details())
    }

    pub(crate) fn conflict(about: &About, why: &str) -> Self {
        let (what, name) = (about.qualified(), &about.name);
        let message = format!("Operation cannot be fulfilled on {what} \"{name}\": {why}");
        RequestFailure::new(409, "Conflict", message).with_details(about.details())
    }

    pub(crate) fn modified(about: &About) -> Self {
        RequestFailure::conflict(
            about,
            "the object has been modified; please apply your changes to the latest version and try again",
        )
    }

    pub(crate) fn forbidden(about: &About, why: &str) -> Self {
        let what = about.qualified();
        let message = match about.name.as_str() {
            "" => format!("{what} is forbidden: {why}"),
            name => format!("{what} \"{name}\" is forbidden: {why}"),
        };
        RequestFailure::new(403, "Forbidden", message).with_details(about.details())
    }

    /// An object, or the options of a request, that cannot be accepted.
    pub(crate) fn invalid(group: &str, kind: &str, name: &str, problems: &[FieldProblem]) -> Self {
        let what = qualified(kind, group);
        let problems = few(problems);
        let texts: Vec<String> = problems.iter().map(FieldProblem::to_string).collect();
        let all = match texts.as_slice() {
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        let mut details = Map::new();
        for (field, text) in [("name", name), ("group", group), ("kind", kind)] {
            if !text.is_empty() {
                details.insert(field, text);
            }
        }
        let causes: Vec<Value> = problems.iter().map(FieldProblem::cause).collect();
        details.insert("causes", causes);
        RequestFailure::new(422, "Invalid", format!("{what} \"{name}\" is invalid: {all}"))
            .with_details(details)
    }

    /// Bad options of a request.
    pub(crate) fn options(kind: &str, problems: &[FieldProblem]) -> Self {
        RequestFailure::invalid("meta.k8s.io", kind, "", problems)
    }

    pub(crate) fn unsupported(accepted: &str) -> Self {
        let message = format!(
            "the body of the request was in an unknown format - accepted media types include: {accepted}"
        );
        RequestFailure::new(415, "UnsupportedMediaType", message)
    }

    /// The `Status` object.
    pub(crate) fn to_value(&self) -> Value {
        let mut status = Map::new();
        status.insert("kind", "Status");
        status.insert("apiVersion", "v1");
        let mut metadata = Map::new();
        if let Some(resume) = &self.resume {
            metadata.insert("continue", resume.as_str());
        }
        status.insert("metadata", Value::Map(metadata));
        status.insert("status", "Failure");
        status.insert("message", self.message.as_str());
        if !self.reason.is_empty() {
            status.insert("reason", self.reason);
        }
        if let Some(details) = &self.details {
            status.insert("details", details.clone());
        }
        status.insert("code", i64::from(self.code));
        Value::Map(status)
    }

    pub(crate) fn response(&self) -> Response {
        let response = Response::json(self.code, &self.to_value());
        match self.retry_after {
            Some(seconds) => response.with_header("Retry-After", &seconds.to_string()),
            None => response,
        }
    }
}

/// What is wrong with a field.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FieldProblem {
    pub(crate) field: String,
    pub(crate) kind: FieldProblemKind,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum FieldProblemKind {
    Required(String),
    Invalid(Value, String),
    /// The schema wants another type; what was found, and why not.
    Type(Value, String),
    Unsupported(Value, Vec<String>),
    Forbidden(String),
    Duplicate(Value),
    NotFound(Value),
    TooLong(usize),
    TooMany(usize, usize),
    /// A rule of a schema says no.
    Rule(String),
}

impl FieldProblem {
    pub(crate) fn new(field: impl Into<String>, kind: FieldProblemKind) -> Self {
        FieldProblem { field: cut(field.into()), kind }
    }

    pub(crate) fn required(field: impl Into<String>, why: &str) -> Self {
        FieldProblem::new(field, FieldProblemKind::Required(why.to_owned()))
    }

    pub(crate) fn invalid(
        field: impl Into<String>,
        value: impl Into<Value>,
        why: impl Into<String>,
    ) -> Self {
        FieldProblem::new(field, FieldProblemKind::Invalid(value.into(), why.into()))
    }

    pub(crate) fn forbidden(field: impl Into<String>, why: &str) -> Self {
        FieldProblem::new(field, FieldProblemKind::Forbidden(why.to_owned()))
    }

    pub(crate) fn unsupported(
        field: impl Into<String>,
        value: impl Into<Value>,
        known: &[&str],
    ) -> Self {
        let known = known.iter().map(|known| (*known).to_owned()).collect();
        FieldProblem::new(field, FieldProblemKind::Unsupported(value.into(), known))
    }

    pub(crate) fn duplicate(field: impl Into<String>, value: impl Into<Value>) -> Self {
        FieldProblem::new(field, FieldProblemKind::Duplicate(value.into()))
    }

    /// Without the field.
    fn message(&self) -> String {
        let because = |why: &str| if why.is_empty() { String::new() } else { format!(": {why}") };
        match &self.kind {
            FieldProblemKind::Required(why) => format!("Required value{}", because(why)),
            FieldProblemKind::Invalid(value, why) | FieldProblemKind::Type(value, why) => {
                format!("Invalid value: {}{}", shown(value), because(why))
            }
            FieldProblemKind::Unsupported(value, known) => {
                let known: Vec<String> = known.iter().map(|known| format!("{known:?}")).collect();
                let known = cut(known.join(", "));
                format!("Unsupported value: {}: supported values: {known}", shown(value))
            }
            FieldProblemKind::Forbidden(why) => format!("Forbidden{}", because(why)),
            FieldProblemKind::Duplicate(value) => format!("Duplicate value: {}", shown(value)),
            FieldProblemKind::NotFound(value) => format!("Not found: {}", shown(value)),
            FieldProblemKind::TooLong(most) => {
                format!("Too long: may not be more than {most} bytes")
            }
            FieldProblemKind::Rule(why) => format!("Invalid value: {why}"),
            FieldProblemKind::TooMany(found, most) => {
                format!("Too many: {found}: must have at most {most} items")
            }
        }
    }

    fn reason(&self) -> &'static str {
        match &self.kind {
            FieldProblemKind::Required(_) => "FieldValueRequired",
            FieldProblemKind::Invalid(..) | FieldProblemKind::Rule(_) => "FieldValueInvalid",
            FieldProblemKind::Type(..) => "FieldValueTypeInvalid",
            FieldProblemKind::Unsupported(..) => "FieldValueNotSupported",
            FieldProblemKind::Forbidden(_) => "FieldValueForbidden",
            FieldProblemKind::Duplicate(_) => "FieldValueDuplicate",
            FieldProblemKind::NotFound(_) => "FieldValueNotFound",
            FieldProblemKind::TooLong(_) => "FieldValueTooLong",
            FieldProblemKind::TooMany(..) => "FieldValueTooMany",
        }
    }

    fn cause(&self) -> Value {
        value!({"reason": (self.reason()), "message": (self.message()), "field": (self.field.as_str())})
    }
}

impl std::fmt::Display for FieldProblem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.field, self.message())
    }
}

/// The longest text of one part of a message, and of all problems together.
const LONGEST: usize = 32 << 10;
const LONGEST_SUM: usize = 256 << 10;

/// As many problems as fit into an answer, at least one.
fn few(problems: &[FieldProblem]) -> &[FieldProblem] {
    let mut sum = 0;
    let fit = problems.iter().take_while(|problem| {
        sum += problem.field.len() + problem.message().len();
        sum < LONGEST_SUM
    });
    let fit = fit.count().max(1);
    problems.get(..fit).unwrap_or(problems)
}

/// The beginning of a text that is very long.
fn cut(mut text: String) -> String {
    if text.len() > LONGEST {
        let end = (0..=LONGEST).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
        text.truncate(end);
        text.push_str("...");
    }
    text
}

/// A value as messages show it.
fn shown(value: &Value) -> String {
    cut(match value {
        Value::String(text) => format!("{:?}", text.as_str()),
        other => json::to_string(other),
    })
}
