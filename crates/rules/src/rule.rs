//! Rules and the policies that hold them.

use std::sync::Arc;

use kiln_object::Kinds;
use kiln_value::Str;
use kiln_variables::{Conditions, Template};

use crate::{
    ContextEntry, Delivery, Emission, KindPattern, Lifecycle, Origin, PolicyId, Program,
    RequestFacts, RuleId, Scope, Script, Trigger,
};

/// One compiled unit of any language.
///
/// Everything that makes languages differ is a field of the rule or of one of its parts, so that code that
/// runs it never asks where it came from.
#[derive(Clone, Debug)]
pub struct Rule {
    /// Its name, the same from one run to the next.
    pub id: RuleId,
    /// What fires it.
    pub trigger: Trigger,
    /// How far it reaches.
    pub scope: Scope,
    /// Named values.
    pub context: Vec<ContextEntry>,
    /// What must hold besides the match, if anything.
    pub guard: Option<Conditions>,
    /// Named values and conditions in CEL, for rules whose expressions are in CEL.
    pub script: Option<Arc<Script>>,
    pub program: Program,
    /// What happens to what it made.
    pub lifecycle: Lifecycle,
    /// What it adds to its results in reports, to be filled in once the guards hold.
    pub report_properties: Vec<(Str, Template)>,
    /// What its expressions read that only a request tells.
    pub request_facts: RequestFacts,
    /// Where it was written.
    pub origin: Origin,
}

impl Rule {
    /// Whether who made the request decides if the rule fires.
    pub fn asks_for_user(&self) -> bool {
        self.trigger.asks_for_user()
            || self.script.as_ref().is_some_and(|script| script.asks_for_user)
    }

    /// What it needs to know that only a request tells, to fire or to do its work.
    pub fn needed_facts(&self) -> RequestFacts {
        let user = self.asks_for_user();
        self.request_facts
            .and(self.trigger.request_facts())
            .and(RequestFacts { user, ..RequestFacts::default() })
    }

    /// Whether objects of this namespace may fire the rule; `none` for what is in no namespace. A
    /// Namespace gives its own name as well.
    pub fn may_be_fired_from(&self, namespace: Option<&str>, is_namespace: Option<&str>) -> bool {
        self.scope.reaches(namespace)
            || (self.trigger.own_namespace && is_namespace == self.scope.namespace())
    }

    /// The kinds that the rule names, to fire on or to make, and that the cluster does not serve.
    pub fn unserved_kinds(&self, kinds: &Kinds) -> Vec<String> {
        let is_served = |pattern: &KindPattern| {
            // A resource whose kind was not known when the rule was read is known when it is read again.
            pattern.plural.is_none()
                && kinds.iter().any(|kind| {
                    let takes =
                        |sub: &str| pattern.matches(kind.group(), kind.version(), kind.kind(), sub);
                    takes("") || takes(&pattern.subresource)
                })
        };
        let named = self.trigger.include.filters().iter().flat_map(|filter| &filter.kinds);
        let named = named.filter(|pattern| pattern.plural.is_some() || pattern.names_one_kind());
        let mut unserved: Vec<String> = named
            .filter(|pattern| !is_served(pattern))
            .map(|pattern| match pattern.plural {
                Some(_) => format!("resource {pattern}"),
                None => format!("kind {pattern}"),
            })
            .collect();
        if let Program::Validate(_) = &self.program {
            // Kyverno: one kind that is served makes a rule. Resources that a policy names are asked about by name.
            let all = self.trigger.include.filters().iter().flat_map(|filter| &filter.kinds);
            if unserved.len() < all.count()
                || unserved.iter().all(|what| what.starts_with("resource "))
            {
                unserved.clear();
            }
        }
        if let Program::Generate(generate) = &self.program {
            // What expressions make is known when they have run.
            let written = generate.emitters().filter(|(_, _, emitter)| {
                !matches!(
                    emitter.emission,
                    Emission::FromExpression { .. } | Emission::Documents(_)
                )
            });
            let made = written.flat_map(|(_, _, emitter)| emitter.target_kinds());
            unserved.extend(
                made.filter(|kind| kinds.get(kind).is_none()).map(|kind| format!("kind {kind}")),
            );
        }
        unserved
    }
}

/// Rules that were written together.
#[derive(Clone, Debug)]
pub struct Policy {
    /// Its name.
    pub id: PolicyId,
    /// `apiVersion` of the document.
    pub api_version: String,
    /// `kind` of the document.
    pub kind: String,
    /// The rules, in the order they were written.
    pub rules: Vec<Arc<Rule>>,
    /// How many of the rules act on one trigger.
    pub apply: ApplyRules,
    /// How requests reach its rules.
    pub delivery: Delivery,
    /// Whether rules that check objects are also run on what is stored already.
    pub background: bool,
    /// What it says about itself in reports.
    pub report: ReportWords,
    /// Where it was written.
    pub origin: Origin,
}

/// What a policy says about itself to readers of reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReportWords {
    pub category: Option<Str>,
    /// One of Kyverno's five words for how bad a violation is.
    pub severity: Option<Str>,
    /// Whether its results count in a score.
    pub scored: bool,
    /// Its label keeps its results from reports.
    pub off: bool,
}

impl Default for ReportWords {
    fn default() -> Self {
        ReportWords { category: None, severity: None, scored: true, off: false }
    }
}

impl Policy {
    /// Whether its rules delete objects on a schedule, and nothing else makes them run.
    pub fn is_scheduled(&self) -> bool {
        self.rules.iter().any(|rule| rule.program.is_scheduled())
    }

    /// What some rule of it needs to know that only a request tells.
    pub fn needed_facts(&self) -> RequestFacts {
        self.rules.iter().map(|rule| rule.needed_facts()).collect()
    }

    /// The kinds that its rules name and that the cluster does not serve.
    pub fn unserved_kinds(&self, kinds: &Kinds) -> Vec<String> {
        let mut all: Vec<String> =
            self.rules.iter().flat_map(|rule| rule.unserved_kinds(kinds)).collect();
        all.sort();
        all.dedup();
        all
    }
}

/// How many rules of a policy act on one trigger.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ApplyRules {
    /// All that fire.
    #[default]
    All,
    /// Only the first that fires and does not skip.
    One,
}
