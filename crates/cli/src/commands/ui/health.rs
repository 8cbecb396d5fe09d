//! What the health view and the timeline show of a cluster's objects.

use std::collections::BTreeMap;

use kiln_object::policy_kinds::is_policy_group;
use kiln_object::report_form::is_report_group;
use kiln_object::{Gvk, ObjectId, metadata};
use kiln_value::{Map, Value};

/// What `kiln doctor` found, policies with their conditions, pending work, and reports by policy and namespace.
pub(super) fn health(findings: Value, objects: &[Value], not_read: &[String]) -> Value {
    let group = |object: &Value| Gvk::of(object).unwrap_or_default().group;
    let policies = objects.iter().filter(|object| {
        is_policy_group(&group(object))
            && object.get("spec").is_some()
            && object
                .str_at(["kind"])
                .is_some_and(|kind| kind.ends_with("Policy") || kind == "ModRule")
    });
    let pending = objects.iter().filter(|object| object.str_at(["kind"]) == Some("UpdateRequest"));
    let reports = objects.iter().filter(|object| is_report_group(&group(object)));
    Value::from(Map::from_iter([
        ("findings", findings),
        ("policies", policies.map(policy).collect()),
        ("pending", pending.map(request).collect()),
        ("reports", report_rows(reports)),
        ("notRead", not_read.iter().map(String::as_str).collect()),
    ]))
}

fn name(object: &Value) -> String {
    let name = metadata::name(object).unwrap_or_default();
    match metadata::namespace(object) {
        Some(namespace) => format!("{namespace}/{name}"),
        None => name.to_owned(),
    }
}

fn policy(object: &Value) -> Value {
    let places = [&["status", "conditions"][..], &["status", "conditionStatus", "conditions"]];
    let conditions =
        places.iter().find_map(|path| object.get_path(path.iter().copied())?.as_list());
    // One that does not hold says more than those that do.
    let of = |wanted: &str| {
        let mut all = conditions.into_iter().flatten();
        all.find(|condition| condition.str_at(["status"]) == Some(wanted))
    };
    let shown = of("False").or_else(|| of("True"));
    let text = |key: &str| shown.and_then(|it| it.str_at([key])).unwrap_or_default().to_owned();
    let ready = match shown.and_then(|condition| condition.str_at(["status"])) {
        Some("True") => "yes",
        Some(_) => "no",
        None => "unknown",
    };
    Value::from(Map::from_iter([
        ("kind", object.str_at(["kind"]).unwrap_or_default().to_owned()),
        ("name", name(object)),
        ("ready", ready.to_owned()),
        ("reason", text("reason")),
        ("message", text("message")),
    ]))
}

fn request(object: &Value) -> Value {
    let text = |path: [&str; 2]| object.str_at(path).unwrap_or_default().to_owned();
    let state = text(["status", "state"]);
    Value::from(Map::from_iter([
        ("name", name(object)),
        ("policy", text(["spec", "policy"])),
        ("state", if state.is_empty() { "Pending".to_owned() } else { state }),
        ("message", text(["status", "message"])),
    ]))
}

/// Results counted by policy and namespace.
fn report_rows<'o>(reports: impl Iterator<Item = &'o Value>) -> Value {
    const RESULTS: [&str; 5] = ["pass", "fail", "warn", "error", "skip"];
    let mut rows: BTreeMap<(String, String), [usize; 5]> = BTreeMap::new();
    for report in reports {
        let namespace = metadata::namespace(report).unwrap_or_default().to_owned();
        let results = report.get("results").and_then(Value::as_list);
        for result in results.into_iter().flatten() {
            let policy = result.str_at(["policy"]).unwrap_or_default().to_owned();
            let word = result.str_at(["result"]).or_else(|| result.str_at(["status"]));
            let at = RESULTS.iter().position(|known| Some(*known) == word);
            if let Some(at) = at {
                rows.entry((policy, namespace.clone())).or_default()[at] += 1;
            }
        }
    }
    let row = |((policy, namespace), counts): ((String, String), [usize; 5])| {
        let mut fields = Map::from_iter([("policy", policy), ("namespace", namespace)]);
        for (word, count) in RESULTS.into_iter().zip(counts) {
            fields.insert(word, count);
        }
        Value::from(fields)
    };
    rows.into_iter().map(row).collect()
}

/// Events in the order of their times.
pub(super) fn timeline(events: &[Value]) -> Value {
    let time = |event: &Value| {
        let places = [&["eventTime"][..], &["lastTimestamp"], &["metadata", "creationTimestamp"]];
        let time = places.iter().find_map(|path| event.str_at(path.iter().copied()));
        time.unwrap_or_default().to_owned()
    };
    let mut events: Vec<&Value> = events.iter().collect();
    events.sort_by_cached_key(|event| time(event));
    let count = events.len();
    let entries = events.iter().enumerate().map(|(at, event)| {
        let about = event.get("involvedObject").or_else(|| event.get("regarding"));
        let text = |key: &str| about.and_then(|it| it.str_at([key])).unwrap_or_default();
        let gvk = Gvk::new(text("apiVersion"), text("kind"));
        let object = ObjectId::new(gvk, text("namespace"), text("name"));
        let said = |key: &str| event.str_at([key]).unwrap_or_default().to_owned();
        let actor = event.str_at(["source", "component"]);
        let actor = actor.or_else(|| event.str_at(["reportingComponent"])).unwrap_or_default();
        Value::from(Map::from_iter([
            ("step", Value::from(at + 1)),
            ("time", Value::from(time(event))),
            ("actor", Value::from(actor)),
            ("verb", Value::from(said("reason"))),
            ("object", Value::from(object.to_string())),
            ("outcome", Value::from(said("message"))),
        ]))
    });
    Value::from(Map::from_iter([
        ("entries", entries.collect()),
        ("position", Value::from(count)),
        ("end", Value::from(count)),
    ]))
}

#[cfg(test)]
mod tests {
    use kiln_value::value;

    use super::*;

    #[test]
    fn reports_are_counted_by_policy_and_namespace() {
        let report = |namespace: &str, result: &str| {
            value!({
                "apiVersion": "openreports.io/v1alpha1", "kind": "Report",
                "metadata": {"name": "r", "namespace": namespace},
                "results": [{"policy": "p", "result": result}, {"policy": "p", "result": "pass"}],
            })
        };
        let objects = [report("a", "fail"), report("a", "pass"), report("b", "warn")];
        let health = health(Value::list(), &objects, &[]);
        let rows = health.get("reports").and_then(Value::as_list).unwrap();
        assert_eq!(rows.len(), 2);
        assert_eq!(
            rows.first().unwrap(),
            &value!({
                "policy": "p", "namespace": "a", "pass": 3, "fail": 1, "warn": 0, "error": 0, "skip": 0,
            })
        );
    }

    #[test]
    fn a_policy_shows_the_condition_that_does_not_hold() {
        let object = value!({
            "apiVersion": "kyverno.io/v1", "kind": "ClusterPolicy", "metadata": {"name": "p"}, "spec": {},
            "status": {"conditions": [
                {"type": "Ready", "status": "True", "reason": "Succeeded", "message": "ready"},
                {"type": "AllRulesRun", "status": "False", "reason": "RulesNotRun", "message": "one rule"},
            ]},
        });
        let health = health(Value::list(), &[object], &[]);
        let policy = health.get("policies").and_then(|all| all.index(0)).unwrap();
        assert_eq!(policy.str_at(["ready"]), Some("no"));
        assert_eq!(policy.str_at(["reason"]), Some("RulesNotRun"));
    }
}
