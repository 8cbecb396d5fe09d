//! Keeps reports about what rules that check objects found: reads and writes for [`kiln_reports::Reports`].

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use kiln_admission::{Request, ValidationResult};
use kiln_cluster::{ApiError, Call, Reason};
use kiln_engine::Status;
use kiln_object::{Kinds, ObjectId, ReportForm, metadata};
use kiln_reports::{ReportedObject, ReportingPolicies, Reports, ResultKey};
use kiln_rules::{Operation, Policy, Program, Rule};
use kiln_value::{Map, Str, Value, value};
use tokio::sync::{Mutex, mpsc};
use tokio::task::JoinSet;

use crate::calls::carry_out;
use crate::client::Client;
use crate::controller_loop::now;
use crate::events::CheckedObject;
use crate::policy_store::Registry;
use crate::state::AppState;

/// How long results for one object wait for others, in milliseconds.
const DELAY: u64 = 2_000;
/// How many reports are read or written at once.
const AT_ONCE: usize = 8;

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
pub(crate) fn is_scanned(policy: &Policy, rule: &Rule) -> bool {
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
fn reporting(registry: &Registry) -> ReportingPolicies {
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

/// Passes on what rules found out about the object of a request, if it will be stored.
pub(crate) fn admitted(
    shared: &AppState,
    request: &Request,
    object: &CheckedObject,
    results: &[ValidationResult],
    blocked: bool,
) {
    let event = &request.event;
    let stored = matches!(event.operation, Some(Operation::Create | Operation::Update));
    let Some(uid) = object.uid.clone().filter(|_| stored && !blocked) else { return };
    if !event.subresource.is_empty()
        || metadata::is_deleted(event.trigger().unwrap_or(&Value::Null))
    {
        return;
    }
    let object = ReportedObject { id: object.id.clone(), uid };
    let found = ReportNews::Found { object, results: results.to_vec(), scanned: false };
    // A scan finds out what is left out now.
    if shared.findings.try_send(found).is_err() {
        tracing::debug!("too many results wait to be reported");
    }
}

/// A result as reports have it; none if it is not told.
fn result(found: &ValidationResult, registry: &Registry) -> Option<Value> {
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
    map.insert("timestamp", value!({"nanos": 0, "seconds": now() / 1000}));
    Some(Value::Map(map))
}

/// What a task found out or did about the report of an object.
enum Done {
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
    let mut known: Option<Arc<Registry>> = None;
    loop {
        let stored = registry.borrow_and_update().clone();
        if !known.as_ref().is_some_and(|known| Arc::ptr_eq(known, &stored)) {
            machine.set_policies(reporting(&stored));
            known = Some(Arc::clone(&stored));
        }
        let served = shared.kinds.borrow().clone();
        let room = AT_ONCE.saturating_sub(tasks.len());
        // Without policies nothing is known to be gone.
        if stored.complete && served.get(&form.kinds()[0]).is_some() {
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
        tokio::select! {
            told = news.recv() => {
                let Some(told) = told else { return };
                take(&mut machine, told, &stored);
                while let Ok(more) = news.try_recv() {
                    take(&mut machine, more, &stored);
                }
            }
            Some(Ok(done)) = tasks.join_next() => match done {
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
            changed = registry.changed() => if changed.is_err() { return },
            () = tokio::time::sleep(pause) => {}
        }
        #[allow(clippy::cast_precision_loss, reason = "a count for people")]
        shared.metrics.set("kiln_reports_waiting", &[], machine.waiting() as f64);
    }
}

fn take(machine: &mut Reports, news: ReportNews, registry: &Registry) {
    match news {
        ReportNews::Found { object, results, scanned } => {
            let results = results.iter().filter_map(|found| result(found, registry)).collect();
            if scanned {
                machine.scanned(object, results, now());
            } else {
                machine.admitted(object, results, now());
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
