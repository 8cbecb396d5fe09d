//! Merge patch (RFC 7396): a patch looks like the object, and null removes.
//!
//! One engine with [`MergeRules`] for the one thing the API server does differently.
//!
//! ```
//! use kiln_patch::{MergeRules, merge_patch};
//! use kiln_value::value;
//! let mut object = value!({"data": {"a": "1", "b": "2"}});
//! merge_patch(&mut object, &value!({"data": {"a": null, "c": "3"}}), MergeRules::rfc7396());
//! assert_eq!(object, value!({"data": {"b": "2", "c": "3"}}));
//! ```

use kiln_value::{Map, Value};

/// The differences between dialects of merge patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MergeRules {
    /// Null members are dropped from maps inside the lists of a patch too, at any depth; null
    /// elements stay. A list that takes the place of a map is left as it is.
    pub drop_nulls_in_lists: bool,
}

impl MergeRules {
    /// The standard: lists are values, taken as they are.
    pub const fn rfc7396() -> Self {
        MergeRules { drop_nulls_in_lists: false }
    }

    /// The API server's.
    pub const fn kubernetes() -> Self {
        MergeRules { drop_nulls_in_lists: true }
    }
}

/// Applies a merge patch. Every value is a patch, so this cannot fail; what must be a map (an object
/// of Kubernetes) is for the caller to say.
pub fn merge_patch(target: &mut Value, patch: &Value, rules: MergeRules) {
    let Value::Map(patch) = patch else {
        *target = without_nulls(patch, rules, false);
        return;
    };
    if !matches!(target, Value::Map(_)) {
        *target = Value::map();
    }
    let Value::Map(target) = target else { return };
    for (key, change) in patch {
        match (change, target.get(key)) {
            (Value::Null, None) => {}
            (Value::Null, Some(_)) => {
                target.remove(key);
            }
            // An empty map changes nothing in a map; it must not copy it either.
            (Value::Map(change), Some(Value::Map(_))) if change.is_empty() => {}
            (Value::Map(_), Some(Value::Map(_))) => {
                if let Some(inner) = target.get_mut(key) {
                    merge_patch(inner, change, rules);
                }
            }
            (_, Some(old)) if old.same(change) => {}
            (Value::List(_), Some(Value::Map(_))) => {
                target.insert(key.clone(), change.clone());
            }
            _ => {
                target.insert(key.clone(), without_nulls(change, rules, true));
            }
        }
    }
}

/// What a patch puts where there is nothing to merge with. The parts that hold no null are shared
/// with the patch.
fn without_nulls(patch: &Value, rules: MergeRules, in_map: bool) -> Value {
    match patch {
        Value::Map(map) if in_map || rules.drop_nulls_in_lists => {
            let kept = map.iter().filter(|(_, value)| !value.is_null());
            let kept = kept.map(|(key, value)| (key.clone(), without_nulls(value, rules, true)));
            Value::Map(Map::from_unique(kept.collect()))
        }
        Value::List(list) if rules.drop_nulls_in_lists => {
            list.iter().map(|element| without_nulls(element, rules, true)).collect()
        }
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_value::value;

    #[test]
    fn the_examples_of_the_standard_hold() {
        for (target, patch, wanted) in [
            (value!({"a": "b"}), value!({"a": "c"}), value!({"a": "c"})),
            (value!({"a": "b"}), value!({"b": "c"}), value!({"a": "b", "b": "c"})),
            (value!({"a": "b"}), value!({"a": null}), value!({})),
            (value!({"a": "b", "b": "c"}), value!({"a": null}), value!({"b": "c"})),
            (value!({"a": ["b"]}), value!({"a": "c"}), value!({"a": "c"})),
            (value!({"a": "c"}), value!({"a": ["b"]}), value!({"a": ["b"]})),
            (
                value!({"a": {"b": "c"}}),
                value!({"a": {"b": "d", "c": null}}),
                value!({"a": {"b": "d"}}),
            ),
            (value!({"a": [{"b": "c"}]}), value!({"a": [1]}), value!({"a": [1]})),
            (value!(["a", "b"]), value!(["c", "d"]), value!(["c", "d"])),
            (value!({"a": "b"}), value!(["c"]), value!(["c"])),
            (value!({"a": "foo"}), value!(null), value!(null)),
            (value!({"a": "foo"}), value!("bar"), value!("bar")),
            (value!({"e": null}), value!({"a": 1}), value!({"e": null, "a": 1})),
            (value!([1, 2]), value!({"a": "b", "c": null}), value!({"a": "b"})),
            (value!({}), value!({"a": {"bb": {"ccc": null}}}), value!({"a": {"bb": {}}})),
        ] {
            for rules in [MergeRules::rfc7396(), MergeRules::kubernetes()] {
                let mut got = target.clone();
                merge_patch(&mut got, &patch, rules);
                assert_eq!(got, wanted, "{target:?} patched by {patch:?}");
            }
        }
    }

    #[test]
    fn only_the_api_server_drops_nulls_inside_lists() {
        let patch = value!({"a": [{"b": null, "c": [{"d": null}]}, null]});
        for (rules, wanted) in [
            (MergeRules::rfc7396(), patch.clone()),
            (MergeRules::kubernetes(), value!({"a": [{"c": [{}]}, null]})),
        ] {
            for before in [value!({}), value!({"a": 1}), value!({"a": [{"b": 1}]})] {
                let mut got = before;
                merge_patch(&mut got, &patch, rules);
                assert_eq!(got, wanted);
            }
            let mut got = value!({"a": {"b": 1}});
            merge_patch(&mut got, &patch, rules);
            assert_eq!(got, patch, "a list in place of a map");
        }
    }
}
