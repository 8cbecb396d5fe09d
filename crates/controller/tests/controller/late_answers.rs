//! Answers to calls that come after watches have told what happened since.

use crate::support::{World, made, made_secret, trigger};
use kiln_cluster::{Call, Verb};

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
