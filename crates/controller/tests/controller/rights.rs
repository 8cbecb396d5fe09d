//! Rights that are missing, and come back.

use kiln_cluster::{Call, Verb};
use kiln_testkit::memory::Decision;
use kiln_value::{Value, value};

use crate::support::{World, id, made_secret, trigger};

const NAMES: [&str; 4] = ["a", "b", "c", "d"];

fn role() -> Value {
    value!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": "secrets"},
        "rules": [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["*"]}],
    })
}

/// Triggers that came one after the other and have waited so long that each is tried once a minute.
fn waiting(verb: Verb) -> World {
    let mut world = World::new();
    world.put(crate::support::namespace("default", value!({})));
    world.memory.access.set(Decision::Deny, "*", Some(verb), "Secret", "*");
    world.apply(&made_secret(true));
    world.seconds(5);
    for name in NAMES {
        world.put(trigger(name, "one"));
        world.seconds(47);
    }
    world.seconds(300);
    assert!(NAMES.iter().all(|name| !is_made(&world, name)), "{}", world.explain());
    world
}

fn is_made(world: &World, name: &str) -> bool {
    world.has(&id("Secret", "default", &format!("{name}-made")))
}

#[test]
fn everything_that_waits_goes_on_when_a_role_comes() {
    for verb in [Verb::Create, Verb::List] {
        let mut world = waiting(verb);
        world.memory.access.clear();
        world.put(role());
        world.seconds(1);
        let missing: Vec<_> = NAMES.iter().filter(|name| !is_made(&world, name)).collect();
        assert!(missing.is_empty(), "{verb}: {missing:?}: {}", world.explain());
    }
}

#[test]
fn the_first_that_goes_through_takes_the_others_along() {
    let mut world = waiting(Verb::Create);
    // These permissions are not watched: something else than roles decides.
    world.memory.access.clear();
    let mut waited = 0;
    while !NAMES.iter().any(|name| is_made(&world, name)) {
        world.seconds(1);
        waited += 1;
        assert!(waited <= 61, "{}", world.explain());
    }
    world.seconds(4);
    let missing: Vec<_> = NAMES.iter().filter(|name| !is_made(&world, name)).collect();
    assert!(missing.is_empty(), "{missing:?}: {}", world.explain());
}

#[test]
fn roles_that_change_all_the_time_do_not_make_the_forbidden_busy() {
    let mut world = waiting(Verb::Create);
    world.forget_calls();
    for round in 0..60 {
        let mut role = role();
        role.set(["metadata", "labels"], value!({"round": format!("r{round}")})).unwrap();
        world.put(role);
        world.seconds(1);
    }
    let tries = world.calls.iter().filter(|call| {
        matches!(call, Call::Create { object, .. } if object.str_at(["kind"]) == Some("Secret"))
    });
    // Once in three seconds, and once more soon after each.
    let tries = tries.count();
    assert!(tries <= NAMES.len() * 41, "{tries}");
}
