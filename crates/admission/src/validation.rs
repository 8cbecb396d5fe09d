//! The answer of rules that check objects: which policies deny a request, with which message, and which warnings.
//!
//! ```text
//! outcomes ─▶ results ─┬─▶ refused: some rule that refuses failed, or could not be evaluated and must be
//!                      ├─▶ warnings: of rules that warn, and of errors that are ignored
//!                      └─▶ events, metrics, reports: every result
//! ```
//!
//! Rules that can neither refuse nor warn have no part in the answer, so they are evaluated after it.

use std::collections::BTreeMap;
use std::time::Duration;

use kiln_engine::{Event, RuleOutcome, RuleSet, Status, Verdict};
use kiln_rules::{Actions, FailureActions, FailurePolicy, Program, Rule, RuleId};
use kiln_value::{Map, Str, Value};

use crate::review::{Response, sent_kind};

/// What a rule found about an object, or did to it.
#[derive(Clone, Debug, PartialEq)]
pub struct ValidationResult {
    pub rule: RuleId,
    /// How it ended.
    pub status: Status,
    /// What it says of the object.
    pub message: String,
    /// What becomes of an object that fails.
    pub actions: Actions,
    /// What it adds to reports.
    pub properties: Vec<(Str, Str)>,
    /// The exceptions that mean the object.
    pub exceptions: Vec<Str>,
    /// How long its evaluation took, if that was measured.
    pub took: Option<Duration>,
}

impl ValidationResult {
    /// What a rule that changes the object of a request did; none when it has nothing to do with it.
    pub(crate) fn of_change(outcome: &RuleOutcome, subject: &str) -> Option<Self> {
        let status = match outcome.verdict {
            Verdict::Pass => Status::Pass,
            Verdict::Skip => Status::Skip,
            Verdict::Error => Status::Error,
            Verdict::NoMatch | Verdict::Lapsed => return None,
        };
        let in_cel = outcome.rule.in_reports().is_none();
        let message = match status {
            _ if outcome.is_excepted() => outcome.message(),
            // Kyverno: in these words.
            Status::Pass if in_cel => "success".to_owned(),
            Status::Pass => format!("mutated {subject}"),
            _ => outcome.message(),
        };
        let result = ValidationResult::of(outcome)?;
        Some(ValidationResult { status, message, actions: Actions::default(), ..result })
    }

    /// What an outcome says; none when the rule has nothing to do with the object.
    pub fn of(outcome: &RuleOutcome) -> Option<Self> {
        let status = outcome.status();
        if status == Status::NoMatch {
            return None;
        }
        let violation = outcome.violation().map(|violation| violation.actions);
        Some(ValidationResult {
            rule: outcome.rule.clone(),
            status,
            message: outcome.message(),
            actions: violation.or(outcome.on_error).unwrap_or_default(),
            properties: outcome.properties.clone(),
            exceptions: outcome.exceptions.clone(),
            took: outcome.took,
        })
    }

    /// Whether the object is not as the rule wants it, counted or not.
    pub fn is_violation(&self) -> bool {
        matches!(self.status, Status::Fail | Status::Warn)
    }

    /// Whether the object fails, or may do so.
    pub fn is_bad(&self) -> bool {
        self.is_violation() || self.status == Status::Error
    }

    /// Whether it keeps the object from being stored.
    fn blocks(&self, failure: FailurePolicy) -> bool {
        let counts =
            self.is_violation() || (self.status == Status::Error && failure == FailurePolicy::Fail);
        counts && self.actions.deny
    }

    /// Whether it is an error that would block if errors were not ignored.
    fn is_ignored(&self, failure: FailurePolicy) -> bool {
        self.status == Status::Error && self.actions.deny && failure == FailurePolicy::Ignore
    }
}

/// How policies of a kind tell users what is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wording {
    /// All rules that fail, by policy.
    Rules,
    /// One sentence for each policy.
    Policies,
}

/// When and how a webhook answers for rules that check objects.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answering {
    pub(crate) wording: Wording,
    pub(crate) failure: FailurePolicy,
    /// The policy is the only one of its webhook.
    pub(crate) alone: bool,
}

impl Answering {
    /// The answer to a request.
    pub(crate) fn answer(&self, event: &Event, results: &[ValidationResult]) -> Response {
        let refused = results.iter().any(|result| result.blocks(self.failure));
        match self.wording {
            Wording::Rules if refused => Response::denied(self.blocked(event, results)),
            Wording::Rules => {
                let warned = results.iter().filter(|result| self.warns(result));
                let warnings = warned.map(|result| {
                    let RuleId { policy, rule } = &result.rule;
                    format!("policy {}.{rule}: {}", policy.name, result.message)
                });
                Response { warnings: warnings.collect(), ..Response::allowed() }
            }
            Wording::Policies => {
                let blocking = results.iter().filter(|result| result.blocks(self.failure));
                let blocking: Vec<String> = blocking.map(sentence).collect();
                let mut response = match refused {
                    true => Response::denied(blocking.join("; ")),
                    false => Response::allowed(),
                };
                // A request may be refused by one policy and be warned of by another.
                let warned = results.iter().filter(|result| self.warns(result));
                response.warnings = warned.map(sentence).collect();
                response
            }
        }
    }

    fn warns(&self, result: &ValidationResult) -> bool {
        let audits_alone = self.alone && self.wording == Wording::Rules && !result.actions.deny;
        (result.is_bad() && result.actions.warn)
            || result.is_ignored(self.failure)
            || (result.is_violation() && audits_alone)
    }

    /// Kyverno: all rules that fail, whether or not they refuse, as YAML below a line about the object.
    fn blocked(&self, event: &Event, results: &[ValidationResult]) -> String {
        let listed =
            |result: &&ValidationResult| result.is_bad() && (result.actions.deny || self.alone);
        let bad: Vec<&ValidationResult> = results.iter().filter(listed).collect();
        let mut policies: BTreeMap<String, Map> = BTreeMap::new();
        for result in &bad {
            let RuleId { policy, rule } = &result.rule;
            let shares = |other: &&ValidationResult| {
                other.rule.policy.name == policy.name && other.rule.policy != *policy
            };
            // Kyverno: without the namespace, so that one policy hides another of its name.
            let name = match bad.iter().any(shares) {
                true => policy.key(),
                false => policy.name.to_string(),
            };
            policies.entry(name).or_default().insert(rule.as_str(), result.message.as_str());
        }
        let policies: Map =
            policies.into_iter().map(|(name, rules)| (name, Value::Map(rules))).collect();
        let listed = kiln_yaml::emit(&Value::Map(policies));
        format!(
            "\n\nresource {} was blocked due to the following policies \n\n{listed}",
            described(event)
        )
    }
}

fn sentence(result: &ValidationResult) -> String {
    let word = if result.status == Status::Error { "error" } else { "failed" };
    format!("Policy {} {word}: {}", result.rule.policy.name, result.message)
}

/// `Kind/namespace/name` of the object of a request.
fn described(event: &Event) -> String {
    let kind = sent_kind(event).kind;
    let is_namespace = event.kind.group.is_empty() && event.kind.kind == "Namespace";
    let namespace = event.namespace.as_deref().filter(|_| !is_namespace).unwrap_or_default();
    format!("{kind}/{namespace}/{}", event.name)
}

/// The rules of policies that check objects, by when they are evaluated.
#[derive(Debug, Default)]
pub(crate) struct ValidationRules {
    /// Those that may refuse or warn: the answer waits for them.
    pub(crate) answering: RuleSet,
    /// Those that do neither.
    pub(crate) auditing: RuleSet,
}

/// Whether the answer to a request may depend on a rule.
pub(crate) fn may_answer(rule: &Rule) -> bool {
    let Program::Validate(program) = &rule.program else { return false };
    let FailureActions { usual, overrides } = &program.on_failure;
    let all = overrides.iter().map(|entry| entry.actions).chain([*usual]);
    all.into_iter().any(|actions| actions.deny || actions.warn)
}

/// Whether objects that fail a rule are refused.
pub(crate) fn denies(rule: &Rule) -> bool {
    matches!(&rule.program, Program::Validate(program) if program.on_failure.usual.deny)
}

/// The results of rules for an event.
pub(crate) fn results(outcomes: &[RuleOutcome]) -> Vec<ValidationResult> {
    outcomes.iter().filter_map(ValidationResult::of).collect()
}
