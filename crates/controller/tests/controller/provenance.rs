//! What is said afterwards: why nothing was made of a trigger, and that a source is missing.

use kiln_controller::ControllerEvent;
use kiln_controller::provenance::{Books, Provenance, is_in_step};
use kiln_engine::ObservedRequest;
use kiln_object::Gvk;
use kiln_rules::Operation;
use kiln_value::value;

use crate::support::{
    Kyverno, World, config_map, hint, id, made, made_secret, namespace, nancy, policy, trigger,
};

/// Why nothing was made of an object, as the engine's books say.
fn why_nothing(world: &World, of: &kiln_object::ObjectId) -> Option<String> {
    let stored = world.get(&id("ClusterPolicy", "", "p")).unwrap();
    let compiled = Kyverno.compile(&stored, world.memory.kinds()).unwrap();
    let books = Books::read(&world.all(&Gvk::new("v1", "ConfigMap")));
    books.why_nothing(&compiled.rules[0], &stored, &world.get(of).unwrap())
}

#[test]
fn the_books_say_why_nothing_was_made() {
    let of = id("ConfigMap", "default", "t");
    let mut world = World::new();
    world.put(trigger("t", "1"));
    world.apply(&made_secret(true));
    world.seconds(2);
    assert!(!world.has(&made()));
    let why = why_nothing(&world, &of).unwrap();
    assert!(why.contains("older than the rule") && why.contains("generateExisting: true"), "{why}");
    // A change fires the rule, and there is nothing left to say.
    world.put(trigger("t", "2"));
    world.seconds(2);
    assert!(world.has(&made()));
    assert_eq!(why_nothing(&world, &of), None);
    let claim = Provenance::read(&world.get(&made()).unwrap()).unwrap();
    assert_eq!(claim.trigger(), Some(of.clone()));
    assert!(claim.is_trigger(&world.get(&of).unwrap()));

    // An excluded user.
    let mut world = World::new();
    world.settings.requests.patience = 300;
    world.restart();
    world.apply(&made_secret(true));
    world.seconds(2);
    let sent = trigger("t", "1");
    let kept_out = hint(&nancy(), Operation::Create, &of, Some(sent.clone()), None);
    world.controller.hint(ObservedRequest { passed_over: true, ..kept_out }, world.now);
    world.put(sent);
    world.seconds(5);
    assert!(!world.has(&made()));
    let why = why_nothing(&world, &of).unwrap();
    assert!(why.contains("excludes the user who wrote it last"), "{why}");

    // What the engine made itself.
    let mut world = World::new();
    world.apply(&made_secret(true));
    world.apply(&policy(
        "first",
        "{kinds: [Namespace], names: [a]}",
        "{synchronize: true, apiVersion: v1, kind: ConfigMap, name: t, namespace: default,
         data: {metadata: {labels: {app: 'on'}}, data: {k: v}}}",
    ));
    world.seconds(2);
    world.put(namespace("a", value!({})));
    world.seconds(2);
    assert!(world.has(&of) && !world.has(&made()), "{}", world.explain());
    let why = why_nothing(&world, &of).unwrap();
    assert!(why.contains("the engine made this object itself"), "{why}");
}

#[test]
fn a_missing_source_is_told_once_and_at_once() {
    let mut world = World::new();
    world.put(namespace("a", value!({})));
    world.apply(&policy(
        "p",
        "{kinds: [Namespace]}",
        "{synchronize: true, apiVersion: v1, kind: ConfigMap, name: copy, namespace: '{{request.object.metadata.name}}',
         clone: {namespace: default, name: source}}",
    ));
    world.seconds(1);
    world.put(namespace("b", value!({})));
    world.seconds(1);
    let missing = |news: &ControllerEvent| match news {
        ControllerEvent::SourceMissing { trigger, message, .. } => {
            Some((trigger.as_ref().unwrap().name.to_string(), message.clone()))
        }
        _ => None,
    };
    let told: Vec<_> = world.controller.take_news().iter().filter_map(missing).collect();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].0 == "b" && told[0].1.contains("source"), "{told:?}");
    world.seconds(120);
    let again: Vec<_> = world.controller.take_news().iter().filter_map(missing).collect();
    assert_eq!(again, [], "it is still the same");
    world.put(config_map("default", "source", value!({"k": "v"})));
    world.seconds(2);
    assert!(world.has(&id("ConfigMap", "b", "copy")), "{}", world.explain());
}

#[test]
fn what_a_claim_says_is_read_as_it_was_written() {
    let made = value!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {
            "name": "pull", "namespace": "shop",
            "labels": {
                "app.kubernetes.io/managed-by": "kyverno",
                "generate.kyverno.io/policy-name": "p", "generate.kyverno.io/policy-namespace": "",
                "generate.kyverno.io/rule-name": "r", "generate.kyverno.io/trigger-version": "v1",
                "generate.kyverno.io/trigger-kind": "Namespace", "generate.kyverno.io/trigger-uid": "u1",
            },
            "annotations": {
                "kiln.dev/trigger": "v1/Namespace/shop", "kiln.dev/operation": "DELETE",
                "kiln.dev/source": "v1/Secret/default/a, v1/Secret/default/b",
            },
        },
    });
    let read = Provenance::read(&made).unwrap();
    assert_eq!(read.trigger().unwrap().to_string(), "v1/Namespace/shop");
    assert_eq!(read.sources(), ["v1/Secret/default/a", "v1/Secret/default/b"]);
    assert!(read.is_trigger(&value!({"metadata": {"uid": "u1"}})));
    assert!(!read.is_trigger(&value!({"metadata": {"uid": "u2"}})), "another life of it");
    assert!(
        read.event(kiln_value::Value::map()).is_none(),
        "nothing follows a trigger that was deleted"
    );
    assert!(Provenance::read(&value!({"metadata": {"name": "pull"}})).is_none());
}

#[test]
fn what_servers_add_is_no_difference() {
    let wanted = value!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "v"}});
    let mut live = wanted.clone();
    live.set(["metadata", "uid"], "u").unwrap();
    live.set(["metadata", "annotations"], value!({"other": "x"})).unwrap();
    assert!(is_in_step(&wanted, &live));
    live.set(["data", "k"], "edited").unwrap();
    assert!(!is_in_step(&wanted, &live));
}
