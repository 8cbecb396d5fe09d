//! What a real API server answered to patches.

use crate::common::{Case, Wanted, cases, check};
use kiln_patch::{JsonPatch, JsonPatchRules, MergeRules, StrategicRules};
use kiln_patch::{merge_patch, strategic_merge};
use kiln_schema::{KubernetesVersion, Schema};
use kiln_testkit::Tally;
use kiln_value::Value;

/// The server reads a patched object back: one without a kind is taken for what it was, one that
/// does not even have an apiVersion cannot be read.
fn decoded(case: &Case, mut patched: Value) -> Result<Value, String> {
    if patched.get("kind").is_none() {
        if patched.get("apiVersion").is_none() {
            return Err("neither kind nor apiVersion is left".to_owned());
        }
        let kind = case.object.get("kind").cloned();
        patched.set(["kind"], kind).map_err(|e| e.to_string())?;
    }
    Ok(patched)
}

#[test]
fn json_patches() {
    let Some(cases) = cases("apiserver/json-patch.json") else { return };
    let mut tally = Tally::new("API server, JSON patch");
    for case in &cases {
        let Some(wanted) = Wanted::of(case) else {
            tally.leave_out();
            continue;
        };
        tally.case(&case.name, || {
            check(&wanted, || {
                let patch = JsonPatch::parse(&case.patch()?, JsonPatchRules::kubernetes());
                let mut object = case.object.clone();
                patch.and_then(|patch| patch.apply(&mut object)).map_err(|e| e.to_string())?;
                decoded(case, object)
            })
        });
    }
    tally.finish();
}

#[test]
fn merge_patches() {
    let Some(cases) = cases("apiserver/merge-patch.json") else { return };
    let mut tally = Tally::new("API server, merge patch");
    for case in &cases {
        let Some(wanted) = Wanted::of(case) else {
            tally.leave_out();
            continue;
        };
        tally.case(&case.name, || {
            check(&wanted, || {
                let patch = case.patch()?;
                // The server reads a patch into a map before it merges.
                if !matches!(patch, Value::Map(_)) {
                    return Err(format!("the patch is a {}", patch.type_name()));
                }
                let mut object = case.object.clone();
                merge_patch(&mut object, &patch, MergeRules::kubernetes());
                decoded(case, object)
            })
        });
    }
    tally.finish();
}

#[test]
fn strategic_merges() {
    let Some(cases) = cases("apiserver/strategic-merge.json") else { return };
    let schema = Schema::builtin(KubernetesVersion::V1_36);
    let mut tally = Tally::new("API server, strategic merge");
    for case in &cases {
        let Some(wanted) = Wanted::of(case) else {
            tally.leave_out();
            continue;
        };
        tally.case(&case.name, || {
            check(&wanted, || {
                let mut object = case.object.clone();
                let rules = StrategicRules::kubernetes();
                let merged = strategic_merge(&mut object, &case.patch()?, &schema, &rules);
                let _kept = merged.map_err(|e| e.to_string())?;
                decoded(case, object)
            })
        });
    }
    tally.finish();
}
