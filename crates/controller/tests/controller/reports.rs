//! What is told of rules that act on stored objects, for reports.

use std::sync::Arc;

use crate::support::{World, config_map, id, namespace};
use kiln_controller::{TriggerReport, TriggerResult};
use kiln_engine::{CachedGlobal, Globals, Status};
use kiln_object::{Kinds, metadata};
use kiln_rules::Exception;
use kiln_value::{Str, value};
use kiln_yaml::{ReadOptions, read_bytes};

/// ConfigMaps in `default` fire the policy.
fn policy(name: &str, synchronize: bool, expression: &str) -> String {
    format!(
        "apiVersion: policies.kyverno.io/v1
kind: GeneratingPolicy
metadata:
  name: {name}
  annotations: {{policies.kyverno.io/category: Teams, policies.kyverno.io/severity: low}}
spec:
  evaluation: {{synchronize: {{enabled: {synchronize}}}}}
  matchConstraints:
    namespaceSelector: {{matchLabels: {{kubernetes.io/metadata.name: default}}}}
    resourceRules: [{{apiGroups: [''], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [configmaps]}}]
  generate:
  - expression: >-
      generator.Apply('target', [{{'apiVersion': 'v1', 'kind': 'ConfigMap', 'metadata': {{'name': object.metadata.name + '-{name}'}},
        'data': {{'k': {expression}}}}}])
  auditAnnotations:
  - {{key: team, valueExpression: \"object.data.k\"}}
  - {{key: empty, valueExpression: \"''\"}}
"
    )
}

fn world(policies: &[String]) -> World {
    let mut world = World::with_reports();
    for name in ["default", "target"] {
        world.put(namespace(name, value!({"kubernetes.io/metadata.name": name})));
    }
    for policy in policies {
        world.apply(policy);
    }
    world.seconds(5);
    world
}

/// Stores the trigger; its UID.
fn trigger(world: &mut World, k: &str) -> String {
    let made = world.put(config_map("default", "t", value!({"k": k})));
    metadata::uid(&made).unwrap().to_owned()
}

/// What was told last of a policy.
fn told<'w>(world: &'w World, policy: &str) -> &'w TriggerReport {
    let told = world.reports.iter().rfind(|told| told.rule.policy.name == policy);
    told.unwrap_or_else(|| panic!("nothing is told of {policy}: {}", world.explain()))
}

fn result<'w>(world: &'w World, policy: &str) -> &'w TriggerResult {
    told(world, policy).result.as_ref().expect("there is a result")
}

fn property<'w>(world: &'w World, key: &str) -> Option<&'w str> {
    let mut found = result(world, "p").properties.iter().filter(|(name, _)| name == key);
    found.next().map(|(_, text)| text.as_str())
}

fn exceptions(result: &str) -> Vec<Arc<Exception>> {
    let text = format!(
        "apiVersion: policies.kyverno.io/v1
kind: PolicyException
metadata: {{name: spare, namespace: teams}}
spec: {{policyRefs: [{{name: p, kind: GeneratingPolicy}}], reportResult: {result}}}
"
    );
    let documents = read_bytes("e", text.as_bytes(), ReadOptions::kubernetes()).unwrap();
    let compiled = kiln_dialects::compile(&documents, &Kinds::builtin());
    assert_eq!(compiled.exceptions.len(), 1, "{:?}", compiled.diagnostics);
    compiled.exceptions
}

#[test]
fn what_was_made_is_told_with_what_the_policy_adds() {
    for synchronize in [true, false] {
        let mut world = world(&[policy("p", synchronize, "'one'")]);
        let uid = trigger(&mut world, "blue");
        world.seconds(5);
        let said = told(&world, "p");
        assert_eq!(
            (said.uid.as_str(), &said.trigger),
            (uid.as_str(), &id("ConfigMap", "default", "t"))
        );
        let TriggerResult { status, message, .. } = result(&world, "p");
        assert_eq!((*status, message.as_str()), (Status::Pass, "policy evaluated successfully"));
        assert_eq!(property(&world, "team"), Some("blue"));
        let made = "/v1, Kind=ConfigMap Name=t-p Namespace=target";
        assert_eq!(property(&world, "generated-resources"), Some(made), "{synchronize}");
    }
}

#[test]
fn rules_that_generate_and_change_stored_objects_are_told() {
    let text = "apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: p}
spec:
  rules:
  - name: r
    match: {any: [{resources: {kinds: [ConfigMap], namespaces: [default]}}]}
    reportProperties: {team: '{{ request.object.data.k }}'}
    ACTION
";
    let generate =
        "generate: {apiVersion: v1, kind: Namespace, name: made, synchronize: true, data: {}}";
    let mutate = "mutate: {targets: [{apiVersion: v1, kind: ConfigMap, name: c, namespace: target}], patchStrategicMerge: {data: {k: x}}}";
    for (action, message, key, objects) in [
        (
            generate,
            "generated Namespace/made",
            "generated-resources",
            "/v1, Kind=Namespace Name=made",
        ),
        (
            mutate,
            "mutated ConfigMap/c in namespace target",
            "patched-target",
            "/v1, Kind=ConfigMap Name=c Namespace=target",
        ),
    ] {
        let mut world = world(&[text.replace("ACTION", action)]);
        world.put(config_map("target", "c", value!({"k": "y"})));
        trigger(&mut world, "blue");
        world.seconds(5);
        let TriggerResult { status, message: found, .. } = result(&world, "p");
        assert_eq!((*status, found.as_str()), (Status::Pass, message), "{}", world.explain());
        assert_eq!(property(&world, key), Some(objects));
        assert_eq!(property(&world, "team"), Some("blue"));
    }
}

#[test]
fn the_same_is_told_once_and_again_after_a_restart() {
    let mut world = world(&[policy("p", true, "'one'")]);
    trigger(&mut world, "blue");
    world.seconds(5);
    assert_eq!(world.reports.len(), 1, "{:?}", world.reports);
    world.forget_calls();
    world.edit(&id("ConfigMap", "default", "t"), &["metadata", "labels"], value!({"a": "b"}));
    world.edit(&id("ConfigMap", "target", "t-p"), &["metadata", "labels", "x"], "y");
    world.seconds(60);
    assert!(world.reports.is_empty(), "{:?}", world.reports);
    world.restart();
    world.seconds(60);
    assert_eq!(world.reports.len(), 1, "who keeps reports may have lost it: {:?}", world.reports);
    trigger(&mut world, "red");
    world.seconds(5);
    assert_eq!(property(&world, "team"), Some("red"));
}

#[test]
fn failures_are_told_until_they_are_mended() {
    for synchronize in [true, false] {
        let mut world = world(&[policy("p", synchronize, "object.data.k.split('-')[1]")]);
        trigger(&mut world, "blue");
        world.seconds(30);
        let TriggerResult { status, message, .. } = result(&world, "p");
        assert_eq!(*status, Status::Error);
        assert!(message.starts_with("failed to evaluate policy: "), "{message}");
        assert_eq!(property(&world, "generated-resources"), None);
        assert_eq!(world.reports.len(), 1, "tries that fail alike say nothing new");
        trigger(&mut world, "blue-green");
        world.seconds(5);
        assert_eq!(result(&world, "p").status, Status::Pass);
    }
}

#[test]
fn exceptions_are_told_and_leave_what_there_is() {
    for (word, status) in [("skip", Status::Skip), ("pass", Status::Pass)] {
        for synchronize in [true, false] {
            let mut world = world(&[policy("p", synchronize, "'one'")]);
            trigger(&mut world, "blue");
            world.seconds(5);
            world.controller.set_exceptions(exceptions(word));
            trigger(&mut world, "red");
            world.seconds(5);
            let found = result(&world, "p");
            assert_eq!((found.status, found.exceptions.len()), (status, 1), "{synchronize}");
            assert!(world.has(&id("ConfigMap", "target", "t-p")), "{word} {synchronize}");
        }
    }
}

#[test]
fn a_trigger_that_stops_matching_has_no_result() {
    let text = policy("p", true, "'one'").replace(
        "    namespaceSelector",
        "    objectSelector: {matchLabels: {active: 'yes'}}\n    namespaceSelector",
    );
    let mut world = world(&[text]);
    let mut object = config_map("default", "t", value!({"k": "blue"}));
    metadata::set_label(&mut object, "active", "yes").unwrap();
    world.put(object);
    world.seconds(5);
    assert!(told(&world, "p").result.is_some());
    world.edit(&id("ConfigMap", "default", "t"), &["metadata", "labels", "active"], "no");
    world.seconds(5);
    assert_eq!(told(&world, "p").result, None, "{}", world.explain());
}

#[test]
fn what_was_made_of_the_global_context_follows_it() {
    let mut world = world(&[policy("p", true, "globalContext.Get('teams', 'first').lowerAscii()")]);
    let globals = |first: Option<&str>| {
        let mut globals = Globals::default();
        let projections = first.map(|first| (Str::from("first"), value!(first)));
        let entry =
            CachedGlobal { value: value!({}), projections: projections.into_iter().collect() };
        globals.insert("teams".into(), Ok(entry));
        Arc::new(globals)
    };
    trigger(&mut world, "blue");
    world.seconds(60);
    assert_eq!(result(&world, "p").status, Status::Error, "there is no entry yet");
    for name in ["red", "green"] {
        world.controller.set_globals(globals(Some(name)));
        world.seconds(5);
        let made = world.get(&id("ConfigMap", "target", "t-p")).unwrap();
        assert_eq!(made.str_at(["data", "k"]), Some(name), "{}", world.explain());
    }
    world.forget_calls();
    world.controller.set_globals(globals(Some("green")));
    world.seconds(60);
    assert!(world.writes().is_empty(), "the same again changes nothing: {}", world.explain());
}

#[test]
fn reports_have_no_reports() {
    let policy = policy("p", true, "'one'")
        .replace("apiGroups: ['']", "apiGroups: [wgpolicyk8s.io]")
        .replace("apiVersions: [v1]", "apiVersions: [v1alpha2]")
        .replace("resources: [configmaps]", "resources: [policyreports]")
        .replace("object.data.k", "object.kind");
    let mut world = world(&[policy]);
    let mut report = config_map("default", "by-hand", value!({}));
    report.set(["apiVersion"], "wgpolicyk8s.io/v1alpha2").unwrap();
    report.set(["kind"], "PolicyReport").unwrap();
    world.put(report);
    world.seconds(60);
    assert!(world.has(&id("ConfigMap", "target", "by-hand-p")), "{}", world.explain());
    assert!(world.reports.is_empty(), "{:?}", world.reports);
}
