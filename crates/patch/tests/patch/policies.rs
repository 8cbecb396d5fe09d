//! JSON patches and strategic merges as KubeMod and Kyverno were seen to do them.

use kiln_patch::{JsonPatch, JsonPatchRules, StrategicRules, diff, strategic_merge};
use kiln_schema::{KubernetesVersion, Schema};
use kiln_testkit::{Tally, corpus, corpus_json};
use kiln_value::{Value, json, value};

fn apply(object: &Value, patch: &Value, rules: JsonPatchRules) -> Result<Value, String> {
    let mut object = object.clone();
    let patch = JsonPatch::parse(patch, rules);
    patch.and_then(|patch| patch.apply(&mut object)).map_err(|e| e.to_string())?;
    Ok(object)
}

fn compare(wanted: Option<&Value>, got: Result<Value, String>) -> Result<(), String> {
    match (wanted, got) {
        (None, Err(_)) => Ok(()),
        (None, Ok(got)) => Err(format!("not refused: {}", json::to_string(&got))),
        (Some(_), Err(problem)) => Err(format!("refused: {problem}")),
        (Some(wanted), Ok(got)) if *wanted == got => Ok(()),
        (Some(wanted), Ok(got)) => Err(format!(
            "\nwanted {}\ngot    {}",
            json::to_canonical_string(wanted),
            json::to_canonical_string(&got)
        )),
    }
}

#[test]
fn json_patches_of_kubemod() {
    let Some(recorded) = corpus_json("kubemod/jsonpatch-cases.json") else { return };
    let document = recorded.get("document").unwrap();
    let mut tally = Tally::new("KubeMod, JSON patch");
    for case in recorded.get("cases").unwrap().as_list().unwrap() {
        let name = case.get("description").unwrap().as_str().unwrap();
        let patch = case.get("patch").unwrap();
        tally.case(name, || {
            let got = apply(document, patch, JsonPatchRules::kubemod());
            if case.get("differs").is_none() {
                return compare(case.get("object"), got);
            }
            // `-` below a missing parent makes a list, not a map with the key "-".
            let mut wanted = document.clone();
            let made = if name.ends_with("/k") { value!([{"k": 9}]) } else { value!([9]) };
            wanted.set(["m"], made).unwrap();
            compare(Some(&wanted), got)
        });
    }
    tally.finish();
}

#[test]
fn json_patches_of_kyverno() {
    let Some(recorded) = corpus_json("mutate/json-patch.json") else { return };
    let mut tally = Tally::new("Kyverno, JSON patch");
    for (index, case) in recorded.as_list().unwrap().iter().enumerate() {
        let patch = case.get("patches").unwrap();
        tally.case(&format!("{index} {}", json::to_string(patch)), || {
            let got = apply(case.get("resource").unwrap(), patch, JsonPatchRules::kyverno());
            compare(case.get("expected").filter(|_| case.get("error").is_none()), got)
        });
    }
    tally.finish();
}

/// Whether a patch has keys such as `(name)` or `+(name)`, which are worked off before the merge.
fn has_anchors(patch: &Value) -> bool {
    match patch {
        Value::Map(map) => map.iter().any(|(key, value)| {
            let inner = key.trim_start_matches(['+', '<', '=', '^', 'X']);
            (inner.starts_with('(') && inner.ends_with(')')) || has_anchors(value)
        }),
        Value::List(list) => list.iter().any(has_anchors),
        _ => false,
    }
}

/// The step that works off anchors also takes empty maps out of list elements.
fn without_empty_maps(patch: &Value, in_list: bool) -> Value {
    match patch {
        Value::Map(map) => {
            let kept = map.iter().filter(|(_, value)| {
                !(in_list && value.as_map().is_some_and(kiln_value::Map::is_empty))
            });
            let kept = kept.map(|(key, value)| (key.clone(), without_empty_maps(value, in_list)));
            Value::Map(kept.collect())
        }
        Value::List(list) => list.iter().map(|element| without_empty_maps(element, true)).collect(),
        scalar => scalar.clone(),
    }
}

#[test]
fn strategic_merges_of_kyverno() {
    let Some(recorded) = corpus_json("mutate/strategic-merge.json") else { return };
    let schema = Schema::builtin(KubernetesVersion::V1_21);
    let mut tally = Tally::new("Kyverno, strategic merge without anchors");
    for (index, case) in recorded.as_list().unwrap().iter().enumerate() {
        let patch = case.get("patch").unwrap();
        if has_anchors(patch) {
            tally.leave_out();
            continue;
        }
        tally.case(&format!("{index} {}", json::to_string(patch)), || {
            let mut object = case.get("resource").unwrap().clone();
            let patch = without_empty_maps(patch, false);
            let merged = strategic_merge(&mut object, &patch, &schema, &StrategicRules::kyverno());
            let got = merged.map(|_| object).map_err(|e| e.to_string());
            compare(case.get("expected").filter(|_| case.get("error").is_none()), got)
        });
    }
    tally.finish();
}

/// The operations of a patch as texts, sorted: the recorded differences are too.
fn operations(patch: &Value) -> Vec<String> {
    let list = patch.as_list().expect("a patch");
    let mut texts: Vec<String> = list.iter().map(json::to_canonical_string).collect();
    texts.sort();
    texts
}

#[test]
fn differences_are_those_that_were_recorded_or_shorter() {
    let Some(recorded) = corpus_json("mutate/json-patch.json") else { return };
    let Some(folders) = corpus("kubemod") else { return };
    let schema = Schema::builtin(KubernetesVersion::V1_36);
    let mut tally = Tally::new("differences");
    let mut compare = |name: &str, from: &Value, to: &Value, wanted: &Value| {
        tally.case(name, || {
            let patch = diff(from, to, &schema);
            let mut patched = from.clone();
            patch.apply(&mut patched).map_err(|e| e.to_string())?;
            if patched != *to {
                return Err("the difference does not lead there".to_owned());
            }
            let (got, wanted) = (operations(&patch.to_value()), operations(wanted));
            let length = |texts: &[String]| texts.iter().map(String::len).sum::<usize>();
            // An add where a null was is a replace for us; that is four letters more.
            if got.len() <= wanted.len() && length(&got) <= length(&wanted) + 4 {
                return Ok(());
            }
            Err(format!("\nwanted {wanted:#?}\ngot    {got:#?}"))
        });
    };
    for (index, case) in recorded.as_list().unwrap().iter().enumerate() {
        if let (Some(wanted), Some(to)) = (case.get("expectedDiff"), case.get("expected")) {
            compare(&format!("{index}"), case.get("resource").unwrap(), to, wanted);
        }
    }
    for folder in std::fs::read_dir(folders).unwrap() {
        let folder = folder.unwrap().path();
        let read = |file: &str| json::parse(&std::fs::read_to_string(folder.join(file)).ok()?).ok();
        let (Some(expected), Some(from)) = (read("expected.json"), read("resource.json")) else {
            continue;
        };
        if let (Some(wanted), Some(to)) = (expected.get("patch"), expected.get("object"))
            && wanted.as_list().is_some()
        {
            compare(&folder.display().to_string(), &from, to, wanted);
        }
    }
    tally.finish();
}
