//! What can be wrong with rules, and how it is found in what was seen of a story.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use kiln_object::ObjectId;
use kiln_rules::{Policy, Program};
use kiln_value::Value;
use kiln_world::WorldImage;

use crate::play::{self, FAN_OUT, REST, Seen, content, difference};
use crate::story::{Action, Story};

/// What can be wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FindingKind {
    /// Rules write without end although nothing changes.
    Loop,
    /// Two writers want different values for the same field.
    Fight,
    /// One change makes rules create more and more objects.
    FanOut,
    /// A patch changes its own result.
    NotIdempotent,
    /// Policies come to another result in another order.
    OrderDependent,
    /// A downstream is deleted although its rule still wants it.
    DeletedUnexpectedly,
    /// A downstream stays although no trigger wants it.
    Orphaned,
    /// No object can make a rule run.
    NeverMatches,
    /// A rule fails on an object that lacks a field.
    MissingField,
}

impl FindingKind {
    /// The word for it in reports.
    pub fn as_str(self) -> &'static str {
        match self {
            FindingKind::Loop => "loop",
            FindingKind::Fight => "fight",
            FindingKind::FanOut => "fan-out",
            FindingKind::NotIdempotent => "not-idempotent",
            FindingKind::OrderDependent => "order-dependent",
            FindingKind::DeletedUnexpectedly => "deleted-unexpectedly",
            FindingKind::Orphaned => "orphaned",
            FindingKind::NeverMatches => "never-matches",
            FindingKind::MissingField => "missing-field",
        }
    }
}

impl fmt::Display for FindingKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Something that is wrong with rules.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    pub kind: FindingKind,
    /// The rules or policies that it is about.
    pub about: String,
    /// What was seen.
    pub message: String,
    /// What leads to it.
    pub story: Story,
}

impl Finding {
    /// Findings with the same key are the same.
    pub(crate) fn key(&self) -> (FindingKind, String) {
        (self.kind, self.about.clone())
    }
}

/// The findings in what was seen of a story.
pub(crate) fn find(
    image: &WorldImage,
    documents: &[Value],
    policies: &[Arc<Policy>],
    story: &Story,
    seen: &Seen,
) -> Vec<Finding> {
    let names: Vec<&str> = policies.iter().map(|policy| policy.id.name.as_str()).collect();
    let all = names.join(", ");
    let mut found = Vec::new();
    let mut add = |kind: FindingKind, about: &str, message: String| {
        found.push(Finding { kind, about: about.to_owned(), message, story: story.clone() });
    };
    if seen.fan_out.len() >= FAN_OUT {
        let shown = seen.fan_out.iter().take(3).cloned().collect::<Vec<_>>().join(", ");
        let count = seen.fan_out.len();
        add(FindingKind::FanOut, &all, format!("one change made {count} objects: {shown}, …"));
        return found;
    }
    let waits = |reason: &str| seen.waiting.iter().find_map(|why| why.split_once(reason));
    if let Some((rule, why)) = waits(": Contested: ") {
        add(FindingKind::Fight, rule, why.to_owned());
    } else if let Some((rule, why)) = waits(": Loop: ") {
        add(FindingKind::Loop, rule, why.to_owned());
    } else if let Some(write) = seen.restless.first() {
        let count = seen.restless.len();
        let message = format!(
            "{} s after the last change, rules still write: {write} and {} more",
            REST / 1000,
            count - 1
        );
        add(FindingKind::Loop, &all, message);
        return found;
    }
    for (rules, what) in &seen.changed_again {
        if !draws(documents) {
            let rules = rules.join(", ");
            add(
                FindingKind::NotIdempotent,
                &rules,
                format!("a write that changes nothing changes {what}"),
            );
        }
    }
    for (rule, why) in failures(seen).filter(|(_, why)| lacks_field(why)) {
        add(FindingKind::MissingField, rule, why.to_owned());
    }
    for path in &seen.made_again {
        let message = format!(
            "{path} was deleted and made again, with another UID, although no user touched it"
        );
        add(FindingKind::DeletedUnexpectedly, &all, message);
    }
    if has_order(policies) && !draws(documents) {
        order(image, documents, story, seen, &all, &mut add);
    }
    if all_synchronize(policies) && is_about_users_alone(story) && !draws(documents) {
        history(image, documents, story, seen, &all, &mut add);
    }
    found
}

/// What rules failed on, at admission and in the background: the rule, and why.
fn failures(seen: &Seen) -> impl Iterator<Item = (&str, &str)> {
    let at_admission = seen.errors.iter().map(|(rule, why)| (rule.as_str(), why.as_str()));
    let in_background = seen.waiting.iter().filter_map(|why| why.split_once(": Failed: "));
    at_admission.chain(in_background)
}

/// Whether a rule failed because a field is not there; what rules lack besides, such as a ConfigMap that they read, says
/// nothing about them.
fn lacks_field(why: &str) -> bool {
    why.contains("no such key: ") || why.contains("no key \"")
}

/// Whether policies use the time or chance: then no two results are the same.
fn draws(documents: &[Value]) -> bool {
    let text: String = documents.iter().map(kiln_value::json::to_string).collect();
    ["random(", "time_now", "time.now", "now()", "uuid", "rand"]
        .iter()
        .any(|word| text.contains(word))
}

fn has_order(policies: &[Arc<Policy>]) -> bool {
    let mutates = |policy: &&Arc<Policy>| {
        policy
            .rules
            .iter()
            .any(|rule| matches!(rule.program, Program::Mutate(_) | Program::Modify(_)))
    };
    policies.iter().filter(mutates).count() > 1
}

fn all_synchronize(policies: &[Arc<Policy>]) -> bool {
    let rules = || policies.iter().flat_map(|policy| &policy.rules);
    rules().any(|rule| matches!(rule.program, Program::Generate(_)))
        && rules()
            .filter(|rule| matches!(rule.program, Program::Generate(_)))
            .all(|rule| rule.lifecycle.synchronize)
}

/// Whether nothing in a story is about downstreams: users may do with those what they like.
fn is_about_users_alone(story: &Story) -> bool {
    !story.actions.iter().any(|one| matches!(one, Action::DeleteMade(_) | Action::EditMade(_)))
}

/// The policies by other names, so that their order is reversed.
fn reversed(documents: &[Value]) -> Vec<Value> {
    let last = documents.len();
    let renamed = documents.iter().enumerate().map(|(number, document)| {
        let mut document = document.clone();
        let name = document.str_at(["metadata", "name"]).unwrap_or_default();
        let name = format!("{:03}-{name}", last - number);
        let _ = document.set(["metadata", "name"], name.as_str());
        document
    });
    renamed.collect()
}

/// The policies by names that keep their order.
fn numbered(documents: &[Value]) -> Vec<Value> {
    let renamed = documents.iter().enumerate().map(|(number, document)| {
        let mut document = document.clone();
        let name = document.str_at(["metadata", "name"]).unwrap_or_default();
        let name = format!("{number:03}-{name}");
        let _ = document.set(["metadata", "name"], name.as_str());
        document
    });
    renamed.collect()
}

/// Plays the story with the policies in both orders.
fn order(
    image: &WorldImage,
    documents: &[Value],
    story: &Story,
    seen: &Seen,
    all: &str,
    add: &mut impl FnMut(FindingKind, &str, String),
) {
    if seen.objects.is_empty() {
        return;
    }
    let one = play::play(image, &numbered(documents), story);
    let other = play::play(image, &reversed(documents), story);
    let by_id = |seen: &Seen| -> BTreeMap<ObjectId, Value> {
        let all = seen
            .objects
            .iter()
            .filter_map(|object| Some((ObjectId::of(object).ok()?, content(object))));
        all.collect()
    };
    let (one, other) = (by_id(&one), by_id(&other));
    for (id, object) in &one {
        if let Some(there) = other.get(id).filter(|there| *there != object) {
            let what = difference(object, there);
            let message = format!("in the other order, {id} has other values: {what}");
            add(FindingKind::OrderDependent, all, message);
            return;
        }
    }
}

/// Compares the downstreams at the end with those of a cluster in which only the objects exist that are there at the end.
fn history(
    image: &WorldImage,
    documents: &[Value],
    story: &Story,
    seen: &Seen,
    all: &str,
    add: &mut impl FnMut(FindingKind, &str, String),
) {
    let mut last: BTreeMap<String, Action> = BTreeMap::new();
    let mut order: Vec<String> = Vec::new();
    for action in &story.actions {
        if let Action::Apply(object) | Action::Delete(object) | Action::Label { object, .. } =
            action
        {
            let name = kiln_object::identity::describe(object);
            order.retain(|known| *known != name);
            match action {
                Action::Delete(_) => {
                    last.remove(&name);
                }
                Action::Apply(_) => {
                    last.insert(name.clone(), action.clone());
                    order.push(name);
                }
                _ if last.contains_key(&name) => order.push(name),
                _ => {}
            }
        }
    }
    if !story.actions.iter().any(|action| matches!(action, Action::Delete(_))) {
        return;
    }
    let actions: Vec<Action> = order.iter().filter_map(|name| last.get(name).cloned()).collect();
    let fresh = play::play(image, documents, &Story { seed: story.seed, actions });
    let lost = fresh.made.keys().find(|id| !seen.made.contains_key(*id));
    let left = seen.made.keys().find(|id| !fresh.made.contains_key(*id));
    match (lost, left) {
        (Some(id), _) => {
            let message = format!("{id} is gone, although what it is made for is still there");
            add(FindingKind::DeletedUnexpectedly, all, message);
        }
        (None, Some(id)) => {
            let message = format!("{id} is still there, although what it was made for is gone");
            add(FindingKind::Orphaned, all, message);
        }
        (None, None) => {}
    }
}
