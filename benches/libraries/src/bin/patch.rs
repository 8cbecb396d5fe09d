//! Patches. Callers that patch usually still need the object as it was, so each run keeps it: for Kiln that is a
//! pointer copy, for others a copy of the object.

use std::sync::LazyLock;

use kiln_bench_libraries::{Contest, KILN, Outcome, main as run, often, once};
use kiln_patch::{JsonPatch, JsonPatchRules, MergeRules, StrategicRules, merge_patch, strategic_merge};
use kiln_schema::{Schema, KubernetesVersion};
use kiln_value::{Value, json};

const MANY: &str = "10,000 JSON patches, each on a Deployment of its own";
const LARGE: &str = "one JSON patch on an object of 1 MB";
const LARGE_MERGE: &str = "one merge patch on an object of 1 MB";
const MANY_STRATEGIC: &str = "10,000 strategic merges, each on a Deployment of its own";
const LARGE_STRATEGIC: &str = "one strategic merge on a Deployment of 1 MB";
const SMALL_STRATEGIC: &str = "one strategic merge on a Deployment of 1 kB";
const PEER: &str = "4.2";

const PATCH: &str = r#"[{"op":"replace","path":"/spec/replicas","value":5},
    {"op":"add","path":"/spec/template/spec/containers/0/env/-","value":{"name":"C","value":"3"}},
    {"op":"remove","path":"/metadata/labels/tier"}]"#;
const MERGE: &str = r#"{"spec":{"replicas":5},"metadata":{"labels":{"tier":null}}}"#;
const STRATEGIC: &str = r#"{"spec":{"template":{"spec":{"containers":[
    {"name":"main","image":"example.com/web:2","env":[{"name":"B","value":"9"}]}]}}}}"#;

/// A Deployment, with annotations that make it as large as wanted.
fn deployment(notes: usize) -> String {
    let annotations: serde_json::Map<_, _> =
        (0..notes).map(|i| (format!("example.com/note-{i}"), "x".repeat(60).into())).collect();
    serde_json::json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "web", "labels": {"app": "web", "tier": "front"}, "annotations": annotations},
        "spec": {"replicas": 1, "template": {"spec": {"containers": [
            {"name": "main", "image": "example.com/web:1", "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]},
            {"name": "proxy", "image": "example.com/proxy:1"}]}}},
    })
    .to_string()
}

const NOTES_OF_A_MEGABYTE: usize = 11_500;

fn main() {
    let contest = |workload, who, version, run| Contest {
        workload,
        who,
        version,
        peak: false,
        instructions: false,
        run,
    };
    run(&[
        contest(MANY, "kiln", KILN, || {
            let patch = json_patch();
            let objects = vec![json::parse(&deployment(0)).unwrap(); 10_000];
            once(|| objects.iter().map(|object| patched(&patch, object)).collect::<Vec<_>>())
        }),
        contest(MANY, "json-patch", PEER, || {
            let patch = peer_patch();
            let object: serde_json::Value = serde_json::from_str(&deployment(0)).unwrap();
            let objects = vec![object; 10_000];
            once(|| objects.iter().map(|object| peer_patched(&patch, object)).collect::<Vec<_>>())
        }),
        contest(LARGE, "kiln", KILN, || {
            let patch = json_patch();
            let object = json::parse(&deployment(NOTES_OF_A_MEGABYTE)).unwrap();
            often(|| patched(&patch, &object)).check(json::to_canonical_string(&patched(&patch, &object)).len())
        }),
        contest(LARGE, "json-patch", PEER, || {
            let patch = peer_patch();
            let object: serde_json::Value = serde_json::from_str(&deployment(NOTES_OF_A_MEGABYTE)).unwrap();
            often(|| peer_patched(&patch, &object)).check(peer_patched(&patch, &object).to_string().len())
        }),
        contest(LARGE_MERGE, "kiln", KILN, || {
            let patch = json::parse(MERGE).unwrap();
            let object = json::parse(&deployment(NOTES_OF_A_MEGABYTE)).unwrap();
            often(|| {
                let mut object = object.clone();
                merge_patch(&mut object, &patch, MergeRules::rfc7396());
                object
            })
        }),
        contest(LARGE_MERGE, "json-patch", PEER, || {
            let patch: serde_json::Value = serde_json::from_str(MERGE).unwrap();
            let object: serde_json::Value = serde_json::from_str(&deployment(NOTES_OF_A_MEGABYTE)).unwrap();
            often(|| {
                let mut object = object.clone();
                json_patch::merge(&mut object, &patch);
                object
            })
        }),
        contest(MANY_STRATEGIC, "kiln", KILN, || {
            let patch = json::parse(STRATEGIC).unwrap();
            let objects = vec![json::parse(&deployment(0)).unwrap(); 10_000];
            once(|| objects.iter().map(|object| merged(&patch, object)).collect::<Vec<_>>())
        }),
        contest(SMALL_STRATEGIC, "kiln", KILN, || strategic_on(0)),
        contest(LARGE_STRATEGIC, "kiln", KILN, || strategic_on(NOTES_OF_A_MEGABYTE)),
    ]);
}

fn json_patch() -> JsonPatch {
    JsonPatch::parse(&json::parse(PATCH).unwrap(), JsonPatchRules::rfc6902()).unwrap()
}

fn patched(patch: &JsonPatch, object: &Value) -> Value {
    let mut object = object.clone();
    patch.apply(&mut object).unwrap();
    object
}

fn peer_patch() -> json_patch::Patch {
    serde_json::from_str(PATCH).unwrap()
}

fn peer_patched(patch: &json_patch::Patch, object: &serde_json::Value) -> serde_json::Value {
    let mut object = object.clone();
    json_patch::patch(&mut object, patch).unwrap();
    object
}

fn strategic_on(notes: usize) -> Outcome {
    let patch = json::parse(STRATEGIC).unwrap();
    let object = json::parse(&deployment(notes)).unwrap();
    often(|| merged(&patch, &object))
}

static SCHEMA: LazyLock<Schema> = LazyLock::new(|| Schema::builtin(KubernetesVersion::V1_36));

fn merged(patch: &Value, object: &Value) -> Value {
    let mut object = object.clone();
    let _ = strategic_merge(&mut object, patch, &SCHEMA, &StrategicRules::kubernetes()).unwrap();
    object
}
