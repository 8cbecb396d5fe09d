//! Laws that hold for all values.

use kiln_patch::{JsonPatch, JsonPatchRules, MergeRules, StrategicRules};
use kiln_patch::{diff, merge_patch, strategic_merge};
use kiln_schema::{KubernetesVersion, Schema};
use kiln_value::{Map, Value, value};
use proptest::prelude::*;

/// Any value, with few different keys so that they often meet.
fn any_value() -> impl Strategy<Value = Value> {
    let key =
        prop::sample::select(vec!["a", "b", "c", "", "a/b", "x~y", "name", "$patch", "0", "-"]);
    let scalar = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-3..4i64).prop_map(Value::from),
        prop::sample::select(vec![0.5, 1.0, -2.0]).prop_map(Value::from),
        prop::sample::select(vec!["", "a", "1", "delete", "replace"]).prop_map(Value::from),
    ];
    scalar.prop_recursive(5, 60, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::vec((key.clone(), inner), 0..6)
                .prop_map(|entries| Value::Map(entries.into_iter().collect::<Map>())),
        ]
    })
}

/// A pod with some containers, variables and ports.
fn any_pod() -> impl Strategy<Value = Value> {
    let name = || prop::sample::select(vec!["a", "b", "c", "d", "e"]);
    let env = (name(), 0..3i64).prop_map(|(name, value)| value!({"name": name, "value": value}));
    let port = (80..84i64, prop::sample::select(vec!["TCP", "UDP"]))
        .prop_map(|(port, protocol)| value!({"containerPort": port, "protocol": protocol}));
    let container = (name(), 0..3i64, unique(env, "name"), unique(port, "containerPort"))
        .prop_map(|(name, image, env, ports)| {
            value!({"name": name, "image": image, "env": env, "ports": ports})
        });
    (unique(container, "name"), any_value()).prop_map(|(containers, other)| {
        value!({"apiVersion": "v1", "kind": "Pod", "other": other,
            "metadata": {"finalizers": ["x", "y"]}, "spec": {"containers": containers}})
    })
}

/// Lists of up to four elements, each with another key.
fn unique(
    element: impl Strategy<Value = Value>,
    key: &'static str,
) -> impl Strategy<Value = Vec<Value>> {
    prop::collection::vec(element, 0..5).prop_map(move |mut list| {
        let mut seen = Vec::new();
        list.retain(|element| {
            let found = element.get(key).cloned();
            let new = !seen.contains(&found);
            seen.push(found);
            new
        });
        list
    })
}

fn merged(object: &Value, patch: &Value, rules: MergeRules) -> Value {
    let mut object = object.clone();
    merge_patch(&mut object, patch, rules);
    object
}

fn has_null_member(value: &Value, in_lists: bool) -> bool {
    match value {
        Value::Map(map) => map.values().any(|v| v.is_null() || has_null_member(v, in_lists)),
        Value::List(list) => in_lists && list.iter().any(|v| has_null_member(v, in_lists)),
        _ => false,
    }
}

proptest! {
    #[test]
    fn the_difference_leads_from_one_to_the_other(from in any_value(), to in any_value()) {
        let patch = diff(&from, &to, &Schema::empty());
        let mut patched = from;
        patch.apply(&mut patched).unwrap();
        prop_assert_eq!(&patched, &to);
        let read = JsonPatch::parse(&patch.to_value(), JsonPatchRules::rfc6902()).unwrap();
        prop_assert_eq!(&read, &patch);
        prop_assert!(diff(&to, &to.clone(), &Schema::empty()).is_empty());
    }

    #[test]
    fn the_difference_of_pods_leads_from_one_to_the_other(from in any_pod(), to in any_pod()) {
        let schema = Schema::builtin(KubernetesVersion::V1_36);
        let mut patched = from.clone();
        diff(&from, &to, &schema).apply(&mut patched).unwrap();
        prop_assert_eq!(&patched, &to);
    }

    #[test]
    fn what_a_patch_removes_or_sets_is_so_afterwards(
        object in any_value(),
        patch in any_value(),
    ) {
        for rules in [MergeRules::rfc7396(), MergeRules::kubernetes()] {
            let once = merged(&object, &patch, rules);
            // Patching again changes nothing (the API server leaves nulls in a list that takes the
            // place of a map, and takes them out the next time).
            if rules == MergeRules::rfc7396() {
                prop_assert_eq!(&merged(&once, &patch, rules), &once);
            }
            if let (Value::Map(patch), Value::Map(once)) = (&patch, &once) {
                for (key, change) in patch {
                    if change.is_null() {
                        prop_assert!(!once.contains_key(key));
                    } else if !matches!(change, Value::Map(_) | Value::List(_)) {
                        prop_assert_eq!(once.get(key), Some(change));
                    }
                }
            }
        }
        let unchanged = merged(&object, &value!({}), MergeRules::rfc7396());
        let is_map = matches!(object, Value::Map(_));
        prop_assert_eq!(unchanged, if is_map { object } else { value!({}) });
        if !has_null_member(&patch, false) {
            prop_assert_eq!(&merged(&Value::Null, &patch, MergeRules::rfc7396()), &patch);
        }
    }

    #[test]
    fn merging_nothing_changes_nothing(pod in any_pod()) {
        for (version, rules) in dialects() {
            let schema = Schema::builtin(version);
            for patch in [value!({}), value!({"spec": {}}), value!({"spec": {"containers": []}}), value!({"metadata": {"x": null}})] {
                let mut patched = pod.clone();
                let _kept = strategic_merge(&mut patched, &patch, &schema, &rules).unwrap();
                prop_assert_eq!(&patched, &pod);
            }
        }
    }

    #[test]
    fn merging_a_pod_into_itself_changes_nothing(pod in any_pod()) {
        let mut plain = pod;
        plain.remove(["other"]);
        for (version, rules) in dialects() {
            let mut patched = plain.clone();
            let schema = Schema::builtin(version);
            let _kept = strategic_merge(&mut patched, &plain, &schema, &rules).unwrap();
            prop_assert_eq!(&patched, &plain);
        }
    }

    #[test]
    fn nothing_panics(object in any_value(), patch in any_value(), pod in any_pod()) {
        for rules in [JsonPatchRules::rfc6902(), JsonPatchRules::kubernetes(), JsonPatchRules::kyverno()] {
            if let Ok(patch) = JsonPatch::parse(&patch, rules) {
                let _ = patch.apply(&mut object.clone());
            }
        }
        for (version, rules) in dialects() {
            let schema = Schema::builtin(version);
            for (object, patch) in [(&object, &patch), (&pod, &patch), (&pod, &object)] {
                let _ = strategic_merge(&mut object.clone(), patch, &schema, &rules);
                let in_list = value!({"spec": {"containers": [patch, {"name": "a", "env": [patch]}]}});
                let _ = strategic_merge(&mut pod.clone(), &in_list, &schema, &rules);
            }
        }
    }
}

fn dialects() -> [(KubernetesVersion, StrategicRules); 3] {
    [
        (KubernetesVersion::V1_21, StrategicRules::kustomize()),
        (KubernetesVersion::V1_21, StrategicRules::kyverno()),
        (KubernetesVersion::V1_36, StrategicRules::kubernetes()),
    ]
}
