//! Several processes, and what goes wrong between them and the server.

use kiln_object::{Gvk, Selector};
use kiln_world::{FaultRates, TimelineEvent, World, WorldOptions};

use crate::support::{QUOTAS, apply, id, objects, settle, world};

fn namespaces(world: &mut World, numbers: std::ops::Range<u32>) {
    for number in numbers {
        let text = format!(
            "{{apiVersion: v1, kind: Namespace, metadata: {{name: shop-{number}, labels: {{quota: 'yes'}}}}}}"
        );
        // Where no replica can be reached, the API server refuses the write, as users see it in a cluster.
        let _ = world.apply(&objects(&text)[0], "default");
        world.run_now();
    }
}

#[test]
fn another_replica_takes_over_when_the_leader_is_gone() {
    let mut world = world(&WorldOptions { replicas: 2, ..WorldOptions::default() });
    apply(&mut world, QUOTAS);
    assert_eq!(world.leaders(), [0]);
    let limit = world.now() + 60_000;
    world.run_until(limit);
    assert_eq!(world.leaders(), [0], "it renews the Lease");
    world.restart(0);
    namespaces(&mut world, 0..1);
    let limit = world.now() + 30_000;
    world.run_until(limit);
    assert_eq!(world.leaders().len(), 1);
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

#[test]
fn whatever_goes_wrong_it_comes_to_the_same_end() {
    for seed in 0..4 {
        let options = WorldOptions { seed, replicas: 2, shuffled: true, ..WorldOptions::default() };
        let mut world = world(&options);
        apply(&mut world, QUOTAS);
        world.set_faults(FaultRates::usual());
        for round in 0..4 {
            namespaces(&mut world, round * 2..round * 2 + 2);
            let _ = world.delete(&id("v1", "ConfigMap", &format!("shop-{round}"), "quota"));
            let limit = world.now() + 5_000;
            world.run_until(limit);
        }
        world.set_faults(FaultRates::none());
        let limit = world.now() + 300_000;
        world.run_until(limit);
        let all = world.list(&Gvk::new("v1", "Namespace"), None, Selector::everything()).unwrap();
        for namespace in all.iter().filter_map(|one| one.str_at(["metadata", "name"])) {
            let quota = world.get(&id("v1", "ConfigMap", namespace, "quota")).unwrap();
            assert_eq!(quota.is_some(), namespace.starts_with("shop-"), "{seed}: {namespace}");
        }
        let (told, _) = world.timeline(0);
        let is_fault = |what: &TimelineEvent| matches!(what, TimelineEvent::Fault { .. });
        assert!(told.iter().any(|entry| is_fault(&entry.what)), "something went wrong");
        let before = world.revision();
        settle(&mut world, 60);
        assert_eq!(world.revision(), before, "{seed}: nothing more is written");
    }
}
