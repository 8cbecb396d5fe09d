//! Conversion between texts and values, look-ups, and objects and lists made of each other.

use kiln_value::{Key, Map, Value, json};
use kiln_yaml::ReadOptions;

use super::matching::short_number;
use super::{ANY, ARRAY, ArgumentType, Arguments, JmesPathFunction, STRING, function, parameter};
use crate::eval::{EvalFault, sorted};
use crate::number;

const CONTAINER: &[ArgumentType] = &[ArgumentType::Object, ArgumentType::Array];

pub(super) static FUNCTIONS: &[JmesPathFunction] = &[
    function(
        "items",
        &[
            parameter("container", CONTAINER),
            parameter("key_name", STRING),
            parameter("value_name", STRING),
        ],
        "array",
        "an object for each key of an object, or each index of a list, with the key and the value",
        items,
    )
    .deeper(1),
    function(
        "lookup",
        &[parameter("container", CONTAINER), parameter("key", ANY)],
        "any",
        "the value under a key of an object or an index of a list, or null",
        lookup,
    ),
    function(
        "object_from_lists",
        &[parameter("keys", ARRAY), parameter("values", ARRAY)],
        "object",
        "an object with these keys and values; missing values are null",
        object_from_lists,
    ),
    function(
        "parse_json",
        &[parameter("text", STRING)],
        "any",
        "the value that a JSON text describes",
        parse_json,
    ),
    function(
        "parse_yaml",
        &[parameter("text", STRING)],
        "any",
        "the value of the first document of a YAML text",
        parse_yaml,
    ),
    function(
        "to_boolean",
        &[parameter("text", STRING)],
        "boolean",
        "the truth value that `true` or `false` spells, in any case",
        to_boolean,
    ),
];

fn items(args: &Arguments<'_>) -> Result<Value, EvalFault> {
    let (key_name, value_name) = (Key::new(args.string(1)?), Key::new(args.string(2)?));
    let item = |key: Value, value: &Value| {
        let mut item = Map::new();
        item.insert(key_name.clone(), key);
        item.insert(value_name.clone(), value.clone());
        Value::Map(item)
    };
    match args.value(0)? {
        Value::Map(map) => {
            args.step(map.len())?;
            Ok(sorted(map).into_iter().map(|(key, value)| item(Value::from(key), value)).collect())
        }
        _ => {
            let list = args.list(0)?;
            args.step(list.len())?;
            Ok(list.iter().enumerate().map(|(at, value)| item(Value::from(at), value)).collect())
        }
    }
}

fn lookup(args: &Arguments<'_>) -> Result<Value, EvalFault> {
    let found = match (args.value(0)?, args.value(1)?) {
        (Value::Map(map), Value::String(key)) => map.get(key),
        (Value::Map(_), _) => return Err(args.fail("the key of an object must be a string")),
        (Value::List(list), Value::Number(index)) => {
            let index = index.as_f64();
            if index.fract() != 0.0 {
                return Err(args.fail("the index of a list must be an integer"));
            }
            if index < 0.0 { None } else { list.get(index as usize) }
        }
        _ => return Err(args.fail("the index of a list must be a number")),
    };
    Ok(found.cloned().unwrap_or_default())
}

fn object_from_lists(args: &Arguments<'_>) -> Result<Value, EvalFault> {
    let (keys, values) = (args.list(0)?, args.list(1)?);
    args.step(keys.len())?;
    let mut object = Map::new();
    for (at, key) in keys.iter().enumerate() {
        let key = match key {
            Value::String(text) => Key::new(text),
            Value::Number(number) => Key::from(short_number(number.as_f64())),
            Value::Bool(truth) => Key::new(if *truth { "true" } else { "false" }),
            _ => return Err(args.fail("keys must be strings, numbers or booleans")),
        };
        object.insert(key, values.get(at).cloned().unwrap_or_default());
    }
    Ok(Value::Map(object))
}

/// Charges for a value that was read from a text.
fn read(args: &Arguments<'_>, value: &Value) -> Result<Value, EvalFault> {
    args.charge(value)?;
    Ok(number::as_floats(value))
}

fn parse_json(args: &Arguments<'_>) -> Result<Value, EvalFault> {
    let text = args.string(0)?;
    read(args, &json::parse(text).map_err(|error| args.fail(error))?)
}

fn parse_yaml(args: &Arguments<'_>) -> Result<Value, EvalFault> {
    let text = args.string(0)?;
    // The reader looks at every byte several times: tokens, events, values.
    args.read(text.len().saturating_mul(3))?;
    // sigs.k8s.io/yaml: the scalars of go-yaml v2, and of equal keys the last one.
    let options = ReadOptions::kustomization();
    let documents = kiln_yaml::read_bytes("parse_yaml", text.as_bytes(), options);
    let documents = documents.map_err(|problem| args.fail(problem))?;
    documents.first().map_or(Ok(Value::Null), |document| read(args, document.value()))
}

fn to_boolean(args: &Arguments<'_>) -> Result<Value, EvalFault> {
    let text = args.string(0)?;
    if text.eq_ignore_ascii_case("true") {
        Ok(Value::Bool(true))
    } else if text.eq_ignore_ascii_case("false") {
        Ok(Value::Bool(false))
    } else {
        Err(args.fail("the text must be true or false, in any case"))
    }
}
