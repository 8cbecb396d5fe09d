//! The results of `kiln apply` that need attention.
//!
//! Each resource that fails a rule is one finding. It points at the first value that is wrong; other wrong values, and
//! the parts of the policy that ask for something else, are its related places.

use kiln_diagnostic::SourceLocation;
use kiln_offline::{RuleResult, Status};
use kiln_value::{Map, Value, value};

use super::policy_report::PolicyFacts;
use super::show::{describe, message};
use crate::findings::{Finding, Level};
use kiln_studio::{Written, fix_of as fix};

const TITLE: &str = "policies.kyverno.io/title";
const DESCRIPTION: &str = "policies.kyverno.io/description";

pub(super) fn of(results: &[&RuleResult], written: &Written<'_>) -> Vec<Finding> {
    let needs_attention =
        |result: &&RuleResult| matches!(result.status, Status::Fail | Status::Warn | Status::Error);
    results.iter().copied().filter(needs_attention).map(|result| finding(result, written)).collect()
}

/// `policy/rule`, which stays the same from one run to the next.
fn id(result: &RuleResult) -> String {
    match result.rule.in_reports() {
        Some(rule) => format!("{}/{rule}", result.rule.policy.key()),
        None => result.rule.policy.key(),
    }
}

/// What SARIF says of a rule.
fn about(result: &RuleResult, written: &Written<'_>) -> Value {
    let facts = PolicyFacts::of(written.rules(), result);
    let (policy, rule) = (result.rule.policy.key(), &result.rule.rule);
    let title = facts.annotation(TITLE).filter(|title| !title.trim().is_empty());
    let title = title.map_or_else(|| format!("policy {policy}, rule {rule}"), one_line);
    let description = facts.annotation(DESCRIPTION).map(one_line);
    let description = description.filter(|text| !text.is_empty()).unwrap_or_else(|| title.clone());
    let tags = ["kubernetes"].into_iter().chain(facts.category()).collect::<Value>();
    let mut properties = Map::from_iter([("tags", tags)]);
    // GitHub: makes it a security finding, and sorts by it.
    let score = match facts.severity() {
        Some("critical") => Some("9.5"),
        Some("high") => Some("8.0"),
        Some("medium") => Some("5.5"),
        Some("low") => Some("2.5"),
        _ => None,
    };
    if let Some(score) = score {
        properties.insert("security-severity", score);
    }
    let word = match level_of(&facts) {
        Level::Error => "error",
        Level::Warning => "warning",
        Level::Note => "note",
    };
    let mut fields = Map::from_iter([
        ("name", Value::from(rule.clone())),
        ("shortDescription", value!({"text": (title)})),
        ("fullDescription", value!({"text": (&description)})),
        ("help", value!({"text": (description)})),
        ("defaultConfiguration", value!({"level": (word)})),
    ]);
    if let Some(address) = facts.annotation("policies.kyverno.io/url") {
        fields.insert("helpUri", address);
    }
    fields.insert("properties", properties);
    Value::from(fields)
}

fn level_of(facts: &PolicyFacts<'_>) -> Level {
    match facts.severity() {
        Some("medium") => Level::Warning,
        Some("low" | "info") => Level::Note,
        _ => Level::Error,
    }
}

fn finding(result: &RuleResult, written: &Written<'_>) -> Finding {
    let faults = written.faults(result);
    let resource = describe(&result.trigger);
    let mut text = format!("{resource}: {}", message(result));
    for fault in &faults {
        text.push_str(&format!("\n{}", fault.said()));
    }
    if let Some(fix) = fix(result) {
        text.push_str(&format!("\nTo pass, {fix}."));
    }
    let level = match result.status {
        Status::Warn => Level::Warning,
        Status::Fail => level_of(&PolicyFacts::of(written.rules(), result)),
        _ => Level::Error,
    };
    // What rules made is in no file: there is the rule to point at.
    let whole = written.resource(result).or_else(|| written.rule(result));
    let mut places = faults.iter().filter_map(|fault| fault.place.clone());
    let place = places.next().or(whole);
    let mut related: Vec<(SourceLocation, String)> =
        places.map(|place| (place, "also here".to_owned())).collect();
    let mut wanted: Vec<SourceLocation> =
        faults.iter().filter_map(|fault| fault.wanted.clone()).collect();
    wanted.extend(result.problems.iter().filter_map(|problem| problem.place.clone()));
    if wanted.is_empty() {
        wanted.extend(written.rule(result));
    }
    wanted.dedup();
    related.extend(wanted.into_iter().map(|place| (place, "the policy says so here".to_owned())));
    let name = result.trigger.to_string();
    let at = faults.first().and_then(|fault| fault.fault.at.as_ref());
    let at = at.map(ToString::to_string).unwrap_or_default();
    let id = id(result);
    Finding {
        fingerprint: format!("{id} {name} {at}"),
        id,
        level,
        text,
        place,
        related,
        object: Some(name),
        about: about(result, written),
    }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
