//! `generator.Apply`: what a policy generates.

use kiln_value::{Str, Value};

use crate::Val;
use crate::error::{EvalFailure, failure, no_such_overload};
use crate::eval::Context;
use crate::host::Effect;
use crate::library::{PolicyScope, Registry};

pub(super) fn register(registry: &mut Registry, scope: &PolicyScope) {
    // The wrong form for the scope must not even compile.
    match scope {
        PolicyScope::Cluster => registry.add(
            |context, args| {
                let Val::String(namespace) = &args[1] else { return Err(no_such_overload()) };
                apply(context, Some(namespace.clone()), &args[2])
            },
            &[
                "(kyverno.Generator).Apply(string, list(map(string, dyn))): bool",
                "(kyverno.Generator).apply(string, list(map(string, dyn))): bool",
                "(kyverno.Generator).ApplyAll(string, list(map(string, dyn))): bool",
                "(kyverno.Generator).applyAll(string, list(map(string, dyn))): bool",
                "(kyverno.Generator).Apply(string, list(dyn)): bool",
                "(kyverno.Generator).apply(string, list(dyn)): bool",
                "(kyverno.Generator).ApplyAll(string, list(dyn)): bool",
                "(kyverno.Generator).applyAll(string, list(dyn)): bool",
                "(kyverno.Generator).Apply(string, map(string, dyn)): bool",
                "(kyverno.Generator).apply(string, map(string, dyn)): bool",
                "(kyverno.Generator).ApplyAll(string, map(string, dyn)): bool",
                "(kyverno.Generator).applyAll(string, map(string, dyn)): bool",
            ],
        ),
        PolicyScope::Namespace(_) => registry.add(
            |context, args| apply(context, None, &args[1]),
            &[
                "(kyverno.Generator).Apply(list(map(string, dyn))): bool",
                "(kyverno.Generator).apply(list(map(string, dyn))): bool",
                "(kyverno.Generator).ApplyAll(list(map(string, dyn))): bool",
                "(kyverno.Generator).applyAll(list(map(string, dyn))): bool",
                "(kyverno.Generator).Apply(list(dyn)): bool",
                "(kyverno.Generator).apply(list(dyn)): bool",
                "(kyverno.Generator).ApplyAll(list(dyn)): bool",
                "(kyverno.Generator).applyAll(list(dyn)): bool",
                "(kyverno.Generator).Apply(map(string, dyn)): bool",
                "(kyverno.Generator).apply(map(string, dyn)): bool",
                "(kyverno.Generator).ApplyAll(map(string, dyn)): bool",
                "(kyverno.Generator).applyAll(map(string, dyn)): bool",
            ],
        ),
    }
}

/// Notes the objects; all of them or, when one is not an object, none.
fn apply(
    context: &mut Context<'_>,
    namespace: Option<Str>,
    value: &Val,
) -> Result<Val, EvalFailure> {
    let mut objects = Vec::new();
    collect(context, value, &mut String::new(), &mut objects)?;
    context.effects.push(Effect::Generate { namespace, objects });
    Ok(Val::Bool(true))
}

/// Maps, Lists of Kubernetes and lists of either, nested or optional.
fn collect(
    context: &mut Context<'_>,
    value: &Val,
    place: &mut String,
    objects: &mut Vec<Value>,
) -> Result<(), EvalFailure> {
    context.meter.charge(1)?;
    match value {
        Val::List(list) => {
            for (at, element) in list.iter().enumerate() {
                let length = place.len();
                place.push_str(&format!("[{at}]"));
                collect(context, &element, place, objects)?;
                place.truncate(length);
            }
            Ok(())
        }
        Val::Optional(None) => Ok(()),
        Val::Optional(Some(nested)) => collect(context, &nested.value, place, objects),
        Val::Map(map) => match map.get_str("items") {
            Some(items @ Val::List(_)) => {
                place.push_str(".items");
                collect(context, &items, place, objects)
            }
            _ => {
                objects.push(context.json(value)?);
                Ok(())
            }
        },
        Val::Struct(_) => {
            objects.push(context.json(value)?);
            Ok(())
        }
        other => {
            let found = other.type_name();
            let place = if place.is_empty() { "the argument" } else { place.as_str() };
            Err(failure(format!("failed to generate resources: {place} is {found}, not an object")))
        }
    }
}
