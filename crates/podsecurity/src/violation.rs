//! What checks find.

use std::fmt::Write;

use kiln_value::{Path, Segment};

use crate::checks::Control;
use crate::level::Level;
use crate::pod::{Container, Pod};

/// A check that a Pod does not pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The check, as Kubernetes names it.
    pub check: &'static str,
    /// The control that it belongs to, as the documentation names it.
    pub control: Control,
    /// The level that asks for it.
    pub level: Level,
    /// What is wrong, in a word or two.
    pub reason: String,
    /// What is wrong, with the names of containers and volumes.
    pub detail: String,
    /// The fields that are wrong.
    pub errors: Vec<FieldError>,
    /// Fields that are wrong as well, and are mentioned when the others are not (any more).
    pub(crate) behind: Vec<FieldError>,
}

/// One field that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    /// Where it is, from the root of the Pod.
    pub path: Path,
    /// What is wrong about it.
    pub fault: FieldFault,
    /// The container it belongs to, counted as [`Pod`] does; none for fields of the Pod itself.
    pub(crate) container: Option<usize>,
}

/// What is wrong about a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FieldFault {
    /// A required field is missing.
    Required,
    /// It has a value that it must not have.
    Forbidden(BadValue),
}

/// A value that a field must not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BadValue {
    /// Whatever it is.
    Any,
    /// None: the field is not there, and the default is not allowed.
    Unset,
    Text(String),
    /// A boolean.
    Bool(bool),
    /// A number.
    Int(i64),
    /// Entries of a list, sorted.
    List(Vec<String>),
}

impl FieldError {
    /// The field as Kubernetes writes it, for a Pod (or its template) that is at a place in an object.
    pub fn field(&self, pod_at: &Path) -> String {
        let mut text = String::new();
        for segment in pod_at.segments().iter().chain(self.path.segments()) {
            match segment {
                Segment::Index(index) => write!(text, "[{index}]").unwrap_or_default(),
                Segment::Key(key) if text.ends_with("metadata.annotations") => {
                    write!(text, "[{key}]").unwrap_or_default();
                }
                Segment::Key(key) => {
                    if !text.is_empty() {
                        text.push('.');
                    }
                    text.push_str(key);
                }
            }
        }
        text
    }

    /// Whether the field has no value at all.
    pub fn is_unset(&self) -> bool {
        matches!(self.fault, FieldFault::Required | FieldFault::Forbidden(BadValue::Unset))
    }

    /// The bad values, as exclusions name them; none for a field without one.
    pub(crate) fn bad_values(&self) -> Vec<String> {
        match &self.fault {
            FieldFault::Required | FieldFault::Forbidden(BadValue::Any) => Vec::new(),
            FieldFault::Forbidden(BadValue::Unset) => vec!["nil".to_owned()],
            FieldFault::Forbidden(BadValue::Text(text)) if text.is_empty() => Vec::new(),
            FieldFault::Forbidden(BadValue::Text(text)) => vec![text.clone()],
            FieldFault::Forbidden(BadValue::Bool(value)) => vec![value.to_string()],
            FieldFault::Forbidden(BadValue::Int(value)) => vec![value.to_string()],
            FieldFault::Forbidden(BadValue::List(list)) => list.clone(),
        }
    }

    /// What is wrong, in a sentence.
    pub fn describe(&self, pod_at: &Path) -> String {
        let field = self.field(pod_at);
        let value = match &self.fault {
            FieldFault::Required => return format!("{field}: Required value"),
            FieldFault::Forbidden(BadValue::Any) => return format!("{field}: Forbidden"),
            FieldFault::Forbidden(BadValue::Text(text)) if text.is_empty() => {
                return format!("{field}: Forbidden");
            }
            FieldFault::Forbidden(BadValue::Unset) => "nil".to_owned(),
            FieldFault::Forbidden(BadValue::Text(text)) => text.clone(),
            FieldFault::Forbidden(BadValue::Bool(value)) => value.to_string(),
            FieldFault::Forbidden(BadValue::Int(value)) => value.to_string(),
            FieldFault::Forbidden(BadValue::List(list)) => format!("[{}]", list.join(" ")),
        };
        format!("{field} is forbidden, forbidden values found: {value}")
    }

    pub(crate) fn of_pod(path: Path, bad: BadValue) -> Self {
        FieldError { path, fault: FieldFault::Forbidden(bad), container: None }
    }
}

impl Violation {
    /// The images of the containers that have a wrong field, as written, each once.
    pub fn images(&self, pod: &Pod<'_>) -> Vec<String> {
        let mut images: Vec<String> = Vec::new();
        for container in self.errors.iter().filter_map(|error| error.container) {
            if let Some(Container { image, .. }) = pod.containers.get(container)
                && !images.iter().any(|seen| seen == image)
            {
                images.push((*image).to_owned());
            }
        }
        images
    }
}

/// All violations as a rule reports them, for a Pod (or its template) that is at a place in an object.
pub fn describe(violations: &[Violation], pod_at: &Path) -> String {
    let mut text = String::new();
    for violation in violations {
        let errors: Vec<String> = violation.errors.iter().map(|e| e.describe(pod_at)).collect();
        write!(
            text,
            "(Forbidden reason: {}, field error list: [{}])",
            violation.reason,
            errors.join(", ")
        )
        .unwrap_or_default();
    }
    text
}
