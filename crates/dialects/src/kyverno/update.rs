//! Which changes of a policy are refused or warned about.
//!
//! Kyverno compares the generate rules of both versions as sets, after dropping what may change. First the
//! targets: if one of the old ones is gone, the change is allowed with a warning, and nothing else is
//! compared. Then all else but the generate blocks: it may not change.

use kiln_diagnostic::{Diagnostic, Severity};
use kiln_rules::{ALLOW_RULE_CHANGES, allows_rule_changes};
use kiln_value::{Map, Path, Value};
use kiln_yaml::Document;

/// Parts of a generate block that may always change.
const MUTABLE: [&str; 5] =
    ["synchronize", "data", "foreach", "orphanDownstreamOnPolicyDelete", "generateExisting"];

/// Checks a change of a policy. An error refuses it; without one it is allowed. The annotation of the new version makes notes
/// of errors.
pub fn check_update(old: &Document, new: &Document) -> Vec<Diagnostic> {
    let (old_rules, new_rules) = (generate_rules(old), generate_rules(new));
    let targets: Vec<Value> = new_rules.iter().map(|rule| targets(rule.value)).collect();
    if let Some(lost) = old_rules.iter().find(|rule| !targets.contains(&self::targets(rule.value)))
    {
        let place = new_rules.iter().find(|rule| rule.name() == lost.name()).map_or_else(
            || new.locate(&["spec", "rules"].into_iter().collect()),
            |rule| new.locate(&rule.path.join("generate")),
        );
        let is_removed = !new_rules.iter().any(|rule| rule.name() == lost.name());
        let message = if is_removed {
            format!("rule {:?} is removed: {}", lost.name(), left_behind(lost.value))
        } else {
            format!(
                "no synchronization will be performed to the old target resource upon policy updates: \
                 changes in the generate rule pattern could result in stale targets (rule {:?})",
                lost.name()
            )
        };
        return vec![Diagnostic::warning(message).at(place)];
    }
    // What fires a rule may change as long as nothing depends on it.
    let keep_match = old_rules.iter().any(|rule| {
        rule.value.get_path(["generate", "synchronize"]).and_then(Value::as_bool) == Some(true)
    });
    let is_allowed = allows_rule_changes(new.value());
    let shells: Vec<Map> = new_rules.iter().map(|rule| shell(rule.value, keep_match)).collect();
    let mut refused = Vec::new();
    for rule in &old_rules {
        let wanted = shell(rule.value, keep_match);
        if shells.contains(&wanted) {
            continue;
        }
        let found = new_rules.iter().find(|other| other.name() == rule.name());
        let (changed, place) = match found {
            Some(found) => {
                let changed = differences(&wanted, &shell(found.value, keep_match));
                let path = changed
                    .first()
                    .map_or(found.path.clone(), |field| found.path.join(field.as_str()));
                (changed, new.locate(&path))
            }
            None => (vec!["name".to_owned()], new.locate(&["spec", "rules"].into_iter().collect())),
        };
        if is_allowed {
            let message = format!(
                "{} of generate rule {:?} changes: what it made and the policy still wants is adopted; the rest goes or is \
                 orphaned as if the rule were removed",
                changed.join(", "),
                rule.name()
            );
            refused.push(Diagnostic::new(Severity::Note, message).at(place));
            continue;
        }
        let message = format!(
            "changes of immutable fields of a rule spec in a generate rule is disallowed: {} of rule {:?}",
            changed.join(", "),
            rule.name()
        );
        refused.push(
            Diagnostic::error(message)
                .at(place)
                .hint(format!(
                    "annotate the policy with {ALLOW_RULE_CHANGES}: \"true\", delete it and create it again, or add a rule \
                     of another name"
                )),
        );
    }
    refused
}

/// What becomes of the objects that a rule made when it is taken out of its policy.
fn left_behind(rule: &Value) -> &'static str {
    let block = rule.get("generate");
    let flag = |key: &str| block.and_then(|block| block.get(key)).and_then(Value::as_bool);
    let orphan = flag("orphanDownstreamOnPolicyDelete");
    if flag("synchronize") != Some(true) || orphan == Some(true) {
        return "the objects that it made stay, and are no longer synchronized";
    }
    let foreach = block.and_then(|block| block.get("foreach")).and_then(Value::as_list);
    let mut parts = block.into_iter().chain(foreach.into_iter().flat_map(|list| list.iter()));
    let copies = parts.any(|part| part.get("clone").is_some() || part.get("cloneList").is_some());
    // Kyverno: copies stay unless the policy says that nothing is orphaned.
    if copies && orphan.is_none() {
        "the clones that it made stay, and are no longer synchronized (orphanDownstreamOnPolicyDelete: false deletes \
         them)"
    } else {
        "the objects that it made are deleted (orphanDownstreamOnPolicyDelete: true keeps them)"
    }
}

struct WrittenRule<'d> {
    value: &'d Value,
    path: Path,
}

impl WrittenRule<'_> {
    fn name(&self) -> &str {
        self.value.str_at(["name"]).unwrap_or_default()
    }
}

fn generate_rules(document: &Document) -> Vec<WrittenRule<'_>> {
    let path: Path = ["spec", "rules"].into_iter().collect();
    let rules = document.value().get_path(&path).and_then(Value::as_list);
    rules
        .into_iter()
        .flat_map(|rules| rules.iter().enumerate())
        .filter(|(_, rule)| rule.get("generate").is_some_and(|block| !block.is_null()))
        .map(|(at, value)| WrittenRule { value, path: path.join(at) })
        .collect()
}

/// What a rule writes to, without what may change.
fn targets(rule: &Value) -> Value {
    let mut block = rule.get("generate").cloned().unwrap_or(Value::Null);
    if let Some(map) = block.as_map_mut() {
        MUTABLE.iter().for_each(|field| drop(map.remove(field)));
        if let Some(list) = map.get_mut("dataList").and_then(Value::as_list_mut) {
            for entry in list.iter_mut().filter_map(Value::as_map_mut) {
                entry.remove("data");
            }
        }
        map.retain(|_, value| !value.is_null());
    }
    block
}

/// A rule without its generate block.
fn shell(rule: &Value, keep_match: bool) -> Map {
    let mut shell = rule.as_map().cloned().unwrap_or_default();
    shell.remove("generate");
    if !keep_match {
        shell.remove("match");
    }
    // An API server writes the default out.
    shell.get_or_insert_with("skipBackgroundRequests", || true.into());
    shell.retain(|_, value| !value.is_null());
    shell
}

fn differences(old: &Map, new: &Map) -> Vec<String> {
    let mut changed: Vec<String> = old
        .iter()
        .filter(|(key, value)| new.get(key) != Some(value))
        .map(|(key, _)| key.to_string())
        .collect();
    changed.extend(new.keys().filter(|key| !old.contains_key(key)).map(ToString::to_string));
    changed
}
