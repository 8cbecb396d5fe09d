//! Policy reports: what users and their tools read about what policies made of each object.
//!
//! One report per trigger, named by its UID and owned by it, so that it goes with it. Results are added,
//! replaced and removed one policy at a time, and only a difference is written. Results of others in the
//! same report are left alone. What is to be written is remembered until it is; when that is lost, a report
//! says what was true when its trigger was last looked at.

use std::collections::BTreeMap;

use kiln_cluster::{ApiError, Call, Change as Told, KindKey, Preconditions, Reason, Reply};
use kiln_engine::{RuleOutcome, Verdict};
use kiln_object::{Gvk, ObjectId, metadata};
use kiln_rules::{Dialect, PolicyId, Rule};
use kiln_value::{Map, Str, Value, value};

use crate::controller::{Controller, Purpose, Start};
use crate::ownership::Ownership;
use crate::retry::backoff;
use crate::work_queue::{Condition, Key, Waiting};

/// The group of reports.
const GROUP: &str = "wgpolicyk8s.io";
/// How often a write is tried that the cluster refuses.
const MOST_TRIES: u32 = 6;
const SEVERITIES: [&str; 5] = ["critical", "high", "medium", "low", "info"];

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
    changes: BTreeMap<ObjectId, Change>,
}

/// What is to change in a report: results by policy, none for one that goes.
#[derive(Debug, Default)]
struct Change {
    results: BTreeMap<Str, Option<Value>>,
    /// Those that are being written.
    sent: Option<BTreeMap<Str, Option<Value>>>,
    from: u64,
    tries: u32,
}

impl Reports {
    pub(crate) fn next_time(&self) -> Option<u64> {
        let waiting = self.changes.values().filter(|change| change.sent.is_none());
        waiting.map(|change| change.from).min()
    }
}

fn kinds() -> [Gvk; 2] {
    let version = format!("{GROUP}/v1alpha2");
    ["PolicyReport", "ClusterPolicyReport"].map(|kind| Gvk::new(&version, kind))
}

/// Whether a policy's results are reported.
fn is_reported(policy: &PolicyId) -> bool {
    policy.dialect == Dialect::GeneratingPolicy
}

impl Controller {
    /// Follows reports where reporting is on and the cluster has them.
    pub(crate) fn follow_reports(&mut self) {
        let wanted = self.settings.reports
            && self.policies.values().any(|held| is_reported(&held.record.policy));
        for kind in kinds() {
            if wanted && self.kinds.get(&kind).is_some() {
                self.cache.follow(&kind);
            }
        }
    }

    /// Removes results of policies that are gone.
    pub(crate) fn prune_reports(&mut self) {
        if self.start != Start::Running || !self.settings.reports {
            return;
        }
        let is_there = |policy: &str| {
            let mut held = self.policies.values().filter(|held| held.policy.is_some());
            held.any(|held| is_reported(&held.record.policy) && held.record.policy.key() == policy)
        };
        let mut lost = Vec::new();
        for entry in kinds().iter().flat_map(|kind| self.cache.entries(&KindKey::of(kind))) {
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
    pub(crate) fn report(&mut self, key: &Key, said: Option<Said>, worst: Option<&Condition>) {
        let reported = self.settings.reports && is_reported(&key.rule.policy);
        let Some(said) = said.filter(|_| reported) else { return };
        let Some(rule) = self.rules.rule(&key.rule).cloned() else { return };
        let Some((trigger, _)) = self.cache.by_uid(&key.trigger) else { return };
        // Reports about reports would have no end.
        if trigger.gvk.group == GROUP {
            return;
        }
        let kind = match self.kinds.is_namespaced(&trigger.gvk) {
            Some(true) => &kinds()[0],
            _ => &kinds()[1],
        };
        let id = ObjectId::new(kind.clone(), &trigger.namespace, &key.trigger);
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
                let tries = self.keys.get(key).map_or(0, |state| state.tries);
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
    fn made_for(&self, key: &Key) -> String {
        let wants = self.keys.get(key).map(|state| state.wants.as_slice()).unwrap_or_default();
        let own = wants.iter().filter(|id| {
            let mark = self.cache.get(id).and_then(Ownership::read);
            mark.is_some_and(|mark| mark.is_by(key))
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
        let document = rule.origin.document().value();
        let about = |key: &str| {
            document.str_at(["metadata", "annotations", &format!("policies.kyverno.io/{key}")])
        };
        let mut all: Map = properties
            .into_iter()
            .map(|(key, text)| (kiln_value::Key::from(key.as_str()), text))
            .collect();
        all.insert("process", "admission review");
        let mut map = Map::new();
        if let Some(category) = about("category") {
            map.insert("category", category);
        }
        map.insert("message", message);
        map.insert("policy", rule.id.policy.key());
        map.insert("properties", all);
        map.insert("result", result);
        map.insert("rule", name);
        map.insert("scored", true);
        if let Some(severity) = about("severity").filter(|word| SEVERITIES.contains(word)) {
            map.insert("severity", severity);
        }
        map.insert("source", Dialect::GeneratingPolicy.report_source());
        map.insert("timestamp", value!({"nanos": 0, "seconds": self.now / 1000}));
        Value::Map(map)
    }

    fn change_report(&mut self, id: ObjectId, policy: Str, result: Option<Value>) {
        let from = self.now + self.settings.report_after;
        let change = self.reports.changes.entry(id).or_insert(Change { from, ..Change::default() });
        change.results.insert(policy, result);
    }

    /// Writes the reports that are due.
    pub(crate) fn write_reports(&mut self) {
        let now = self.now;
        let due: Vec<ObjectId> = self
            .reports
            .changes
            .iter()
            .filter(|(_, change)| change.sent.is_none() && change.from <= now)
            .map(|(id, _)| id.clone())
            .collect();
        for id in due {
            let key = KindKey::of(&id.gvk);
            if !self.cache.is_known(&key) {
                let longer = now + self.settings.backoff;
                let hopeless = !self.cache.kinds.contains_key(&key);
                match self.reports.changes.get_mut(&id) {
                    Some(change) if !hopeless && change.tries < MOST_TRIES => {
                        change.tries += 1;
                        change.from = longer;
                    }
                    _ => drop(self.reports.changes.remove(&id)),
                }
                continue;
            }
            let call = self.reports.changes.get(&id).and_then(|change| self.written(&id, change));
            let Some(call) = call else {
                self.reports.changes.remove(&id);
                continue;
            };
            if let Some(change) = self.reports.changes.get_mut(&id) {
                change.sent = Some(std::mem::take(&mut change.results));
            }
            self.ask(Purpose::Report(id), call);
        }
    }

    /// The call that makes a report say what it should; none when it does.
    fn written(&self, id: &ObjectId, change: &Change) -> Option<Call> {
        let live = self.cache.get(id).filter(|live| !metadata::is_deleted(live));
        let trigger = self.cache.by_uid(&id.name);
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
            return Some(Call::create(report(id, trigger, object, after)));
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

    pub(crate) fn report_answered(&mut self, id: &ObjectId, answer: Result<Reply, ApiError>) {
        let Some(change) = self.reports.changes.get_mut(id) else { return };
        let sent = change.sent.take().unwrap_or_default();
        match answer {
            Ok(reply) => {
                if change.results.is_empty() {
                    self.reports.changes.remove(id);
                } else {
                    change.tries = 0;
                }
                let difference = match reply.object() {
                    Some(object) => self.cache.note_answer(&object),
                    None => self
                        .cache
                        .get(id)
                        .cloned()
                        .and_then(|gone| self.cache.note(&gone, Told::Deleted)),
                };
                if let Some(difference) = difference {
                    self.on_difference(&difference, true);
                }
            }
            Err(error) => {
                change.tries += 1;
                let hopeless = matches!(
                    error.reason,
                    Reason::Invalid | Reason::NamespaceTerminating | Reason::UnknownKind
                );
                let given_up = error.reason != Reason::Unavailable && change.tries >= MOST_TRIES;
                if hopeless || given_up {
                    self.reports.changes.remove(id);
                    return;
                }
                for (policy, result) in sent {
                    change.results.entry(policy).or_insert(result);
                }
                // By then the mirror knows the write of the other.
                change.from = self.now + backoff(&self.settings, change.tries);
            }
        }
    }
}

fn results(report: &Value) -> impl Iterator<Item = &Value> {
    report.get("results").and_then(Value::as_list).into_iter().flat_map(|list| list.iter())
}

/// The policy of a result, if it is one of ours.
fn policy_of(result: &Value) -> Option<&str> {
    let source = Dialect::GeneratingPolicy.report_source();
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

fn report(id: &ObjectId, trigger: &ObjectId, object: &Value, results: Vec<Value>) -> Value {
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
    about.insert("labels", value!({"app.kubernetes.io/managed-by": "kyverno"}));
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
