//! Policy reports about rules that check objects: what is to be in them, and which call brings that about.
//!
//! ```text
//! results of requests ─┐
//!                      ├─▶ Reports ─ due(now) ─▶ host reads the report ─▶ call() ─▶ host writes ─▶ answered()
//! results of scans ────┘      ▲                                                                       │
//!                             └───────────────────────── again, after a while ────────────────────────┘
//! ```
//!
//! There is one report for each object, named by its UID and owned by it, so that it goes with it. What is to be
//! written waits a moment, so that several results for one object are one write, and is compared with what is stored
//! just then: without a difference nothing is written. There are no objects in between. A scan of an object replaces
//! all its results of the policies that are scanned, so that nothing stays of a rule that no longer matches; a request
//! replaces those of the rules that it ran. Results of other writers in the same report are left alone.
//!
//! Time comes in as milliseconds; nothing here reads a clock or talks to a server.

use std::collections::{BTreeMap, BTreeSet};

use kiln_cluster::{ApiError, Call, Preconditions, Reason};
use kiln_object::report_form::is_report_group;
use kiln_object::{Gvk, ObjectId, ReportForm, metadata};
use kiln_value::{Map, Str, Value, value};

/// How often it is looked for an object that is not stored: its request may have been refused after it was checked.
const MOST_LOOKS: u32 = 6;
/// The first pause after a failure, in milliseconds; it doubles, up to about a minute. A report that cannot be written
/// for another reason is tried for as long as there is something to say: permissions and servers come back.
const PAUSE: u64 = 1_000;
const MOST_DOUBLINGS: u32 = 6;

/// An object that rules checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReportedObject {
    /// Which one.
    pub id: ObjectId,
    /// Its identity.
    pub uid: Str,
}

impl ReportedObject {
    /// What its report is called.
    pub fn report(&self, form: &ReportForm) -> ObjectId {
        let [namespaced, cluster] = form.kinds();
        let kind = if self.id.namespace.is_empty() { cluster } else { namespaced };
        ObjectId::new(kind, &self.id.namespace, &form.name(&self.uid))
    }
}

/// Which result of a report is meant: its source, policy and rule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ResultKey {
    /// The kind of policy, in the words of reports.
    pub source: Str,
    /// The policy, as `name` or `namespace/name`.
    pub policy: Str,
    /// The rule; none for policies whose rules have no names.
    pub rule: Option<Str>,
}

impl ResultKey {
    fn of(result: &Value) -> Self {
        let text = |key: &str| result.str_at([key]).map(Str::from);
        ResultKey {
            source: text("source").unwrap_or_default(),
            policy: text("policy").unwrap_or_default(),
            rule: text("rule"),
        }
    }
}

/// The policies that report, so that results of all others can go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReportingPolicies {
    /// Every result that there can be.
    pub results: BTreeSet<ResultKey>,
    /// Those that scans give: a scan of an object replaces them all.
    pub scanned: BTreeSet<ResultKey>,
    /// The sources whose results are kept here; all others are left alone.
    pub sources: BTreeSet<Str>,
}

/// What is to be changed in the report of an object.
#[derive(Debug)]
struct Waiting {
    object: ReportedObject,
    /// The results of a scan, in the place of all that scans give.
    scanned: bool,
    changes: BTreeMap<ResultKey, Value>,
    due: u64,
    /// The host is at work on it. What comes meanwhile waits.
    at_work: bool,
    tries: u32,
}

/// The reports that are to be changed.
#[derive(Debug)]
pub struct Reports {
    /// How long results wait for others, in milliseconds.
    delay: u64,
    form: ReportForm,
    policies: ReportingPolicies,
    waiting: BTreeMap<Str, Waiting>,
    /// What is being written, should it have to be written again.
    sent: BTreeMap<Str, (bool, BTreeMap<ResultKey, Value>)>,
    /// Objects that have a report, as far as that is known.
    reported: BTreeSet<Str>,
}

impl Reports {
    /// Reports whose results wait so many milliseconds for others.
    pub fn new(delay: u64, form: ReportForm) -> Self {
        Reports {
            delay,
            form,
            policies: ReportingPolicies::default(),
            waiting: BTreeMap::new(),
            sent: BTreeMap::new(),
            reported: BTreeSet::new(),
        }
    }

    /// Takes in which policies report.
    pub fn set_policies(&mut self, policies: ReportingPolicies) {
        self.policies = policies;
    }

    /// Takes in results of a request: they replace those of the same rules.
    pub fn admitted(&mut self, object: ReportedObject, results: Vec<Value>, now: u64) {
        self.add(object, false, results, now);
    }

    /// Takes in the results of a scan: they replace all that scans gave before.
    pub fn scanned(&mut self, object: ReportedObject, results: Vec<Value>, now: u64) {
        self.add(object, true, results, now);
    }

    /// Looks at a stored report: one with results of policies that are gone is to be written without them.
    pub fn stored(&mut self, report: &Value, now: u64) {
        if let Some(uid) = report.str_at(["scope", "uid"]).filter(|_| self.form.is_kept(report)) {
            self.reported.insert(uid.into());
        }
        let is_lost = |result: &Value| {
            let key = ResultKey::of(result);
            self.policies.sources.contains(&key.source) && !self.policies.results.contains(&key)
        };
        if !self.form.is_kept(report) || !results(report).any(is_lost) {
            return;
        }
        let Some(scope) = report.get("scope") else { return };
        let text = |key: &str| scope.str_at([key]).unwrap_or_default();
        let id = ObjectId::new(
            Gvk::new(text("apiVersion"), text("kind")),
            text("namespace"),
            text("name"),
        );
        let uid = text("uid").into();
        self.add(ReportedObject { id, uid }, false, Vec::new(), now);
    }

    fn add(&mut self, object: ReportedObject, scanned: bool, results: Vec<Value>, now: u64) {
        // Reports about reports would have no end.
        if is_report_group(&object.id.gvk.group) || object.uid.is_empty() {
            return;
        }
        let due = now + self.delay;
        let uid = object.uid.clone();
        let waiting = self.waiting.entry(uid).or_insert_with(|| Waiting {
            object,
            scanned: false,
            changes: BTreeMap::new(),
            due,
            at_work: false,
            tries: 0,
        });
        if scanned {
            // Whatever a request found out about scanned rules before, the scan knows as well.
            waiting.scanned = true;
            waiting.changes.retain(|key, _| !self.policies.scanned.contains(key));
        }
        waiting.changes.extend(results.into_iter().map(|result| (ResultKey::of(&result), result)));
    }

    /// How many reports wait to be looked at.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// When the next report is due.
    pub fn next_time(&self) -> Option<u64> {
        self.waiting.values().filter(|waiting| !waiting.at_work).map(|waiting| waiting.due).min()
    }

    /// Whether something is to be said of an object, so that its report must be there.
    pub fn has_results(&self, uid: &str) -> bool {
        self.waiting.get(uid).is_some_and(|waiting| !waiting.changes.is_empty())
    }

    /// Whether the report of an object must be read before it is written. An object that a scan saw is there, and what is
    /// not known to have a report most likely has none: then it is created at once, and read if that fails.
    pub fn must_read(&self, uid: &str) -> bool {
        let scanned = self.waiting.get(uid).is_some_and(|waiting| waiting.scanned);
        !scanned || self.reported.contains(uid)
    }

    /// The objects whose reports are due. The host reads each report, asks [`Reports::call`], and answers.
    pub fn due(&mut self, now: u64, most: usize) -> Vec<ReportedObject> {
        let due =
            self.waiting.values_mut().filter(|waiting| !waiting.at_work && waiting.due <= now);
        due.take(most)
            .map(|waiting| {
                waiting.at_work = true;
                waiting.object.clone()
            })
            .collect()
    }

    /// The call that makes a report say what it should; none when it does.
    pub fn call(&mut self, uid: &str, live: Option<&Value>) -> Option<Call> {
        let waiting = self.waiting.get_mut(uid)?;
        let scanned = std::mem::take(&mut waiting.scanned);
        let changes = std::mem::take(&mut waiting.changes);
        let object = waiting.object.clone();
        let live = live.filter(|live| !metadata::is_deleted(live));
        let call = match live {
            // A report that others made is theirs.
            Some(live) if !self.form.is_kept(live) => None,
            _ => self.written(&object, live, scanned, &changes),
        };
        self.sent.insert(uid.into(), (scanned, changes));
        if call.is_some() {
            // Of most errors it is not known whether it was done all the same: it is read then.
            self.reported.insert(uid.into());
        }
        call
    }

    fn written(
        &self,
        object: &ReportedObject,
        live: Option<&Value>,
        scanned: bool,
        changes: &BTreeMap<ResultKey, Value>,
    ) -> Option<Call> {
        let before: Vec<&Value> = live.into_iter().flat_map(results).collect();
        let mut left = changes.clone();
        let mut after: Vec<Value> = Vec::new();
        for result in &before {
            let key = ResultKey::of(result);
            if !self.policies.sources.contains(&key.source) {
                after.push(Value::clone(result));
                continue;
            }
            match left.remove(&key) {
                // When something was found out matters only if it is something else.
                Some(new) if untimed(&new) == untimed(result) => after.push(Value::clone(result)),
                Some(new) => after.push(new),
                None if scanned && self.policies.scanned.contains(&key) => {}
                None if self.policies.results.contains(&key) => after.push(Value::clone(result)),
                None => {}
            }
        }
        let is_known = |result: &Value| self.policies.results.contains(&ResultKey::of(result));
        after.extend(left.into_values().filter(is_known));
        after.sort_by_cached_key(|result| {
            let ResultKey { source, policy, rule } = ResultKey::of(result);
            (policy, rule, source)
        });
        let Some(live) = live else {
            return (!after.is_empty()).then(|| Call::create(report(&self.form, object, after)));
        };
        if after.is_empty() {
            let preconditions = Preconditions {
                uid: metadata::uid(live).map(Str::from),
                resource_version: metadata::resource_version(live).map(Str::from),
            };
            return Some(Call::Delete { target: object.report(&self.form), preconditions });
        }
        if before.iter().copied().eq(after.iter()) {
            return None;
        }
        let mut report = live.clone();
        let map = report.as_map_mut()?;
        map.insert("summary", summary(&after));
        map.insert("results", Value::from(after));
        Some(Call::update(report))
    }

    /// Takes in what came of a call, or that there was none to make.
    pub fn answered(&mut self, uid: &str, answer: Result<(), &ApiError>, now: u64) {
        let sent = self.sent.remove(uid);
        let Some(waiting) = self.waiting.get_mut(uid) else { return };
        waiting.at_work = false;
        let Some(error) = answer.err() else {
            waiting.tries = 0;
            if waiting.changes.is_empty() && !waiting.scanned {
                self.waiting.remove(uid);
            } else {
                waiting.due = now + self.delay;
            }
            return;
        };
        waiting.tries += 1;
        let hopeless = match error.reason {
            Reason::Invalid | Reason::NamespaceTerminating => true,
            Reason::NotFound => waiting.tries > MOST_LOOKS,
            _ => false,
        };
        if hopeless {
            self.waiting.remove(uid);
            return;
        }
        if let Some((scanned, changes)) = sent {
            // What came meanwhile is newer; a scan that came meanwhile is everything.
            if !waiting.scanned {
                waiting.scanned = scanned;
                for (key, result) in changes {
                    waiting.changes.entry(key).or_insert(result);
                }
            }
        }
        waiting.due = now + (PAUSE << waiting.tries.min(MOST_DOUBLINGS));
    }

    /// Forgets an object that is gone: its report goes with it.
    pub fn gone(&mut self, uid: &str) {
        self.waiting.remove(uid);
        self.sent.remove(uid);
        self.reported.remove(uid);
    }
}

fn results(report: &Value) -> impl Iterator<Item = &Value> {
    report.get("results").and_then(Value::as_list).into_iter().flat_map(|list| list.iter())
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

fn report(form: &ReportForm, object: &ReportedObject, results: Vec<Value>) -> Value {
    let ReportedObject { id, uid } = object;
    let report = object.report(form);
    let mut owner = Map::new();
    owner.insert("apiVersion", id.gvk.api_version());
    owner.insert("kind", id.gvk.kind.clone());
    owner.insert("name", id.name.clone());
    owner.insert("uid", uid.clone());
    let mut scope = owner.clone();
    let mut about = Map::new();
    about.insert("name", report.name.clone());
    if !report.namespace.is_empty() {
        about.insert("namespace", report.namespace.clone());
        scope.insert("namespace", report.namespace.clone());
    }
    about.insert("labels", value!({"app.kubernetes.io/managed-by": form.manager()}));
    about.insert("ownerReferences", Value::from_iter([Value::Map(owner)]));
    let mut map = Map::new();
    map.insert("apiVersion", report.gvk.api_version());
    map.insert("kind", report.gvk.kind);
    map.insert("metadata", about);
    map.insert("scope", scope);
    map.insert("summary", summary(&results));
    map.insert("results", Value::from(results));
    Value::Map(map)
}

#[cfg(test)]
mod tests;
