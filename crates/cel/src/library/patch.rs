//! Patches as values: `Object{…}` and `JSONPatch{…}` literals, `jsonpatch.escapeKey`.

use kiln_value::{Key, Map, Value};

use super::Registry;
use crate::Val;
use crate::error::{EvalFailure, no_such_overload};
use crate::eval::Context;
use crate::value::{CelList, JsonForm, Keys, to_json};

pub(super) fn register(registry: &mut Registry) {
    registry.add(escape_key, &["jsonpatch.escapeKey(string): string"]);
}

/// A key as a part of a JSON pointer.
fn escape_key(context: &mut Context<'_>, args: &[Val]) -> Result<Val, EvalFailure> {
    let Val::String(key) = &args[0] else { return Err(no_such_overload()) };
    context.meter.charge_text(key.len() as u64)?;
    Ok(Val::from(key.replace('~', "~0").replace('/', "~1")))
}

impl Val {
    /// The plain form of an `Object{…}` value, after checking that every typed literal in it is
    /// named by its place: `Object.spec` below the field `spec` of `Object`.
    ///
    /// # Errors
    /// In Kubernetes' words when a name is wrong; also when a part has no JSON form or the whole is
    /// larger than `limit` nodes and bytes.
    pub fn to_patch_object(&self, limit: u64) -> Result<Value, String> {
        match self {
            Val::Struct(message) if message.name == "Object" => {
                let mut room = limit;
                patch_value(self, "Object", &mut room)
            }
            other => Err(format!("must evaluate to Object but got {}", other.type_name())),
        }
    }
}

fn patch_value(value: &Val, name: &str, room: &mut u64) -> Result<Value, String> {
    match value {
        Val::Struct(message) => {
            if message.name != name {
                let found = &message.name;
                return Err(format!(
                    "type mismatch: unexpected type name \"{found}\", expected \"{name}\", which \
                     matches field name path from root Object type"
                ));
            }
            let mut map = Map::new();
            for (field, value) in &message.fields {
                take(room)?;
                map.insert(Key::new(field), patch_value(value, &format!("{name}.{field}"), room)?);
            }
            Ok(Value::Map(map))
        }
        // Lists and maps pass their own name on.
        Val::List(list @ CelList::Built(_)) => list
            .iter()
            .map(|element| {
                take(room)?;
                patch_value(&element, name, room)
            })
            .collect(),
        Val::Map(map @ crate::value::Map::Built(_)) => {
            let mut plain = Map::new();
            for (key, value) in map.iter() {
                take(room)?;
                let Val::String(key) = &key else {
                    return Err(format!(
                        "map key {key:?} is of type {}, not string",
                        key.type_name()
                    ));
                };
                plain.insert(Key::new(key), patch_value(&value, name, room)?);
            }
            Ok(Value::Map(plain))
        }
        Val::Optional(Some(nested)) => patch_value(&nested.value, name, room),
        other => {
            let form = JsonForm { keys: Keys::StringsOnly, finite_only: false };
            to_json(other, form, room).map_err(|error| error.to_string())
        }
    }
}

fn take(room: &mut u64) -> Result<(), String> {
    *room = room.checked_sub(1).ok_or("the patch is too large")?;
    Ok(())
}
