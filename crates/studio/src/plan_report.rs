//! What policies would do or did, as one report that pages show: changes, results, lineage, notes.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::lineage::Lineage;
use crate::object_name::{ObjectName, RuleName};

#[derive(Clone, Debug, Default, Serialize)]
pub struct PlanReport {
    pub title: String,
    /// The counts in a sentence.
    pub summary: String,
    pub changes: Vec<ReportedChange>,
    /// What each rule did with each resource, where resources were given.
    pub results: Vec<ReportedResult>,
    pub lineage: Lineage,
    /// What could not be done, and what to know besides.
    pub notes: Vec<ReportedNote>,
}

/// Something that becomes of an object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ReportedChange {
    pub action: ChangeAction,
    pub object: ObjectName,
    pub rules: Vec<RuleName>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// A unified difference, without header; empty where there is nothing to compare.
    pub diff: String,
    /// What else there is to say about the difference.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remark: Option<String>,
}

/// What one rule did with one resource.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ReportedResult {
    #[serde(flatten)]
    pub rule: RuleName,
    pub resource: ObjectName,
    /// `pass`, `fail`, …
    pub result: String,
    pub message: String,
    /// Faults with their places, problems and hints.
    pub details: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ReportedNote {
    pub what: String,
    pub why: String,
    /// Something was not done, rather than worth knowing.
    pub failed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum ChangeAction {
    Create,
    Change,
    Delete,
    Deny,
    /// On the next write of the object.
    ChangeLater,
    DenyLater,
    /// On the next run of a schedule.
    DeleteLater,
}

impl ChangeAction {
    pub const ALL: [ChangeAction; 7] = [
        ChangeAction::Create,
        ChangeAction::Change,
        ChangeAction::Delete,
        ChangeAction::Deny,
        ChangeAction::ChangeLater,
        ChangeAction::DenyLater,
        ChangeAction::DeleteLater,
    ];

    /// The words for it.
    pub fn as_str(self) -> &'static str {
        match self {
            ChangeAction::Create => "create",
            ChangeAction::Change => "change",
            ChangeAction::Delete => "delete",
            ChangeAction::Deny => "deny",
            ChangeAction::ChangeLater => "change later",
            ChangeAction::DenyLater => "deny later",
            ChangeAction::DeleteLater => "delete later",
        }
    }

    /// The class of its color in pages.
    pub(crate) fn class(self) -> &'static str {
        match self {
            ChangeAction::Create => "t-create",
            ChangeAction::Change | ChangeAction::ChangeLater => "t-change",
            ChangeAction::Delete | ChangeAction::DeleteLater => "t-delete",
            ChangeAction::Deny | ChangeAction::DenyLater => "t-deny",
        }
    }
}

/// How many changes there are of each kind, in the order of [`ChangeAction::ALL`].
pub type ActionCounts = [usize; 7];

/// The changes of a namespace, by kind.
pub struct NamespaceChanges<'r> {
    /// Empty for objects of the cluster.
    pub namespace: &'r str,
    pub counts: ActionCounts,
    pub kinds: BTreeMap<&'r str, Vec<&'r ReportedChange>>,
}

impl PlanReport {
    pub fn counts(&self) -> ActionCounts {
        counts(self.changes.iter())
    }

    /// The tree of changes: namespaces in order, those of the cluster first.
    pub fn by_namespace(&self) -> Vec<NamespaceChanges<'_>> {
        let mut namespaces: BTreeMap<&str, Vec<&ReportedChange>> = BTreeMap::new();
        for change in &self.changes {
            namespaces.entry(&change.object.namespace).or_default().push(change);
        }
        namespaces
            .into_iter()
            .map(|(namespace, changes)| {
                let counts = counts(changes.iter().copied());
                let mut kinds: BTreeMap<&str, Vec<&ReportedChange>> = BTreeMap::new();
                for change in changes {
                    kinds.entry(&change.object.kind).or_default().push(change);
                }
                NamespaceChanges { namespace, counts, kinds }
            })
            .collect()
    }
}

fn counts<'r>(changes: impl Iterator<Item = &'r ReportedChange>) -> ActionCounts {
    let mut counts = [0; 7];
    for change in changes {
        let at = ChangeAction::ALL.iter().position(|action| *action == change.action);
        counts[at.unwrap_or(0)] += 1;
    }
    counts
}
