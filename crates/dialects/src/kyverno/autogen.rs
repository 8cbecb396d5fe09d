//! Rules for Pods, rewritten for the controllers that make Pods.
//!
//! Kyverno: a policy whose rules ask nothing of a Pod but its kind also gets, for each rule, one for
//! `spec.template` of the controllers and one for `spec.jobTemplate.spec.template` of CronJobs. The annotation
//! `pod-policies.kyverno.io/autogen-controllers` names the controllers, or none.

use kiln_rules::KindPattern;
use kiln_value::{Map, Value};

use crate::cel_policies::pod_controllers::moved_expression;

const ANNOTATION: &str = "pod-policies.kyverno.io/autogen-controllers";
const CRON_JOB: &str = "CronJob";
/// The checks of validate rules that are rewritten.
const MOVED: [&str; 6] = ["pattern", "anyPattern", "deny", "foreach", "podSecurity", "cel"];
/// The controllers that hold a Pod in `spec.template`, as users write them and in full.
const CONTROLLERS: [(&str, &str); 6] = [
    ("DaemonSet", "apps/v1/DaemonSet"),
    ("Deployment", "apps/v1/Deployment"),
    ("Job", "batch/v1/Job"),
    ("ReplicaSet", "apps/v1/ReplicaSet"),
    ("ReplicationController", "v1/ReplicationController"),
    ("StatefulSet", "apps/v1/StatefulSet"),
];

/// A rule made from another.
#[derive(Debug, PartialEq)]
pub(crate) struct Derived {
    /// The position of the rule that it was made from.
    pub(crate) from: usize,
    pub(crate) rule: Value,
    /// How many steps were put around its patterns.
    pub(crate) wrapped: usize,
}

/// The rules to add to those of a policy, in order.
pub(crate) fn derive(policy: &Value) -> Vec<Derived> {
    let Some(Value::List(rules)) = policy.get_path(["spec", "rules"]) else { return Vec::new() };
    if !rules.iter().all(allows) || !rules.iter().any(names_pods_or_controllers) {
        return Vec::new();
    }
    let wanted = policy.str_at(["metadata", "annotations", ANNOTATION]).unwrap_or("all");
    let names = |name: &str| {
        let mut words = wanted.split(',').map(str::trim);
        words.any(|word| word == name || word == "all")
    };
    let controllers: Vec<&str> =
        CONTROLLERS.iter().filter(|(name, _)| names(name)).map(|(_, kind)| *kind).collect();
    let mut derived = Vec::new();
    for (from, rule) in rules.iter().enumerate() {
        if !is_derivable(rule) {
            continue;
        }
        if !controllers.is_empty() {
            let rule = rewritten(rule, "autogen", &["template"], &controllers);
            derived.push(Derived { from, rule, wrapped: 2 });
        }
        if names(CRON_JOB) {
            let path = ["jobTemplate", "template"];
            let rule = rewritten(rule, "autogen-cronjob", &path, &["batch/v1/CronJob"]);
            derived.push(Derived { from, rule, wrapped: 4 });
        }
    }
    derived
}

/// Whether a rule of this name was derived by Kyverno or a user already.
pub(crate) fn is_derived_name(name: &str) -> bool {
    name.starts_with("autogen-")
}

/// Whether a rule lets its policy be rewritten: it asks nothing of a Pod that a controller does not have,
/// and its patches can be moved.
fn allows(rule: &Value) -> bool {
    let mutate = rule.get("mutate");
    let writes = |value: Option<&Value>| value.is_some_and(|text| text.as_str() != Some(""));
    let loops = mutate.and_then(|mutate| mutate.get("foreach")).and_then(Value::as_list);
    rule.get("generate").is_none()
        && !writes(mutate.and_then(|mutate| mutate.get("patchesJson6902")))
        && !loops.is_some_and(|loops| loops.iter().any(|l| writes(l.get("patchesJson6902"))))
        && filters(rule).iter().all(|resources| {
            let kinds = kinds_of(resources);
            let asks_more = ["name", "names", "selector", "annotations"]
                .iter()
                .any(|field| resources.get(field).is_some_and(|value| !value.is_null()));
            !asks_more && (kinds.len() < 2 || !has_pod(&kinds))
        })
}

fn names_pods_or_controllers(rule: &Value) -> bool {
    filters(rule).iter().flat_map(|resources| kinds_of(resources)).any(|kind| {
        kind == "Pod" || kind == CRON_JOB || CONTROLLERS.iter().any(|(name, _)| *name == kind)
    })
}

fn is_derivable(rule: &Value) -> bool {
    if rule.get("mutate").is_none() && rule.get("validate").is_none() {
        return false;
    }
    let of = |block: &str| -> Vec<&str> {
        let block = rule.get(block);
        resources_in(block).into_iter().flat_map(kinds_of).collect()
    };
    let excluded = of("exclude");
    let named = rule.str_at(["name"]).is_some_and(|name| !is_derived_name(name));
    let moves = |mutate: &Value| {
        let patches = mutate.get("patchStrategicMerge").is_some()
            || mutate.get("foreach").and_then(Value::as_list).is_some_and(|loops| {
                // Kyverno would lose what is in an inner loop.
                !loops.is_empty() && loops.iter().all(|l| l.get("patchStrategicMerge").is_some())
            });
        // Kyverno would lose the targets, and change the controller itself.
        patches && mutate.get("targets").is_none()
    };
    let checks = |validate: &Value| MOVED.iter().any(|check| validate.get(check).is_some());
    let moves = rule.get("mutate").is_none_or(moves) && rule.get("validate").is_none_or(checks);
    named && moves && has_pod(&of("match")) && (excluded.is_empty() || has_pod(&excluded))
}

/// The `resources` of a match or exclude block.
fn resources_in(block: Option<&Value>) -> Vec<&Value> {
    let Some(block) = block else { return Vec::new() };
    let listed = ["any", "all"].iter().filter_map(|key| block.get(key)?.as_list());
    let listed = listed.flat_map(|list| list.iter().filter_map(|filter| filter.get("resources")));
    block.get("resources").into_iter().chain(listed).collect()
}

fn filters(rule: &Value) -> Vec<&Value> {
    let mut found = resources_in(rule.get("match"));
    found.extend(resources_in(rule.get("exclude")));
    found
}

fn kinds_of(resources: &Value) -> Vec<&str> {
    let kinds = resources.get("kinds").and_then(Value::as_list);
    kinds.into_iter().flat_map(|kinds| kinds.iter().filter_map(Value::as_str)).collect()
}

fn has_pod(kinds: &[&str]) -> bool {
    kinds.iter().any(|kind| KindPattern::parse(kind).is_some_and(|kind| kind.kind == "Pod"))
}

/// A rule for the Pod that lies below `spec` and these steps, with a `spec` before each but the first.
fn rewritten(rule: &Value, prefix: &str, steps: &[&str], kinds: &[&str]) -> Value {
    let cron_job = steps.len() > 1;
    let mut rule = rule.clone();
    let name = format!("{prefix}-{}", rule.str_at(["name"]).unwrap_or_default());
    let name: String = name.chars().take(63).collect();
    let Some(fields) = rule.as_map_mut() else { return rule };
    fields.insert("name", name);
    for block in ["match", "exclude"] {
        if let Some(Value::Map(filters)) = fields.get_mut(block) {
            set_kinds(filters, block == "exclude", cron_job, kinds);
        }
    }
    if let Some(Value::Map(mutate)) = fields.get_mut("mutate") {
        move_patch(mutate, steps);
        if let Some(Value::List(loops)) = mutate.get_mut("foreach") {
            for entry in loops.make_mut().iter_mut().filter_map(Value::as_map_mut) {
                move_patch(entry, steps);
            }
        }
    }
    let validates = fields.contains_key("validate");
    if let Some(Value::Map(validate)) = fields.get_mut("validate") {
        if let Some(pattern) = validate.get_mut("pattern") {
            wrap(pattern, steps);
        }
        if let Some(Value::List(patterns)) = validate.get_mut("anyPattern") {
            patterns.make_mut().iter_mut().for_each(|pattern| wrap(pattern, steps));
        }
    }
    let pod: Vec<&str> = steps.iter().flat_map(|step| ["spec", *step]).collect();
    move_expressions(fields, &pod);
    let pod = pod.join(".");
    let mut replaced = rule;
    // Kyverno: checks ask the template for these, too, which has none of them.
    let kept = if validates { &["namespace", "name", "ownerReferences"][..] } else { &[] };
    for object in ["request.object", "request.oldObject"] {
        for part in ["spec", "metadata"] {
            let (from, to) = (format!("{object}.{part}"), format!("{object}.{pod}.{part}"));
            replaced = with_text(&replaced, &from, &to, kept);
        }
    }
    replaced
}

fn set_kinds(block: &mut Map, exclude: bool, cron_job: bool, kinds: &[&str]) {
    let kinds: Value = kinds.iter().copied().collect();
    let form = ["any", "all"]
        .into_iter()
        .find(|key| block.get(key).and_then(Value::as_list).is_some_and(|list| !list.is_empty()));
    match form.and_then(|key| block.get_mut(key)) {
        Some(Value::List(list)) => {
            for filter in list.make_mut().iter_mut().filter_map(Value::as_map_mut) {
                let resources = filter.get_or_insert_with("resources", Value::map);
                if (cron_job || has_pod(&kinds_of(resources)))
                    && let Some(resources) = resources.as_map_mut()
                {
                    resources.insert("kinds", kinds.clone());
                }
            }
        }
        _ => {
            if let Some(Value::Map(resources)) = block.get_mut("resources")
                && (!exclude || resources.contains_key("kinds"))
            {
                resources.insert("kinds", kinds);
            }
        }
    }
}

fn move_patch(holder: &mut Map, steps: &[&str]) {
    if let Some(patch) = holder.get_mut("patchStrategicMerge") {
        wrap(patch, steps);
    }
}

/// Puts the steps to a Pod around what describes one.
fn wrap(pod: &mut Value, steps: &[&str]) {
    for step in steps.iter().rev() {
        let below = Map::from_iter([(*step, pod.clone())]);
        *pod = Value::Map(Map::from_iter([("spec", Value::Map(below))]));
    }
}

/// Lets the expressions of `validate.cel`, and its preconditions, look at the Pod below these keys.
fn move_expressions(rule: &mut Map, pod: &[&str]) {
    let move_each = |list: Option<&mut Value>, keys: &[&str]| {
        for element in list.and_then(Value::as_list_mut).into_iter().flatten() {
            for key in keys {
                let Some(source) = element.str_at([*key]) else { continue };
                let moved = moved_expression(source, pod);
                if let Some(element) = element.as_map_mut() {
                    element.insert(*key, moved);
                }
            }
        }
    };
    move_each(rule.get_mut("celPreconditions"), &["expression"]);
    let Some(cel) = rule.get_mut("validate").and_then(|validate| validate.get_mut("cel")) else {
        return;
    };
    move_each(cel.get_mut("expressions"), &["expression", "messageExpression"]);
    move_each(cel.get_mut("variables"), &["expression"]);
    move_each(cel.get_mut("auditAnnotations"), &["valueExpression"]);
}

/// The value with one text in place of another, in keys too; not where one of these fields follows.
fn with_text(value: &Value, from: &str, to: &str, kept: &[&str]) -> Value {
    match value {
        Value::String(text) if text.contains(from) => replaced(text, from, to, kept).into(),
        Value::List(list) => {
            list.iter().map(|element| with_text(element, from, to, kept)).collect()
        }
        Value::Map(map) => Value::Map(
            map.iter()
                .map(|(key, value)| {
                    (replaced(key, from, to, kept), with_text(value, from, to, kept))
                })
                .collect(),
        ),
        other => other.clone(),
    }
}

fn replaced(text: &str, from: &str, to: &str, kept: &[&str]) -> String {
    let mut parts = text.split(from);
    let mut replaced = parts.next().unwrap_or_default().to_owned();
    for rest in parts {
        let field = rest.strip_prefix('.').unwrap_or_default();
        let end = field.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(field.len());
        let stays = from.ends_with("metadata") && kept.contains(&&field[..end]);
        replaced.push_str(if stays { from } else { to });
        replaced.push_str(rest);
    }
    replaced
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_value::value;

    fn policy(rule: &Value) -> Value {
        value!({"metadata": {"name": "p"}, "spec": {"rules": [rule.clone()]}})
    }

    fn names(policy: &Value) -> Vec<String> {
        let name = |derived: &Derived| derived.rule.str_at(["name"]).unwrap().to_owned();
        derive(policy).iter().map(name).collect()
    }

    fn labels() -> Value {
        value!({"name": "r", "match": {"any": [{"resources": {"kinds": ["Pod"]}}]},
            "mutate": {"patchStrategicMerge": {"metadata": {"labels": {"a": "{{request.object.spec.x}}"}}}}})
    }

    #[test]
    fn a_rule_for_pods_is_rewritten_for_their_controllers() {
        let derived = derive(&policy(&labels()));
        assert_eq!(
            derived[0].rule,
            value!({"name": "autogen-r",
                "match": {"any": [{"resources": {"kinds": [
                    "apps/v1/DaemonSet", "apps/v1/Deployment", "batch/v1/Job", "apps/v1/ReplicaSet",
                    "v1/ReplicationController", "apps/v1/StatefulSet",
                ]}}]},
                "mutate": {"patchStrategicMerge": {"spec": {"template": {"metadata": {"labels":
                    {"a": "{{request.object.spec.template.spec.x}}"}}}}}}})
        );
        assert_eq!(
            derived[1].rule,
            value!({"name": "autogen-cronjob-r",
                "match": {"any": [{"resources": {"kinds": ["batch/v1/CronJob"]}}]},
                "mutate": {"patchStrategicMerge": {"spec": {"jobTemplate": {"spec": {"template":
                    {"metadata": {"labels":
                        {"a": "{{request.object.spec.jobTemplate.spec.template.spec.x}}"}}}}}}}}})
        );
    }

    #[test]
    fn the_annotation_names_the_controllers() {
        for (annotation, wanted) in [
            ("none", vec![]),
            ("all", vec!["autogen-r", "autogen-cronjob-r"]),
            ("Deployment", vec!["autogen-r"]),
            ("CronJob", vec!["autogen-cronjob-r"]),
            ("Job, CronJob", vec!["autogen-r", "autogen-cronjob-r"]),
        ] {
            let mut policy = policy(&labels());
            policy.set(["metadata", "annotations", ANNOTATION], annotation).unwrap();
            assert_eq!(names(&policy), wanted, "{annotation}");
        }
    }

    #[test]
    fn what_controllers_cannot_meet_stays_with_pods() {
        for (path, value) in [
            (&["mutate", "patchesJson6902"][..], value!("- op: add")),
            (&["mutate", "targets"], value!([{"kind": "Pod"}])),
            (&["match", "any"], value!([{"resources": {"kinds": ["Pod"], "names": ["a"]}}])),
            (&["match", "any"], value!([{"resources": {"kinds": ["Pod"], "selector": {}}}])),
            (&["match", "any"], value!([{"resources": {"kinds": ["Pod", "Deployment"]}}])),
            (&["match", "any"], value!([{"resources": {"kinds": ["v1/Pod"]}}])),
            (&["match", "any"], value!([{"resources": {"kinds": ["Service"]}}])),
            (&["exclude"], value!({"any": [{"resources": {"kinds": ["Job"]}}]})),
            (&["generate"], value!({"kind": "ConfigMap"})),
            (&["name"], value!("autogen-r")),
        ] {
            let mut rule = labels();
            rule.set(path.iter().copied(), value).unwrap();
            assert_eq!(names(&policy(&rule)), Vec::<String>::new(), "{path:?}");
        }
    }
}
