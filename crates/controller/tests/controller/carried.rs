//! Requests that were written down without a leader: the next leader serves them, all of them, as the
//! requests say and in their order.

use crate::support::{
    World, admin, creator_policy, hint, id, made, namespace, nancy, policy, trigger,
};
use kiln_cluster::Verb;
use kiln_engine::{ObservedRequest, User};
use kiln_object::{Gvk, ObjectId, metadata};
use kiln_rules::Operation;
use kiln_testkit::memory::Decision;
use kiln_value::{Value, value};

fn user(name: &str) -> User {
    User { username: name.into(), ..User::default() }
}

/// Changes an object as a user whose request is stored, without a leader.
fn change_unwatched(world: &mut World, user: &User, object: Value) {
    let id = ObjectId::of(&object).unwrap();
    let old = world.get(&id);
    let operation = if old.is_some() { Operation::Update } else { Operation::Create };
    if operation == Operation::Create {
        let stored = world.put(object);
        return world.carry(&hint(user, operation, &id, Some(stored), None));
    }
    let mut sent = object.clone();
    let uid = old.as_ref().and_then(metadata::uid).unwrap().to_owned();
    sent.set(["metadata", "uid"], uid).unwrap();
    world.carry(&hint(user, operation, &id, Some(sent), old));
    world.put(object);
}

fn text(world: &World, id: &ObjectId, key: &str) -> Option<String> {
    world.get(id).and_then(|object| object.str_at(["data", key]).map(str::to_owned))
}

/// Makes a ConfigMap of each Namespace that a user other than an administrator touches. Namespaces have a status.
fn namespace_policy(synchronize: bool) -> String {
    let generate = format!(
        "{{synchronize: {synchronize}, apiVersion: v1, kind: ConfigMap, name: made, namespace: '{{{{request.name}}}}', data: {{data: {{by: '{{{{request.userInfo.username}}}}'}}}}}}"
    );
    policy("p", "{kinds: [Namespace], names: [shop]}", &generate).replace(
        "    generate:",
        "    exclude: {any: [{clusterRoles: [cluster-admin]}]}\n    generate:",
    )
}

#[test]
fn an_update_that_was_only_listed_fires_for_whoever_sent_it() {
    for (synchronize, older) in [(true, true), (true, false), (false, true), (false, false)] {
        let mut world = World::new();
        if older {
            world.put(namespace("shop", value!({})));
            world.seconds(5);
        }
        world.apply(&namespace_policy(synchronize));
        world.seconds(5);
        if !older {
            world.put_as(&admin(), namespace("shop", value!({})));
            world.seconds(5);
        }
        let made = id("ConfigMap", "shop", "made");
        assert!(!world.has(&made), "no rule asked for it yet");
        change_unwatched(&mut world, &nancy(), namespace("shop", value!({"a": "b"})));
        world.restart();
        world.seconds(5);
        let about = format!("synchronize {synchronize}, older {older}");
        assert_eq!(
            text(&world, &made, "by").as_deref(),
            Some("nancy"),
            "{about}: {}",
            world.explain()
        );
        assert_eq!(world.carried(), 0, "{about}");
    }
}

#[test]
fn an_update_that_was_refused_later_fires_nothing_although_the_status_changed() {
    let mut world = World::new();
    world.put(namespace("shop", value!({})));
    world.seconds(5);
    world.apply(&namespace_policy(true));
    world.seconds(5);
    let shop = id("Namespace", "", "shop");
    let old = world.get(&shop);
    let mut sent = old.clone().unwrap();
    sent.set(["metadata", "labels", "a"], "b").unwrap();
    world.carry(&hint(&nancy(), Operation::Update, &shop, Some(sent), old));
    world.edit(&shop, &["status", "phase"], "Terminating");
    world.restart();
    world.seconds(90);
    assert!(!world.has(&id("ConfigMap", "shop", "made")), "{}", world.explain());
    assert_eq!(world.carried(), 0);
}

#[test]
fn the_end_of_an_object_fires_while_finalizers_hold_it() {
    let on_delete = policy(
        "p",
        "{kinds: [ConfigMap], operations: [DELETE]}",
        "{synchronize: false, apiVersion: v1, kind: Secret, name: '{{request.oldObject.metadata.name}}-made', namespace: default, data: {stringData: {k: '{{request.oldObject.data.k}}'}}}",
    );
    let mut world = World::new();
    world.apply(&on_delete);
    let mut held = trigger("t", "1");
    held.set(["metadata", "finalizers"], value!(["example.org/hold"])).unwrap();
    world.put(held);
    world.seconds(1);
    let t = id("ConfigMap", "default", "t");
    let live = world.get(&t);
    world.carry(&hint(&nancy(), Operation::Delete, &t, None, live));
    world.delete(&t);
    assert!(world.has(&t), "its finalizer holds it");
    world.restart();
    world.seconds(5);
    assert_eq!(text(&world, &made(), "k").as_deref(), Some("MQ=="), "{}", world.explain());
    assert_eq!(world.carried(), 0);
    world.delete(&made());
    world.edit(&t, &["metadata", "finalizers"], value!([]));
    world.seconds(5);
    assert!(!world.has(&t) && !world.has(&made()), "it fires once");
}

#[test]
fn requests_wait_until_their_kind_can_be_listed() {
    let mut world = World::new();
    world.apply(
        &namespace_policy(true)
            .replace("Namespace]", "Pod]")
            .replace("{{request.name}}", "default"),
    );
    world.seconds(2);
    let user = world.user.clone();
    world.memory.access.set(Decision::Deny, &user, None, "Pod", "*");
    world.restart();
    world.seconds(5);
    let pod = value!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "shop", "namespace": "default"},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    });
    change_unwatched(&mut world, &nancy(), pod);
    world.seconds(600);
    assert_eq!(world.carried(), 1, "no rule has seen the Pod yet");
    world.memory.access.clear();
    world.seconds(120);
    let made = id("ConfigMap", "default", "made");
    assert_eq!(text(&world, &made, "by").as_deref(), Some("nancy"), "{}", world.explain());
    assert_eq!(world.carried(), 0);
}

#[test]
fn rights_that_are_withdrawn_while_a_request_waits_cost_nothing() {
    let mut world = World::new();
    world.apply(&creator_policy());
    world.seconds(2);
    let t = id("ConfigMap", "default", "t");
    let config_maps = Gvk::new("v1", "ConfigMap");
    let user = world.user.clone();
    // The request is known, its change is not, and then nothing more can be seen.
    let mut sent = trigger("t", "1");
    sent.set(["metadata", "uid"], Value::Null).unwrap();
    world.carry(&hint(&nancy(), Operation::Create, &t, Some(sent), None));
    world.settle();
    world.memory.access.set(Decision::Deny, &user, None, "ConfigMap", "*");
    world.controller.watch_lost(&config_maps);
    world.seconds(1);
    world.put(trigger("t", "1"));
    world.seconds(300);
    assert_eq!(world.carried(), 1);
    world.memory.access.clear();
    world.seconds(120);
    assert_eq!(text(&world, &made(), "by").as_deref(), Some("bmFuY3k="), "{}", world.explain());
    assert_eq!(world.carried(), 0);
}

#[test]
fn a_policy_that_does_not_act_yet_holds_up_nobody_and_misses_nothing() {
    let mut world = World::new();
    world.apply(&creator_policy());
    world.seconds(2);
    // The record of the second policy cannot be stored.
    let user = world.user.clone();
    world.memory.access.set(Decision::Deny, &user, Some(Verb::Create), "ConfigMap", "*");
    let second = creator_policy().replace("name: p}", "name: q}").replace("t-made", "t-second");
    world.apply(&second);
    world.seconds(2);
    let second = id("Secret", "default", "t-second");
    change_unwatched(&mut world, &nancy(), trigger("t", "1"));
    world.seconds(30);
    assert!(world.has(&made()), "{}", world.explain());
    assert!(!world.has(&second), "its policy does not act");
    world.seconds(300);
    world.memory.access.clear();
    world.seconds(60);
    assert_eq!(text(&world, &second, "by").as_deref(), Some("bmFuY3k="), "{}", world.explain());
    assert_eq!(world.carried(), 0);
}

#[test]
fn a_full_table_of_requests_loses_none_that_is_written_down() {
    let mut world = World::new();
    world.settings.requests.hints = 2;
    world.restart();
    world.apply(&creator_policy().replace("t-made", "'{{request.name}}-made'"));
    world.seconds(2);
    for number in 0..6 {
        let name = format!("t{number}");
        let mut sent = trigger(&name, "1");
        sent.set(["metadata", "uid"], Value::Null).unwrap();
        let id = id("ConfigMap", "default", &name);
        world.carry(&hint(&nancy(), Operation::Create, &id, Some(sent), None));
    }
    world.seconds(1);
    for number in 0..6 {
        world.put(trigger(&format!("t{number}"), "1"));
    }
    world.seconds(5);
    for number in 0..6 {
        let made = id("Secret", "default", &format!("t{number}-made"));
        assert!(world.has(&made), "{made}: {}", world.explain());
    }
    assert_eq!(world.carried(), 0);
}

#[test]
fn requests_are_taken_in_the_order_in_which_they_came() {
    for (first, last) in [("a", "b"), ("b", "a"), ("c", "d"), ("d", "c"), ("e", "f"), ("f", "e")] {
        let mut world = World::new();
        world.put(trigger("t", "0"));
        world.seconds(2);
        world.apply(&creator_policy());
        world.seconds(2);
        change_unwatched(&mut world, &user(first), trigger("t", "1"));
        change_unwatched(&mut world, &user(last), trigger("t", "2"));
        world.restart();
        world.seconds(5);
        let by = world.get(&made()).unwrap();
        let by = letter(by.str_at(["data", "by"]).unwrap());
        assert_eq!(by, last, "after {first}: {}", world.explain());
    }
}

/// One letter, out of base64.
fn letter(text: &str) -> String {
    let table = ["YQ==", "Yg==", "Yw==", "ZA==", "ZQ==", "Zg=="];
    let at = table.iter().position(|known| *known == text).unwrap();
    ["a", "b", "c", "d", "e", "f"][at].to_owned()
}

#[test]
fn an_event_whose_sender_is_unknown_yet_waits_while_others_are_served() {
    let mut world = World::new();
    let by_user = creator_policy()
        .replace("synchronize: true", "synchronize: false")
        .replace("t-made", "'{{request.userInfo.username}}-made'");
    world.apply(&by_user);
    world.seconds(1);
    let t = id("ConfigMap", "default", "t");
    // The request behind the creation arrives late.
    world.put(trigger("t", "1"));
    world.seconds(1);
    let live = world.get(&t);
    let creation: ObservedRequest = hint(&user("bob"), Operation::Create, &t, live, None);
    world.put_as(&nancy(), trigger("t", "2"));
    world.seconds(5);
    assert!(world.has(&id("Secret", "default", "nancy-made")), "{}", world.explain());
    world.carry(&creation);
    world.seconds(5);
    assert!(world.has(&id("Secret", "default", "bob-made")), "{}", world.explain());
    assert_eq!(world.carried(), 0);
    world.seconds(120);
    assert_eq!(world.controller.keys_held(), 0, "{}", world.explain());
}

#[test]
fn an_unknown_sender_is_not_taken_for_another() {
    let mut world = World::new();
    world.apply(&creator_policy());
    world.seconds(1);
    world.put_as(&nancy(), trigger("t", "1"));
    world.seconds(90);
    assert_eq!(text(&world, &made(), "by").as_deref(), Some("bmFuY3k="));
    let t = id("ConfigMap", "default", "t");
    let before = world.get(&t);
    world.put(trigger("t", "2"));
    world.seconds(1);
    let after = world.get(&t);
    world.carry(&hint(&user("b"), Operation::Update, &t, after, before));
    world.seconds(5);
    assert_eq!(text(&world, &made(), "by").as_deref(), Some("Yg=="), "{}", world.explain());
    assert_eq!(world.carried(), 0);
}
