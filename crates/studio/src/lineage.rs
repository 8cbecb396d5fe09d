//! Which rule made or changed which object, of which trigger and sources.
//!
//! A lineage is a list of links, each a way from a policy to one object. It comes from a run over files
//! ([`Lineage::of_run`]) or from the claims on objects of a cluster ([`Lineage::of_objects`]); pages filter, fold and draw it.

use std::collections::BTreeSet;

use kiln_controller::provenance::Provenance;
use kiln_object::ObjectId;
use kiln_offline::{ObjectChange, Report, RuleResult, Status};
use kiln_value::Value;
use serde::Serialize;

use crate::object_name::{ObjectName, RuleName};

/// Links, in the order of policies, rules, triggers and objects.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Lineage {
    pub links: Vec<LineageLink>,
}

/// One way from a rule to an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct LineageLink {
    #[serde(flatten)]
    pub rule: RuleName,
    /// The object that made the rule run; none where a claim does not say.
    pub trigger: Option<ObjectName>,
    /// What the object was copied from or made of.
    pub sources: Vec<ObjectName>,
    /// The downstream or target. None where the rule made nothing.
    pub object: Option<ObjectName>,
    pub state: LinkState,
    /// Why, where one sentence says it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// How an object stands to its rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LinkState {
    /// It is, or would be, as the rule wants it.
    InStep,
    Created,
    Changed,
    Deleted,
    /// It differs from what the rule wants.
    Drifted,
    /// Two writers want different things of it.
    Contested,
    /// The rule waits for something.
    Waiting,
    Failed,
    Denied,
}

impl LinkState {
    pub const ALL: [LinkState; 9] = [
        LinkState::InStep,
        LinkState::Created,
        LinkState::Changed,
        LinkState::Deleted,
        LinkState::Drifted,
        LinkState::Contested,
        LinkState::Waiting,
        LinkState::Failed,
        LinkState::Denied,
    ];

    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            LinkState::InStep => "synchronized",
            LinkState::Created => "created",
            LinkState::Changed => "changed",
            LinkState::Deleted => "deleted",
            LinkState::Drifted => "drifted",
            LinkState::Contested => "contested",
            LinkState::Waiting => "waiting",
            LinkState::Failed => "failed",
            LinkState::Denied => "denied",
        }
    }

    /// The class of its color in pages.
    pub(crate) fn class(self) -> &'static str {
        match self {
            LinkState::InStep => "t-plain",
            LinkState::Created => "t-create",
            LinkState::Changed | LinkState::Drifted | LinkState::Waiting => "t-change",
            LinkState::Deleted | LinkState::Failed => "t-delete",
            LinkState::Contested | LinkState::Denied => "t-deny",
        }
    }

    /// The state of a word.
    pub fn read(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == word)
    }
}

/// What to show of a lineage.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LineageFilter {
    /// The namespace of the object or its trigger.
    pub namespace: Option<String>,
    pub policy: Option<String>,
    pub state: Option<LinkState>,
}

impl Lineage {
    /// Sorted, each link once.
    pub fn new(mut links: Vec<LineageLink>) -> Self {
        links.sort();
        links.dedup();
        Lineage { links }
    }

    /// What rules made of files.
    pub fn of_run(report: &Report) -> Self {
        Lineage::new(report.results.iter().flat_map(links_of).collect())
    }

    /// What the claims on objects say. `state` says how one stands to its rule.
    pub fn of_objects<'o>(
        objects: impl IntoIterator<Item = &'o Value>,
        state: impl Fn(&ObjectId, &Value) -> (LinkState, Option<String>),
    ) -> Self {
        let links = objects.into_iter().filter_map(|object| {
            let id = ObjectId::of(object).ok()?;
            let (state, why) = state(&id, object);
            link_of_claim(&id, object, state, why)
        });
        Lineage::new(links.collect())
    }

    pub fn filtered(&self, filter: &LineageFilter) -> Self {
        let shows = |link: &&LineageLink| {
            let is_in = |namespace: &String| {
                let own = |name: &ObjectName| name.namespace == *namespace;
                link.object.as_ref().is_some_and(own) || link.trigger.as_ref().is_some_and(own)
            };
            filter.namespace.as_ref().is_none_or(is_in)
                && filter.policy.as_ref().is_none_or(|policy| link.rule.policy == *policy)
                && filter.state.is_none_or(|state| link.state == state)
        };
        Lineage { links: self.links.iter().filter(shows).cloned().collect() }
    }

    /// The namespaces that it reaches.
    pub fn namespaces(&self) -> BTreeSet<&str> {
        let objects = self.links.iter().filter_map(|link| link.object.as_ref());
        objects.map(|object| object.namespace.as_str()).collect()
    }
}

/// The link that the claim on an object says; none when no rule made it.
pub fn link_of_claim(
    id: &ObjectId,
    object: &Value,
    state: LinkState,
    why: Option<String>,
) -> Option<LineageLink> {
    let made = Provenance::read(object)?;
    let labels = made.labels();
    let policy = match &labels.policy_namespace {
        Some(namespace) if !namespace.is_empty() => format!("{namespace}/{}", labels.policy),
        _ => labels.policy.to_string(),
    };
    let rule = labels.rule.as_ref().map(ToString::to_string).unwrap_or_default();
    Some(LineageLink {
        rule: RuleName { policy, rule },
        trigger: made.trigger().as_ref().map(ObjectName::from),
        sources: made.sources().iter().map(|source| ObjectName::read(source)).collect(),
        object: Some(ObjectName::from(id)),
        state,
        why,
    })
}

fn links_of(result: &RuleResult) -> Vec<LineageLink> {
    let link =
        |object: Option<ObjectName>, sources: Vec<ObjectName>, state: LinkState| LineageLink {
            rule: RuleName::from(&result.rule),
            trigger: Some(ObjectName::from(&result.trigger)),
            sources,
            object,
            state,
            why: result.because(),
        };
    let ends = match result.status {
        Status::Error => Some(LinkState::Failed),
        Status::Fail | Status::Warn if result.violation.is_some() || result.refusal.is_some() => {
            Some(LinkState::Denied)
        }
        Status::Fail => Some(LinkState::Denied),
        _ => None,
    };
    let made = result.made.iter().map(|made| {
        let state = match made.change {
            ObjectChange::Created => LinkState::Created,
            ObjectChange::Updated | ObjectChange::Patched => LinkState::Changed,
            ObjectChange::Unchanged | ObjectChange::Kept => LinkState::InStep,
        };
        let sources = made.sources.iter().map(ObjectName::from).collect();
        link(Some(ObjectName::from(&made.id)), sources, state)
    });
    made.chain(ends.map(|state| link(None, Vec::new(), state))).collect()
}
