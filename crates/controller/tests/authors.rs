//! What authors of policies may read, and what rules show them.

mod support;

use kiln_controller::{Answer, Asked, Question};
use kiln_value::value;
use support::{World, id, trigger};

/// A policy of a namespace that was stored by ann, whose trigger brings a Secret into a ConfigMap.
fn reads_a_secret() -> String {
    r#"apiVersion: kyverno.io/v1
kind: Policy
metadata:
  name: p
  namespace: default
  annotations: {kiln.dev/author: '{"username":"ann","groups":[]}'}
spec:
  rules:
  - name: r
    match: {any: [{resources: {kinds: [ConfigMap], names: [t]}}]}
    context: [{name: found, apiCall: {urlPath: /api/v1/namespaces/default/secrets/s}}]
    generate: {synchronize: true, apiVersion: v1, kind: ConfigMap, name: made, namespace: default, data: {data: {k: '{{found.data.k}}'}}}
"#
    .to_owned()
}

#[test]
fn authors_are_shown_what_they_may_read_themselves() {
    let made = id("ConfigMap", "default", "made");
    let mut world = World::new();
    world.put(value!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "default"}, "data": {"k": "c2VjcmV0"}}));
    world.apply(&reads_a_secret());
    world.put(trigger("t", "a"));
    world.settle();
    let questions = world.controller.take_questions();
    let [Question { number, asked: Asked::Right(right) }] = questions.as_slice() else {
        panic!("{questions:?}")
    };
    assert_eq!(
        (right.user.username.as_str(), right.verb, right.object.to_string()),
        ("ann", "get", id("Secret", "default", "s").to_string())
    );
    assert!(!world.has(&made), "nothing is made before there is an answer");
    world.controller.answered(*number, Answer::Right(Ok(false)), world.now);
    world.settle();
    assert!(!world.has(&made));
    let conditions = world.conditions();
    assert!(
        conditions
            .iter()
            .any(|c| c.contains("ann, may not get objects of kind Secret in namespace default")),
        "{conditions:?}"
    );
    // The right is given: it is asked for again, and the rule goes on.
    world.seconds(120);
    let questions = world.controller.take_questions();
    assert_eq!(questions.len(), 1, "{questions:?}");
    world.controller.answered(questions[0].number, Answer::Right(Ok(true)), world.now);
    world.settle();
    assert_eq!(
        world.get(&made).unwrap().str_at(["data", "k"]),
        Some("c2VjcmV0"),
        "{}",
        world.explain()
    );

    // Where nobody holds policies to authors, nobody is asked.
    let mut world = World::new();
    world.settings.authors = false;
    world.restart();
    world.put(value!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "default"}, "data": {"k": "c2VjcmV0"}}));
    world.apply(&reads_a_secret());
    world.put(trigger("t", "a"));
    world.settle();
    assert!(
        world.controller.take_questions().is_empty() && world.has(&made),
        "{}",
        world.explain()
    );
}
