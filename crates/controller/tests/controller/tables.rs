//! Every cell of the tables that say what becomes of downstream objects.

use crate::support::{World, config_map, id, namespace, secret};
use kiln_object::{ObjectId, metadata};
use kiln_value::{Value, value};

/// A policy with one rule: ConfigMaps labelled `app: on` in `default` make `NAME-made`.
fn policy(generate: &str) -> String {
    format!(
        "apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {{name: p}}
spec:
  rules:
  - name: r
    match: {{any: [{{resources: {{kinds: [ConfigMap], selector: {{matchLabels: {{app: 'on'}}}}}}}}]}}
    preconditions: {{all: [{{key: '{{{{request.object.data.mode || `\"on\"`}}}}', operator: NotEquals, value: 'off'}}]}}
    generate:
{generate}
"
    )
}

fn data(synchronize: bool, more: &str) -> String {
    policy(&format!(
        "      {{synchronize: {synchronize}, apiVersion: v1, kind: ConfigMap, name: '{{{{request.object.metadata.name}}}}-made', namespace: default,
       data: {{data: {{from: '{{{{request.object.data.k}}}}', fixed: one}}}}{more}}}"
    ))
}

fn clone(synchronize: bool, more: &str) -> String {
    policy(&format!(
        "      {{synchronize: {synchronize}, apiVersion: v1, kind: Secret, name: '{{{{request.object.metadata.name}}}}-made', namespace: default,
       clone: {{namespace: source, name: origin}}{more}}}"
    ))
}

fn clone_list(synchronize: bool, more: &str) -> String {
    policy(&format!(
        "      {{synchronize: {synchronize}, namespace: default, cloneList: {{namespace: source, kinds: [v1/Secret], selector: {{matchLabels: {{copy: 'yes'}}}}}}{more}}}"
    ))
}

fn trigger(k: &str) -> Value {
    let mut trigger = config_map("default", "t", value!({"k": k}));
    metadata::set_label(&mut trigger, "app", "on").unwrap();
    trigger
}

fn origin(text: &str) -> Value {
    let mut origin = secret("source", "origin", value!({"k": text}));
    metadata::set_label(&mut origin, "copy", "yes").unwrap();
    metadata::set_label(&mut origin, "team", "blue").unwrap();
    origin
}

const T: fn() -> ObjectId = || id("ConfigMap", "default", "t");
const P: fn() -> ObjectId = || id("ClusterPolicy", "", "p");

/// What a policy makes of the trigger.
#[derive(Clone, Copy, PartialEq)]
enum Form {
    Data,
    Clone,
    CloneList,
}

impl Form {
    fn policy(self, synchronize: bool, more: &str) -> String {
        match self {
            Form::Data => data(synchronize, more),
            Form::Clone => clone(synchronize, more),
            Form::CloneList => clone_list(synchronize, more),
        }
    }

    fn made(self) -> ObjectId {
        match self {
            Form::Data => id("ConfigMap", "default", "t-made"),
            Form::Clone => id("Secret", "default", "t-made"),
            Form::CloneList => id("Secret", "default", "origin"),
        }
    }

    fn field(self) -> [&'static str; 2] {
        match self {
            Form::Data => ["data", "fixed"],
            _ => ["data", "k"],
        }
    }
}

const ORIGIN: &str = "b25l"; // "one"

/// A world where the trigger, the source and the policy are there, and the object is made.
fn world(form: Form, synchronize: bool, more: &str) -> World {
    let mut world = World::new();
    world.put(namespace("source", value!({})));
    world.put(origin("one"));
    world.apply(&form.policy(synchronize, more));
    world.settle();
    world.put(trigger("v1"));
    world.settle();
    assert!(world.has(&form.made()), "the trigger makes the object: {}", world.explain());
    world.forget_calls();
    world
}

fn text(world: &World, form: Form) -> Option<String> {
    world.get(&form.made())?.str_at(form.field()).map(str::to_owned)
}

/// At rest a second look writes nothing, however long one waits.
fn at_rest(world: &mut World) {
    world.seconds(5);
    world.forget_calls();
    world.seconds(1_300);
    assert_eq!(world.writes(), Vec::<&kiln_cluster::Call>::new(), "at rest nothing is written");
    world.restart();
    world.seconds(30);
    assert_eq!(world.writes(), Vec::<&kiln_cluster::Call>::new(), "nor after a restart");
}

macro_rules! cells {
    ($($name:ident: $form:expr, $sync:expr, $more:expr, |$world:ident, $f:ident| $body:block)*) => {
        $(#[test]
        fn $name() {
            let $f = $form;
            let mut $world = world($f, $sync, $more);
            $body
            at_rest(&mut $world);
        })*
    };
}

use Form::{Clone as Copied, CloneList as Listed, Data as Made};

cells! {
    // Delete downstream.
    a_deleted_downstream_with_data_is_made_again: Made, true, "", |w, f| {
        w.delete(&f.made()); w.settle(); assert_eq!(text(&w, f).as_deref(), Some("one"));
        assert_eq!(w.writes().len(), 1, "one write");
    }
    a_deleted_downstream_with_data_stays_deleted_without_synchronize: Made, false, "", |w, f| {
        w.delete(&f.made()); w.settle(); assert!(!w.has(&f.made()));
    }
    a_deleted_copy_is_made_again: Copied, true, "", |w, f| {
        w.delete(&f.made()); w.settle(); assert_eq!(text(&w, f).as_deref(), Some(ORIGIN));
    }
    a_deleted_copy_stays_deleted_without_synchronize: Copied, false, "", |w, f| {
        w.delete(&f.made()); w.settle(); assert!(!w.has(&f.made()));
    }
    a_deleted_copy_of_a_list_is_made_again: Listed, true, "", |w, f| {
        w.delete(&f.made()); w.settle(); assert_eq!(text(&w, f).as_deref(), Some(ORIGIN));
    }
    a_deleted_copy_of_a_list_stays_deleted_without_synchronize: Listed, false, "", |w, f| {
        w.delete(&f.made()); w.settle(); assert!(!w.has(&f.made()));
    }

    // Edit downstream.
    an_edited_downstream_with_data_is_reverted: Made, true, "", |w, f| {
        w.edit(&f.made(), &f.field(), "other"); w.edit(&f.made(), &["data", "extra"], "x"); w.settle();
        assert_eq!(text(&w, f).as_deref(), Some("one"));
        assert_eq!(w.get(&f.made()).unwrap().str_at(["data", "extra"]), None, "all of it");
        assert_eq!(w.writes().len(), 1, "one write");
    }
    an_edited_downstream_with_data_stays_edited_without_synchronize: Made, false, "", |w, f| {
        w.edit(&f.made(), &f.field(), "other"); w.settle(); assert_eq!(text(&w, f).as_deref(), Some("other"));
    }
    an_edited_copy_is_reverted: Copied, true, "", |w, f| {
        w.edit(&f.made(), &f.field(), "b3RoZXI="); w.settle(); assert_eq!(text(&w, f).as_deref(), Some(ORIGIN));
    }
    an_edited_copy_stays_edited_without_synchronize: Copied, false, "", |w, f| {
        w.edit(&f.made(), &f.field(), "b3RoZXI="); w.settle(); assert_eq!(text(&w, f).as_deref(), Some("b3RoZXI="));
    }
    an_edited_copy_of_a_list_is_reverted: Listed, true, "", |w, f| {
        w.edit(&f.made(), &f.field(), "b3RoZXI="); w.settle(); assert_eq!(text(&w, f).as_deref(), Some(ORIGIN));
    }

    // Delete trigger.
    a_deleted_trigger_takes_its_data_along: Made, true, "", |w, f| {
        w.delete(&T()); w.settle(); assert!(!w.has(&f.made()));
        assert_eq!(w.writes().len(), 1, "one write");
    }
    a_deleted_trigger_leaves_its_data_without_synchronize: Made, false, "", |w, f| {
        w.delete(&T()); w.settle(); assert!(w.has(&f.made()));
    }
    a_deleted_trigger_takes_its_copy_along_and_leaves_the_source: Copied, true, "", |w, f| {
        w.delete(&T()); w.settle(); assert!(!w.has(&f.made())); assert!(w.has(&id("Secret", "source", "origin")));
    }
    a_deleted_trigger_leaves_its_copy_without_synchronize: Copied, false, "", |w, f| {
        w.delete(&T()); w.settle(); assert!(w.has(&f.made()));
    }
    a_deleted_trigger_takes_its_list_along: Listed, true, "", |w, f| {
        w.delete(&T()); w.settle(); assert!(!w.has(&f.made()));
    }

    // Modify trigger.
    a_trigger_that_matches_no_more_takes_its_data_along: Made, true, "", |w, f| {
        w.edit(&T(), &["metadata", "labels", "app"], "off"); w.settle(); assert!(!w.has(&f.made()));
    }
    a_trigger_that_matches_no_more_leaves_its_data_without_synchronize: Made, false, "", |w, f| {
        w.edit(&T(), &["metadata", "labels", "app"], "off"); w.settle(); assert!(w.has(&f.made()));
    }
    a_trigger_that_matches_no_more_takes_its_copy_along: Copied, true, "", |w, f| {
        w.edit(&T(), &["metadata", "labels", "app"], "off"); w.settle(); assert!(!w.has(&f.made()));
    }
    a_trigger_that_matches_no_more_leaves_its_copy_without_synchronize: Copied, false, "", |w, f| {
        w.edit(&T(), &["metadata", "labels", "app"], "off"); w.settle(); assert!(w.has(&f.made()));
    }
    preconditions_that_turn_false_remove_data: Made, true, "", |w, f| {
        w.edit(&T(), &["data", "mode"], "off"); w.settle(); assert!(!w.has(&f.made()));
        w.edit(&T(), &["data", "mode"], "on"); w.settle(); assert!(w.has(&f.made()), "and it comes again");
    }
    preconditions_that_turn_false_leave_data_without_synchronize: Made, false, "", |w, f| {
        w.edit(&T(), &["data", "mode"], "off"); w.settle(); assert!(w.has(&f.made()));
    }
    preconditions_that_turn_false_remove_copies: Copied, true, "", |w, f| {
        w.edit(&T(), &["data", "mode"], "off"); w.settle(); assert!(!w.has(&f.made()));
    }
    preconditions_that_turn_false_leave_copies_without_synchronize: Copied, false, "", |w, f| {
        w.edit(&T(), &["data", "mode"], "off"); w.settle(); assert!(w.has(&f.made()));
    }
    a_trigger_that_still_matches_updates_its_data: Made, true, "", |w, f| {
        w.edit(&T(), &["data", "k"], "v2"); w.settle();
        assert_eq!(w.get(&f.made()).unwrap().str_at(["data", "from"]), Some("v2"));
        assert_eq!(w.writes().len(), 1, "one write");
    }
    a_trigger_that_still_matches_leaves_its_data_without_synchronize: Made, false, "", |w, f| {
        w.edit(&T(), &["data", "k"], "v2"); w.settle();
        assert_eq!(w.get(&f.made()).unwrap().str_at(["data", "from"]), Some("v1"));
    }
    an_updated_trigger_makes_missing_data_without_synchronize: Made, false, "", |w, f| {
        w.delete(&f.made()); w.settle(); w.edit(&T(), &["data", "k"], "v2"); w.settle();
        assert_eq!(w.get(&f.made()).unwrap().str_at(["data", "from"]), Some("v2"));
    }

    // Sources.
    an_edited_source_is_copied_again: Copied, true, "", |w, f| {
        w.edit(&id("Secret", "source", "origin"), &["data", "k"], "dHdv"); w.settle();
        assert_eq!(text(&w, f).as_deref(), Some("dHdv")); assert_eq!(w.writes().len(), 1, "one write, none to the source");
    }
    labels_of_a_source_are_copied_again: Copied, true, "", |w, f| {
        w.edit(&id("Secret", "source", "origin"), &["metadata", "labels", "team"], "red"); w.settle();
        assert_eq!(metadata::label(&w.get(&f.made()).unwrap(), "team"), Some("red"));
    }
    an_edited_source_is_not_copied_again_without_synchronize: Copied, false, "", |w, f| {
        w.edit(&id("Secret", "source", "origin"), &["data", "k"], "dHdv"); w.settle();
        assert_eq!(text(&w, f).as_deref(), Some(ORIGIN));
    }
    an_edited_source_of_a_list_is_copied_again: Listed, true, "", |w, f| {
        w.edit(&id("Secret", "source", "origin"), &["data", "k"], "dHdv"); w.settle();
        assert_eq!(text(&w, f).as_deref(), Some("dHdv"));
    }
    an_edited_source_of_a_list_is_not_copied_again_without_synchronize: Listed, false, "", |w, f| {
        w.edit(&id("Secret", "source", "origin"), &["data", "k"], "dHdv"); w.settle();
        assert_eq!(text(&w, f).as_deref(), Some(ORIGIN));
    }
    a_deleted_source_takes_its_copies_along: Copied, true, "", |w, f| {
        w.delete(&id("Secret", "source", "origin")); w.settle(); assert!(!w.has(&f.made()));
    }
    a_deleted_source_leaves_its_copies_without_synchronize: Copied, false, "", |w, f| {
        w.delete(&id("Secret", "source", "origin")); w.settle(); assert!(w.has(&f.made()));
    }
    a_deleted_source_of_a_list_takes_its_copy_along: Listed, true, "", |w, f| {
        let mut second = secret("source", "second", value!({"k": "x"}));
        metadata::set_label(&mut second, "copy", "yes").unwrap();
        w.put(second); w.settle();
        assert!(w.has(&id("Secret", "default", "second")), "a source that comes later is copied");
        w.delete(&id("Secret", "source", "origin")); w.settle();
        assert!(!w.has(&f.made())); assert!(w.has(&id("Secret", "default", "second")), "the others stay");
    }
    a_deleted_source_of_a_list_leaves_its_copy_without_synchronize: Listed, false, "", |w, f| {
        w.delete(&id("Secret", "source", "origin")); w.settle(); assert!(w.has(&f.made()));
    }
    a_source_that_comes_back_is_copied_again: Copied, true, "", |w, f| {
        w.delete(&id("Secret", "source", "origin")); w.settle(); assert!(!w.has(&f.made()));
        w.put(origin("two")); w.settle(); assert_eq!(text(&w, f).as_deref(), Some("dHdv"));
    }

    // Delete policy.
    a_deleted_policy_takes_its_data_along: Made, true, "", |w, f| {
        w.delete(&P()); w.settle(); assert!(!w.has(&f.made()));
    }
    a_deleted_policy_takes_its_data_along_when_orphans_are_refused: Made, true, ", orphanDownstreamOnPolicyDelete: false", |w, f| {
        w.delete(&P()); w.settle(); assert!(!w.has(&f.made()));
    }
    a_deleted_policy_leaves_its_data_when_orphans_are_wanted: Made, true, ", orphanDownstreamOnPolicyDelete: true", |w, f| {
        w.delete(&P()); w.settle(); assert!(w.has(&f.made()));
        w.delete(&T()); w.settle(); assert!(w.has(&f.made()), "it is orphaned");
    }
    a_deleted_policy_leaves_its_data_without_synchronize: Made, false, "", |w, f| {
        w.delete(&P()); w.settle(); assert!(w.has(&f.made()));
    }
    a_deleted_policy_leaves_its_copies: Copied, true, "", |w, f| {
        w.delete(&P()); w.settle(); assert!(w.has(&f.made()));
    }
    a_deleted_policy_takes_its_copies_along_when_orphans_are_refused: Copied, true, ", orphanDownstreamOnPolicyDelete: false", |w, f| {
        w.delete(&P()); w.settle(); assert!(!w.has(&f.made()));
    }
    a_deleted_policy_leaves_its_copies_when_orphans_are_wanted: Copied, true, ", orphanDownstreamOnPolicyDelete: true", |w, f| {
        w.delete(&P()); w.settle(); assert!(w.has(&f.made()));
    }
    a_deleted_policy_leaves_its_copies_without_synchronize: Copied, false, "", |w, f| {
        w.delete(&P()); w.settle(); assert!(w.has(&f.made()));
    }
    a_deleted_policy_takes_its_list_along_when_orphans_are_refused: Listed, true, ", orphanDownstreamOnPolicyDelete: false", |w, f| {
        w.delete(&P()); w.settle(); assert!(!w.has(&f.made()));
    }
    a_deleted_policy_leaves_its_list: Listed, true, "", |w, f| {
        w.delete(&P()); w.settle(); assert!(w.has(&f.made()));
    }
    a_policy_deleted_while_nobody_looked_takes_its_data_along: Made, true, "", |w, f| {
        w.seconds(5); w.delete(&P()); w.restart(); w.settle(); assert!(!w.has(&f.made()));
    }
    a_trigger_deleted_while_nobody_looked_takes_its_data_along: Made, true, "", |w, f| {
        w.seconds(5); w.delete(&T()); w.restart(); w.settle(); assert!(!w.has(&f.made()));
    }
    a_downstream_deleted_while_nobody_looked_is_made_again: Made, true, "", |w, f| {
        w.seconds(5); w.delete(&f.made()); w.restart(); w.settle(); assert!(w.has(&f.made()));
    }
    a_downstream_deleted_while_nobody_looked_stays_deleted_without_synchronize: Made, false, "", |w, f| {
        w.seconds(5); w.delete(&f.made()); w.restart(); w.settle(); assert!(!w.has(&f.made()));
    }
    a_source_deleted_while_nobody_looked_takes_its_copies_along: Copied, true, "", |w, f| {
        w.seconds(5); w.delete(&id("Secret", "source", "origin")); w.restart(); w.settle(); assert!(!w.has(&f.made()));
    }

    // Modify policy.
    edited_data_of_a_policy_reaches_its_downstream: Made, true, "", |w, f| {
        w.apply(&f.policy(true, "").replace("fixed: one", "fixed: two")); w.settle();
        assert_eq!(text(&w, f).as_deref(), Some("two")); assert_eq!(w.writes().len(), 1, "one write");
    }
    edited_data_of_a_policy_stays_where_it_is_without_synchronize: Made, false, "", |w, f| {
        w.apply(&f.policy(false, "").replace("fixed: one", "fixed: two")); w.settle();
        assert_eq!(text(&w, f).as_deref(), Some("one"));
    }
    an_edited_policy_leaves_copies_as_they_are: Copied, true, "", |w, f| {
        w.apply(&f.policy(true, ", orphanDownstreamOnPolicyDelete: true")); w.settle();
        assert_eq!(text(&w, f).as_deref(), Some(ORIGIN)); assert!(w.writes().is_empty());
    }
    a_renamed_target_lets_the_old_one_go: Made, true, "", |w, f| {
        w.apply(&f.policy(true, "").replace("}}-made", "}}-new")); w.settle();
        let new = id("ConfigMap", "default", "t-new");
        assert!(w.has(&new), "existing triggers get the new one at once");
        let old = w.get(&f.made()).unwrap();
        assert_eq!(metadata::label(&old, "generate.kyverno.io/policy-name"), None);
        assert_eq!(metadata::label(&old, "generate.kyverno.io/rule-name"), None);
        w.delete(&P()); w.settle();
        assert!(!w.has(&new)); assert!(w.has(&f.made()), "what was let go is never touched again");
    }
    a_renamed_target_is_made_by_the_next_event_without_synchronize: Made, false, "", |w, f| {
        w.apply(&f.policy(false, "").replace("}}-made", "}}-new")); w.settle();
        let new = id("ConfigMap", "default", "t-new");
        assert!(w.has(&f.made())); assert!(!w.has(&new));
        w.edit(&T(), &["data", "k"], "v2"); w.settle(); assert!(w.has(&new));
    }
    a_changed_source_lets_the_old_copy_go: Copied, true, "", |w, f| {
        w.put(secret("source", "other", value!({"k": "x"})));
        w.apply(&f.policy(true, "").replace("name: origin", "name: other").replace("}}-made", "}}-new")); w.settle();
        assert!(w.has(&id("Secret", "default", "t-new")));
        assert_eq!(metadata::label(&w.get(&f.made()).unwrap(), "generate.kyverno.io/policy-name"), None);
    }
    a_kind_dropped_from_a_list_is_no_longer_synchronised: Listed, true, "", |w, f| {
        w.apply(&f.policy(true, "").replace("v1/Secret", "v1/ConfigMap")); w.settle();
        w.edit(&id("Secret", "source", "origin"), &["data", "k"], "dHdv"); w.settle();
        assert_eq!(text(&w, f).as_deref(), Some(ORIGIN));
    }
    synchronize_switched_off_keeps_what_is_there: Made, true, "", |w, f| {
        w.apply(&f.policy(false, "")); w.settle(); w.edit(&f.made(), &f.field(), "mine"); w.settle();
        w.delete(&T()); w.settle(); w.delete(&P()); w.settle();
        assert_eq!(text(&w, f).as_deref(), Some("mine"));
    }
    synchronize_switched_on_takes_over_what_is_there: Made, false, "", |w, f| {
        w.edit(&f.made(), &f.field(), "mine"); w.settle();
        w.apply(&f.policy(true, "")); w.settle(); assert_eq!(text(&w, f).as_deref(), Some("one"));
        w.delete(&T()); w.settle(); assert!(!w.has(&f.made()));
    }
    synchronize_switched_on_makes_nothing_again_before_the_next_event: Made, false, "", |w, f| {
        w.delete(&f.made()); w.settle(); w.apply(&f.policy(true, "")); w.settle(); assert!(!w.has(&f.made()));
        w.edit(&T(), &["data", "k"], "v2"); w.settle(); assert!(w.has(&f.made()));
    }
    a_recreated_trigger_is_another_one: Made, true, "", |w, f| {
        let before = w.get(&f.made()).unwrap();
        w.delete(&T()); w.put(trigger("v9")); w.settle();
        let after = w.get(&f.made()).unwrap();
        assert_eq!(after.str_at(["data", "from"]), Some("v9"));
        let uid = |o: &Value| metadata::label(o, "generate.kyverno.io/trigger-uid").unwrap().to_owned();
        assert_ne!(uid(&before), uid(&after));
    }
    a_policy_made_again_with_existing_takes_over_what_is_there: Copied, true, "", |w, f| {
        w.delete(&P()); w.settle();
        w.edit(&id("Secret", "source", "origin"), &["data", "k"], "dHdv"); w.settle();
        assert_eq!(text(&w, f).as_deref(), Some(ORIGIN));
        w.apply(&f.policy(true, ", generateExisting: true")); w.settle();
        assert_eq!(text(&w, f).as_deref(), Some("dHdv"));
        w.edit(&id("Secret", "source", "origin"), &["data", "k"], ORIGIN); w.settle();
        assert_eq!(text(&w, f).as_deref(), Some(ORIGIN));
    }
    a_policy_made_again_with_existing_leaves_what_is_there_without_synchronize: Made, false, "", |w, f| {
        w.edit(&f.made(), &f.field(), "mine"); w.delete(&P()); w.settle();
        w.apply(&f.policy(false, ", generateExisting: true")); w.settle();
        assert_eq!(text(&w, f).as_deref(), Some("mine"));
    }
}

#[test]
fn old_objects_fire_no_rule_without_generate_existing() {
    for (more, fires) in [("", false), (", generateExisting: true", true)] {
        for synchronize in [true, false] {
            let mut world = World::new();
            world.put(trigger("v1"));
            world.apply(&data(synchronize, more));
            world.settle();
            assert_eq!(world.has(&Made.made()), fires, "synchronize {synchronize}");
            at_rest(&mut world);
            assert_eq!(world.has(&Made.made()), fires);
        }
    }
}

#[test]
fn a_restart_is_no_policy_event() {
    let mut world = World::new();
    world.put(trigger("v1"));
    world.apply(&data(false, ", generateExisting: true"));
    world.seconds(5);
    world.delete(&Made.made());
    world.seconds(5);
    world.restart();
    world.seconds(5);
    assert!(!world.has(&Made.made()));
    world.apply(&data(false, ", generateExisting: true").replace("fixed: one", "fixed: two"));
    world.settle();
    assert!(world.has(&Made.made()), "a changed policy is one");
}

#[test]
fn objects_created_while_nobody_looked_fire() {
    for synchronize in [true, false] {
        let mut world = World::new();
        world.apply(&data(synchronize, ""));
        world.seconds(5);
        world.put(trigger("v1"));
        world.restart();
        world.settle();
        assert!(world.has(&Made.made()), "synchronize {synchronize}");
        at_rest(&mut world);
    }
}

#[test]
fn a_source_that_comes_after_its_trigger_is_copied_once_without_synchronize() {
    for synchronize in [true, false] {
        let mut world = World::new();
        world.put(namespace("source", value!({})));
        world.apply(&clone(synchronize, ""));
        world.settle();
        world.put(trigger("v1"));
        world.settle();
        assert!(!world.has(&Copied.made()));
        assert_eq!(world.conditions().len(), 1, "{:?}", world.conditions());
        world.put(origin("one"));
        world.settle();
        assert!(world.has(&Copied.made()), "synchronize {synchronize}");
        assert!(world.conditions().is_empty());
        at_rest(&mut world);
    }
}

#[test]
fn a_removed_rule_is_like_a_deleted_policy_for_what_it_made() {
    let second = |text: &str| {
        let rule = text.split_once("  - name: r\n").unwrap().1;
        let rule = rule.replace("}}-made", "}}-second");
        format!("{text}  - name: s\n{rule}")
    };
    let mut world = World::new();
    world.apply(&second(&data(true, "")));
    world.settle();
    world.put(trigger("v1"));
    world.settle();
    let (first, other) = (Made.made(), id("ConfigMap", "default", "t-second"));
    assert!(world.has(&first) && world.has(&other), "{:?}", world.conditions());
    world.apply(&data(true, ""));
    world.settle();
    assert!(world.has(&first) && !world.has(&other));
    at_rest(&mut world);
}

#[test]
fn elements_that_left_the_list_take_their_objects_along() {
    let each = |synchronize: bool| {
        policy(&format!(
            "      synchronize: {synchronize}
      foreach:
      - list: request.object.data.k | split(@, ',')
        apiVersion: v1
        kind: ConfigMap
        name: 'made-{{{{element}}}}'
        namespace: default
        data: {{data: {{of: '{{{{element}}}}'}}}}"
        ))
    };
    for synchronize in [true, false] {
        let mut world = World::new();
        world.apply(&each(synchronize));
        world.settle();
        world.put(trigger("a,b"));
        world.settle();
        let made = |name: &str| id("ConfigMap", "default", &format!("made-{name}"));
        assert!(world.has(&made("a")) && world.has(&made("b")), "{:?}", world.conditions());
        world.edit(&T(), &["data", "k"], "b,c");
        world.settle();
        assert!(world.has(&made("b")) && world.has(&made("c")));
        assert_eq!(world.has(&made("a")), !synchronize);
        at_rest(&mut world);
    }
}

#[test]
fn a_rule_for_deleted_objects_fires_on_their_end_and_what_it_makes_stays() {
    for synchronize in [true, false] {
        let mut world = World::new();
        world.put(trigger("v1"));
        world.apply(
            &data(synchronize, "")
                .replace("kinds: [ConfigMap],", "kinds: [ConfigMap], operations: [DELETE],"),
        );
        world.settle();
        world.edit(&T(), &["data", "k"], "v2");
        world.settle();
        assert!(!world.has(&Made.made()));
        world.delete(&T());
        world.settle();
        assert!(world.has(&Made.made()), "synchronize {synchronize}: {:?}", world.conditions());
        at_rest(&mut world);
        assert!(world.has(&Made.made()));
    }
}
