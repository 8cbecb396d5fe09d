//! Answers to calls that come after watches have told what happened since.

use crate::support::{World, id, made, made_secret, trigger};
use kiln_cluster::{Call, Verb};
use kiln_object::Gvk;

#[test]
fn what_is_gone_before_the_answer_to_its_creation_comes_is_made_again() {
    let mut world = World::new();
    world.apply(&made_secret(true));
    world.seconds(5);
    world.put(trigger("t", "v"));
    world.deliver();
    let mut created = 0;
    for _ in 0..100 {
        for request in world.controller.poll(world.now) {
            let answer = world.memory.call(&world.user, &request.call);
            let creates = request.call.verb() == Verb::Create && request.call.about() == made();
            if creates && created == 0 {
                world.delete(&made());
                // The watch tells of both before the answer arrives.
                world.deliver();
            }
            created += usize::from(creates);
            world.controller.answer(request.ticket, answer, world.now);
        }
        world.deliver();
    }
    world.seconds(5);
    assert!(world.has(&made()), "{}", world.explain());
    let creates = |call: &&&Call| call.verb() == Verb::Create && call.about() == made();
    created += world.writes().iter().filter(creates).count();
    assert_eq!(created, 2, "once more, and no more");
}

#[test]
fn a_list_that_is_older_than_a_deletion_brings_nothing_back() {
    let mut world = World::new();
    world.apply(&made_secret(true));
    world.put(trigger("t", "v"));
    world.seconds(5);
    assert!(world.has(&made()), "{}", world.explain());
    let config_maps = Gvk::new("v1", "ConfigMap");
    let watches = world.controller.watches();
    let (_, mut after) = watches.into_iter().find(|(gvk, _)| *gvk == config_maps).unwrap();
    // The kind is listed again; the answer was read, and is pending.
    world.now += world.settings.resync + 1;
    let (mut late, mut requests) = (Vec::new(), world.controller.poll(world.now));
    while !requests.is_empty() {
        for request in requests {
            let answer = world.memory.call(&world.user, &request.call);
            let lists = matches!(&request.call, Call::List { kind, .. } if *kind == config_maps);
            if lists {
                late.push((request.ticket, answer));
            } else {
                world.controller.answer(request.ticket, answer, world.now);
            }
        }
        world.deliver();
        requests = world.controller.poll(world.now);
    }
    assert_eq!(late.len(), 1, "ConfigMaps are listed again");
    // Meanwhile the trigger goes, and its watch, which went on, tells of that.
    world.delete(&id("ConfigMap", "default", "t"));
    let (events, upto) = world.memory.watch(&world.user, &config_maps, after, 1_000).unwrap();
    for event in events {
        after = after.max(event.revision);
        world.controller.watched(&config_maps, &event, world.now);
    }
    world.controller.watched_upto(&config_maps, upto.max(after));
    for (ticket, answer) in late {
        world.controller.answer(ticket, answer, world.now);
    }
    world.seconds(300);
    assert!(!world.has(&made()), "made again for a trigger that is gone");
}
