//! Keeps reports about what rules that check objects found: reads and writes for [`kiln_reports::Reports`].

use std::sync::Arc;
use std::time::Duration;

use kiln_admission::{Reporting, ReviewRequest, ValidationResult};
use kiln_cluster::{ApiError, Call, Reason, Reply};
use kiln_controller::{TriggerReport, TriggerResult};
use kiln_engine::Status;
use kiln_object::{Kinds, ObjectId, ReportForm, metadata};
use kiln_reports::{ReportedObject, ReportingPolicies, Reports, ResultKey};
use kiln_rules::{Actions, Operation, Policy, Program, Rule, RuleId};
use kiln_value::{Map, Str, Value, value};
use tokio::sync::{Mutex, mpsc};
use tokio::task::JoinSet;

use crate::calls::carry_out;
use crate::client::Client;
use crate::controller_loop::now;
use crate::events::CheckedObject;
use crate::options::RuntimeOptions;
use crate::policy_store::Registry;
use crate::state::AppState;

/// How long results for one object wait for others, in milliseconds.
const DELAY: u64 = 2_000;
/// How many reports are read or written at once.
const AT_ONCE: usize = 8;

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
    pub(crate) fn of_trigger(told: TriggerReport) -> Self {
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
pub(crate) struct ReportSwitches(Reporting);

impl ReportSwitches {
    pub(crate) fn of(options: &RuntimeOptions, registry: &Registry) -> Self {
        ReportSwitches(options.settings().read(registry.config.as_ref()).0.reporting)
    }

    /// Whether a rule is also run on what is stored already. Kyverno: rules that check objects, and policies in CEL that
    /// change what is sent.
    pub(crate) fn scans(&self, policy: &Policy, rule: &Rule) -> bool {
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
fn reporting(registry: &Registry, switches: &ReportSwitches) -> ReportingPolicies {
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

/// Passes on what rules found out about the object of a request, or did to it, if it will be stored.
pub(crate) fn admitted(
    shared: &AppState,
    request: &ReviewRequest,
    object: &CheckedObject,
    results: &[ValidationResult],
    blocked: bool,
) {
    let event = &request.event;
    let stored = matches!(event.operation, Some(Operation::Create | Operation::Update));
    if !stored
        || blocked
        || !event.subresource.is_empty()
        || metadata::is_deleted(event.trigger().unwrap_or(&Value::Null))
    {
        return;
    }
    let (id, results) = (object.id.clone(), results.to_vec());
    let found = match object.uid.clone() {
        Some(uid) => {
            let object = ReportedObject { id, uid };
            ReportNews::Found { object, results, by: FoundBy::Request }
        }
        None => ReportNews::FoundUnborn { object: id, results },
    };
    // A scan finds out what is left out now.
    if shared.news.findings.try_send(found).is_err() {
        tracing::debug!("too many results wait to be reported");
    }
}

/// A result as reports have it; none if it is not told.
fn result(
    found: &ValidationResult,
    registry: &Registry,
    switches: &ReportSwitches,
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
    map.insert("timestamp", value!({"nanos": 0, "seconds": now() / 1000}));
    Some(Value::Map(map))
}

/// What a task found out or did about the report of an object.
enum Done {
    LookedFor(ObjectId, Option<Value>),
    Read(Str, Result<Option<Value>, ApiError>),
    Wrote(Str, Result<(), ApiError>),
}

/// Keeps reports until the process is to end.
pub(crate) async fn keep(
    shared: AppState,
    client: Client,
    news: Arc<Mutex<mpsc::Receiver<ReportNews>>>,
) {
    let mut news = news.lock().await;
    let mut registry = shared.registry.clone();
    let form = shared.options.report_form();
    let mut machine = Reports::new(DELAY, form.clone());
    let mut tasks: JoinSet<Done> = JoinSet::new();
    let mut stored = Arc::new(Registry::default());
    let mut switches = ReportSwitches::of(&shared.options, &stored);
    let mut is_stale = true;
    loop {
        if is_stale {
            stored = registry.borrow_and_update().clone();
            switches = ReportSwitches::of(&shared.options, &stored);
            machine.set_policies(reporting(&stored, &switches));
        }
        let served = shared.kinds.borrow().clone();
        let is_served = served.get(&form.kinds()[0]).is_some();
        let room = AT_ONCE.saturating_sub(tasks.len());
        // Without policies nothing is known to be gone.
        if stored.complete && is_served {
            for id in machine.due_unborn(now(), room) {
                let (client, served) = (client.clone(), served.clone());
                tasks.spawn(async move {
                    let found = carry_out(&client, &served, &Call::Get(id.clone())).await;
                    Done::LookedFor(id, found.ok().and_then(Reply::object))
                });
            }
            for object in machine.due(now(), room) {
                let (client, served, form) = (client.clone(), served.clone(), form.clone());
                let creates = machine.has_results(&object.uid);
                let reads = machine.must_read(&object.uid);
                tasks.spawn(async move {
                    let read = match reads {
                        true => read(&client, &served, &form, &object, creates).await,
                        false => Ok(None),
                    };
                    Done::Read(object.uid, read)
                });
            }
        }
        let next = machine.next_time().filter(|_| room > 0).unwrap_or(u64::MAX);
        let pause = Duration::from_millis(next.saturating_sub(now()).clamp(50, 5_000));
        is_stale = false;
        tokio::select! {
            told = news.recv() => {
                let Some(told) = told else { return };
                let mut told = Some(told);
                while let Some(news_of) = told.take().or_else(|| news.try_recv().ok()) {
                    // What cannot be written now would pile up. A scan finds it out when it can.
                    if is_served {
                        take(&mut machine, news_of, &stored, &switches);
                    }
                }
            }
            Some(Ok(done)) = tasks.join_next() => match done {
                Done::LookedFor(id, found) => machine.looked_for(&id, found.as_ref(), now()),
                Done::Read(uid, Err(error)) => machine.answered(&uid, Err(&error), now()),
                Done::Read(uid, Ok(live)) => match machine.call(&uid, live.as_ref()) {
                    None => machine.answered(&uid, Ok(()), now()),
                    Some(call) => {
                        let client = client.clone();
                        tasks.spawn(async move {
                            let wrote = carry_out(&client, &served, &call).await.map(drop);
                            Done::Wrote(uid, wrote)
                        });
                    }
                },
                Done::Wrote(uid, wrote) => {
                    if let Err(error) = &wrote {
                        tracing::debug!(%error, %uid, "cannot write a report");
                    }
                    machine.answered(&uid, wrote.as_ref().copied(), now());
                }
            },
            changed = registry.changed() => {
                if changed.is_err() {
                    return;
                }
                is_stale = true;
            }
            () = tokio::time::sleep(pause) => {}
        }
        #[allow(clippy::cast_precision_loss, reason = "a count for people")]
        shared.metrics.set("kiln_reports_waiting", &[], machine.waiting() as f64);
    }
}

fn take(machine: &mut Reports, news: ReportNews, registry: &Registry, switches: &ReportSwitches) {
    let shown = |results: &[ValidationResult]| -> Vec<Value> {
        results.iter().filter_map(|found| result(found, registry, switches)).collect()
    };
    match news {
        ReportNews::Found { by: FoundBy::Request, .. } | ReportNews::FoundUnborn { .. }
            if !switches.0.admission => {}
        ReportNews::Found { object, results, by: FoundBy::Scan } => {
            machine.scanned(object, shown(&results), now());
        }
        ReportNews::Found { object, results, .. } => {
            // What is not told now may have been before.
            let untold = results.iter().filter(|found| result(found, registry, switches).is_none());
            let rules = untold.filter_map(|found| registry.rules.rule(&found.rule));
            let keys: Vec<ResultKey> = rules.map(|rule| key_of(rule)).collect();
            if !keys.is_empty() {
                machine.withdrawn(object.clone(), keys, now());
            }
            let told = shown(&results);
            if !told.is_empty() {
                machine.found(object, told, now());
            }
        }
        ReportNews::FoundUnborn { object, results } => {
            machine.found_unborn(object, shown(&results), now());
        }
        ReportNews::Withdrawn { object, rule } => {
            if let Some(rule) = registry.rules.rule(&rule) {
                machine.withdrawn(object, vec![key_of(rule)], now());
            }
        }
        ReportNews::Stored(report) => machine.stored(&report, now()),
        ReportNews::Gone(uid) => machine.gone(&uid),
    }
}

/// The report of an object. Without one, the object must be there: a report without an owner would be deleted at once.
async fn read(
    client: &Client,
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
