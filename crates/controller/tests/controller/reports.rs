//! What is reported about generating policies: one report per trigger, one write per change.

use std::sync::Arc;

use crate::support::{World, config_map, id, namespace};
use kiln_cluster::Call;
use kiln_engine::{CachedGlobal, Globals};
use kiln_object::{Kinds, ObjectId, metadata};
use kiln_rules::Exception;
use kiln_value::{Str, Value, value};
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

fn trigger(world: &mut World, k: &str) -> ObjectId {
    let made = world.put(config_map("default", "t", value!({"k": k})));
    id("PolicyReport", "default", metadata::uid(&made).unwrap())
}

fn texts(report: &Value, key: &str) -> Vec<String> {
    let results = report.get("results").and_then(Value::as_list).unwrap();
    results.iter().map(|result| result.str_at([key]).unwrap_or_default().to_owned()).collect()
}

fn property(report: &Value, key: &str) -> Option<String> {
    let first = report.get("results").unwrap().index(0).unwrap();
    first.str_at(["properties", key]).map(str::to_owned)
}

/// Writes to reports.
fn written(world: &World) -> Vec<String> {
    let calls = world.calls.iter().filter(|call| call.changes());
    let calls = calls.filter(|call| call.about().gvk.group == "wgpolicyk8s.io");
    calls.map(|call: &Call| call.verb().to_string()).collect()
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
fn what_was_made_is_reported_with_what_the_policy_adds() {
    for synchronize in [true, false] {
        let mut world = world(&[policy("p", synchronize, "'one'")]);
        let report = trigger(&mut world, "blue");
        world.seconds(5);
        let said = world.get(&report).unwrap_or_else(|| panic!("{}", world.explain()));
        assert_eq!(metadata::label(&said, "app.kubernetes.io/managed-by"), Some("kyverno"));
        let owner = said.get_path(["metadata", "ownerReferences"]).unwrap().index(0).unwrap();
        assert_eq!(owner.str_at(["kind"]), Some("ConfigMap"));
        assert_eq!(owner.str_at(["uid"]), Some(report.name.as_str()));
        assert_eq!(said.str_at(["scope", "namespace"]), Some("default"));
        let mut result = said.get("results").unwrap().index(0).unwrap().clone();
        assert!(result.remove(["timestamp"]).is_some());
        let wanted = value!({
            "category": "Teams", "message": "policy evaluated successfully", "policy": "p",
            "properties": {
                "generated-resources": "/v1, Kind=ConfigMap Name=t-p Namespace=target",
                "process": "admission review", "team": "blue",
            },
            "result": "pass", "rule": "p", "scored": true, "severity": "low",
            "source": "KyvernoGeneratingPolicy",
        });
        assert_eq!(result, wanted);
        let summary = value!({"error": 0, "fail": 0, "pass": 1, "skip": 0, "warn": 0});
        assert_eq!(said.get("summary"), Some(&summary));
    }
}

#[test]
fn one_change_is_one_write_and_no_change_is_none() {
    let mut world = world(&[policy("p", true, "'one'"), policy("q", true, "'two'")]);
    let report = trigger(&mut world, "blue");
    world.seconds(5);
    assert_eq!(texts(&world.get(&report).unwrap(), "policy"), ["p", "q"]);
    assert_eq!(written(&world), ["create"], "two results are one write");
    world.forget_calls();
    world.edit(&id("ConfigMap", "default", "t"), &["metadata", "labels"], value!({"a": "b"}));
    world.edit(&id("ConfigMap", "target", "t-p"), &["metadata", "labels", "x"], "y");
    world.seconds(60);
    world.restart();
    world.seconds(60);
    assert!(written(&world).is_empty(), "{}", world.explain());
    trigger(&mut world, "red");
    world.seconds(5);
    assert_eq!(written(&world), ["update"]);
    assert_eq!(property(&world.get(&report).unwrap(), "team").as_deref(), Some("red"));
}

#[test]
fn failures_are_reported_until_they_are_mended() {
    for synchronize in [true, false] {
        let mut world = world(&[policy("p", synchronize, "object.data.k.split('-')[1]")]);
        let report = trigger(&mut world, "blue");
        world.seconds(30);
        let said = world.get(&report).unwrap_or_else(|| panic!("{}", world.explain()));
        assert_eq!(texts(&said, "result"), ["error"]);
        assert!(texts(&said, "message")[0].starts_with("failed to evaluate policy: "));
        assert_eq!(property(&said, "generated-resources"), None);
        assert_eq!(written(&world), ["create"], "tries that fail alike say nothing new");
        trigger(&mut world, "blue-green");
        world.seconds(5);
        assert_eq!(texts(&world.get(&report).unwrap(), "result"), ["pass"]);
    }
}

#[test]
fn exceptions_are_reported_and_leave_what_there_is() {
    for (result, synchronize) in [("skip", true), ("skip", false), ("pass", true), ("pass", false)]
    {
        let mut world = world(&[policy("p", synchronize, "'one'")]);
        trigger(&mut world, "blue");
        world.seconds(5);
        world.controller.set_exceptions(exceptions(result));
        let report = trigger(&mut world, "red");
        world.seconds(5);
        let said = world.get(&report).unwrap();
        assert_eq!(texts(&said, "result"), [result]);
        assert_eq!(texts(&said, "rule"), ["exception"]);
        assert_eq!(property(&said, "exceptions").as_deref(), Some("spare"));
        assert!(world.has(&id("ConfigMap", "target", "t-p")), "{result} {synchronize}");
    }
}

#[test]
fn results_go_with_their_policy_and_leave_those_of_others() {
    let mut world = world(&[policy("p", true, "'one'"), policy("q", false, "'two'")]);
    let report = trigger(&mut world, "blue");
    world.seconds(5);
    let mut said = world.get(&report).unwrap();
    let foreign = value!({"policy": "p", "rule": "r", "result": "fail", "source": "kyverno"});
    let results = said.get("results").and_then(Value::as_list).unwrap().iter().cloned();
    let results: Vec<Value> = results.chain([foreign]).collect();
    said.set(["results"], Value::from(results)).unwrap();
    world.memory.update(said).unwrap();
    world.seconds(5);
    world.delete(&id("GeneratingPolicy", "", "p"));
    world.seconds(5);
    let said = world.get(&report).unwrap();
    assert_eq!(texts(&said, "policy"), ["q", "p"], "the other source has a policy of this name");
    assert_eq!(said.get_path(["summary", "fail"]), Some(&value!(1)));
    // Also without a watch.
    world.delete(&id("GeneratingPolicy", "", "q"));
    world.restart();
    world.seconds(10);
    assert_eq!(texts(&world.get(&report).unwrap(), "source"), ["kyverno"]);
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
    let made = world.put(object);
    let report = id("PolicyReport", "default", metadata::uid(&made).unwrap());
    world.seconds(5);
    assert!(world.has(&report));
    world.edit(&id("ConfigMap", "default", "t"), &["metadata", "labels", "active"], "no");
    world.seconds(5);
    assert!(!world.has(&report), "{}", world.explain());
}

#[test]
fn without_the_kinds_nothing_is_reported_and_nothing_waits() {
    let mut world = World::new();
    for name in ["default", "target"] {
        world.put(namespace(name, value!({"kubernetes.io/metadata.name": name})));
    }
    world.apply(&policy("p", true, "'one'"));
    trigger(&mut world, "blue");
    world.seconds(10);
    assert!(world.has(&id("ConfigMap", "target", "t-p")), "{}", world.explain());
    assert!(written(&world).is_empty());
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
    let report = trigger(&mut world, "blue");
    world.seconds(60);
    assert_eq!(texts(&world.get(&report).unwrap(), "result"), ["error"], "there is no entry yet");
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
    assert!(written(&world).is_empty(), "{}", world.explain());
}
