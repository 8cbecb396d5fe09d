//! What authors of policies may read, and what rules show them.

use std::collections::BTreeSet;

use crate::support::{World, id, trigger};
use kiln_cluster::{Call, KindKey, Verb};
use kiln_controller::{AccessCheck, Lookup, LookupQuestion, LookupResult};
use kiln_engine::author::Authors;
use kiln_engine::{ReadError, User};
use kiln_object::{Gvk, ObjectId};
use kiln_testkit::memory::CallFault;
use kiln_value::{Value, value};

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
    world.settings.rules.authors = authors;
    world.restart();
    world.put(secret());
    world.apply(policy);
    world.put(trigger("t", "a"));
    world.settle();
    world
}

/// What is asked, as `who verb kind/namespace/name`.
fn asked(questions: &[LookupQuestion]) -> BTreeSet<String> {
    let of = |question: &LookupQuestion| match &question.asked {
        Lookup::Access(right) => {
            format!("{} {} {}", right.user.username, right.verb, right.object)
        }
        Lookup::Service(asked) => panic!("{asked:?}"),
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
        world.forget_calls();
        for question in &questions {
            world.controller.answered(question.number, LookupResult::Access(Ok(false)), world.now);
        }
        world.settle();
        assert_eq!(world.writes(), Vec::<&Call>::new(), "nothing is written: {policy}");
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
            let Lookup::Access(right) = &question.asked else { panic!("{question:?}") };
            let allowed = allowed(&right.object.gvk.kind);
            world.controller.answered(
                question.number,
                LookupResult::Access(Ok(allowed)),
                world.now,
            );
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

    // Where policies are not held to authors, no access is checked.
    let mut world = started(&policy, Authors::Off);
    assert!(world.controller.take_questions().is_empty() && world.has(&made));
}

#[test]
fn many_reads_are_asked_about_at_once() {
    let each = "generate: {synchronize: true, foreach: [{list: \"split(request.object.data.k, ',')\", context: [{name: found, configMap: {name: 'm-{{elementIndex}}', namespace: default}}], apiVersion: v1, kind: Secret, name: 'made-{{elementIndex}}', namespace: default, data: {stringData: {k: '{{found.data.k}}'}}}]}";
    let mut world = World::new();
    for number in 0..500 {
        world.put(crate::support::config_map(
            "default",
            &format!("m-{number}"),
            value!({"k": "v"}),
        ));
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
            world.controller.answered(question.number, LookupResult::Access(Ok(true)), world.now);
        }
        world.settle();
    }
    assert_eq!(rounds, 1, "all of them together");
    assert!(world.has(&id("Secret", "default", "made-499")), "{}", world.explain());
}

/// A policy that keeps a ConfigMap for each Secret, and takes none for granted when they cannot be listed.
fn one_for_each(policy: &str) -> String {
    let found = "{name: found, apiCall: {urlPath: /api/v1/namespaces/default/secrets, jmesPath: 'items[].metadata.name', default: []}}, {name: names, variable: {jmesPath: found, default: []}}";
    let makes = "generate: {synchronize: true, foreach: [{list: names, apiVersion: v1, kind: ConfigMap, name: 'made-{{element}}', namespace: default, data: {data: {k: v}}}]}";
    match policy {
        "Policy" => stored(found, makes),
        kind => stored(found, makes)
            .replace("kind: Policy", &format!("kind: {kind}"))
            .replace(&format!("namespace: default, {AUTHOR}"), "labels: {a: b}"),
    }
}

#[test]
fn nothing_goes_because_rights_are_missing_or_unknown() {
    let made = id("ConfigMap", "default", "made-s");
    let allow = |world: &mut World, answer: &dyn Fn(&AccessCheck) -> Result<bool, String>| {
        loop {
            let questions = world.controller.take_questions();
            if questions.is_empty() {
                break;
            }
            for question in &questions {
                let Lookup::Access(right) = &question.asked else { panic!("{question:?}") };
                let answer = LookupResult::Access(answer(right));
                world.controller.answered(question.number, answer, world.now);
            }
            world.settle();
        }
    };
    for (answer, reason, words) in [
        (Ok(false), "Forbidden", "ann, may not list objects of kind Secret"),
        (Err("answered with 500".to_owned()), "Unavailable", "answered with 500"),
    ] {
        let mut world = started(&one_for_each("Policy"), Authors::Namespaced);
        allow(&mut world, &|_| Ok(true));
        assert!(world.has(&made), "{}", world.explain());
        // The answers are old by now, and the trigger changes.
        world.now += 60_000;
        world.put(trigger("t", "b"));
        world.settle();
        allow(&mut world, &|right| match right.object.gvk.kind.as_str() {
            "Secret" => answer.clone(),
            _ => Ok(true),
        });
        assert!(world.has(&made), "{}", world.explain());
        let conditions = world.conditions();
        let wanted =
            |condition: &String| condition.starts_with(reason) && condition.contains(words);
        assert!(conditions.iter().any(wanted), "{conditions:?}");
        // It goes on when the rights are known again.
        world.delete(&id("Secret", "default", "s"));
        world.now += 600_000;
        world.settle();
        allow(&mut world, &|_| Ok(true));
        assert!(!world.has(&made), "{}", world.explain());
    }
}

#[test]
fn nothing_goes_because_objects_cannot_be_read_at_the_moment() {
    let made = id("ConfigMap", "default", "made-s");
    let mut world = started(&one_for_each("ClusterPolicy"), Authors::Off);
    assert!(world.has(&made), "{}", world.explain());
    // A new process cannot list Secrets.
    world.restart();
    let secrets = KindKey::of(&Gvk::new("v1", "Secret"));
    for _ in 0..3 {
        world.memory.faults.fail_next(
            Some(Verb::List),
            Some(secrets.clone()),
            CallFault::Unavailable,
        );
    }
    world.settle();
    assert!(world.has(&made), "{}", world.explain());
    let conditions = world.conditions();
    let told = |condition: &String| {
        condition.starts_with("Unavailable") && condition.contains("nothing is removed")
    };
    assert!(conditions.iter().any(told), "{conditions:?}");
    // When they can be listed again, what is not wanted goes.
    world.memory.faults.clear();
    world.delete(&id("Secret", "default", "s"));
    world.seconds(600);
    assert!(!world.has(&made), "{}", world.explain());
    assert!(world.conditions().is_empty(), "{:?}", world.conditions());
}

#[test]
fn no_policy_of_an_author_changes_policies_that_are_sent() {
    let user = User { username: "ann".into(), ..User::default() };
    let verdict = |verb, api_version, kind| {
        let object = ObjectId::new(Gvk::new(api_version, kind), "default", "o");
        AccessCheck { user: user.clone(), verb, object, subresource: "".into() }.verdict(Ok(true))
    };
    for (api_version, kind) in [
        ("kyverno.io/v1", "Policy"),
        ("policies.kyverno.io/v1", "PolicyException"),
        ("api.kubemod.io/v1beta1", "ModRule"),
    ] {
        let denied = verdict("update", api_version, kind);
        assert!(matches!(denied, Err(ReadError::Denied(_))), "{kind}: {denied:?}");
        assert_eq!(verdict("get", api_version, kind), Ok(()));
    }
    assert_eq!(verdict("update", "v1", "ConfigMap"), Ok(()));
}

#[test]
fn nothing_goes_because_an_earlier_rule_cannot_tell_whether_it_acts() {
    let rule = |name: &str, more: &str| {
        format!(
            "  - name: {name}\n    match: {{any: [{{resources: {{kinds: [ConfigMap], names: [t]}}}}]}}\n{more}    generate: {{synchronize: true, apiVersion: v1, kind: ConfigMap, name: made-{name}, namespace: default, data: {{data: {{k: v}}}}}}\n"
        )
    };
    let asks = "    context: [{name: found, apiCall: {urlPath: /api/v1/namespaces/default/secrets, jmesPath: 'items[].metadata.name', default: []}}]\n    preconditions: {all: [{key: '{{ length(found) }}', operator: GreaterThan, value: 7}]}\n";
    let policy = format!(
        "apiVersion: kyverno.io/v1\nkind: ClusterPolicy\nmetadata: {{name: p}}\nspec:\n  applyRules: One\n  rules:\n{}{}",
        rule("first", asks),
        rule("second", "")
    );
    let made = id("ConfigMap", "default", "made-second");
    let mut world = started(&policy, Authors::Off);
    assert!(world.has(&made), "{}", world.explain());
    world.restart();
    let secrets = KindKey::of(&Gvk::new("v1", "Secret"));
    for _ in 0..3 {
        world.memory.faults.fail_next(
            Some(Verb::List),
            Some(secrets.clone()),
            CallFault::Unavailable,
        );
    }
    world.settle();
    assert!(world.has(&made), "{}", world.explain());
    world.memory.faults.clear();
    world.seconds(600);
    assert!(world.has(&made) && world.conditions().is_empty(), "{}", world.explain());
}
