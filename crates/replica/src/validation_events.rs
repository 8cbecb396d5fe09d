//! What events say of rules that check objects, in Kyverno's words.

use kiln_admission::ValidationResult;
use kiln_engine::Status;
use kiln_object::{Gvk, ObjectId};
use kiln_rules::PolicyId;
use kiln_value::Str;

use crate::events::{APPLIED, CheckedObject, Said, place, policy, reference};
use crate::policy_store::Registry;

const VIOLATION: &str = "PolicyViolation";
const SKIPPED: &str = "PolicySkipped";
const PASSED: &str = "Resource Passed";
const BLOCKED: &str = "Resource Blocked";

/// The events about an object that rules checked: for every rule that it fails on its policy, and on the object if it is
/// stored all the same; for every exception; and for every policy that it meets as a whole.
pub(crate) fn of_results(
    object: &CheckedObject,
    results: &[ValidationResult],
    blocked: bool,
    registry: &Registry,
) -> Vec<Said> {
    let about = reference(&object.id, object.uid.as_deref());
    let shown = format!("{} {}", object.id.gvk.kind, place(&object.id));
    let mut said = Vec::new();
    for result in results.iter().filter(|result| result.is_bad()) {
        let mut note = shown.clone() + ": ";
        if let Some(rule) = result.rule.in_reports() {
            note += &format!("[{rule}] ");
        }
        note += word(result);
        if blocked {
            note += " (blocked)";
        }
        said.push(Said {
            regarding: policy(&result.rule.policy, registry),
            related: Some(about.clone()),
            reason: VIOLATION,
            action: if blocked { BLOCKED } else { PASSED },
            note: format!("{note}; {}", result.message),
        });
        if !blocked {
            said.push(Said {
                regarding: about.clone(),
                related: Some(policy(&result.rule.policy, registry)),
                reason: VIOLATION,
                action: PASSED,
                note: format!("policy {} {}: {}", named(result), word(result), result.message),
            });
        }
    }
    for result in results.iter().filter(|result| !result.exceptions.is_empty()) {
        said.extend(of_exceptions(object, result, registry));
    }
    let mut policies: Vec<&PolicyId> = results.iter().map(|result| &result.rule.policy).collect();
    policies.dedup();
    for met in policies {
        let of_policy = || results.iter().filter(|result| result.rule.policy == *met);
        let passes = of_policy().any(|result| result.status == Status::Pass);
        if passes && !of_policy().any(ValidationResult::is_bad) {
            said.push(Said {
                regarding: policy(met, registry),
                related: Some(about.clone()),
                reason: APPLIED,
                action: PASSED,
                note: format!("{shown}: pass"),
            });
        }
    }
    said
}

/// How a rule ended. Failures that do not count in reports are failures here.
fn word(result: &ValidationResult) -> &'static str {
    if result.is_violation() { Status::Fail.as_str() } else { result.status.as_str() }
}

/// The policy, and its rule if it has several.
fn named(result: &ValidationResult) -> String {
    let name = &result.rule.policy.name;
    match result.rule.in_reports() {
        Some(rule) => format!("{name}/{rule}"),
        None => name.to_string(),
    }
}

fn of_exceptions(
    object: &CheckedObject,
    result: &ValidationResult,
    registry: &Registry,
) -> Vec<Said> {
    let ObjectId { gvk, namespace, name } = &object.id;
    let shown = format!("{}/{namespace}/{name}", gvk.kind);
    let exceptions = result.exceptions.join(", ");
    let on_policy = Said {
        regarding: policy(&result.rule.policy, registry),
        related: Some(reference(&object.id, object.uid.as_deref())),
        reason: SKIPPED,
        action: PASSED,
        note: format!(
            "resource {shown} was skipped from rule {} due to policy exceptions {exceptions}",
            result.rule.rule
        ),
    };
    let on_exception = |exception: &Str| {
        let (namespace, name) = exception.split_once('/').unwrap_or(("", exception));
        let version = match result.rule.in_reports() {
            Some(_) => "kyverno.io/v2",
            None => "policies.kyverno.io/v1",
        };
        let id = ObjectId::new(Gvk::new(version, "PolicyException"), namespace, name);
        Said {
            regarding: reference(&id, None),
            related: Some(policy(&result.rule.policy, registry)),
            reason: SKIPPED,
            action: PASSED,
            note: format!("resource {shown} was skipped from policy rule {}", named(result)),
        }
    };
    std::iter::once(on_policy).chain(result.exceptions.iter().map(on_exception)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_rules::{Actions, Dialect, RuleId};

    fn result(dialect: Dialect, rule: &str, status: Status) -> ValidationResult {
        let policy = PolicyId { dialect, namespace: None, name: "p".into() };
        ValidationResult {
            rule: RuleId { policy, rule: rule.into() },
            status,
            message: "because".to_owned(),
            actions: Actions::DENY,
            properties: Vec::new(),
            exceptions: Vec::new(),
            took: None,
        }
    }

    fn said(results: &[ValidationResult], blocked: bool) -> Vec<String> {
        let object = CheckedObject {
            id: ObjectId::new(Gvk::new("v1", "Pod"), "shop", "web"),
            uid: Some("u".into()),
        };
        let said = of_results(&object, results, blocked, &Registry::default());
        let shown = said.iter().map(|said| {
            let on = said.regarding.str_at(["kind"]).unwrap();
            format!("{on} {} {}: {}", said.reason, said.action, said.note)
        });
        shown.collect()
    }

    #[test]
    fn a_refused_object_is_told_of_on_the_policy_alone() {
        let failed = result(Dialect::Kyverno, "r", Status::Fail);
        assert_eq!(
            said(std::slice::from_ref(&failed), true),
            [
                "ClusterPolicy PolicyViolation Resource Blocked: Pod shop/web: [r] fail (blocked); because"
            ]
        );
        assert_eq!(
            said(&[failed], false),
            [
                "ClusterPolicy PolicyViolation Resource Passed: Pod shop/web: [r] fail; because",
                "Pod PolicyViolation Resource Passed: policy p/r fail: because",
            ]
        );
    }

    #[test]
    fn a_policy_in_cel_has_no_rules_to_name() {
        let error = result(Dialect::ValidatingPolicy, "p", Status::Error);
        assert_eq!(
            said(&[error], false),
            [
                "ValidatingPolicy PolicyViolation Resource Passed: Pod shop/web: error; because",
                "Pod PolicyViolation Resource Passed: policy p error: because",
            ]
        );
    }

    #[test]
    fn a_policy_passes_as_a_whole_and_exceptions_are_named() {
        let pass = || result(Dialect::Kyverno, "r", Status::Pass);
        let skip = || result(Dialect::Kyverno, "s", Status::Skip);
        assert_eq!(
            said(&[pass(), skip()], false),
            ["ClusterPolicy PolicyApplied Resource Passed: Pod shop/web: pass"]
        );
        assert_eq!(said(&[skip()], false), Vec::<String>::new());
        let excepted = ValidationResult { exceptions: vec!["dev/e".into()], ..skip() };
        assert_eq!(
            said(&[excepted], false),
            [
                "ClusterPolicy PolicySkipped Resource Passed: resource Pod/shop/web was skipped from rule s due to policy exceptions dev/e",
                "PolicyException PolicySkipped Resource Passed: resource Pod/shop/web was skipped from policy rule p/s",
            ]
        );
    }
}
