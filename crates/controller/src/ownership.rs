//! The claim on a downstream object, as the controller writes it and reads it back.
//!
//! Labels are Kyverno's. Annotations hold what does not fit into labels and cannot be found out again:
//! the operation and user that made the trigger one, which part of the rule made the object, and the life
//! of the policy that did.

use kiln_engine::{
    ANNOTATION_PREFIX, ClaimLabels, ContentHash, Ensure, LABEL_PREFIX, SOURCE, SOURCE_SEPARATOR,
    User,
};
use kiln_object::{Gvk, ObjectId, metadata};
use kiln_rules::{Emission, Emitter, Operation, Program, Rule, RuleId, TargetNamespace};
use kiln_value::{Map, Str, Value, json};
use kiln_variables::Template;

use crate::left::{Left, Sender};
use crate::signature::{ClaimKeys, SIGNATURE};
use crate::work_queue::Key;

/// The claim on an object.
#[derive(Clone, Debug)]
pub(crate) struct Ownership {
    pub(crate) labels: ClaimLabels,
    rule: Option<Str>,
    pub(crate) pattern: Option<Str>,
    pub(crate) policy_uid: Option<Str>,
    pub(crate) operation: Option<Operation>,
    pub(crate) content: Option<Str>,
    pub(crate) user: Option<User>,
    /// The trigger as that user left it.
    pub(crate) left: Option<Left>,
    /// The trigger as it is shown: its name is the last part.
    trigger: Option<Str>,
    /// It came from a source.
    pub(crate) copied: bool,
    /// What it was made of, as text.
    sources: Option<Str>,
}

const PATTERN: &str = "kiln.dev/pattern";
const POLICY_UID: &str = "kiln.dev/policy-uid";
const USER: &str = "kiln.dev/user";
const LEFT: &str = "kiln.dev/trigger-content";
/// What may differ without making a write worth it, as long as the claim is one that the engine signed.
const VOLATILE: [&str; 6] =
    ["kiln.dev/slot", "kiln.dev/operation", "kiln.dev/content", USER, LEFT, SIGNATURE];

impl Ownership {
    /// Reads the claim of an object; none when no rule made it.
    pub(crate) fn read(object: &Value) -> Option<Self> {
        let labels = ClaimLabels::read(object)?;
        let text = |key: &str| metadata::annotation(object, key).map(Str::from);
        let source_kind = metadata::label(object, "generate.kyverno.io/source-kind");
        Some(Ownership {
            copied: labels.source_uid.is_some()
                || source_kind.is_some()
                || metadata::annotation(object, SOURCE).is_some(),
            labels,
            rule: text("kiln.dev/rule"),
            pattern: text(PATTERN),
            policy_uid: text(POLICY_UID),
            sources: text(SOURCE),
            operation: text("kiln.dev/operation").and_then(|word| word.parse().ok()),
            content: text("kiln.dev/content"),
            trigger: text("kiln.dev/trigger"),
            left: text(LEFT).and_then(|text| Left::parse(&text)),
            user: text(USER).and_then(|text| read_user(&json::parse(&text).ok()?)),
        })
    }

    /// The trigger, as far as the claim says what it is called.
    pub(crate) fn trigger(&self) -> Option<ObjectId> {
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
    pub(crate) fn is_of(&self, rule: &RuleId) -> bool {
        match &self.rule {
            Some(named) => *named == rule.to_string() && self.labels.is_in_reach_of(&rule.policy),
            None => self.labels.names(rule),
        }
    }

    /// Whether it says which rule made it; the labels of other engines may mean several.
    pub(crate) fn names_its_rule(&self) -> bool {
        self.rule.is_some()
    }

    /// Whether a rule made it of a trigger.
    pub(crate) fn is_by(&self, key: &Key) -> bool {
        self.is_of(&key.rule) && self.labels.trigger_uid.as_ref() == Some(&key.trigger)
    }

    /// Whether it comes from this life of the policy. Claims of others say nothing about it.
    ///
    /// A policy that was deleted and stored again under its name is another policy: what the first one left behind on
    /// purpose (`orphanDownstreamOnPolicyDelete`) must not be deleted by the second. Other engines write no UID, and
    /// counting their objects as foreign would make adoption impossible.
    pub(crate) fn is_of_life(&self, policy_uid: &str) -> bool {
        self.policy_uid.as_ref().is_none_or(|uid| uid == policy_uid)
    }

    /// Whether the claim says what it was made of; labels alone do not.
    pub(crate) fn names_sources(&self) -> bool {
        self.sources.is_some()
    }

    /// Whether it was made of an object.
    pub(crate) fn is_made_of(&self, source: &ObjectId) -> bool {
        let source = source.to_string();
        let mut named = self.sources.iter().flat_map(|sources| sources.split(SOURCE_SEPARATOR));
        named.any(|named| named == source)
    }

    /// Whether the trigger was one only in passing, so that nothing follows it afterwards.
    pub(crate) fn is_final(&self) -> bool {
        matches!(self.operation, Some(Operation::Delete | Operation::Connect))
    }
}

/// The object of an effect with its whole claim, signed.
pub(crate) fn marked(
    ensure: &Ensure,
    rule: &Rule,
    policy_uid: &str,
    sender: Option<&Sender>,
    keys: &ClaimKeys,
) -> Value {
    let mut object = ensure.object.clone();
    // Before anything is added: a clone takes over the labels of its source, which may be a downstream itself, and
    // signing a claim that was copied would prove something that is not true.
    strip_foreign(&mut object, &ensure.claim.labels(rule.lifecycle.labels));
    let mut annotations = ensure.claim.annotations();
    annotations.push((PATTERN.into(), pattern_of(ensure, rule)));
    annotations.push((POLICY_UID.into(), policy_uid.into()));
    if let Some(Sender { user, left }) = sender {
        annotations.push((USER.into(), json::to_string(&write_user(user)).into()));
        annotations.push((LEFT.into(), left.to_text().into()));
    }
    for (key, value) in annotations {
        // The engine made the object, and its metadata is a map.
        let _ = metadata::set_annotation(&mut object, &key, &value);
    }
    if let Some(signature) = keys.sign(&object) {
        let _ = metadata::set_annotation(&mut object, SIGNATURE, &signature);
    }
    object
}

/// Takes off what a rule took over from somewhere and only the engine says: it would be signed.
fn strip_foreign(object: &mut Value, own: &[(Str, Str)]) {
    let is_ours = |key: &str| key.starts_with(ANNOTATION_PREFIX) || key.starts_with(LABEL_PREFIX);
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_map_mut) else { return };
    for field in ["labels", "annotations"] {
        let is_own = |key: &str| field == "labels" && own.iter().any(|(label, _)| label == key);
        let Some(texts) = metadata.get_mut(field).and_then(Value::as_map_mut) else { continue };
        texts.retain(|key, _| !is_ours(key) || is_own(key));
    }
}

/// An object without its ownership metadata: it is orphaned from now on.
pub(crate) fn released(live: &Value) -> Value {
    let mut object = live.clone();
    for part in ["policy-name", "policy-namespace", "rule-name"] {
        metadata::remove_label(&mut object, &format!("generate.kyverno.io/{part}"));
    }
    let own: Vec<String> = metadata::annotations(live)
        .into_iter()
        .flat_map(Map::keys)
        .filter(|key| key.starts_with(ANNOTATION_PREFIX))
        .map(|key| key.as_str().to_owned())
        .collect();
    for key in own {
        metadata::remove_annotation(&mut object, &key);
    }
    object
}

/// Takes off what may differ without making a write worth it.
pub(crate) fn strip_volatile(object: &mut Value) {
    for key in VOLATILE {
        metadata::remove_annotation(object, key);
    }
}

/// The patterns of all parts of a rule, for objects of these kinds.
pub(crate) fn patterns(rule: &Rule, target: &ObjectId) -> Vec<Str> {
    let Program::Generate(program) = &rule.program else { return Vec::new() };
    program.emitters().map(|(_, _, emitter)| pattern(emitter, target)).collect()
}

/// Whether a rule makes objects that are called so, as far as that is written down.
pub(crate) fn may_make(rule: &Rule, id: &ObjectId) -> bool {
    let Program::Generate(program) = &rule.program else { return false };
    // What holds a variable may come out as anything.
    fn may_be(template: &Template, text: &str) -> bool {
        !template.is_plain() || template.document().as_str() == Some(text)
    }
    let is_kind = |kind: &Gvk| kind.group == id.gvk.group && kind.kind == id.gvk.kind;
    program.emitters().any(|(_, _, emitter)| match &emitter.emission {
        Emission::Data { target, .. } | Emission::Clone { target, .. } => {
            let kinds = emitter.target_kinds();
            let in_namespace = match &target.namespace {
                TargetNamespace::Written(namespace) => may_be(namespace, &id.namespace),
                TargetNamespace::None | TargetNamespace::OfTrigger => true,
            };
            (kinds.is_empty() || kinds.iter().any(is_kind))
                && may_be(&target.name, &id.name)
                && in_namespace
        }
        Emission::CloneSelect(select) => {
            let every = select.kinds.iter().all(Template::is_plain);
            (!every || select.plain_kinds().any(|kind| is_kind(&kind)))
                && select.target_namespace.as_ref().is_none_or(|n| may_be(n, &id.namespace))
        }
        Emission::FromExpression { .. } | Emission::Documents(_) => {
            let kinds = emitter.target_kinds();
            kinds.is_empty() || kinds.iter().any(is_kind)
        }
    })
}

fn pattern_of(ensure: &Ensure, rule: &Rule) -> Str {
    let Program::Generate(program) = &rule.program else { return Str::default() };
    let slot = ensure.claim.slot;
    program
        .blocks
        .get(slot.block)
        .and_then(|block| block.emitters.get(slot.emitter))
        .map_or_else(Str::default, |emitter| pattern(emitter, &ensure.target))
}

/// Which objects a part of a rule makes, as written, hashed. When it changes, what the part made before
/// is let go.
fn pattern(emitter: &Emitter, target: &ObjectId) -> Str {
    let document = |template: &Template| template.document().clone();
    let named = |target: &kiln_rules::Target| {
        let namespace = match &target.namespace {
            TargetNamespace::None => Value::Null,
            TargetNamespace::Written(namespace) => document(namespace),
            TargetNamespace::OfTrigger => Value::from(true),
        };
        let parts = [&target.api_version, &target.kind, &target.name].map(document);
        Value::from_iter(parts.into_iter().chain([namespace]))
    };
    let optional = |template: Option<&Template>| template.map_or(Value::Null, document);
    let written = match &emitter.emission {
        Emission::Data { target, .. } => named(target),
        Emission::Clone { source, target } => {
            let parts = [&source.api_version, &source.kind, &source.name].map(document);
            let source = parts.into_iter().chain([optional(source.namespace.as_ref())]);
            Value::from_iter([named(target), Value::from_iter(source)])
        }
        // What expressions make is known when they have run, so what they made before goes when they no
        // longer ask for it.
        Emission::FromExpression { .. } | Emission::Documents(_) => Value::from("asked"),
        Emission::CloneSelect(select) => {
            let kind = Value::from(target.gvk.kind.clone());
            // Each kind on its own, so that leaving one out says nothing about the others.
            let listed = select.kinds.iter().any(|kind| {
                !kind.is_plain()
                    || kind
                        .document()
                        .as_str()
                        .is_some_and(|kind| kind.rsplit('/').next() == Some(&target.gvk.kind))
            });
            Value::from_iter([
                kind,
                Value::from(listed),
                optional(select.namespace.as_ref()),
                optional(select.selector.as_ref()),
                optional(select.target_namespace.as_ref()),
            ])
        }
    };
    ContentHash::of(&written).to_string().into()
}

/// A user as [`Ownership`]s and UpdateRequests hold one.
pub(crate) fn write_user(user: &User) -> Value {
    let list = |texts: &[Str]| Value::from_iter(texts.iter().cloned());
    let mut map = Map::new();
    map.insert("username", user.username.clone());
    map.insert("uid", user.uid.clone());
    map.insert("groups", list(&user.groups));
    map.insert("roles", list(&user.roles));
    map.insert("clusterRoles", list(&user.cluster_roles));
    Value::Map(map)
}

/// Reads what [`write_user`] wrote.
pub(crate) fn read_user(value: &Value) -> Option<User> {
    let text = |key: &str| value.str_at([key]).unwrap_or_default().into();
    let list = |key: &str| {
        let list = value.get(key).and_then(Value::as_list);
        list.into_iter().flat_map(|l| l.iter()).filter_map(Value::as_str).map(Str::from).collect()
    };
    Some(User {
        username: value.str_at(["username"])?.into(),
        uid: text("uid"),
        groups: list("groups"),
        extra: Map::new(),
        roles: list("roles"),
        cluster_roles: list("clusterRoles"),
    })
}
