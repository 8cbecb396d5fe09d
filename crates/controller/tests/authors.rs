//! What authors of policies may read, and what rules show them.

mod support;

use std::collections::BTreeSet;

use kiln_controller::author::Authors;
use kiln_controller::{Answer, Asked, Question};
use kiln_value::{Value, value};
use support::{World, id, trigger};

const AUTHOR: &str = r#"annotations: {kiln.dev/author: '{"username":"ann","groups":[]}'}"#;

/// A policy of a namespace that ann stored, for one ConfigMap.
fn stored(context: &str, action: &str) -> String {
    format!(
        "apiVersion: kyverno.io/v1\nkind: Policy\nmetadata: {{name: p, namespace: default, {AUTHOR}}}\nspec:\n  rules:\n  - name: r\n    match: {{any: [{{resources: {{kinds: [ConfigMap], names: [t]}}}}]}}\n    context: [{context}]\n    {action}\n"
    )
}

const MAKES: &str = "generate: {synchronize: true, apiVersion: v1, kind: ConfigMap, name: made, namespace: default, data: {data: {k: '{{found.data.k}}'}}}";

/// The same in CEL, with what is made.
fn scripted(made: &str) -> String {
    format!(
        "apiVersion: policies.kyverno.io/v1\nkind: NamespacedGeneratingPolicy\nmetadata: {{name: p, namespace: default, {AUTHOR}}}\nspec:\n  evaluation: {{synchronize: {{enabled: true}}}}\n  matchConstraints: {{resourceRules: [{{apiGroups: [''], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [configmaps]}}]}}\n  matchConditions: [{{name: t, expression: \"object.metadata.name == 't'\"}}]\n  generate: [{{expression: \"generator.apply([{made}])\"}}]\n"
    )
}

fn secret() -> Value {
    value!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "default"},
        "data": {"k": "c2VjcmV0"},
    })
}

fn started(policy: &str, authors: Authors) -> World {
    let mut world = World::new();
    world.settings.authors = authors;
    world.restart();
    world.put(secret());
    world.apply(policy);
    world.put(trigger("t", "a"));
    world.settle();
    world
}

/// What is asked, as `who verb kind/namespace/name`.
fn asked(questions: &[Question]) -> BTreeSet<String> {
    let of = |question: &Question| match &question.asked {
        Asked::Right(right) => {
            format!("{} {} {}", right.user.username, right.verb, right.object)
        }
        Asked::Service(asked) => panic!("{asked:?}"),
    };
    questions.iter().map(of).collect()
}

#[test]
fn every_read_is_held_to_the_author() {
    let get = "{name: found, apiCall: {urlPath: /api/v1/namespaces/default/secrets/s}}";
    let list = "{name: found, apiCall: {urlPath: /api/v1/namespaces/default/secrets, jmesPath: 'items[0]'}}";
    let map = "{name: found, configMap: {name: other, namespace: default}}";
    let clone = "generate: {synchronize: true, apiVersion: v1, kind: Secret, name: made, namespace: default, clone: {name: s, namespace: default}}";
    let targets = "mutate: {targets: [{apiVersion: v1, kind: Secret, name: s}], patchStrategicMerge: {metadata: {labels: {a: b}}}}";
    let own = "generate: {synchronize: true, apiVersion: v1, kind: Secret, name: made, namespace: default, data: {stringData: {k: '{{request.object.data.k}}'}}}";
    for (policy, wanted) in [
        (stored("", own), None),
        (stored(get, MAKES), Some("get v1/Secret/default/s")),
        (stored(list, MAKES), Some("list v1/Secret/default/")),
        (stored(map, MAKES), Some("get v1/ConfigMap/default/other")),
        (stored("", clone), Some("get v1/Secret/default/s")),
        (stored("", targets), Some("get v1/Secret/default/s")),
        (scripted("resource.Get('v1', 'secrets', 's')"), Some("get v1/Secret/default/s")),
        (scripted("resource.List('v1', 'secrets').items[0]"), Some("list v1/Secret/default/")),
    ] {
        let mut world = started(&policy, Authors::Namespaced);
        // Who may not see what fires a rule is not shown it either.
        let mut expected = BTreeSet::from(["ann get v1/ConfigMap/default/t".to_owned()]);
        expected.extend(wanted.map(|wanted| format!("ann {wanted}")));
        let questions = world.controller.take_questions();
        assert_eq!(asked(&questions), expected, "{policy}");
        let before = world.calls.len();
        for question in &questions {
            world.controller.answered(question.number, Answer::Right(Ok(false)), world.now);
        }
        world.settle();
        assert_eq!(world.calls.len(), before, "nothing is written: {policy}");
        let conditions = world.conditions();
        assert!(conditions.iter().any(|c| c.contains("ann, may not ")), "{policy}: {conditions:?}");
    }
}

#[test]
fn authors_are_shown_what_they_may_read_themselves() {
    let made = id("ConfigMap", "default", "made");
    let get = "{name: found, apiCall: {urlPath: /api/v1/namespaces/default/secrets/s}}";
    let policy = stored(get, MAKES);
    let mut world = started(&policy, Authors::Namespaced);
    let answer = |world: &mut World, allowed: &dyn Fn(&str) -> bool| {
        let questions = world.controller.take_questions();
        for question in &questions {
            let Asked::Right(right) = &question.asked else { panic!("{question:?}") };
            let allowed = allowed(&right.object.gvk.kind);
            world.controller.answered(question.number, Answer::Right(Ok(allowed)), world.now);
        }
        world.settle();
        questions.len()
    };
    assert!(!world.has(&made), "nothing is made before there is an answer");
    assert_eq!(answer(&mut world, &|kind| kind != "Secret"), 2);
    assert!(!world.has(&made));
    let conditions = world.conditions();
    let wanted = "ann, may not get objects of kind Secret in namespace default";
    assert!(conditions.iter().any(|condition| condition.contains(wanted)), "{conditions:?}");
    // The right is given: it is asked for again, and the rule goes on.
    world.seconds(120);
    assert_eq!(answer(&mut world, &|_| true), 2);
    assert_eq!(world.get(&made).unwrap().str_at(["data", "k"]), Some("c2VjcmV0"));

    // Where nobody holds policies to authors, nobody is asked.
    let mut world = started(&policy, Authors::Off);
    assert!(world.controller.take_questions().is_empty() && world.has(&made));
}

#[test]
fn many_reads_are_asked_about_at_once() {
    let each = "generate: {synchronize: true, foreach: [{list: \"split(request.object.data.k, ',')\", context: [{name: found, configMap: {name: 'm-{{elementIndex}}', namespace: default}}], apiVersion: v1, kind: Secret, name: 'made-{{elementIndex}}', namespace: default, data: {stringData: {k: '{{found.data.k}}'}}}]}";
    let mut world = World::new();
    for number in 0..500 {
        world.put(support::config_map("default", &format!("m-{number}"), value!({"k": "v"})));
    }
    world.apply(&stored("", each));
    world.put(trigger("t", &vec!["x"; 500].join(",")));
    world.settle();
    let mut rounds = 0;
    loop {
        let questions = world.controller.take_questions();
        if questions.is_empty() {
            break;
        }
        rounds += 1;
        for question in &questions {
            world.controller.answered(question.number, Answer::Right(Ok(true)), world.now);
        }
        world.settle();
    }
    assert_eq!(rounds, 1, "all of them together");
    assert!(world.has(&id("Secret", "default", "made-499")), "{}", world.explain());
}
