//! The functions of the JMESPath specification, except `sum`, which Kyverno replaced.

use std::cmp::Ordering;

use kiln_text::float;
use kiln_value::{List, Map, Number, Value};

use super::{
    ANY, ARRAY, ArgumentType, Arguments, EXPRESSION, JmesPathFunction, NUMBER, OBJECT, STRING,
    function, parameter,
};
use crate::eval::{EvalFault, sorted};
use crate::number;

const NUMBERS: &[ArgumentType] = &[ArgumentType::Numbers];
const STRINGS: &[ArgumentType] = &[ArgumentType::Strings];
const ORDERED: &[ArgumentType] = &[ArgumentType::Numbers, ArgumentType::Strings];
const SEARCHED: &[ArgumentType] = &[ArgumentType::Array, ArgumentType::String];
const SIZED: &[ArgumentType] = &[ArgumentType::String, ArgumentType::Array, ArgumentType::Object];

pub(super) static FUNCTIONS: &[JmesPathFunction] = &[
    function("abs", &[parameter("number", NUMBER)], "number", "the absolute value", abs),
    function(
        "avg",
        &[parameter("numbers", NUMBERS)],
        "number",
        "the average; of an empty list an error",
        avg,
    ),
    function(
        "ceil",
        &[parameter("number", NUMBER)],
        "number",
        "the next integer that is not smaller",
        |args| args.float(args.number(0)?.ceil()),
    ),
    function(
        "contains",
        &[parameter("subject", SEARCHED), parameter("search", ANY)],
        "boolean",
        "whether a list has an element, or a text holds another",
        contains,
    ),
    function(
        "ends_with",
        &[parameter("text", STRING), parameter("suffix", STRING)],
        "boolean",
        "whether a text ends in another",
        |args| Ok(Value::Bool(args.string(0)?.ends_with(args.string(1)?))),
    ),
    function(
        "floor",
        &[parameter("number", NUMBER)],
        "number",
        "the next integer that is not larger",
        |args| args.float(args.number(0)?.floor()),
    ),
    function(
        "join",
        &[parameter("separator", STRING), parameter("texts", STRINGS)],
        "string",
        "the texts of a list with a separator between them",
        join,
    ),
    function("keys", &[parameter("object", OBJECT)], "array", "the keys, sorted", keys),
    function(
        "length",
        &[parameter("subject", SIZED)],
        "number",
        "how many characters, elements or keys there are",
        length,
    ),
    function(
        "map",
        &[parameter("expression", EXPRESSION), parameter("list", ARRAY)],
        "array",
        "the expression's value for each element, nulls included",
        map,
    ),
    function(
        "max",
        &[parameter("list", ORDERED)],
        "any",
        "the largest number or text of a list; of an empty one null",
        |args| extreme(args, Ordering::Greater),
    ),
    function(
        "max_by",
        &[parameter("list", ARRAY), parameter("expression", EXPRESSION)],
        "any",
        "the element for which the expression is largest",
        |args| extreme_by(args, Ordering::Greater),
    ),
    function(
        "merge",
        &[parameter("object", OBJECT)],
        "object",
        "one object with the keys of all; of equal keys the last one counts",
        merge,
    )
    .variadic(),
    function(
        "min",
        &[parameter("list", ORDERED)],
        "any",
        "the smallest number or text of a list; of an empty one null",
        |args| extreme(args, Ordering::Less),
    ),
    function(
        "min_by",
        &[parameter("list", ARRAY), parameter("expression", EXPRESSION)],
        "any",
        "the element for which the expression is smallest",
        |args| extreme_by(args, Ordering::Less),
    ),
    function(
        "not_null",
        &[parameter("value", ANY)],
        "any",
        "the first argument that is neither null nor missing",
        not_null,
    )
    .variadic(),
    function(
        "reverse",
        &[parameter("subject", SEARCHED)],
        "string|array",
        "the list or text from its end to its beginning",
        reverse,
    ),
    function("sort", &[parameter("list", ORDERED)], "array", "the list in ascending order", sort),
    function(
        "sort_by",
        &[parameter("list", ARRAY), parameter("expression", EXPRESSION)],
        "array",
        "the list in ascending order of the expression's value",
        sort_by,
    ),
    function(
        "starts_with",
        &[parameter("text", STRING), parameter("prefix", STRING)],
        "boolean",
        "whether a text begins with another",
        |args| Ok(Value::Bool(args.string(0)?.starts_with(args.string(1)?))),
    ),
    function(
        "to_array",
        &[parameter("value", ANY)],
        "array",
        "the value itself if it is a list, else a list of it alone",
        to_array,
    )
    .deeper(1),
    function(
        "to_number",
        &[parameter("value", ANY)],
        "number",
        "the number that a text spells; anything else is null",
        to_number,
    ),
    function(
        "to_string",
        &[parameter("value", ANY)],
        "string",
        "a text unchanged, anything else as compact JSON with sorted keys",
        |args| args.written(args.value(0)?),
    ),
    function("type", &[parameter("value", ANY)], "string", "the name of the value's type", type_of),
    function(
        "values",
        &[parameter("object", OBJECT)],
        "array",
        "the values in the order of their sorted keys",
        values,
    ),
];

fn abs(args: &Arguments<'_>) -> Result<Value, EvalFault> {
    args.float(args.number(0)?.abs())
}

fn avg(args: &Arguments<'_>) -> Result<Value, EvalFault> {
    let list = args.list(0)?;
    if list.is_empty() {
        return Err(args.fail("an empty list has no average"));
    }
    let sum: f64 = list.iter().filter_map(Value::as_f64).sum();
    args.float(sum / list.len() as f64)
}

fn contains(args: &Arguments<'_>) -> Result<Value, EvalFault> {
    let search = args.value(1)?;
    let found = match args.value(0)? {
        Value::String(subject) => search.as_str().is_some_and(|search| subject.contains(search)),
        Value::List(list) => {
            args.step(list.len())?;
            let mut found = false;
            for element in list {
                if args.equal(element, search)? {
                    found = true;
                    break;
                }
            }
            found
        }
        _ => false,
    };
    Ok(Value::Bool(found))
}

fn join(args: &Arguments<'_>) -> Result<Value, EvalFault> {
    let separator = args.string(0)?;
    let texts: Vec<&str> = args.list(1)?.iter().filter_map(Value::as_str).collect();
    let separators = separator.len().saturating_mul(texts.len().saturating_sub(1));
    args.make(texts.iter().map(|text| text.len()).sum::<usize>().saturating_add(separators))?;
    Ok(Value::from(texts.join(separator)))
}

fn keys(args: &Arguments<'_>) -> Result<Value, EvalFault> {
    let map = args.map(0)?;
    args.step(map.len())?;
    Ok(sorted(map).into_iter().map(|(key, _)| Value::from(key)).collect())
}

fn values(args: &Arguments<'_>) -> Result<Value, EvalFault> {
    let map = args.map(0)?;
    args.step(map.len())?;
    Ok(sorted(map).into_iter().map(|(_, value)| value.clone()).collect())
}

fn length(args: &Arguments<'_>) -> Result<Value, EvalFault> {
    Ok(Value::from(match args.value(0)? {
        Value::String(text) => text.chars().count(),
        Value::List(list) => list.len(),
        Value::Map(map) => map.len(),
        _ => 0,
    }))
}

fn map(args: &Arguments<'_>) -> Result<Value, EvalFault> {
    let (expression, list) = (args.reference(0)?, args.list(1)?);
    let mut results = Vec::new();
    for element in list {
        results.push(args.apply(expression, element)?.into_owned());
    }
    Ok(Value::List(List::from(results)))
}

/// Compares numbers with numbers and texts with texts, by bytes.
fn order(a: &Value, b: &Value) -> Option<Ordering> {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a.as_f64().partial_cmp(&b.as_f64()),
        (Value::String(a), Value::String(b)) => Some(a.as_str().cmp(b)),
        _ => None,
    }
}

fn extreme(args: &Arguments<'_>, wanted: Ordering) -> Result<Value, EvalFault> {
    let best = args
        .list(0)?
        .iter()
        .reduce(|best, element| if order(element, best) == Some(wanted) { element } else { best });
    Ok(best.cloned().unwrap_or_default())
}

/// The key of each element; all must be numbers, or all texts.
fn sort_keys(args: &Arguments<'_>, list: &List) -> Result<Vec<Value>, EvalFault> {
    let expression = args.reference(1)?;
    let mut keys: Vec<Value> = Vec::with_capacity(list.len().min(1024));
    for element in list {
        let key = args.apply(expression, element)?.into_owned();
        if !matches!(key, Value::Number(_) | Value::String(_)) {
            let found = key.type_name();
            return Err(args.fail(format_args!(
                "the expression must give a number or a string for every element, not {found}"
            )));
        }
        if keys.first().is_some_and(|first| order(first, &key).is_none()) {
            return Err(
                args.fail("the expression gives numbers for some elements, texts for others")
            );
        }
        args.read(key.as_str().map_or(0, str::len))?;
        keys.push(key);
    }
    Ok(keys)
}

fn extreme_by(args: &Arguments<'_>, wanted: Ordering) -> Result<Value, EvalFault> {
    let list = args.list(0)?;
    // Kyverno: with one element the expression is not evaluated.
    if list.len() < 2 {
        return Ok(list.first().cloned().unwrap_or_default());
    }
    let keys = sort_keys(args, list)?;
    let best = (1..keys.len())
        .fold(0, |best, at| if order(&keys[at], &keys[best]) == Some(wanted) { at } else { best });
    Ok(list[best].clone())
}

/// Takes the steps of sorting: every element is compared a logarithm of times, each time at its length.
fn charge_sorting(args: &Arguments<'_>, keys: &[Value]) -> Result<(), EvalFault> {
    let times = keys.len().max(1).ilog2() as usize;
    args.step(keys.len().saturating_mul(times))?;
    let bytes: usize = keys.iter().filter_map(Value::as_str).map(str::len).sum();
    args.read(bytes.saturating_mul(times))
}

fn sort_by(args: &Arguments<'_>) -> Result<Value, EvalFault> {
    let list = args.list(0)?;
    if list.len() < 2 {
        return Ok(args.value(0)?.clone());
    }
    let keys = sort_keys(args, list)?;
    charge_sorting(args, &keys)?;
    let mut positions: Vec<usize> = (0..list.len()).collect();
    positions.sort_by(|a, b| order(&keys[*a], &keys[*b]).unwrap_or(Ordering::Equal));
    Ok(positions.into_iter().map(|at| list[at].clone()).collect())
}

fn sort(args: &Arguments<'_>) -> Result<Value, EvalFault> {
    let list = args.list(0)?;
    charge_sorting(args, list)?;
    let mut elements = list.to_vec();
    elements.sort_by(|a, b| order(a, b).unwrap_or(Ordering::Equal));
    Ok(Value::List(List::from(elements)))
}

fn merge(args: &Arguments<'_>) -> Result<Value, EvalFault> {
    let mut merged: Map = args.map(0)?.clone();
    for at in 1..args.len() {
        let map = args.map(at)?;
        args.step(map.len())?;
        merged.extend(map.iter().map(|(key, value)| (key.clone(), value.clone())));
    }
    Ok(Value::Map(merged))
}

fn not_null(args: &Arguments<'_>) -> Result<Value, EvalFault> {
    for at in 0..args.len() {
        let value = args.value(at)?;
        if !value.is_null() {
            return Ok(value.clone());
        }
    }
    Ok(Value::Null)
}

fn reverse(args: &Arguments<'_>) -> Result<Value, EvalFault> {
    match args.value(0)? {
        Value::List(list) => {
            args.step(list.len())?;
            Ok(list.iter().rev().cloned().collect())
        }
        _ => {
            let text = args.string(0)?;
            args.text(text.chars().rev().collect::<String>())
        }
    }
}

fn to_array(args: &Arguments<'_>) -> Result<Value, EvalFault> {
    Ok(match args.value(0)? {
        list @ Value::List(_) => list.clone(),
        other => Value::from(vec![other.clone()]),
    })
}

fn to_number(args: &Arguments<'_>) -> Result<Value, EvalFault> {
    Ok(match args.value(0)? {
        number @ Value::Number(_) => number.clone(),
        // Kyverno gives infinities too, which then have no JSON.
        Value::String(text) => {
            float::parse(text).filter(|float| float.is_finite()).map_or(Value::Null, number::number)
        }
        _ => Value::Null,
    })
}

fn type_of(args: &Arguments<'_>) -> Result<Value, EvalFault> {
    Ok(Value::from(match args.value(0)? {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(Number::Int(_) | Number::UInt(_) | Number::Float(_)) => "number",
        Value::String(_) => "string",
        Value::List(_) => "array",
        Value::Map(_) => "object",
    }))
}
