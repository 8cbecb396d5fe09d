//! Rules that change stored objects, exceptions, and what is looked at twice before it is deleted.

use std::sync::Arc;

use crate::support::{World, config_map, id, namespace};
use kiln_controller::ControllerEvent;
use kiln_rules::Exception;
use kiln_value::value;
use kiln_yaml::{ReadOptions, read_bytes};

const PATCHES: &str = r#"
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: restart}
spec:
  rules:
  - name: patch
    match: {any: [{resources: {kinds: [ConfigMap], names: [settings]}}]}
    mutate:
      targets: [{apiVersion: v1, kind: Secret, name: target, namespace: "{{request.object.metadata.namespace}}"}]
      patchStrategicMerge:
        metadata: {annotations: {seen: "{{request.object.data.version}}"}}
"#;

const MAKES: &str = r#"
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: make}
spec:
  rules:
  - name: make
    match: {any: [{resources: {kinds: [ConfigMap], selector: {matchLabels: {make: "yes"}}}}]}
    generate:
      synchronize: true
      apiVersion: v1
      kind: Secret
      name: made
      namespace: a
      data: {stringData: {a: b}}
"#;

fn trigger(label: &str) -> kiln_value::Value {
    value!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "t", "namespace": "a", "labels": {"make": label}},
    })
}

#[test]
fn stored_objects_are_patched_once_per_change_of_the_trigger() {
    let mut world = World::new();
    world.put(namespace("a", value!({})));
    world.put(crate::support::secret("a", "target", value!({"x": "y"})));
    world.put(crate::support::secret("a", "other", value!({"x": "y"})));
    world.apply(PATCHES);
    world.settle();
    let seen = |world: &World, name: &str| {
        let secret = world.get(&id("Secret", "a", name)).unwrap();
        secret.str_at(["metadata", "annotations", "seen"]).map(str::to_owned)
    };
    world.put(config_map("a", "settings", value!({"version": "1"})));
    world.seconds(1);
    assert_eq!(seen(&world, "target").as_deref(), Some("1"), "{}", world.explain());
    assert_eq!(seen(&world, "other"), None);
    world.forget_calls();
    world.put(config_map("a", "settings", value!({"version": "2"})));
    world.seconds(1);
    assert_eq!(seen(&world, "target").as_deref(), Some("2"));
    assert_eq!(world.writes().len(), 1, "{}", world.explain());
    world.forget_calls();
    world.restart();
    world.seconds(5);
    assert_eq!(world.writes().len(), 0, "a restart patches nothing again: {}", world.explain());
}

/// Labels namespaces, without naming targets.
fn labels(evaluation: &str) -> String {
    format!(
        "apiVersion: policies.kyverno.io/v1
kind: MutatingPolicy
metadata: {{name: label}}
spec:
  evaluation: {{mutateExisting: {{enabled: true}}{evaluation}}}
  matchConstraints:
    resourceRules: [{{apiGroups: [''], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [namespaces]}}]
  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration: {{expression: 'Object{{metadata: Object.metadata{{labels: {{\"mykey\": \"myvalue\"}}}}}}'}}
"
    )
}

fn label(world: &World, name: &str) -> Option<String> {
    let namespace = world.get(&id("Namespace", "", name)).unwrap();
    namespace.str_at(["metadata", "labels", "mykey"]).map(str::to_owned)
}

#[test]
fn a_policy_without_targets_changes_all_objects_that_match() {
    let mut world = World::new();
    world.put(namespace("one", value!({})));
    world.put(namespace("two", value!({"mykey": "foo"})));
    world.apply(&labels(""));
    world.seconds(1);
    for name in ["one", "two"] {
        assert_eq!(label(&world, name).as_deref(), Some("myvalue"), "{}", world.explain());
    }
    // A request makes it look at all others; the sent one was changed at admission, which this world has none of.
    world
        .memory
        .update({
            let mut two = world.get(&id("Namespace", "", "two")).unwrap();
            two.set(["metadata", "labels", "mykey"], "bar").unwrap();
            two
        })
        .unwrap();
    world.seconds(1);
    assert_eq!(label(&world, "two").as_deref(), Some("bar"));
    world.put(namespace("three", value!({})));
    world.seconds(1);
    assert_eq!(label(&world, "two").as_deref(), Some("myvalue"), "{}", world.explain());
    world.forget_calls();
    world.restart();
    world.seconds(5);
    assert_eq!(world.writes().len(), 0, "a restart is not an event: {}", world.explain());
}

#[test]
fn without_admission_new_objects_are_found_by_the_next_look_at_everything() {
    let mut world = World::new();
    world.put(namespace("old", value!({})));
    world.apply(&labels(", admission: {enabled: false}"));
    world.seconds(1);
    assert_eq!(label(&world, "old").as_deref(), Some("myvalue"), "{}", world.explain());
    world.put(namespace("new", value!({})));
    world.seconds(5);
    assert_eq!(label(&world, "new"), None, "no request fires it: {}", world.explain());
    world.pass_time(world.settings.resync);
    assert_eq!(label(&world, "new").as_deref(), Some("myvalue"), "{}", world.explain());
}

#[test]
fn what_was_made_of_an_excepted_object_stays_as_it_is() {
    let mut world = World::new();
    world.put(namespace("a", value!({})));
    world.apply(MAKES);
    world.settle();
    world.put(trigger("yes"));
    world.seconds(1);
    let made = id("Secret", "a", "made");
    assert!(world.has(&made), "{}", world.explain());
    let text =
        b"apiVersion: kyverno.io/v2\nkind: PolicyException\nmetadata: {name: e, namespace: a}\n\
                 spec:\n  exceptions: [{policyName: make, ruleNames: [make]}]\n\
                 \x20 match: {any: [{resources: {kinds: [ConfigMap]}}]}\n";
    let documents = read_bytes("exception", text, ReadOptions::kubernetes()).unwrap();
    let compiled = kiln_dialects::compile(&documents, world.memory.kinds());
    let exceptions: Vec<Arc<Exception>> = compiled.exceptions;
    assert_eq!(exceptions.len(), 1);
    world.controller.set_exceptions(exceptions);
    world.edit(&made, &["metadata", "annotations", "mine"], "kept");
    world.seconds(5);
    let live = world.get(&made).unwrap();
    assert_eq!(live.str_at(["metadata", "annotations", "mine"]), Some("kept"));
    world.controller.set_exceptions(Vec::new());
    world.seconds(5);
    let live = world.get(&made).unwrap();
    assert_eq!(live.str_at(["metadata", "annotations", "mine"]), None, "looked after again");
}

#[test]
fn a_trigger_that_is_one_again_keeps_what_was_made() {
    let mut world = World::new();
    world.put(namespace("a", value!({})));
    world.apply(MAKES);
    world.settle();
    world.put(trigger("yes"));
    world.seconds(1);
    let made = id("Secret", "a", "made");
    let uid =
        |world: &World| kiln_object::metadata::uid(&world.get(&made).unwrap()).map(str::to_owned);
    let before = uid(&world);
    assert!(before.is_some());
    world.put(trigger("no"));
    world.deliver();
    // The watch has not told yet that it is one again.
    world.put(trigger("yes"));
    world.step();
    world.step();
    world.seconds(2);
    assert_eq!(uid(&world), before, "{}", world.explain());
    world.put(trigger("no"));
    world.seconds(2);
    assert!(!world.has(&made));
}

#[test]
fn news_tell_of_made_objects_and_failures() {
    let mut world = World::new();
    world.put(namespace("a", value!({})));
    world.apply(MAKES);
    world.settle();
    world.put(trigger("yes"));
    world.seconds(1);
    let news = world.controller.take_news();
    assert!(
        matches!(&news[..], [ControllerEvent::Made { target, .. }] if target.name == "made"),
        "{news:?}"
    );
    world.edit(&id("Secret", "a", "made"), &["data", "a"], "eA==");
    world.seconds(1);
    assert_eq!(world.controller.take_news(), [], "an object that is reverted existed before");
}

#[test]
fn a_kind_that_is_being_listed_is_no_failure() {
    let mut world = World::new();
    world.put(namespace("a", value!({})));
    world.put(trigger("yes"));
    world.apply(MAKES);
    world.seconds(1);
    // Triggers are known by now, and no policy has asked for what the next policy makes.
    let makes = MAKES.replace("{name: make}", "{name: limit}").replace("Secret", "LimitRange");
    let makes =
        makes.replace("synchronize: true", "synchronize: true\n      generateExisting: true");
    world.apply(&makes.replace("{stringData: {a: b}}", "{spec: {limits: []}}"));
    world.controller.take_news();
    world.forget_calls();
    // The answer takes its time.
    let mut held = Vec::new();
    for wait in [0, 0, 0, 2 * world.settings.requests.pending_after, 0, 0] {
        world.now += wait;
        world.deliver();
        for request in world.controller.poll(world.now) {
            if request.call.about().gvk.kind == "LimitRange" {
                held.push(request);
                continue;
            }
            let answer = world.memory.call(&world.user, &request.call);
            world.calls.push(request.call);
            world.controller.answer(request.ticket, answer, world.now);
        }
    }
    assert!(!held.is_empty());
    for request in held {
        let answer = world.memory.call(&world.user, &request.call);
        world.controller.answer(request.ticket, answer, world.now);
    }
    world.seconds(1);
    let news = world.controller.take_news();
    assert!(
        matches!(&news[..], [ControllerEvent::Made { target, .. }] if target.name == "made"),
        "{news:?}"
    );
    let mut changes = world.calls.iter().filter(|call| call.changes());
    assert!(changes.all(|call| call.about().gvk.kind != "UpdateRequest"), "{:?}", world.calls);
}

#[test]
fn what_refers_to_something_missing_is_made_soon_after_it_comes() {
    let mut world = World::new();
    world.put(namespace("a", value!({})));
    world.memory.set_admission(Box::new(|object, _| {
        let refused = object.str_at(["kind"]) == Some("Secret");
        match refused {
            true => {
                Err(kiln_cluster::ApiError::new(kiln_cluster::Reason::NotFound, "no such role"))
            }
            false => Ok(()),
        }
    }));
    world.apply(MAKES);
    world.settle();
    world.put(trigger("yes"));
    world.seconds(1);
    assert!(!world.has(&id("Secret", "a", "made")));
    world.memory.set_admission(Box::new(|_, _| Ok(())));
    world.seconds(5);
    assert!(world.has(&id("Secret", "a", "made")), "{}", world.explain());
}

#[test]
fn sending_an_object_again_as_it_is_fires_its_rules() {
    let mut world = World::new();
    world.put(namespace("a", value!({})));
    world.put(crate::support::secret("a", "target", value!({"x": "y"})));
    let settings = world.put(config_map("a", "settings", value!({"version": "1"})));
    world.apply(PATCHES);
    world.seconds(1);
    let target = id("Secret", "a", "target");
    let seen = |world: &World| {
        world.get(&target).unwrap().str_at(["metadata", "annotations", "seen"]).map(str::to_owned)
    };
    assert_eq!(seen(&world), None, "it was there before the rule");
    let user = kiln_engine::User { username: "somebody".into(), ..Default::default() };
    let about = id("ConfigMap", "a", "settings");
    let operation = kiln_rules::Operation::Update;
    world.hint(&user, operation, &about, Some(settings.clone()), Some(settings));
    world.seconds(1);
    assert_eq!(seen(&world).as_deref(), Some("1"), "{}", world.explain());
}
