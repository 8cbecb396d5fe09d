//! Runs of policies in logical time: a model of a cluster answers what the cleaner asks for.

use std::collections::BTreeMap;
use std::sync::Arc;

use kiln_cleanup::{
    Cleaner, CleanupEvent, CleanupPolicy, CleanupReply, CleanupRequest, Judge, Judgement, Todo,
    target_kinds,
};
use kiln_cluster::{ApiError, Call, Listing, Reason};
use kiln_object::{Kinds, ObjectId, metadata};
use kiln_rules::{Propagation, Rule};
use kiln_text::Time;
use kiln_value::{Value, value};
use kiln_yaml::{ReadOptions, read_bytes};

/// Deletes what has the label `old`, fails at what has `odd`.
struct ByLabel;

impl Judge for ByLabel {
    fn judge(&self, _: &Rule, object: &Value) -> Judgement {
        match metadata::label(object, "is") {
            Some("old") => Judgement::Delete(None),
            Some("odd") => Judgement::Failed("no such field".to_owned()),
            _ => Judgement::Keep,
        }
    }
}

fn ms(time: &str) -> u64 {
    u64::try_from(Time::parse_rfc3339(time).unwrap().unix()).unwrap() * 1_000
}

const CREATED: &str = "2026-01-01T00:00:30Z";

fn policy(kind: &str, spec: &str, generation: i64) -> CleanupPolicy {
    let (version, namespace) = match kind {
        "CleanupPolicy" => ("kyverno.io/v2", "namespace: dev, "),
        "ClusterCleanupPolicy" => ("kyverno.io/v2", ""),
        _ => ("policies.kyverno.io/v1", ""),
    };
    let text = format!(
        "apiVersion: {version}\nkind: {kind}\nmetadata: {{{namespace}name: sweep}}\nspec: {spec}\n"
    );
    let documents = read_bytes("policy.yaml", text.as_bytes(), ReadOptions::kubernetes()).unwrap();
    let compiled = kiln_dialects::compile(&documents, &Kinds::builtin());
    assert!(!compiled.has_errors(), "{:?}", compiled.diagnostics);
    let rule = Arc::clone(&compiled.policies[0].rules[0]);
    CleanupPolicy {
        object: ObjectId::of(documents[0].value()).unwrap(),
        uid: "u".into(),
        generation,
        created: Time::parse_rfc3339(CREATED).unwrap().unix(),
        last_run: None,
        status: Value::Null,
        kinds: target_kinds(&rule, &Kinds::builtin()),
        rule,
        lacks: Vec::new(),
    }
}

fn pods(schedule: &str) -> CleanupPolicy {
    let spec =
        format!("{{schedule: {schedule:?}, match: {{any: [{{resources: {{kinds: [Pod]}}}}]}}}}");
    policy("ClusterCleanupPolicy", &spec, 1)
}

fn pod(name: &str, is: &str) -> Value {
    value!({"apiVersion": "v1", "kind": "Pod", "metadata": {
        "name": name, "namespace": "dev", "uid": format!("uid-{name}"), "resourceVersion": "7",
        "labels": {"is": is},
    }})
}

/// A cluster in memory: objects, pages of a few, and faults.
#[derive(Default)]
struct World {
    objects: BTreeMap<String, Value>,
    page: usize,
    /// How many lists fail, and why.
    failing_lists: Vec<Reason>,
    /// Names whose deletion fails, and why.
    undeletable: BTreeMap<String, Reason>,
    deleted: Vec<String>,
    lists: usize,
    statuses: Vec<Value>,
}

impl World {
    fn of(objects: &[(&str, &str)]) -> Self {
        let objects = objects.iter().map(|(name, is)| ((*name).to_owned(), pod(name, is)));
        World { objects: objects.collect(), page: 2, ..World::default() }
    }

    fn answer(&mut self, request: &CleanupRequest) -> Result<CleanupReply, ApiError> {
        match &request.todo {
            Todo::List(Call::List { resume, limit, .. }) => {
                assert!(limit.is_some(), "lists come in pages");
                self.lists += 1;
                if let Some(reason) = self.failing_lists.pop() {
                    return Err(ApiError::new(reason, "the list fails"));
                }
                // As a server does, it goes on behind a name, whatever is deleted meanwhile.
                let after = resume.clone().unwrap_or_default();
                let mut left = self.objects.range(after.clone()..);
                let page: Vec<(String, Value)> = left
                    .by_ref()
                    .filter(|(name, _)| **name > after)
                    .take(self.page)
                    .map(|(name, object)| (name.clone(), object.clone()))
                    .collect();
                let resume = left.next().and(page.last()).map(|(name, _)| name.clone());
                let objects = page.into_iter().map(|(_, object)| object).collect();
                Ok(CleanupReply::Listed(Listing { objects, revision: 1, resume }))
            }
            Todo::Delete { target, preconditions, .. } => {
                let name = target.name.to_string();
                if let Some(reason) = self.undeletable.get(&name) {
                    return Err(ApiError::new(*reason, "the deletion fails"));
                }
                let Some(object) = self.objects.get(&name) else {
                    return Err(ApiError::new(Reason::NotFound, "gone"));
                };
                assert_eq!(preconditions.uid.as_deref(), metadata::uid(object));
                assert_eq!(
                    preconditions.resource_version.as_deref(),
                    metadata::resource_version(object)
                );
                self.objects.remove(&name);
                self.deleted.push(name);
                Ok(CleanupReply::Done)
            }
            Todo::Status(status) => {
                self.statuses.push(status.clone());
                Ok(CleanupReply::Done)
            }
            Todo::List(other) => panic!("{other:?}"),
        }
    }

    /// Lets the cleaner do all that it wants at a time.
    fn settle(&mut self, cleaner: &mut Cleaner, now: u64) -> Vec<CleanupEvent> {
        let mut events = Vec::new();
        loop {
            let requests = cleaner.poll(now);
            if requests.is_empty() {
                events.extend(cleaner.take_events());
                return events;
            }
            for request in requests {
                let answer = self.answer(&request);
                cleaner.answer(request.ticket, answer, &ByLabel, now);
            }
        }
    }

    fn last_condition(&self, kind: &str) -> Option<(String, String)> {
        let status = self.statuses.last()?;
        let list =
            status.get("conditions").or_else(|| status.get_path(["conditionStatus", "conditions"]));
        let found = list?.as_list()?.iter().find(|one| one.str_at(["type"]) == Some(kind))?;
        Some((found.str_at(["status"])?.to_owned(), found.str_at(["message"])?.to_owned()))
    }
}

fn ran(events: &[CleanupEvent]) -> usize {
    events.iter().filter(|event| matches!(event, CleanupEvent::Ran { .. })).count()
}

#[test]
fn a_policy_runs_at_its_first_tick_and_then_at_each() {
    let mut cleaner = Cleaner::default();
    let mut world =
        World::of(&[("a", "old"), ("b", "new"), ("c", "old"), ("d", "old"), ("e", "new")]);
    cleaner.set_policies(vec![pods("*/5 * * * *")]);
    let name = pods("* * * * *").object;
    world.settle(&mut cleaner, ms("2026-01-01T00:04:59Z"));
    assert_eq!((world.lists, world.deleted.len()), (0, 0), "not before its time");
    assert_eq!(cleaner.next_time(), Some(ms("2026-01-01T00:05:00Z")));
    let events = world.settle(&mut cleaner, ms("2026-01-01T00:05:00Z"));
    assert_eq!(world.deleted, ["a", "c", "d"]);
    assert_eq!(ran(&events), 1);
    assert!(cleaner.is_idle());
    assert_eq!(cleaner.next_run(&name), Some(ms("2026-01-01T00:10:00Z")));
    let status = world.statuses.last().unwrap();
    assert_eq!(status.str_at(["lastExecutionTime"]), Some("2026-01-01T00:05:00Z"));
    assert_eq!(
        world.last_condition("LastRunSucceeded"),
        Some(("True".to_owned(), "deleted 3 of 5 objects".to_owned()))
    );
    let writes = world.statuses.len();
    world.settle(&mut cleaner, ms("2026-01-01T00:07:00Z"));
    assert_eq!(world.statuses.len(), writes, "nothing is written when nothing changed");
    world.objects.insert("f".to_owned(), pod("f", "old"));
    world.settle(&mut cleaner, ms("2026-01-01T00:10:00Z"));
    assert_eq!(world.deleted.last().map(String::as_str), Some("f"));
}

#[test]
fn a_missed_run_is_made_up_once() {
    let mut cleaner = Cleaner::default();
    let mut world = World::of(&[("a", "old")]);
    let last = Time::parse_rfc3339("2026-01-01T00:01:00Z").unwrap().unix();
    cleaner.set_policies(vec![CleanupPolicy { last_run: Some(last), ..pods("* * * * *") }]);
    let now = ms("2026-01-01T06:30:10Z");
    let events = world.settle(&mut cleaner, now);
    assert_eq!((ran(&events), world.deleted.len()), (1, 1));
    assert_eq!(cleaner.next_time(), Some(ms("2026-01-01T06:31:00Z")));
}

#[test]
fn failures_never_stop_the_schedule() {
    let mut cleaner = Cleaner::default();
    let mut world =
        World::of(&[("a", "odd"), ("b", "old"), ("c", "old"), ("d", "old"), ("e", "old")]);
    world.undeletable.insert("b".to_owned(), Reason::Forbidden);
    world.undeletable.insert("c".to_owned(), Reason::Conflict);
    world.undeletable.insert("d".to_owned(), Reason::NotFound);
    cleaner.set_policies(vec![pods("* * * * *")]);
    for minute in 1..30 {
        let now = ms(&format!("2026-01-01T00:{minute:02}:00Z"));
        let events = world.settle(&mut cleaner, now);
        assert_eq!(ran(&events), 1, "minute {minute}");
        let failed = events.iter().filter(|event| matches!(event, CleanupEvent::Failed { .. }));
        assert_eq!(failed.count(), 2, "the one that cannot be judged, and the forbidden one");
        world.objects.insert("e".to_owned(), pod("e", "old"));
    }
    assert_eq!(world.deleted.len(), 29);
    let (status, message) = world.last_condition("LastRunSucceeded").unwrap();
    assert_eq!(status, "False");
    assert!(message.contains("2 failed, the first is v1/Pod/dev/a: no such field"), "{message}");
}

#[test]
fn a_list_that_fails_for_the_moment_is_tried_again_and_a_forbidden_one_is_not() {
    let mut cleaner = Cleaner::default();
    let mut world = World::of(&[("a", "old")]);
    world.failing_lists = vec![Reason::Unavailable, Reason::Unavailable];
    cleaner.set_policies(vec![pods("*/5 * * * *")]);
    let mut now = ms("2026-01-01T00:05:00Z");
    let mut runs = ran(&world.settle(&mut cleaner, now));
    while runs == 0 {
        now = cleaner.next_time().unwrap();
        runs = ran(&world.settle(&mut cleaner, now));
    }
    assert_eq!((world.lists, world.deleted.len()), (3, 1));
    assert_eq!(now, ms("2026-01-01T00:05:03Z"), "one second, then two");
    world.failing_lists = vec![Reason::Forbidden];
    let events = world.settle(&mut cleaner, ms("2026-01-01T00:10:00Z"));
    assert_eq!((world.lists, ran(&events)), (4, 1));
    let (status, message) = world.last_condition("LastRunSucceeded").unwrap();
    assert!(status == "False" && message.contains("cannot be listed"), "{message}");
    // Five failures in a row end the list, and the next run comes all the same.
    world.failing_lists = vec![Reason::Unavailable; 5];
    let mut now = ms("2026-01-01T00:15:00Z");
    while ran(&world.settle(&mut cleaner, now)) == 0 {
        now = cleaner.next_time().unwrap();
    }
    assert_eq!(world.lists, 8);
    assert_eq!(cleaner.next_time(), Some(ms("2026-01-01T00:20:00Z")));
}

#[test]
fn an_edited_policy_begins_anew_and_late_answers_do_nothing_to_it() {
    let mut cleaner = Cleaner::default();
    let mut world = World::of(&[("a", "old"), ("b", "old")]);
    cleaner.set_policies(vec![pods("*/5 * * * *")]);
    let requests: Vec<CleanupRequest> = cleaner
        .poll(ms("2026-01-01T00:05:00Z"))
        .into_iter()
        .filter(|request| matches!(request.todo, Todo::List(_)))
        .collect();
    let edited = CleanupPolicy { generation: 2, ..pods("0 * * * *") };
    cleaner.set_policies(vec![edited]);
    for request in &requests {
        let answer = world.answer(request);
        cleaner.answer(request.ticket, answer, &ByLabel, ms("2026-01-01T00:05:01Z"));
    }
    let events = world.settle(&mut cleaner, ms("2026-01-01T00:05:01Z"));
    assert_eq!((ran(&events), world.deleted.len()), (0, 0));
    assert_eq!(cleaner.next_time(), Some(ms("2026-01-01T01:00:00Z")));
    // A policy that is gone deletes nothing any more.
    cleaner.set_policies(Vec::new());
    world.settle(&mut cleaner, ms("2026-01-02T00:00:00Z"));
    assert_eq!((cleaner.next_time(), world.deleted.len()), (None, 0));
}

#[test]
fn objects_that_are_ending_are_left_alone() {
    let mut cleaner = Cleaner::default();
    let mut world = World::of(&[("a", "old")]);
    let ending = world.objects.get_mut("a").unwrap();
    ending.set(["metadata", "deletionTimestamp"], "2026-01-01T00:00:00Z").unwrap();
    cleaner.set_policies(vec![pods("* * * * *")]);
    let events = world.settle(&mut cleaner, ms("2026-01-01T00:01:00Z"));
    assert_eq!((ran(&events), world.deleted.len()), (1, 0));
}

#[test]
fn deletions_carry_the_propagation_and_lists_the_namespace_of_the_policy() {
    let mut cleaner = Cleaner::default();
    let spec = "{schedule: '* * * * *', deletionPropagationPolicy: Orphan, \
                match: {any: [{resources: {kinds: [Pod, Namespace, Deployment/scale]}}]}}";
    let refused = std::panic::catch_unwind(|| policy("CleanupPolicy", spec, 1));
    assert!(refused.is_err(), "a Namespace is in no namespace");
    let spec = spec.replace("Namespace, Deployment/scale", "'*/Deployment'");
    let mut policy = policy("CleanupPolicy", &spec, 1);
    policy.lacks = vec!["delete pods".to_owned()];
    cleaner.set_policies(vec![policy]);
    let now = ms("2026-01-01T00:01:00Z");
    let mut world = World::of(&[("a", "old")]);
    let requests = cleaner.poll(now);
    let list = requests.iter().find_map(|request| match &request.todo {
        Todo::List(Call::List { namespace, .. }) => namespace.clone(),
        _ => None,
    });
    assert_eq!(list.as_deref(), Some("dev"));
    let mut propagations = Vec::new();
    let mut pending = requests;
    while !pending.is_empty() {
        for request in std::mem::take(&mut pending) {
            if let Todo::Delete { propagation, .. } = &request.todo {
                propagations.push(*propagation);
            }
            let answer = world.answer(&request);
            cleaner.answer(request.ticket, answer, &ByLabel, now);
        }
        pending = cleaner.poll(now);
    }
    assert!(!propagations.is_empty());
    assert!(propagations.iter().all(|found| *found == Some(Propagation::Orphan)));
    assert_eq!(
        world.last_condition("Ready"),
        Some(("False".to_owned(), "missing permissions: delete pods".to_owned()))
    );
}

#[test]
fn policies_in_cel_say_it_where_their_kind_does() {
    let mut cleaner = Cleaner::default();
    let spec = "{schedule: '@every 90s', matchConstraints: {resourceRules: \
                [{apiGroups: [''], apiVersions: [v1], resources: [pods]}]}}";
    cleaner.set_policies(vec![policy("DeletingPolicy", spec, 1)]);
    let mut world = World::of(&[("a", "old")]);
    world.settle(&mut cleaner, ms("2026-01-01T00:01:59Z"));
    assert!(world.deleted.is_empty());
    world.settle(&mut cleaner, ms("2026-01-01T00:02:00Z"));
    assert_eq!(world.deleted, ["a"]);
    let status = world.statuses.last().unwrap();
    assert_eq!(status.get_path(["conditionStatus", "ready"]).and_then(Value::as_bool), Some(true));
    assert_eq!(status.str_at(["lastExecutionTime"]), Some("2026-01-01T00:02:00Z"));
    assert_eq!(cleaner.next_time(), Some(ms("2026-01-01T00:03:30Z")));
}

#[test]
fn a_status_that_cannot_be_written_is_written_later() {
    let mut cleaner = Cleaner::default();
    cleaner.set_policies(vec![pods("0 0 1 1 *")]);
    let now = ms("2026-01-01T00:01:00Z");
    let requests = cleaner.poll(now);
    assert!(matches!(requests[..], [CleanupRequest { todo: Todo::Status(_), .. }]));
    let failed = Err(ApiError::new(Reason::Unavailable, "no"));
    cleaner.answer(requests[0].ticket, failed, &ByLabel, now);
    assert!(cleaner.poll(now).is_empty());
    let again = cleaner.next_time().unwrap();
    assert_eq!(again, now + 10_000);
    assert_eq!(cleaner.poll(again).len(), 1);
}
