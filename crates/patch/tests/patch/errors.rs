//! What users read when a patch is refused: the operation, the place and what was there.

use kiln_patch::{JsonPatch, JsonPatchRules, StrategicRules, strategic_merge};
use kiln_schema::{KubernetesVersion, Schema};
use kiln_value::{Value, value};

fn json_error(rules: JsonPatchRules, object: &Value, patch: &Value) -> String {
    let mut patched = object.clone();
    let outcome = JsonPatch::parse(patch, rules).and_then(|patch| patch.apply(&mut patched));
    assert!(patched.same(object), "a refused patch must change nothing: {patch:?}");
    outcome.expect_err(&format!("{patch:?} must be refused")).to_string()
}

fn dialects() -> [(&'static str, JsonPatchRules); 5] {
    [
        ("rfc6902", JsonPatchRules::rfc6902()),
        ("kubernetes", JsonPatchRules::kubernetes()),
        ("kustomize", JsonPatchRules::kustomize()),
        ("kyverno", JsonPatchRules::kyverno()),
        ("kubemod", JsonPatchRules::kubemod()),
    ]
}

#[test]
fn failing_operations_say_what_was_there_in_every_dialect() {
    let object = value!({"spec": {"replicas": 1, "list": ["a", "b"], "none": null}});
    for (operation, wanted) in [
        (
            value!({"op": "add", "path": "/spec/replicas/x", "value": 1}),
            "operation 2 of 2 (add \"/spec/replicas/x\"): /spec/replicas has no members: it is a number",
        ),
        (
            value!({"op": "add", "path": "/spec/list/7", "value": 1}),
            "operation 2 of 2 (add \"/spec/list/7\"): /spec/list has no element 7: it has 2 elements",
        ),
        (
            value!({"op": "add", "path": "/spec/list/x", "value": 1}),
            "operation 2 of 2 (add \"/spec/list/x\"): /spec/list is a list, and \"x\" is not an index",
        ),
        (
            value!({"op": "replace", "path": "/spec/list/2", "value": 1}),
            "operation 2 of 2 (replace \"/spec/list/2\"): /spec/list has no element 2: it has 2 elements",
        ),
        (
            value!({"op": "replace", "path": "/status/phase", "value": 1}),
            "operation 2 of 2 (replace \"/status/phase\"): the document has no \"status\"; it has spec",
        ),
        (
            value!({"op": "move", "from": "/spec/gone", "path": "/spec/x"}),
            "operation 2 of 2 (move \"/spec/x\"): /spec has no \"gone\"; it has replicas, list, none",
        ),
        (
            value!({"op": "copy", "from": "/spec/none/x", "path": "/spec/x"}),
            "operation 2 of 2 (copy \"/spec/x\"): /spec/none has no members: it is a null",
        ),
        (
            value!({"op": "test", "path": "/spec/replicas", "value": 2}),
            "operation 2 of 2 (test \"/spec/replicas\"): the test wants 2, found 1",
        ),
        (
            value!({"op": "replace", "path": "/spec/", "value": 1}),
            "operation 2 of 2 (replace \"/spec/\"): /spec has no \"\"; it has replicas, list, none",
        ),
        (
            value!({"op": "swap", "path": "/spec"}),
            "operation 2 of 2 (swap \"/spec\"): unknown op \"swap\"; it must be add, remove, replace, move, copy or test",
        ),
        (value!({"path": "/spec"}), "operation 2 of 2 (\"/spec\"): the operation needs \"op\""),
        (value!({"op": "add"}), "operation 2 of 2 (\"add\"): the operation needs"),
        (
            value!({"op": "copy", "path": "/x"}),
            "operation 2 of 2 (copy \"/x\"): the operation needs \"from\"",
        ),
        (
            value!({"op": "remove", "path": 5}),
            "operation 2 of 2 (\"remove\"): \"path\" must be a string, found number",
        ),
        (
            value!({"op": "remove", "path": "spec"}),
            "operation 2 of 2 (remove \"spec\"): the pointer \"spec\" must be empty or begin with \"/\"",
        ),
        (value!("add"), "operation 2 of 2: an operation must be a map, found string"),
    ] {
        let patch: Value =
            [value!({"op": "test", "path": "/spec/replicas", "value": 1}), operation]
                .into_iter()
                .collect();
        for (name, rules) in dialects() {
            let path = patch.index(1).and_then(|operation| operation.get("path"));
            if path == Some(&value!("/spec/")) && rules.replace_adds_missing_members {
                continue;
            }
            let error = json_error(rules, &object, &patch);
            assert!(error.starts_with(wanted), "{name}: {error}\nwanted {wanted}");
        }
    }
    for (name, rules) in dialects() {
        let error = json_error(rules, &object, &value!({"op": "add"}));
        assert_eq!(error, "a JSON patch must be a list of operations, found map", "{name}");
    }
}

#[test]
fn removals_of_what_is_missing_fail_unless_the_dialect_ignores_them() {
    let object = value!({"a": {"b": 1}, "l": []});
    for (path, wanted) in [
        ("/a/x", "operation 1 of 1 (remove \"/a/x\"): /a has no \"x\"; it has b"),
        ("/a/b/c", "operation 1 of 1 (remove \"/a/b/c\"): /a/b has no members: it is a number"),
        ("/l/0", "operation 1 of 1 (remove \"/l/0\"): /l has no element 0: it has 0 elements"),
    ] {
        let patch = value!([{"op": "remove", "path": path}]);
        for (name, rules) in dialects() {
            if rules.ignore_missing_removals {
                let mut patched = object.clone();
                JsonPatch::parse(&patch, rules).unwrap().apply(&mut patched).unwrap();
                assert_eq!(patched, object, "{name}");
            } else {
                assert_eq!(json_error(rules, &object, &patch), wanted, "{name}");
            }
        }
    }
}

#[test]
fn the_standard_is_strict_where_others_are_not() {
    let object = value!({"l": [1, 2], "o": {"n": 1}});
    for (patch, wanted) in [
        (
            value!([{"op": "add", "path": "/l/-1", "value": 1}]),
            "operation 1 of 1 (add \"/l/-1\"): /l is a list, and \"-1\" is not an index",
        ),
        (
            value!([{"op": "add", "path": "/l/01", "value": 1}]),
            "operation 1 of 1 (add \"/l/01\"): /l is a list, and \"01\" is not an index",
        ),
        (
            value!([{"op": "add", "path": "/o/~x", "value": 1}]),
            "operation 1 of 1 (add \"/o/~x\"): the pointer \"/o/~x\" has a \"~\" that is neither \"~0\" nor \"~1\"",
        ),
        (
            value!([{"op": "move", "from": "/l/0", "path": "/l/0/x"}]),
            "operation 1 of 1 (move \"/l/0/x\"): a value cannot move to a place below itself",
        ),
        (
            value!([{"op": "test", "path": "/o/x", "value": null}]),
            "operation 1 of 1 (test \"/o/x\"): /o has no \"x\"; it has n",
        ),
        (
            value!([{"op": "add", "path": "/o/x"}]),
            "operation 1 of 1 (add \"/o/x\"): the operation needs \"value\"",
        ),
    ] {
        assert_eq!(json_error(JsonPatchRules::rfc6902(), &object, &patch), wanted);
    }
    let mut patched = object;
    let patch = value!([
        {"op": "test", "path": "/o/n", "value": 1.0},
        {"op": "copy", "from": "", "path": "/o/all"},
        {"op": "replace", "path": "", "value": 5},
    ]);
    JsonPatch::parse(&patch, JsonPatchRules::rfc6902()).unwrap().apply(&mut patched).unwrap();
    assert_eq!(patched, value!(5));
}

#[test]
fn limits_are_named() {
    let add = |path: String| value!([{"op": "add", "path": path, "value": 1}]);
    let object = value!({"a": {"text": "x".repeat(1000)}});
    for rules in [JsonPatchRules::kyverno(), JsonPatchRules::kubemod()] {
        assert_eq!(
            json_error(rules, &object, &add("/new/10001".to_owned())),
            "operation 1 of 1 (add \"/new/10001\"): the patch would fill short lists with more than 10000 nulls"
        );
        let error = json_error(rules, &object, &add("/x".repeat(100_000)));
        assert!(error.ends_with("the result would nest deeper than 500 levels"), "{}", error.len());
        let error = json_error(rules, &object, &add(format!("/new/{}/x", i64::MAX)));
        assert!(error.contains("with more than 10000 nulls"), "{error}");
    }
    let doubling: Value =
        (0..40).map(|_| value!({"op": "copy", "from": "/a", "path": "/a/a"})).collect();
    let piling: Value =
        (0..40).map(|i| value!({"op": "copy", "from": "/a", "path": format!("/a/{i}")})).collect();
    for (name, rules) in dialects() {
        let error = json_error(rules, &object, &piling);
        let wanted = format!("would add more than {} bytes", rules.max_copied_bytes);
        assert!(error.ends_with(&wanted), "{name}: {error}");
        let mut patched = object.clone();
        JsonPatch::parse(&doubling, rules).unwrap().apply(&mut patched).unwrap();
    }
    let many: Value = (0..10_001).map(|_| value!({"op": "test", "path": ""})).collect();
    assert_eq!(
        json_error(JsonPatchRules::kubernetes(), &object, &many),
        "the patch has 10001 operations, at most 10000 are allowed"
    );
}

#[test]
fn copies_and_moves_cannot_nest_without_end() {
    for rules in [JsonPatchRules::rfc6902(), JsonPatchRules::kustomize()] {
        let mut deep = value!({});
        for _ in 0..498 {
            let mut outer = value!({});
            outer.set(["a"], deep).unwrap();
            deep = outer;
        }
        let object: Value =
            [("x", deep), ("y", value!({"z": {}}))].into_iter().collect::<kiln_value::Map>().into();
        for op in ["move", "copy"] {
            let patch = value!([{"op": op, "from": "/x", "path": "/y/z/x"}]);
            let error = json_error(rules, &object, &patch);
            assert!(error.ends_with("would nest deeper than 500 levels"), "{error}");
        }
    }
}

fn merge_error(rules: StrategicRules, object: &Value, patch: &Value) -> String {
    let version =
        if rules.server_directives { KubernetesVersion::V1_36 } else { KubernetesVersion::V1_21 };
    let mut patched = object.clone();
    let outcome = strategic_merge(&mut patched, patch, &Schema::builtin(version), &rules);
    assert!(patched.same(object), "a refused patch must change nothing: {patch:?}");
    outcome.expect_err(&format!("{patch:?} must be refused")).to_string()
}

#[test]
fn refused_merges_say_where_and_why() {
    let pod = value!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "labels": {"a": "b"}},
        "spec": {"containers": [{"name": "a", "env": [{"name": "X"}]}], "dnsPolicy": "Default"}});
    let (kustomize, server) = (StrategicRules::kustomize(), StrategicRules::kubernetes());
    for (rules, patch, wanted) in [
        (
            kustomize,
            value!({"metadata": {"labels": []}}),
            "cannot merge the patch at metadata.labels: the object has a map, the patch a list",
        ),
        (
            kustomize,
            value!({"spec": {"containers": [{"name": "a", "env": {"X": 1}}]}}),
            "cannot merge the patch at spec.containers[0].env: the object has a list, the patch a map",
        ),
        (
            kustomize,
            value!({"spec": {"$patch": "remove"}}),
            "cannot merge the patch at spec: unknown \"$patch\": \"remove\"; it must be replace or delete",
        ),
        (kustomize, value!([]), "cannot merge the patch: a patch must be a map, found list"),
        (
            server,
            value!({"spec": {"containers": [{"image": "x"}]}}),
            "cannot merge the patch at spec.containers: element 0 has no \"name\", which identifies the elements of this list",
        ),
        (
            server,
            value!({"spec": {"containers": [{"name": "a", "env": [{"name": "X", "$patch": "merge"}]}]}}),
            "cannot merge the patch at spec.containers[0].env: \"$patch\": merge is not possible here; leave it out, merging is the rule",
        ),
        (
            server,
            value!({"spec": {"containers": [{"name": {}}]}}),
            "cannot merge the patch at spec.containers: \"name\" identifies the elements of this list and must be a scalar",
        ),
        (
            server,
            value!({"spec": {"containers": ["a"]}}),
            "cannot merge the patch at spec.containers: the elements of this list must all be of one kind, and none of them null",
        ),
        (
            server,
            value!({"spec": {"$retainKeys": ["x"], "hostname": "h"}}),
            "cannot merge the patch at spec: the patch sets \"hostname\", which its $retainKeys does not name",
        ),
        (
            server,
            value!({"spec": {"$setElementOrder": []}}),
            "cannot merge the patch at spec: \"$setElementOrder\" must be followed by \"/\" and the name of a field",
        ),
        (
            server,
            value!({"spec": {"$setElementOrder/containers": [{"name": "b"}], "containers": [{"name": "a"}]}}),
            "cannot merge the patch at spec.containers: the patch has other elements than its $setElementOrder, or another order",
        ),
    ] {
        assert_eq!(merge_error(rules, &pod, &patch), wanted);
    }
    let custom = value!({"apiVersion": "example.com/v1", "kind": "Thing"});
    assert_eq!(
        merge_error(server, &custom, &value!({"spec": {}})),
        "cannot merge the patch: the merge keys of example.com/v1 Thing are unknown; use a merge patch instead"
    );
}
