//! The record on a downstream object that says which rule made it, of which trigger and source.
//!
//! Kyverno's labels carry what fits into labels, so that its users and tools find their way; policies of Kiln's own
//! API group have labels of their own, so that Kyverno leaves their objects alone. What does
//! not fit is in annotations, which hosts that write to a cluster add.

use std::fmt;

use kiln_object::{Gvk, ObjectId};
use kiln_rules::{LabelOwner, Operation, OwnershipLabels, PolicyId, RuleId};
use kiln_value::{Map, Str, Value, json};
use sha2::{Digest, Sha256};

/// Who made an object, of what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    pub rule: RuleId,
    pub trigger: ObjectRef,
    /// What the object is a copy of, or was put together from. The first is the one that labels name.
    pub sources: Vec<ObjectRef>,
    /// The operation that made the trigger one; none for objects that were there before the rule.
    pub operation: Option<Operation>,
    /// Which part of the rule made it.
    pub slot: Slot,
    /// The content as the rule wants it, hashed.
    pub content: ContentHash,
}

/// One life of an object: what it is called, and the UID that tells it from others of that name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectRef {
    /// What it is called.
    pub id: ObjectId,
    /// Its UID; empty for objects that no server has stored.
    pub uid: Str,
}

impl ObjectRef {
    /// The identity of an object, as far as it says.
    pub fn of(object: &Value) -> Self {
        let text = |key: &str| object.str_at(["metadata", key]).unwrap_or_default();
        let gvk = Gvk::of(object).unwrap_or_default();
        ObjectRef {
            id: ObjectId::new(gvk, text("namespace"), text("name")),
            uid: text("uid").into(),
        }
    }
}

impl fmt::Display for ObjectRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.id.fmt(f)
    }
}

/// Which part of a rule made an object: block, element of its list, and emitter, counted from 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Slot {
    pub block: usize,
    /// The element of the list that the block ran for.
    pub element: Option<usize>,
    /// The emitter in the block.
    pub emitter: usize,
}

/// A hash of the content of an object, whatever the order of its keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ContentHash([u8; 16]);

impl ContentHash {
    /// The hash of a value.
    pub fn of(value: &Value) -> Self {
        let digest = Sha256::digest(json::to_canonical_string(value));
        let mut short = [0; 16];
        short.copy_from_slice(&digest[..16]);
        ContentHash(short)
    }
}

impl fmt::Display for ContentHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// The label that says who looks after an object.
pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// What the annotations of a claim begin with.
pub const ANNOTATION_PREFIX: &str = "kiln.dev/";

/// The annotation that says what an object was made of.
pub const SOURCE: &str = "kiln.dev/source";
/// What stands between several sources there.
pub const SOURCE_SEPARATOR: &str = ", ";

const POLICY_NAME: &str = "policy-name";
const POLICY_NAMESPACE: &str = "policy-namespace";
const RULE_NAME: &str = "rule-name";

/// Whether a label says who made an object, besides `app.kubernetes.io/managed-by`.
pub fn is_ownership_label(key: &str) -> bool {
    LabelOwner::ALL.iter().any(|owner| key.starts_with(owner.prefix()))
}

/// Whether a value of `app.kubernetes.io/managed-by` is on objects that rules made.
pub fn is_manager(value: &str) -> bool {
    LabelOwner::ALL.iter().any(|owner| value == owner.manager())
}

/// The policy that a label of an object names.
pub(crate) fn policy_label(object: &Value) -> Option<&str> {
    let labels = object.get_path(["metadata", "labels"])?;
    let name =
        |owner: &LabelOwner| labels.str_at([format!("{}{POLICY_NAME}", owner.prefix()).as_str()]);
    LabelOwner::ALL.iter().find_map(name)
}

/// The longest value a label may have.
const LABEL_LENGTH: usize = 63;

impl Claim {
    /// The labels of the object.
    pub fn labels(&self, style: OwnershipLabels) -> Vec<(Str, Str)> {
        let key = |part: &str| -> Str { format!("{}{part}", style.owner.prefix()).into() };
        let mut labels: Vec<(Str, Str)> = vec![
            (MANAGED_BY.into(), style.owner.manager().into()),
            (key(POLICY_NAME), label_value(&self.rule.policy.name)),
            (key(POLICY_NAMESPACE), self.rule.policy.namespace.clone().unwrap_or_default()),
        ];
        if style.rule {
            labels.push((key(RULE_NAME), label_value(&self.rule.rule)));
        }
        let mut identity = |role: &str, object: &ObjectRef| {
            let parts = [
                ("group", object.id.gvk.group.clone()),
                ("version", object.id.gvk.version.clone()),
                ("kind", object.id.gvk.kind.clone()),
                ("namespace", object.id.namespace.clone()),
                ("uid", object.uid.clone()),
            ];
            for (part, value) in parts {
                labels.push((key(&format!("{role}-{part}")), value));
            }
        };
        identity("trigger", &self.trigger);
        if let Some(source) = self.sources.first().filter(|_| style.whole_source) {
            identity("source", source);
        }
        if style.trigger_name {
            let name = label_value(&self.trigger.id.name);
            labels.push((key("trigger-name"), name));
        }
        if let Some(source) = self.sources.first().filter(|_| !style.whole_source) {
            labels.push((key("source-uid"), source.uid.clone()));
        }
        labels
    }

    /// What does not fit into labels, for hosts that write to a cluster.
    pub fn annotations(&self) -> Vec<(Str, Str)> {
        let Slot { block, element, emitter } = self.slot;
        let element = element.map_or_else(String::new, |element| element.to_string());
        let mut annotations: Vec<(Str, Str)> = vec![
            (format!("{ANNOTATION_PREFIX}rule").into(), self.rule.to_string().into()),
            (format!("{ANNOTATION_PREFIX}trigger").into(), self.trigger.to_string().into()),
            (
                format!("{ANNOTATION_PREFIX}slot").into(),
                format!("{block}/{element}/{emitter}").into(),
            ),
            (format!("{ANNOTATION_PREFIX}content").into(), self.content.to_string().into()),
        ];
        if let Some(operation) = self.operation {
            annotations
                .push((format!("{ANNOTATION_PREFIX}operation").into(), operation.as_str().into()));
        }
        if !self.sources.is_empty() {
            let sources: Vec<_> = self.sources.iter().map(ToString::to_string).collect();
            annotations.push((SOURCE.into(), sources.join(SOURCE_SEPARATOR).into()));
        }
        annotations
    }

    /// Whether an object carries the labels of this rule and this trigger.
    ///
    /// A claim without a UID matches nothing: objects must never be found by the name of a trigger
    /// alone, since another object may have that name now.
    pub fn is_on(&self, object: &Value, style: OwnershipLabels) -> bool {
        let Some(labels) = object.get_path(["metadata", "labels"]).and_then(Value::as_map) else {
            return false;
        };
        let of_source = format!("{}source-", style.owner.prefix());
        let own = |key: &str| !key.starts_with(&of_source);
        !self.trigger.uid.is_empty()
            && self
                .labels(style)
                .iter()
                .filter(|(key, _)| own(key))
                .all(|(key, value)| labels.get(key).and_then(Value::as_str) == Some(value.as_str()))
    }
}

/// What the labels of an object say about who made it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimLabels {
    /// Whose names the labels have.
    pub owner: LabelOwner,
    /// The policy's name, shortened if it is long.
    pub policy: Str,
    pub policy_namespace: Option<Str>,
    /// The rule's name; none for languages whose rules have none.
    pub rule: Option<Str>,
    pub trigger_kind: Gvk,
    pub trigger_namespace: Option<Str>,
    pub trigger_uid: Option<Str>,
    /// The trigger's name, in languages whose labels have it.
    pub trigger_name: Option<Str>,
    /// `None` for downstreams without a source.
    pub source_uid: Option<Str>,
    /// The labels say whether the policy has a namespace.
    says_namespace: bool,
    /// Where the object itself is; empty for one that is in no namespace.
    namespace: Str,
}

impl ClaimLabels {
    /// Reads the labels of an object; none when no rule made it.
    pub(crate) fn read(object: &Value) -> Option<Self> {
        let labels = object.get_path(["metadata", "labels"])?.as_map()?;
        let manager = labels.get(MANAGED_BY).and_then(Value::as_str)?;
        let owner = LabelOwner::ALL.into_iter().find(|owner| owner.manager() == manager)?;
        let text = |part: &str| {
            labels.get(format!("{}{part}", owner.prefix()).as_str()).and_then(Value::as_str)
        };
        let some = |part: &str| text(part).filter(|value| !value.is_empty()).map(Str::from);
        Some(ClaimLabels {
            owner,
            policy: some(POLICY_NAME)?,
            policy_namespace: some(POLICY_NAMESPACE),
            rule: some(RULE_NAME),
            trigger_kind: Gvk {
                group: some("trigger-group").unwrap_or_default(),
                version: some("trigger-version").unwrap_or_default(),
                kind: some("trigger-kind").unwrap_or_default(),
            },
            trigger_namespace: some("trigger-namespace"),
            trigger_uid: some("trigger-uid"),
            trigger_name: some("trigger-name"),
            source_uid: some("source-uid"),
            says_namespace: text(POLICY_NAMESPACE).is_some(),
            namespace: object.str_at(["metadata", "namespace"]).unwrap_or_default().into(),
        })
    }

    /// Whether the object is where rules of a policy may have made it, whatever its labels say: labels come along with
    /// copies, and do not always tell a namespaced policy from one of the cluster.
    pub fn is_in_reach_of(&self, policy: &PolicyId) -> bool {
        policy.namespace.as_ref().is_none_or(|own| *own == self.namespace)
    }

    /// Whether a rule is the one meant.
    pub fn names(&self, rule: &RuleId) -> bool {
        if self.policy != label_value(&rule.policy.name) || !self.is_in_reach_of(&rule.policy) {
            return false;
        }
        let is_generating = !rule.policy.labels_name_rules();
        match &self.rule {
            Some(name) if !is_generating => {
                *name == label_value(&rule.rule) && self.policy_namespace == rule.policy.namespace
            }
            None if is_generating && self.says_namespace => {
                self.policy_namespace == rule.policy.namespace
            }
            // Kyverno: generating policies name neither rule nor namespace, and copy what labels a source has.
            _ if is_generating => {
                self.trigger_name.is_some()
                    && rule.policy.namespace.as_ref().is_none_or(|own| self.is_about(own))
            }
            _ => false,
        }
    }

    /// Whether the trigger is in a namespace, or is the namespace itself.
    fn is_about(&self, namespace: &Str) -> bool {
        let is_itself = || {
            self.trigger_kind == Gvk::new("v1", "Namespace")
                && self.trigger_name.as_ref() == Some(namespace)
        };
        self.trigger_namespace.as_ref() == Some(namespace) || is_itself()
    }
}

/// Takes the ownership labels off an object, and the map of labels if nothing is left of it.
pub fn strip(object: &mut Value) {
    let owned = |key: &str| key == MANAGED_BY || is_ownership_label(key);
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_map_mut) else { return };
    if let Some(labels) = metadata.get_mut("labels").and_then(Value::as_map_mut) {
        labels.retain(|key, _| !owned(key));
        if labels.is_empty() {
            metadata.remove("labels");
        }
    }
}

/// A text as the value of a label: a long one is cut and told apart by a hash.
fn label_value(text: &str) -> Str {
    if text.len() <= LABEL_LENGTH {
        return text.into();
    }
    let digest = Sha256::digest(text);
    let mut end = 54;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let [a, b, c, d, ..] = digest[..] else { return text.into() };
    format!("{}-{a:02x}{b:02x}{c:02x}{d:02x}", &text[..end]).into()
}

/// Sets labels on an object.
pub(crate) fn set_labels(object: &mut Value, labels: &[(Str, Str)]) {
    let Some(root) = object.as_map_mut() else { return };
    let metadata = root.get_or_insert_with("metadata", Value::map);
    if metadata.as_map().is_none() {
        *metadata = Value::map();
    }
    let Some(metadata) = metadata.as_map_mut() else { return };
    let kept = metadata.get_or_insert_with("labels", Value::map);
    if kept.as_map().is_none() {
        *kept = Value::Map(Map::new());
    }
    if let Some(kept) = kept.as_map_mut() {
        for (key, value) in labels {
            kept.insert(key.as_str(), value.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_rules::Dialect;
    use kiln_value::value;

    #[test]
    fn a_policy_of_a_namespace_is_named_by_objects_of_that_namespace_only() {
        let rule = |namespace: Option<&str>| RuleId {
            policy: PolicyId {
                dialect: Dialect::GeneratingPolicy,
                namespace: namespace.map(Str::from),
                name: "p".into(),
            },
            rule: "p".into(),
        };
        // As Kyverno labels what a policy made of a trigger in `team`, wherever the policy is.
        let claim = |namespace: &str| {
            let labels = value!({
                "app.kubernetes.io/managed-by": "kyverno",
                "generate.kyverno.io/policy-name": "p",
                "generate.kyverno.io/trigger-name": "t",
                "generate.kyverno.io/trigger-namespace": "team",
            });
            let mut object = value!({"metadata": {"name": "made"}});
            object.set(["metadata", "labels"], labels).unwrap();
            if !namespace.is_empty() {
                object.set(["metadata", "namespace"], namespace).unwrap();
            }
            ClaimLabels::read(&object).unwrap()
        };
        for (place, of_the_namespace) in [("team", true), ("central", false), ("", false)] {
            assert!(claim(place).names(&rule(None)), "{place:?}");
            assert_eq!(claim(place).names(&rule(Some("team"))), of_the_namespace, "{place:?}");
            assert!(!claim(place).names(&rule(Some("central"))), "{place:?}");
        }
    }
}
