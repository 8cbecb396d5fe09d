//! The claim on a downstream object, written and read back.
//!
//! Labels are Kyverno's. Annotations hold what does not fit into labels and cannot be found out again:
//! the operation and user that made the trigger one, which part of the rule made the object, and the life
//! of the policy that did.

use kiln_object::{ObjectId, metadata};
use kiln_rules::{Operation, OwnershipLabels, RuleId};
use kiln_value::{Str, Value, json};

use crate::input::event::User;
use crate::output::claim::{
    ANNOTATION_PREFIX, Claim, ClaimLabels, SOURCE, SOURCE_SEPARATOR, is_ownership_label,
};

/// The claim on an object as it is read back: [`Claim::write_onto`] wrote it, or another engine the labels of it. A user who
/// may write the object may have written the claim, so that what it says is worth no more than its signature.
#[derive(Clone, Debug)]
pub struct Ownership {
    /// What fits into labels.
    pub labels: ClaimLabels,
    rule: Option<Str>,
    /// Which part of the rule made it, as written then, hashed.
    pub pattern: Option<Str>,
    /// The life of the policy.
    pub policy_uid: Option<Str>,
    pub operation: Option<Operation>,
    /// The content as the rule wanted it, hashed.
    pub content: Option<Str>,
    /// Who made the trigger one.
    pub user: Option<User>,
    /// The trigger as that user left it, as text.
    pub trigger_content: Option<Str>,
    /// The trigger as it is shown: its name is the last part.
    trigger: Option<Str>,
    /// It came from a source.
    pub copied: bool,
    /// What it was made of, as text.
    sources: Option<Str>,
}

/// The annotation that says: which part of a rule made an object.
const CLAIM_PATTERN: &str = "kiln.dev/pattern";
/// The annotation that says: which life of a policy made an object.
const CLAIM_POLICY_UID: &str = "kiln.dev/policy-uid";
/// The annotation that says: who made the trigger one.
pub const CLAIM_USER: &str = "kiln.dev/user";
/// The annotation that says: the trigger as that user left it.
pub const TRIGGER_CONTENT: &str = "kiln.dev/trigger-content";

impl Ownership {
    /// Reads the claim of an object; none when no rule made it.
    pub fn read(object: &Value) -> Option<Self> {
        let labels = ClaimLabels::read(object)?;
        let text = |key: &str| metadata::annotation(object, key).map(Str::from);
        let source_kind = metadata::label(object, &format!("{}source-kind", labels.owner.prefix()));
        Some(Ownership {
            copied: labels.source_uid.is_some()
                || source_kind.is_some()
                || metadata::annotation(object, SOURCE).is_some(),
            labels,
            rule: text("kiln.dev/rule"),
            pattern: text(CLAIM_PATTERN),
            policy_uid: text(CLAIM_POLICY_UID),
            sources: text(SOURCE),
            operation: text("kiln.dev/operation").and_then(|word| word.parse().ok()),
            content: text("kiln.dev/content"),
            trigger: text("kiln.dev/trigger"),
            trigger_content: text(TRIGGER_CONTENT),
            user: text(CLAIM_USER).and_then(|text| User::of_value(&json::parse(&text).ok()?)),
        })
    }

    /// The trigger, as far as the claim says what it is called.
    pub fn trigger(&self) -> Option<ObjectId> {
        let (_, name) = self.trigger.as_ref()?.rsplit_once('/')?;
        let namespace = self.labels.trigger_namespace.as_deref().unwrap_or_default();
        Some(ObjectId::new(self.labels.trigger_kind.clone(), namespace, name))
    }

    /// Whether a rule made it.
    ///
    /// The annotation names one rule of one policy. Labels cannot: their values are limited to 63 characters and
    /// Kyverno's hold only names, so they may mean several rules. The reach of the policy is checked in both cases,
    /// because a user who can write the object can write its annotations: a namespaced policy must not own objects
    /// elsewhere by a claim that names it.
    pub fn is_of(&self, rule: &RuleId) -> bool {
        match &self.rule {
            Some(named) => *named == rule.to_string() && self.labels.is_in_reach_of(&rule.policy),
            None => self.labels.names(rule),
        }
    }

    /// Whether it says which rule made it; the labels of other engines may mean several.
    pub fn names_its_rule(&self) -> bool {
        self.rule.is_some()
    }

    /// Whether a rule made it of a trigger.
    pub fn is_by(&self, rule: &RuleId, trigger_uid: &str) -> bool {
        self.is_of(rule) && self.labels.trigger_uid.as_deref() == Some(trigger_uid)
    }

    /// Whether it comes from this life of the policy. Claims of others say nothing about it.
    ///
    /// A policy that was deleted and stored again under its name is another policy: what the first one left behind on
    /// purpose (`orphanDownstreamOnPolicyDelete`) must not be deleted by the second. Other engines write no UID, and
    /// counting their objects as foreign would make adoption impossible.
    pub fn is_of_life(&self, policy_uid: &str) -> bool {
        self.policy_uid.as_ref().is_none_or(|uid| uid == policy_uid)
    }

    /// Whether the claim says what it was made of; labels alone do not.
    pub fn names_sources(&self) -> bool {
        self.sources.is_some()
    }

    /// Whether it was made of an object.
    pub fn is_made_of(&self, source: &ObjectId) -> bool {
        let source = source.to_string();
        let mut named = self.sources.iter().flat_map(|sources| sources.split(SOURCE_SEPARATOR));
        named.any(|named| named == source)
    }

    /// Whether the trigger was one only in passing, so that nothing follows it afterwards.
    pub fn is_final(&self) -> bool {
        matches!(self.operation, Some(Operation::Delete | Operation::Connect))
    }
}

/// What a host adds to the claim of a rule: the books of the process that writes it.
#[derive(Clone, Debug)]
pub struct ClaimBooks<'b> {
    /// Which part of the rule made the object, as written, hashed.
    pub pattern: Str,
    /// The life of the policy.
    pub policy_uid: &'b str,
    /// Who made the trigger one, and the trigger as they left it.
    pub sender: Option<(&'b User, String)>,
}

impl Claim {
    /// Writes the claim on an object that the engine made, which has its labels already.
    pub fn write_onto(&self, object: &mut Value, style: OwnershipLabels, books: ClaimBooks<'_>) {
        // Before anything is added: a clone takes over the labels of its source, which may be a downstream itself, and
        // signing a claim that was copied would prove something that is not true.
        strip_foreign(object, &self.labels(style));
        let mut annotations = self.annotations();
        annotations.push((CLAIM_PATTERN.into(), books.pattern));
        annotations.push((CLAIM_POLICY_UID.into(), books.policy_uid.into()));
        if let Some((user, left)) = books.sender {
            annotations.push((CLAIM_USER.into(), json::to_string(&user.to_value()).into()));
            annotations.push((TRIGGER_CONTENT.into(), left.into()));
        }
        for (key, value) in annotations {
            // The engine made the object, and its metadata is a map.
            let _ = metadata::set_annotation(object, &key, &value);
        }
    }
}

/// Takes off what a rule took over from somewhere and only the engine says: it would be signed.
fn strip_foreign(object: &mut Value, own: &[(Str, Str)]) {
    let is_ours = |key: &str| key.starts_with(ANNOTATION_PREFIX) || is_ownership_label(key);
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_map_mut) else { return };
    for field in ["labels", "annotations"] {
        let is_own = |key: &str| field == "labels" && own.iter().any(|(label, _)| label == key);
        let Some(texts) = metadata.get_mut(field).and_then(Value::as_map_mut) else { continue };
        texts.retain(|key, _| !is_ours(key) || is_own(key));
    }
}
