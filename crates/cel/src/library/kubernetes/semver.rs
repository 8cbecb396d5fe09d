//! Semantic versions.

use std::any::Any;
use std::cmp::Ordering;
use std::sync::Arc;

use kiln_text::semver::Version;

use crate::error::{EvalFailure, failure, no_such_overload};
use crate::eval::Context;
use crate::library::Registry;
use crate::value::Opaque;
use crate::{Type, Val};

impl Opaque for Version {
    fn type_name(&self) -> &'static str {
        "kubernetes.Semver"
    }
    fn equals(&self, other: &dyn Opaque) -> bool {
        other.as_any().downcast_ref::<Version>() == Some(self)
    }
    fn to_text(&self) -> Option<String> {
        Some(self.to_string())
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
}

pub(super) fn register(registry: &mut Registry) {
    registry.type_name(Type::opaque("kubernetes.Semver"));
    registry.add(
        |context, args| Ok(Arc::new(parse(context, args)?).into()),
        &["semver(string): kubernetes.Semver", "semver(string, bool): kubernetes.Semver"],
    );
    registry.add(
        |context, args| match &args[0] {
            Val::String(_) => Ok(Val::Bool(parse(context, args).is_ok())),
            _ => Err(no_such_overload()),
        },
        &["isSemver(string): bool", "isSemver(string, bool): bool"],
    );
    registry.add(
        |_, args| number(args, |version| version.major),
        &["(kubernetes.Semver).major(): int"],
    );
    registry.add(
        |_, args| number(args, |version| version.minor),
        &["(kubernetes.Semver).minor(): int"],
    );
    registry.add(
        |_, args| number(args, |version| version.patch),
        &["(kubernetes.Semver).patch(): int"],
    );
    registry.add(
        |_, args| Ok(Val::Bool(order(args)? == Ordering::Greater)),
        &["(kubernetes.Semver).isGreaterThan(kubernetes.Semver): bool"],
    );
    registry.add(
        |_, args| Ok(Val::Bool(order(args)? == Ordering::Less)),
        &["(kubernetes.Semver).isLessThan(kubernetes.Semver): bool"],
    );
    registry.add(
        |_, args| Ok(Val::Int(order(args)? as i64)),
        &["(kubernetes.Semver).compareTo(kubernetes.Semver): int"],
    );
}

fn parse(context: &mut Context<'_>, args: &[Val]) -> Result<Version, EvalFailure> {
    let (text, normalize) = match args {
        [Val::String(text)] => (text, false),
        [Val::String(text), Val::Bool(normalize)] => (text, *normalize),
        _ => return Err(no_such_overload()),
    };
    context.meter.charge_text(text.len() as u64)?;
    let version = if normalize { Version::parse_normalized(text) } else { Version::parse(text) };
    version.map_err(|error| failure(error.to_string()))
}

fn version(value: &Val) -> Result<&Version, EvalFailure> {
    value.as_opaque::<Version>().ok_or_else(no_such_overload)
}

fn number(args: &[Val], read: impl Fn(&Version) -> u64) -> Result<Val, EvalFailure> {
    let number = i64::try_from(read(version(&args[0])?));
    Ok(Val::Int(number.map_err(|_| failure("integer overflow"))?))
}

fn order(args: &[Val]) -> Result<Ordering, EvalFailure> {
    Ok(version(&args[0])?.cmp(version(&args[1])?))
}
