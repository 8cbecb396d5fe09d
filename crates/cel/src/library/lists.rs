//! Lists: the extension of the language and the functions of Kubernetes.

use std::cmp::Ordering;

use super::Registry;
use crate::Val;
use crate::budget::Meter;
use crate::error::{EvalFailure, failure, no_such_overload};
use crate::eval::Context;
use crate::syntax::ast::BinaryOp;
use crate::value::{CelList, compare, equal};

pub(super) fn register(registry: &mut Registry) {
    registry.add(slice, &["(list(A)).slice(int, int): list(A)"]);
    registry.add(
        flatten,
        &["(list(list(A))).flatten(): list(A)", "(list(dyn)).flatten(int): list(dyn)"],
    );
    registry.add(
        sort,
        &[
            "(list(int)).sort(): list(int)",
            "(list(uint)).sort(): list(uint)",
            "(list(double)).sort(): list(double)",
            "(list(bool)).sort(): list(bool)",
            "(list(duration)).sort(): list(duration)",
            "(list(timestamp)).sort(): list(timestamp)",
            "(list(string)).sort(): list(string)",
            "(list(bytes)).sort(): list(bytes)",
        ],
    );
    registry.add(distinct, &["(list(A)).distinct(): list(A)"]);
    registry.add(reverse, &["(list(A)).reverse(): list(A)"]);
    registry.add(range, &["lists.range(int): list(int)"]);
    registry.add(|_, args| end(args, |list| list.get(0)), &["(list(A)).first(): optional(A)"]);
    registry.add(
        |_, args| end(args, |list| list.get(list.len().wrapping_sub(1))),
        &["(list(A)).last(): optional(A)"],
    );
    // Kubernetes.
    registry.add(
        is_sorted,
        &[
            "(list(int)).isSorted(): bool",
            "(list(uint)).isSorted(): bool",
            "(list(double)).isSorted(): bool",
            "(list(bool)).isSorted(): bool",
            "(list(duration)).isSorted(): bool",
            "(list(timestamp)).isSorted(): bool",
            "(list(string)).isSorted(): bool",
            "(list(bytes)).isSorted(): bool",
        ],
    );
    registry.add(
        sum,
        &[
            "(list(int)).sum(): int",
            "(list(uint)).sum(): uint",
            "(list(double)).sum(): double",
            "(list(duration)).sum(): duration",
        ],
    );
    registry.add(
        |context, args| extreme(context, args, "min", Ordering::Less),
        &[
            "(list(int)).min(): int",
            "(list(uint)).min(): uint",
            "(list(double)).min(): double",
            "(list(bool)).min(): bool",
            "(list(duration)).min(): duration",
            "(list(timestamp)).min(): timestamp",
            "(list(string)).min(): string",
            "(list(bytes)).min(): bytes",
        ],
    );
    registry.add(
        |context, args| extreme(context, args, "max", Ordering::Greater),
        &[
            "(list(int)).max(): int",
            "(list(uint)).max(): uint",
            "(list(double)).max(): double",
            "(list(bool)).max(): bool",
            "(list(duration)).max(): duration",
            "(list(timestamp)).max(): timestamp",
            "(list(string)).max(): string",
            "(list(bytes)).max(): bytes",
        ],
    );
    registry.add(
        |context, args| position(context, args, |found| found.next()),
        &["(list(A)).indexOf(A): int"],
    );
    registry.add(
        |context, args| position(context, args, |found| found.last()),
        &["(list(A)).lastIndexOf(A): int"],
    );
    registry.add(includes, &["(list(A)).includes(A): bool"]);
}

fn list(args: &[Val]) -> Result<&CelList, EvalFailure> {
    match &args[0] {
        Val::List(list) => Ok(list),
        _ => Err(no_such_overload()),
    }
}

fn index(at: usize) -> Val {
    Val::Int(i64::try_from(at).unwrap_or(i64::MAX))
}

fn slice(context: &mut Context<'_>, args: &[Val]) -> Result<Val, EvalFailure> {
    let [Val::List(list), Val::Int(start), Val::Int(end)] = args else {
        return Err(no_such_overload());
    };
    let problem = |why: String| failure(format!("cannot slice({start}, {end}), {why}"));
    let (Ok(from), Ok(to)) = (usize::try_from(*start), usize::try_from(*end)) else {
        return Err(problem("negative indexes not supported".to_owned()));
    };
    if from > to {
        return Err(problem("start index must be less than or equal to end index".to_owned()));
    }
    if to > list.len() {
        return Err(problem(format!("list is length {}", list.len())));
    }
    context.meter.charge((to - from) as u64)?;
    Val::list(list.iter().skip(from).take(to - from).collect())
}

fn flatten(context: &mut Context<'_>, args: &[Val]) -> Result<Val, EvalFailure> {
    let (list, depth) = match args {
        [Val::List(list)] => (list, 1),
        [Val::List(list), Val::Int(depth)] => (list, *depth),
        _ => return Err(no_such_overload()),
    };
    if depth < 0 {
        return Err(failure("level must be non-negative"));
    }
    let mut flat = Vec::new();
    flatten_into(list, depth, &mut flat, &mut context.meter)?;
    Val::list(flat)
}

fn flatten_into(
    list: &CelList,
    depth: i64,
    flat: &mut Vec<Val>,
    meter: &mut Meter<'_>,
) -> Result<(), EvalFailure> {
    for element in list {
        meter.charge(1)?;
        match &element {
            Val::List(inner) if depth > 0 => flatten_into(inner, depth - 1, flat, meter)?,
            _ => flat.push(element),
        }
    }
    Ok(())
}

fn sort(context: &mut Context<'_>, args: &[Val]) -> Result<Val, EvalFailure> {
    let keyed = list(args)?.iter().map(|value| (value.clone(), value)).collect();
    Val::list(sorted_by_key(keyed, &mut context.meter)?)
}

/// Values sorted by their keys, which must be of one type that has an order.
pub(crate) fn sorted_by_key(
    mut keyed: Vec<(Val, Val)>,
    meter: &mut Meter<'_>,
) -> Result<Vec<Val>, EvalFailure> {
    let length = keyed.len() as u64;
    meter.charge(length.saturating_mul(u64::from(64 - length.leading_zeros())))?;
    // Every element is compared a logarithm of times, each time at its length.
    let times = u64::from(64 - length.leading_zeros());
    // Checked first, because a comparison inside the sort cannot fail.
    for pair in keyed.windows(2) {
        meter.charge_text(pair[1].0.cost_size().saturating_mul(times))?;
        if pair[0].0.type_name() != pair[1].0.type_name() {
            return Err(failure("list elements must have the same type"));
        }
        compare(&pair[0].0, &pair[1].0)?;
    }
    if let [(only, _)] = keyed.as_slice() {
        compare(only, only).map_err(|_| failure("list elements must be comparable"))?;
    }
    keyed.sort_by(|a, b| compare(&a.0, &b.0).ok().flatten().unwrap_or(Ordering::Equal));
    Ok(keyed.into_iter().map(|(_, value)| value).collect())
}

fn distinct(context: &mut Context<'_>, args: &[Val]) -> Result<Val, EvalFailure> {
    let mut seen: Vec<Val> = Vec::new();
    for value in list(args)? {
        let mut known = false;
        for other in &seen {
            context.meter.charge(1)?;
            if equal(&value, other, &mut context.meter)? {
                known = true;
                break;
            }
        }
        if !known {
            seen.push(value);
        }
    }
    Val::list(seen)
}

fn reverse(context: &mut Context<'_>, args: &[Val]) -> Result<Val, EvalFailure> {
    let list = list(args)?;
    context.meter.charge(list.len() as u64)?;
    let mut elements: Vec<Val> = list.iter().collect();
    elements.reverse();
    Val::list(elements)
}

fn range(context: &mut Context<'_>, args: &[Val]) -> Result<Val, EvalFailure> {
    let Val::Int(count) = args[0] else { return Err(no_such_overload()) };
    let size = u64::try_from(count);
    let size =
        size.map_err(|_| failure(format!("lists.range: size must be non-negative, got {count}")))?;
    context.meter.charge(size)?;
    Val::list((0..count).map(Val::Int).collect())
}

fn end(args: &[Val], get: impl Fn(&CelList) -> Option<Val>) -> Result<Val, EvalFailure> {
    get(list(args)?).map_or(Ok(Val::none()), Val::some)
}

fn is_sorted(context: &mut Context<'_>, args: &[Val]) -> Result<Val, EvalFailure> {
    let list = list(args)?;
    let mut previous: Option<Val> = None;
    for value in list {
        context.meter.charge_text(value.cost_size().max(1))?;
        if let Some(previous) = &previous
            && compare(previous, &value)? == Some(Ordering::Greater)
        {
            return Ok(Val::Bool(false));
        }
        previous = Some(value);
    }
    Ok(Val::Bool(true))
}

fn sum(context: &mut Context<'_>, args: &[Val]) -> Result<Val, EvalFailure> {
    let list = list(args)?;
    context.meter.charge(list.len() as u64)?;
    let mut total: Option<Val> = None;
    for value in list {
        total = Some(match total {
            None if matches!(
                value,
                Val::Int(_) | Val::UInt(_) | Val::Double(_) | Val::Duration(_)
            ) =>
            {
                value
            }
            None => return Err(no_such_overload()),
            Some(total) => crate::eval::arithmetic(BinaryOp::Add, &total, &value)?,
        });
    }
    // Kubernetes: the sum of nothing is 0.
    Ok(total.unwrap_or(Val::Int(0)))
}

fn extreme(
    context: &mut Context<'_>,
    args: &[Val],
    name: &str,
    wanted: Ordering,
) -> Result<Val, EvalFailure> {
    let list = list(args)?;
    let mut best: Option<Val> = None;
    for value in list {
        context.meter.charge_text(value.cost_size().max(1))?;
        let take = match &best {
            None => {
                compare(&value, &value)?;
                true
            }
            Some(best) => compare(&value, best)? == Some(wanted),
        };
        if take {
            best = Some(value);
        }
    }
    best.ok_or_else(|| failure(format!("{name} called on empty list")))
}

fn position(
    context: &mut Context<'_>,
    args: &[Val],
    pick: impl Fn(&mut dyn Iterator<Item = usize>) -> Option<usize>,
) -> Result<Val, EvalFailure> {
    let mut found = Vec::new();
    for (at, value) in list(args)?.iter().enumerate() {
        context.meter.charge(1)?;
        if equal(&value, &args[1], &mut context.meter)? {
            found.push(at);
        }
    }
    Ok(pick(&mut found.into_iter()).map_or(Val::Int(-1), index))
}

fn includes(context: &mut Context<'_>, args: &[Val]) -> Result<Val, EvalFailure> {
    let found = position(context, args, |found| found.next())?;
    Ok(Val::Bool(!matches!(found, Val::Int(-1))))
}
