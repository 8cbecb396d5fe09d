//! Claims that no key of the engine's has signed, because an older version wrote them or the key is lost: what they are on
//! stays as it is, and is kept in step.

use crate::support::{
    World, admin, claim_keys, config_map, creator_policy, id, made, made_secret, namespace, nancy,
    policy, trigger,
};
use kiln_cluster::Verb;
use kiln_controller::ClaimKeys;
use kiln_object::{ObjectId, metadata};
use kiln_value::{Value, value};

/// How it comes that what is stored is not signed by a key that the engine has.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Unsigned {
    /// An older version wrote it.
    OlderVersion,
    /// The keys were lost, and new ones made.
    LostKeys,
}

const WAYS: [Unsigned; 2] = [Unsigned::OlderVersion, Unsigned::LostKeys];

/// A cluster before the upgrade, or before the keys were lost.
fn before(way: Unsigned) -> World {
    let mut world = World::new();
    if way == Unsigned::OlderVersion {
        world.settings.claim_keys = ClaimKeys::default();
        world.restart();
    }
    world
}

/// The new process, with keys that have signed nothing.
fn upgrade(world: &mut World) {
    world.settings.claim_keys = claim_keys(9);
    world.restart();
    world.forget_calls();
    world.seconds(10);
}

fn signature(world: &World, id: &ObjectId) -> Option<String> {
    metadata::annotation(&world.get(id)?, "kiln.dev/signature").map(str::to_owned)
}

#[test]
fn nothing_is_written_or_deleted_and_changes_are_followed() {
    for way in WAYS {
        let mut world = before(way);
        world.apply(&made_secret(true));
        world.seconds(2);
        world.put(trigger("t", "1"));
        world.seconds(2);
        let stored = world.get(&made()).unwrap();
        upgrade(&mut world);
        assert_eq!(world.get(&made()).as_ref(), Some(&stored), "{way:?}: {}", world.explain());
        assert!(world.writes().is_empty(), "{way:?}: {}", world.explain());
        world.put(trigger("t", "2"));
        world.seconds(2);
        let changed = world.get(&made()).unwrap();
        assert_eq!(changed.str_at(["data", "k"]), Some("Mg=="), "{way:?}: {}", world.explain());
        assert_eq!(metadata::uid(&changed), metadata::uid(&stored), "{way:?}");
        assert_eq!(world.writes().len(), 1, "{way:?}: {}", world.explain());
        assert!(signature(&world, &made()).unwrap().starts_with("v1:9-key:"), "{way:?}");
        world.delete(&made());
        world.seconds(5);
        assert!(world.has(&made()), "{way:?}: {}", world.explain());
        world.delete(&id("ConfigMap", "default", "t"));
        world.seconds(5);
        assert!(!world.has(&made()), "{way:?}: {}", world.explain());
    }
}

#[test]
fn what_is_deleted_is_made_again_and_what_lost_its_trigger_goes() {
    for way in WAYS {
        let mut world = before(way);
        world.apply(&made_secret(true));
        world.seconds(2);
        for name in ["t", "u"] {
            world.put(trigger(name, "1"));
        }
        world.seconds(2);
        upgrade(&mut world);
        world.delete(&made());
        world.delete(&id("ConfigMap", "default", "u"));
        world.seconds(5);
        assert!(world.has(&made()), "{way:?}: {}", world.explain());
        assert!(!world.has(&id("Secret", "default", "u-made")), "{way:?}: {}", world.explain());
    }
}

#[test]
fn what_depends_on_who_caused_it_stays_until_the_next_request() {
    for way in WAYS {
        let mut world = before(way);
        world.apply(&creator_policy());
        world.seconds(2);
        world.put_as(&nancy(), trigger("t", "1"));
        world.seconds(2);
        let stored = world.get(&made()).unwrap();
        assert_eq!(stored.str_at(["data", "by"]), Some("bmFuY3k="), "{}", world.explain());
        upgrade(&mut world);
        world.seconds(120);
        assert_eq!(world.get(&made()).as_ref(), Some(&stored), "{way:?}: {}", world.explain());
        assert!(world.writes().is_empty(), "{way:?}: {}", world.explain());
        assert_eq!(world.conditions(), Vec::<String>::new(), "{way:?}");
        world.put_as(&nancy(), trigger("t", "2"));
        world.seconds(3);
        assert!(world.has(&made()), "{way:?}: {}", world.explain());
        // A user whom the rule excludes changes nothing.
        world.put_as(&admin(), trigger("t", "3"));
        world.seconds(3);
        assert!(world.has(&made()), "{way:?}: {}", world.explain());
    }
}

/// A rule that makes namespaces, and one for namespaces that does not look at what the engine makes.
#[test]
fn what_other_rules_made_fires_no_rule_that_leaves_it_alone() {
    for way in WAYS {
        let mut world = before(way);
        let space = "{synchronize: true, apiVersion: v1, kind: Namespace, name: 'of-{{request.object.metadata.name}}', data: {}}";
        let guard = "{synchronize: true, apiVersion: v1, kind: ConfigMap, name: guard, namespace: '{{request.object.metadata.name}}', data: {data: {k: v}}}";
        let matching = "{kinds: [ConfigMap], selector: {matchLabels: {app: 'on'}}}";
        world.apply(&policy("spaces", matching, space));
        let guards = policy("guards", "{kinds: [Namespace], names: ['of-*', 'own']}", guard);
        world
            .apply(&guards.replace("  - name: r", "  - name: r\n    skipBackgroundRequests: true"));
        world.seconds(2);
        world.put(trigger("t", "1"));
        world.put(namespace("own", value!({})));
        world.seconds(3);
        let guarded = |world: &World, name: &str| world.has(&id("ConfigMap", name, "guard"));
        assert!(guarded(&world, "own"), "{way:?}: {}", world.explain());
        assert!(world.has(&id("Namespace", "", "of-t")), "{way:?}: {}", world.explain());
        assert!(!guarded(&world, "of-t"), "{way:?}: {}", world.explain());
        upgrade(&mut world);
        assert!(!guarded(&world, "of-t"), "{way:?}: {}", world.explain());
        assert!(world.writes().is_empty(), "{way:?}: {}", world.explain());
        // What only looks as if a rule had made it gets what every namespace gets.
        let mut shy = world.get(&id("Namespace", "", "of-t")).unwrap();
        for field in ["uid", "resourceVersion", "creationTimestamp"] {
            shy.remove(["metadata", field]);
        }
        shy.set(["metadata", "name"], "of-nobody").unwrap();
        world.put(shy);
        world.seconds(3);
        let guard = id("ConfigMap", "of-nobody", "guard");
        let made =
            world.writes().iter().any(|call| call.verb() == Verb::Create && call.about() == guard);
        assert!(made, "{way:?}: {}", world.explain());
    }
}

#[test]
fn after_a_restart_rules_know_who_caused_what_they_made() {
    let by =
        |world: &World| -> Option<Value> { world.get(&made())?.get_path(["data", "by"]).cloned() };
    for asks_by_match in [true, false] {
        let mut world = World::new();
        let mut policy = creator_policy();
        if !asks_by_match {
            policy = policy.replace("    exclude: {any: [{clusterRoles: [cluster-admin]}]}\n", "");
        }
        world.apply(&policy);
        world.seconds(2);
        world.put_as(&nancy(), trigger("t", "1"));
        world.seconds(3);
        assert_eq!(by(&world), Some("bmFuY3k=".into()), "{}", world.explain());
        world.restart();
        world.forget_calls();
        world.seconds(10);
        assert!(world.writes().is_empty(), "{asks_by_match}: {}", world.explain());
        assert_eq!(world.conditions(), Vec::<String>::new(), "{asks_by_match}");
        world.delete(&made());
        world.seconds(5);
        assert_eq!(by(&world), Some("bmFuY3k=".into()), "{asks_by_match}: {}", world.explain());
        // Nor does a change without a known user lose them.
        world.put(config_map("default", "other", value!({})));
        world.restart();
        world.edit(&made(), &["data", "by"], "ZXZl");
        world.seconds(5);
        assert_eq!(by(&world), Some("bmFuY3k=".into()), "{asks_by_match}: {}", world.explain());
    }
}
