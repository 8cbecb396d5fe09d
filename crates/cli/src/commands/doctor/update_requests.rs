//! Whether the work that policies ask for is done, by what UpdateRequests say.

use std::collections::BTreeMap;

use kiln_runtime::Waiting;
use kiln_text::time::Time;
use kiln_value::Value;

use super::{Checks, FindingState};
use crate::ui::counted;

/// So many seconds work may wait before it is worth a word.
const PATIENCE: i64 = 120;
/// So many messages about the work of one policy are shown.
const MESSAGES: usize = 5;

/// What became of work that is not done.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum NotDone {
    /// Another writer, or another rule, wants other values for the same object.
    Contested,
    /// The rule fires on what it made itself.
    Loop,
    Failed,
    Waits,
}

impl NotDone {
    /// What an UpdateRequest says. The engine gives a reason besides its words.
    fn of(request: &Value, now: i64) -> Option<Self> {
        let text = |path: [&str; 2]| request.str_at(path).unwrap_or_default();
        let (state, reason) = (text(["status", "state"]), text(["status", "reason"]));
        if matches!(state, "Completed" | "Skip") {
            return None;
        }
        if reason == Waiting::Contested.as_str() {
            return Some(NotDone::Contested);
        }
        if reason == Waiting::Loop.as_str() {
            return Some(NotDone::Loop);
        }
        // What is to be copied, or the namespace to write to, is not there: it may well never come.
        if reason == Waiting::Missing.as_str() {
            return Some(NotDone::Waits);
        }
        let born = Time::parse_rfc3339(text(["metadata", "creationTimestamp"]));
        let is_old = born.is_ok_and(|born| now - born.unix() > PATIENCE);
        match state {
            "Failed" => Some(NotDone::Failed),
            _ => is_old.then_some(NotDone::Waits),
        }
    }

    fn about(self) -> &'static str {
        match self {
            NotDone::Contested | NotDone::Loop => "loops",
            NotDone::Failed | NotDone::Waits => "work",
        }
    }

    fn words(self) -> &'static str {
        match self {
            NotDone::Contested => "its downstreams have conflicting writers",
            NotDone::Loop => "it was stopped",
            NotDone::Failed => "work failed",
            NotDone::Waits => "work waits",
        }
    }

    fn hint(self) -> &'static str {
        match self {
            NotDone::Contested => {
                "two rules, or a rule and another writer, want different values: change a rule, or stop the other writer"
            }
            NotDone::Loop => {
                "narrow what the rule fires on, so that it leaves out what it makes: by name, namespace or label"
            }
            NotDone::Failed => {
                "correct the rule, or the object that it fails on; `kiln explain KIND/NAME` shows which rules apply"
            }
            NotDone::Waits => {
                "create or allow what it waits for, or take it out of the rule; `kiln explain KIND/NAME` shows which rules apply"
            }
        }
    }
}

/// Looks at the work that is not done.
pub(super) fn check(checks: &mut Checks<'_>) {
    let about = "work";
    let namespace = checks.settings.namespace.to_string();
    let kind = checks.settings.names.update_request();
    let Ok(requests) = checks.all(about, &kind, &namespace) else { return };
    let mut found: BTreeMap<(NotDone, &str), BTreeMap<&str, usize>> = BTreeMap::new();
    for request in &requests {
        let text = |path: [&str; 2]| request.str_at(path).unwrap_or_default();
        if let Some(undone) = NotDone::of(request, checks.now) {
            let messages = found.entry((undone, text(["spec", "policy"]))).or_default();
            *messages.entry(text(["status", "message"])).or_default() += 1;
        }
    }
    if found.is_empty() {
        checks.good(about, "no work waits or failed");
    }
    for ((undone, policy), messages) in found {
        let state =
            if undone == NotDone::Waits { FindingState::Doubtful } else { FindingState::Bad };
        let beginning = format!("policy {policy}: {}", undone.words());
        for (message, count) in messages.iter().take(MESSAGES) {
            let times = counted(*count, "time", "times");
            let message = format!("{beginning} ({times}): {message}");
            checks.note(undone.about(), state, message, undone.hint());
        }
        if messages.len() > MESSAGES {
            let more = messages.len() - MESSAGES;
            let message = format!("{beginning}: and {more} more such messages");
            let hint = format!("read them all: kubectl get updaterequests -n {namespace} -o yaml");
            checks.note(undone.about(), state, message, &hint);
        }
    }
}

#[cfg(test)]
mod tests {
    use kiln_value::value;

    use super::*;

    #[test]
    fn what_became_of_work_is_decided_by_fields() {
        let now = 1_800_000_000;
        let said = |state: &str, reason: &str, age: i64| {
            let born = Time::from_unix(now - age, 0).unwrap().rfc3339();
            let request = value!({
                "metadata": {"creationTimestamp": born},
                "status": {"state": state, "reason": reason, "message": "another writer keeps changing it"},
            });
            NotDone::of(&request, now).map(|undone| (undone.about(), undone.words()))
        };
        let contested = Some(("loops", "its downstreams have conflicting writers"));
        assert_eq!(said("Pending", "Contested", 1), contested);
        assert_eq!(said("Failed", "Loop", 1), Some(("loops", "it was stopped")));
        assert_eq!(said("Failed", "Failed", 1), Some(("work", "work failed")));
        assert_eq!(said("Failed", "", 1), Some(("work", "work failed")));
        assert_eq!(said("Pending", "Missing", 1), Some(("work", "work waits")));
        assert_eq!(said("Pending", "Unavailable", PATIENCE), None);
        assert_eq!(said("Pending", "Unavailable", PATIENCE + 1), Some(("work", "work waits")));
        assert_eq!(said("", "", PATIENCE + 1), Some(("work", "work waits")));
        for done in ["Completed", "Skip"] {
            assert_eq!(said(done, "Contested", PATIENCE + 1), None, "{done}");
        }
    }
}
