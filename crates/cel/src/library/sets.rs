//! Lists as sets.

use super::Registry;
use crate::Val;
use crate::error::{EvalFailure, no_such_overload};
use crate::eval::Context;
use crate::value::{CelList, equal};

pub(super) fn register(registry: &mut Registry) {
    registry.add(
        |context, args| {
            let (a, b) = lists(args)?;
            Ok(Val::Bool(contains_all(context, a, b)?))
        },
        &["sets.contains(list(A), list(A)): bool"],
    );
    registry.add(
        |context, args| {
            let (a, b) = lists(args)?;
            Ok(Val::Bool(contains_all(context, a, b)? && contains_all(context, b, a)?))
        },
        &["sets.equivalent(list(A), list(A)): bool"],
    );
    registry.add(intersects, &["sets.intersects(list(A), list(A)): bool"]);
}

fn lists(args: &[Val]) -> Result<(&CelList, &CelList), EvalFailure> {
    match args {
        [Val::List(a), Val::List(b)] => Ok((a, b)),
        _ => Err(no_such_overload()),
    }
}

fn contains(context: &mut Context<'_>, list: &CelList, wanted: &Val) -> Result<bool, EvalFailure> {
    for value in list {
        context.meter.charge(1)?;
        if equal(&value, wanted, &mut context.meter)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn contains_all(
    context: &mut Context<'_>,
    list: &CelList,
    wanted: &CelList,
) -> Result<bool, EvalFailure> {
    for value in wanted {
        if !contains(context, list, &value)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn intersects(context: &mut Context<'_>, args: &[Val]) -> Result<Val, EvalFailure> {
    let (a, b) = lists(args)?;
    for value in b {
        if contains(context, a, &value)? {
            return Ok(Val::Bool(true));
        }
    }
    Ok(Val::Bool(false))
}
