//! Whether policies can be used, have the rights that they need, and do their work.

use std::collections::BTreeMap;

use kiln_admission::access::{needs, questions, refusal};
use kiln_dialects::{compile, is_exception, is_policy};
use kiln_object::Gvk;
use kiln_text::time::Time;
use kiln_value::Value;

use super::super::connection::stored_policies;
use super::{Examination, State};
use crate::exit::Failure;
use crate::ui::counted;

/// So many seconds work may wait before it is worth a word.
const PATIENCE: i64 = 120;

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
    for document in documents.iter().filter(|document| is_policy(document)) {
        if let Some(why) = unready(document.value()) {
            let name = kiln_object::identity::describe(document.value());
            look.bad(about, format!("{name} is not ready: {why}"), "correct the policy");
        }
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

/// Why a policy says that it is not ready, if it does.
fn unready(policy: &Value) -> Option<String> {
    let conditions = policy.get_path(["status", "conditions"])?.as_list()?;
    let ready = conditions.iter().find(|condition| condition.str_at(["type"]) == Some("Ready"))?;
    (ready.str_at(["status"]) == Some("False"))
        .then(|| ready.str_at(["message"]).unwrap_or_default().to_owned())
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
    let Some(refusal) = refusal(&policy.id.key(), &needs, &allowed, &look.settings) else {
        return true;
    };
    let (message, hint) = refusal.split_once('\n').unwrap_or((&refusal, ""));
    look.bad(about, format!("policy {}: {message}", policy.id.key()), hint);
    false
}

/// Looks at the work that is not done.
pub(super) fn work(look: &mut Examination<'_>) {
    let about = "work";
    let namespace = look.settings.namespace.to_string();
    let requests = look.all(about, &Gvk::new("kyverno.io/v2", "UpdateRequest"), &namespace);
    let mut found: BTreeMap<(bool, String, String), usize> = BTreeMap::new();
    for request in &requests {
        let text = |path: [&str; 2]| request.str_at(path).unwrap_or_default().to_owned();
        let born = Time::parse_rfc3339(&text(["metadata", "creationTimestamp"]));
        let is_old = born.is_ok_and(|born| look.now - born.unix() > PATIENCE);
        let (state, message) = (text(["status", "state"]), text(["status", "message"]));
        if state == "Failed" || (state != "Completed" && is_old) {
            let is_failed = state == "Failed";
            *found.entry((is_failed, text(["spec", "policy"]), message)).or_default() += 1;
        }
    }
    if found.is_empty() {
        look.good(about, "no work waits or failed");
    }
    for ((is_failed, policy, message), count) in found {
        let is_contest = message.contains("keeps changing");
        let what = if is_failed { "failed" } else { "waits" };
        let about = if is_contest { "loops" } else { about };
        let times = counted(count, "time", "times");
        let message = format!("policy {policy}: work {what} ({times}): {message}");
        let hint = if is_contest {
            "a rule and somebody else want different things: change the rule, or let the other one leave the object alone"
        } else {
            "`kiln explain KIND/NAME` says of an object what each rule makes of it"
        };
        match is_failed {
            true => look.bad(about, message, hint),
            false => look.doubtful(about, message, hint),
        }
    }
}
