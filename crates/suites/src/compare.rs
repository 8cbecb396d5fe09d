//! An object against the one that was expected.

use kiln_engine::{MANAGED_BY, is_manager, is_ownership_label};
use kiln_object::ObjectId;
use kiln_value::{Map, Value};
use kiln_yaml::emit;
use similar::TextDiff;

/// How an object differs from the one that was expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    pub object: ObjectId,
    /// A unified diff from the expected one to the real one.
    pub diff: String,
}

/// The expected object of this identity, and its number.
pub(crate) fn find<'e>(expected: &'e [Value], id: &ObjectId) -> Option<(usize, &'e Value)> {
    let is_it = |object: &Value| ObjectId::of(object).is_ok_and(|other| other.same_object(id));
    expected.iter().enumerate().find(|(_, object)| is_it(object))
}

/// How an object differs from the expected one, in what counts.
pub(crate) fn difference(expected: &Value, id: &ObjectId, real: &Value) -> Option<Difference> {
    let (expected, real) = (comparable(expected), comparable(real));
    if expected == real {
        return None;
    }
    let (expected, real) = (emit(&expected), emit(&real));
    let diff = TextDiff::from_lines(&expected, &real);
    let diff = diff.unified_diff().header(&format!("{id} expected"), &format!("{id}")).to_string();
    Some(Difference { object: id.clone(), diff })
}

/// Whether an object is the expected one, in what counts.
pub(crate) fn same(expected: &Value, real: &Value) -> bool {
    comparable(expected) == comparable(real)
}

/// Kyverno: labels that say who generated an object, and whatever is empty, do not count.
fn comparable(object: &Value) -> Value {
    let mut object = object.clone();
    let labels = object.get_mut("metadata").and_then(|metadata| metadata.get_mut("labels"));
    if let Some(labels) = labels.and_then(Value::as_map_mut) {
        labels.retain(|key, value| {
            let of_manager = key == MANAGED_BY && value.as_str().is_some_and(is_manager);
            !of_manager && !is_ownership_label(key)
        });
    }
    tidy(&object).unwrap_or(Value::Null)
}

fn tidy(value: &Value) -> Option<Value> {
    match value {
        Value::Map(map) => {
            let kept = map.iter().filter_map(|(key, value)| Some((key.clone(), tidy(value)?)));
            let kept: Map = kept.collect();
            (!kept.is_empty()).then_some(Value::Map(kept))
        }
        Value::List(list) => {
            let kept: Vec<_> = list.iter().filter_map(tidy).collect();
            (!kept.is_empty()).then_some(Value::from(kept))
        }
        Value::Null => None,
        other => Some(other.clone()),
    }
}

#[cfg(test)]
mod tests {
    use kiln_value::value;

    use super::*;

    #[test]
    fn empty_things_and_labels_of_the_generator_do_not_count() {
        let plain = value!({"a": 1});
        for (expected, real, equal) in [
            (plain.clone(), value!({"a": 1, "b": {}, "c": [null, []]}), true),
            (plain.clone(), value!({"a": 2}), false),
            (plain.clone(), value!({"a": 1, "b": ""}), false),
            (
                plain,
                value!({"a": 1, "metadata": {"labels": {
                    "app.kubernetes.io/managed-by": "kyverno", "generate.kyverno.io/rule-name": "r"}}}),
                true,
            ),
            (
                value!({"metadata": {"labels": {"app.kubernetes.io/managed-by": "me"}}}),
                value!({"metadata": {"labels": {"app.kubernetes.io/managed-by": "kyverno"}}}),
                false,
            ),
        ] {
            assert_eq!(same(&expected, &real), equal, "{expected:?} {real:?}");
        }
    }

    #[test]
    fn differences_are_shown_line_by_line() {
        let expected =
            value!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "type": "a"});
        let real =
            value!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "type": "b"});
        let id = ObjectId::of(&real).unwrap();
        let found = difference(&expected, &id, &real).unwrap();
        assert!(found.diff.contains("-type: a\n+type: b\n"), "{}", found.diff);
        assert_eq!(difference(&real, &id, &real), None);
    }
}
