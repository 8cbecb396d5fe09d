//! What rules that act at admission would make of the objects of a cluster, were they written again as they are.

use kiln_admission::SimulatedWrite;
use kiln_diagnostic::Diagnostic;
use kiln_engine::{Event, RuleSet, User};
use kiln_object::{Gvk, ObjectId};
use kiln_rules::RuleId;
use kiln_value::Value;

use crate::cluster::admission_simulation::AdmissionSimulation;
use crate::exit::CommandFailure;

/// An object that its next write would change or meet with a refusal.
pub(super) struct NextWrite {
    pub(super) target: ObjectId,
    pub(super) rules: Vec<RuleId>,
    pub(super) before: Value,
    pub(super) after: Value,
    /// Why it would be refused.
    pub(super) refused: Option<String>,
}

/// All of them, kind by kind, as if the user of the command wrote them.
pub(super) fn all(
    admission: &AdmissionSimulation<'_>,
    rules: &RuleSet,
) -> Result<Vec<NextWrite>, CommandFailure> {
    let AdmissionSimulation { reader, kinds, .. } = admission;
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
    let mut writes = Vec::new();
    let user = if found.is_empty() { None } else { reader.user() };
    for gvk in found {
        let objects = reader.all(&gvk, "").map_err(|error| {
            Diagnostic::error(format!("cannot list {}: {error}", gvk.kind))
                .hint("a plan needs permission to list what rules match")
        })?;
        for object in objects {
            let Ok(id) = ObjectId::of(&object) else { continue };
            writes.extend(of(admission, id, object, user.as_ref()));
        }
    }
    Ok(writes)
}

fn of(
    admission: &AdmissionSimulation<'_>,
    target: ObjectId,
    before: Value,
    user: Option<&User>,
) -> Option<NextWrite> {
    let mut event = Event::updated(before.clone(), before.clone());
    event.user = user.cloned();
    let simulated = admission.simulate(&event);
    if simulated.refused.is_none() && simulated.object == before {
        return None;
    }
    let SimulatedWrite { object: after, rules, refused } = simulated;
    // What rules make has to be something that the server stores.
    let refused = match refused {
        Some(refused) => Some(refused.why),
        None => {
            let why = admission.reader.refuses(&after);
            why.map(|why| {
                format!("the API server rejects the object as the rules change it: {why}")
            })
        }
    };
    Some(NextWrite { target, rules, before, after, refused })
}
