//! How large and how deep a value is, counted only as far as a budget goes.

use kiln_value::Value;

/// Takes about as many bytes from the budget as the value has as JSON, and says how deep it nests;
/// `None` (and a budget of 0) as soon as it is used up. Shared parts count each time, as they do in the text.
pub(super) fn measure(value: &Value, budget: &mut usize) -> Option<usize> {
    let own = match value {
        Value::Null | Value::Bool(_) => 4,
        Value::Number(_) => 8,
        Value::String(text) => text.len() + 2,
        Value::List(list) => list.len() + 2,
        Value::Map(map) => map.keys().map(|key| key.len() + 4).sum::<usize>() + 2,
    };
    let Some(left) = budget.checked_sub(own) else {
        *budget = 0;
        return None;
    };
    *budget = left;
    let deepest = |depth: Option<usize>, child| Some(depth?.max(measure(child, budget)?));
    match value {
        Value::List(list) => list.iter().fold(Some(0), deepest).map(|depth| depth + 1),
        Value::Map(map) => map.values().fold(Some(0), deepest).map(|depth| depth + 1),
        _ => Some(0),
    }
}
