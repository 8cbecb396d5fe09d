//! Scheduled deletion, as far as it is the same for every process: which policies there are, what their account may not do, and
//! whether an object goes.

use std::collections::HashMap;
use std::sync::Arc;

use http::Method;
use kiln_admission::{Settings, access};
use kiln_cleanup::{CleanupPolicy, Judgement, target_kinds};
use kiln_cluster::{Call, ObjectPatch};
use kiln_engine::{Effect, EvalEnv, Event, RuleSet};
use kiln_object::{Kind, Kinds, ObjectId, metadata};
use kiln_rules::{Policy, Rule};
use kiln_text::Time;
use kiln_value::{Value, value};

use crate::api::Api;
use crate::policy_store::Registry;
use crate::status::timed;

/// What the permissions of a policy's account are found to lack.
pub type Lacks = HashMap<ObjectId, Vec<String>>;

/// The policies that are stored, as the cleaner takes them.
pub fn cleanup_policies(stored: &Registry, kinds: &Kinds, lacks: &Lacks) -> Vec<CleanupPolicy> {
    let scheduled = stored.policies.iter().filter_map(|policy| {
        let compiled = policy.compiled.as_ref().ok().filter(|policy| policy.is_scheduled())?;
        let rule = compiled.rules.iter().find(|rule| rule.program.is_scheduled())?;
        let object = &policy.object;
        let time = |path: &[&str]| {
            let text = object.str_at(path.iter().copied())?;
            Some(Time::parse_rfc3339(text).ok()?.unix())
        };
        let generation = object.get_path(["metadata", "generation"]).and_then(Value::as_i64);
        Some(CleanupPolicy {
            object: policy.id.clone(),
            uid: metadata::uid(object).unwrap_or_default().into(),
            generation: generation.unwrap_or(0),
            created: time(&["metadata", "creationTimestamp"]).unwrap_or(0),
            last_run: time(&["status", "lastExecutionTime"]),
            status: object.get("status").cloned().unwrap_or(Value::Null),
            kinds: target_kinds(rule, kinds),
            rule: Arc::clone(rule),
            lacks: lacks.get(&policy.id).cloned().unwrap_or_default(),
        })
    });
    scheduled.collect()
}

/// The call that writes the status of a policy.
pub fn status_patch(policy: &ObjectId, object: &Value, status: Value, now: u64) -> Call {
    Call::Patch {
        target: policy.clone(),
        patch: ObjectPatch::Merge(value!({"status": timed(object, status, now)})),
        subresource: "status".into(),
    }
}

/// What the account of a policy may not do, in words.
pub async fn lacking<A: Api>(
    api: &A,
    settings: &Settings,
    policy: &Policy,
    kinds: &Kinds,
) -> Vec<String> {
    let Ok(needs) = access::needs(policy, kinds) else { return Vec::new() };
    let mut allowed = Vec::new();
    for question in access::questions(&needs) {
        let review = question.to_value(settings);
        let attributes = review.get_path(["spec", "resourceAttributes"]).cloned();
        // A question that is not answered is not a no: the run itself will tell.
        let asked = is_permitted(api, attributes.unwrap_or(Value::Null)).await;
        allowed.push(asked.unwrap_or(true));
    }
    access::lacking(&needs, &allowed).verbs_and_kinds()
}

/// Where the account asks what it may do itself.
const OWN_REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";

/// Whether the account that deletes may do something; none when the API server does not say.
pub async fn is_permitted<A: Api>(api: &A, attributes: Value) -> Option<bool> {
    let review = value!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    });
    let answer = api.send(Method::POST, OWN_REVIEWS, Some(&review), "").await.ok()?;
    answer.get_path(["status", "allowed"]).and_then(Value::as_bool)
}

/// Whether the settings keep an object from policies.
pub fn is_kept(settings: &Settings, object: &Value) -> bool {
    let Ok(id) = ObjectId::of(object) else { return true };
    let mut filters = settings.filters.iter();
    filters.any(|filter| filter.matches(&id.gvk, &id.namespace, &id.name))
}

/// Whether a policy deletes an object.
pub fn judge(rules: &RuleSet, rule: &Rule, object: &Value, eval_env: &EvalEnv<'_>) -> Judgement {
    let event = Event::existing(object.clone());
    let Some(outcome) = rules.evaluate_rule(&rule.id, &event, eval_env) else {
        // The policy is gone.
        return Judgement::Keep;
    };
    if let Some(failure) = outcome.failures.first() {
        return Judgement::Failed(failure.message.clone());
    }
    let deletes = outcome.effects.iter().any(|effect| matches!(effect, Effect::DeleteObject(_)));
    let warnings = outcome.effects.iter().filter_map(|effect| match effect {
        Effect::Warn(warning) => Some(warning.message.clone()),
        _ => None,
    });
    match deletes {
        true => {
            let warnings: Vec<String> = warnings.collect();
            Judgement::Delete((!warnings.is_empty()).then(|| warnings.join("; ")))
        }
        false => Judgement::Keep,
    }
}

/// What must be permitted with the objects of a kind before their TTL label counts.
pub const LABEL_VERBS: [&str; 3] = ["delete", "list", "watch"];

/// The kinds whose objects may have the TTL label, each in the version that the server prefers.
pub fn labelled_kinds(kinds: &Kinds) -> impl Iterator<Item = &Kind> {
    kinds.iter().filter(|kind| {
        let preferred = kinds.preferred(kind.group(), kind.kind());
        preferred.is_some_and(|preferred| preferred.version() == kind.version())
            && LABEL_VERBS.iter().all(|verb| kind.verbs().contains(verb))
    })
}

/// The question whether something may be done with all objects of a kind.
pub fn asked(kind: &Kind, verb: &str) -> Value {
    value!({
        "verb": verb, "group": kind.group(), "version": kind.version(), "resource": kind.plural(),
    })
}
