//! Whether policies can be used, and have the permissions that they need.

use std::collections::BTreeSet;

use kiln_admission::access::{AccessQuestion, Without, lacking, needs, questions};
use kiln_admission::authors::is_unsigned;
use kiln_cluster::ApiError;
use kiln_dialects::{NotRun, PolicyHost, compile_for, is_exception, is_policy};
use kiln_object::metadata;
use kiln_yaml::Document;

use super::{Checks, FindingState};
use crate::cluster::competing_engines::{CompetingEngine, KEEPING, KYVERNO};
use crate::cluster::connection::{of_stored, stored_policies};
use crate::cluster::policy_status::{NOT_RUN, PolicyCondition, READABLE, unmet};
use crate::exit::CommandFailure;
use crate::ui::counted;

/// Looks at the policies that are stored.
pub(super) fn check(checks: &mut Checks<'_>) -> Result<(), CommandFailure> {
    let about = "policies";
    let documents = stored_policies(checks.reader)?;
    let wanted = documents.iter().filter(|found| is_policy(found) || is_exception(found));
    let compiled = compile_for(PolicyHost::Cluster, wanted, checks.reader.kinds());
    for problem in &compiled.diagnostics {
        let state = match problem.severity {
            kiln_diagnostic::Severity::Error => FindingState::Bad,
            kiln_diagnostic::Severity::Warning => FindingState::Doubtful,
            kiln_diagnostic::Severity::Note => continue,
        };
        let mut problem = of_stored(problem);
        let hint = problem.hint.take();
        let hint = hint.as_deref().unwrap_or(match state {
            FindingState::Bad => "correct the policy and store it again; `kiln check FILE` shows the place in its file",
            _ => "see whether it means what you want; `kiln check FILE` shows the place in its file",
        });
        checks.note(about, state, problem.to_string(), hint);
    }
    for exception in &compiled.exceptions {
        if !checks.settings.holds(exception) {
            let message = format!("PolicyException {} does not apply", exception.name);
            let hint = "add its namespace to kiln.exceptionNamespaces of the ConfigMap, or move it to one that is there";
            checks.doubtful("exceptions", message, hint);
        }
    }
    // Of kinds that are left to other engines, these write the status, and there is no author. The same holds for
    // exceptions, which do nothing.
    let not_run = compiled.not_run.iter().filter(|not_run| not_run.rule.is_none());
    let not_run: BTreeSet<String> =
        not_run.map(|not_run| not_run.place.source().name().to_owned()).collect();
    let is_run =
        |policy: &&Document| is_policy(policy) && !not_run.contains(policy.place().source().name());
    for document in documents.iter().filter(is_run) {
        readiness(checks, document);
        if !is_unsigned(document.value(), checks.settings.authors) {
            continue;
        }
        let name = kiln_object::identity::describe(document.value());
        let reach = match metadata::namespace(document.value()) {
            Some(_) => "the engine's permissions in its namespace",
            None => "the engine's permissions",
        };
        let message = format!("the author of {name} is not recorded: it has {reach}");
        checks.doubtful("authors", message, "let a user with the permissions that it needs store it again, for example with kubectl annotate");
    }
    let acting = compiled.policies.iter().filter(|policy| !policy.rules.is_empty()).count();
    checks.good(about, format!("{} can be run", counted(acting, "policy", "policies")));
    left_to_others(checks, &compiled.not_run);
    let mut is_allowed = true;
    for policy in &compiled.policies {
        is_allowed &= permissions(checks, policy);
    }
    if is_allowed {
        checks.good("permissions", "the engine's accounts may do what policies need");
    }
    Ok(())
}

/// Names the rules that are not run, and whether another engine may run them.
fn left_to_others(checks: &mut Checks<'_>, not_run: &[NotRun]) {
    let about = "not run";
    let is_kyverno = |(_, engine): &&CompetingEngine| *engine == KYVERNO;
    let runs = checks.sharing.as_ref().and_then(|found| found.iter().find(is_kyverno));
    let runs = runs.map(|(name, _)| name.clone());
    for rule in not_run {
        match &runs {
            Some(deployment) => checks.doubtful(
                about,
                rule.to_string(),
                &format!("it is left to Kyverno, of which the Deployment {deployment} runs: see to it that its controllers for such rules stay"),
            ),
            None => checks.bad(
                about,
                format!("{rule}, and nothing else runs it: it has no effect"),
                &instead(rule),
            ),
        }
    }
}

/// What to do about a rule that no engine runs.
fn instead(rule: &NotRun) -> String {
    let another = match rule.operation() {
        "validate" => ", write it as a ValidatingAdmissionPolicy, which the API server runs",
        _ => "",
    };
    let what = if rule.rule.is_some() { "take the rule out" } else { "delete the policy" };
    format!("keep Kyverno for it (docs/guides/from-kyverno.md, \"{KEEPING}\"){another}, or {what}")
}

/// Looks at what a policy says of itself.
fn readiness(checks: &mut Checks<'_>, policy: &Document) {
    // What only webhooks lack is reported with webhooks, and what is not run apart from what does not work.
    let keeps = |unmet: &PolicyCondition| {
        (!unmet.is_ready || unmet.condition == READABLE) && unmet.reason != NOT_RUN
    };
    let unmet: Vec<_> = unmet(policy.value()).into_iter().filter(keeps).collect();
    if unmet.is_empty() {
        return;
    }
    let is_sound = !compile_for(PolicyHost::Cluster, [policy], checks.reader.kinds()).has_errors();
    let name = kiln_object::identity::describe(policy.value());
    for unmet in unmet {
        let message = match unmet.condition.as_str() {
            READABLE => {
                format!("{name} is not triggered by all kinds that it names: {}", unmet.message)
            }
            _ => format!("{name} is not ready: {}", unmet.message),
        };
        checks.bad("policies", message, what_helps(&unmet, is_sound));
    }
}

/// What to do about a policy that says so of itself.
fn what_helps(unmet: &PolicyCondition, is_sound: bool) -> &'static str {
    match (unmet.condition.as_str(), unmet.reason.as_str()) {
        (READABLE, _) => {
            "let the engine's accounts list and watch these kinds, install what defines them, or take them out of the policy"
        }
        (_, "NoAdmission") => {
            "the policy is valid: let an engine answer requests, with `kiln run` without `--only controller` or with `kiln run --only admission` beside it"
        }
        (_, _) if is_sound => {
            "the policy is valid: do what it says, and look at the logs of the engine"
        }
        _ => "correct the policy",
    }
}

fn permissions(checks: &mut Checks<'_>, policy: &kiln_rules::Policy) -> bool {
    let about = "permissions";
    let needs = match needs(policy, checks.reader.kinds()) {
        Ok(needs) => needs,
        Err(problem) => {
            let message = format!("policy {}: {problem}", policy.id.key());
            checks.bad(about, message, "install the definition of the kind");
            return false;
        }
    };
    let mut allowed = Vec::new();
    for question in questions(&needs) {
        match is_allowed(checks, &question) {
            Ok(answer) => allowed.push(answer),
            Err(error) => {
                let message = format!("cannot ask what the engine's accounts may do: {error}");
                checks.doubtful(
                    about,
                    message,
                    "ask with credentials that may create SubjectAccessReviews",
                );
                return false;
            }
        }
    }
    let lacking = lacking(&needs, &allowed);
    let Some(without) = lacking.without() else { return true };
    let told = lacking.told(&policy.id, &checks.settings);
    let (message, hint) = told.split_once('\n').unwrap_or((&told, ""));
    let message = format!("policy {}: {message}", policy.id.key());
    match without {
        Without::Refused | Without::Fails => checks.bad(about, message, hint),
        Without::Doubtful => checks.doubtful(about, message, hint),
    }
    false
}

/// Whether the engine may do something: by the right itself, or by having what it hands out.
fn is_allowed(checks: &Checks<'_>, question: &AccessQuestion<'_>) -> Result<bool, ApiError> {
    if checks.reader.review(&question.to_value(&checks.settings))? {
        return Ok(true);
    }
    // What cannot be read is not known to be held.
    let role = question.role().and_then(|role| checks.reader.object(&role).ok().flatten());
    let Some(instead) = question.instead(role.as_ref(), &checks.settings) else { return Ok(false) };
    for review in &instead {
        if !checks.reader.review(review)? {
            return Ok(false);
        }
    }
    Ok(true)
}
