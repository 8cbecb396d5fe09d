//! What reports say of what rules found out about objects and did to them, and which policies report.

use std::sync::Arc;

use kiln_admission::{Reporting, ReviewRequest, Settings, ValidationResult};
use kiln_cluster::{ApiError, Call, Reason};
use kiln_controller::{TriggerReport, TriggerResult};
use kiln_engine::Status;
use kiln_object::{Kinds, ObjectId, ReportForm, metadata};
use kiln_reports::{ReportedObject, ReportingPolicies, Reports, ResultKey};
use kiln_rules::{Actions, Operation, Policy, Program, Rule, RuleId};
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
    /// What rules found out about an object, or did for it.
    Found {
        object: ReportedObject,
        /// What each rule found.
        results: Vec<ValidationResult>,
        by: FoundBy,
    },
    /// What rules did to an object that is not stored yet.
    FoundUnborn { object: ObjectId, results: Vec<ValidationResult> },
    /// A rule has nothing to do with an object any more.
    Withdrawn { object: ReportedObject, rule: RuleId },
    /// A report that is stored.
    Stored(Value),
    /// An object is gone.
    Gone(Str),
}

/// How results came about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FoundBy {
    /// By an admission request.
    Request,
    /// By work of the controller on stored objects.
    Controller,
    /// By a scan of the object: there is nothing else to be said of it by rules that scan.
    Scan,
}

impl ReportNews {
    /// What the controller tells of a rule and its trigger.
    pub fn of_trigger(told: TriggerReport) -> Self {
        let TriggerReport { rule, trigger, uid, result } = told;
        let object = ReportedObject { id: trigger, uid };
        let Some(TriggerResult { status, message, properties, exceptions }) = result else {
            return ReportNews::Withdrawn { object, rule };
        };
        let actions = Actions::default();
        let result =
            ValidationResult { rule, status, message, actions, properties, exceptions, took: None };
        ReportNews::Found { object, results: vec![result], by: FoundBy::Controller }
    }
}

/// Which rules of a policy are in reports, and which are run on what is stored already.
#[derive(Clone, Debug, Default)]
pub struct ReportSwitches(Reporting);

impl ReportSwitches {
    /// Those of a process with these settings, as far as the stored ConfigMap has no others.
    pub fn of(settings: &Settings, registry: &Registry) -> Self {
        ReportSwitches(settings.clone().read(registry.config.as_ref()).0.reporting)
    }

    /// Whether a rule is also run on what is stored already. Kyverno: rules that check objects, and policies in CEL that
    /// change what is sent.
    pub fn scans(&self, policy: &Policy, rule: &Rule) -> bool {
        let scanned = match &rule.program {
            Program::Validate(_) => true,
            Program::Mutate(mutate) => mutate.changes_trigger() && rule.script.is_some(),
            _ => false,
        };
        scanned && self.0.scan && is_background(policy, rule) && self.reports(policy, rule)
    }

    /// Whether results of a rule are in reports.
    fn reports(&self, policy: &Policy, rule: &Rule) -> bool {
        self.0.includes(rule) && !policy.report.off
    }
}

fn is_background(policy: &Policy, rule: &Rule) -> bool {
    policy.background && !rule.asks_for_user()
}

/// What results of a rule are called in reports.
fn key_of(rule: &Rule) -> ResultKey {
    let source = rule.id.policy.dialect.report_source();
    ResultKey::new(source, &rule.id.policy.key(), rule.id.in_reports())
}

/// The policies that report.
pub fn reporting(registry: &Registry, switches: &ReportSwitches) -> ReportingPolicies {
    let sources =
        ["kyverno", "KyvernoValidatingPolicy", "KyvernoMutatingPolicy", "KyvernoGeneratingPolicy"];
    let mut reporting = ReportingPolicies {
        sources: sources.into_iter().map(Str::from).collect(),
        ..ReportingPolicies::default()
    };
    for policy in registry.rules.policies() {
        for rule in policy.rules.iter().filter(|rule| switches.reports(policy, rule)) {
            let key = key_of(rule);
            if switches.scans(policy, rule) {
                reporting.scanned.insert(key.clone());
            }
            reporting.results.entry(key).or_default().push(Arc::clone(rule));
        }
    }
    reporting
}

/// What reports are to know of the object of a request, or of what rules did to it, if it will be stored.
pub fn admitted(
    request: &ReviewRequest,
    object: &CheckedObject,
    results: &[ValidationResult],
    blocked: bool,
) -> Option<ReportNews> {
    let event = &request.event;
    let stored = matches!(event.operation, Some(Operation::Create | Operation::Update));
    if !stored
        || blocked
        || !event.subresource.is_empty()
        || metadata::is_deleted(event.trigger().unwrap_or(&Value::Null))
    {
        return None;
    }
    let (id, results) = (object.id.clone(), results.to_vec());
    Some(match object.uid.clone() {
        Some(uid) => {
            let object = ReportedObject { id, uid };
            ReportNews::Found { object, results, by: FoundBy::Request }
        }
        None => ReportNews::FoundUnborn { object: id, results },
    })
}

/// A result as reports have it; none if it is not told.
fn result(
    found: &ValidationResult,
    registry: &Registry,
    switches: &ReportSwitches,
    now: u64,
) -> Option<Value> {
    let rule = registry.rules.rule(&found.rule)?;
    if !switches.0.allows(found.status) {
        return None;
    }
    let is_policy = |policy: &&Arc<Policy>| policy.id == found.rule.policy;
    let policy = registry.rules.policies().iter().find(is_policy)?;
    let in_cel = rule.script.is_some() && found.rule.in_reports().is_none();
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
    // Kyverno: policies that generate in CEL have no scan.
    let generates_in_cel = rule.script.is_some() && matches!(rule.program, Program::Generate(_));
    let background = is_background(policy, rule) && !generates_in_cel;
    properties.insert("process", if background { "background scan" } else { "admission review" });
    if !found.exceptions.is_empty() {
        let names = found.exceptions.iter().map(|name| name.rsplit('/').next().unwrap_or(name));
        properties.insert("exceptions", names.collect::<Vec<_>>().join(","));
    }
    let mut map = Map::new();
    if let Some(category) = &policy.report.category {
        map.insert("category", category.clone());
    }
    map.insert("message", message.unwrap_or_else(|| found.message.clone()));
    map.insert("policy", rule.id.policy.key());
    map.insert("properties", properties);
    map.insert("result", word);
    if let Some(name) = rule.id.in_reports() {
        // Kyverno: of policies that generate in CEL, exceptions are results of their own name.
        let excepted = rule.script.is_some() && !found.exceptions.is_empty();
        map.insert("rule", if excepted { "exception" } else { name });
    }
    map.insert("scored", policy.report.scored);
    if let Some(severity) = &policy.report.severity {
        map.insert("severity", severity.clone());
    }
    map.insert("source", rule.id.policy.dialect.report_source());
    map.insert("timestamp", value!({"nanos": 0, "seconds": now / 1000}));
    Some(Value::Map(map))
}

/// Gives reports what they are to know.
pub fn take(
    machine: &mut Reports,
    news: ReportNews,
    registry: &Registry,
    switches: &ReportSwitches,
    now: u64,
) {
    let shown = |results: &[ValidationResult]| -> Vec<Value> {
        results.iter().filter_map(|found| result(found, registry, switches, now)).collect()
    };
    match news {
        ReportNews::Found { by: FoundBy::Request, .. } | ReportNews::FoundUnborn { .. }
            if !switches.0.admission => {}
        ReportNews::Found { object, results, by: FoundBy::Scan } => {
            machine.scanned(object, shown(&results), now);
        }
        ReportNews::Found { object, results, .. } => {
            // What is not told now may have been before.
            let untold =
                results.iter().filter(|found| result(found, registry, switches, now).is_none());
            let rules = untold.filter_map(|found| registry.rules.rule(&found.rule));
            let keys: Vec<ResultKey> = rules.map(|rule| key_of(rule)).collect();
            if !keys.is_empty() {
                machine.withdrawn(object.clone(), keys, now);
            }
            let told = shown(&results);
            if !told.is_empty() {
                machine.found(object, told, now);
            }
        }
        ReportNews::FoundUnborn { object, results } => {
            machine.found_unborn(object, shown(&results), now);
        }
        ReportNews::Withdrawn { object, rule } => {
            if let Some(rule) = registry.rules.rule(&rule) {
                machine.withdrawn(object, vec![key_of(rule)], now);
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
