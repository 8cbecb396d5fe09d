//! Types and kinds.

use super::encoding::json;
use crate::error::Refusal;
use crate::functions::ParameterType::{Any, Text};
use crate::functions::{FunctionCall, TemplateFunction, any, function, text};
use crate::value::Dyn;

pub(super) const TABLE: &[TemplateFunction] = &[
    function(
        "deepEqual",
        &[Any, Any],
        None,
        deep_equal,
        "whether two values are alike all through",
    ),
    function("kindIs", &[Text, Any], None, kind_is, "whether a value is of this kind"),
    function("kindOf", &[Any], None, kind_of, "the kind of a value"),
    function("typeIs", &[Text, Any], None, type_is, "whether a value is of this type"),
    function(
        "typeIsLike",
        &[Text, Any],
        None,
        type_is_like,
        "whether a value is of this type or points to it",
    ),
    function("typeOf", &[Any], None, type_of, "the type of a value"),
];

type Result = std::result::Result<Dyn, Refusal>;

fn type_of(_: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    Ok(any(a, 0).type_name().into())
}

fn kind_of(_: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    Ok(any(a, 0).kind_name().into())
}

fn type_is(_: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    Ok((text(a, 0) == any(a, 1).type_name()).into())
}

fn type_is_like(_: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    let found = any(a, 1).type_name();
    Ok((text(a, 0) == found.strip_prefix('*').unwrap_or(found) || text(a, 0) == found).into())
}

fn kind_is(_: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    Ok((text(a, 0) == any(a, 1).kind_name()).into())
}

fn deep_equal(call: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    json::equal(any(a, 0), any(a, 1), call.meter, 0).map(Dyn::from)
}
