//! Several processes, and what goes wrong between them and the server.

use kiln_world::{World, WorldOptions};

use crate::support::{QUOTAS, apply, id, settle, world};

#[test]
fn another_replica_takes_over_when_the_leader_is_gone() {
    let mut world = world(&WorldOptions { replicas: 2, ..WorldOptions::default() });
    apply(&mut world, QUOTAS);
    assert_eq!(world.leaders(), [0]);
    let limit = world.now() + 60_000;
    world.run_until(limit);
    assert_eq!(world.leaders(), [0], "it renews the Lease");
    world.restart(0);
    assert_eq!(world.leaders(), [0; 0], "a new process waits for the Lease");
    let limit = world.now() + 30_000;
    world.run_until(limit);
    assert_eq!(world.leaders().len(), 1, "{}", told(&world));
    apply(
        &mut world,
        "{apiVersion: v1, kind: Namespace, metadata: {name: shop-0, labels: {quota: 'yes'}}}",
    );
    // The replica that answered the request may be the other one: then the leader waits a moment for what only it knows.
    settle(&mut world, 1);
    let quota = world.get(&id("v1", "ConfigMap", "shop-0", "quota")).unwrap();
    assert!(quota.is_some(), "{}", told(&world));
}

/// What happened last, for those who look why a test fails.
fn told(world: &World) -> String {
    let (entries, _) = world.timeline(0);
    let last = entries.iter().rev().take(60).rev();
    let lines: Vec<String> = last.map(|entry| format!("{} {entry}", entry.at)).collect();
    format!("{}\nwaiting: {:?}", lines.join("\n"), world.waiting())
}
