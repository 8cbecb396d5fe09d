//! Runs of policies that delete objects.
//!
//! ```text
//! waits ── its time comes ──▶ lists a page ──▶ judges each object ──▶ deletes some ──▶ next page, next kind ──▶ waits
//! ```
//!
//! A run never overlaps with the next one of the same policy, a missed one is made up once, and nothing that fails keeps
//! the next run from coming: not an object that cannot be deleted, not one that cannot be judged, and not a kind that
//! cannot be listed. Kyverno gives up after ten retries until the policy changes.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use kiln_cluster::{ApiError, Call, Listing, Preconditions, Reason};
use kiln_object::{Gvk, ObjectId, Selector, metadata};
use kiln_rules::{Program, Propagation, Rule};
use kiln_value::{Str, Value};

use crate::status;

/// How many objects a page of a list holds.
const PAGE: usize = 500;
/// The most deletions of one run at once.
const AT_ONCE: usize = 8;
/// How often a list that fails for the moment is tried again, and the first pause before it in milliseconds.
const LIST_TRIES: u32 = 3;
const LIST_PAUSE: u64 = 1_000;
/// Kyverno: runs of one policy are at least so far apart, in milliseconds.
const SHORTEST_PAUSE: u64 = 1_000;
/// How many failures of a run get a message of their own; all are counted.
const TOLD_FAILURES: u64 = 50;

/// A policy that deletes objects, as it is stored.
#[derive(Clone, Debug)]
pub struct CleanupPolicy {
    /// Which object it is.
    pub object: ObjectId,
    /// Its `metadata.uid`.
    pub uid: Str,
    /// Its `metadata.generation`: another one is another policy.
    pub generation: i64,
    /// When it was stored, in seconds since 1970.
    pub created: i64,
    /// When it last ran, as its status says.
    pub last_run: Option<i64>,
    /// Its status, as it is stored.
    pub status: Value,
    pub rule: Arc<Rule>,
    /// The kinds that it lists.
    pub kinds: Vec<Gvk>,
    /// The permissions that its account lacks, in words.
    pub lacks: Vec<String>,
}

/// Something to be done, and answered for under its ticket.
#[derive(Clone, Debug, PartialEq)]
pub struct CleanupRequest {
    /// The number to answer under.
    pub ticket: u64,
    pub policy: ObjectId,
    /// What is to be done.
    pub todo: Todo,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq)]
pub enum Todo {
    /// A page of a list.
    List(Call),
    /// The end of an object.
    Delete {
        /// Which object.
        target: ObjectId,
        /// It must still be as it was judged.
        preconditions: Preconditions,
        /// What becomes of what it owns.
        propagation: Option<Propagation>,
    },
    /// The status of the policy, to be merged into what is stored.
    Status(Value),
}

/// What came of a request.
#[derive(Clone, Debug)]
pub enum CleanupReply {
    /// A page of a list.
    Listed(Listing),
    /// It is done.
    Done,
}

/// Whether an object is to be deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// It goes; what users should know besides.
    Delete(Option<String>),
    /// It stays.
    Keep,
    /// It cannot be known, so that it stays.
    Failed(String),
}

/// Judges objects.
pub trait Judge {
    /// Whether a rule deletes an object.
    fn judge(&self, rule: &Rule, object: &Value) -> Judgement;
}

/// What users may want to read of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CleanupEvent {
    /// An object was deleted.
    Deleted {
        policy: ObjectId,
        object: ObjectId,
        /// What became of what it owned.
        propagation: Option<Propagation>,
        /// What users should know besides.
        warning: Option<String>,
    },
    /// Something failed.
    Failed {
        policy: ObjectId,
        /// The object; for a list, without a name.
        object: ObjectId,
        /// What became of what it would have owned.
        propagation: Option<Propagation>,
        why: String,
        /// Users are to hear of this one; of further ones of the run, the count is enough.
        is_told: bool,
    },
    /// A run is over.
    Ran {
        policy: ObjectId,
        /// What came of it.
        report: RunReport,
    },
}

/// What came of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunReport {
    /// How many objects were looked at.
    pub seen: u64,
    /// How many were deleted.
    pub deleted: u64,
    /// How many could not be judged or deleted, and how many kinds not be listed.
    pub failed: u64,
    /// How many were changed by others meanwhile, and are looked at again in the next run.
    pub changed: u64,
    pub first_failure: Option<String>,
}

/// Runs policies. It has no clock and calls no server: a host tells the time in milliseconds since 1970, and answers.
#[derive(Debug, Default)]
pub struct Cleaner {
    entries: BTreeMap<ObjectId, CleanerEntry>,
    tickets: HashMap<u64, Ticket>,
    last_ticket: u64,
    events: Vec<CleanupEvent>,
}

#[derive(Debug)]
struct CleanerEntry {
    policy: CleanupPolicy,
    /// When it last ran, in seconds; the status may be behind.
    last_run: Option<i64>,
    /// What came of the last run of this process.
    report: Option<RunReport>,
    run: Option<Run>,
    /// The status that was written, or is being written.
    written: Option<Value>,
    /// When a status that could not be written is tried again.
    write_again: u64,
}

#[derive(Debug)]
struct Run {
    kinds: VecDeque<Gvk>,
    page: Page,
    doomed: VecDeque<Doomed>,
    in_flight: usize,
    report: RunReport,
}

/// Where a run is in the list of its first kind.
#[derive(Debug)]
enum Page {
    /// This page is to be asked for, not before a time, after so many failures.
    Next { resume: Option<String>, from: u64, tries: u32 },
    /// It was asked for.
    Asked { resume: Option<String>, tries: u32 },
}

const FIRST_PAGE: Page = Page::Next { resume: None, from: 0, tries: 0 };

/// An object that is to go.
#[derive(Clone, Debug)]
struct Doomed {
    target: ObjectId,
    preconditions: Preconditions,
    warning: Option<String>,
}

#[derive(Debug)]
struct Ticket {
    policy: ObjectId,
    /// Which object stored the policy then, and which generation of it.
    life: (Str, i64),
    what: Asked,
}

#[derive(Debug)]
enum Asked {
    List,
    Delete(Doomed),
    Status,
}

impl CleanupPolicy {
    fn life(&self) -> (Str, i64) {
        (self.uid.clone(), self.generation)
    }

    fn propagation(&self) -> Option<Propagation> {
        match &self.rule.program {
            Program::Delete(delete) => delete.propagation,
            _ => None,
        }
    }
}

impl CleanerEntry {
    fn new(policy: CleanupPolicy) -> Self {
        let last_run = policy.last_run;
        CleanerEntry { policy, last_run, report: None, run: None, written: None, write_again: 0 }
    }

    /// When the next run begins, in milliseconds; none if the schedule has no time.
    fn next(&self) -> Option<u64> {
        let Program::Delete(delete) = &self.policy.rule.program else { return None };
        // Kyverno: a policy that never ran waits for the first time after it was stored.
        let after = self.last_run.unwrap_or(self.policy.created);
        let time = delete.schedule.next(after)?;
        let earliest = self.last_run.and_then(|last| u64::try_from(last).ok());
        let earliest = earliest.map_or(0, |last| last.saturating_mul(1_000) + SHORTEST_PAUSE);
        Some(u64::try_from(time).unwrap_or(0).saturating_mul(1_000).max(earliest))
    }

    fn wanted_status(&self) -> Value {
        status::wanted(&self.policy, self.last_run, self.report.as_ref())
    }
}

impl Cleaner {
    /// Takes over the policies that are stored now. A policy that changed begins anew, with its new schedule; what it had
    /// asked for is answered into the void.
    pub fn set_policies(&mut self, policies: Vec<CleanupPolicy>) {
        let mut before = std::mem::take(&mut self.entries);
        for policy in policies {
            let entry = match before.remove(&policy.object) {
                Some(known) if known.policy.life() == policy.life() => {
                    CleanerEntry { last_run: known.last_run.max(policy.last_run), policy, ..known }
                }
                // The same object with other rules: it ran when it ran.
                Some(known) if known.policy.uid == policy.uid => {
                    let last_run = known.last_run.max(policy.last_run);
                    CleanerEntry { last_run, ..CleanerEntry::new(policy) }
                }
                _ => CleanerEntry::new(policy),
            };
            self.entries.insert(entry.policy.object.clone(), entry);
        }
    }

    /// What is to be done now.
    pub fn poll(&mut self, now: u64) -> Vec<CleanupRequest> {
        let mut requests = Vec::new();
        let names: Vec<ObjectId> = self.entries.keys().cloned().collect();
        for name in names {
            self.step(&name, now, &mut requests);
        }
        requests
    }

    /// Takes the answer to a request.
    pub fn answer(
        &mut self,
        ticket: u64,
        answer: Result<CleanupReply, ApiError>,
        judge: &dyn Judge,
        now: u64,
    ) {
        let Some(Ticket { policy, life, what }) = self.tickets.remove(&ticket) else { return };
        let current = self.entries.get_mut(&policy).filter(|entry| entry.policy.life() == life);
        match (what, current) {
            (Asked::Delete(doomed), entry) => {
                deleted(entry, doomed, answer, &policy, &mut self.events);
            }
            (Asked::List, Some(entry)) => match answer {
                Ok(CleanupReply::Listed(listing)) => {
                    listed(entry, listing, judge, &mut self.events);
                }
                Ok(CleanupReply::Done) => {
                    listed(entry, Listing::default(), judge, &mut self.events);
                }
                Err(error) => not_listed(entry, &error, now, &mut self.events),
            },
            (Asked::Status, Some(entry)) => {
                if answer.is_err() {
                    entry.written = None;
                    entry.write_again = now + LIST_PAUSE * 10;
                }
            }
            (Asked::List | Asked::Status, None) => {}
        }
    }

    /// What happened since the last time.
    pub fn take_events(&mut self) -> Vec<CleanupEvent> {
        std::mem::take(&mut self.events)
    }

    /// When to poll again, if no answer comes before; none when there is nothing to wait for.
    pub fn next_time(&self) -> Option<u64> {
        let of_entry = |entry: &CleanerEntry| match &entry.run {
            None => {
                let owes_status = entry.written.is_none() && entry.write_again > 0;
                let write = owes_status.then_some(entry.write_again);
                entry.next().into_iter().chain(write).min()
            }
            Some(Run { page: Page::Next { from, .. }, in_flight: 0, .. }) => Some(*from),
            Some(_) => None,
        };
        self.entries.values().filter_map(of_entry).min()
    }

    /// When a policy runs next, in milliseconds; none if it never does, or there is no such policy.
    pub fn next_run(&self, policy: &ObjectId) -> Option<u64> {
        self.entries.get(policy).and_then(CleanerEntry::next)
    }

    /// Whether nothing is under way.
    pub fn is_idle(&self) -> bool {
        self.tickets.is_empty() && self.entries.values().all(|entry| entry.run.is_none())
    }

    /// Begins what is due of one policy, and goes on with its run.
    fn step(&mut self, name: &ObjectId, now: u64, requests: &mut Vec<CleanupRequest>) {
        let Some(entry) = self.entries.get_mut(name) else { return };
        let mut ask = |entry: &CleanerEntry, what: Asked, todo: Todo| {
            self.last_ticket += 1;
            let (ticket, life) = (self.last_ticket, entry.policy.life());
            self.tickets.insert(ticket, Ticket { policy: name.clone(), life, what });
            requests.push(CleanupRequest { ticket, policy: name.clone(), todo });
        };
        if entry.run.is_none() && entry.next().is_some_and(|next| next <= now) {
            entry.run = Some(Run {
                kinds: entry.policy.kinds.iter().cloned().collect(),
                page: FIRST_PAGE,
                doomed: VecDeque::new(),
                in_flight: 0,
                report: RunReport::default(),
            });
        }
        if let Some(mut run) = entry.run.take() {
            while run.in_flight < AT_ONCE
                && let Some(doomed) = run.doomed.pop_front()
            {
                run.in_flight += 1;
                let todo = Todo::Delete {
                    target: doomed.target.clone(),
                    preconditions: doomed.preconditions.clone(),
                    propagation: entry.policy.propagation(),
                };
                ask(entry, Asked::Delete(doomed), todo);
            }
            let rests = run.in_flight == 0 && run.doomed.is_empty();
            match (run.kinds.front(), &run.page) {
                (Some(kind), Page::Next { resume, from, tries }) if rests && *from <= now => {
                    let call = Call::List {
                        kind: kind.clone(),
                        namespace: entry.policy.rule.scope.namespace().map(Str::from),
                        selector: Selector::everything(),
                        limit: Some(PAGE),
                        resume: resume.clone(),
                    };
                    run.page = Page::Asked { resume: resume.clone(), tries: *tries };
                    ask(entry, Asked::List, Todo::List(call));
                    entry.run = Some(run);
                }
                (None, _) if rests => {
                    entry.last_run = i64::try_from(now / 1_000).ok();
                    entry.report = Some(run.report.clone());
                    let policy = name.clone();
                    self.events.push(CleanupEvent::Ran { policy, report: run.report });
                }
                _ => entry.run = Some(run),
            }
        }
        let wanted = entry.wanted_status();
        let is_there = entry.written.as_ref() == Some(&wanted)
            || (entry.written.is_none() && status::covers(&entry.policy.status, &wanted));
        if entry.run.is_none() && !is_there && entry.write_again <= now {
            ask(entry, Asked::Status, Todo::Status(wanted.clone()));
            entry.written = Some(wanted);
            entry.write_again = 0;
        }
    }
}

/// Judges a page of objects.
fn listed(
    entry: &mut CleanerEntry,
    listing: Listing,
    judge: &dyn Judge,
    events: &mut Vec<CleanupEvent>,
) {
    let Some(run) = &mut entry.run else { return };
    for object in &listing.objects {
        run.report.seen += 1;
        // It is ending already, perhaps for as long as some finalizer takes.
        let (Ok(target), false) = (ObjectId::of(object), metadata::is_deleted(object)) else {
            continue;
        };
        match judge.judge(&entry.policy.rule, object) {
            Judgement::Keep => {}
            Judgement::Failed(why) => failed(run, &entry.policy, target, why, events),
            Judgement::Delete(warning) => {
                let text = |found: Option<&str>| found.map(Str::from);
                let preconditions = Preconditions {
                    uid: text(metadata::uid(object)),
                    resource_version: text(metadata::resource_version(object)),
                };
                run.doomed.push_back(Doomed { target, preconditions, warning });
            }
        }
    }
    run.page = FIRST_PAGE;
    match listing.resume {
        Some(resume) => run.page = Page::Next { resume: Some(resume), from: 0, tries: 0 },
        None => drop(run.kinds.pop_front()),
    }
}

/// A page could not be had: it is tried again, or the kind is left out of this run.
fn not_listed(
    entry: &mut CleanerEntry,
    error: &ApiError,
    now: u64,
    events: &mut Vec<CleanupEvent>,
) {
    let Some(run) = &mut entry.run else { return };
    let (resume, tries) = match &run.page {
        Page::Asked { resume, tries } => (resume.clone(), *tries),
        Page::Next { .. } => (None, 0),
    };
    let is_passing = matches!(error.reason, Reason::Unavailable | Reason::Conflict | Reason::Gone);
    if is_passing && tries < LIST_TRIES {
        // A list that expired begins again.
        let resume = resume.filter(|_| error.reason != Reason::Gone);
        let from = now + (LIST_PAUSE << tries);
        run.page = Page::Next { resume, from, tries: tries + 1 };
        return;
    }
    run.page = FIRST_PAGE;
    let Some(kind) = run.kinds.pop_front() else { return };
    let namespace = entry.policy.rule.scope.namespace().unwrap_or_default();
    let about = ObjectId::new(kind, namespace, "");
    failed(run, &entry.policy, about, format!("cannot be listed: {error}"), events);
}

/// What came of a deletion. A policy that is gone or changed meanwhile still tells what it deleted.
fn deleted(
    entry: Option<&mut CleanerEntry>,
    Doomed { target: object, warning, .. }: Doomed,
    answer: Result<CleanupReply, ApiError>,
    policy: &ObjectId,
    events: &mut Vec<CleanupEvent>,
) {
    let propagation = entry.as_ref().and_then(|entry| entry.policy.propagation());
    let policy = policy.clone();
    let Some((run, of)) = entry.and_then(|entry| Some((entry.run.as_mut()?, &entry.policy))) else {
        if answer.is_ok() {
            events.push(CleanupEvent::Deleted { policy, object, propagation, warning });
        }
        return;
    };
    run.in_flight = run.in_flight.saturating_sub(1);
    match answer {
        Ok(_) => {
            run.report.deleted += 1;
            events.push(CleanupEvent::Deleted { policy, object, propagation, warning });
        }
        Err(error) if error.reason == Reason::NotFound => {}
        // It is another object by now, or has changed: whether it still is to go, the next run sees.
        Err(error) if error.reason == Reason::Conflict => run.report.changed += 1,
        Err(error) => failed(run, of, object, error.to_string(), events),
    }
}

fn failed(
    run: &mut Run,
    policy: &CleanupPolicy,
    object: ObjectId,
    why: String,
    events: &mut Vec<CleanupEvent>,
) {
    run.report.failed += 1;
    run.report.first_failure.get_or_insert_with(|| format!("{object}: {why}"));
    events.push(CleanupEvent::Failed {
        policy: policy.object.clone(),
        object,
        propagation: policy.propagation(),
        why,
        is_told: run.report.failed <= TOLD_FAILURES,
    });
}
