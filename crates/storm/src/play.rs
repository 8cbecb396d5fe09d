//! A story in a world, and what was seen of it.

use std::collections::{BTreeMap, BTreeSet};

use kiln_object::{Gvk, ObjectId, metadata};
use kiln_value::{Value, json, value};
use kiln_world::{
    ApiRequest, Authorization, ObjectPatch, Stepped, TimelineEntry, TimelineEvent, World,
    WorldImage, WorldOptions,
};

use crate::story::{Action, Story};

/// How long a cluster is left alone at the end of a story, in milliseconds: everything must have come to rest by then.
pub(crate) const REST: u64 = 150_000;
/// How long it takes until a new process leads in the place of one that died, in milliseconds.
const RESTART: u64 = 30_000;
/// So many objects of one action are more than a rule means to make.
pub(crate) const FAN_OUT: usize = 40;
/// So many writes of one action are more than a rule needs.
const MOST_WRITES: usize = 400;

/// So many turns without an end go round in a circle.
const MOST_TURNS: usize = 4_000;

/// What was seen of a story.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    /// The objects of the user that are there at the end, as they are stored.
    pub(crate) objects: Vec<Value>,
    /// The objects that rules made and that are there at the end, by what they are.
    pub(crate) made: BTreeMap<ObjectId, Value>,
    /// Objects that rules made, deleted and made again although no user touched them.
    pub(crate) made_again: BTreeSet<String>,
    /// The most objects that rules made because of one action, and their paths.
    pub(crate) fan_out: Vec<String>,
    /// What the engine still wrote after a rest.
    pub(crate) restless: Vec<String>,
    /// What rules wait for, or cannot do.
    pub(crate) waiting: Vec<String>,
    /// Rules that change a stored object again when nothing else changes; the object, and the fields.
    pub(crate) changed_again: Vec<(Vec<String>, String)>,
    /// What rules failed on: the rule, and why.
    pub(crate) errors: Vec<(String, String)>,
}

/// Who installs the policies gives the engine the permissions that they need.
fn options(seed: u64) -> WorldOptions {
    WorldOptions { seed, authorization: Authorization::AlwaysAllow, ..WorldOptions::default() }
}

/// Whether a cluster takes the policies.
pub(crate) fn check_policies(image: &WorldImage, policies: &[Value]) -> Result<(), String> {
    put_policies(&mut World::new(&options(0), image), policies)
}

/// Puts policies on a cluster, with their namespaces; what it refuses.
fn put_policies(world: &mut World, policies: &[Value]) -> Result<(), String> {
    for policy in policies {
        let namespace = metadata::namespace(policy).filter(|name| *name != "default");
        let home = namespace.map(
            |name| value!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}),
        );
        for object in home.iter().chain([policy]) {
            world.apply(object, "default").map_err(|error| {
                let what = kiln_object::identity::describe(object);
                format!("the cluster refuses {what}: {}", error.message)
            })?;
            let now = world.now();
            settle(world, now);
        }
    }
    Ok(())
}

/// Plays a story.
pub(crate) fn play(image: &WorldImage, policies: &[Value], story: &Story) -> Seen {
    let mut stage = Stage {
        world: World::new(&options(story.seed), image),
        applied: BTreeMap::new(),
        made: BTreeMap::new(),
        touched: BTreeSet::new(),
        deleted: BTreeSet::new(),
        triggers_went: false,
        seen: Seen::default(),
    };
    // A cluster that refused one would not have come this far.
    let _ = put_policies(&mut stage.world, policies);
    for action in &story.actions {
        stage.act(action);
        if stage.seen.fan_out.len() >= FAN_OUT {
            return stage.seen;
        }
    }
    stage.rest();
    stage.seen
}

/// Lets everything happen until a time; false if that has no end, be it a circle or more and more objects.
fn settle(world: &mut World, until: u64) -> bool {
    let (_, from) = world.timeline(usize::MAX);
    for turn in 1..=MOST_TURNS {
        if world.step(until) == Stepped::Quiet {
            return world.run_until(until);
        }
        if turn % 100 == 0 {
            let (entries, _) = world.timeline(from);
            let created =
                entries.iter().filter_map(engine_write).filter(|(verb, _)| *verb == "create");
            if created.count() >= FAN_OUT {
                return false;
            }
        }
    }
    false
}

struct Stage {
    world: World,
    /// The objects of the user, by what they are, as they were last written.
    applied: BTreeMap<ObjectId, Value>,
    /// The paths of objects that rules made, and how often.
    made: BTreeMap<String, usize>,
    /// The paths of objects that the user deleted or changed.
    touched: BTreeSet<String>,
    /// The paths of objects that rules deleted while the user deleted nothing.
    deleted: BTreeSet<String>,
    /// Whether the user deleted something, with which downstreams go and come again.
    triggers_went: bool,
    seen: Seen,
}

impl Stage {
    fn act(&mut self, action: &Action) {
        let (_, from) = self.world.timeline(usize::MAX);
        match action {
            Action::Apply(object) => self.apply(object),
            Action::Label { object, key, value } => {
                let Some(mut object) = self.applied.get(&id_of(object)).cloned() else { return };
                let _ = object.set(["metadata", "labels", key.as_str()], value.as_str());
                self.apply(&object);
            }
            Action::Delete(object) => {
                let id = id_of(object);
                self.applied.remove(&id);
                self.triggers_went = true;
                let _ = self.world.delete(&id);
            }
            Action::DeleteMade(number) => {
                if let Some(id) = self.made_object(*number) {
                    let _ = self.world.delete(&id);
                }
            }
            Action::EditMade(number) => {
                if let Some(id) = self.made_object(*number) {
                    let label = value!({"metadata": {"labels": {"storm": "edited"}}});
                    let _ = self.world.patch(&id, ObjectPatch::Merge(label));
                }
            }
            Action::Restart => {
                self.world.restart(0);
                // What comes while no process leads is no question of the rules.
                let until = self.world.now() + RESTART;
                settle(&mut self.world, until);
            }
            Action::Wait(seconds) => {
                let until = self.world.now() + seconds * 1000;
                settle(&mut self.world, until);
            }
        }
        let now = self.world.now();
        settle(&mut self.world, now);
        self.look(from);
    }

    fn apply(&mut self, object: &Value) {
        let id = id_of(object);
        if self.world.apply(object, "default").is_err() {
            return;
        }
        self.applied.insert(id.clone(), object.clone());
        let now = self.world.now();
        settle(&mut self.world, now);
        self.write_again(&id);
    }

    /// Writes a stored object again as it is, and once more what came of it, as dry runs: rules at admission should have
    /// nothing to change then. A rule about updates alone may change what was created, but not its own result.
    fn write_again(&mut self, id: &ObjectId) {
        let Some(path) = self.world.path_of(id) else { return };
        let stored = self.world.send(ApiRequest::new("GET", &path)).value();
        let Some(updated) = self.dry_run(&path, &stored) else { return };
        if is_same(&stored, &updated) {
            return;
        }
        let (_, from) = self.world.timeline(usize::MAX);
        let Some(again) = self.dry_run(&path, &updated) else { return };
        if is_same(&updated, &again) {
            return;
        }
        let (entries, _) = self.world.timeline(from);
        let patched = entries.iter().filter_map(|entry| match &entry.what {
            TimelineEvent::Review { outcome: "patched", rules, .. } => Some(rules),
            _ => None,
        });
        let rules: Vec<String> = patched
            .flatten()
            .filter_map(|rule| rule.strip_suffix(": pass").map(str::to_owned))
            .collect();
        if !rules.is_empty() {
            let fields = difference(&content(&updated), &content(&again));
            self.seen.changed_again.push((rules, format!("{id}: {fields}")));
        }
    }

    /// What would be stored if an object were written; none if the server refuses it.
    fn dry_run(&self, path: &str, object: &Value) -> Option<Value> {
        let mut object = object.clone();
        // What a dry run answers was never stored.
        object.remove(["metadata", "resourceVersion"]);
        let write = ApiRequest::new("PUT", &format!("{path}?dryRun=All"))
            .with_body("application/json", json::to_string(&object));
        let response = self.world.send(write);
        (response.status < 300).then(|| response.value())
    }

    /// The object with a number among those that rules made and that are there.
    fn made_object(&mut self, number: u64) -> Option<ObjectId> {
        let there: Vec<(String, ObjectId)> = self.made_now().into_iter().collect();
        let at = usize::try_from(number).ok()?.checked_rem(there.len().max(1))?;
        let (path, id) = there.get(at).cloned()?;
        self.touched.insert(path);
        Some(id)
    }

    /// The objects that rules made and that are there, by their paths.
    fn made_now(&self) -> BTreeMap<String, ObjectId> {
        let there = self.made.keys().filter_map(|path| {
            let found = self.world.send(ApiRequest::new("GET", path));
            let id = (found.status == 200).then(|| ObjectId::of(&found.value()).ok()).flatten()?;
            Some((path.clone(), id))
        });
        there.collect()
    }

    /// Looks at what the engine did since an entry of the timeline.
    fn look(&mut self, from: usize) {
        let (entries, _) = self.world.timeline(from);
        let mut created = Vec::new();
        for (verb, path) in entries.iter().filter_map(engine_write) {
            match verb {
                "create" => {
                    created.push(path.clone());
                    let times = self.made.entry(path.clone()).or_default();
                    *times += 1;
                    if self.deleted.remove(&path) && !self.touched.contains(&path) {
                        self.seen.made_again.insert(path);
                    }
                }
                "delete" if !self.triggers_went => {
                    self.deleted.insert(path);
                }
                _ => {}
            }
        }
        self.collect_errors(&entries);
        if created.len() > self.seen.fan_out.len() {
            self.seen.fan_out = created;
        }
    }

    fn collect_errors(&mut self, entries: &[TimelineEntry]) {
        for entry in entries {
            if let TimelineEvent::Review { rules, .. } = &entry.what {
                for (rule, why) in rules.iter().filter_map(|rule| rule.split_once(": error: ")) {
                    self.seen.errors.push((rule.to_owned(), why.to_owned()));
                }
            }
        }
    }

    /// Leaves the cluster alone, and looks whether it comes to rest.
    fn rest(&mut self) {
        let until = self.world.now() + REST;
        let rests = settle(&mut self.world, until);
        let (_, from) = self.world.timeline(usize::MAX);
        let until = self.world.now() + REST;
        let rests = settle(&mut self.world, until) && rests;
        let (entries, _) = self.world.timeline(from);
        let writes: Vec<String> = entries
            .iter()
            .filter_map(engine_write)
            .map(|(verb, path)| format!("{verb} {path}"))
            .collect();
        if !rests || !writes.is_empty() {
            self.seen.restless = writes.into_iter().take(MOST_WRITES).collect();
            if self.seen.restless.is_empty() {
                self.seen.restless.push("the engine goes round in a circle".to_owned());
            }
        }
        self.seen.waiting = self.world.waiting();
        self.look(from);
        for (path, id) in self.made_now() {
            let object = self.world.send(ApiRequest::new("GET", &path)).value();
            self.seen.made.insert(id, object);
        }
        let there = self.applied.keys().filter_map(|id| self.world.get(id).ok().flatten());
        self.seen.objects = there.collect();
    }
}

/// A write of the engine to an object of users, which was carried out.
fn engine_write(entry: &TimelineEntry) -> Option<(&'static str, String)> {
    let TimelineEvent::Write { by, verb, path, status, .. } = &entry.what else { return None };
    let is_engine = by.starts_with("system:serviceaccount:kyverno:");
    let is_own = path.contains("/namespaces/kyverno/")
        || path.contains("/apis/events.k8s.io/")
        || path.contains("/apis/wgpolicyk8s.io/")
        || path.contains("/apis/admissionregistration.k8s.io/")
        || path.ends_with("/status");
    let is_cleanup = by.ends_with("kyverno-cleanup-controller");
    (is_engine && !is_own && !is_cleanup && *status < 300).then(|| (*verb, path.clone()))
}

fn id_of(object: &Value) -> ObjectId {
    let gvk = Gvk::of(object).unwrap_or_default();
    let namespace = metadata::namespace(object).unwrap_or_default();
    ObjectId::new(gvk, namespace, metadata::name(object).unwrap_or_default())
}

/// Whether two states of an object are the same, but for what every write changes.
pub(crate) fn is_same(one: &Value, other: &Value) -> bool {
    content(one) == content(other)
}

/// An object without what the server writes.
pub(crate) fn content(object: &Value) -> Value {
    let mut object = object.clone();
    object.remove(["status"]);
    for field in ["resourceVersion", "managedFields", "generation", "uid", "creationTimestamp"] {
        object.remove(["metadata", field]);
    }
    object
}

/// The fields in which two values differ, in words.
pub(crate) fn difference(one: &Value, other: &Value) -> String {
    let mut found = Vec::new();
    differ(one, other, &mut String::new(), &mut found);
    found.truncate(3);
    found.join("; ")
}

fn differ(one: &Value, other: &Value, path: &mut String, found: &mut Vec<String>) {
    if one == other || found.len() > 3 {
        return;
    }
    match (one, other) {
        (Value::Map(a), Value::Map(b)) => {
            let keys: BTreeSet<&str> =
                a.keys().chain(b.keys()).map(kiln_value::Key::as_str).collect();
            for key in keys {
                let length = path.len();
                path.push('.');
                path.push_str(key);
                let null = Value::Null;
                differ(a.get(key).unwrap_or(&null), b.get(key).unwrap_or(&null), path, found);
                path.truncate(length);
            }
        }
        _ => {
            let short = |value: &Value| json::to_string(value).chars().take(80).collect::<String>();
            let at = path.trim_start_matches('.');
            found.push(format!("{at} is {}, then {}", short(one), short(other)));
        }
    }
}
