//! Values to YAML, JSON and TOML, and back. What cannot be read becomes a map or list with the error, as in Helm.

use kiln_value::{Value, json as value_json};
use kiln_yaml::ReadOptions;

use super::{toml, toml_read};
use crate::Numbers;
use crate::error::Refusal;
use crate::functions::ParameterType::{Any, Text};
use crate::functions::{FunctionCall, TemplateFunction, any, function, text};
use crate::sprig::encoding::{json, json_syntax};
use crate::value::Dyn;

pub(super) const TABLE: &[TemplateFunction] = &[
    function("fromJson", &[Text], None, from_json, "the map of a JSON text"),
    function("fromJsonArray", &[Text], None, from_json_array, "the list of a JSON text"),
    function("fromToml", &[Text], None, from_toml, "the map of a TOML text"),
    function("fromYaml", &[Text], None, from_yaml, "the map of a YAML text"),
    function("fromYamlArray", &[Text], None, from_yaml_array, "the list of a YAML text"),
    function("toToml", &[Any], None, to_toml, "as TOML"),
    function("toYaml", &[Any], None, to_yaml, "as YAML"),
    function("toYamlPretty", &[Any], None, to_yaml_pretty, "as YAML with indented lists"),
];

pub(super) const ONLY_HELM_4: &[TemplateFunction] = &[
    function("mustToToml", &[Any], None, must_to_toml, "as TOML"),
    function("mustToYaml", &[Any], None, must_to_yaml, "as YAML"),
];

type Result<R = Dyn> = std::result::Result<R, Refusal>;

/// A value as YAML without its last line end.
pub(super) fn written(call: &FunctionCall<'_>, value: &Value) -> Result {
    let mut text = kiln_yaml::emit(value);
    call.meter.make(text.len() as u64)?;
    if text.ends_with('\n') {
        text.pop();
    }
    Ok(text.into())
}

fn must_to_yaml(call: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    written(call, &json::value_of(any(a, 0), call.meter, 0)?)
}

/// What YAML cannot say is nothing.
fn to_yaml(call: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    match must_to_yaml(call, a) {
        Err(Refusal::Failed(_)) => Ok("".into()),
        other => other,
    }
}

fn to_yaml_pretty(call: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    let value = match json::value_of(any(a, 0), call.meter, 0) {
        Err(Refusal::Failed(_)) => return Ok("".into()),
        other => other?,
    };
    let mut text = kiln_yaml::emit_pretty(&value);
    call.meter.make(text.len() as u64)?;
    if text.ends_with('\n') {
        text.pop();
    }
    Ok(text.into())
}

fn must_to_toml(call: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    toml::encode(any(a, 0), call.meter).map(Dyn::from)
}

/// Helm hands on what is wrong.
fn to_toml(call: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    match must_to_toml(call, a) {
        Err(Refusal::Failed(message)) => Ok(message.into()),
        other => other,
    }
}

/// What a text was to be.
#[derive(Clone, Copy)]
enum Wanted {
    Map,
    List,
}

impl Wanted {
    fn go_type(self) -> &'static str {
        match self {
            Wanted::Map => "map[string]interface {}",
            Wanted::List => "[]interface {}",
        }
    }

    /// The value, or what Go's JSON says of one that is something else.
    fn checked(self, value: Value) -> std::result::Result<Value, String> {
        let kind = match (&value, self) {
            (Value::Map(_), Wanted::Map) | (Value::List(_), Wanted::List) => return Ok(value),
            (Value::Null, Wanted::Map) => return Ok(Value::Map(kiln_value::Map::new())),
            (Value::Null, Wanted::List) => return Ok(Value::from(Vec::<Value>::new())),
            (Value::Map(_), _) => "object",
            (Value::List(_), _) => "array",
            (Value::String(_), _) => "string",
            (Value::Number(_), _) => "number",
            (Value::Bool(_), _) => "bool",
        };
        Err(format!("json: cannot unmarshal {kind} into Go value of type {}", self.go_type()))
    }

    fn or_error(self, read: std::result::Result<Value, String>) -> Dyn {
        match (read, self) {
            (Ok(value), _) => Dyn::from_value(&value, Numbers::Floats),
            (Err(message), Wanted::Map) => Dyn::map([("Error".into(), message.into())]),
            (Err(message), Wanted::List) => Dyn::list(vec![message.into()]),
        }
    }
}

fn read_yaml(call: &FunctionCall<'_>, a: &[Dyn], wanted: Wanted) -> Result {
    let source = text(a, 0);
    call.meter.make(source.len() as u64 * 4)?;
    let read = kiln_yaml::read_bytes("", source.as_bytes(), ReadOptions::kustomization());
    let read = match read {
        Ok(documents) => {
            let first = documents.into_iter().next();
            let value = first.map_or(Value::Null, kiln_yaml::Document::into_value);
            wanted.checked(value).map_err(|message| {
                format!("error unmarshaling JSON: while decoding JSON: {message}")
            })
        }
        Err(problem) => {
            let line = problem.place.as_ref().map_or(1, |place| place.position().line);
            Err(format!("error converting YAML to JSON: yaml: line {line}: {}", problem.message))
        }
    };
    Ok(wanted.or_error(read))
}

fn from_yaml(call: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    read_yaml(call, a, Wanted::Map)
}

fn from_yaml_array(call: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    read_yaml(call, a, Wanted::List)
}

fn read_json(call: &FunctionCall<'_>, a: &[Dyn], wanted: Wanted) -> Result {
    let source = text(a, 0);
    call.meter.make(source.len() as u64 * 4)?;
    let read = value_json::parse(source)
        .map_err(|error| json_syntax::problem(source).unwrap_or_else(|| error.to_string()));
    Ok(wanted.or_error(read.and_then(|value| wanted.checked(value))))
}

fn from_json(call: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    read_json(call, a, Wanted::Map)
}

fn from_json_array(call: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    read_json(call, a, Wanted::List)
}

fn from_toml(call: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    let source = text(a, 0);
    call.meter.make(source.len() as u64 * 4)?;
    Ok(match toml_read::parse(source) {
        Ok(entries) => entries,
        Err(message) => Dyn::map([("Error".into(), message.into())]),
    })
}
