//! `semver` and `semverCompare`.

use std::rc::Rc;

use crate::error::Refusal;
use crate::functions::ParameterType::Text;
use crate::functions::{FunctionCall, TemplateFunction, function, text};
use crate::semver::{Constraints, SprigVersion};
use crate::value::Dyn;

pub(super) const TABLE: &[TemplateFunction] = &[
    function("semver", &[Text], None, semver, "a version, with .Major and the like"),
    function("semverCompare", &[Text, Text], None, compare, "whether a version meets a constraint"),
];

fn semver(_: &FunctionCall<'_>, a: &[Dyn]) -> Result<Dyn, Refusal> {
    SprigVersion::parse(text(a, 0))
        .map(|version| Dyn::Version(Rc::new(version)))
        .map_err(Refusal::from)
}

fn compare(call: &FunctionCall<'_>, a: &[Dyn]) -> Result<Dyn, Refusal> {
    call.meter.step(text(a, 0).len() as u64)?;
    let constraints = Constraints::parse(text(a, 0))?;
    let version = SprigVersion::parse(text(a, 1))?;
    Ok(constraints.allow(&version).into())
}
