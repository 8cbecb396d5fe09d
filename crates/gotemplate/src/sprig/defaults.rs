//! Defaults, choices, JSON and copies.

use super::convert::is_empty;
use super::encoding::json;
use crate::error::Refusal;
use crate::functions::ParameterType::{Any, Bool, Text};
use crate::functions::{FunctionCall, TemplateFunction, any, function, text};
use crate::value::Dyn;

pub(super) const TABLE: &[TemplateFunction] = &[
    function("all", &[], Some(Any), all, "whether no value is empty"),
    function("any", &[], Some(Any), some, "whether a value is not empty"),
    function("coalesce", &[], Some(Any), coalesce, "the first value that is not empty"),
    function("deepCopy", &[Any], None, json::copy, "a copy that shares nothing"),
    function("default", &[Any], Some(Any), default, "the second, or the first if that is empty"),
    function("empty", &[Any], None, empty, "whether a value is empty"),
    function("fail", &[Text], None, fail, "stops with a message"),
    function("fromJson", &[Text], None, from_json, "the value of a JSON text, or nothing"),
    function("mustDeepCopy", &[Any], None, json::copy, "a copy that shares nothing"),
    function("mustFromJson", &[Text], None, json::parse, "the value of a JSON text"),
    function("mustToJson", &[Any], None, json::compact, "as JSON"),
    function("mustToPrettyJson", &[Any], None, json::pretty, "as JSON in lines"),
    function("mustToRawJson", &[Any], None, json::raw, "as JSON without escapes for HTML"),
    function(
        "ternary",
        &[Any, Any, Bool],
        None,
        ternary,
        "the first if the last is true, else the second",
    ),
    function("toJson", &[Any], None, to_json, "as JSON"),
    function("toPrettyJson", &[Any], None, to_pretty_json, "as JSON in lines"),
    function("toRawJson", &[Any], None, json::raw, "as JSON without escapes for HTML"),
];

type Result = std::result::Result<Dyn, Refusal>;

fn default(_: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    Ok(a.get(1).filter(|given| !is_empty(given)).unwrap_or(any(a, 0)).clone())
}

fn empty(_: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    Ok(is_empty(any(a, 0)).into())
}

fn coalesce(_: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    Ok(a.iter().find(|value| !is_empty(value)).cloned().unwrap_or(Dyn::Nil))
}

fn all(_: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    Ok(a.iter().all(|value| !is_empty(value)).into())
}

fn some(_: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    Ok(a.iter().any(|value| !is_empty(value)).into())
}

fn ternary(_: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    Ok(any(a, usize::from(!any(a, 2).is_true())).clone())
}

fn fail(_: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    Err(text(a, 0).into())
}

fn from_json(call: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    match json::parse(call, a) {
        Err(Refusal::Failed(_)) => Ok(Dyn::Nil),
        other => other,
    }
}

fn to_json(call: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    or_nothing(json::compact(call, a))
}

fn to_pretty_json(call: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    or_nothing(json::pretty(call, a))
}

/// Sprig: what JSON cannot say is an empty text.
fn or_nothing(result: Result) -> Result {
    match result {
        Err(Refusal::Failed(_)) => Ok("".into()),
        other => other,
    }
}
