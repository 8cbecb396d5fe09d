//! The functions of the template language itself. `and` and `or` are here for their names only: the evaluator stops them
//! early.

use super::ParameterType::{Any, Raw, Text};
use super::{FunctionCall, TemplateFunction, any, compare, escape, function, text};
use crate::error::Refusal;
use crate::format;
use crate::value::Dyn;

pub(super) const TABLE: &[TemplateFunction] = &[
    function("and", &[Raw], Some(Raw), last, "the first empty argument, or the last"),
    function("call", &[Raw], Some(Raw), call, "calls a function value; data has none"),
    function("eq", &[Raw], Some(Raw), compare::eq, "whether the first equals one of the others"),
    function("ge", &[Raw, Raw], None, compare::ge, "whether the first is not less"),
    function("gt", &[Raw, Raw], None, compare::gt, "whether the first is greater"),
    function("html", &[], Some(Any), escape::html, "escaped for HTML"),
    function("index", &[Raw], Some(Raw), index, "the element under these indices and keys"),
    function("js", &[], Some(Any), escape::js, "escaped for JavaScript"),
    function("le", &[Raw, Raw], None, compare::le, "whether the first is not greater"),
    function("len", &[Raw], None, len, "the length of a text, list or map"),
    function("lt", &[Raw, Raw], None, compare::lt, "whether the first is less"),
    function("ne", &[Raw, Raw], None, compare::ne, "whether two values differ"),
    function("not", &[Raw], None, not, "the opposite truth"),
    function("or", &[Raw], Some(Raw), last, "the first argument that is not empty, or the last"),
    function("print", &[], Some(Any), print, "values one after the other"),
    function("printf", &[Text], Some(Any), printf, "values by a format"),
    function("println", &[], Some(Any), println, "values with spaces, and a new line"),
    function("slice", &[Raw], Some(Raw), slice, "a part of a list or text"),
    function("urlquery", &[], Some(Any), escape::urlquery, "escaped for the query of an address"),
];

fn last(_: &FunctionCall<'_>, arguments: &[Dyn]) -> Result<Dyn, Refusal> {
    Ok(arguments.last().cloned().unwrap_or(Dyn::Missing))
}

fn call(_: &FunctionCall<'_>, arguments: &[Dyn]) -> Result<Dyn, Refusal> {
    match any(arguments, 0) {
        Dyn::Missing | Dyn::Nil => Err("call of nil".into()),
        other => Err(format!("non-function of type {}", other.type_name()).into()),
    }
}

fn not(_: &FunctionCall<'_>, arguments: &[Dyn]) -> Result<Dyn, Refusal> {
    Ok((!any(arguments, 0).is_true()).into())
}

fn print(call: &FunctionCall<'_>, arguments: &[Dyn]) -> Result<Dyn, Refusal> {
    format::print(arguments, call.meter).map(Dyn::from)
}

fn println(call: &FunctionCall<'_>, arguments: &[Dyn]) -> Result<Dyn, Refusal> {
    format::println(arguments, call.meter).map(Dyn::from)
}

fn printf(call: &FunctionCall<'_>, arguments: &[Dyn]) -> Result<Dyn, Refusal> {
    let rest = arguments.get(1..).unwrap_or_default();
    let printed = format::printf(text(arguments, 0), rest, call.meter)?;
    // A format from the data can say anything.
    let ours = matches!(any(arguments, 0), Dyn::Text(format) if !format.has_data());
    Ok(Dyn::Text(if ours { printed } else { printed.as_data() }))
}

fn len(_: &FunctionCall<'_>, arguments: &[Dyn]) -> Result<Dyn, Refusal> {
    let length = match any(arguments, 0) {
        Dyn::Text(text) => text.len(),
        Dyn::Bytes(bytes) => bytes.len(),
        Dyn::List(list) => list.items().len(),
        Dyn::Map(map) if !map.is_record => map.len(),
        Dyn::Missing => return Err("reflect: call of reflect.Value.Type on zero Value".into()),
        Dyn::Nil => return Err("len of nil pointer".into()),
        other => return Err(format!("len of type {}", other.type_name()).into()),
    };
    Ok(Dyn::Int(i64::try_from(length).unwrap_or(i64::MAX)))
}

fn index(_: &FunctionCall<'_>, arguments: &[Dyn]) -> Result<Dyn, Refusal> {
    let mut item = any(arguments, 0).clone();
    if item.is_nil() {
        return Err("index of untyped nil".into());
    }
    for index in arguments.get(1..).unwrap_or_default() {
        item = match &item {
            Dyn::Missing | Dyn::Nil => return Err("index of nil pointer".into()),
            Dyn::List(list) => {
                let at = index_argument(index, list.items().len())?;
                let found = list.items().get(at).cloned();
                found.ok_or("reflect: slice index out of range")?
            }
            Dyn::Text(text) => {
                let at = index_argument(index, text.len())?;
                let found = text.as_bytes().get(at).copied().map(Dyn::Uint8);
                found.ok_or("reflect: string index out of range")?
            }
            Dyn::Map(map) => match index {
                Dyn::Text(key) => match map.get(key) {
                    Some(found) => found,
                    None if map.of_text => Dyn::from(""),
                    None if map.is_files() => Dyn::Bytes([].into()),
                    None => Dyn::Nil,
                },
                Dyn::Missing | Dyn::Nil => {
                    return Err("value is nil; should be of type string".into());
                }
                other => {
                    let found = other.type_name();
                    return Err(format!("value has type {found}; should be string").into());
                }
            },
            other => {
                return Err(format!("can't index item of type {}", other.type_name()).into());
            }
        };
    }
    Ok(item)
}

fn index_argument(index: &Dyn, capacity: usize) -> Result<usize, Refusal> {
    let Some(at) = index.as_integer() else {
        return Err(match index {
            Dyn::Missing | Dyn::Nil => "cannot index slice/array with nil".into(),
            other => format!("cannot index slice/array with type {}", other.type_name()).into(),
        });
    };
    usize::try_from(at)
        .ok()
        .filter(|at| *at <= capacity)
        .ok_or_else(|| format!("index out of range: {at}").into())
}

fn slice(_: &FunctionCall<'_>, arguments: &[Dyn]) -> Result<Dyn, Refusal> {
    let item = any(arguments, 0);
    let indices = arguments.get(1..).unwrap_or_default();
    if item.is_nil() {
        return Err("slice of untyped nil".into());
    }
    if indices.len() > 3 {
        return Err(format!("too many slice indexes: {}", indices.len()).into());
    }
    let length = match item {
        Dyn::Text(_) if indices.len() == 3 => {
            return Err("cannot 3-index slice a string".into());
        }
        Dyn::Text(text) => text.len(),
        Dyn::List(list) => list.items().len(),
        other => return Err(format!("can't slice item of type {}", other.type_name()).into()),
    };
    let mut bounds = [0, length, length];
    for (bound, index) in bounds.iter_mut().zip(indices) {
        *bound = index_argument(index, length)?;
    }
    let [from, to, most] = bounds;
    for (low, high) in [(from, to), (to, most)] {
        if low > high {
            return Err(format!("invalid slice index: {low} > {high}").into());
        }
    }
    Ok(match item {
        Dyn::List(list) => Dyn::list_of(list.elem, list.items()[from..to].to_vec()),
        Dyn::Text(text) => Dyn::bytes(&text.as_bytes()[from..to]),
        _ => Dyn::Missing,
    })
}
