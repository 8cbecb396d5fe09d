//! Controls, fields, values and images that a rule leaves out.

use kiln_text::wildcard;
use kiln_value::{Path, Str};

use crate::checks::Control;
use crate::pod::Pod;
use crate::violation::{FieldError, Violation};

/// What a rule leaves out. Without images it covers the fields of the Pod itself, and in every container
/// what is not set; what a container sets needs its image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exclusion {
    pub control: Control,
    /// Wildcards for the images of containers, as written there.
    pub images: Vec<Str>,
    /// The only field that is left out, with `*` for positions in lists; all of the control when none.
    pub field: Option<Str>,
    /// Wildcards for values of the field; all of them must be met. Any value when empty.
    pub values: Vec<Str>,
}

impl Exclusion {
    fn covers(&self, pod: &Pod<'_>, error: &FieldError) -> bool {
        let in_place = match error.container {
            None => self.images.is_empty(),
            Some(_) if self.images.is_empty() => error.is_unset(),
            Some(container) => pod.containers.get(container).is_some_and(|container| {
                wildcard::matches_any(self.images.iter().map(Str::as_str), container.image)
            }),
        };
        in_place
            && self.field.as_ref().is_none_or(|field| is_field(field, error))
            && (self.values.is_empty()
                || error
                    .bad_values()
                    .iter()
                    .all(|value| wildcard::matches_any(self.values.iter().map(Str::as_str), value)))
    }
}

/// Whether a field is the one that was written, where `*` means every position in a list.
fn is_field(written: &str, error: &FieldError) -> bool {
    let field = error.field(&Path::root());
    if let Some(key) = field.strip_prefix("metadata.annotations[") {
        // Keys of annotations may hold digits, so they are compared as they are, or with a wildcard.
        let bare = |text: &str| text.trim_matches(['[', ']', '"', '\'']).to_owned();
        return written.strip_prefix("metadata.annotations[").is_some_and(|w| {
            wildcard::matches(&bare(w), &bare(key)) || bare(w) == stars(&bare(key))
        });
    }
    stars(&field) == written
}

/// The text with `*` for each number in it.
fn stars(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if !c.is_ascii_digit() {
            out.push(c);
        } else if !out.ends_with('*') {
            out.push('*');
        }
    }
    out
}

/// What remains of violations once some things are left out.
#[must_use]
pub fn leave_out(
    mut violations: Vec<Violation>,
    exclusions: &[Exclusion],
    pod: &Pod<'_>,
) -> Vec<Violation> {
    for exclusion in exclusions {
        for violation in violations.iter_mut().filter(|v| v.control == exclusion.control) {
            violation.errors.retain(|error| !exclusion.covers(pod, error));
            violation.behind.retain(|error| !exclusion.covers(pod, error));
        }
    }
    violations.retain_mut(|violation| {
        if violation.errors.is_empty() {
            violation.errors = std::mem::take(&mut violation.behind);
        }
        !violation.errors.is_empty()
    });
    violations
}
