//! Unknown fields and defaults, by an OpenAPI schema.

use std::collections::HashSet;

use kiln_value::{Map, Value};

/// How many unknown fields are reported.
const TOLD: usize = 1000;
/// How many values an object may have when its defaults are filled in.
const VISITED: usize = 1_000_000;

fn is_on(schema: &Value, flag: &str) -> bool {
    schema.get(flag).and_then(Value::as_bool) == Some(true)
}

/// The fields that every object has, whatever its schema says.
const ROOT: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// Takes away what the schema of an object does not know; tells which fields.
pub(crate) fn prune(object: &mut Value, schema: &Value) -> Vec<String> {
    let mut gone = Vec::new();
    walk(object, schema, true, &mut String::new(), &mut gone);
    gone
}

fn walk(value: &mut Value, schema: &Value, root: bool, path: &mut String, gone: &mut Vec<String>) {
    let root = root || is_on(schema, "x-kubernetes-embedded-resource");
    match value {
        Value::Map(_) => {
            let preserves = is_on(schema, "x-kubernetes-preserve-unknown-fields");
            let fields = schema.get("properties").and_then(Value::as_map);
            let entries = schema.get("additionalProperties");
            let Some(map) = value.as_map_mut() else { return };
            let mut unknown = HashSet::new();
            for (key, value) in map.iter_mut() {
                if root && ROOT.contains(&key.as_str()) {
                    continue;
                }
                let length = path.len();
                if !path.is_empty() {
                    path.push('.');
                }
                path.push_str(key);
                match fields.and_then(|fields| fields.get(key)).or(entries) {
                    Some(inner @ Value::Map(_)) => walk(value, inner, false, path, gone),
                    Some(Value::Bool(true)) => {}
                    _ if preserves => {}
                    _ => {
                        if gone.len() < TOLD {
                            gone.push(path.clone());
                        }
                        unknown.insert(key.as_str().to_owned());
                    }
                }
                path.truncate(length);
            }
            if !unknown.is_empty() {
                map.retain(|key, _| !unknown.contains(key.as_str()));
            }
        }
        Value::List(list) => {
            let Some(items) = schema.get("items") else { return };
            for (i, item) in list.make_mut().iter_mut().enumerate() {
                let length = path.len();
                path.push_str(&format!("[{i}]"));
                walk(item, items, false, path, gone);
                path.truncate(length);
            }
        }
        _ => {}
    }
}

/// Fills in what the schema has defaults for; whether that came to its end. Defaults may have defaults, so that a
/// small schema can ask for a very large object.
pub(crate) fn fill_defaults(value: &mut Value, schema: &Value) -> bool {
    let mut left = VISITED;
    fill(value, schema, &mut left);
    left > 0
}

fn fill(value: &mut Value, schema: &Value, left: &mut usize) {
    *left = left.saturating_sub(1);
    if *left == 0 {
        return;
    }
    match value {
        Value::Map(_) => {
            let fields = schema.get("properties").and_then(Value::as_map);
            let entries =
                schema.get("additionalProperties").filter(|entries| entries.as_map().is_some());
            if fields.is_none() && entries.is_none() {
                return;
            }
            let Some(map) = value.as_map_mut() else { return };
            for (name, inner) in fields.into_iter().flat_map(Map::iter) {
                let missing = match map.get(name) {
                    None => true,
                    // A null where none may be counts as missing when there is a default.
                    Some(Value::Null) => !is_on(inner, "nullable"),
                    Some(_) => false,
                };
                if missing && let Some(default) = inner.get("default") {
                    map.insert(name.clone(), default.clone());
                }
                if let Some(value) = map.get_mut(name) {
                    fill(value, inner, left);
                }
            }
            if let Some(entries) = entries {
                for (key, value) in map.iter_mut() {
                    if fields.is_none_or(|fields| !fields.contains_key(key)) {
                        fill(value, entries, left);
                    }
                }
            }
        }
        Value::List(list) => {
            if let Some(items) = schema.get("items") {
                for item in list.make_mut() {
                    fill(item, items, left);
                }
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use kiln_value::value;

    use super::*;

    #[test]
    fn unknown_fields_go_and_defaults_come() {
        let schema = value!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
            "a": {"type": "string", "default": "x"},
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {"b": {"type": "object"}}},
            "list": {"type": "array", "items": {"type": "object", "properties": {"n": {"type": "integer", "default": 1}}}},
        }}}});
        let mut object = value!({"kind": "K", "metadata": {"name": "n"}, "extra": 1,
            "spec": {"c": 1, "free": {"x": 1, "b": {"y": 2}}, "list": [{"m": 1}]}});
        assert_eq!(
            prune(&mut object, &schema),
            ["extra", "spec.c", "spec.free.b.y", "spec.list[0].m"]
        );
        assert!(fill_defaults(&mut object, &schema));
        assert_eq!(
            object,
            value!({"kind": "K", "metadata": {"name": "n"},
                "spec": {"a": "x", "free": {"x": 1, "b": {}}, "list": [{"n": 1}]}})
        );
    }

    #[test]
    fn defaults_of_defaults_come_to_an_end() {
        let hundred = Value::from(vec![Value::map(); 100]);
        let innermost = value!({"type": "object"});
        let schema = (0..8).fold(innermost, |inner, _| {
            let mut schema = value!({"type": "object", "properties": {"x": {"type": "array"}}});
            let _ = schema.set(["properties", "x", "default"], hundred.clone());
            let _ = schema.set(["properties", "x", "items"], inner);
            schema
        });
        assert!(!fill_defaults(&mut Value::map(), &schema), "a hundred to the power of eight");
    }
}
