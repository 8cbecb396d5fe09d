//! What reports say of what rules that check objects found, and which policies report.

use std::collections::BTreeSet;
use std::sync::Arc;

use kiln_admission::{Request, ValidationResult};
use kiln_cluster::{ApiError, Call, Reason};
use kiln_engine::Status;
use kiln_object::{Kinds, ObjectId, ReportForm, metadata};
use kiln_reports::{ReportedObject, ReportingPolicies, Reports, ResultKey};
use kiln_rules::{Operation, Policy, Program, Rule};
use kiln_value::{Map, Str, Value, value};

use crate::api::Api;
use crate::calls::carry_out;
use crate::events::CheckedObject;
use crate::policy_store::Registry;

/// How long results for one object wait for others, in milliseconds.
pub const REPORT_DELAY: u64 = 2_000;

/// What reports are to know.
#[derive(Clone, Debug)]
pub enum ReportNews {
    /// What rules found out about an object.
    Found {
        /// The object.
        object: ReportedObject,
        /// What each rule found.
        results: Vec<ValidationResult>,
        /// The object was scanned: there is nothing else to be said of it by rules that scan.
        scanned: bool,
    },
    /// A report that is stored.
    Stored(Value),
    /// An object is gone.
    Gone(Str),
}

/// Whether a policy is also run on what is stored already.
pub fn is_scanned(policy: &Policy, rule: &Rule) -> bool {
    policy.background && !rule.asks_for_user() && reports(policy, rule)
}

/// Whether results of a rule are in reports.
fn reports(policy: &Policy, rule: &Rule) -> bool {
    matches!(rule.program, Program::Validate(_)) && !policy.report.off
}

fn key_of(rule: &Rule) -> ResultKey {
    ResultKey {
        source: rule.id.policy.dialect.report_source().into(),
        policy: rule.id.policy.key().into(),
        rule: rule.id.in_reports().map(Str::from),
    }
}

/// The policies that report.
pub fn reporting(registry: &Registry) -> ReportingPolicies {
    let mut reporting = ReportingPolicies {
        sources: BTreeSet::from(["kyverno".into(), "KyvernoValidatingPolicy".into()]),
        ..ReportingPolicies::default()
    };
    for policy in registry.rules.policies() {
        for rule in policy.rules.iter().filter(|rule| reports(policy, rule)) {
            if is_scanned(policy, rule) {
                reporting.scanned.insert(key_of(rule));
            }
            reporting.results.insert(key_of(rule));
        }
    }
    reporting
}

/// What reports are to know of the object of a request, if it will be stored.
pub fn admitted(
    request: &Request,
    object: &CheckedObject,
    results: &[ValidationResult],
    blocked: bool,
) -> Option<ReportNews> {
    let event = &request.event;
    let stored = matches!(event.operation, Some(Operation::Create | Operation::Update));
    let uid = object.uid.clone().filter(|_| stored && !blocked)?;
    if !event.subresource.is_empty()
        || metadata::is_deleted(event.trigger().unwrap_or(&Value::Null))
    {
        return None;
    }
    let object = ReportedObject { id: object.id.clone(), uid };
    Some(ReportNews::Found { object, results: results.to_vec(), scanned: false })
}

/// A result as reports have it; none if it is not told.
fn result(found: &ValidationResult, registry: &Registry, now: u64) -> Option<Value> {
    let rule = registry.rules.rule(&found.rule)?;
    let is_policy = |policy: &&Arc<Policy>| policy.id == found.rule.policy;
    let policy = registry.rules.policies().iter().find(is_policy)?;
    let in_cel = found.rule.in_reports().is_none();
    // Kyverno: of a policy in CEL whose conditions do not hold there is nothing to say.
    if in_cel && found.status == Status::Skip && found.exceptions.is_empty() {
        return None;
    }
    let word = found.status.as_str();
    let own = |key: &str| {
        let (_, text) = found.properties.iter().find(|(name, _)| name == key)?;
        Some(text.to_string())
    };
    let message = own("message").or_else(|| own(&format!("{word}Message")));
    let mut properties = Map::new();
    for (key, text) in &found.properties {
        properties.insert(kiln_value::Key::from(key.as_str()), text.clone());
    }
    let scanned = is_scanned(policy, rule);
    properties.insert("process", if scanned { "background scan" } else { "admission review" });
    if !found.exceptions.is_empty() {
        let names = found.exceptions.iter().map(|name| name.rsplit('/').next().unwrap_or(name));
        properties.insert("exceptions", names.collect::<Vec<_>>().join(","));
    }
    let key = key_of(rule);
    let mut map = Map::new();
    if let Some(category) = &policy.report.category {
        map.insert("category", category.clone());
    }
    map.insert("message", message.unwrap_or_else(|| found.message.clone()));
    map.insert("policy", key.policy);
    map.insert("properties", properties);
    map.insert("result", word);
    if let Some(rule) = key.rule {
        map.insert("rule", rule);
    }
    map.insert("scored", policy.report.scored);
    if let Some(severity) = &policy.report.severity {
        map.insert("severity", severity.clone());
    }
    map.insert("source", key.source);
    map.insert("timestamp", value!({"nanos": 0, "seconds": now / 1000}));
    Some(Value::Map(map))
}

/// Gives reports what they are to know.
pub fn take(machine: &mut Reports, news: ReportNews, registry: &Registry, now: u64) {
    match news {
        ReportNews::Found { object, results, scanned } => {
            let results = results.iter().filter_map(|found| result(found, registry, now)).collect();
            if scanned {
                machine.scanned(object, results, now);
            } else {
                machine.admitted(object, results, now);
            }
        }
        ReportNews::Stored(report) => machine.stored(&report, now),
        ReportNews::Gone(uid) => machine.gone(&uid),
    }
}

/// The report of an object. Without one, the object must be there: a report without an owner would be deleted at once.
///
/// # Errors
/// When that cannot be read, or the object is not there.
pub async fn read<A: Api>(
    client: &A,
    kinds: &Kinds,
    form: &ReportForm,
    object: &ReportedObject,
    creates: bool,
) -> Result<Option<Value>, ApiError> {
    let get = async |id: ObjectId| match carry_out(client, kinds, &Call::Get(id)).await {
        Ok(reply) => Ok(reply.object()),
        Err(error) if error.reason == Reason::NotFound => Ok(None),
        Err(error) => Err(error),
    };
    let report = get(object.report(form)).await?;
    if report.is_some() || !creates {
        return Ok(report);
    }
    let owner = get(object.id.clone()).await?;
    match owner.as_ref().and_then(metadata::uid) {
        Some(uid) if uid == object.uid => Ok(None),
        _ => Err(ApiError::new(Reason::NotFound, "the object is not stored")),
    }
}
