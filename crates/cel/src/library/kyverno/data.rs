//! JSON, YAML, certificates and maps of objects.

use kiln_value::{List, Map, Number, SegmentRef, Str, Value, json};

use super::host_failure;
use crate::Val;
use crate::error::{EvalFailure, failure, no_such_overload};
use crate::eval::Context;
use crate::library::Registry;
use crate::value::{JsonForm, Keys, MapBuilder, MapKey, to_json};

/// The type of what `parseServiceAccount` gives.
pub(super) const SERVICE_ACCOUNT: &str = "user.ServiceAccount";

pub(super) fn register(registry: &mut Registry) {
    registry.add(
        unmarshal,
        &["(kyverno.Json).Unmarshal(dyn): dyn", "(kyverno.Json).unmarshal(dyn): dyn"],
    );
    registry.add(
        marshal,
        &["(kyverno.Json).Marshal(dyn): string", "(kyverno.Json).marshal(dyn): string"],
    );
    registry.add(
        parse_yaml,
        &["(kyverno.Yaml).Parse(string): dyn", "(kyverno.Yaml).parse(string): dyn"],
    );
    registry.add(decode_certificate, &["x509.decode(string): dyn"]);
    registry.add(
        list_obj_to_map,
        &[
            "listObjToMap(list(dyn), list(dyn), string, string): map(string, dyn)",
            "transform.listObjToMap(list(dyn), list(dyn), string, string): map(string, dyn)",
        ],
    );
    registry.add(
        parse_service_account,
        &[
            "parseServiceAccount(string): message(user.ServiceAccount)",
            "user.parseServiceAccount(string): message(user.ServiceAccount)",
        ],
    );
    registry.add(set_field, &["(map(string, dyn)).setField(string, dyn): map(string, dyn)"]);
}

fn unmarshal(context: &mut Context<'_>, args: &[Val]) -> Result<Val, EvalFailure> {
    let [_, Val::String(text)] = args else { return Err(no_such_overload()) };
    context.meter.charge(text.len() as u64)?;
    let value = json::parse(text).map_err(|error| failure(error.to_string()))?;
    Ok(Val::from(with_floats(value)))
}

// Kyverno: numbers of read texts are floats.
pub(crate) fn with_floats(value: Value) -> Value {
    match value {
        Value::Number(number) => Value::Number(Number::Float(number.as_f64())),
        Value::List(list) => {
            let elements: Vec<Value> = list.into_vec().into_iter().map(with_floats).collect();
            Value::List(List::from(elements))
        }
        Value::Map(map) => {
            let entries = map.iter().map(|(key, value)| (key.clone(), with_floats(value.clone())));
            Value::Map(Map::from_unique(entries.collect()))
        }
        other => other,
    }
}

fn marshal(context: &mut Context<'_>, args: &[Val]) -> Result<Val, EvalFailure> {
    let mut room = context.meter.output_limit();
    let before = room;
    let form = JsonForm { keys: Keys::StringsOnly, finite_only: true };
    let value = to_json(&args[1], form, &mut room).map_err(|error| match error {
        crate::ToJsonError::NotFinite => {
            failure("json: unsupported value: a number that is not finite")
        }
        crate::ToJsonError::Key { found, .. } => {
            failure(format!("json: unsupported map key type {found}"))
        }
        other => failure(other.to_string()),
    })?;
    context.meter.charge_text(before - room)?;
    let text = json::to_go_string(&value);
    context.meter.charge_text(text.len() as u64)?;
    Ok(Val::from(text))
}

fn parse_yaml(context: &mut Context<'_>, args: &[Val]) -> Result<Val, EvalFailure> {
    let [_, Val::String(text)] = args else { return Err(no_such_overload()) };
    context.meter.charge(text.len() as u64)?;
    let value = context.host.parse_yaml(text);
    Ok(Val::from(with_floats(value.map_err(|error| host_failure("parse YAML", &error))?)))
}

fn decode_certificate(context: &mut Context<'_>, args: &[Val]) -> Result<Val, EvalFailure> {
    let Val::String(pem) = &args[0] else { return Err(no_such_overload()) };
    context.meter.charge(pem.len() as u64)?;
    let value = context.host.decode_certificate(pem);
    Ok(Val::from(value.map_err(|error| failure(error.message))?))
}

/// Keys from the objects of one list, values from those of another.
fn list_obj_to_map(context: &mut Context<'_>, args: &[Val]) -> Result<Val, EvalFailure> {
    let [Val::List(keys), Val::List(values), Val::String(key_field), Val::String(value_field)] =
        args
    else {
        return Err(no_such_overload());
    };
    if keys.len() != values.len() {
        return Err(failure("failed to perform list to map: lists must have the same length"));
    }
    context.meter.charge(keys.len() as u64)?;
    let field = |object: Val, field: &str| match object {
        // Kyverno: a missing value is null.
        Val::Map(map) => Ok(map.get_str(field).unwrap_or(Val::Null)),
        other => Err(failure(format!(
            "failed to perform list to map: expected a map, found {}",
            other.type_name()
        ))),
    };
    let mut entries: Vec<(MapKey, Val)> = Vec::new();
    let mut positions = rustc_hash::FxHashMap::default();
    for (key, value) in keys.iter().zip(values.iter()) {
        let Val::String(key) = field(key, key_field)? else {
            return Err(failure("failed to perform list to map: key must be a string"));
        };
        let value = field(value, value_field)?;
        // A later key replaces an earlier one, as in a Go map.
        match positions.get(&key) {
            Some(at) => entries[*at] = (MapKey::String(key), value),
            None => {
                positions.insert(key.clone(), entries.len());
                entries.push((MapKey::String(key), value));
            }
        }
    }
    let mut map = MapBuilder::with_capacity(entries.len());
    for (key, value) in entries {
        map.insert(key, value)?;
    }
    map.finish()
}

fn parse_service_account(context: &mut Context<'_>, args: &[Val]) -> Result<Val, EvalFailure> {
    let Val::String(user) = &args[0] else { return Err(no_such_overload()) };
    context.meter.charge_text(user.len() as u64)?;
    let parts = user.strip_prefix("system:serviceaccount:").and_then(|rest| rest.split_once(':'));
    let (namespace, name) = parts.unwrap_or_default();
    let fields = [("Name", name), ("Namespace", namespace)];
    let fields = fields.map(|(field, text)| (Str::new_static(field), Val::from(text)));
    Val::message(Str::new_static(SERVICE_ACCOUNT), fields.to_vec())
}

/// A copy of a map with the value at a dotted path replaced. Missing maps are made, numbers index
/// lists, `\.` is a dot within a key.
fn set_field(context: &mut Context<'_>, args: &[Val]) -> Result<Val, EvalFailure> {
    let [receiver, Val::String(path), value] = args else { return Err(no_such_overload()) };
    let mut object = context.json(receiver)?;
    let value = context.json(value)?;
    context.meter.charge_text(path.len() as u64)?;
    let parts = split_path(path);
    context.meter.charge(parts.len() as u64)?;
    let mut segments = Vec::with_capacity(parts.len());
    let mut place = Some(&object);
    for part in &parts {
        let index = part.parse().ok().filter(|_| matches!(place, Some(Value::List(_))));
        let segment = index.map_or(SegmentRef::Key(part), SegmentRef::Index);
        place = place.and_then(|value| value.step(segment));
        segments.push(segment);
    }
    object.set(segments, value).map_err(|error| failure(format!("setField: {error}")))?;
    Ok(Val::from(object))
}

fn split_path(path: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut rest = path.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '.' => parts.push(String::new()),
            '\\' if matches!(rest.peek(), Some('.' | '\\')) => {
                if let (Some(escaped), Some(part)) = (rest.next(), parts.last_mut()) {
                    part.push(escaped);
                }
            }
            other => {
                if let Some(part) = parts.last_mut() {
                    part.push(other);
                }
            }
        }
    }
    parts
}
