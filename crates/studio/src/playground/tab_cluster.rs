//! A whole cluster in the page, in logical time: API server, engine and built-in controllers.
//!
//! Everything that happens becomes a frame with the cluster as it was afterwards, so that a user can go back without
//! running anything again: objects are shared between frames.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kiln_controller::provenance::Provenance;
use kiln_diagnostic::Diagnostic;
use kiln_object::{Kinds, ObjectId, metadata};
use kiln_offline::objects_of;
use kiln_value::{Map, Value, value};
use kiln_world::{Stepped, World, WorldImage, WorldOptions};
use kiln_yaml::{Document, ReadOptions, emit, read_bytes};

use super::frames::{ClusterSnapshot, TimeFrame, frames_of, is_bookkeeping};
use super::workspace::{FileRole, Workspace};
use crate::cluster_value::{is_listed, lineage_as_value, listing_as_value, named_object};
use crate::lineage::{Lineage, LineageLink, LinkState, link_of_claim};
use crate::object_name::{ObjectName, RuleName};
use crate::secret_values::hide_secret_values;

/// How much logical time passes at most after a change, in milliseconds.
const RUN_TIME: u64 = 60_000;
/// The most steps after a change: what is not done by then goes round in a circle.
const MOST_STEPS: usize = 20_000;
/// The most frames that are kept; the oldest go.
const MOST_FRAMES: usize = 3_000;

/// A cluster with its history.
#[derive(Debug)]
pub(super) struct TabCluster {
    world: World,
    kinds: Kinds,
    /// What the installation brought: it is not listed as long as nothing changes it.
    installed: BTreeMap<ObjectId, Value>,
    /// When it began, in milliseconds since 1970.
    began: u64,
    /// The cluster before the first frame.
    start: Arc<ClusterSnapshot>,
    frames: Vec<TimeFrame>,
    /// How many frames have happened, of those that are kept, in what is shown.
    position: usize,
    /// How many frames were dropped.
    dropped: usize,
    /// The number of the next entry of the world's timeline.
    seen: usize,
    /// Whether nothing happens after a change until the user steps.
    is_paused: bool,
}

impl TabCluster {
    /// A cluster with the files of a workspace: first what rules read, then policies, then the triggers.
    ///
    /// # Errors
    /// When a file cannot be read, or holds something else than objects.
    pub(super) fn start(image: &WorldImage, workspace: &Workspace) -> Result<Self, Diagnostic> {
        let world = World::new(&WorldOptions::default(), image);
        let kinds = world.kinds();
        let start = Arc::new(ClusterSnapshot::of(&world));
        let (installed, began) = (start.objects.clone(), start.at);
        let (_, seen) = world.timeline(0);
        let mut cluster = TabCluster {
            world,
            kinds,
            installed,
            began,
            start,
            frames: Vec::new(),
            position: 0,
            dropped: 0,
            seen,
            is_paused: false,
        };
        let read = |role: FileRole| objects_in(workspace, role);
        let (before, policies, triggers) =
            (read(FileRole::Cluster)?, read(FileRole::Policies)?, read(FileRole::Resources)?);
        let all = || before.iter().chain(&triggers);
        let namespaces = missing_namespaces(all());
        for object in all().filter(|object| is_definition(object)).chain(&namespaces) {
            cluster.give(object);
        }
        for objects in [&before, &policies, &triggers] {
            let (namespaces, others): (Vec<&Value>, Vec<&Value>) = objects
                .iter()
                .filter(|object| !is_definition(object))
                .partition(|object| is_kind(object, "Namespace"));
            for object in namespaces.into_iter().chain(others) {
                cluster.give(object);
            }
            cluster.run();
        }
        Ok(cluster)
    }

    /// Answers a call of the web application.
    ///
    /// # Errors
    /// What the server refuses, and calls that are not known.
    pub(super) fn call(&mut self, method: &str, request: &Value) -> Result<Value, Diagnostic> {
        match method {
            "cluster.list" => Ok(self.list()),
            "cluster.get" => self.get(&named_object(request)?),
            "cluster.lineage" => Ok(lineage_as_value(&self.lineage(), request)),
            "cluster.timeline" => Ok(self.timeline()),
            "cluster.seek" => {
                let step = request.get("step").and_then(Value::as_i64).unwrap_or(0);
                self.position = usize::try_from(step).unwrap_or(0).min(self.frames.len());
                Ok(self.timeline())
            }
            "cluster.step" => {
                self.step();
                Ok(self.timeline())
            }
            "cluster.pause" => {
                self.is_paused = request.get("paused").and_then(Value::as_bool).unwrap_or(true);
                if !self.is_paused {
                    self.run();
                }
                Ok(self.timeline())
            }
            "cluster.apply" => self.apply(request.str_at(["yaml"]).unwrap_or_default()),
            "cluster.delete" => {
                let id = named_object(request)?;
                let deleted = self.world.delete(&id);
                self.record();
                deleted.map_err(|error| Diagnostic::error(format!("{id}: {}", error.message)))?;
                self.after_change();
                Ok(message(&format!("deleted {id}")))
            }
            method => Err(Diagnostic::error(format!("there is no method {method:?}"))),
        }
    }

    fn shown(&self) -> &ClusterSnapshot {
        match self.position.checked_sub(1).and_then(|at| self.frames.get(at)) {
            Some(frame) => &frame.after,
            None => &self.start,
        }
    }

    fn newest(&self) -> Arc<ClusterSnapshot> {
        Arc::clone(self.frames.last().map_or(&self.start, |frame| &frame.after))
    }

    /// The objects that are shown: without what the installation brought.
    fn objects(&self) -> impl Iterator<Item = (&ObjectId, &Value)> {
        self.shown().objects.iter().filter(|(id, object)| {
            is_listed(&id.gvk)
                && !is_bookkeeping(id)
                && self.installed.get(id).is_none_or(|known| differs(known, object))
        })
    }

    fn list(&self) -> Value {
        let objects: Vec<&Value> = self.objects().map(|(_, object)| object).collect();
        let total = objects.len();
        listing_as_value(objects, total, &[])
    }

    fn get(&self, id: &ObjectId) -> Result<Value, Diagnostic> {
        let object = self.shown().objects.get(id);
        let mut shown = object.cloned();
        hide_secret_values(id, None, shown.as_mut());
        if let Some(shown) = &mut shown {
            let _ = shown.remove(["metadata", "managedFields"]);
        }
        let mut explain = Vec::new();
        if let Some(made) = object.and_then(Provenance::read) {
            let labels = made.labels();
            let rule = labels.rule.as_deref().unwrap_or_default();
            explain.push(format!("made by policy {}, rule {rule}", labels.policy));
            explain.extend(made.trigger().map(|trigger| format!("  for {trigger}")));
            explain.extend(made.sources().iter().map(|source| format!("  from {source}")));
        }
        let uid = object.and_then(|object| object.str_at(["metadata", "uid"]));
        explain.extend(self.shown().conditions.iter().filter_map(|condition| {
            let is_own = uid == Some(condition.trigger.as_str());
            is_own.then(|| format!("{} waits: {}", condition.rule, condition.message))
        }));
        let history = self.frames.iter().take(self.position).filter(|frame| frame.is_about(id));
        let mut history = history.map(|frame| frame.line(self.began)).peekable();
        if history.peek().is_some() {
            explain.push("history:".to_owned());
            explain.extend(history.map(|line| format!("  {line}")));
        }
        Ok(Value::from(Map::from_iter([
            ("yaml", Value::from(shown.map(|shown| emit(&shown)).unwrap_or_default())),
            ("explain", Value::from(explain.join("\n"))),
            ("exists", Value::from(object.is_some())),
        ])))
    }

    fn lineage(&self) -> Lineage {
        let shown = self.shown();
        let names: BTreeMap<&str, &ObjectId> = shown
            .objects
            .iter()
            .filter_map(|(id, object)| Some((object.str_at(["metadata", "uid"])?, id)))
            .collect();
        let mut links: Vec<LineageLink> = shown
            .objects
            .iter()
            .filter_map(|(id, object)| {
                let state = match shown.drifted.contains(id) {
                    true => LinkState::Drifted,
                    false => LinkState::InStep,
                };
                link_of_claim(id, object, state, None)
            })
            .collect();
        for condition in &shown.conditions {
            let trigger = names.get(condition.trigger.as_str()).map(|id| ObjectName::from(*id));
            let rule = RuleName::from(&condition.rule);
            let own = |link: &LineageLink| link.rule == rule && link.trigger == trigger;
            let mut found = false;
            for link in links.iter_mut().filter(|link| own(link)) {
                (link.state, link.why) = (condition.state, Some(condition.message.clone()));
                found = true;
            }
            if !found {
                links.push(LineageLink {
                    rule,
                    trigger,
                    sources: Vec::new(),
                    object: None,
                    state: condition.state,
                    why: Some(condition.message.clone()),
                });
            }
        }
        Lineage::new(links)
    }

    fn timeline(&self) -> Value {
        let entries = self.frames.iter().enumerate().map(|(at, frame)| {
            let mut fields = frame.as_fields(self.began);
            fields.insert("step", at + 1);
            Value::from(fields)
        });
        Value::from(Map::from_iter([
            ("entries", entries.collect()),
            ("position", Value::from(self.position)),
            ("end", Value::from(self.frames.len())),
            ("dropped", Value::from(self.dropped)),
            ("paused", Value::from(self.is_paused)),
        ]))
    }

    fn apply(&mut self, text: &str) -> Result<Value, Diagnostic> {
        let documents = read_bytes("applied", text.as_bytes(), ReadOptions::kubernetes())?;
        let objects = objects_of(documents).map_err(first_problem)?;
        let count = objects.len();
        for object in &objects {
            if let Err(why) = self.write(object) {
                self.after_change();
                return Err(Diagnostic::error(why));
            }
        }
        self.after_change();
        match count {
            0 => Err(Diagnostic::error("there is nothing to apply")),
            1 => Ok(message("applied 1 object")),
            count => Ok(message(&format!("applied {count} objects"))),
        }
    }

    /// Writes an object of the files; what the server refuses is in the timeline.
    fn give(&mut self, object: &Value) {
        let _ = self.write(object);
    }

    /// Writes an object as `kubectl apply` does; what the server says against it.
    fn write(&mut self, object: &Value) -> Result<(), String> {
        let applied = self.world.apply(object, "default");
        self.record();
        if is_definition(object) {
            self.kinds = self.world.kinds();
        }
        let what = kiln_object::identity::describe(object);
        applied.map(drop).map_err(|error| format!("{what}: {}", error.message))
    }

    fn after_change(&mut self) {
        if !self.is_paused {
            self.run();
        }
    }

    /// Lets everything happen that is to happen.
    fn run(&mut self) {
        let limit = self.world.now() + RUN_TIME;
        for _ in 0..MOST_STEPS {
            if self.advance(limit) == Stepped::Quiet {
                break;
            }
        }
    }

    /// Does the next things, until there is a frame more or nothing is to be done.
    fn step(&mut self) {
        let limit = self.world.now() + RUN_TIME;
        let before = self.frames.len();
        for _ in 0..MOST_STEPS {
            if self.advance(limit) == Stepped::Quiet || self.frames.len() > before {
                return;
            }
        }
    }

    fn advance(&mut self, limit: u64) -> Stepped {
        let stepped = self.world.step(limit);
        self.record();
        if stepped == Stepped::Quiet
            && let Some(last) = self.frames.last_mut()
            && !last.after.drifted.is_empty()
        {
            // What the engine leaves as it is, it wants so.
            let mut settled = ClusterSnapshot::clone(&last.after);
            settled.drifted = BTreeSet::new();
            last.after = Arc::new(settled);
        }
        stepped
    }

    /// Takes in what happened since the last frame.
    fn record(&mut self) {
        let (entries, next) = self.world.timeline(self.seen);
        self.seen = next;
        let newest = self.newest();
        if entries.is_empty() && newest.revision == self.world.revision() {
            return;
        }
        let mut after = ClusterSnapshot::of(&self.world);
        let mut frames = frames_of(&entries, &self.kinds, &newest, &mut after);
        let after = Arc::new(after);
        match frames.is_empty() {
            // Bookkeeping belongs to what went before.
            true => match self.frames.last_mut() {
                Some(last) => last.after = after,
                None => self.start = after,
            },
            false => {
                for frame in &mut frames {
                    frame.after = Arc::clone(&after);
                }
                self.frames.append(&mut frames);
            }
        }
        let over = self.frames.len().saturating_sub(MOST_FRAMES);
        if over > 0 {
            self.start = Arc::clone(&self.frames[over - 1].after);
            self.frames.drain(..over);
            self.dropped += over;
        }
        self.position = self.frames.len();
    }
}

fn message(text: &str) -> Value {
    Value::from(Map::from_iter([("message", text)]))
}

fn first_problem(mut problems: Vec<Diagnostic>) -> Diagnostic {
    problems.swap_remove(0)
}

fn is_definition(object: &Value) -> bool {
    is_kind(object, "CustomResourceDefinition")
}

fn is_kind(object: &Value, kind: &str) -> bool {
    object.str_at(["kind"]) == Some(kind)
}

/// Whether more than the bookkeeping of the server changed.
fn differs(before: &Value, after: &Value) -> bool {
    let content = |object: &Value| {
        let mut object = object.clone();
        for field in ["resourceVersion", "managedFields", "generation"] {
            let _ = object.remove(["metadata", field]);
        }
        let _ = object.remove(["status"]);
        object
    };
    before != after && content(before) != content(after)
}

fn objects_in(workspace: &Workspace, role: FileRole) -> Result<Vec<Value>, Diagnostic> {
    let mut problems = Vec::new();
    let documents: Vec<Document> = workspace.documents(role, &mut problems);
    match problems.is_empty() {
        true => objects_of(documents).map_err(first_problem),
        false => Err(first_problem(problems)),
    }
}

/// The namespaces that objects are in and that are not among them.
fn missing_namespaces<'o>(objects: impl Iterator<Item = &'o Value> + Clone) -> Vec<Value> {
    let given: BTreeSet<&str> = objects
        .clone()
        .filter(|object| is_kind(object, "Namespace"))
        .filter_map(metadata::name)
        .collect();
    let known = ["default", "kube-system", "kube-public", "kube-node-lease", "kyverno"];
    let used: BTreeSet<&str> = objects.filter_map(metadata::namespace).collect();
    let missing = used.into_iter().filter(|name| !given.contains(name) && !known.contains(name));
    missing
        .map(|name| value!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}))
        .collect()
}
