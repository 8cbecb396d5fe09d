//! `semver` and `semverCompare`.

use std::rc::Rc;

use crate::error::Refusal;
use crate::functions::Type::Text;
use crate::functions::{Call, Function, function, text};
use crate::semver::{Constraints, Version};
use crate::value::Dyn;

pub(super) const TABLE: &[Function] = &[
    function("semver", &[Text], None, semver, "a version, with .Major and the like"),
    function("semverCompare", &[Text, Text], None, compare, "whether a version meets a constraint"),
];

fn semver(_: &Call<'_>, a: &[Dyn]) -> Result<Dyn, Refusal> {
    Version::parse(text(a, 0)).map(|version| Dyn::Version(Rc::new(version))).map_err(Refusal::from)
}

fn compare(call: &Call<'_>, a: &[Dyn]) -> Result<Dyn, Refusal> {
    call.meter.step(text(a, 0).len() as u64)?;
    let constraints = Constraints::parse(text(a, 0))?;
    let version = Version::parse(text(a, 1))?;
    Ok(constraints.allow(&version).into())
}
