//! What only requests know: who sent them, those that store nothing, those of people who are kept out; told in the
//! process, or written down by another one that may be gone by now.

use crate::support::{
    World, admin, creator_policy, hint, id, made, made_secret, nancy, policy, trigger,
};
use kiln_engine::ObservedRequest;
use kiln_object::{Gvk, ObjectId, metadata};
use kiln_rules::Operation;
use kiln_value::{Value, value};

fn exec_policy() -> String {
    policy(
        "p",
        "{kinds: [Pod/exec]}",
        "{synchronize: false, apiVersion: v1, kind: ConfigMap, name: 'exec-{{request.name}}', namespace: default, data: {data: {by: '{{request.userInfo.username}}'}}}",
    )
}

fn exec(name: &str) -> ObservedRequest {
    let pod = ObjectId::new(Gvk::new("v1", "Pod"), "default", name);
    let sent = value!({"apiVersion": "v1", "kind": "PodExecOptions", "command": ["sh"]});
    ObservedRequest {
        subresource: "exec".into(),
        ..hint(&nancy(), Operation::Connect, &pod, Some(sent), None)
    }
}

#[test]
fn a_rule_that_asks_for_the_user_waits_for_the_request_and_remembers_it() {
    let mut world = World::new();
    world.apply(&creator_policy());
    world.settle();
    world.put_as(&admin(), trigger("t", "1"));
    world.seconds(5);
    assert!(!world.has(&made()), "admins are excluded");
    world.put_as(&nancy(), trigger("t", "2"));
    world.seconds(5);
    assert_eq!(
        world.get(&made()).unwrap().str_at(["data", "by"]),
        Some("bmFuY3k="),
        "{:?}",
        world.conditions()
    );
    world.restart();
    world.settle();
    world.delete(&made());
    world.seconds(5);
    assert_eq!(world.get(&made()).unwrap().str_at(["data", "by"]), Some("bmFuY3k="));
    world.delete_as(&admin(), &id("ConfigMap", "default", "t"));
    world.seconds(1_300);
    assert!(world.has(&made()), "an admin's deletion is none of the rule's business");
    world.restart();
    world.seconds(700);
    assert!(world.has(&made()));
}

#[test]
fn a_change_by_nobody_knows_whom_does_not_fire_a_rule_that_asks() {
    let mut world = World::new();
    world.apply(&creator_policy());
    world.settle();
    world.put(trigger("t", "1"));
    world.seconds(30);
    assert!(!world.has(&made()));
    assert_eq!(world.controller.conditions().count(), 1);
    let live = world.get(&id("ConfigMap", "default", "t")).unwrap();
    world.hint(&nancy(), Operation::Create, &id("ConfigMap", "default", "t"), Some(live), None);
    world.seconds(1);
    assert!(world.has(&made()), "the request may come after the change");
}

#[test]
fn requests_that_store_nothing_fire_at_once_and_trials_never() {
    let mut world = World::new();
    world.apply(&exec_policy());
    world.settle();
    world.controller.hint(exec("a"), world.now);
    world.controller.hint(ObservedRequest { dry_run: true, ..exec("b") }, world.now);
    world.seconds(5);
    let made = world.get(&id("ConfigMap", "default", "exec-a")).unwrap();
    assert_eq!(made.str_at(["data", "by"]), Some("nancy"));
    assert_eq!(metadata::label(&made, "generate.kyverno.io/trigger-kind"), Some("PodExecOptions"));
    assert!(!world.has(&id("ConfigMap", "default", "exec-b")));
    world.seconds(1_300);
    assert!(world.has(&id("ConfigMap", "default", "exec-a")));
    assert_eq!(world.controller.keys_held(), 0);
}

fn trigger_id() -> ObjectId {
    id("ConfigMap", "default", "t")
}

/// A hint about the trigger as it is stored.
fn about_stored(world: &World, operation: Operation) -> ObservedRequest {
    let live = world.get(&trigger_id());
    match operation {
        Operation::Delete => hint(&nancy(), operation, &trigger_id(), None, live),
        _ => hint(&nancy(), operation, &trigger_id(), live, None),
    }
}

/// Runs a case with the process dying and coming back at every moment of it.
fn at_every_moment(case: impl Fn(&mut World, &mut dyn FnMut(&mut World))) {
    for dies_at in 0..4 {
        let mut world = World::new();
        let mut moment = 0;
        let mut may_die = |world: &mut World| {
            if moment == dies_at {
                world.restart();
            }
            moment += 1;
        };
        case(&mut world, &mut may_die);
        world.seconds(5);
        assert_eq!(world.carried(), 0, "nothing is left behind, died at {dies_at}");
    }
}

#[test]
fn who_sent_a_request_is_known_to_other_processes_and_later_lives() {
    at_every_moment(|world, may_die| {
        world.apply(&creator_policy());
        world.seconds(1);
        world.put(trigger("t", "1"));
        may_die(world);
        world.step();
        may_die(world);
        let hint = about_stored(world, Operation::Create);
        world.carry(&hint);
        may_die(world);
        world.seconds(3);
        assert_eq!(
            world.get(&made()).and_then(|made| made.str_at(["data", "by"]).map(str::to_owned)),
            Some("bmFuY3k=".to_owned()),
            "{}",
            world.explain()
        );
    });
}

#[test]
fn the_end_of_an_object_fires_although_nobody_watched_it() {
    let on_delete = policy(
        "p",
        "{kinds: [ConfigMap], operations: [DELETE]}",
        "{synchronize: false, apiVersion: v1, kind: Secret, name: '{{request.oldObject.metadata.name}}-made', namespace: default, data: {stringData: {k: '{{request.oldObject.data.k}}'}}}",
    );
    at_every_moment(|world, may_die| {
        world.apply(&on_delete);
        world.put(trigger("t", "1"));
        world.seconds(1);
        let hint = about_stored(world, Operation::Delete);
        world.carry(&hint);
        may_die(world);
        world.step();
        world.delete(&trigger_id());
        may_die(world);
        world.seconds(3);
        assert!(world.has(&made()), "{}", world.explain());
        assert_eq!(world.get(&made()).unwrap().str_at(["data", "k"]), Some("MQ=="));
    });
    // A watch that was faster has said it all.
    let mut world = World::new();
    world.apply(&on_delete);
    world.put(trigger("t", "1"));
    world.seconds(1);
    let hint = about_stored(&world, Operation::Delete);
    world.delete(&trigger_id());
    world.seconds(1);
    world.delete(&made());
    world.carry(&hint);
    world.seconds(5);
    assert!(!world.has(&made()), "it fires once: {}", world.explain());
    assert_eq!(world.carried(), 0);
}

#[test]
fn requests_that_store_nothing_are_served_by_later_lives() {
    at_every_moment(|world, may_die| {
        world.apply(&exec_policy());
        world.seconds(1);
        may_die(world);
        world.carry(&exec("a"));
        may_die(world);
        world.step();
        may_die(world);
        world.seconds(3);
        let made = world.get(&id("ConfigMap", "default", "exec-a")).expect("it was made");
        assert_eq!(made.str_at(["data", "by"]), Some("nancy"));
    });
}

#[test]
fn an_object_sent_again_as_it_is_fires_in_later_lives() {
    at_every_moment(|world, may_die| {
        world.put(trigger("t", "1"));
        world.apply(&made_secret(true));
        world.seconds(1);
        assert!(!world.has(&made()), "it was there before the rule");
        let live = world.get(&trigger_id());
        let again = hint(&nancy(), Operation::Update, &trigger_id(), live.clone(), live);
        may_die(world);
        world.carry(&again);
        may_die(world);
        world.seconds(3);
        assert!(world.has(&made()), "{}", world.explain());
    });
}

#[test]
fn a_request_that_was_refused_later_comes_to_nothing() {
    let mut world = World::new();
    world.apply(&creator_policy());
    world.seconds(1);
    let mut never = trigger("t", "1");
    never.set(["metadata", "uid"], "nobody").unwrap();
    world.carry(&hint(&nancy(), Operation::Create, &trigger_id(), Some(never), None));
    world.seconds(30);
    assert_eq!(world.carried(), 1, "the change may still come");
    world.seconds(60);
    assert_eq!(world.carried(), 0);
    assert!(!world.has(&made()));
}

#[test]
fn people_who_are_kept_out_fire_no_rule() {
    let out = |hint: ObservedRequest| ObservedRequest { passed_over: true, ..hint };
    for before in [true, false] {
        at_every_moment(|world, may_die| {
            world.settings.requests.patience = 300;
            world.restart();
            world.apply(&made_secret(true));
            world.seconds(1);
            if before {
                let mut sent = trigger("t", "1");
                sent.set(["metadata", "uid"], Value::Null).unwrap();
                world.carry(&out(hint(
                    &nancy(),
                    Operation::Create,
                    &trigger_id(),
                    Some(sent),
                    None,
                )));
                world.put(trigger("t", "1"));
            } else {
                world.put(trigger("t", "1"));
                let hint = out(about_stored(world, Operation::Create));
                world.carry(&hint);
            }
            may_die(world);
            world.settle();
            may_die(world);
            world.seconds(5);
            may_die(world);
            world.seconds(5);
            assert!(!world.has(&made()), "before {before}: {}", world.explain());
            // A user who is not excluded makes it a trigger.
            world.put(trigger("t", "2"));
            world.seconds(5);
            assert!(world.has(&made()), "before {before}: {}", world.explain());
            world.carry(&out(about_stored(world, Operation::Delete)));
            world.delete(&trigger_id());
            world.seconds(5);
            assert!(!world.has(&made()), "what is left of a trigger goes with it");
        });
    }
}

#[test]
fn conditions_of_the_webhook_count_where_nobody_asks_it() {
    let with = |expression: &str| {
        let conditions = format!(
            "spec:\n  webhookConfiguration: {{matchConditions: [{{name: c, expression: \"{expression}\"}}]}}\n"
        );
        made_secret(true).replace("spec:\n", &conditions)
    };
    // By the object alone.
    let mut world = World::new();
    world.apply(&with("object.data.k != 'never'"));
    world.settle();
    world.put(trigger("t", "never"));
    world.seconds(5);
    assert!(!world.has(&made()), "{}", world.explain());
    world.put(trigger("t", "1"));
    world.seconds(5);
    assert!(world.has(&made()), "{}", world.explain());
    let content =
        |world: &World| world.get(&made()).unwrap().str_at(["data", "k"]).map(str::to_owned);
    world.put(trigger("t", "never"));
    world.seconds(5);
    assert_eq!(content(&world).as_deref(), Some("MQ=="), "no webhook would have been called");
    world.delete(&trigger_id());
    world.seconds(5);
    assert!(!world.has(&made()), "what is left of a trigger goes with it");
    // By the request: only when it is known.
    let mut world = World::new();
    world.apply(&with("request.userInfo.username == 'nancy'"));
    world.settle();
    world.put(trigger("t", "1"));
    world.seconds(5);
    assert!(!world.has(&made()), "the user is unknown");
    world.put_as(&admin(), trigger("t", "2"));
    world.seconds(5);
    assert!(!world.has(&made()), "another user");
    world.put_as(&nancy(), trigger("t", "3"));
    world.seconds(5);
    assert!(world.has(&made()), "{}", world.explain());
    world.restart();
    world.settle();
    world.delete(&made());
    world.seconds(5);
    assert!(world.has(&made()), "it is a trigger from then on");
}
