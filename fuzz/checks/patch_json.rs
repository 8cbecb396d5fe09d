//! JSON patches and merge patches in every dialect, and differences: first line the object, the rest
//! the patch.

use kiln_patch::{JsonPatch, JsonPatchRules, MergeRules, diff, merge_patch};
use kiln_schema::Schema;
use kiln_value::json;

pub(crate) fn check(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    let (object, patch) = text.split_once('\n').unwrap_or((text, "[]"));
    let (Ok(object), Ok(patch)) = (json::parse(object), json::parse(patch)) else { return };
    for rules in [
        JsonPatchRules::rfc6902(),
        JsonPatchRules::kubernetes(),
        JsonPatchRules::kustomize(),
        JsonPatchRules::kyverno(),
        JsonPatchRules::kubemod(),
    ] {
        let mut patched = object.clone();
        match JsonPatch::parse(&patch, rules).and_then(|patch| patch.apply(&mut patched)) {
            Ok(()) => drop(json::to_string(&patched)),
            Err(error) => {
                assert!(!error.to_string().is_empty());
                assert!(patched.same(&object), "a refused patch must change nothing");
            }
        }
    }
    for rules in [MergeRules::rfc7396(), MergeRules::kubernetes()] {
        let mut patched = object.clone();
        merge_patch(&mut patched, &patch, rules);
        let mut again = object.clone();
        diff(&object, &patched, &Schema::empty()).apply(&mut again).expect("a difference applies");
        assert_eq!(again, patched);
    }
}
