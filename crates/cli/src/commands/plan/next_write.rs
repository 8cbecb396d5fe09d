//! What rules that act at admission would make of the objects of a cluster, were they written again as they are.

use kiln_diagnostic::Diagnostic;
use kiln_engine::{Effect, Event, RuleSet, Verdict, World};
use kiln_live::{Around, Reader};
use kiln_object::{Gvk, Kinds, ObjectId};
use kiln_rules::RuleId;
use kiln_value::Value;

use super::super::eval::Surroundings;
use crate::exit::Failure;

/// An object that its next write would change or meet with a refusal.
pub(super) struct NextWrite {
    pub(super) target: ObjectId,
    pub(super) rules: Vec<RuleId>,
    pub(super) before: Value,
    pub(super) after: Value,
    /// Why it would be refused.
    pub(super) refused: Option<String>,
}

/// All of them, kind by kind.
pub(super) fn all(
    rules: &RuleSet,
    reader: &Reader,
    kinds: &Kinds,
    around: &Around,
) -> Result<Vec<NextWrite>, Failure> {
    let acting: Vec<_> =
        rules.rules().filter(|rule| rule.program.acts_at_admission()).cloned().collect();
    let mut found: Vec<Gvk> = kinds
        .iter()
        .filter(|kind| kind.is_served())
        .filter_map(|kind| kinds.preferred(kind.group(), kind.kind()))
        .map(kiln_object::Kind::gvk)
        .filter(|gvk| acting.iter().any(|rule| rule.trigger.may_fire_for(gvk, "")))
        .collect();
    found.sort();
    found.dedup();
    let outside = around.outside();
    let world = World {
        view: reader,
        kinds,
        sources: &Surroundings,
        outside: &outside,
        limits: around.settings.limits,
    };
    let mut writes = Vec::new();
    for gvk in found {
        let objects = reader.all(&gvk, "").map_err(|error| {
            Diagnostic::error(format!("cannot list {}: {error}", gvk.kind))
                .hint("a plan needs the right to list what rules are about")
        })?;
        for object in objects {
            let Ok(id) = ObjectId::of(&object) else { continue };
            if !around.settings.filters_out(&id.gvk, "", &id.namespace, &id.name) {
                writes.extend(of(rules, &world, id, object));
            }
        }
    }
    Ok(writes)
}

fn of(rules: &RuleSet, world: &World<'_>, target: ObjectId, before: Value) -> Option<NextWrite> {
    let mutated = rules.mutate(&Event::updated(before.clone(), before.clone()), world);
    let mut refused = None;
    let mut by = Vec::new();
    for outcome in &mutated.outcomes {
        for effect in &outcome.effects {
            match effect {
                Effect::Reject { message, .. } => {
                    refused.get_or_insert_with(|| message.to_string());
                    by.push(outcome.rule.clone());
                }
                Effect::Patch(patch) if patch.before != patch.after => {
                    by.push(outcome.rule.clone());
                }
                _ => {}
            }
        }
        if outcome.verdict == Verdict::Error
            && let Some(failure) = outcome.failures.first()
        {
            refused.get_or_insert_with(|| format!("the rule fails: {}", failure.message));
            by.push(outcome.rule.clone());
        }
    }
    if refused.is_none() && mutated.object == before {
        return None;
    }
    by.dedup();
    Some(NextWrite { target, rules: by, before, after: mutated.object, refused })
}
