//! The status that a policy should have: whether its rules act, and which of them do not.

use std::sync::Arc;

use kiln_dialects::not_run_in_words;
use kiln_object::{ObjectId, metadata};
use kiln_rules::{KindPattern, Operation, Policy, Program, Rule};
use kiln_value::{Value, value};

use super::{Admission, Troubles};
use crate::policy_store::StoredPolicy;
use crate::scan_permissions::Scannable;

impl StoredPolicy {
    /// Whether its rules are in CEL: then its conditions have another place.
    fn is_scripted(&self) -> bool {
        kiln_object::policy_kinds::is_cel(&self.id.gvk)
    }

    /// Where its status has conditions.
    fn conditions(&self) -> &'static [&'static str] {
        if self.is_scripted() { &["conditionStatus", "conditions"] } else { &["conditions"] }
    }

    /// Whether its status says already that it names kinds which the cluster does not serve.
    pub(super) fn is_known_to_be_incomplete(&self) -> bool {
        let status = self.object.get("status").map(kiln_value::json::to_string).unwrap_or_default();
        status.contains(UNSERVED)
    }
}

/// Begins the message about kinds that the cluster does not serve.
const UNSERVED: &str = "The cluster serves no ";

/// The status that a policy should have; none while it is not known, or another process says it.
pub(super) fn wanted(
    policy: &StoredPolicy,
    admission: &Admission<'_>,
    unserved: &[String],
) -> Option<Value> {
    let scripted = policy.is_scripted();
    // Kinds whose status is conditions and nothing else.
    let plain = !["ClusterPolicy", "Policy"].contains(&policy.id.gvk.kind.as_str());
    let sound = match &policy.compiled {
        Ok(sound) => sound,
        Err(why) => {
            let reason = if policy.is_broken() { "Failed" } else { NOT_RUN };
            let why = &why.to_string();
            return Some(match (scripted, plain) {
                (true, _) => condition_status(Some((reason, why)), None),
                (_, true) => value!({"conditions": ready_condition(false, reason, why)}),
                _ => status(false, reason, why, None),
            });
        }
    };
    let missing = match admission {
        Admission::Elsewhere => return None,
        _ if !unserved.is_empty() => {
            let kinds = unserved.join(", ");
            Some(format!("{UNSERVED}{kinds}. The policy acts on it once it is defined."))
        }
        Admission::Here(registered) => {
            let uid = metadata::uid(&policy.object).unwrap_or_default();
            let generation = policy.object.get_path(["metadata", "generation"]);
            let generation = generation.and_then(Value::as_i64).unwrap_or(0);
            let known = registered.get(&policy.id);
            known.filter(|(known, upto)| known == uid && *upto >= generation)?;
            None
        }
        Admission::Nowhere => needs_requests(sound),
    };
    let nothing_runs = policy.runs_nothing();
    let (ready, reason, message) = match (&nothing_runs, &missing) {
        (Some(why), _) => (false, NOT_RUN, why.as_str()),
        (None, Some(why)) if !unserved.is_empty() => (false, "UnknownKind", why.as_str()),
        (None, Some(why)) => (false, "NoAdmission", why.as_str()),
        (None, None) => (true, "Succeeded", "Ready"),
    };
    Some(match (scripted, plain) {
        (true, _) => {
            let nobody = matches!(admission, Admission::Nowhere).then_some(NO_ADMISSION);
            let status = condition_status(missing.as_deref().map(|why| ("Failed", why)), nobody);
            let checks = |rule: &Arc<Rule>| matches!(rule.program, Program::Validate(_));
            // Kyverno: a policy that no request reaches has no webhook to tell of.
            match sound.rules.iter().all(checks) && sound.delivery.off {
                true => without_condition(status, "WebhookConfigured"),
                false => status,
            }
        }
        (_, true) => value!({"conditions": ready_condition(ready, reason, message)}),
        _ => status(ready, reason, message, Some(sound)),
    })
}

const NO_ADMISSION: &str =
    "No replica answers admission requests. Rules act on stored objects only.";

/// Why a policy does not do all that it says where no replica answers requests; none when it does.
fn needs_requests(policy: &Policy) -> Option<String> {
    let asks = policy.needed_facts().user;
    let needs = |rule: &&Arc<Rule>| {
        let named = rule.trigger.named_operations();
        let kinds = rule.trigger.include.filters().iter().flat_map(|filter| &filter.kinds);
        let on_subresource =
            |kind: &KindPattern| !kind.subresource.is_empty() && &*kind.subresource != "*";
        rule.program.acts_at_admission()
            || asks
            || named.contains(Operation::Connect)
            || kinds.into_iter().any(on_subresource)
    };
    let names: Vec<&str> =
        policy.rules.iter().filter(needs).map(|rule| rule.id.rule.as_str()).collect();
    (!names.is_empty()).then(|| {
        format!(
            "No replica answers admission requests, which these rules need: {}. Run `kiln run` without \
             `--only controller`, or `kiln run --only admission` beside it.",
            names.join(", ")
        )
    })
}

/// The condition that says which kinds cannot fire a policy.
const READABLE: &str = "TriggersReadable";

/// Adds what keeps a policy from firing. Only the process that acts knows; the others leave what it wrote.
pub(super) fn with_troubles(
    policy: &StoredPolicy,
    mut status: Value,
    troubles: Option<&Troubles>,
) -> Value {
    let place = policy.conditions();
    let condition = match troubles {
        None => {
            let path = ["status"].iter().chain(place.iter()).copied();
            let stored = policy.object.get_path(path).and_then(Value::as_list);
            let is_it = |condition: &&Value| condition.str_at(["type"]) == Some(READABLE);
            stored.and_then(|stored| stored.iter().find(is_it)).cloned()
        }
        Some(troubles) => {
            let of_this = |(id, _): &(&ObjectId, _)| id.same_object(&policy.id);
            troubles.iter().find(of_this).map(|(_, found)| {
                value!({
                    "type": READABLE, "status": "False", "reason": "Failed",
                    "message": found.join("; "),
                })
            })
        }
    };
    if let Some(condition) = condition
        && let Some(list) = status.get_path(place.iter().copied()).and_then(Value::as_list)
    {
        let all = list.iter().cloned().chain([condition]);
        let all = Value::from_iter(all.collect::<Vec<_>>());
        // It is there, or it would not have been found.
        let _ = status.set(place.iter().copied(), all);
    }
    status
}

/// The condition that says which rules of a policy are not run, and its reason.
const ALL_RUN: &str = "AllRulesRun";
const NOT_RUN: &str = "RulesNotRun";

/// Adds which rules are not run, so that they are not taken for running rules.
pub(super) fn with_not_run(policy: &StoredPolicy, mut status: Value) -> Value {
    let place = || policy.conditions().iter().copied();
    if let Some(message) = not_run_message(policy)
        && let Some(list) = status.get_path(place()).and_then(Value::as_list)
    {
        let condition =
            value!({"type": ALL_RUN, "status": "False", "reason": NOT_RUN, "message": message});
        let all: Vec<Value> = list.iter().cloned().chain([condition]).collect();
        // Both are there, or they would not have been found.
        let _ = status.set(place(), Value::from_iter(all));
        if status.get("rulecount").is_some() {
            let many = i64::try_from(policy.not_run.len()).unwrap_or(i64::MAX);
            let _ = status.set(["rulecount", "notrun"], many);
        }
    }
    status
}

fn not_run_message(policy: &StoredPolicy) -> Option<String> {
    let what = not_run_in_words(&policy.not_run)?;
    Some(format!(
        "Kiln does not run the following, which has no effect unless another engine runs it: {what}."
    ))
}

/// What users are to hear of a policy whose rules are not run, unless its stored status says so already.
pub(super) fn newly_not_run(policy: &StoredPolicy) -> Option<String> {
    let message = not_run_message(policy)?;
    let place = ["status"].iter().chain(policy.conditions()).copied();
    let stored = policy.object.get_path(place).and_then(Value::as_list);
    let says_so = |condition: &Value| {
        condition.str_at(["type"]) == Some(ALL_RUN)
            && condition.str_at(["message"]) == Some(message.as_str())
    };
    let is_known = stored.into_iter().flat_map(|list| list.iter()).any(says_so);
    (!is_known).then_some(message)
}

/// The condition that says whether objects can be scanned.
const PERMITTED: &str = "RBACPermissionsGranted";

/// The status of policies that are written in CEL, with the reason and the message of what is wrong. Without webhooks it
/// says so.
fn condition_status(problem: Option<(&str, &str)>, without_webhooks: Option<&str>) -> Value {
    let condition = |kind: &str, problem: Option<(&str, &str)>, good: &str| {
        let word = if problem.is_none() { "True" } else { "False" };
        let (reason, message) = problem.unwrap_or(("Succeeded", good));
        value!({"type": kind, "status": word, "reason": reason, "message": message})
    };
    let without_webhooks = without_webhooks.map(|why| ("Failed", why));
    let conditions = [
        condition("WebhookConfigured", problem.or(without_webhooks), "Webhook configured."),
        condition(PERMITTED, problem, "Policy is ready for reporting."),
    ];
    value!({"conditionStatus": {
        "ready": problem.is_none(), "message": problem.map(|(_, why)| why).unwrap_or_default(),
        "conditions": Value::from_iter(conditions),
    }})
}

/// The status of a policy in CEL with what its scan lacks, unless something else is wrong with it.
pub(super) fn with_scan_permissions(mut status: Value, scannable: Option<&Scannable>) -> Value {
    let (word, reason, message) = match scannable {
        None | Some(Scannable::Yes(None)) => return status,
        Some(Scannable::Yes(Some(why))) => ("True", "Succeeded", *why),
        Some(Scannable::No(why)) => ("False", "Failed", why.as_str()),
    };
    let place = ["conditionStatus", "conditions"];
    let all = status.get_path(place).and_then(Value::as_list).map(|all| all.to_vec());
    let is_it = |one: &Value| one.str_at(["type"]) == Some(PERMITTED);
    let is_good = |one: &Value| one.str_at(["status"]) == Some("True");
    let all = all.unwrap_or_default();
    if !all.iter().any(|one| is_it(one) && is_good(one)) {
        return status;
    }
    let told = value!({"type": PERMITTED, "status": word, "reason": reason, "message": message});
    let all: Vec<Value> =
        all.into_iter().map(|one| if is_it(&one) { told.clone() } else { one }).collect();
    // Both are there, or nothing would have been found.
    let _ = status.set(place, Value::from(all));
    if word == "False" {
        let _ = status.set(["conditionStatus", "ready"], false);
    }
    status
}

/// The status of a policy in CEL without a condition.
fn without_condition(mut status: Value, kind: &str) -> Value {
    let place = ["conditionStatus", "conditions"];
    let all = status.get_path(place).and_then(Value::as_list);
    let others = all.into_iter().flat_map(|all| all.iter());
    let others = others.filter(|condition| condition.str_at(["type"]) != Some(kind));
    let others: Vec<Value> = others.cloned().collect();
    // It is there: it was just put there.
    let _ = status.set(place, Value::from_iter(others));
    status
}

fn ready_condition(ready: bool, reason: &str, message: &str) -> Value {
    let word = if ready { "True" } else { "False" };
    value!([{"type": "Ready", "status": word, "reason": reason, "message": message}])
}

fn status(ready: bool, reason: &str, message: &str, policy: Option<&Policy>) -> Value {
    let of = |wanted: fn(&Program) -> bool| {
        let rules = policy.into_iter().flat_map(|policy| &policy.rules);
        i64::try_from(rules.filter(|rule| wanted(&rule.program)).count()).unwrap_or(i64::MAX)
    };
    let generate = of(|program| matches!(program, Program::Generate(_)));
    let validate = of(|program| matches!(program, Program::Validate(_)));
    let mutate = of(|program| matches!(program, Program::Mutate(_)));
    value!({
        "ready": ready,
        "conditions": ready_condition(ready, reason, message),
        "rulecount": {
            "generate": generate, "mutate": mutate, "validate": validate, "verifyimages": 0, "notrun": 0,
        },
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use kiln_value::Str;

    use super::super::{covers, timed};
    use super::*;

    const NOW: u64 = 1_700_000_000_000;

    #[test]
    fn conditions_keep_the_time_since_when_they_hold() {
        let policy = value!({"status": {"conditions": [
            {"type": "Ready", "status": "True", "lastTransitionTime": "2020-01-01T00:00:00Z"},
        ]}});
        let time = |status: &Value, path: &[&str]| {
            let list = status.get_path(path.iter().copied()).unwrap();
            list.index(0).unwrap().str_at(["lastTransitionTime"]).unwrap().to_owned()
        };
        let good = timed(&policy, status(true, "Succeeded", "Ready", None), NOW);
        assert_eq!(time(&good, &["conditions"]), "2020-01-01T00:00:00Z");
        let bad = timed(&policy, status(false, "Failed", "why", None), NOW);
        assert_ne!(time(&bad, &["conditions"]), "2020-01-01T00:00:00Z");
        let scripted = timed(&policy, condition_status(None, None), NOW);
        assert!(!time(&scripted, &["conditionStatus", "conditions"]).is_empty());
        assert!(covers(&good, &status(true, "Succeeded", "Ready", None)));
        assert!(!covers(&bad, &status(true, "Succeeded", "Ready", None)));
    }

    fn stored(text: &str) -> StoredPolicy {
        let read =
            kiln_yaml::read_bytes("p", text.as_bytes(), kiln_yaml::ReadOptions::kubernetes());
        let object = read.unwrap().remove(0).into_value();
        let kinds = kiln_object::Kinds::builtin();
        let (compiled, not_run) = crate::policy_store::compile_whole(&object, &kinds);
        let reconciled = compiled.clone();
        let id = ObjectId::of(&object).unwrap();
        StoredPolicy { id, object, compiled, reconciled, not_run }
    }

    fn rule(kinds: &str, more: &str) -> StoredPolicy {
        stored(&format!(
            "apiVersion: kyverno.io/v1\nkind: ClusterPolicy\nmetadata: {{name: p, uid: u, generation: 2}}\n\
             spec: {{background: false, rules: [{{name: r, match: {{any: [{{resources: {{kinds: [{kinds}]}}}}]}}, {more}}}]}}\n"
        ))
    }

    #[test]
    fn a_policy_is_ready_where_it_can_do_what_it_says() {
        let make =
            "generate: {apiVersion: v1, kind: Secret, name: s, namespace: default, data: {}}";
        let by_user =
            make.replace("data: {}", "data: {stringData: {by: '{{request.userInfo.username}}'}}");
        let change = "mutate: {patchStrategicMerge: {metadata: {labels: {a: b}}}}";
        let ready = |policy: &StoredPolicy, admission: &Admission<'_>| {
            let status = wanted(policy, admission, &[])?;
            status.get("ready").and_then(Value::as_bool)
        };
        for (policy, without) in [
            (rule("Namespace", make), true),
            (rule("Namespace", &by_user), false),
            (rule("Pod/exec", make), false),
            (rule("Pod", change), false),
        ] {
            assert_eq!(ready(&policy, &Admission::Nowhere), Some(without), "{:?}", policy.object);
            assert_eq!(ready(&policy, &Admission::Elsewhere), None);
            let mut registered = BTreeMap::new();
            assert_eq!(ready(&policy, &Admission::Here(&registered)), None);
            registered.insert(policy.id.clone(), (Str::from("u"), 1));
            assert_eq!(ready(&policy, &Admission::Here(&registered)), None, "an older one");
            registered.insert(policy.id.clone(), (Str::from("u"), 2));
            assert_eq!(ready(&policy, &Admission::Here(&registered)), Some(true));
        }
        let why = wanted(&rule("Pod", change), &Admission::Nowhere, &[]).unwrap();
        let condition = why.get("conditions").and_then(|list| list.index(0)).unwrap();
        assert_eq!(condition.str_at(["reason"]), Some("NoAdmission"));
        assert!(condition.str_at(["message"]).unwrap().contains("these rules need: r"));
    }

    #[test]
    fn a_policy_is_not_ready_before_its_kinds_are_served() {
        let change = "mutate: {patchStrategicMerge: {metadata: {labels: {a: b}}}}";
        let make = "generate: {apiVersion: example.com/v1, kind: Widget, name: s, namespace: default, data: {}}";
        let kinds = kiln_object::Kinds::builtin();
        for (policy, expected) in [
            (rule("Pod", change), None),
            (rule("'Pod*'", change), None),
            (rule("Widget", change), Some("kind Widget")),
            (rule("Pod, example.com/v1/Widget", change), Some("kind example.com/v1/Widget")),
            (rule("Pod", make), Some("kind example.com/v1/Widget")),
        ] {
            let unserved = policy.compiled.as_deref().unwrap().unserved_kinds(&kinds);
            assert_eq!(unserved, expected.into_iter().collect::<Vec<_>>(), "{:?}", policy.object);
            let registered = BTreeMap::new();
            let Some(expected) = expected else { continue };
            let status = wanted(&policy, &Admission::Here(&registered), &unserved).unwrap();
            assert_eq!(status.get("ready"), Some(&Value::from(false)));
            let condition = status.get("conditions").and_then(|list| list.index(0)).unwrap();
            assert_eq!(condition.str_at(["reason"]), Some("UnknownKind"));
            let message = condition.str_at(["message"]).unwrap();
            assert!(
                message.starts_with(&format!("The cluster serves no {expected}.")),
                "{message}"
            );
        }
    }

    #[test]
    fn rules_that_are_not_run_are_never_shown_as_at_work() {
        const CEL: [&str; 2] = ["conditionStatus", "conditions"];
        let check = "{name: check, match: {any: [{resources: {kinds: [Pod]}}]}, verifyImages: [{imageReferences: ['*']}]}";
        let make = "{name: make, match: {any: [{resources: {kinds: [Namespace]}}]}, generate: {apiVersion: v1, kind: Secret, name: s, namespace: default, data: {}}}";
        let policy = |rules: &[&str]| {
            stored(&format!(
                "apiVersion: kyverno.io/v1\nkind: ClusterPolicy\nmetadata: {{name: p, uid: u, generation: 2}}\n\
                 spec: {{rules: [{}]}}\n",
                rules.join(", ")
            ))
        };
        let said = |policy: &StoredPolicy| {
            let registered = BTreeMap::from([(policy.id.clone(), (Str::from("u"), 2))]);
            let status = wanted(policy, &Admission::Here(&registered), &[]).unwrap();
            let status = with_not_run(policy, status);
            let list = status.get("conditions").and_then(Value::as_list).unwrap().clone();
            let shown = |c: &Value| {
                let text = |key: &str| c.str_at([key]).unwrap().to_owned();
                format!("{} {} {}", text("type"), text("status"), text("reason"))
            };
            let shown: Vec<String> = list.iter().map(shown).collect();
            let many = status.get_path(["rulecount", "notrun"]).and_then(Value::as_i64);
            (shown, many, list.iter().last().unwrap().str_at(["message"]).unwrap().to_owned())
        };
        let (conditions, many, message) = said(&policy(&[make, check]));
        assert_eq!(conditions, ["Ready True Succeeded", "AllRulesRun False RulesNotRun"]);
        assert_eq!(many, Some(1));
        assert!(message.ends_with(": rule check (verifyImages)."), "{message}");
        let (conditions, _, _) = said(&policy(&[check]));
        assert_eq!(conditions, ["Ready False RulesNotRun", "AllRulesRun False RulesNotRun"]);
        // A mistake in another rule is what the policy is broken by.
        let broken = policy(&[check, &make.replace("kind: Secret, ", "")]);
        assert!(broken.is_broken() && broken.runs_nothing().is_none());
        let (conditions, many, _) = said(&policy(&[make]));
        assert_eq!((conditions, many), (vec!["Ready True Succeeded".to_owned()], Some(0)));
        let checks =
            check.replace("verifyImages: [{imageReferences: ['*']}]", "validate: {deny: {}}");
        let (conditions, many, _) = said(&policy(&[make, &checks]));
        assert_eq!((conditions, many), (vec!["Ready True Succeeded".to_owned()], Some(0)));
        // A kind of which nothing is run.
        let unrun = stored(
            "apiVersion: policies.kyverno.io/v1\nkind: ImageValidatingPolicy\nmetadata: {name: p, uid: u}\nspec: {}\n",
        );
        assert!(!unrun.is_broken());
        let wanted = wanted(&unrun, &Admission::Elsewhere, &[]).unwrap();
        let wanted = with_not_run(&unrun, wanted);
        let list = wanted.get_path(CEL).and_then(Value::as_list).unwrap();
        let shown = list.iter().map(|c| ["status", "reason"].map(|key| c.str_at([key]).unwrap()));
        assert_eq!(shown.collect::<Vec<_>>(), [["False", NOT_RUN]; 3]);
        let message = list[2].str_at(["message"]).unwrap();
        assert!(message.ends_with(": verifyImages."), "{message}");
        assert!(newly_not_run(&unrun).is_some());
        let mut told = unrun;
        told.object.set(["status"], wanted).unwrap();
        assert_eq!(newly_not_run(&told), None);
        // Told once, not with every write of the status.
        let mut told = policy(&[check]);
        assert!(newly_not_run(&told).is_some());
        let status = with_not_run(&told, status(true, "Succeeded", "Ready", None));
        told.object.set(["status"], status).unwrap();
        assert_eq!(newly_not_run(&told), None);
    }

    #[test]
    fn kinds_that_cannot_be_followed_are_a_condition() {
        let mut policy = rule(
            "Namespace",
            "generate: {apiVersion: v1, kind: Secret, name: s, namespace: default, data: {}}",
        );
        let good = status(true, "Succeeded", "Ready", None);
        let troubles = Troubles::from([(policy.id.clone(), vec!["rule r: no".to_owned()])]);
        let said = with_troubles(&policy, good.clone(), Some(&troubles));
        let conditions = |status: &Value| -> Vec<String> {
            let list = status.get("conditions").and_then(Value::as_list).unwrap();
            list.iter().map(|c| c.str_at(["type"]).unwrap().to_owned()).collect()
        };
        assert_eq!(conditions(&said), ["Ready", READABLE]);
        // Those that stand by keep it, and the leader takes it back.
        policy.object.set(["status"], said.clone()).unwrap();
        assert_eq!(with_troubles(&policy, good.clone(), None), said);
        assert_eq!(with_troubles(&policy, good.clone(), Some(&Troubles::new())), good);
    }
}
