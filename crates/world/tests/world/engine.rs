//! What the engine does in a world.

use kiln_cluster::ObjectPatch;
use kiln_value::value;
use kiln_world::{Stepped, WorldOptions};

use crate::support::{QUOTAS, apply, id, objects, settle, world};

const SHOP: &str =
    "{apiVersion: v1, kind: Namespace, metadata: {name: shop, labels: {quota: 'yes'}}}";

#[test]
fn policy_is_at_work_when_the_write_that_stored_it_returns() {
    let mut world = world(&WorldOptions::default());
    let before = world.now();
    apply(&mut world, QUOTAS);
    apply(&mut world, SHOP);
    assert_eq!(world.now(), before, "no time has passed");
    let quota = world.get(&id("v1", "ConfigMap", "shop", "quota")).unwrap();
    let quota = quota.expect("the downstream is there");
    assert_eq!(quota.str_at(["data", "pods"]), Some("10"));
    let policy = world.get(&id("kyverno.io/v1", "ClusterPolicy", "", "quotas")).unwrap().unwrap();
    assert_eq!(policy.get_path(["status", "ready"]), Some(&true.into()));
}

#[test]
fn deleted_downstream_comes_back_and_time_jumps() {
    let mut world = world(&WorldOptions::default());
    apply(&mut world, QUOTAS);
    apply(&mut world, SHOP);
    let quota = id("v1", "ConfigMap", "shop", "quota");
    let first = world.get(&quota).unwrap().unwrap();
    world.delete(&quota).unwrap();
    settle(&mut world, 30);
    let again = world.get(&quota).unwrap().expect("it comes back");
    assert_ne!(first.str_at(["metadata", "uid"]), again.str_at(["metadata", "uid"]));
    // Then nothing more is to be done.
    let revision = world.revision();
    let limit = world.now() + 60_000;
    assert_eq!(world.step(limit), Stepped::Quiet);
    assert_eq!(world.revision(), revision);
}

#[test]
fn definition_and_policy_for_its_kind_work_at_once() {
    let mut world = world(&WorldOptions::default());
    apply(
        &mut world,
        "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {kind: Widget, plural: widgets, singular: widget}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
---
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: widgets}
spec:
  rules:
  - name: label
    match: {any: [{resources: {kinds: [example.com/v1/Widget]}}]}
    mutate: {patchStrategicMerge: {metadata: {labels: {seen: 'yes'}}}}
",
    );
    let widget = "{apiVersion: example.com/v1, kind: Widget, metadata: {name: w}}";
    apply(&mut world, widget);
    let stored = world.get(&id("example.com/v1", "Widget", "default", "w")).unwrap().unwrap();
    assert_eq!(stored.str_at(["metadata", "labels", "seen"]), Some("yes"));
}

#[test]
fn rule_that_checks_denies_and_reports() {
    let mut world = world(&WorldOptions::default());
    let policy = |action: &str| {
        format!(
            "
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {{name: teams}}
spec:
  background: true
  rules:
  - name: team
    match: {{any: [{{resources: {{kinds: [ConfigMap]}}}}]}}
    validate: {{failureAction: {action}, message: 'a team is needed', pattern: {{metadata: {{labels: {{team: '?*'}}}}}}}}
"
        )
    };
    apply(&mut world, &policy("Enforce"));
    let map = objects("{apiVersion: v1, kind: ConfigMap, metadata: {name: m}}").remove(0);
    let refused = world.apply(&map, "default").unwrap_err();
    assert!(refused.message.contains("a team is needed"), "{refused}");
    apply(&mut world, &policy("Audit"));
    world.apply(&map, "default").unwrap();
    settle(&mut world, 30);
    let uid = world.get(&id("v1", "ConfigMap", "default", "m")).unwrap().unwrap();
    let uid = uid.str_at(["metadata", "uid"]).unwrap().to_owned();
    let report = world.get(&id("wgpolicyk8s.io/v1alpha2", "PolicyReport", "default", &uid));
    let report = report.unwrap().expect("a report is written");
    assert_eq!(report.get_path(["summary", "fail"]), Some(&1.into()));
}

#[test]
fn schedules_and_labels_delete_when_their_time_has_come() {
    let mut world = world(&WorldOptions::default());
    apply(
        &mut world,
        "
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: cleaner, labels: {rbac.kyverno.io/aggregate-to-cleanup-controller: 'true'}}
rules: [{apiGroups: [''], resources: [configmaps], verbs: [get, list, watch, delete]}]
---
apiVersion: kyverno.io/v2
kind: ClusterCleanupPolicy
metadata: {name: old}
spec:
  schedule: '*/5 * * * *'
  match: {any: [{resources: {kinds: [ConfigMap], names: [old-*]}}]}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: old-one}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: short, labels: {cleanup.kyverno.io/ttl: 2m}}}
",
    );
    let there = |world: &kiln_world::World, name: &str| {
        world.get(&id("v1", "ConfigMap", "default", name)).unwrap().is_some()
    };
    let limit = world.now() + 60_000;
    world.run_until(limit);
    assert!(there(&world, "old-one") && there(&world, "short"));
    let limit = world.now() + 120_000;
    world.run_until(limit);
    assert!(there(&world, "old-one") && !there(&world, "short"), "the label's time has come");
    let limit = world.now() + 300_000;
    world.run_until(limit);
    assert!(!there(&world, "old-one"), "the schedule has come");
}

#[test]
fn explanation_names_the_rule_and_the_history() {
    let mut world = world(&WorldOptions::default());
    apply(&mut world, QUOTAS);
    apply(&mut world, SHOP);
    let quota = id("v1", "ConfigMap", "shop", "quota");
    world.patch(&quota, ObjectPatch::Merge(value!({"data": {"pods": "11"}}))).unwrap();
    settle(&mut world, 30);
    let told = world.explain(&quota);
    assert_eq!(told.made_by[0], "rule quotas/quota");
    assert!(told.made_by[1].contains("shop"), "{:?}", told.made_by);
    let history: Vec<String> = told.history.iter().map(ToString::to_string).collect();
    assert!(history.iter().any(|line| line.starts_with("admin patch")), "{history:#?}");
    assert_eq!(told.object.unwrap().str_at(["data", "pods"]), Some("10"), "it was corrected");
}

#[test]
fn same_seed_gives_the_same_world() {
    let told = |seed: u64| {
        let mut world = world(&WorldOptions { seed, shuffled: true, ..WorldOptions::default() });
        apply(&mut world, QUOTAS);
        apply(&mut world, SHOP);
        world.delete(&id("v1", "ConfigMap", "shop", "quota")).unwrap();
        settle(&mut world, 60);
        let (entries, _) = world.timeline(0);
        entries.iter().map(|entry| format!("{} {entry}", entry.at)).collect::<Vec<_>>()
    };
    assert_eq!(told(7), told(7));
}

#[test]
fn namespace_in_which_everything_is_denied_holds_nothing_up() {
    let mut world = world(&WorldOptions::default());
    apply(
        &mut world,
        "
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: frozen}
spec:
  background: false
  rules:
  - name: frozen
    match: {any: [{resources: {kinds: ['*'], namespaceSelector: {matchLabels: {frozen: 'yes'}}}}]}
    validate: {failureAction: Enforce, message: it is frozen, deny: {}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: ice, labels: {frozen: 'yes'}}}
",
    );
    let map = objects("{apiVersion: v1, kind: ConfigMap, metadata: {name: m}}").remove(0);
    assert!(world.apply(&map, "ice").unwrap_err().message.contains("it is frozen"));
    world.run_now();
    world.apply(&map, "default").unwrap();
    world.run_now();
    let account = id("v1", "ServiceAccount", "ice", "default");
    assert_eq!(world.get(&account).unwrap(), None);
    world.delete(&id("kyverno.io/v1", "ClusterPolicy", "", "frozen")).unwrap();
    let limit = world.now() + 120_000;
    world.run_until(limit);
    world.apply(&map, "ice").unwrap();
    world.run_now();
    assert!(world.get(&account).unwrap().is_some(), "the namespace gets what every one has");
}
