//! Elements that a request was given already.
//!
//! An API server asks again when others changed an object after it had asked us, and then sends our patched object, with
//! defaults filled in. An element that is to be added to a list, that the object has and that it did not have before
//! the request, is therefore our own of a moment ago, or as good: it is not added a second time.

use kiln_patch::{Action, JsonPatch, JsonPatchOperation, JsonPatchRules};
use kiln_value::{Key, Value};

use crate::input::limits::{Counters, Exceeded};

/// The patch without the elements that the object, as it came, was given by this very request.
pub(super) fn without_repeats(
    patch: JsonPatch,
    rules: JsonPatchRules,
    object: &Value,
    old: Option<&Value>,
    counters: &Counters,
) -> Result<JsonPatch, Exceeded> {
    let mut left_out: Vec<&JsonPatchOperation> = Vec::new();
    for operation in patch.operations() {
        let (Action::Add(value), [parents @ .., _]) = (&operation.action, operation.path.steps())
        else {
            continue;
        };
        let Some(list) = list_at(object, parents) else { continue };
        let before = old.and_then(|old| list_at(old, parents)).unwrap_or_default();
        counters.patched((list.len() + before.len()) as u64)?;
        let count = |list: &[Value]| list.iter().filter(|there| covers(there, value)).count();
        // A rule may well add the same twice.
        let again = left_out.iter().filter(|known| **known == operation).count();
        if count(list) > count(before) + again {
            left_out.push(operation);
        }
    }
    if left_out.is_empty() {
        return Ok(patch);
    }
    let mut left_out: Vec<JsonPatchOperation> = left_out.into_iter().cloned().collect();
    let mut kept = Vec::with_capacity(patch.operations().len());
    for operation in patch.operations() {
        match left_out.iter().position(|known| known == operation) {
            Some(at) => drop(left_out.swap_remove(at)),
            None => kept.push(operation.clone()),
        }
    }
    Ok(JsonPatch::new(kept, rules))
}

/// The list at the end of these steps, if there is one.
fn list_at<'v>(value: &'v Value, steps: &[Key]) -> Option<&'v [Value]> {
    let mut value = value;
    for step in steps {
        value = match value {
            Value::Map(map) => map.get(step.as_str())?,
            Value::List(list) => {
                let index: i64 = step.parse().ok()?;
                let from_back = || list.len().checked_sub(usize::try_from(-index).ok()?);
                let at = usize::try_from(index).ok().or_else(from_back)?;
                list.get(at)?
            }
            _ => return None,
        };
    }
    value.as_list().map(|list| &**list)
}

/// Whether everything that is wanted is there; a server may have filled in more.
fn covers(there: &Value, wanted: &Value) -> bool {
    match (there, wanted) {
        (Value::Map(there), Value::Map(wanted)) => wanted.iter().all(|(key, wanted)| {
            // Servers leave out what is null.
            there.get(key.as_str()).map_or(wanted.is_null(), |there| covers(there, wanted))
        }),
        (Value::List(there), Value::List(wanted)) => {
            there.len() == wanted.len()
                && there.iter().zip(wanted.iter()).all(|(there, wanted)| covers(there, wanted))
        }
        _ => there == wanted,
    }
}

#[cfg(test)]
mod tests {
    use kiln_value::{json, value};

    use super::*;
    use crate::input::limits::EvaluationLimits;

    /// What is left of a patch, as JSON.
    fn left(patch: &Value, object: &Value, old: Option<&Value>) -> String {
        let rules = JsonPatchRules::kubemod();
        let patch = JsonPatch::parse(patch, rules).unwrap();
        let counters = Counters::new(&EvaluationLimits::default());
        let patch =
            without_repeats(patch, JsonPatchRules::kubemod(), object, old, &counters).unwrap();
        let paths = patch.operations().iter().map(|operation| operation.path.as_str());
        json::to_string(&Value::from_iter(paths))
    }

    #[test]
    fn what_the_request_brought_already_is_not_added_again() {
        let sidecar =
            value!([{"op": "add", "path": "/c/-1", "value": {"name": "s", "ports": [1]}}]);
        let bare = value!({"c": [{"name": "a"}]});
        let done = value!({"c": [{"name": "a"}, {"name": "s", "ports": [1], "policy": "Always"}]});
        let added = r#"["/c/-1"]"#;
        for (object, old, wanted) in [
            (&bare, None, added),
            (&done, None, "[]"),
            // An update of what has it already repeats it, as the rule says.
            (&done, Some(&done), added),
            (&done, Some(&bare), "[]"),
            (&value!({"c": [{"name": "s"}]}), None, added),
            (&value!({"c": [{"name": "s", "ports": [1, 2]}]}), None, added),
            (&value!({"c": {"name": "s", "ports": [1]}}), None, added),
            (&value!({}), None, added),
        ] {
            assert_eq!(left(&sidecar, object, old), wanted, "{object:?}");
        }
    }

    #[test]
    fn the_same_twice_stays_twice() {
        let twice = value!([
            {"op": "add", "path": "/l/-1/m/0", "value": 1},
            {"op": "add", "path": "/l/-1/m/0", "value": 1},
            {"op": "add", "path": "/x", "value": 1},
        ]);
        for (there, wanted) in [
            (value!([]), r#"["/l/-1/m/0","/l/-1/m/0","/x"]"#),
            (value!([1]), r#"["/l/-1/m/0","/x"]"#),
            (value!([1, 1]), r#"["/x"]"#),
        ] {
            let object = value!({"l": [{}, {"m": there}]});
            assert_eq!(left(&twice, &object, None), wanted);
        }
    }
}
