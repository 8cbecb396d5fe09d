//! The one field that a server takes and never gives back.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kiln_value::{Map, Value};

/// Folds `stringData` of a Secret into `data`, as a server does before it stores one. Other objects stay
/// as they are.
pub fn fold_string_data(object: &mut Value) {
    let is_secret = object.get("kind").and_then(Value::as_str) == Some("Secret")
        && object.get("apiVersion").and_then(Value::as_str) == Some("v1");
    if !is_secret || object.get("stringData").is_none() {
        return;
    }
    let Some(root) = object.as_map_mut() else { return };
    let Some(Value::Map(texts)) = root.remove("stringData") else { return };
    let data = root.get_or_insert_with("data", || Value::Map(Map::new()));
    if data.is_null() {
        *data = Value::map();
    }
    if let Some(data) = data.as_map_mut() {
        for (key, text) in texts.iter() {
            if let Some(text) = text.as_str() {
                data.insert(key.clone(), STANDARD.encode(text));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_value::value;

    #[test]
    fn texts_win_over_data_of_the_same_key() {
        let mut secret = value!({
            "apiVersion": "v1", "kind": "Secret",
            "data": {"a": "eA==", "b": "eQ=="}, "stringData": {"a": "new"},
        });
        fold_string_data(&mut secret);
        assert_eq!(
            secret,
            value!({"apiVersion": "v1", "kind": "Secret", "data": {"a": "bmV3", "b": "eQ=="}})
        );
    }
}
