//! A small patch on a large object costs what the patch costs.

use kiln_patch::{JsonPatch, JsonPatchRules, MergeRules, StrategicRules};
use kiln_patch::{diff, merge_patch, strategic_merge};
use kiln_schema::{KubernetesVersion, Schema};
use kiln_value::{MAX_DEPTH, Map, Value, json, value};

/// How many entries of lists and maps had to be copied to get from one value to the other: those of
/// every container that is not shared.
fn copied(before: &Value, after: &Value) -> usize {
    if after.same(before) {
        return 0;
    }
    match (before, after) {
        (Value::Map(old), Value::Map(new)) => {
            let inner = new.iter().map(|(key, new)| old.get(key).map_or(1, |old| copied(old, new)));
            1 + new.len() + inner.sum::<usize>()
        }
        (Value::List(old), Value::List(new)) => {
            1 + new.len() + old.iter().zip(new).map(|(old, new)| copied(old, new)).sum::<usize>()
        }
        _ => 1,
    }
}

/// A deployment of a megabyte: 50 containers with 5 variables each, and 40 annotations.
fn large() -> Value {
    let container = |i: usize| {
        let env: Value = (0..5)
            .map(|j| value!({"name": format!("VARIABLE_{j}"), "value": "v".repeat(3600)}))
            .collect();
        value!({"name": format!("container-{i}"), "image": "nginx:1", "env": env})
    };
    let annotations: Map =
        (0..40).map(|i| (format!("example.com/note-{i}"), "n".repeat(3000))).collect();
    let containers: Value = (0..50).map(container).collect();
    value!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "large", "annotations": annotations},
        "spec": {"replicas": 1, "template": {"spec": {"containers": containers}}},
    })
}

type Patching = (&'static str, Box<dyn Fn(&mut Value, usize)>);

/// Every kind of patch, each changing one image.
fn patchings() -> Vec<Patching> {
    let strategic = |version, rules: StrategicRules| {
        let schema = Schema::builtin(version);
        Box::new(move |object: &mut Value, i: usize| {
            let patch = value!({"spec": {"template": {"spec": {"containers": [
                {"name": "container-7", "image": format!("nginx:{i}")}]}}}});
            let _kept = strategic_merge(object, &patch, &schema, &rules).unwrap();
        }) as Box<dyn Fn(&mut Value, usize)>
    };
    vec![
        (
            "JSON patch",
            Box::new(|object, i| {
                let path = "/spec/template/spec/containers/7/image";
                let patch =
                    value!([{"op": "replace", "path": path, "value": format!("nginx:{i}")}]);
                let patch = JsonPatch::parse(&patch, JsonPatchRules::kyverno()).unwrap();
                patch.apply(object).unwrap();
            }),
        ),
        (
            "merge patch",
            Box::new(|object, i| {
                let patch = value!({"metadata": {"annotations": {"example.com/note-7": i}}});
                merge_patch(object, &patch, MergeRules::kubernetes());
            }),
        ),
        ("kustomize", strategic(KubernetesVersion::V1_21, StrategicRules::kustomize())),
        ("Kyverno", strategic(KubernetesVersion::V1_21, StrategicRules::kyverno())),
        ("API server", strategic(KubernetesVersion::V1_36, StrategicRules::kubernetes())),
    ]
}

#[test]
fn a_small_patch_shares_the_large_object() {
    let object = large();
    assert!(json::to_string(&object).len() > 1_000_000);
    for (name, patch) in patchings() {
        let mut patched = object.clone();
        patch(&mut patched, 5);
        assert_ne!(patched, object, "{name}");
        let cost = copied(&object, &patched);
        // Lists may be reordered, and then every element counts as another one; so look at those
        // of the element itself and its way there only.
        assert!(patched.get_path(["spec", "replicas"]).is_some());
        let shared = |path: &[&str]| {
            let at = |value: &Value| value.get_path(path.iter().copied()).unwrap().clone();
            at(&patched).same(&at(&object))
        };
        if name == "merge patch" {
            assert!(shared(&["spec"]), "{name}");
            assert!(cost < 60, "{name} copied {cost} entries");
        } else {
            assert!(shared(&["metadata"]), "{name}");
            let list = |value: &Value| {
                let list = value.get_path(["spec", "template", "spec", "containers"]).unwrap();
                list.as_list().unwrap().to_vec()
            };
            let (before, after) = (list(&object), list(&patched));
            let kept = after.iter().filter(|new| before.iter().any(|old| old.same(new))).count();
            assert_eq!(kept, 49, "{name} copied untouched containers");
            let changed = after.iter().find(|new| new.str_at(["name"]) == Some("container-7"));
            assert!(
                changed.unwrap().get("env").unwrap().same(before[7].get("env").unwrap()),
                "{name}"
            );
        }
    }
}

#[test]
fn ten_thousand_patches_cost_ten_thousand_times_one() {
    for (name, patch) in patchings() {
        let mut object = large();
        let mut total = 0;
        for i in 0..10_000 {
            let before = object.clone();
            patch(&mut object, i + 2);
            // After the first patch the element has its place.
            if i > 0 {
                total += copied(&before, &object);
            }
        }
        // The spine: object, spec, template, spec, the list, the container; or the annotations.
        assert!(total <= 10_000 * 80, "{name} copied {total} entries");
    }
}

#[test]
fn patches_without_effect_copy_nothing() {
    let object = large();
    let schema = Schema::builtin(KubernetesVersion::V1_36);
    let mut patched = object.clone();
    merge_patch(&mut patched, &value!({"metadata": {}, "none": null}), MergeRules::rfc7396());
    assert!(patched.get("metadata").unwrap().same(object.get("metadata").unwrap()));
    assert!(diff(&object, &large(), &schema).is_empty());
    for rules in [StrategicRules::kustomize(), StrategicRules::kubernetes()] {
        let mut patched = object.clone();
        let _kept = strategic_merge(&mut patched, &value!({}), &schema, &rules).unwrap();
        assert_eq!(copied(&object, &patched), 0);
    }
}

fn nested(depth: usize, innermost: &str) -> Value {
    let text = r#"{"a":"#.repeat(depth) + innermost + &"}".repeat(depth);
    json::parse(&text).unwrap()
}

#[test]
fn the_deepest_values_fit_the_stack() {
    let (old, new) = (nested(MAX_DEPTH - 1, "1"), nested(MAX_DEPTH - 1, r#"{"b":null,"c":2}"#));
    merge_patch(&mut old.clone(), &new, MergeRules::kubernetes());
    let patch = diff(&old, &new, &Schema::empty());
    let mut patched = old.clone();
    patch.apply(&mut patched).unwrap();
    assert_eq!(patched, new);
    let wrap = |inner: &Value| {
        let mut object = value!({"apiVersion": "v1", "kind": "Pod"});
        object.set(["a"], inner.get("a").unwrap().clone()).unwrap();
        object
    };
    let schema = Schema::builtin(KubernetesVersion::V1_36);
    for rules in
        [StrategicRules::kustomize(), StrategicRules::kyverno(), StrategicRules::kubernetes()]
    {
        let mut object = wrap(&old);
        let _ = strategic_merge(&mut object, &wrap(&old), &schema, &rules);
        let mut object = value!({"apiVersion": "v1", "kind": "Pod"});
        let _kept = strategic_merge(&mut object, &wrap(&new), &schema, &rules).unwrap();
    }
}

#[test]
fn large_lists_merge_in_one_pass() {
    let list = |count: usize, step: usize| -> Value {
        (0..count).map(|i| value!({"name": format!("n{}", i * step), "image": i})).collect()
    };
    let pod = |containers: Value| value!({"apiVersion": "v1", "kind": "Pod", "spec": {"containers": containers}});
    for (version, rules) in [
        (KubernetesVersion::V1_21, StrategicRules::kustomize()),
        (KubernetesVersion::V1_36, StrategicRules::kubernetes()),
    ] {
        let schema = Schema::builtin(version);
        let mut object = pod(list(20_000, 1));
        let _kept = strategic_merge(&mut object, &pod(list(20_000, 2)), &schema, &rules).unwrap();
        let merged = object.get_path(["spec", "containers"]).unwrap().as_list().unwrap().len();
        assert_eq!(merged, 30_000);
    }
    // Without unique keys the work grows by the square, so there is a limit.
    let twins: Value = (0..5_000).map(|_| value!({"name": "same"})).collect();
    let mut object = pod(twins);
    let schema = Schema::builtin(KubernetesVersion::V1_21);
    let error =
        strategic_merge(&mut object, &value!({"x": 1}), &schema, &StrategicRules::kustomize());
    assert_eq!(
        error.unwrap_err().to_string(),
        "cannot merge the patch at spec.containers: elements without their keys, or with the same ones, are among more than 1000"
    );
    let (from, to) = (list(20_000, 2), list(20_000, 3));
    let patch = diff(&from, &to, &Schema::empty());
    let mut patched = from;
    patch.apply(&mut patched).unwrap();
    assert_eq!(patched, to);
}
