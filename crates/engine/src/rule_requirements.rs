//! What an object must have for a rule to apply to it, as far as that can be looked up: a name, a namespace, a label, or
//! a text at a path.
//!
//! A requirement is necessary and never sufficient: a rule that is found by one is matched as any other.

use kiln_jsonpath::JsonPathLimits;
use kiln_rules::{Filter, Filters, MatchItem, Modify, Program, Rule, Scope, ValueTest};
use kiln_text::wildcard;
use kiln_value::Str;

/// Something that an object has or not.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum RuleRequirement {
    /// The object is called so.
    Name(Str),
    /// The object, or the request, is in this namespace; a Namespace is in itself.
    Namespace(Str),
    /// The object, or the one before it, has this label.
    Label(Str, Str),
    /// There is this text at a path of members.
    Text(Vec<Str>, Str),
}

/// What a rule requires, and how much may be looked at to find out.
#[derive(Debug, Default)]
pub(crate) struct RuleRequirements {
    /// Of each list, one must hold.
    pub(crate) any_of: Vec<Vec<RuleRequirement>>,
    /// How many steps a rule may take for each value of an object before it comes to what it requires. A rule that fails
    /// by its limit on the way says so, and is not left out.
    pub(crate) steps_per_value: u64,
}

impl RuleRequirements {
    pub(crate) fn of(rule: &Rule) -> Self {
        let mut all = RuleRequirements::default();
        if let Scope::Namespace(own) = &rule.scope {
            all.any_of.push(vec![RuleRequirement::Namespace(own.clone())]);
        }
        let program = &rule.program;
        let filters = &rule.trigger.include;
        // What an object loses may end what a rule made of it, and hosts that find such rules do not always know what the
        // object had. Its name and its namespace are the same for ever.
        all.add_filters(filters, program.acts_at_admission());
        if let Program::Modify(modify) = program {
            all.add_items(modify);
        }
        all
    }

    fn add_filters(&mut self, filters: &Filters, with_labels: bool) {
        match filters {
            Filters::Any(filters) => {
                // Each filter may name something else, so each must name something.
                let firsts = filters.iter().map(|filter| of_filter(filter, with_labels));
                let chosen: Option<Vec<_>> =
                    firsts.map(|sets| sets.into_iter().min_by_key(|set| rank(set))).collect();
                if let Some(chosen) = chosen.filter(|chosen| !chosen.is_empty()) {
                    self.any_of.push(chosen.into_iter().flatten().collect());
                }
            }
            // A filter behind the first is only asked if the first holds, and that one may fail.
            Filters::All(filters) => {
                let first = filters.first();
                self.any_of.extend(first.into_iter().flat_map(|f| of_filter(f, with_labels)));
            }
        }
    }

    fn add_items(&mut self, modify: &Modify) {
        // Those objects are read before any item is asked, and a read may fail.
        if modify.asks_for_references {
            return;
        }
        for item in &modify.items {
            self.any_of.extend(of_item(item));
            let Some(steps) = item.select.steps_per_value() else { break };
            self.steps_per_value = self.steps_per_value.max(steps);
        }
    }

    /// Whether an object of so many values may exceed a limit before a requirement is asked.
    pub(crate) fn may_exceed(steps_per_value: u64, values: u64, limit: u64) -> bool {
        steps_per_value.saturating_mul(values) > limit.min(JsonPathLimits::default().steps)
    }
}

/// Labels tell more rules apart than names do, and names more than namespaces.
pub(crate) fn rank(set: &[RuleRequirement]) -> (u8, usize) {
    let kind = match set.first() {
        Some(RuleRequirement::Text(..) | RuleRequirement::Label(..)) => 0,
        Some(RuleRequirement::Name(_)) => 1,
        Some(RuleRequirement::Namespace(_)) | None => 2,
    };
    (kind, set.len())
}

fn of_filter(filter: &Filter, with_labels: bool) -> Vec<Vec<RuleRequirement>> {
    let mut sets = Vec::new();
    let mut add = |written: &[Str], requirement: fn(Str) -> RuleRequirement| {
        let exact = written.iter().all(|text| !wildcard::contains_wildcard(text));
        if exact && !written.is_empty() {
            sets.push(written.iter().cloned().map(requirement).collect());
        }
    };
    add(&filter.names, RuleRequirement::Name);
    add(&filter.namespaces, RuleRequirement::Namespace);
    if let Some(selector) = filter.selector.as_ref().filter(|_| with_labels) {
        sets.extend(selector.required_labels().map(|(key, values)| {
            let label = |value: &String| RuleRequirement::Label(key.into(), value.into());
            values.iter().map(label).collect()
        }));
    }
    sets
}

fn of_item(item: &MatchItem) -> Option<Vec<RuleRequirement>> {
    let ValueTest::Values(values) = &item.test else { return None };
    if item.negate {
        return None;
    }
    let path = item.select.members()?;
    let text = |value: &Str| RuleRequirement::Text(path.clone(), value.clone());
    Some(values.iter().map(text).collect())
}
