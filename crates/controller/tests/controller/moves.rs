//! Policies that move between API groups, and generate rules that are edited: what they made keeps its UID.

use crate::support::{ON, World, config_map, id, policy, trigger};
use kiln_cluster::Verb;
use kiln_object::{Gvk, ObjectId, metadata};
use kiln_testkit::{MadeBy, made_by_kyverno};
use kiln_value::{Value, value};

const MADE: &str = "synchronize: true, apiVersion: v1, kind: ConfigMap, name: '{{request.object.metadata.name}}-made', \
                    namespace: default, data: {data: {k: '{{request.object.data.k}}'}}";

fn rules() -> String {
    policy("p", ON, &format!("{{{MADE}}}"))
}

fn generating() -> String {
    "apiVersion: policies.kyverno.io/v1\nkind: GeneratingPolicy\nmetadata: {name: p}\nspec:\n  evaluation: {synchronize: \
     {enabled: true}}\n  matchConstraints: {resourceRules: [{apiGroups: [''], apiVersions: [v1], operations: [CREATE, UPDATE], \
     resources: [configmaps]}]}\n  matchConditions: [{name: labelled, expression: \"has(object.metadata.labels) && \
     object.metadata.labels[?'app'].orValue('') == 'on'\"}]\n  generate:\n  - expression: \"generator.Apply('default', \
     [{'apiVersion': 'v1', 'kind': 'ConfigMap', 'metadata': {'name': object.metadata.name + '-made'}, 'data': {'k': \
     object.data.k}}])\"\n"
        .to_owned()
}

/// The same policy in Kiln's own group.
fn own(policy: &str) -> String {
    policy.replace("policies.kyverno.io/v1", "kiln.dev/v1").replace("kyverno.io/v1", "kiln.dev/v1")
}

fn made() -> ObjectId {
    id("ConfigMap", "default", "a-made")
}

fn in_group(version: &str, kind: &str) -> ObjectId {
    ObjectId::new(Gvk::new(version, kind), "", "p")
}

fn uid(world: &World) -> String {
    let object = world.get(&made()).unwrap_or_else(|| panic!("{}", world.explain()));
    metadata::uid(&object).unwrap().to_owned()
}

fn label(world: &World, key: &str) -> Option<String> {
    metadata::label(&world.get(&made()).unwrap(), key).map(str::to_owned)
}

/// The deletions of downstreams, of which there must be none.
fn deletions(world: &World) -> Vec<String> {
    let deleted = world.writes().into_iter().filter(|call| call.verb() == Verb::Delete);
    deleted.map(|call| call.about().to_string()).collect()
}

/// How many records of policies there are.
fn records(world: &World) -> usize {
    let maps = world.all(&Gvk::new("v1", "ConfigMap"));
    let named = |map: &&Value| metadata::name(map).unwrap().starts_with("kiln-policy-");
    maps.iter().filter(named).count()
}

#[test]
fn a_moved_policy_keeps_what_it_made() {
    for (text, kyverno, kind) in [
        (rules(), "kyverno.io/v1", "ClusterPolicy"),
        (generating(), "policies.kyverno.io/v1", "GeneratingPolicy"),
    ] {
        for restarts in [false, true] {
            let case = format!("{kind}, restart {restarts}");
            let mut world = World::new();
            world.settle();
            world.apply(&text);
            world.seconds(2);
            world.put(trigger("a", "1"));
            world.seconds(2);
            let before = uid(&world);
            assert_eq!(label(&world, "app.kubernetes.io/managed-by").as_deref(), Some("kyverno"));
            world.forget_calls();
            // The copy is stored first, then the old policy goes.
            world.apply(&own(&text));
            world.seconds(2);
            assert_eq!(uid(&world), before, "{case}");
            let key = "generate.kiln.dev/policy-name";
            assert_eq!(label(&world, key).as_deref(), Some("p"), "{case}: {}", world.explain());
            assert_eq!(label(&world, "generate.kyverno.io/policy-name"), None, "{case}");
            assert_eq!(label(&world, "app.kubernetes.io/managed-by").as_deref(), Some("kiln"));
            if restarts {
                world.restart();
                world.seconds(2);
            }
            world.delete(&in_group(kyverno, kind));
            world.seconds(70);
            assert_eq!(uid(&world), before, "{case}: {}", world.explain());
            assert_eq!(deletions(&world), Vec::<String>::new(), "{case}");
            assert_eq!(records(&world), 1, "{case}");
            // It still synchronizes, and goes with the policy that is run.
            world.edit(&made(), &["data", "k"], "edited");
            world.seconds(2);
            let data = world.get(&made()).unwrap();
            assert_eq!(data.str_at(["data", "k"]), Some("1"), "{case}: {}", world.explain());
            world.delete(&in_group("kiln.dev/v1", kind));
            world.seconds(70);
            assert!(!world.has(&made()), "{case}: {}", world.explain());
            assert_eq!(records(&world), 0, "{case}");
        }
    }
}

#[test]
fn a_policy_that_moves_while_no_process_runs_keeps_what_it_made() {
    let mut world = World::new();
    world.settle();
    world.apply(&rules());
    world.seconds(2);
    world.put(trigger("a", "1"));
    world.seconds(2);
    let before = uid(&world);
    world.apply(&own(&rules()));
    world.delete(&in_group("kyverno.io/v1", "ClusterPolicy"));
    world.forget_calls();
    world.restart();
    world.seconds(70);
    assert_eq!(uid(&world), before, "{}", world.explain());
    assert_eq!(deletions(&world), Vec::<String>::new());
    assert_eq!(records(&world), 1);
    world.put(trigger("a", "2"));
    world.seconds(2);
    let data = world.get(&made()).unwrap();
    assert_eq!(data.str_at(["data", "k"]), Some("2"), "{}", world.explain());
}

#[test]
fn a_copy_that_is_deleted_gives_everything_back() {
    let mut world = World::new();
    world.settle();
    world.apply(&rules());
    world.apply(&own(&rules()));
    world.seconds(2);
    world.put(trigger("a", "1"));
    world.seconds(2);
    let before = uid(&world);
    assert!(label(&world, "generate.kiln.dev/policy-name").is_some(), "{}", world.explain());
    world.forget_calls();
    world.delete(&in_group("kiln.dev/v1", "ClusterPolicy"));
    world.seconds(70);
    assert_eq!(uid(&world), before, "{}", world.explain());
    assert_eq!(deletions(&world), Vec::<String>::new());
    assert!(label(&world, "generate.kyverno.io/policy-name").is_some(), "{}", world.explain());
    assert_eq!(records(&world), 1);
}

#[test]
fn what_kyverno_made_is_taken_out_of_its_reach() {
    let mut world = World::new();
    let of = world.put(trigger("a", "1"));
    let maker = MadeBy::Rule { policy: "p", namespace: "", rule: "r" };
    let object = config_map("default", "a-made", value!({"k": "1"}));
    let object = world.put(made_by_kyverno(object, maker, &of, None));
    let before = metadata::uid(&object).unwrap().to_owned();
    world.apply(&own(&rules()));
    world.seconds(5);
    assert_eq!(uid(&world), before, "{}", world.explain());
    // Kyverno deletes by these labels when its own policy goes.
    assert_eq!(label(&world, "generate.kyverno.io/policy-name"), None, "{}", world.explain());
    assert_eq!(label(&world, "app.kubernetes.io/managed-by").as_deref(), Some("kiln"));
}

#[test]
fn edited_generate_rules_adopt_what_they_made() {
    let allowed = |rule: &str, generate: &str| {
        policy("p", ON, &format!("{{{generate}}}"))
            .replace("{name: p}", "{name: p, annotations: {kiln.allowGenerateRuleChanges: 'true'}}")
            .replace("name: r\n", &format!("name: {rule}\n"))
    };
    for restarts in [false, true] {
        let mut world = World::new();
        world.settle();
        world.apply(&allowed("r", MADE));
        world.seconds(2);
        world.put(trigger("a", "1"));
        world.seconds(2);
        let before = uid(&world);
        world.forget_calls();
        // Another name and another content: the object is adopted as it is changed.
        world
            .apply(&allowed("renamed", &MADE.replace("data: {data: {", "data: {data: {more: x, ")));
        if restarts {
            world.restart();
        }
        world.seconds(70);
        assert_eq!(uid(&world), before, "{}", world.explain());
        assert_eq!(deletions(&world), Vec::<String>::new());
        let object = world.get(&made()).unwrap();
        assert_eq!(object.str_at(["data", "more"]), Some("x"), "{}", world.explain());
        let key = "generate.kyverno.io/rule-name";
        assert_eq!(label(&world, key).as_deref(), Some("renamed"), "{}", world.explain());
    }
}
