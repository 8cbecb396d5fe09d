//! Keys of list elements.

use kiln_value::{Map, Number, Str, Value};

use super::StrategicProblem;

/// A scalar that can be compared and hashed: 1, 1.0 and "1" are three different ones.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum ScalarKey {
    Null,
    Bool(bool),
    Int(i64),
    Float(u64),
    Text(Str),
}

impl ScalarKey {
    /// `None` for lists and maps.
    pub(super) fn of(value: &Value) -> Option<ScalarKey> {
        Some(match value {
            Value::Null => ScalarKey::Null,
            Value::Bool(b) => ScalarKey::Bool(*b),
            Value::Number(Number::Int(i)) => ScalarKey::Int(*i),
            // Go reads what is too large for an integer as a float; 0.0 and -0.0 are equal.
            Value::Number(number) => ScalarKey::Float((number.as_f64() + 0.0).to_bits()),
            Value::String(text) => ScalarKey::Text(text.clone()),
            Value::List(_) | Value::Map(_) => return None,
        })
    }

    /// The key of an element, which must be there.
    pub(super) fn of_element(
        element: &Value,
        key: &str,
        position: usize,
    ) -> Result<ScalarKey, StrategicProblem> {
        let Some(found) = element.get(key) else {
            return Err(StrategicProblem::NoMergeKey { key: key.to_owned(), element: position });
        };
        ScalarKey::of(found).ok_or_else(|| StrategicProblem::MergeKeyNotScalar(key.to_owned()))
    }
}

/// The kind of all the elements of a list that merges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ElementKind {
    Maps,
    Scalars,
}

impl ElementKind {
    /// `None` when there are no elements.
    pub(super) fn of<'v>(
        elements: impl IntoIterator<Item = &'v Value>,
    ) -> Result<Option<ElementKind>, StrategicProblem> {
        let mut first = None;
        for element in elements {
            let discriminant = match element {
                Value::Null => return Err(StrategicProblem::MixedElements),
                Value::List(_) if first.is_none() => return Err(StrategicProblem::ListOfLists),
                Value::List(_) => return Err(StrategicProblem::MixedElements),
                Value::Bool(_) => 0,
                Value::Number(Number::Int(_)) => 1,
                Value::Number(_) => 2,
                Value::String(_) => 3,
                Value::Map(_) => 4,
            };
            if *first.get_or_insert(discriminant) != discriminant {
                return Err(StrategicProblem::MixedElements);
            }
        }
        Ok(first.map(|kind| if kind == 4 { ElementKind::Maps } else { ElementKind::Scalars }))
    }
}

/// The text of a scalar as YAML has it, by which kustomize compares; empty for all else.
pub(super) fn scalar_text(value: &Value) -> Str {
    match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => Str::from(number.to_string()),
        Value::Bool(b) => Str::new(if *b { "true" } else { "false" }),
        Value::Null | Value::List(_) | Value::Map(_) => Str::default(),
    }
}

/// The text of a key of an element; empty when it is missing.
pub(super) fn key_text(element: &Value, key: &str) -> Str {
    element.get(key).map(scalar_text).unwrap_or_default()
}

/// Whether an element is nothing: null or an empty map.
pub(super) fn is_nothing(element: &Value) -> bool {
    element.is_null() || element.as_map().is_some_and(Map::is_empty)
}
