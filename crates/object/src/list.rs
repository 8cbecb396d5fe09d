//! Lists of objects: `kind: List`, and typed ones such as `PodList`.

use kiln_value::{Path, Value};

use crate::metadata;

/// The items of a list; `None` for anything that is not a list.
///
/// A list has a kind that ends in `List`, `items` that are a list (or null), and no name: an object
/// of a kind that is called `AllowList` has one. Items of a typed list that do not say what they are
/// get the kind of the list without its ending, as the API server means it.
pub fn items(object: &Value) -> Option<Vec<Value>> {
    let kind = object.get("kind").and_then(Value::as_str)?;
    let item_kind = kind.strip_suffix("List")?;
    if metadata::name(object).is_some() {
        return None;
    }
    let items = match object.get("items")? {
        Value::Null => return Some(Vec::new()),
        items => items.as_list()?,
    };
    let api_version = object.get("apiVersion").and_then(Value::as_str);
    let typed = |item: &Value| {
        let mut item = item.clone();
        if let (Some(api_version), Some(fields)) = (api_version, item.as_map_mut())
            && !item_kind.is_empty()
            && !fields.contains_key("kind")
        {
            fields.get_or_insert_with("apiVersion", || api_version.into());
            fields.insert("kind", item_kind);
        }
        item
    };
    Some(items.iter().map(typed).collect())
}

/// The object itself, or everything that a list holds, also in lists within it, in order.
pub fn flatten(object: Value) -> Vec<Value> {
    let mut flat = Vec::new();
    let mut waiting = vec![object];
    while let Some(object) = waiting.pop() {
        match items(&object) {
            Some(items) => waiting.extend(items.into_iter().rev()),
            None => flat.push(object),
        }
    }
    flat
}

/// Where each of the objects that [`flatten`] gives is, in their order.
pub fn places(object: &Value) -> Vec<Path> {
    let mut places = Vec::new();
    let mut waiting = vec![(Path::root(), object.clone())];
    while let Some((path, object)) = waiting.pop() {
        match items(&object) {
            Some(items) => {
                let path = path.join("items");
                let items = items.into_iter().enumerate().rev();
                waiting.extend(items.map(|(at, item)| (path.join(at), item)));
            }
            None => places.push(path),
        }
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_value::value;

    #[test]
    fn lists_are_taken_apart_in_order() {
        let list = value!({"apiVersion": "v1", "kind": "List", "items": [
            {"kind": "A"},
            {"kind": "List", "items": [{"kind": "B"}, {"kind": "C"}]},
            {"apiVersion": "v1", "kind": "PodList", "items": [{"metadata": {"name": "p"}}]},
        ]});
        let pod = value!({"metadata": {"name": "p"}, "apiVersion": "v1", "kind": "Pod"});
        let flat = [value!({"kind": "A"}), value!({"kind": "B"}), value!({"kind": "C"}), pod];
        assert_eq!(flatten(list), flat);
    }

    #[test]
    fn what_only_looks_like_a_list_stays() {
        for object in [
            value!({"kind": "Pod", "items": []}),
            value!({"kind": "AllowList", "metadata": {"name": "a"}, "items": []}),
            value!({"kind": "PodList"}),
            value!({"kind": "PodList", "items": {}}),
            value!([]),
        ] {
            assert_eq!(items(&object), None);
            assert_eq!(flatten(object.clone()), [object]);
        }
        assert_eq!(items(&value!({"kind": "List", "items": null})), Some(vec![]));
    }
}
