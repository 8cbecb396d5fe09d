//! Client-side apply: what `kubectl apply` makes of a live object.
//!
//! kubectl compares three objects: the one that it applied last, the one that is applied now, and the live one. What was
//! applied before and is gone is removed, what is new or different is merged, and whatever others wrote stays. The
//! difference is a strategic merge patch with the API server's directives; kinds without a schema get a merge patch, in
//! which lists are replaced.
//!
//! ```
//! use kiln_patch::client_side_apply;
//! use kiln_schema::{Schema, KubernetesVersion};
//! use kiln_value::value;
//! let live = value!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "1", "b": "2", "other": "3"}});
//! let last = value!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "1", "b": "2"}});
//! let now = value!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "9"}});
//! let merged = client_side_apply(&live, Some(&last), &now, &Schema::builtin(KubernetesVersion::V1_36));
//! assert_eq!(merged.get("data"), Some(&value!({"a": "9", "other": "3"})));
//! ```

use std::collections::{HashMap, HashSet};

use kiln_schema::{Schema, SchemaNode};
use kiln_value::{Map, Value, json};

use crate::strategic::directive::{
    DELETE_FROM_PRIMITIVE_LIST, PATCH, RETAIN_KEYS, SET_ELEMENT_ORDER,
};
use crate::{MergeRules, StrategicRules, merge_patch, strategic_merge};

/// The live object after an object is applied to it. `last` is what was applied before.
pub fn client_side_apply(
    live: &Value,
    last: Option<&Value>,
    now: &Value,
    schema: &Schema,
) -> Value {
    let patch = |node: Option<SchemaNode<'_>>| match (live, now) {
        (Value::Map(live), Value::Map(now)) => {
            Value::Map(map_patch(live, last.and_then(Value::as_map), now, node, false))
        }
        _ => now.clone(),
    };
    let mut merged = live.clone();
    let node = schema.root_of(now);
    let is_merged = node.is_some()
        && strategic_merge(&mut merged, &patch(node), schema, &StrategicRules::kubernetes())
            .is_ok();
    if !is_merged {
        // kubectl: custom resources are merged map by map.
        merge_patch(&mut merged, &patch(None), MergeRules::kubernetes());
    }
    merged
}

/// What is to change in a map. Empty if nothing is.
fn map_patch(
    live: &Map,
    last: Option<&Map>,
    now: &Map,
    node: Option<SchemaNode<'_>>,
    retains_keys: bool,
) -> Map {
    let mut patch = Map::new();
    for (key, new) in now {
        let node = node.and_then(|node| node.field(key));
        let last = last.and_then(|last| last.get(key));
        let replaces = node.is_some_and(|node| node.patch_strategy().replaces());
        match (new, live.get(key)) {
            (Value::Null, None) => {}
            (new, Some(live)) if new == live => {}
            (Value::Map(new), Some(Value::Map(live))) if !replaces => {
                let retains = node.is_some_and(|node| node.patch_strategy().retains_keys());
                let last = last.and_then(Value::as_map);
                let inner = map_patch(live, last, new, node, retains);
                if !inner.is_empty() {
                    patch.insert(key.clone(), Value::Map(inner));
                }
            }
            (Value::List(new), Some(Value::List(live))) => {
                let last = last.and_then(Value::as_list).map_or(&[][..], |list| &list[..]);
                let merging = node.filter(|node| node.patch_strategy().merges());
                let is_merged =
                    merging.is_some_and(|node| list_patch(&mut patch, key, live, last, new, node));
                if !is_merged {
                    patch.insert(key.clone(), Value::List(new.clone()));
                }
            }
            _ => {
                patch.insert(key.clone(), new.clone());
            }
        }
    }
    for (key, old) in last.into_iter().flatten() {
        // kubectl writes `creationTimestamp: null` for what was never set.
        if !old.is_null() && !now.contains_key(key) && live.contains_key(key) {
            patch.insert(key.clone(), Value::Null);
        }
    }
    if retains_keys && !patch.is_empty() {
        let keys: Vec<Value> = now.keys().map(|key| Value::from(key.as_str())).collect();
        patch.insert(RETAIN_KEYS, keys);
    }
    patch
}

/// Puts into a patch what is to change in a list whose elements are merged; false if they cannot be told apart.
fn list_patch(
    patch: &mut Map,
    field: &str,
    live: &[Value],
    last: &[Value],
    now: &[Value],
    node: SchemaNode<'_>,
) -> bool {
    let all = || live.iter().chain(last).chain(now);
    let is_scalar = |value: &Value| !matches!(value, Value::Map(_) | Value::List(_));
    let identity = |element: &Value| match node.merge_key() {
        Some(key) => Some(json::to_canonical_string(element.as_map()?.get(key)?)),
        None if is_scalar(element) => Some(json::to_canonical_string(element)),
        None => None,
    };
    if !all().all(|element| identity(element).is_some()) {
        return false;
    }
    let named = |list: &[Value]| -> Vec<String> { list.iter().filter_map(identity).collect() };
    let (live_names, last_names, now_names) = (named(live), named(last), named(now));
    let index = |names: &[String]| -> HashMap<String, usize> {
        // Of elements with the same key, the first one counts.
        names.iter().cloned().enumerate().rev().map(|(at, name)| (name, at)).collect()
    };
    let (live_at, last_at) = (index(&live_names), index(&last_names));
    let wanted: HashSet<&String> = now_names.iter().collect();
    let mut changes = Vec::new();
    for (name, new) in now_names.iter().zip(now) {
        let old = live_at.get(name).map(|at| &live[*at]);
        match (new, old) {
            (Value::Map(new), Some(Value::Map(old))) => {
                let last = last_at.get(name).and_then(|at| last[*at].as_map());
                let retains = node.patch_strategy().retains_keys();
                let mut change = map_patch(old, last, new, node.items(), retains);
                if let Some(key) = node.merge_key().filter(|_| !change.is_empty()) {
                    change.insert(key, new.get(key).cloned().unwrap_or_default());
                    changes.push(Value::Map(change));
                }
            }
            (_, Some(_)) => {}
            (new, None) => changes.push(new.clone()),
        }
    }
    let gone = last_names.iter().zip(last);
    let gone: Vec<&Value> = gone
        .filter(|(name, _)| !wanted.contains(name) && live_at.contains_key(*name))
        .map(|(_, element)| element)
        .collect();
    let kept = live_names.iter().filter(|name| wanted.contains(name));
    let is_in_order = kept.eq(now_names.iter().filter(|name| live_at.contains_key(*name)));
    if changes.is_empty() && gone.is_empty() && is_in_order {
        return true;
    }
    let order: Vec<Value> = match node.merge_key() {
        Some(key) => {
            let only_key = |element: &Value| {
                Value::Map(Map::from_iter([(key, element.get(key).cloned().unwrap_or_default())]))
            };
            changes.extend(gone.into_iter().map(|element| {
                let mut deleted = only_key(element);
                if let Some(map) = deleted.as_map_mut() {
                    map.insert(PATCH, "delete");
                }
                deleted
            }));
            now.iter().map(only_key).collect()
        }
        None => {
            if !gone.is_empty() {
                let gone: Vec<Value> = gone.into_iter().cloned().collect();
                patch.insert(format!("{DELETE_FROM_PRIMITIVE_LIST}/{field}"), gone);
            }
            now.to_vec()
        }
    };
    if !changes.is_empty() {
        patch.insert(field, changes);
    }
    if !order.is_empty() {
        patch.insert(format!("{SET_ELEMENT_ORDER}/{field}"), order);
    }
    true
}

#[cfg(test)]
mod tests {
    use kiln_schema::KubernetesVersion;
    use kiln_value::value;

    use super::*;

    fn applied(live: &Value, last: Option<&Value>, now: &Value) -> Value {
        client_side_apply(live, last, now, &Schema::builtin(KubernetesVersion::V1_36))
    }

    fn pod(containers: &Value) -> Value {
        value!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": (containers.clone())}})
    }

    #[test]
    fn what_is_gone_inside_of_elements_goes_and_what_others_wrote_stays() {
        let last = pod(&value!([
            {"name": "x", "image": "i", "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}], "resources": {"limits": {"memory": "1Gi"}}},
            {"name": "y", "image": "i"},
        ]));
        let live = pod(&value!([
            {"name": "x", "image": "i", "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}, {"name": "Z", "value": "9"}],
                "resources": {"limits": {"memory": "1Gi"}}, "imagePullPolicy": "Always"},
            {"name": "y", "image": "i"},
            {"name": "injected", "image": "i"},
        ]));
        let now = pod(&value!([{"name": "x", "image": "j", "env": [{"name": "B", "value": "3"}]}]));
        let wanted = pod(&value!([
            {"name": "x", "image": "j", "env": [{"name": "B", "value": "3"}, {"name": "Z", "value": "9"}], "imagePullPolicy": "Always"},
            {"name": "injected", "image": "i"},
        ]));
        assert_eq!(applied(&live, Some(&last), &now), wanted);
        assert_eq!(applied(&wanted, Some(&now), &now), wanted, "a second time, nothing changes");
    }

    #[test]
    fn elements_are_told_apart_by_the_key_of_their_list() {
        let service = |port: i64| value!({"apiVersion": "v1", "kind": "Service", "spec": {"ports": [{"name": "http", "port": (port)}]}});
        let now = service(8080);
        assert_eq!(applied(&service(80), Some(&service(80)), &now), now);
    }

    #[test]
    fn elements_follow_the_order_of_what_is_applied() {
        let list = |names: &[&str]| {
            pod(&names.iter().map(|name| value!({"name": (*name)})).collect::<Vec<_>>().into())
        };
        let (last, now) = (list(&["a", "b"]), list(&["b", "a"]));
        let merged = applied(&list(&["a", "b", "other"]), Some(&last), &now);
        let containers = merged.get_path(["spec", "containers"]).unwrap().as_list().unwrap();
        let names: Vec<_> = containers.iter().filter_map(|it| it.str_at(["name"])).collect();
        let place = |name: &str| names.iter().position(|known| *known == name).unwrap();
        assert!(names.len() == 3 && place("b") < place("a"), "{names:?}");
    }

    #[test]
    fn fields_that_exclude_each_other_do_not_stay_beside_each_other() {
        let deployment = |strategy: Value| value!({"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"strategy": (strategy)}});
        let live =
            deployment(value!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%"}}));
        let now = deployment(value!({"type": "Recreate"}));
        assert_eq!(applied(&live, Some(&deployment(value!({}))), &now), now);
        let same = deployment(value!({"type": "RollingUpdate"}));
        assert_eq!(applied(&live, Some(&same), &same), live, "the default of the server stays");
    }

    #[test]
    fn lists_of_texts_keep_what_others_added() {
        let object = |finalizers: Value| value!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "finalizers": (finalizers)}});
        let last = object(value!(["a/x", "a/y"]));
        let live = object(value!(["a/x", "a/y", "other/z"]));
        let merged = applied(&live, Some(&last), &object(value!(["a/x"])));
        assert_eq!(merged, object(value!(["a/x", "other/z"])));
    }

    #[test]
    fn kinds_without_a_schema_have_their_lists_replaced() {
        let object =
            |spec: Value| value!({"apiVersion": "x.io/v1", "kind": "Thing", "spec": (spec)});
        let last = object(value!({"gone": 1, "list": [{"name": "a"}]}));
        let live = object(
            value!({"gone": 1, "other": 2, "list": [{"name": "a", "more": 1}, {"name": "b"}]}),
        );
        let now = object(value!({"list": [{"name": "a"}]}));
        let wanted = object(value!({"other": 2, "list": [{"name": "a"}]}));
        assert_eq!(applied(&live, Some(&last), &now), wanted);
    }

    #[test]
    fn without_an_earlier_apply_nothing_is_removed() {
        let live = value!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "1"}});
        let now = value!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"b": "2"}});
        let wanted =
            value!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "1", "b": "2"}});
        assert_eq!(applied(&live, None, &now), wanted);
    }
}
