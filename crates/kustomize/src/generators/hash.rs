//! The hash of the content, which goes into the name.

use kiln_value::{Map, Value, json};
use sha2::{Digest, Sha256};

/// Ten characters that stand for the content of an object.
pub(crate) fn of(object: &Value) -> String {
    let kind = object.get("kind").and_then(Value::as_str).unwrap_or_default();
    let text = |field: &str| match object.get(field) {
        // kustomize: a field that is missing counts as empty text.
        None => "".into(),
        Some(scalar @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_))) => {
            crate::model::resource::scalar_text(scalar).into()
        }
        Some(other) => other.clone(),
    };
    let mut content = Map::new();
    let encoded = match kind {
        "ConfigMap" | "Secret" => {
            let (more, has_type) =
                if kind == "Secret" { ("stringData", true) } else { ("binaryData", false) };
            content.insert("kind", kind);
            // The name does not count: the same content has the same hash.
            content.insert("name", "");
            content.insert("data", text("data"));
            if has_type {
                content.insert("type", text("type"));
            }
            if matches!(object.get(more), Some(Value::Map(_))) {
                content.insert(more, text(more));
            }
            json::to_go_string(&Value::Map(content))
        }
        _ => json::to_go_string(object),
    };
    encode(&Sha256::digest(encoded.as_bytes()))
}

/// The first ten hexadecimal digits, spelled so that they form no words and look like no numbers.
fn encode(digest: &[u8]) -> String {
    let hex = digest.iter().take(5).flat_map(|byte| [byte >> 4, byte & 15]);
    hex.map(|digit| match digit {
        0 => 'g',
        1 => 'h',
        3 => 'k',
        10 => 'm',
        14 => 't',
        digit => char::from_digit(u32::from(digit), 16).unwrap_or('0'),
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_value::value;

    #[test]
    fn hashes_are_those_of_kustomize() {
        let named = |object: Value| of(&object);
        assert_eq!(named(value!({"kind": "ConfigMap", "data": {"a": "b"}})), "4h2mbtbbt6");
        assert_eq!(named(value!({"kind": "ConfigMap"})), "6ct58987ht");
        assert_eq!(named(value!({"kind": "Secret", "type": "Opaque", "data": {}})), "46f8b28mk5");
    }
}
