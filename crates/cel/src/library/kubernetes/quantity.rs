//! Quantities such as `500m` and `1Gi`.

use std::any::Any;
use std::cmp::Ordering;
use std::sync::Arc;

use kiln_text::Quantity;
use kiln_text::quantity::QuantityFormat;

use crate::error::{EvalFailure, failure, no_such_overload};
use crate::eval::Context;
use crate::library::Registry;
use crate::value::Opaque;
use crate::{Type, Val};

impl Opaque for Quantity {
    fn type_name(&self) -> &'static str {
        "kubernetes.Quantity"
    }
    fn equals(&self, other: &dyn Opaque) -> bool {
        other.as_any().downcast_ref::<Quantity>() == Some(self)
    }
    fn to_text(&self) -> Option<String> {
        Some(self.to_string())
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
}

pub(super) fn register(registry: &mut Registry) {
    registry.type_name(Type::opaque("kubernetes.Quantity"));
    registry.add(
        |context, args| Ok(Arc::new(parse(context, args)?).into()),
        &["quantity(string): kubernetes.Quantity"],
    );
    registry.add(
        |context, args| match &args[0] {
            Val::String(_) => Ok(Val::Bool(parse(context, args).is_ok())),
            _ => Err(no_such_overload()),
        },
        &["isQuantity(string): bool"],
    );
    registry.add(
        |_, args| Ok(Val::Int(i64::from(quantity(&args[0])?.sign()))),
        &["(kubernetes.Quantity).sign(): int", "sign(kubernetes.Quantity): int"],
    );
    registry.add(
        |_, args| Ok(Val::Bool(quantity(&args[0])?.as_i64().is_some())),
        &["(kubernetes.Quantity).isInteger(): bool"],
    );
    registry.add(
        |_, args| {
            let integer = quantity(&args[0])?.as_i64();
            Ok(Val::Int(integer.ok_or_else(|| failure("cannot convert value to integer"))?))
        },
        &["(kubernetes.Quantity).asInteger(): int"],
    );
    registry.add(
        |_, args| Ok(Val::Double(quantity(&args[0])?.as_approximate_f64())),
        &["(kubernetes.Quantity).asApproximateFloat(): double"],
    );
    registry.add(
        |_, args| Ok(Val::Bool(order(args)? == Ordering::Greater)),
        &["(kubernetes.Quantity).isGreaterThan(kubernetes.Quantity): bool"],
    );
    registry.add(
        |_, args| Ok(Val::Bool(order(args)? == Ordering::Less)),
        &["(kubernetes.Quantity).isLessThan(kubernetes.Quantity): bool"],
    );
    registry.add(
        |_, args| Ok(Val::Int(order(args)? as i64)),
        &["(kubernetes.Quantity).compareTo(kubernetes.Quantity): int"],
    );
    registry.add(
        |_, args| arithmetic(args, Quantity::checked_add),
        &[
            "(kubernetes.Quantity).add(kubernetes.Quantity): kubernetes.Quantity",
            "(kubernetes.Quantity).add(int): kubernetes.Quantity",
        ],
    );
    registry.add(
        |_, args| arithmetic(args, Quantity::checked_sub),
        &[
            "(kubernetes.Quantity).sub(kubernetes.Quantity): kubernetes.Quantity",
            "(kubernetes.Quantity).sub(int): kubernetes.Quantity",
        ],
    );
}

fn parse(context: &mut Context<'_>, args: &[Val]) -> Result<Quantity, EvalFailure> {
    let Val::String(text) = &args[0] else { return Err(no_such_overload()) };
    context.meter.charge_text(text.len() as u64)?;
    Quantity::parse(text).map_err(|error| failure(error.to_string()))
}

fn quantity(value: &Val) -> Result<&Quantity, EvalFailure> {
    value.as_opaque::<Quantity>().ok_or_else(no_such_overload)
}

fn order(args: &[Val]) -> Result<Ordering, EvalFailure> {
    Ok(quantity(&args[0])?.cmp(quantity(&args[1])?))
}

fn arithmetic<E: ToString>(
    args: &[Val],
    combine: impl Fn(&Quantity, &Quantity) -> Result<Quantity, E>,
) -> Result<Val, EvalFailure> {
    let left = quantity(&args[0])?;
    let combined = match &args[1] {
        Val::Int(i) => combine(left, &Quantity::new(*i, QuantityFormat::DecimalSI)),
        other => combine(left, quantity(other)?),
    };
    Ok(Arc::new(combined.map_err(|error| failure(error.to_string()))?).into())
}
