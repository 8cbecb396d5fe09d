//! Lists.

use super::convert;
use super::convert::{int_of, is_empty, texts_of};
use super::encoding::json;
use crate::error::Refusal;
use crate::functions::ParameterType::{Any, Int};
use crate::functions::{FunctionCall, TemplateFunction, any, function, int};
use crate::value::{Dyn, Elem, TemplateList};

pub(super) const TABLE: &[TemplateFunction] = &[
    function("append", &[Any, Any], None, append, "a list with one more element"),
    function("chunk", &[Int, Any], None, chunk, "a list in parts of so many elements"),
    function("compact", &[Any], None, compact, "a list without empty elements"),
    function("concat", &[], Some(Any), concat, "lists one after the other"),
    function("first", &[Any], None, first, "the first element"),
    function("has", &[Any, Any], None, has, "whether a list has an element"),
    function("initial", &[Any], None, initial, "all elements but the last"),
    function("last", &[Any], None, last, "the last element"),
    function("list", &[], Some(Any), list, "a list of these"),
    function("mustAppend", &[Any, Any], None, append, "a list with one more element"),
    function("mustChunk", &[Int, Any], None, chunk, "a list in parts of so many elements"),
    function("mustCompact", &[Any], None, compact, "a list without empty elements"),
    function("mustFirst", &[Any], None, first, "the first element"),
    function("mustHas", &[Any, Any], None, has, "whether a list has an element"),
    function("mustInitial", &[Any], None, initial, "all elements but the last"),
    function("mustLast", &[Any], None, last, "the last element"),
    function("mustPrepend", &[Any, Any], None, prepend, "a list with one more element in front"),
    function("mustPush", &[Any, Any], None, append, "a list with one more element"),
    function("mustRest", &[Any], None, rest, "all elements but the first"),
    function("mustReverse", &[Any], None, reverse, "a list from the back"),
    function("mustSlice", &[Any], Some(Any), slice, "a part of a list"),
    function("mustUniq", &[Any], None, uniq, "a list without repetitions"),
    function("mustWithout", &[Any], Some(Any), without, "a list without these elements"),
    function("prepend", &[Any, Any], None, prepend, "a list with one more element in front"),
    function("push", &[Any, Any], None, append, "a list with one more element"),
    function("rest", &[Any], None, rest, "all elements but the first"),
    function("reverse", &[Any], None, reverse, "a list from the back"),
    function("slice", &[Any], Some(Any), slice, "a part of a list"),
    function("sortAlpha", &[Any], None, sort_alpha, "the texts of a list in order"),
    function("tuple", &[], Some(Any), list, "a list of these"),
    function("uniq", &[Any], None, uniq, "a list without repetitions"),
    function("without", &[Any], Some(Any), without, "a list without these elements"),
];

type Result<R = Dyn> = std::result::Result<R, Refusal>;

/// The list, or sprig's words for anything else.
fn items<'a>(call: &FunctionCall<'_>, value: &'a Dyn, problem: &str) -> Result<&'a TemplateList> {
    match value {
        Dyn::List(list) => {
            // Most functions copy the elements.
            call.meter.step(list.items().len() as u64 / 4 + 1)?;
            call.meter.make(list.items().len() as u64 * 16)?;
            Ok(list)
        }
        Dyn::Missing | Dyn::Nil => {
            Err("runtime error: invalid memory address or nil pointer dereference".into())
        }
        other => Err(format!("{problem} {}", other.kind_name()).into()),
    }
}

fn list(call: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    call.meter.make(a.len() as u64 * 16)?;
    Ok(Dyn::list(a.to_vec()))
}

fn append(call: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    let list = items(call, any(a, 0), "Cannot push on type")?;
    let mut all = list.items().to_vec();
    all.push(any(a, 1).clone());
    Ok(Dyn::list(all))
}

fn prepend(call: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    let list = items(call, any(a, 0), "Cannot prepend on type")?;
    let mut all = vec![any(a, 1).clone()];
    all.extend_from_slice(list.items());
    Ok(Dyn::list(all))
}

fn concat(call: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    let mut all = Vec::new();
    for value in a {
        match value {
            Dyn::List(list) => {
                call.meter.make(list.items().len() as u64 * 16)?;
                all.extend_from_slice(list.items());
            }
            Dyn::Missing | Dyn::Nil => {
                items(call, value, "")?;
            }
            other => {
                return Err(format!("Cannot concat type {} as list", other.kind_name()).into());
            }
        }
    }
    Ok(Dyn::list(all))
}

fn first(call: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    let list = items(call, any(a, 0), "Cannot find first on type")?;
    Ok(list.items().first().cloned().unwrap_or(Dyn::Nil))
}

fn last(call: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    let list = items(call, any(a, 0), "Cannot find last on type")?;
    Ok(list.items().last().cloned().unwrap_or(Dyn::Nil))
}

fn rest(call: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    let list = items(call, any(a, 0), "Cannot find rest on type")?;
    Ok(Dyn::list(list.items().get(1..).unwrap_or_default().to_vec()))
}

fn initial(call: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    let list = items(call, any(a, 0), "Cannot find initial on type")?;
    let all = list.items();
    Ok(Dyn::list(all[..all.len().saturating_sub(1)].to_vec()))
}

fn reverse(call: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    let list = items(call, any(a, 0), "Cannot find reverse on type")?;
    Ok(Dyn::list(list.items().iter().rev().cloned().collect()))
}

fn compact(call: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    let list = items(call, any(a, 0), "Cannot compact on type")?;
    Ok(Dyn::list(list.items().iter().filter(|item| !is_empty(item)).cloned().collect()))
}

fn contained(call: &FunctionCall<'_>, all: &[Dyn], wanted: &Dyn) -> Result<bool> {
    for item in all {
        if json::equal(item, wanted, call.meter, 0)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn uniq(call: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    let list = items(call, any(a, 0), "Cannot find uniq on type")?;
    let mut kept: Vec<Dyn> = Vec::new();
    for item in list.items() {
        if !contained(call, &kept, item)? {
            kept.push(item.clone());
        }
    }
    Ok(Dyn::list(kept))
}

fn without(call: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    let list = items(call, any(a, 0), "Cannot find without on type")?;
    let mut kept = Vec::new();
    for item in list.items() {
        if !contained(call, &a[1..], item)? {
            kept.push(item.clone());
        }
    }
    Ok(Dyn::list(kept))
}

fn has(call: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    let haystack = any(a, 1);
    if haystack.is_nil() {
        return Ok(false.into());
    }
    let list = items(call, haystack, "Cannot find has on type")?;
    contained(call, list.items(), any(a, 0)).map(Dyn::from)
}

fn slice(call: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    let list = items(call, any(a, 0), "list should be type of slice or array but")?;
    let all = list.items();
    if all.is_empty() {
        return Ok(Dyn::Nil);
    }
    let bound = |at: usize, otherwise: usize| match a.get(at) {
        Some(given) => usize::try_from(int_of(given)).ok(),
        None => Some(otherwise),
    };
    let range = bound(1, 0).zip(bound(2, all.len()));
    let part = range.and_then(|(start, end)| all.get(start..end));
    let part = part.ok_or("reflect.Value.Slice: slice index out of bounds")?;
    Ok(Dyn::list_of(list.elem, part.to_vec()))
}

fn chunk(call: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    let list = items(call, any(a, 1), "Cannot chunk type")?;
    let size = usize::try_from(int(a, 0)).ok().filter(|size| *size > 0);
    let size = size.ok_or("the size of a chunk must be positive")?;
    let chunks = list.items().chunks(size).map(|part| Dyn::list(part.to_vec()));
    Ok(Dyn::list_of(Elem::Lists, chunks.collect()))
}

fn sort_alpha(call: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    let mut texts = match any(a, 0) {
        value @ Dyn::List(_) => texts_of(value, call.meter)?,
        other => vec![convert::text_of(other, call.meter)?],
    };
    // Sorting compares each of them a logarithm of times, each time at its length.
    let times = u64::from(texts.len().max(1).ilog2());
    call.meter.step((texts.len() as u64).saturating_mul(times.max(1)))?;
    let bytes: u64 = texts.iter().map(|text| text.len() as u64).sum();
    call.meter.read(bytes.saturating_mul(times))?;
    texts.sort_by(|a, b| a.as_str().cmp(b.as_str()));
    Ok(Dyn::texts(texts))
}
