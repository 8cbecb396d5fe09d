//! What happens while no replica leads is made up for by the next leader, once.

use kiln_world::{World, WorldOptions};

use crate::support::{apply, id, settle, world};

const POLICIES: &str = r#"
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: kept}
spec:
  rules:
  - name: kept
    match: {any: [{resources: {kinds: [Namespace], selector: {matchLabels: {quota: "yes"}}}}]}
    generate:
      synchronize: true
      apiVersion: v1
      kind: ConfigMap
      name: kept
      namespace: "{{request.object.metadata.name}}"
      data: {data: {pods: "{{request.object.metadata.annotations.pods || '10'}}"}}
---
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: once}
spec:
  rules:
  - name: once
    match: {any: [{resources: {kinds: [Namespace], selector: {matchLabels: {quota: "yes"}}}}]}
    generate:
      synchronize: false
      apiVersion: v1
      kind: ConfigMap
      name: once
      namespace: "{{request.object.metadata.name}}"
      data: {data: {pods: "10"}}
---
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: author}
spec:
  background: false
  rules:
  - name: author
    match: {any: [{resources: {kinds: [Namespace], selector: {matchLabels: {quota: "yes"}}}}]}
    generate:
      synchronize: false
      apiVersion: v1
      kind: ConfigMap
      name: author
      namespace: "{{request.object.metadata.name}}"
      data: {data: {by: "{{request.userInfo.username}}"}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: changes-maps, labels: {rbac.kyverno.io/aggregate-to-background-controller: "true"}}
rules: [{apiGroups: [""], resources: [configmaps, namespaces], verbs: [get, list, watch, create, update, patch, delete]}]
---
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: changed}
spec:
  mutateExistingOnPolicyUpdate: false
  rules:
  - name: changed
    match: {any: [{resources: {kinds: [Namespace], selector: {matchLabels: {quota: "yes"}}}}]}
    mutate:
      targets: [{apiVersion: v1, kind: ConfigMap, name: tally, namespace: default}]
      patchStrategicMerge: {data: {"{{request.object.metadata.name}}": "seen"}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: tally}}
"#;

fn namespace(name: &str, pods: &str) -> String {
    format!(
        "{{apiVersion: v1, kind: Namespace, metadata: {{name: {name}, labels: {{quota: 'yes'}}, annotations: {{pods: '{pods}'}}}}}}"
    )
}

/// A world in which no replica leads, and none can within the next seconds.
fn leaderless(replicas: usize) -> World {
    let mut world = world(&WorldOptions { replicas, ..WorldOptions::default() });
    apply(&mut world, POLICIES);
    apply(&mut world, &namespace("before", "1"));
    settle(&mut world, 30);
    assert_eq!(data(&world, "before", "kept", "pods").as_deref(), Some("1"));
    for leader in world.leaders() {
        world.restart(leader);
    }
    world.run_now();
    assert_eq!(world.leaders(), [0; 0]);
    world
}

fn take_over(world: &mut World) {
    let limit = world.now() + 60_000;
    world.run_until(limit);
    assert_eq!(world.leaders().len(), 1);
}

fn data(world: &World, namespace: &str, name: &str, key: &str) -> Option<String> {
    let map = world.get(&id("v1", "ConfigMap", namespace, name)).unwrap()?;
    map.str_at(["data", key]).map(str::to_owned)
}

#[test]
fn trigger_created_while_no_replica_leads_is_served_by_the_next_leader() {
    for replicas in [1, 2, 3] {
        let mut world = leaderless(replicas);
        apply(&mut world, &namespace("between", "2"));
        take_over(&mut world);
        let found = |name: &str, key: &str| data(&world, "between", name, key);
        assert_eq!(found("kept", "pods").as_deref(), Some("2"), "{replicas} replicas");
        assert_eq!(found("once", "pods").as_deref(), Some("10"), "{replicas} replicas");
        assert_eq!(found("author", "by").as_deref(), Some("kubernetes-admin"), "{replicas}");
        let tally = data(&world, "default", "tally", "between");
        assert_eq!(tally.as_deref(), Some("seen"), "{replicas} replicas");
    }
}

#[test]
fn trigger_served_before_is_not_served_again_by_the_next_leader() {
    let mut world = leaderless(2);
    for name in ["once", "author"] {
        world.delete(&id("v1", "ConfigMap", "before", name)).unwrap();
    }
    take_over(&mut world);
    for name in ["once", "author"] {
        assert_eq!(world.get(&id("v1", "ConfigMap", "before", name)).unwrap(), None, "{name}");
    }
}

#[test]
fn changes_while_no_replica_leads_reach_downstreams() {
    let mut world = leaderless(2);
    apply(&mut world, &namespace("before", "7"));
    take_over(&mut world);
    assert_eq!(data(&world, "before", "kept", "pods").as_deref(), Some("7"));

    let mut world = leaderless(2);
    world.delete(&id("v1", "ConfigMap", "before", "kept")).unwrap();
    take_over(&mut world);
    assert_eq!(data(&world, "before", "kept", "pods").as_deref(), Some("1"), "it comes back");
}

#[test]
fn policy_stored_while_no_replica_leads_is_run_by_the_next_leader() {
    let mut world = world(&WorldOptions { replicas: 2, ..WorldOptions::default() });
    world.restart(0);
    world.run_now();
    assert_eq!(world.leaders(), [0; 0]);
    apply(&mut world, POLICIES);
    apply(&mut world, &namespace("between", "2"));
    take_over(&mut world);
    for (name, key, expected) in
        [("kept", "pods", "2"), ("once", "pods", "10"), ("author", "by", "kubernetes-admin")]
    {
        assert_eq!(data(&world, "between", name, key).as_deref(), Some(expected), "{name}");
    }
}
