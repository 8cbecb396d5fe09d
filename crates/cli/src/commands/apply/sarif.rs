//! The results that need attention as SARIF 2.1.0, the format of code scanning.
//!
//! Each rule that has findings is a reporting descriptor, each resource that fails it one result. A result points at
//! the first value that is wrong; other wrong values, and the parts of the policy that ask for something else, are its
//! related locations.

use kiln_diagnostic::SourceLocation;
use kiln_offline::{RuleResult, Status};
use kiln_value::{Map, Value, value};

use super::policy_report::PolicyFacts;
use super::show::{describe, message};
use kiln_studio::Written;
use kiln_studio::fix_of as fix;

const TITLE: &str = "policies.kyverno.io/title";
const DESCRIPTION: &str = "policies.kyverno.io/description";

/// A log with one run.
pub(super) fn log(results: &[&RuleResult], written: &Written<'_>) -> Value {
    let shown: Vec<&RuleResult> = results
        .iter()
        .copied()
        .filter(|result| matches!(result.status, Status::Fail | Status::Warn | Status::Error))
        .collect();
    let mut ids: Vec<String> = Vec::new();
    let mut rules = Vec::new();
    let mut found = Vec::new();
    for result in shown {
        let id = id(result);
        let index = ids.iter().position(|known| *known == id).unwrap_or_else(|| {
            rules.push(descriptor(&id, result, written));
            ids.push(id.clone());
            ids.len() - 1
        });
        found.push(finding(&id, index, result, written));
    }
    let version = env!("CARGO_PKG_VERSION");
    value!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": {"driver": {"name": "kiln", "version": version, "semanticVersion": version, "rules": (rules)}},
            "columnKind": "unicodeCodePoints",
            "results": (found),
        }],
    })
}

/// `policy/rule`, which stays the same from one run to the next.
fn id(result: &RuleResult) -> String {
    match result.rule.in_reports() {
        Some(rule) => format!("{}/{rule}", result.rule.policy.key()),
        None => result.rule.policy.key(),
    }
}

fn descriptor(id: &str, result: &RuleResult, written: &Written<'_>) -> Value {
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
    let mut fields = Map::from_iter([
        ("id", Value::from(id)),
        ("name", Value::from(rule.clone())),
        ("shortDescription", value!({"text": (title)})),
        ("fullDescription", value!({"text": (&description)})),
        ("help", value!({"text": (description)})),
        ("defaultConfiguration", value!({"level": (level_of(&facts))})),
    ]);
    if let Some(address) = facts.annotation("policies.kyverno.io/url") {
        fields.insert("helpUri", address);
    }
    fields.insert("properties", properties);
    Value::from(fields)
}

fn level_of(facts: &PolicyFacts<'_>) -> &'static str {
    match facts.severity() {
        Some("medium") => "warning",
        Some("low" | "info") => "note",
        _ => "error",
    }
}

fn finding(id: &str, index: usize, result: &RuleResult, written: &Written<'_>) -> Value {
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
        Status::Warn => "warning",
        Status::Fail => level_of(&PolicyFacts::of(written.rules(), result)),
        _ => "error",
    };
    // What rules made is in no file: there is the rule to point at.
    let whole = written.resource(result).or_else(|| written.rule(result));
    let mut places = faults.iter().filter_map(|fault| fault.place.clone());
    let first = places.next().or(whole);
    let mut related: Vec<Value> = Vec::new();
    let relate = |place: &SourceLocation, said: &str, related: &mut Vec<Value>| {
        let place = physical(place);
        let number = related.len() + 1;
        related.push(value!({
            "id": (number),
            "physicalLocation": (place),
            "message": {"text": (said)},
        }));
    };
    for place in places {
        relate(&place, "also here", &mut related);
    }
    let mut wanted: Vec<SourceLocation> =
        faults.iter().filter_map(|fault| fault.wanted.clone()).collect();
    wanted.extend(result.problems.iter().filter_map(|problem| problem.place.clone()));
    if wanted.is_empty() {
        wanted.extend(written.rule(result));
    }
    wanted.dedup();
    for place in &wanted {
        relate(place, "the policy says so here", &mut related);
    }
    let mut location = Map::new();
    if let Some(place) = &first {
        location.insert("physicalLocation", physical(place));
    }
    let name = result.trigger.to_string();
    let logical = value!([{"fullyQualifiedName": (&name), "kind": "resource"}]);
    location.insert("logicalLocations", logical);
    let at = faults.first().and_then(|fault| fault.fault.at.as_ref());
    let at = at.map(ToString::to_string).unwrap_or_default();
    let mut fields = Map::from_iter([
        ("ruleId", Value::from(id)),
        ("ruleIndex", Value::from(index)),
        ("level", Value::from(level)),
        ("message", value!({"text": (text)})),
        ("locations", Value::from_iter([location])),
    ]);
    if !related.is_empty() {
        fields.insert("relatedLocations", Value::from_iter(related));
    }
    // The same finding in the next run, wherever its lines have moved to.
    let fingerprint = format!("{id} {name} {at}");
    fields.insert("partialFingerprints", value!({"ruleResourcePath/v1": (fingerprint)}));
    Value::from(fields)
}

fn physical(place: &SourceLocation) -> Value {
    let start = place.position();
    value!({
        "artifactLocation": {"uri": (uri(place.source().name()))},
        "region": {"startLine": (start.line), "startColumn": (start.column)},
    })
}

/// The name of a file as a URI: relative names stay relative, so that they count from the root of the repository.
fn uri(name: &str) -> String {
    if name.starts_with("http://") || name.starts_with("https://") {
        return name.to_owned();
    }
    let name = name.replace('\\', "/");
    let name = name.strip_prefix("./").unwrap_or(&name);
    let mut uri = String::from(if name.starts_with('/') { "file://" } else { "" });
    for byte in name.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'-' | b'_' | b'~' => {
                uri.push(char::from(byte));
            }
            byte => uri.push_str(&format!("%{byte:02X}")),
        }
    }
    uri
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::uri;

    #[test]
    fn names_of_files_are_uris() {
        for (name, wanted) in [
            ("./a/b.yaml", "a/b.yaml"),
            ("a b#c.yaml", "a%20b%23c.yaml"),
            ("/tmp/ö.yaml", "file:///tmp/%C3%B6.yaml"),
            ("<stdin>", "%3Cstdin%3E"),
            ("https://example.com/p.yaml", "https://example.com/p.yaml"),
        ] {
            assert_eq!(uri(name), wanted);
        }
    }
}
