//! Who may do what: a table of allowances and refusals.

use kiln_cluster::{ApiError, Reason, Verb};
use kiln_object::{Gvk, ObjectId};
use kiln_text::wildcard;
use kiln_value::Str;

/// Who may do what. The last line that fits decides; without one everything is allowed.
#[derive(Clone, Debug, Default)]
pub struct Access {
    lines: Vec<Line>,
}

#[derive(Clone, Debug, PartialEq)]
struct Line {
    decision: Decision,
    user: Str,
    verb: Option<Verb>,
    kind: Str,
    namespace: Str,
}

/// Whether something may be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    Allow,
    Deny,
}

impl Access {
    /// Adds a line. User, kind and namespace take wildcards; no verb means every verb. The namespace of
    /// cluster-scoped objects and of reads across namespaces is the empty text.
    pub fn set(
        &mut self,
        decision: Decision,
        user: &str,
        verb: Option<Verb>,
        kind: &str,
        namespace: &str,
    ) {
        let line = Line {
            decision,
            user: user.into(),
            verb,
            kind: kind.into(),
            namespace: namespace.into(),
        };
        // A line that says the same of the same is replaced, so that the table does not grow.
        self.lines.retain(|old| Line { decision, ..old.clone() } != line);
        self.lines.push(line);
    }

    /// Takes every line away.
    pub fn clear(&mut self) {
        self.lines.clear();
    }

    /// Whether a user may do something.
    pub fn decide(&self, user: &str, verb: Verb, kind: &Gvk, namespace: &str) -> Decision {
        let fits = |line: &&Line| {
            wildcard::matches(&line.user, user)
                && line.verb.is_none_or(|named| named == verb)
                && wildcard::matches(&line.kind, &kind.kind)
                && wildcard::matches(&line.namespace, namespace)
        };
        self.lines.iter().rev().find(fits).map_or(Decision::Allow, |line| line.decision)
    }
}

pub(super) fn forbidden(user: &str, verb: Verb, about: &ObjectId) -> ApiError {
    let place = match about.namespace.as_str() {
        "" => "at the cluster scope".to_owned(),
        namespace => format!("in the namespace {namespace:?}"),
    };
    let kind = &about.gvk.kind;
    ApiError::new(
        Reason::Forbidden,
        format!("user {user:?} cannot {verb} resource {kind:?} {place}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_that_fits_decides() {
        let mut access = Access::default();
        let secret = Gvk::new("v1", "Secret");
        let asked =
            |access: &Access, verb, namespace| access.decide("kiln", verb, &secret, namespace);
        assert_eq!(asked(&access, Verb::Create, "a"), Decision::Allow);
        access.set(Decision::Deny, "k*", Some(Verb::Create), "Secret", "*");
        access.set(Decision::Allow, "*", None, "*", "a");
        assert_eq!(asked(&access, Verb::Create, "a"), Decision::Allow);
        assert_eq!(asked(&access, Verb::Create, "b"), Decision::Deny);
        assert_eq!(asked(&access, Verb::Get, "b"), Decision::Allow);
        access.set(Decision::Allow, "k*", Some(Verb::Create), "Secret", "*");
        assert_eq!(access.lines.len(), 2);
        assert_eq!(asked(&access, Verb::Create, "b"), Decision::Allow);
    }
}
