//! What rules that act at admission would make of the objects of a cluster, were they written again as they are.

use kiln_admission::Judged;
use kiln_diagnostic::Diagnostic;
use kiln_engine::{Event, RuleSet, User};
use kiln_object::{Gvk, ObjectId};
use kiln_rules::RuleId;
use kiln_value::Value;

use super::super::at_admission::AtAdmission;
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

/// All of them, kind by kind, as if whoever asks wrote them.
pub(super) fn all(admission: &AtAdmission<'_>, rules: &RuleSet) -> Result<Vec<NextWrite>, Failure> {
    let AtAdmission { reader, kinds, .. } = admission;
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
                .hint("a plan needs the right to list what rules are about")
        })?;
        for object in objects {
            let Ok(id) = ObjectId::of(&object) else { continue };
            writes.extend(of(admission, id, object, user.as_ref()));
        }
    }
    Ok(writes)
}

fn of(
    admission: &AtAdmission<'_>,
    target: ObjectId,
    before: Value,
    user: Option<&User>,
) -> Option<NextWrite> {
    let mut event = Event::updated(before.clone(), before.clone());
    event.user = user.cloned();
    let judged = admission.judge(&event);
    if judged.refused.is_none() && judged.object == before {
        return None;
    }
    let Judged { object: after, rules, refused } = judged;
    // What rules make has to be something that the server stores.
    let refused = match refused {
        Some((_, why)) => Some(why),
        None => {
            let why = admission.reader.refuses(&after);
            why.map(|why| format!("the API server does not take what the rules make of it: {why}"))
        }
    };
    Some(NextWrite { target, rules, before, after, refused })
}
