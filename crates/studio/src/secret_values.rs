//! What Secrets hold is not shown, in whatever form objects are printed or drawn; that it changes is.

use kiln_object::ObjectId;
use kiln_object::metadata::LAST_APPLIED;
use kiln_value::Value;

/// The parts of a Secret that hold its values. kubectl keeps a copy of all in an annotation.
const PARTS: [&[&str]; 3] =
    [&["data"], &["stringData"], &["metadata", "annotations", LAST_APPLIED]];

/// Hides the values of a Secret as it is and as it would be; other objects stay as they are.
pub fn hide_secret_values(
    id: &ObjectId,
    mut before: Option<&mut Value>,
    mut after: Option<&mut Value>,
) {
    if id.gvk.kind != "Secret" || !id.gvk.group.is_empty() {
        return;
    }
    for path in PARTS {
        let part = |object: Option<&Value>| object?.get_path(path.iter().copied()).cloned();
        let (old, new) = (part(before.as_deref()), part(after.as_deref()));
        for (object, own, other, changed) in [
            (before.as_deref_mut(), &old, &new, "*** (as it is)"),
            (after.as_deref_mut(), &new, &old, "*** (as it would be)"),
        ] {
            if let Some((object, own)) = object.zip(own.as_ref()) {
                // It is there, or it would not have been found.
                let _ = object.set(path.iter().copied(), hidden(own, other.as_ref(), changed));
            }
        }
    }
}

/// A part of a Secret without its values: only whether they change is shown.
fn hidden(own: &Value, other: Option<&Value>, changed: &str) -> Value {
    let word = |own: &Value, other: Option<&Value>| match (own, other) {
        (Value::Null, _) => Value::Null,
        (own, Some(other)) if own == other => Value::from("***"),
        _ => Value::from(changed),
    };
    match own {
        Value::Map(values) => values
            .iter()
            .map(|(key, value)| (key.clone(), word(value, other.and_then(|other| other.get(key)))))
            .collect::<kiln_value::Map>()
            .into(),
        _ => word(own, other),
    }
}

#[cfg(test)]
mod tests {
    use kiln_object::Gvk;
    use kiln_value::{json, value};

    use super::*;

    #[test]
    fn only_whether_values_change_is_left() {
        let last = "kubectl.kubernetes.io/last-applied-configuration";
        let secret = |text: &str| {
            value!({
                "kind": "Secret",
                "metadata": {"name": "s", "annotations": {last: format!("{{\"was\": \"{text}\"}}"), "a": "b"}},
                "data": {"same": "hush-0", "other": format!("hush-{text}")},
                "stringData": {"new": format!("hush-{text}")},
            })
        };
        let (old, new) = (secret("1"), secret("2"));
        let id = |kind: &str| ObjectId::new(Gvk::new("v1", kind), "shop", "s");
        let (mut before, mut after) = (old.clone(), new.clone());
        hide_secret_values(&id("Secret"), Some(&mut before), Some(&mut after));
        for (shown, changed) in [(&before, "*** (as it is)"), (&after, "*** (as it would be)")] {
            assert!(!json::to_string(shown).contains("hush"), "{shown:?}");
            assert_eq!(shown.get("data"), Some(&value!({"same": "***", "other": changed})));
            assert_eq!(shown.get("stringData"), Some(&value!({"new": changed})));
            let annotations = value!({last: changed, "a": "b"});
            assert_eq!(shown.get_path(["metadata", "annotations"]), Some(&annotations));
        }
        for (mut one, is_new) in [(old.clone(), false), (new, true)] {
            let (before, after) =
                if is_new { (None, Some(&mut one)) } else { (Some(&mut one), None) };
            hide_secret_values(&id("Secret"), before, after);
            assert!(!json::to_string(&one).contains("hush"), "{one:?}");
        }
        // What no server would store is hidden as well.
        let mut odd = value!({"data": ["hush"], "stringData": {"deep": {"er": "hush"}}});
        hide_secret_values(&id("Secret"), None, Some(&mut odd));
        assert!(!json::to_string(&odd).contains("hush"), "{odd:?}");
        let mut other = old.clone();
        hide_secret_values(&id("ConfigMap"), Some(&mut other), None);
        assert_eq!(other, old);
    }
}
