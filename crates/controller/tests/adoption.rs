//! What another engine made: it is taken over with its UID, and written only where it is not as its rule wants it.

mod support;

use kiln_value::{Value, value};
use support::{World, id, namespace};

const POLICY: &str = r#"
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: settings}
spec:
  rules:
  - name: make
    match: {any: [{resources: {kinds: [Namespace], names: ["team-*"]}}]}
    generate:
      synchronize: true
      apiVersion: v1
      kind: ConfigMap
      name: settings
      namespace: "{{request.object.metadata.name}}"
      data: {data: {mode: quiet}}
"#;

/// A cluster in which another engine made ConfigMaps of Namespaces.
fn world() -> World {
    let mut world = World::new();
    world.apply(POLICY);
    for (name, mode) in [("team-a", "quiet"), ("team-b", "loud")] {
        let trigger = world.put(namespace(name, value!({})));
        let uid = trigger.str_at(["metadata", "uid"]).unwrap().to_owned();
        world.put(made(name, &uid, mode));
    }
    world
}

fn made(namespace: &str, uid: &str, mode: &str) -> Value {
    value!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {
            "name": "settings", "namespace": namespace,
            "labels": {
                "app.kubernetes.io/managed-by": "kyverno",
                "generate.kyverno.io/policy-name": "settings",
                "generate.kyverno.io/policy-namespace": "",
                "generate.kyverno.io/rule-name": "make",
                "generate.kyverno.io/trigger-group": "",
                "generate.kyverno.io/trigger-version": "v1",
                "generate.kyverno.io/trigger-kind": "Namespace",
                "generate.kyverno.io/trigger-namespace": "",
                "generate.kyverno.io/trigger-uid": uid,
            },
        },
        "data": {"mode": mode},
    })
}

#[test]
fn what_is_as_its_rule_wants_it_is_not_written() {
    let mut world = world();
    let (kept, changed) =
        (id("ConfigMap", "team-a", "settings"), id("ConfigMap", "team-b", "settings"));
    let before = world.get(&kept).unwrap();
    let uid =
        |object: Option<Value>| object.unwrap().str_at(["metadata", "uid"]).unwrap().to_owned();
    let changed_uid = uid(world.get(&changed));
    world.seconds(3);
    assert_eq!(world.get(&kept).unwrap(), before, "{}", world.explain());
    let after = world.get(&changed);
    assert_eq!(after.as_ref().unwrap().str_at(["data", "mode"]), Some("quiet"));
    assert_eq!(uid(after), changed_uid);
    let written: Vec<_> = world.writes().iter().map(|call| call.about()).collect();
    assert_eq!(written, [changed]);
}

#[test]
fn it_is_looked_after_from_then_on() {
    let mut world = world();
    world.seconds(3);
    let target = id("ConfigMap", "team-a", "settings");
    world.edit(&target, &["data", "mode"], "mine");
    world.seconds(3);
    assert_eq!(world.get(&target).unwrap().str_at(["data", "mode"]), Some("quiet"));
    let policy = id("ClusterPolicy", "", "settings");
    world.delete(&policy);
    world.seconds(3);
    for name in ["team-a", "team-b"] {
        assert!(!world.has(&id("ConfigMap", name, "settings")), "{}", world.explain());
    }
}
