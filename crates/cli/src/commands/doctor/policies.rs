//! Whether policies can be used, have the rights that they need, and do their work.

use std::collections::{BTreeMap, BTreeSet};

use kiln_admission::access::{needs, questions, refusal};
use kiln_admission::authors::is_unsigned;
use kiln_dialects::{compile, is_exception, is_policy};
use kiln_live::Waiting;
use kiln_object::Gvk;
use kiln_text::time::Time;
use kiln_value::Value;
use kiln_yaml::Document;

use super::super::conditions::{PolicyCondition, READABLE, unmet};
use super::super::connection::stored_policies;
use super::{Examination, State};
use crate::exit::Failure;
use crate::ui::counted;

/// So many seconds work may wait before it is worth a word.
const PATIENCE: i64 = 120;
/// So many messages about the work of one policy are shown.
const MESSAGES: usize = 5;

/// Looks at the policies that are stored.
pub(super) fn look(look: &mut Examination<'_>) -> Result<(), Failure> {
    let about = "policies";
    let documents = stored_policies(look.reader)?;
    let wanted = documents.iter().filter(|found| is_policy(found) || is_exception(found));
    let compiled = compile(wanted, look.reader.kinds());
    for problem in &compiled.diagnostics {
        let state = match problem.severity {
            kiln_diagnostic::Severity::Error => State::Bad,
            kiln_diagnostic::Severity::Warning => State::Doubtful,
            kiln_diagnostic::Severity::Note => continue,
        };
        // Its words hold its hint.
        look.note(about, state, problem.to_string(), None);
    }
    for exception in &compiled.exceptions {
        if !look.settings.holds(exception) {
            let message = format!("PolicyException {} does not hold", exception.name);
            let hint = "exceptions for all policies are taken from the namespaces in kiln.exceptionNamespaces of the ConfigMap";
            look.doubtful("exceptions", message, hint);
        }
    }
    // Of kinds that are left to other engines, these write the status, and nobody is the author. The same holds for
    // exceptions, which do nothing.
    let not_run = compiled.not_run.iter().filter(|not_run| not_run.rule.is_none());
    let not_run: BTreeSet<String> =
        not_run.map(|not_run| not_run.place.source().name().to_owned()).collect();
    let is_run =
        |policy: &&Document| is_policy(policy) && !not_run.contains(policy.place().source().name());
    for document in documents.iter().filter(is_run) {
        readiness(look, document);
        if !is_unsigned(document.value(), look.settings.authors) {
            continue;
        }
        let name = kiln_object::identity::describe(document.value());
        let message = format!(
            "nobody wrote down who stored {name}: it may do what the engine may in its namespace"
        );
        look.doubtful("authors", message, "let somebody who may do what it does store it again, for example with kubectl annotate");
    }
    let count = compiled.policies.len();
    look.good(about, format!("{} can be run", counted(count, "policy", "policies")));
    let mut is_allowed = true;
    for policy in &compiled.policies {
        is_allowed &= rights(look, policy);
    }
    if is_allowed {
        look.good("rights", "the engine's accounts may do what policies need");
    }
    Ok(())
}

/// Looks at what a policy says of itself.
fn readiness(look: &mut Examination<'_>, policy: &Document) {
    // What only webhooks lack is told of webhooks.
    let keeps = |unmet: &PolicyCondition| !unmet.is_ready || unmet.condition == READABLE;
    let unmet: Vec<_> = unmet(policy.value()).into_iter().filter(keeps).collect();
    if unmet.is_empty() {
        return;
    }
    let is_sound = !compile([policy], look.reader.kinds()).has_errors();
    let name = kiln_object::identity::describe(policy.value());
    for unmet in unmet {
        let message = match unmet.condition.as_str() {
            READABLE => {
                format!("{name} is not fired by everything that it names: {}", unmet.message)
            }
            _ => format!("{name} is not ready: {}", unmet.message),
        };
        look.bad("policies", message, what_helps(&unmet, is_sound));
    }
}

/// What to do about a policy that says so of itself.
fn what_helps(unmet: &PolicyCondition, is_sound: bool) -> &'static str {
    match (unmet.condition.as_str(), unmet.reason.as_str()) {
        (READABLE, _) => {
            "let the engine's accounts list and watch these kinds, install what defines them, or take them out of the policy"
        }
        (_, "NoAdmission") => {
            "the policy is sound: let an engine answer requests, with `kiln run` without `--only controller` or with `kiln run --only admission` beside it"
        }
        (_, _) if is_sound => {
            "the policy is sound: do what it says, and look at the logs of the engine"
        }
        _ => "correct the policy",
    }
}

fn rights(look: &mut Examination<'_>, policy: &kiln_rules::Policy) -> bool {
    let about = "rights";
    let needs = match needs(policy, look.reader.kinds()) {
        Ok(needs) => needs,
        Err(problem) => {
            let message = format!("policy {}: {problem}", policy.id.key());
            look.bad(about, message, "install the definition of the kind");
            return false;
        }
    };
    let mut allowed = Vec::new();
    for question in questions(&needs) {
        match look.reader.review(&question.to_value(&look.settings)) {
            Ok(answer) => allowed.push(answer),
            Err(error) => {
                let message = format!("cannot ask what the engine's accounts may do: {error}");
                look.doubtful(
                    about,
                    message,
                    "ask with credentials that may create SubjectAccessReviews",
                );
                return false;
            }
        }
    }
    let Some(refusal) = refusal(&policy.id, &needs, &allowed, &look.settings) else {
        return true;
    };
    let (message, hint) = refusal.split_once('\n').unwrap_or((&refusal, ""));
    look.bad(about, format!("policy {}: {message}", policy.id.key()), hint);
    false
}

/// What became of work that is not done.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Undone {
    /// Somebody else, or another rule, wants something else of the same object.
    Contested,
    /// The rule fires on what it made itself.
    Loop,
    Failed,
    Waits,
}

impl Undone {
    /// What an UpdateRequest says. The engine gives a reason besides its words.
    fn of(request: &Value, now: i64) -> Option<Self> {
        let text = |path: [&str; 2]| request.str_at(path).unwrap_or_default();
        let (state, reason) = (text(["status", "state"]), text(["status", "reason"]));
        if matches!(state, "Completed" | "Skip") {
            return None;
        }
        if reason == Waiting::Contested.as_str() {
            return Some(Undone::Contested);
        }
        if reason == Waiting::Loop.as_str() {
            return Some(Undone::Loop);
        }
        let born = Time::parse_rfc3339(text(["metadata", "creationTimestamp"]));
        let is_old = born.is_ok_and(|born| now - born.unix() > PATIENCE);
        match state {
            "Failed" => Some(Undone::Failed),
            _ => is_old.then_some(Undone::Waits),
        }
    }

    fn about(self) -> &'static str {
        match self {
            Undone::Contested | Undone::Loop => "loops",
            Undone::Failed | Undone::Waits => "work",
        }
    }

    fn words(self) -> &'static str {
        match self {
            Undone::Contested => "what it makes is contested",
            Undone::Loop => "it was stopped",
            Undone::Failed => "work failed",
            Undone::Waits => "work waits",
        }
    }

    fn hint(self) -> &'static str {
        match self {
            Undone::Contested => {
                "a rule and somebody else, or two rules, want different things: change a rule, or let the other one leave the object alone"
            }
            Undone::Loop => {
                "narrow what the rule fires on, so that it leaves out what it makes: by name, namespace or label"
            }
            _ => "`kiln explain KIND/NAME` says of an object what each rule makes of it",
        }
    }
}

/// Looks at the work that is not done.
pub(super) fn work(look: &mut Examination<'_>) {
    let about = "work";
    let namespace = look.settings.namespace.to_string();
    let kind = Gvk::new("kyverno.io/v2", "UpdateRequest");
    let Ok(requests) = look.all(about, &kind, &namespace) else { return };
    let mut found: BTreeMap<(Undone, &str), BTreeMap<&str, usize>> = BTreeMap::new();
    for request in &requests {
        let text = |path: [&str; 2]| request.str_at(path).unwrap_or_default();
        if let Some(undone) = Undone::of(request, look.now) {
            let messages = found.entry((undone, text(["spec", "policy"]))).or_default();
            *messages.entry(text(["status", "message"])).or_default() += 1;
        }
    }
    if found.is_empty() {
        look.good(about, "no work waits or failed");
    }
    for ((undone, policy), messages) in found {
        let state = if undone == Undone::Waits { State::Doubtful } else { State::Bad };
        let beginning = format!("policy {policy}: {}", undone.words());
        for (message, count) in messages.iter().take(MESSAGES) {
            let times = counted(*count, "time", "times");
            let message = format!("{beginning} ({times}): {message}");
            look.note(undone.about(), state, message, Some(undone.hint()));
        }
        if messages.len() > MESSAGES {
            let more = messages.len() - MESSAGES;
            let message = format!("{beginning}: and {more} more such messages");
            let hint = format!("kubectl get updaterequests -n {namespace} -o yaml");
            look.note(undone.about(), state, message, Some(&hint));
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
                "status": {"state": state, "reason": reason, "message": "somebody else keeps changing it"},
            });
            Undone::of(&request, now).map(|undone| (undone.about(), undone.words()))
        };
        let contested = Some(("loops", "what it makes is contested"));
        assert_eq!(said("Pending", "Contested", 1), contested);
        assert_eq!(said("Failed", "Loop", 1), Some(("loops", "it was stopped")));
        assert_eq!(said("Failed", "Failed", 1), Some(("work", "work failed")));
        assert_eq!(said("Failed", "", 1), Some(("work", "work failed")));
        assert_eq!(said("Pending", "Missing", PATIENCE), None);
        assert_eq!(said("Pending", "Missing", PATIENCE + 1), Some(("work", "work waits")));
        assert_eq!(said("", "", PATIENCE + 1), Some(("work", "work waits")));
        for done in ["Completed", "Skip"] {
            assert_eq!(said(done, "Contested", PATIENCE + 1), None, "{done}");
        }
    }
}
