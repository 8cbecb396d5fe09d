//! What the controller adds to claims: its books and its signature. The engine writes and reads the claim itself.

pub(crate) mod left;
pub mod provenance;
pub(crate) mod signature;

use kiln_engine::{
    ANNOTATION_PREFIX, CLAIM_USER, ClaimBooks, ContentHash, Ensure, Ownership, TRIGGER_CONTENT,
};
use kiln_object::{Gvk, ObjectId, metadata};
use kiln_rules::{Emission, Emitter, LabelOwner, Program, Rule, TargetNamespace};
use kiln_value::{Map, Str, Value};
use kiln_variables::Template;

use crate::ownership::left::{Left, Sender};
use crate::ownership::signature::{ClaimKeys, SIGNATURE};

/// What may differ without making a write worth it, as long as the claim is one that the engine signed.
///
/// These say how an object came about, not whose it is. A policy whose parts are reordered, or a key that is replaced,
/// would otherwise cost a write of every downstream at once. They are corrected with the next write that is due anyway.
const VOLATILE: [&str; 6] = [
    "kiln.dev/slot",
    "kiln.dev/operation",
    "kiln.dev/content",
    CLAIM_USER,
    TRIGGER_CONTENT,
    SIGNATURE,
];

/// The trigger as the user of a claim left it.
pub(crate) fn left_of(mark: &Ownership) -> Option<Left> {
    mark.trigger_content.as_deref().and_then(Left::parse)
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
    let books = ClaimBooks {
        pattern: pattern_of(ensure, rule),
        policy_uid,
        sender: sender.map(|Sender { user, left }| (user, left.to_text())),
    };
    ensure.claim.write_onto(&mut object, rule.lifecycle.labels, books);
    if let Some(signature) = keys.sign(&object) {
        let _ = metadata::set_annotation(&mut object, SIGNATURE, &signature);
    }
    object
}

/// An object without its ownership metadata: it is orphaned from now on.
pub(crate) fn released(live: &Value) -> Value {
    let mut object = live.clone();
    for owner in LabelOwner::ALL {
        for part in ["policy-name", "policy-namespace", "rule-name"] {
            metadata::remove_label(&mut object, &format!("{}{part}", owner.prefix()));
        }
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
