//! Policy reports: what users and their tools read about what policies made of each object.
//!
//! One report per trigger, named by its UID and owned by it, so that it goes with it. Results are added,
//! replaced and removed one policy at a time, and only a difference is written. Results of others in the
//! same report are left alone. What is to be written is remembered until it is; when that is lost, a report
//! says what was true when its trigger was last looked at.

use std::collections::BTreeMap;

use kiln_cluster::{ApiError, Call, KindKey, Preconditions, Reason, Reply};
use kiln_engine::{Ownership, RuleOutcome, Verdict};
use kiln_object::report_form::is_report_group;
use kiln_object::{Change as Told, Gvk, ObjectId, ReportForm, metadata};
use kiln_rules::{PolicyId, ReportWords, Rule};
use kiln_value::{Map, Str, Value, value};

use crate::cache::ObjectCache;
use crate::controller::Controller;
use crate::outbox::Purpose;
use crate::retry::backoff;
use crate::work_queue::{Condition, Waiting, WorkKey};

/// The group of reports.
/// How often a write is tried that the cluster refuses.
const MOST_TRIES: u32 = 6;

/// What an evaluation says for reports.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Said {
    /// The policy acts on the object. Whether it could is known when the work is done.
    Acts { properties: Vec<(Str, Str)> },
    /// Exceptions mean the object.
    Excepted { result: &'static str, why: String, exceptions: Vec<Str> },
    /// The policy has nothing to do with the object any more.
    Nothing,
}

impl Said {
    /// What an outcome says; none when what is said already still holds.
    pub(crate) fn of(outcome: &RuleOutcome) -> Option<Self> {
        if outcome.is_excepted() {
            return Some(Said::Excepted {
                result: outcome.verdict.as_str(),
                why: outcome.why.clone().unwrap_or_default().into_owned(),
                exceptions: outcome.exceptions.clone(),
            });
        }
        match outcome.verdict {
            Verdict::Pass | Verdict::Error => {
                Some(Said::Acts { properties: outcome.properties.clone() })
            }
            Verdict::Lapsed => Some(Said::Nothing),
            Verdict::Skip | Verdict::NoMatch => None,
        }
    }
}

/// Reports that are to be changed.
#[derive(Debug, Default)]
pub(crate) struct Reports {
    changes: BTreeMap<ObjectId, ReportChange>,
}

/// What is to change in a report: results by policy, none for one that goes.
#[derive(Debug, Default)]
struct ReportChange {
    results: BTreeMap<Str, Option<Value>>,
    /// Those that are being written.
    sent: Option<BTreeMap<Str, Option<Value>>>,
    from: u64,
    tries: u32,
}

impl Reports {
    /// A result is to be in a report, or to go from it.
    fn change(&mut self, id: ObjectId, policy: Str, result: Option<Value>, from: u64) {
        let change =
            self.changes.entry(id).or_insert(ReportChange { from, ..ReportChange::default() });
        change.results.insert(policy, result);
    }

    /// The calls that write the reports which are due.
    fn poll(
        &mut self,
        now: u64,
        cache: &ObjectCache,
        form: &ReportForm,
        backoff: u64,
    ) -> Vec<(ObjectId, Call)> {
        let mut calls = Vec::new();
        self.changes.retain(|id, change| {
            if change.sent.is_some() || change.from > now {
                return true;
            }
            let kind = KindKey::of(&id.gvk);
            if !cache.is_known(&kind) {
                let hopeless = !cache.kinds.contains_key(&kind) || change.tries >= MOST_TRIES;
                change.tries += 1;
                change.from = now + backoff;
                return !hopeless;
            }
            let Some(call) = written(cache, form, id, change) else { return false };
            change.sent = Some(std::mem::take(&mut change.results));
            calls.push((id.clone(), call));
            true
        });
        calls
    }

    /// What follows from the answer to a write. By the time of the next try the cache knows what another writer wrote.
    fn on_reply(&mut self, id: &ObjectId, failed: Option<Reason>, retry: impl Fn(u32) -> u64) {
        let Some(change) = self.changes.get_mut(id) else { return };
        let sent = change.sent.take().unwrap_or_default();
        let Some(reason) = failed else {
            change.tries = 0;
            if change.results.is_empty() {
                self.changes.remove(id);
            }
            return;
        };
        change.tries += 1;
        let hopeless =
            matches!(reason, Reason::Invalid | Reason::NamespaceTerminating | Reason::UnknownKind);
        let given_up = reason != Reason::Unavailable && change.tries >= MOST_TRIES;
        if hopeless || given_up {
            self.changes.remove(id);
            return;
        }
        for (policy, result) in sent {
            change.results.entry(policy).or_insert(result);
        }
        change.from = retry(change.tries);
    }

    pub(crate) fn next_deadline(&self) -> Option<u64> {
        let waiting = self.changes.values().filter(|change| change.sent.is_none());
        waiting.map(|change| change.from).min()
    }
}

impl Controller {
    /// Follows reports where reporting is on and the cluster has them.
    pub(crate) fn follow_reports(&mut self) {
        let wanted = self.env.settings.reports.on
            && self.policies.states.values().any(|held| held.record.policy.is_reported());
        for kind in self.env.settings.reports.form.kinds() {
            if wanted && self.env.kinds.get(&kind).is_some() {
                self.cache.follow(&kind);
            }
        }
    }

    /// Removes results of policies that are gone.
    pub(crate) fn prune_reports(&mut self) {
        if !self.policies.is_running() || !self.env.settings.reports.on {
            return;
        }
        let is_there = |policy: &str| {
            let mut held = self.policies.states.values().filter(|held| held.policy.is_some());
            held.any(|held| held.record.policy.is_reported() && held.record.policy.key() == policy)
        };
        let mut lost = Vec::new();
        let kinds = self.env.settings.reports.form.kinds();
        for entry in kinds.iter().flat_map(|kind| self.cache.entries(&KindKey::of(kind))) {
            let Ok(id) = ObjectId::of(&entry.object) else { continue };
            for policy in results(&entry.object).filter_map(policy_of) {
                if !is_there(policy) {
                    lost.push((id.clone(), Str::from(policy)));
                }
            }
        }
        for (id, policy) in lost {
            self.change_report(id, policy, None);
        }
    }

    /// Reports how the work on a key ended.
    pub(crate) fn report(&mut self, key: &WorkKey, said: Option<Said>, worst: Option<&Condition>) {
        let reported = self.env.settings.reports.on && key.rule.policy.is_reported();
        let Some(said) = said.filter(|_| reported) else { return };
        let Some(rule) = self.policies.rules.rule(&key.rule).cloned() else { return };
        let Some((trigger, _)) = self.cache.by_uid(&key.trigger) else { return };
        // Reports about reports would have no end.
        if is_report_group(&trigger.gvk.group) {
            return;
        }
        let kinds = self.env.settings.reports.form.kinds();
        let kind = match self.env.kinds.is_namespaced(&trigger.gvk) {
            Some(true) => &kinds[0],
            _ => &kinds[1],
        };
        let id = ObjectId::new(
            kind.clone(),
            &trigger.namespace,
            &self.env.settings.reports.form.name(&key.trigger),
        );
        if !self.cache.kinds.contains_key(&KindKey::of(kind)) {
            return;
        }
        let policy = Str::from(key.rule.policy.key());
        let result = match (said, worst) {
            (Said::Nothing, _) => None,
            (Said::Excepted { result, why, exceptions }, _) => {
                let names: Vec<&str> =
                    exceptions.iter().map(|name| name.rsplit('/').next().unwrap_or(name)).collect();
                let properties = vec![("exceptions".into(), names.join(",").into())];
                Some(self.result(&rule, "exception", result, &why, properties))
            }
            (Said::Acts { .. }, Some(worst)) => {
                let tries = self.queue.get(key).map_or(0, |state| state.tries);
                if worst.reason == Waiting::Unavailable && tries < 2 {
                    // It may well go through the next time.
                    return;
                }
                let message = format!("failed to evaluate policy: {}", worst.message);
                Some(self.result(&rule, &key.rule.rule, "error", &message, Vec::new()))
            }
            (Said::Acts { mut properties }, None) => {
                let made = self.made_for(key);
                if !made.is_empty() {
                    properties.push(("generated-resources".into(), made.into()));
                }
                let message = "policy evaluated successfully";
                Some(self.result(&rule, &key.rule.rule, "pass", message, properties))
            }
        };
        self.change_report(id, policy, result);
    }

    /// The objects that a rule made of a trigger.
    // Kyverno: as Go prints kinds.
    fn made_for(&self, key: &WorkKey) -> String {
        let wants = self.queue.get(key).map(|state| state.wants.as_slice()).unwrap_or_default();
        let own = wants.iter().filter(|id| {
            let mark = self.cache.get(id).and_then(Ownership::read);
            mark.is_some_and(|mark| mark.is_by(&key.rule, &key.trigger))
        });
        let written = own.map(|ObjectId { gvk, namespace, name }| {
            let Gvk { group, version, kind } = gvk;
            format!("{group}/{version}, Kind={kind} Name={name} Namespace={namespace}")
        });
        written.collect::<Vec<_>>().join("; ")
    }

    fn result(
        &self,
        rule: &Rule,
        name: &str,
        result: &str,
        message: &str,
        properties: Vec<(Str, Str)>,
    ) -> Value {
        let policies = self.policies.rules.policies();
        let policy = policies.iter().find(|policy| policy.id == rule.id.policy);
        let ReportWords { category, severity, .. } =
            policy.map(|policy| policy.report.clone()).unwrap_or_default();
        let mut all: Map = properties
            .into_iter()
            .map(|(key, text)| (kiln_value::Key::from(key.as_str()), text))
            .collect();
        all.insert("process", "admission review");
        let mut map = Map::new();
        if let Some(category) = category {
            map.insert("category", category);
        }
        map.insert("message", message);
        map.insert("policy", rule.id.policy.key());
        map.insert("properties", all);
        map.insert("result", result);
        map.insert("rule", name);
        map.insert("scored", true);
        if let Some(severity) = severity {
            map.insert("severity", severity);
        }
        map.insert("source", rule.id.policy.dialect.report_source());
        map.insert("timestamp", value!({"nanos": 0, "seconds": self.now / 1000}));
        Value::Map(map)
    }

    fn change_report(&mut self, id: ObjectId, policy: Str, result: Option<Value>) {
        self.reports.change(id, policy, result, self.now + self.env.settings.reports.after);
    }

    /// Writes the reports that are due.
    pub(crate) fn write_reports(&mut self) {
        let backoff = self.env.settings.retry.backoff;
        let form = self.env.settings.reports.form.clone();
        for (id, call) in self.reports.poll(self.now, &self.cache, &form, backoff) {
            self.ask(Purpose::Report(id), call);
        }
    }

    pub(crate) fn report_answered(&mut self, id: &ObjectId, answer: Result<Reply, ApiError>) {
        let (now, retry) = (self.now, self.env.settings.retry);
        let failed = answer.as_ref().err().map(|error| error.reason);
        self.reports.on_reply(id, failed, |tries| now + backoff(retry, tries));
        let Ok(reply) = answer else { return };
        let difference = match reply.object() {
            Some(object) => self.cache.note_answer(&object),
            None => {
                let gone = self.cache.get(id).cloned();
                gone.and_then(|gone| self.cache.note(&gone, Told::Deleted))
            }
        };
        if let Some(difference) = difference {
            self.on_difference(&difference, true);
        }
    }
}

/// The call that makes a report say what it should; none when it does.
fn written(
    cache: &ObjectCache,
    form: &ReportForm,
    id: &ObjectId,
    change: &ReportChange,
) -> Option<Call> {
    let live = cache.get(id).filter(|live| !metadata::is_deleted(live));
    let trigger = cache.by_uid(form.uid(&id.name));
    let before: Vec<&Value> = live.into_iter().flat_map(results).collect();
    let mut after: Vec<Value> = Vec::new();
    let mut left = change.results.clone();
    for result in &before {
        match policy_of(result).and_then(|policy| left.remove(policy)) {
            None => after.push(Value::clone(result)),
            Some(Some(new)) if untimed(&new) == untimed(result) => {
                after.push(Value::clone(result));
            }
            Some(new) => after.extend(new),
        }
    }
    after.extend(left.into_values().flatten());
    let Some(live) = live else {
        let (trigger, object) = trigger.filter(|_| !after.is_empty())?;
        return Some(Call::create(report(form.manager(), id, trigger, object, after)));
    };
    if before.iter().copied().eq(after.iter()) {
        return None;
    }
    if after.is_empty() {
        let preconditions = Preconditions {
            uid: metadata::uid(live).map(Str::from),
            resource_version: metadata::resource_version(live).map(Str::from),
        };
        return Some(Call::Delete { target: id.clone(), preconditions });
    }
    let mut report = live.clone();
    let map = report.as_map_mut()?;
    map.insert("summary", summary(&after));
    map.insert("results", Value::from(after));
    Some(Call::update(report))
}

fn results(report: &Value) -> impl Iterator<Item = &Value> {
    report.get("results").and_then(Value::as_list).into_iter().flat_map(|list| list.iter())
}

/// The policy of a result, if it is one of ours.
fn policy_of(result: &Value) -> Option<&str> {
    let source = PolicyId::REPORTED_SOURCE;
    result.str_at(["policy"]).filter(|_| result.str_at(["source"]) == Some(source))
}

/// A result without when it came.
fn untimed(result: &Value) -> Value {
    let mut result = result.clone();
    result.remove(["timestamp"]);
    result
}

fn summary(results: &[Value]) -> Value {
    let count = |word: &str| {
        let counted = results.iter().filter(|result| result.str_at(["result"]) == Some(word));
        i64::try_from(counted.count()).unwrap_or(i64::MAX)
    };
    value!({
        "error": count("error"), "fail": count("fail"), "pass": count("pass"),
        "skip": count("skip"), "warn": count("warn"),
    })
}

fn report(
    manager: &str,
    id: &ObjectId,
    trigger: &ObjectId,
    object: &Value,
    results: Vec<Value>,
) -> Value {
    let mut owner = Map::new();
    owner.insert("apiVersion", trigger.gvk.api_version());
    owner.insert("kind", trigger.gvk.kind.clone());
    owner.insert("name", trigger.name.clone());
    owner.insert("uid", metadata::uid(object).unwrap_or_default());
    let mut scope = owner.clone();
    let mut about = Map::new();
    about.insert("name", id.name.clone());
    if !id.namespace.is_empty() {
        about.insert("namespace", id.namespace.clone());
        scope.insert("namespace", id.namespace.clone());
    }
    about.insert("labels", value!({"app.kubernetes.io/managed-by": manager}));
    about.insert("ownerReferences", Value::from_iter([Value::Map(owner)]));
    let mut report = Map::new();
    report.insert("apiVersion", id.gvk.api_version());
    report.insert("kind", id.gvk.kind.clone());
    report.insert("metadata", about);
    report.insert("scope", scope);
    report.insert("summary", summary(&results));
    report.insert("results", Value::from(results));
    Value::Map(report)
}
