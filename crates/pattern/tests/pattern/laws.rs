//! What holds for every patch and every object.

use kiln_pattern::{PatternLimits, Resolved, matches, resolve_anchors, value_matches};
use kiln_value::{Map, Path, Value};
use proptest::prelude::*;

fn values() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-3i64..9).prop_map(Value::from),
        "[ab*?!<>|&0-9h-]{0,4}".prop_map(Value::from),
    ];
    let key = || "[+<=X^]?\\([ab]\\)|[ab]|name";
    leaf.prop_recursive(4, 40, 4, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from_iter),
            prop::collection::vec((key(), inner), 0..4)
                .prop_map(|entries| Value::Map(entries.into_iter().collect::<Map>())),
        ]
    })
}

/// Maps in maps, without anchors.
fn plain_maps() -> impl Strategy<Value = Value> {
    let leaf = (-3i64..9).prop_map(Value::from);
    leaf.prop_recursive(4, 40, 4, |inner| {
        prop::collection::vec(("[abc]", inner), 0..4)
            .prop_map(|entries| Value::Map(entries.into_iter().collect::<Map>()))
    })
}

fn scalars(value: &Value, path: &mut Path, found: &mut Vec<(String, Value)>) {
    match value {
        Value::Map(map) => {
            for (key, value) in map {
                path.push(key);
                scalars(value, path, found);
                path.pop();
            }
        }
        other => found.push((path.to_string(), other.clone())),
    }
}

proptest! {
    #[test]
    fn a_patch_without_anchors_keeps_its_scalars(patch in plain_maps(), object in values()) {
        let resolved = resolve_anchors(&patch, &object, &PatternLimits::default()).unwrap();
        let Resolved::Patch(plain) = resolved else { panic!("cancelled: {resolved:?}") };
        let (mut before, mut after) = (Vec::new(), Vec::new());
        scalars(&patch, &mut Path::root(), &mut before);
        scalars(&plain, &mut Path::root(), &mut after);
        prop_assert_eq!(before, after);
    }

    #[test]
    fn resolving_is_the_same_every_time(patch in values(), object in values()) {
        let run = || resolve_anchors(&patch, &object, &PatternLimits::default());
        prop_assert_eq!(run(), run());
    }

    #[test]
    fn whatever_matches_does_not_change_by_asking(pattern in values(), value in values()) {
        let first = matches(&pattern, &value, &PatternLimits::default()).is_ok();
        prop_assert_eq!(first, matches(&pattern, &value, &PatternLimits::default()).is_ok());
        if let Value::String(text) = &value {
            prop_assert!(value_matches(&Value::String(text.clone()), &value));
        }
    }
}
