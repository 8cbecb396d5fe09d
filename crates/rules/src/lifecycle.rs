//! How a rule wants its downstreams to be treated: plain settings that the dialects fill in.
//!
//! What is done to a downstream when its trigger, source or policy changes or is deleted is decided in
//! `kiln_controller`'s `decide.rs`, which asks these.

use kiln_value::Value;

/// How a rule's downstream objects live on after they were made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lifecycle {
    /// Keep downstream objects as the rule says: follow the trigger, the source and the policy, revert
    /// edits, make deleted ones again, remove those no longer wanted.
    pub synchronize: bool,
    /// Run for triggers that were there before the policy, when it is created or changed.
    pub existing: bool,
    /// What happens to synchronized objects when the policy or the rule goes away.
    pub on_policy_delete: OnPolicyDelete,
    /// What to do with objects that are there already.
    pub on_conflict: Existing,
    /// How objects are written.
    pub write: Write,
    /// Which ownership labels downstream objects carry.
    pub labels: OwnershipLabels,
    /// Whether objects that another engine made for the rule go when the rule makes others of their trigger; otherwise
    /// they are orphaned, as that engine would.
    pub clears_adopted: bool,
    /// The field by which users switch [`Lifecycle::existing`] on, from `spec` downwards.
    pub existing_switch: &'static str,
}

/// What happens to synchronized objects when the policy or the rule goes away. Objects of rules that
/// do not synchronize always stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnPolicyDelete {
    /// Made objects go, copies of a source stay. Kyverno: `orphanDownstreamOnPolicyDelete` left out,
    /// which its conformance suite tells apart from `false` for clones.
    DeleteMade,
    /// All of them go.
    Delete,
    /// All of them stay.
    Keep,
}

impl OnPolicyDelete {
    /// Whether an object goes; `copied` says that it came from a source.
    pub fn deletes(self, copied: bool) -> bool {
        match self {
            OnPolicyDelete::DeleteMade => !copied,
            OnPolicyDelete::Delete => true,
            OnPolicyDelete::Keep => false,
        }
    }
}

/// What to do with an object that is there already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existing {
    /// Leave it alone.
    Keep,
    /// Make it as the rule says if the rule made it, of the same trigger; leave any other alone.
    UpdateOwn,
    /// Make it as the rule says; one without an owner is adopted.
    Update,
}

/// How downstream objects are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Write {
    /// Create, or replace the whole object.
    Replace,
    /// Server-side apply as this field manager, by force: fields of other managers survive.
    Apply {
        /// The field manager.
        manager: &'static str,
    },
}

/// Which ownership labels downstream objects carry besides those every rule writes (managed-by, the
/// policy's name, and the trigger's group, version, kind, namespace and UID).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnershipLabels {
    /// Whose names they have.
    pub owner: LabelOwner,
    /// The name of the rule.
    pub rule: bool,
    /// The name of the trigger. Kyverno stopped writing it for rules since names may be too long for a
    /// label.
    pub trigger_name: bool,
    /// All five parts of the source's identity; its UID alone otherwise.
    pub whole_source: bool,
}

/// The annotation of a policy whose generate rules may be edited.
pub const ALLOW_RULE_CHANGES: &str = "kiln.allowGenerateRuleChanges";

/// Whether generate rules of a policy may be edited: then its rules adopt what its removed rules made.
pub fn allows_rule_changes(policy: &Value) -> bool {
    policy.str_at(["metadata", "annotations", ALLOW_RULE_CHANGES]) == Some("true")
}

/// Whose names ownership labels have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LabelOwner {
    /// Kyverno's, for policies of its API groups: its users and tools select by them.
    Kyverno,
    /// Kiln's, for policies of its own group: Kyverno deletes what has its labels when a policy of that name goes.
    Kiln,
}

impl LabelOwner {
    pub const ALL: [LabelOwner; 2] = [LabelOwner::Kyverno, LabelOwner::Kiln];

    /// The value of `app.kubernetes.io/managed-by`.
    pub fn manager(self) -> &'static str {
        match self {
            LabelOwner::Kyverno => "kyverno",
            LabelOwner::Kiln => "kiln",
        }
    }

    /// What the other labels begin with.
    pub fn prefix(self) -> &'static str {
        match self {
            LabelOwner::Kyverno => "generate.kyverno.io/",
            LabelOwner::Kiln => "generate.kiln.dev/",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_absent_orphan_setting_keeps_copies_only() {
        assert!(OnPolicyDelete::DeleteMade.deletes(false));
        assert!(!OnPolicyDelete::DeleteMade.deletes(true));
        assert!(OnPolicyDelete::Delete.deletes(true));
        assert!(!OnPolicyDelete::Keep.deletes(false));
    }
}
