//! What happened in the cluster of the page, as its timeline shows it: requests, decisions and writes, without the
//! bookkeeping of server and engine.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kiln_controller::Waiting;
use kiln_engine::Ownership;
use kiln_object::{Kinds, ObjectId};
use kiln_rules::RuleId;
use kiln_value::Map;
use kiln_world::{TimelineEntry, TimelineEvent, World};

use crate::lineage::LinkState;

/// A cluster at one time.
#[derive(Clone, Debug, Default)]
pub(super) struct ClusterSnapshot {
    /// In milliseconds since 1970.
    pub(super) at: u64,
    pub(super) revision: u64,
    pub(super) objects: BTreeMap<ObjectId, kiln_value::Value>,
    pub(super) conditions: Vec<RuleCondition>,
    /// Objects of rules that somebody else has written since.
    pub(super) drifted: BTreeSet<ObjectId>,
}

/// Why a rule does not do its work for a trigger.
#[derive(Clone, Debug)]
pub(super) struct RuleCondition {
    pub(super) rule: RuleId,
    /// The UID of the trigger.
    pub(super) trigger: String,
    pub(super) state: LinkState,
    pub(super) message: String,
}

impl ClusterSnapshot {
    pub(super) fn of(world: &World) -> Self {
        let objects = world.objects().into_iter();
        let objects = objects.filter_map(|object| Some((ObjectId::of(&object).ok()?, object)));
        let conditions = world.conditions().into_iter().map(|(key, condition)| RuleCondition {
            rule: key.rule,
            trigger: key.trigger.to_string(),
            state: match condition.reason {
                Waiting::Contested | Waiting::Loop => LinkState::Contested,
                Waiting::Failed | Waiting::Forbidden => LinkState::Failed,
                Waiting::Unavailable | Waiting::Missing => LinkState::Waiting,
            },
            message: condition.message,
        });
        ClusterSnapshot {
            at: world.now(),
            revision: world.revision(),
            objects: objects.collect(),
            conditions: conditions.collect(),
            drifted: BTreeSet::new(),
        }
    }
}

/// Something that happened, and the cluster afterwards.
#[derive(Clone, Debug)]
pub(super) struct TimeFrame {
    at: u64,
    actor: String,
    verb: String,
    object: Option<ObjectId>,
    outcome: String,
    is_refused: bool,
    pub(super) after: Arc<ClusterSnapshot>,
}

impl TimeFrame {
    pub(super) fn is_about(&self, id: &ObjectId) -> bool {
        self.object.as_ref().is_some_and(|object| object.same_object(id))
    }

    fn says(&self, other: &TimeFrame) -> bool {
        (&self.verb, &self.object, &self.outcome) == (&other.verb, &other.object, &other.outcome)
    }

    /// One line of text.
    pub(super) fn line(&self, began: u64) -> String {
        let parts =
            [seconds(self.at, began), self.actor.clone(), self.verb.clone(), self.outcome.clone()];
        parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ")
    }

    pub(super) fn as_fields(&self, began: u64) -> Map {
        let object = self.object.as_ref().map(ToString::to_string).unwrap_or_default();
        let mut fields = Map::from_iter([
            ("time", seconds(self.at, began)),
            ("actor", self.actor.clone()),
            ("verb", self.verb.clone()),
            ("object", object),
            ("outcome", self.outcome.clone()),
        ]);
        fields.insert("refused", self.is_refused);
        fields
    }
}

/// The time since the beginning, in seconds.
fn seconds(at: u64, began: u64) -> String {
    let past = at.saturating_sub(began);
    format!("{}.{} s", past / 1000, past % 1000 / 100)
}

/// The frames of entries. `after` learns which objects have drifted.
pub(super) fn frames_of(
    entries: &[TimelineEntry],
    kinds: &Kinds,
    before: &ClusterSnapshot,
    after: &mut ClusterSnapshot,
) -> Vec<TimeFrame> {
    after.drifted = before.drifted.clone();
    let mut told: BTreeSet<ObjectId> = BTreeSet::new();
    let mut frames = Vec::new();
    for entry in entries {
        if let TimelineEvent::Write { by, path, status, .. } = &entry.what
            && let Some(id) = object_at(path, kinds)
        {
            let is_claimed =
                after.objects.get(&id).is_some_and(|object| Ownership::read(object).is_some());
            if is_engine(by) {
                after.drifted.remove(&id);
            } else if is_claimed && *status < 300 {
                after.drifted.insert(id.clone());
            }
            told.insert(id);
        }
        let frame = frame_of(entry, kinds);
        // An Event about a policy says the same as the one about its trigger.
        let is_new = |frame: &TimeFrame| {
            let last = frames.last();
            last.is_none_or(|last: &TimeFrame| frame.outcome.is_empty() || !last.says(frame))
        };
        frames.extend(frame.filter(is_new));
    }
    after.drifted.retain(|id| after.objects.contains_key(id));
    // What built-in controllers did: deleted dependents, default objects of namespaces.
    let gone = before.objects.keys().filter(|id| !after.objects.contains_key(id));
    let come = after.objects.keys().filter(|id| !before.objects.contains_key(id));
    let changes = gone.map(|id| (id, "delete")).chain(come.map(|id| (id, "create")));
    for (id, verb) in changes.filter(|(id, _)| !told.contains(id) && !is_bookkeeping(id)) {
        frames.push(TimeFrame {
            at: after.at,
            actor: "Kubernetes".to_owned(),
            verb: verb.to_owned(),
            object: Some(id.clone()),
            outcome: String::new(),
            is_refused: false,
            after: Arc::default(),
        });
    }
    frames
}

fn frame_of(entry: &TimelineEntry, kinds: &Kinds) -> Option<TimeFrame> {
    let mut frame = TimeFrame {
        at: entry.at,
        actor: "Kiln".to_owned(),
        verb: String::new(),
        object: None,
        outcome: String::new(),
        is_refused: false,
        after: Arc::default(),
    };
    match &entry.what {
        TimelineEvent::Write { by, verb, path, status, message, .. } => {
            let object = object_at(path, kinds)?;
            let is_status = path.ends_with("/status");
            if is_engine(by) && (is_status || is_bookkeeping(&object)) {
                return None;
            }
            frame.actor = if is_engine(by) { "Kiln".to_owned() } else { "you".to_owned() };
            frame.verb = (*verb).to_owned();
            frame.object = Some(object);
            frame.is_refused = *status >= 400;
            frame.outcome = if frame.is_refused { message.clone() } else { String::new() };
        }
        TimelineEvent::Review { operation, object, outcome, rules, message, .. } => {
            let speaks = !rules.is_empty() || !matches!(*outcome, "allowed" | "skipped");
            if !speaks || is_bookkeeping(object) {
                return None;
            }
            frame.verb = format!("{outcome} {operation}");
            frame.object = Some(object.clone());
            frame.is_refused = *outcome == "denied";
            let words = [rules.join(", "), message.clone()];
            frame.outcome =
                words.into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join(": ");
        }
        TimelineEvent::Told { message, .. } => {
            frame.verb = "reports".to_owned();
            frame.outcome.clone_from(message);
        }
        TimelineEvent::Jumped { milliseconds } if *milliseconds >= 1_000 => {
            frame.actor = "time".to_owned();
            frame.verb = "passes".to_owned();
            frame.outcome = format!("{} s", milliseconds / 1_000);
        }
        _ => return None,
    }
    Some(frame)
}

fn is_engine(user: &str) -> bool {
    user.starts_with("system:")
}

/// Kinds that server and engine keep for themselves.
pub(super) fn is_bookkeeping(id: &ObjectId) -> bool {
    matches!(
        id.gvk.kind.as_str(),
        "Lease"
            | "Event"
            | "EndpointSlice"
            | "UpdateRequest"
            | "MutatingWebhookConfiguration"
            | "ValidatingWebhookConfiguration"
    ) || id.namespace == "kyverno"
}

/// The object at a path of the API server.
fn object_at(path: &str, kinds: &Kinds) -> Option<ObjectId> {
    let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
    let (group, version, rest) = match parts.as_slice() {
        ["api", version, rest @ ..] => ("", *version, rest),
        ["apis", group, version, rest @ ..] => (*group, *version, rest),
        _ => return None,
    };
    let (namespace, plural, name) = match rest {
        ["namespaces", namespace, plural, name, ..]
            if *plural != "status" && *plural != "finalize" =>
        {
            (*namespace, *plural, *name)
        }
        [plural, name, ..] => ("", *plural, *name),
        [plural] => ("", *plural, ""),
        [] => return None,
    };
    let kind = kinds.by_resource(group, version, plural)?;
    Some(ObjectId::new(kind.gvk(), namespace, name))
}
