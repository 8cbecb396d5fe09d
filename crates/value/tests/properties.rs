//! Laws that hold for every value.

use kiln_value::{Map, Number, Path, Segment, Value, json};
use proptest::prelude::*;

fn values() -> impl Strategy<Value = Value> {
    let scalar = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_filter("JSON has no NaN", |f| f.is_finite()).prop_map(Value::from),
        ".{0,40}".prop_map(Value::from),
    ];
    scalar.prop_recursive(4, 64, 8, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            // Up to 40 entries, so that both forms of maps occur.
            prop::collection::vec(("[a-z]{1,3}|.{0,30}", inner), 0..40)
                .prop_map(|entries| Value::Map(entries.into_iter().collect::<Map>())),
        ]
    })
}

/// Every place in a value.
fn places(value: &Value, here: &Path, found: &mut Vec<Path>) {
    found.push(here.clone());
    match value {
        Value::List(list) => {
            for (index, element) in list.iter().enumerate() {
                places(element, &here.join(index), found);
            }
        }
        Value::Map(map) => {
            for (key, value) in map {
                places(value, &here.join(key), found);
            }
        }
        _ => {}
    }
}

/// Go writes integral floats without a fraction, so they come back as integers.
fn as_json_reads_it(value: &Value) -> Value {
    match value {
        Value::Number(number @ Number::Float(_)) => json::parse(&number.to_string()).unwrap(),
        Value::List(list) => list.iter().map(as_json_reads_it).collect(),
        Value::Map(map) => Value::Map(
            map.iter().map(|(key, value)| (key.as_str(), as_json_reads_it(value))).collect(),
        ),
        other => other.clone(),
    }
}

proptest! {
    #[test]
    fn json_text_is_read_back_as_the_same_value(value in values()) {
        let wanted = as_json_reads_it(&value);
        for text in [
            json::to_string(&value),
            json::to_string_pretty(&value),
            json::to_go_string(&value),
            json::to_canonical_string(&value),
        ] {
            prop_assert_eq!(&json::parse(&text).unwrap(), &wanted);
        }
    }

    #[test]
    fn serde_reads_a_value_as_itself(value in values()) {
        prop_assert_eq!(kiln_value::from_value::<Value>(&value).unwrap(), value);
    }

    #[test]
    fn an_edit_changes_one_place_and_no_other_holder(value in values(), pick in any::<prop::sample::Index>()) {
        let mut all = Vec::new();
        places(&value, &Path::root(), &mut all);
        let place = &all[pick.index(all.len())];
        let before = json::to_string(&value);

        let mut edited = value.clone();
        edited.set(place, "edited").unwrap();
        prop_assert_eq!(edited.get_path(place), Some(&Value::from("edited")));
        prop_assert_eq!(json::to_string(&value), before);

        // Whatever is not on the way to the place is the very same allocation.
        for other in &all {
            if !starts_with(place, other) && !starts_with(other, place) {
                let (old, new) = (value.get_path(other).unwrap(), edited.get_path(other).unwrap());
                prop_assert!(old.same(new) || old == new && !matches!(old, Value::List(_) | Value::Map(_)));
            }
        }
    }

    #[test]
    fn what_is_removed_is_gone_and_everything_else_stays(value in values(), pick in any::<prop::sample::Index>()) {
        let mut all = Vec::new();
        places(&value, &Path::root(), &mut all);
        let place = &all[pick.index(all.len())];
        let mut edited = value.clone();
        let removed = edited.remove(place);
        prop_assert_eq!(removed.as_ref(), if place.is_root() { None } else { value.get_path(place) });
        if let Some(Segment::Key(_)) = place.segments().last() {
            prop_assert!(edited.get_path(place).is_none());
            edited.set(place, removed).unwrap();
            prop_assert_eq!(edited, value);
        }
    }
}

fn starts_with(path: &Path, prefix: &Path) -> bool {
    path.segments().starts_with(prefix.segments())
}
