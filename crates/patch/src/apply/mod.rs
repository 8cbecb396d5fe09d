//! Server-side apply: each manager owns the fields that it set.
//!
//! [`apply`] merges what a manager applies into the live object, takes away what the manager applied
//! before and leaves out now, and refuses to change what others own. [`update`] notes who changed what
//! by any other write. Both keep [`Managers`], which is `metadata.managedFields` in another form.
//!
//! | module | holds |
//! |---|---|
//! | `shape` | what must be known of types |
//! | `fieldset` | sets of fields, `fieldsV1` |
//! | `typed` | values with types: checks, merges, comparisons |
//! | `managers` | `managedFields` |

mod fieldset;
mod managers;
mod shape;
mod typed;

pub use fieldset::{FieldSet, FieldStep};
pub use managers::{Managed, Manager, ManagerOperation, Managers};
pub use shape::{ApplyShape, Elements, Form, Member, Scalar, Untyped};

use kiln_value::Value;
use typed::Comparison;

/// A field that another manager owns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The owner of the field.
    pub manager: Manager,
    /// The field, as messages write it: `.spec.replicas`.
    pub field: String,
}

/// Why something cannot be applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApplyError {
    /// What is applied does not have its type; the place and the reason.
    Type(String),
    /// Others own some of its fields.
    Conflicts(Vec<Conflict>),
}

/// Checks that an object has its type.
///
/// # Errors
/// The place and the reason.
pub fn check_type<S: ApplyShape>(object: &Value, shape: &S) -> Result<(), String> {
    typed::check(object, shape, &mut String::new(), false)
}

/// The fields of `last` that are the same in `live`.
pub fn unchanged_fields<S: ApplyShape>(last: &Value, live: &Value, shape: &S) -> FieldSet {
    let compared = Comparison::of(last, live, shape);
    typed::field_set(last, shape)
        .difference(&compared.modified)
        .difference(&compared.added)
        .difference(&compared.removed)
}

/// Which fields an object has.
pub fn fields_of<S: ApplyShape>(object: &Value, shape: &S) -> FieldSet {
    typed::field_set(object, shape)
}

/// Notes in `managers` what a manager changed from `old` to `new`. Fields in `ignored`, and below them,
/// have no owner.
pub fn update<S: ApplyShape>(
    old: &Value,
    new: &Value,
    shape: &S,
    managers: &mut Managers,
    manager: &Manager,
    ignored: &FieldSet,
) {
    let compared = Comparison::of(old, new, shape).without(ignored);
    hand_over(managers, manager, &compared);
    let owned = managers.fields(manager).cloned().unwrap_or_default();
    let owned = owned
        .difference(&compared.removed)
        .union(&compared.modified)
        .union(&compared.added)
        .without(ignored);
    managers.set(manager.clone(), owned);
}

/// Applies `applied` to `live`. The answer is what the object is then; `managers` is kept.
///
/// The order is that of Kubernetes' structured-merge-diff, and each step needs the one before:
/// 1. Merge, as if nothing had an owner.
/// 2. Replace the manager's own field set by exactly what it applies now.
/// 3. Prune what it applied before, leaves out now, and no other manager owns: that is how an applied field is removed.
/// 4. Compare with the live object. Conflicts are looked for in this difference and not in what is applied, so that
///    applying a value that is already there is never a conflict but shared ownership.
/// 5. Take changed fields from other managers (`hand_over`); without `force` there are none left to take.
///
/// # Errors
/// When it does not have its type, or, unless forced, when others own some of its fields; `managers` is
/// then of no use any more.
pub fn apply<S: ApplyShape>(
    live: &Value,
    applied: &Value,
    shape: &S,
    managers: &mut Managers,
    manager: &Manager,
    ignored: &FieldSet,
    force: bool,
) -> Result<Value, ApplyError> {
    check_type(applied, shape).map_err(ApplyError::Type)?;
    let merged = typed::merge(Some(live), Some(applied), shape).unwrap_or_else(Value::map);
    let owned = typed::field_set(applied, shape).without(ignored);
    let last = managers.fields(manager).cloned().unwrap_or_default();
    managers.set_even_empty(manager.clone(), owned);
    let pruned = prune(&merged, managers, &last, shape);
    let compared = Comparison::of(live, &pruned, shape).without(ignored);
    if !force {
        let conflicts = conflicts(managers, manager, &compared);
        if !conflicts.is_empty() {
            return Err(ApplyError::Conflicts(conflicts));
        }
    }
    hand_over(managers, manager, &compared);
    managers.drop_empty();
    Ok(pruned)
}

/// Takes out what the manager applied before and has no owner now.
///
/// Removing a map or a list element removes everything in it, also fields of other managers. So it takes three passes:
/// remove all that the manager had; find out what has to come back because it is owned, or stood below something owned;
/// and remove from the merged object only what is gone in the end *and* was the manager's own.
fn prune<S: ApplyShape>(merged: &Value, managers: &Managers, last: &FieldSet, shape: &S) -> Value {
    if last.is_empty() {
        return merged.clone();
    }
    let named = |set: &FieldSet| set.with_named(Some(shape));
    let pruned = typed::remove(merged, &named(last), shape);
    // Owned fields come back.
    let managed = managers.all_fields();
    let everything = named(&typed::field_set(merged, shape));
    let kept = named(&typed::field_set(&pruned, shape)).union(&named(&managed));
    let pruned = typed::remove(merged, &everything.difference(&kept), shape);
    // What went only because it stood below something that went comes back too.
    let gone = everything.difference(&named(&typed::field_set(&pruned, shape)));
    typed::remove(merged, &gone.intersection(&named(last)), shape)
}

fn conflicts(managers: &Managers, manager: &Manager, compared: &Comparison) -> Vec<Conflict> {
    let changed = compared.modified.clone().union(&compared.added);
    let others = managers.iter().filter(|(other, _)| *other != manager);
    others
        .flat_map(|(other, owned)| {
            let fields = owned.intersection(&changed).paths().into_iter();
            fields.map(|field| Conflict { manager: other.clone(), field })
        })
        .collect()
}

/// Others no longer own what was changed or removed.
fn hand_over(managers: &mut Managers, manager: &Manager, compared: &Comparison) {
    let changed = compared.modified.clone().union(&compared.added);
    managers
        .change_others(manager, |owned| owned.difference(&changed).difference(&compared.removed));
}

#[cfg(test)]
mod tests {
    use kiln_value::value;

    use super::*;

    fn manager(name: &str) -> Manager {
        Manager::apply(name, "v1", "")
    }

    #[test]
    fn what_a_manager_leaves_out_goes() {
        let mut managers = Managers::default();
        let first = value!({"data": {"a": "1", "b": "2"}});
        let none = FieldSet::default();
        let live = apply(&value!({}), &first, &Untyped, &mut managers, &manager("a"), &none, false);
        let live = live.unwrap();
        let second = value!({"data": {"a": "1"}});
        let live = apply(&live, &second, &Untyped, &mut managers, &manager("a"), &none, false);
        assert_eq!(live.unwrap(), second);
    }

    #[test]
    fn others_keep_what_they_own() {
        let mut managers = Managers::default();
        let none = FieldSet::default();
        let a = value!({"data": {"a": "1"}});
        let live = apply(&value!({}), &a, &Untyped, &mut managers, &manager("a"), &none, false);
        let other = value!({"data": {"a": "2"}});
        let refused = apply(
            &live.clone().unwrap(),
            &other,
            &Untyped,
            &mut managers.clone(),
            &manager("b"),
            &none,
            false,
        );
        let conflict = Conflict { manager: manager("a"), field: ".data.a".to_owned() };
        assert_eq!(refused, Err(ApplyError::Conflicts(vec![conflict])));
        let live = live.unwrap();
        let forced = apply(&live, &other, &Untyped, &mut managers, &manager("b"), &none, true);
        assert_eq!(forced.unwrap(), other);
        let entries = managers.to_values();
        let b = entries.iter().find(|entry| entry.str_at(["manager"]) == Some("b")).unwrap();
        assert_eq!(b.get("fieldsV1"), Some(&value!({"f:data": {".": {}, "f:a": {}}})));
    }
}
