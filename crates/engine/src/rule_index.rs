//! Rules, found by what an object is instead of by asking each of them.
//!
//! Each rule is listed once for each of its kinds, under that of its requirements which the fewest other rules have. Of
//! 1,000 rules for one kind with a label each, a review asks those of the object's labels: a lookup for each label.

use std::collections::HashMap;

use kiln_object::metadata;
use kiln_rules::Rule;
use kiln_value::{Map, Str, Value};

use crate::input::event::{Event, namespace_of};
use crate::rule_requirements::{RuleRequirement, RuleRequirements, rank};

/// Where rules are, by kind and by what they require. Rules are numbers here.
#[derive(Debug, Default)]
pub(crate) struct RuleIndex {
    by_kind: HashMap<Str, KindRules>,
    /// Rules whose kinds have wildcards.
    any_kind: KindRules,
    /// See [`RuleRequirements::steps_per_value`]; the most of all rules.
    steps_per_value: u64,
}

/// The rules of one kind.
#[derive(Debug, Default)]
struct KindRules {
    /// Those that require nothing that can be looked up.
    others: Vec<usize>,
    names: HashMap<Str, Vec<usize>>,
    namespaces: HashMap<Str, Vec<usize>>,
    labels: HashMap<Str, HashMap<Str, Vec<usize>>>,
    texts: HashMap<Vec<Str>, HashMap<Str, Vec<usize>>>,
}

/// A rule that is to be found.
pub(crate) struct Entry<'r> {
    pub(crate) at: usize,
    pub(crate) rule: &'r Rule,
    /// The kinds that it is found by; all of them when there is none.
    pub(crate) kinds: Vec<Str>,
    /// It is asked about everything of its kinds.
    pub(crate) takes_all: bool,
}

/// What rules are found by.
pub(crate) struct Sought<'s> {
    kind: &'s str,
    /// The object as it is, as it was, and as a tier of rules began with it: a rule looks at one of them.
    objects: [Option<&'s Value>; 3],
    names: Vec<&'s str>,
    /// An object that is not named yet may be meant by its `generateName`.
    is_unnamed: bool,
    namespaces: Vec<Str>,
}

/// How much of what rules require is looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RuleLookup {
    /// All of it: for rules that look at the object as it is.
    Whole,
    /// Only what does not change: for rules that an object may once have met.
    Identity,
    /// Nothing: to learn why a rule does not match, ask it.
    Kind,
}

impl<'s> Sought<'s> {
    pub(crate) fn of(event: &'s Event, tier_snapshot: Option<&'s Value>) -> Self {
        let objects = [event.object.as_ref(), event.old_object.as_ref(), tier_snapshot];
        let known = || objects.iter().flatten().copied();
        let names: Vec<&str> = known().filter_map(metadata::name).collect();
        let is_unnamed = known().any(|object| metadata::name(object).is_none_or(str::is_empty));
        let mut namespaces: Vec<Str> = known()
            .map(|object| namespace_of(object).unwrap_or_default())
            .chain([event.namespace.clone().unwrap_or_default(), Str::default()])
            .collect();
        if event.kind.group.is_empty() && event.kind.kind == "Namespace" {
            namespaces.extend(names.iter().map(|name| Str::from(*name)));
        }
        namespaces.sort_unstable();
        namespaces.dedup();
        Sought { kind: &event.kind.kind, objects, names, is_unnamed, namespaces }
    }

    fn objects(&self) -> impl Iterator<Item = &'s Value> + use<'s> {
        self.objects.into_iter().flatten()
    }
}

impl RuleIndex {
    pub(crate) fn of<'r>(entries: impl IntoIterator<Item = Entry<'r>>) -> Self {
        let mut required = Vec::new();
        let mut counts: HashMap<RuleRequirement, usize> = HashMap::new();
        let mut index = RuleIndex::default();
        for entry in entries {
            let requirements = match entry.takes_all {
                true => RuleRequirements::default(),
                false => RuleRequirements::of(entry.rule),
            };
            index.steps_per_value = index.steps_per_value.max(requirements.steps_per_value);
            for requirement in requirements.any_of.iter().flatten() {
                *counts.entry(requirement.clone()).or_default() += 1;
            }
            required.push((entry, requirements.any_of));
        }
        for (entry, any_of) in required {
            // Of requirements that are equally rare, the one that is likely to tell more.
            let crowd = |set: &Vec<RuleRequirement>| {
                let others = set.iter().filter_map(|requirement| counts.get(requirement));
                (others.sum::<usize>(), rank(set))
            };
            let chosen = any_of.into_iter().min_by_key(crowd).unwrap_or_default();
            if entry.kinds.is_empty() {
                index.any_kind.list(entry.at, &chosen);
            }
            for kind in entry.kinds {
                index.by_kind.entry(kind).or_default().list(entry.at, &chosen);
            }
        }
        index
    }

    /// How much may be looked up for an object, within a limit of steps.
    pub(crate) fn lookup_within(&self, sought: &Sought<'_>, limit: u64) -> RuleLookup {
        let values = || sought.objects().map(size).max().unwrap_or_default();
        match self.steps_per_value {
            0 => RuleLookup::Whole,
            steps if RuleRequirements::may_exceed(steps, values(), limit) => RuleLookup::Identity,
            _ => RuleLookup::Whole,
        }
    }

    /// The rules that may apply, in order.
    pub(crate) fn find(&self, sought: &Sought<'_>, lookup: RuleLookup) -> Vec<usize> {
        let mut found = Vec::new();
        if let Some(rules) = self.by_kind.get(sought.kind) {
            rules.collect(sought, lookup, &mut found);
        }
        self.any_kind.collect(sought, lookup, &mut found);
        found.sort_unstable();
        found.dedup();
        found
    }
}

impl KindRules {
    fn list(&mut self, at: usize, requirements: &[RuleRequirement]) {
        if requirements.is_empty() {
            self.others.push(at);
        }
        for requirement in requirements {
            let place = match requirement {
                RuleRequirement::Name(name) => self.names.entry(name.clone()),
                RuleRequirement::Namespace(namespace) => self.namespaces.entry(namespace.clone()),
                RuleRequirement::Label(key, value) => {
                    self.labels.entry(key.clone()).or_default().entry(value.clone())
                }
                RuleRequirement::Text(path, text) => {
                    self.texts.entry(path.clone()).or_default().entry(text.clone())
                }
            };
            place.or_default().push(at);
        }
    }

    fn collect(&self, sought: &Sought<'_>, lookup: RuleLookup, found: &mut Vec<usize>) {
        found.extend(&self.others);
        let mut all = |lists: &HashMap<Str, Vec<usize>>| found.extend(lists.values().flatten());
        if lookup == RuleLookup::Kind || sought.is_unnamed {
            all(&self.names);
        }
        if lookup == RuleLookup::Kind {
            all(&self.namespaces);
        }
        if lookup != RuleLookup::Whole {
            self.labels.values().for_each(&mut all);
            self.texts.values().for_each(&mut all);
        }
        if lookup == RuleLookup::Kind {
            return;
        }
        found.extend(sought.names.iter().filter_map(|name| self.names.get(*name)).flatten());
        let namespaces = sought.namespaces.iter();
        found.extend(namespaces.filter_map(|n| self.namespaces.get(n.as_str())).flatten());
        if lookup == RuleLookup::Identity {
            return;
        }
        for object in sought.objects() {
            self.collect_by_label(metadata::labels(object), found);
            for (path, by_text) in &self.texts {
                let value = object.get_path(path.iter().map(Str::as_str));
                collect_by_text(by_text, value.unwrap_or(&Value::Null), found);
            }
        }
    }

    fn collect_by_label(&self, labels: Option<&Map>, found: &mut Vec<usize>) {
        if self.labels.is_empty() {
            return;
        }
        for (key, value) in labels.into_iter().flat_map(Map::iter) {
            if let Some(by_value) = self.labels.get(key.as_str()) {
                collect_by_text(by_value, value, found);
            }
        }
    }
}

/// What is there and no text may still be meant: matching decides how numbers, booleans and lists are read.
fn collect_by_text(by_text: &HashMap<Str, Vec<usize>>, value: &Value, found: &mut Vec<usize>) {
    match value {
        Value::Null => {}
        Value::String(text) => found.extend(by_text.get(text).into_iter().flatten()),
        _ => found.extend(by_text.values().flatten()),
    }
}

/// How many values are in a value, with a part for each text.
fn size(value: &Value) -> u64 {
    match value {
        Value::Map(map) => 1 + map.values().map(size).sum::<u64>(),
        Value::List(list) => 1 + list.iter().map(size).sum::<u64>(),
        Value::String(text) => 1 + text.len() as u64 / 16,
        _ => 1,
    }
}
