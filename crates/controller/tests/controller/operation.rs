//! How the controller behaves when things go wrong, are slow, or come from others.

use crate::support::{
    ON, World, config_map, id, made, made_secret, namespace, policy, secret, trigger,
};
use kiln_cluster::{Call, Verb};
use kiln_controller::{Lookup, LookupResult, Waiting};
use kiln_object::{Gvk, ObjectId, Selector, metadata};
use kiln_testkit::memory::{CallFault, Decision};
use kiln_value::{Value, value};

fn requests(world: &World) -> Vec<(String, String)> {
    let requests = world.all(&id("UpdateRequest", "", "").gvk);
    requests
        .iter()
        .map(|request| {
            let text = |key: &str| request.str_at(["status", key]).unwrap_or_default().to_owned();
            (text("state"), text("message"))
        })
        .collect()
}

/// The reasons that requests give, beside their words.
fn reasons(world: &World) -> Vec<String> {
    let requests = world.all(&id("UpdateRequest", "", "").gvk);
    let reason = |request: &Value| request.str_at(["status", "reason"]).unwrap().to_owned();
    requests.iter().map(reason).collect()
}

fn states(world: &World) -> Vec<String> {
    requests(world).into_iter().map(|(state, _)| state).collect()
}

#[test]
fn one_generation_costs_one_write_and_no_request_object() {
    let mut world = World::new();
    world.apply(&made_secret(true));
    world.seconds(5);
    world.forget_calls();
    world.put(trigger("t", "1"));
    world.seconds(5);
    assert_eq!(world.writes().len(), 1);
    let all: Vec<_> = world.calls.iter().filter(|call| call.changes()).collect();
    assert_eq!(all.len(), 1, "no request, no record: {all:?}");
}

#[test]
fn what_a_server_adds_is_not_fought_over() {
    let mut world = World::new();
    world.memory.set_admission(Box::new(|object, _| {
        if object.get("kind").and_then(Value::as_str) == Some("Secret") {
            metadata::set_annotation(object, "mesh.io/injected", "yes").unwrap();
        }
        Ok(())
    }));
    world.apply(&made_secret(true));
    world.settle();
    world.put(trigger("t", "1"));
    world.seconds(5);
    world.forget_calls();
    world.seconds(1_300);
    world.restart();
    world.seconds(1_300);
    assert_eq!(world.writes(), Vec::<&Call>::new());
    let trials =
        world.calls.iter().filter(|c| matches!(c, Call::Update { dry_run: true, .. })).count();
    assert_eq!(trials, 1, "a new process asks once what the server would make of it");
    world.edit(&made(), &["data", "extra"], "eA==");
    world.seconds(1);
    assert_eq!(world.get(&made()).unwrap().get_path(["data", "extra"]), None);
}

#[test]
fn forbidden_work_is_parked_with_its_reason_and_goes_on_when_allowed() {
    let mut world = World::new();
    world.memory.access.set(Decision::Deny, "*", Some(Verb::Create), "Secret", "*");
    world.apply(&made_secret(true));
    world.settle();
    world.put(trigger("t", "1"));
    world.seconds(20);
    let (key, condition) = world.controller.conditions().next().unwrap();
    assert_eq!(condition.reason, Waiting::Forbidden, "{key}");
    assert!(
        condition.message.contains("cannot create resource \"Secret\""),
        "{}",
        condition.message
    );
    assert_eq!(states(&world), ["Failed"], "it names the right that is missing");
    let tries = world.memory.counts.of(&made()).writes;
    assert!(tries <= 5, "tried less and less often, not hammered: {tries}");
    world.memory.access.clear();
    world.seconds(65);
    assert!(world.has(&made()));
    assert_eq!(world.controller.conditions().count(), 0);
    assert_eq!(requests(&world), [], "a request is gone when its work is done");
}

#[test]
fn invalid_objects_fail_with_their_reason_three_retries_and_a_readable_minute() {
    let mut world = World::new();
    world.memory.set_admission(Box::new(|object, _| {
        match object.get("kind").and_then(Value::as_str) {
            Some("Secret") => Err(kiln_cluster::ApiError::new(
                kiln_cluster::Reason::Invalid,
                "no secrets on Sundays",
            )),
            _ => Ok(()),
        }
    }));
    world.apply(&made_secret(false));
    world.settle();
    world.put(trigger("t", "1"));
    world.seconds(30);
    assert_eq!(world.memory.counts.of(&made()).writes, 4, "once, and three retries");
    let (state, message) = requests(&world).remove(0);
    assert_eq!(state, "Failed");
    assert!(message.contains("no secrets on Sundays"), "{message}");
    world.seconds(30);
    assert_eq!(states(&world), ["Failed"], "readable for a minute");
    world.seconds(60);
    assert_eq!(requests(&world), []);
}

#[test]
fn an_unavailable_server_is_asked_less_and_less_often() {
    let mut world = World::new();
    world.apply(&made_secret(true));
    world.seconds(5);
    for _ in 0..8 {
        world.memory.faults.fail_next(Some(Verb::Create), None, CallFault::Unavailable);
    }
    world.put(trigger("t", "1"));
    world.seconds(10);
    assert!(!world.has(&made()));
    let soon = world.memory.counts.of(&made()).writes;
    assert!((3..=6).contains(&soon), "{soon} tries in ten seconds");
    world.seconds(180);
    assert!(world.has(&made()));
}

#[test]
fn a_lost_answer_is_found_out() {
    let mut world = World::new();
    world.apply(&made_secret(true));
    world.seconds(5);
    world.memory.faults.fail_next(Some(Verb::Create), None, CallFault::LostAnswer);
    world.put(trigger("t", "1"));
    world.seconds(5);
    assert_eq!(world.memory.counts.of(&made()).writes, 1, "it was there already");
}

#[test]
fn a_contested_object_is_put_right_every_few_seconds_and_says_so() {
    let mut world = World::new();
    world.apply(&made_secret(true));
    world.settle();
    world.put(trigger("t", "1"));
    world.seconds(5);
    world.forget_calls();
    for _ in 0..600 {
        if world.get(&made()).unwrap().str_at(["data", "k"]) == Some("MQ==") {
            world.edit(&made(), &["data", "k"], "Mg==");
        }
        world.pass_time(500);
    }
    let writes = world.writes().len();
    assert!((55..70).contains(&writes), "{writes} corrections in five minutes");
    let (_, condition) = world.controller.conditions().next().unwrap();
    assert_eq!(condition.reason, Waiting::Contested);
    assert!(condition.message.contains("another writer keeps changing"));
    assert_eq!(reasons(&world), ["Contested"]);
    world.seconds(700);
    assert_eq!(
        world.get(&made()).unwrap().str_at(["data", "k"]),
        Some("MQ=="),
        "in the end it is right"
    );
    assert_eq!(world.controller.conditions().count(), 0);
}

#[test]
fn rules_do_not_fire_on_what_rules_made_unless_they_ask_for_it() {
    let chain = |skip: bool| {
        let first = made_secret(true);
        let second = policy(
            "q",
            "{kinds: [Secret]}",
            "{synchronize: true, apiVersion: v1, kind: ConfigMap, name: '{{request.object.metadata.name}}-of', namespace: default, data: {data: {a: b}}}",
        );
        let second = second.replace(
            "    generate:",
            &format!("    skipBackgroundRequests: {skip}\n    generate:"),
        );
        format!("{first}---\n{second}")
    };
    for skip in [true, false] {
        let mut world = World::new();
        world.apply(&chain(skip));
        world.settle();
        world.put(trigger("t", "1"));
        world.seconds(5);
        let second = id("ConfigMap", "default", "t-made-of");
        assert_eq!(world.has(&second), !skip);
        world.restart();
        world.seconds(700);
        assert_eq!(world.has(&second), !skip, "nor after a restart");
    }
}

#[test]
fn a_rule_that_fires_on_its_own_objects_is_stopped_and_says_so() {
    let mut world = World::new();
    let looping = policy(
        "p",
        "{kinds: [ConfigMap], names: ['a*']}",
        "{synchronize: true, apiVersion: v1, kind: ConfigMap, name: '{{request.object.metadata.name}}x', namespace: default, data: {data: {a: b}}}",
    );
    world.apply(
        &looping.replace("    generate:", "    skipBackgroundRequests: false\n    generate:"),
    );
    world.settle();
    world.put(config_map("default", "a", value!({})));
    world.seconds(120);
    let made = world.all(&Gvk::new("v1", "ConfigMap")).len();
    assert!(made < 20, "{made} objects");
    let found = world.controller.conditions().find(|(_, c)| c.reason == Waiting::Loop);
    let (_, condition) = found.expect("a condition says so");
    assert!(
        condition.message.contains("fires on objects that it made itself"),
        "{}",
        condition.message
    );
    assert_eq!(reasons(&world), ["Loop"]);
    for _ in 0..3 {
        world.restart();
        world.seconds(700);
    }
    assert_eq!(world.all(&Gvk::new("v1", "ConfigMap")).len(), made, "a restart opens no new round");
}

#[test]
fn two_rules_that_fire_on_each_other_are_stopped() {
    let mut world = World::new();
    for (name, from, to) in [("p", "ConfigMap", "Secret"), ("q", "Secret", "ConfigMap")] {
        let rule = policy(
            name,
            &format!("{{kinds: [{from}], names: ['a*']}}"),
            &format!(
                "{{synchronize: true, apiVersion: v1, kind: {to}, name: '{{{{request.object.metadata.name}}}}x', namespace: default}}"
            ),
        );
        world.apply(
            &rule.replace("    generate:", "    skipBackgroundRequests: false\n    generate:"),
        );
    }
    world.settle();
    world.put(config_map("default", "a", value!({})));
    world.seconds(120);
    assert!(world.controller.conditions().any(|(_, c)| c.reason == Waiting::Loop));
    assert!(world.all(&Gvk::new("v1", "Secret")).len() < 12);
}

#[test]
fn an_object_that_several_triggers_want_goes_with_the_last_of_them() {
    let mut world = World::new();
    world.apply(&policy(
        "p",
        ON,
        "{synchronize: true, apiVersion: v1, kind: Secret, name: shared, namespace: default, data: {stringData: {k: v}}}",
    ));
    world.settle();
    let shared = id("Secret", "default", "shared");
    for name in ["a", "b", "c"] {
        world.put(trigger(name, "1"));
    }
    world.seconds(5);
    assert_eq!(world.memory.counts.of(&shared).writes, 1, "no fight over it");
    for name in ["a", "c"] {
        world.delete(&id("ConfigMap", "default", name));
        world.seconds(5);
        assert!(world.has(&shared), "after {name}");
        world.restart();
        world.seconds(5);
    }
    world.delete(&id("ConfigMap", "default", "b"));
    world.seconds(5);
    assert!(!world.has(&shared));
}

#[test]
fn a_missing_source_is_shown_before_other_work_that_waits() {
    let mut world = World::new();
    let generate = "{synchronize: true, apiVersion: v1, kind: Secret, name: t-made, namespace: default, clone: {name: source, namespace: default}}";
    world.apply(&policy("p", ON, generate));
    world.settle();
    world.put(trigger("t", "1"));
    world.seconds(1);
    let [(state, message)] = &requests(&world)[..] else { panic!("{:?}", requests(&world)) };
    assert_eq!(state, "Pending");
    assert!(message.contains("source resource v1/Secret/default/source not found"), "{message}");
    assert_eq!(reasons(&world), ["Missing"]);
}

#[test]
fn two_rules_that_want_different_things_of_one_object_do_not_fight() {
    let mut world = World::new();
    for name in ["p", "q"] {
        let generate = format!(
            "{{synchronize: true, apiVersion: v1, kind: Secret, name: t-made, namespace: default, data: {{stringData: {{by: {name}}}}}}}"
        );
        world.apply(&policy(name, ON, &generate));
    }
    world.settle();
    world.put(trigger("t", "1"));
    world.seconds(300);
    assert_eq!(world.memory.counts.of(&made()).writes, 1);
    let (key, condition) = world.controller.conditions().next().unwrap();
    assert_eq!(condition.reason, Waiting::Contested);
    let other = if key.rule.policy.name == "p" { "q" } else { "p" };
    let message = condition.message.clone();
    let wanted = format!(
        "v1/Secret/default/t-made is also generated by kyverno:{other}/r for v1/ConfigMap/default/t, with other content"
    );
    assert_eq!(message, wanted);
    assert_eq!(requests(&world), [("Pending".to_owned(), message)]);
    assert_eq!(reasons(&world), ["Contested"]);
}

#[test]
fn server_side_apply_puts_its_own_fields_right_and_leaves_those_of_others() {
    let mut world = World::new();
    world.apply(
        &made_secret(true)
            .replace("  background: false", "  background: false\n  useServerSideApply: true"),
    );
    world.settle();
    world.put(trigger("t", "1"));
    world.seconds(5);
    world.edit(&made(), &["data", "extra"], "eA==");
    world.edit(&made(), &["data", "k"], "Mg==");
    world.seconds(5);
    let live = world.get(&made()).unwrap();
    assert_eq!(live.str_at(["data", "k"]), Some("MQ=="));
    assert_eq!(live.str_at(["data", "extra"]), Some("eA=="));
}

#[test]
fn work_for_a_namespace_that_is_not_there_waits_for_it() {
    let mut world = World::new();
    world.apply(&made_secret(true).replace("namespace: default, data", "namespace: team, data"));
    world.settle();
    world.put(trigger("t", "1"));
    world.seconds(2);
    let made = id("Secret", "team", "t-made");
    world.put(namespace("team", value!({})));
    world.seconds(1);
    assert!(world.has(&made));
    world.delete(&id("Namespace", "", "team"));
    world.settle();
    world.memory.collect();
    world.seconds(120);
    assert!(!world.has(&made));
    world.put(namespace("team", value!({})));
    world.seconds(2);
    assert!(world.has(&made), "{:?}", world.conditions());
}

#[test]
fn a_request_of_somebody_else_whose_trigger_is_not_there_fails_and_stays_readable() {
    let mut world = World::new();
    world.apply(&made_secret(false));
    world.settle();
    world.put(value!({
        "apiVersion": "kyverno.io/v2", "kind": "UpdateRequest",
        "metadata": {"name": "ur-other", "namespace": "kyverno"},
        "spec": {
            "requestType": "generate", "policy": "p",
            "ruleContext": [{"rule": "r", "trigger": {"apiVersion": "v1", "kind": "ConfigMap", "namespace": "default", "name": "t", "uid": "nobody"}}],
            "context": {"admissionRequestInfo": {"operation": "CREATE"}},
        },
    }));
    world.seconds(10);
    let (state, message) = requests(&world).remove(0);
    assert_eq!(state, "Failed");
    assert!(message.contains("not found in the cluster"), "{message}");
    world.seconds(40);
    assert_eq!(states(&world), ["Failed"]);
    world.seconds(30);
    assert_eq!(requests(&world), []);
}

#[test]
fn a_request_of_somebody_else_fires_for_a_trigger_that_is_there() {
    let mut world = World::new();
    let old = world.put(trigger("t", "1"));
    world.apply(&made_secret(false));
    world.settle();
    assert!(!world.has(&made()));
    world.put(value!({
        "apiVersion": "kyverno.io/v2", "kind": "UpdateRequest",
        "metadata": {"name": "ur-other", "namespace": "kyverno"},
        "spec": {
            "requestType": "generate", "policy": "p",
            "ruleContext": [{"rule": "r", "trigger": {"apiVersion": "v1", "kind": "ConfigMap", "namespace": "default", "name": "t", "uid": metadata::uid(&old).unwrap()}}],
        },
    }));
    world.seconds(10);
    assert!(world.has(&made()));
    assert_eq!(requests(&world), [], "a completed one is gone within seconds");
}

#[test]
fn a_change_of_labels_that_makes_nothing_is_skipped_visibly() {
    let mut world = World::new();
    let rule = made_secret(false).replace(
        "    generate:",
        "    preconditions: {all: [{key: '{{request.object.data.k}}', operator: Equals, value: go}]}\n    generate:",
    );
    world.apply(&rule);
    world.settle();
    world.put(trigger("t", "1"));
    world.settle();
    world.edit(&id("ConfigMap", "default", "t"), &["metadata", "labels", "x"], "y");
    world.seconds(3);
    assert_eq!(states(&world), ["Skip"]);
    world.seconds(90);
    assert_eq!(requests(&world), []);
}

#[test]
fn memory_is_bounded_by_what_is_synchronised() {
    let mut world = World::new();
    world.apply(&made_secret(false));
    world.settle();
    for name in 0..200 {
        world.put(trigger(&format!("n{name}"), "1"));
    }
    world.seconds(5);
    assert_eq!(world.all(&Gvk::new("v1", "Secret")).len(), 200);
    assert_eq!(world.controller.keys_held(), 0, "what is served once is forgotten");
    world.apply(&made_secret(true));
    world.seconds(5);
    assert_eq!(world.controller.keys_held(), 200);
    for name in 0..200 {
        world.delete(&id("ConfigMap", "default", &format!("n{name}")));
    }
    world.seconds(5);
    assert_eq!(world.controller.keys_held(), 0);
}

fn records(world: &World) -> Vec<ObjectId> {
    let selector = Selector::parse("kiln.dev/record").unwrap();
    let kind = Gvk::new("v1", "ConfigMap");
    let found = world.memory.list(&kind, Some("kyverno"), &selector, None, None).unwrap();
    found.objects.iter().map(|object| ObjectId::of(object).unwrap()).collect()
}

#[test]
fn losing_the_records_deletes_nothing_and_keeps_what_is_claimed_in_step() {
    let mut world = World::new();
    world.apply(&made_secret(true));
    world.settle();
    world.put(trigger("t", "1"));
    world.put(trigger("u", "1"));
    world.seconds(5);
    for record in records(&world) {
        world.delete(&record);
    }
    world.delete(&id("Secret", "default", "u-made"));
    world.restart();
    world.seconds(5);
    assert!(world.has(&made()));
    assert!(world.has(&id("Secret", "default", "u-made")), "the policy is older than its triggers");
    world.edit(&made(), &["data", "k"], "Mg==");
    world.seconds(5);
    assert_eq!(world.get(&made()).unwrap().str_at(["data", "k"]), Some("MQ=="));
}

#[test]
fn losing_the_record_of_a_deleted_policy_leaves_what_it_made() {
    let mut world = World::new();
    world.apply(&made_secret(true));
    world.settle();
    world.put(trigger("t", "1"));
    world.seconds(5);
    for record in records(&world) {
        world.delete(&record);
    }
    world.delete(&id("ClusterPolicy", "", "p"));
    world.restart();
    world.seconds(700);
    assert!(world.has(&made()), "nothing is deleted only because its policy is missing");
}

#[test]
fn losing_the_checkpoint_runs_again_for_triggers_without_synchronize() {
    let mut world = World::new();
    world.apply(&made_secret(false));
    world.settle();
    world.put(trigger("t", "1"));
    world.seconds(5);
    world.edit(&made(), &["data", "k"], "Mg==");
    world.delete(&id("ConfigMap", "kyverno", "kiln-checkpoint"));
    world.restart();
    world.seconds(5);
    assert_eq!(
        world.get(&made()).unwrap().str_at(["data", "k"]),
        Some("Mg=="),
        "the existing object stays"
    );
}

#[test]
fn dying_between_any_two_steps_ends_in_the_same_state() {
    for steps in 0..40 {
        let mut world = World::new();
        world.put(namespace("source", value!({})));
        world.put(secret("source", "origin", value!({"k": "v"})));
        world.put(trigger("old", "1"));
        let copied = policy(
            "q",
            ON,
            "{synchronize: true, generateExisting: true, apiVersion: v1, kind: Secret, name: '{{request.object.metadata.name}}-copy', namespace: default, clone: {namespace: source, name: origin}}",
        );
        world.apply(&format!("{}---\n{copied}", made_secret(true)));
        for _ in 0..steps / 2 {
            world.deliver();
            world.step();
        }
        world.put(trigger("t", "1"));
        for _ in 0..steps - steps / 2 {
            world.deliver();
            world.step();
        }
        world.restart();
        world.seconds(20);
        let mut there: Vec<String> = world
            .all(&Gvk::new("v1", "Secret"))
            .iter()
            .map(|object| metadata::name(object).unwrap().to_owned())
            .collect();
        there.sort();
        assert_eq!(there, ["old-copy", "origin", "t-copy", "t-made"], "after {steps} steps");
        world.forget_calls();
        world.seconds(700);
        assert_eq!(world.writes(), Vec::<&Call>::new(), "after {steps} steps");
    }
}

#[test]
fn services_are_asked_by_the_host_and_nobody_waits_for_others() {
    let asks = policy(
        "p",
        ON,
        "{synchronize: true, apiVersion: v1, kind: Secret, name: '{{request.object.metadata.name}}-made', namespace: default, data: {stringData: {k: '{{found.price}}'}}}",
    )
    .replace(
        "    generate:",
        "    context: [{name: found, apiCall: {service: {url: 'http://prices/{{request.object.data.k}}'}}}]\n    generate:",
    );
    // No service is called unless users allow it.
    let mut world = World::new();
    world.apply(&asks);
    world.settle();
    world.put(trigger("t", "a"));
    world.seconds(1);
    assert!(world.controller.take_questions().is_empty());
    assert!(world.conditions()[0].contains("no services are allowed"), "{:?}", world.conditions());

    let mut world = World::new();
    world.settings.rules.services = true;
    world.restart();
    world.apply(&asks);
    world.settle();
    world.put(trigger("t", "a"));
    world.put(trigger("u", "b"));
    world.settle();
    let questions = world.controller.take_questions();
    let urls: Vec<_> = questions
        .iter()
        .map(|question| match &question.asked {
            Lookup::Service(asked) => asked.request().url.to_owned(),
            Lookup::Access(right) => panic!("{right:?}"),
        })
        .collect();
    assert_eq!(urls, ["http://prices/a", "http://prices/b"]);
    let answer = |price: &str| {
        let body = Some(value!({"price": price}));
        LookupResult::Service(Ok(kiln_engine::ServiceAnswer { status: 200, body }))
    };
    world.controller.answered(questions[0].number, answer("1"), world.now);
    world.settle();
    assert_eq!(world.get(&made()).unwrap().str_at(["data", "k"]), Some("MQ=="));
    assert!(!world.has(&id("Secret", "default", "u-made")), "it waits for its own answer");
    let failed =
        LookupResult::Service(Err(kiln_engine::ExternalDataError::failed("nothing answers")));
    world.controller.answered(questions[1].number, failed, world.now);
    world.settle();
    assert!(
        world.conditions().iter().any(|c| c.contains("nothing answers")),
        "{:?}",
        world.conditions()
    );
    // It is asked again when the work is tried again; what is known is not.
    world.seconds(10);
    let again = world.controller.take_questions();
    assert_eq!(again.len(), 1, "{again:?}");
    world.controller.answered(again[0].number, answer("2"), world.now);
    world.seconds(1);
    assert!(world.has(&id("Secret", "default", "u-made")), "{}", world.explain());
    world.delete(&made());
    world.seconds(1);
    assert!(world.has(&made()), "an answer counts for a while");
    assert!(world.controller.take_questions().is_empty());
}
