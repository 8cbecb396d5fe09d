//! Every cell of the tables of GeneratingPolicy, and the mistakes that its original was reported to make.

use crate::support::{World, config_map, id, namespace, secret};
use kiln_object::{ObjectId, metadata};
use kiln_value::{Value, value};

/// ConfigMaps labelled `app: on` fire the policy, unless their `mode` is off.
fn policy(synchronize: bool, more: &str, generate: &str) -> String {
    format!(
        "apiVersion: policies.kyverno.io/v1
kind: GeneratingPolicy
metadata: {{name: p}}
spec:
  evaluation: {{synchronize: {{enabled: {synchronize}}}{more}}}
  matchConstraints:
    objectSelector: {{matchLabels: {{app: 'on'}}}}
    resourceRules: [{{apiGroups: [''], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [configmaps]}}]
  matchConditions:
  - {{name: mode, expression: \"object.data[?'mode'].orValue('on') != 'off'\"}}
  variables:
  - {{name: name, expression: object.metadata.name + '-made'}}
  - {{name: origin, expression: \"resource.Get('v1', 'secrets', 'source', 'origin')\"}}
  generate:
{generate}
"
    )
}

/// What a policy makes of the trigger.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Form {
    /// An object written out.
    Data,
    /// A document with expressions in it.
    Document,
    /// The source as it is.
    Clone,
    /// The source with another name.
    SetField,
    /// An object put together from parts of the source.
    ByHand,
    /// All sources with a label.
    List,
}

use Form::{ByHand, Clone as Copied, Data as Made, Document, List as Listed, SetField};

const COPIES: [Form; 4] = [Copied, SetField, ByHand, Listed];

impl Form {
    fn policy(self, synchronize: bool, more: &str) -> String {
        let generate = match self {
            Form::Data => "  - expression: >-
      generator.Apply('default', [{'apiVersion': 'v1', 'kind': 'ConfigMap', 'metadata': {'name': variables.name},
        'data': {'from': object.data.k, 'fixed': 'one'}}])",
            Form::Document => "  - template:
      interpolate: cel
      value: |
        apiVersion: v1
        kind: ConfigMap
        metadata: {name: (( variables.name )), namespace: default}
        data: {from: (( object.data.k )), fixed: one}",
            Form::Clone => "  - expression: generator.Apply('default', [variables.origin])",
            Form::SetField => "  - expression: generator.Apply('default', variables.origin.setField('metadata.name', variables.name))",
            Form::ByHand => "  - expression: >-
      generator.Apply('default', [{'apiVersion': 'v1', 'kind': variables.origin.kind, 'metadata': {'name': variables.name,
        'labels': variables.origin.metadata.labels}, 'data': variables.origin.data, 'type': variables.origin.type}])",
            Form::List => "  - expression: \"generator.Apply('default', [resource.List('v1', 'secrets', 'source', {'copy': 'yes'})])\"",
        };
        policy(synchronize, more, generate)
    }

    fn made(self) -> ObjectId {
        match self {
            Form::Data | Form::Document => id("ConfigMap", "default", "t-made"),
            Form::SetField | Form::ByHand => id("Secret", "default", "t-made"),
            Form::Clone | Form::List => id("Secret", "default", "origin"),
        }
    }

    fn field(self) -> [&'static str; 2] {
        match self {
            Form::Data | Form::Document => ["data", "fixed"],
            _ => ["data", "k"],
        }
    }

    fn is_copy(self) -> bool {
        COPIES.contains(&self)
    }

    /// What the field holds when all is well.
    fn right(self) -> &'static str {
        if self.is_copy() { ORIGIN } else { "one" }
    }

    const ALL: [Form; 6] = [Made, Document, Copied, SetField, ByHand, Listed];
}

const ORIGIN: &str = "b25l"; // "one"
const T: fn() -> ObjectId = || id("ConfigMap", "default", "t");
const P: fn() -> ObjectId = || id("GeneratingPolicy", "", "p");
const O: fn() -> ObjectId = || id("Secret", "source", "origin");

fn trigger(name: &str, k: &str) -> Value {
    let mut trigger = config_map("default", name, value!({"k": k}));
    metadata::set_label(&mut trigger, "app", "on").unwrap();
    trigger
}

fn origin(text: &str) -> Value {
    let mut origin = secret("source", "origin", value!({"k": text}));
    metadata::set_label(&mut origin, "copy", "yes").unwrap();
    metadata::set_label(&mut origin, "team", "blue").unwrap();
    origin
}

/// A world where the trigger, the source and the policy are there, and the object is made.
fn world(form: Form, synchronize: bool, more: &str) -> World {
    let mut world = World::new();
    world.put(namespace("source", value!({})));
    world.put(origin("one"));
    world.apply(&form.policy(synchronize, more));
    world.settle();
    world.put(trigger("t", "v1"));
    world.settle();
    assert!(world.has(&form.made()), "{form:?}: the trigger makes the object: {}", world.explain());
    world.forget_calls();
    world
}

fn text(world: &World, form: Form) -> Option<String> {
    world.get(&form.made())?.str_at(form.field()).map(str::to_owned)
}

/// At rest a second look writes nothing, however long one waits.
fn at_rest(world: &mut World, form: Form) {
    world.seconds(5);
    world.forget_calls();
    world.seconds(1_300);
    assert_eq!(world.writes(), Vec::<&kiln_cluster::Call>::new(), "{form:?} at rest");
    world.restart();
    world.seconds(30);
    assert_eq!(world.writes(), Vec::<&kiln_cluster::Call>::new(), "{form:?} after a restart");
}

fn each(forms: &[Form], synchronize: bool, more: &str, cell: impl Fn(&mut World, Form)) {
    for &form in forms {
        let mut world = world(form, synchronize, more);
        cell(&mut world, form);
        at_rest(&mut world, form);
    }
}

// Downstream.

#[test]
fn a_deleted_downstream_is_made_again() {
    each(&Form::ALL, true, "", |w, f| {
        w.delete(&f.made());
        w.settle();
        assert_eq!(text(w, f).as_deref(), Some(f.right()), "{f:?}");
        assert_eq!(w.writes().len(), 1, "{f:?}: one write");
    });
}

#[test]
fn a_deleted_downstream_stays_deleted_without_synchronize() {
    each(&Form::ALL, false, "", |w, f| {
        w.delete(&f.made());
        w.settle();
        assert!(!w.has(&f.made()), "{f:?}");
    });
}

#[test]
fn an_edited_downstream_is_reverted() {
    each(&Form::ALL, true, "", |w, f| {
        w.edit(&f.made(), &f.field(), "b3RoZXI=");
        w.settle();
        assert_eq!(text(w, f).as_deref(), Some(f.right()), "{f:?}");
        assert_eq!(w.writes().len(), 1, "{f:?}: one write");
    });
}

#[test]
fn an_edited_downstream_stays_edited_without_synchronize() {
    each(&Form::ALL, false, "", |w, f| {
        w.edit(&f.made(), &f.field(), "b3RoZXI=");
        w.settle();
        assert_eq!(text(w, f).as_deref(), Some("b3RoZXI="), "{f:?}");
    });
}

// Trigger.

#[test]
fn a_deleted_trigger_takes_its_objects_along() {
    each(&Form::ALL, true, "", |w, f| {
        w.delete(&T());
        w.settle();
        assert!(!w.has(&f.made()), "{f:?}");
        assert!(w.has(&O()), "the source stays");
    });
}

#[test]
fn a_deleted_trigger_leaves_its_objects_without_synchronize() {
    each(&Form::ALL, false, "", |w, f| {
        w.delete(&T());
        w.settle();
        assert!(w.has(&f.made()), "{f:?}");
    });
}

#[test]
fn a_trigger_that_stops_matching_takes_its_objects_along() {
    each(&Form::ALL, true, "", |w, f| {
        w.edit(&T(), &["metadata", "labels", "app"], "off");
        w.settle();
        assert!(!w.has(&f.made()), "{f:?}: {}", w.explain());
        w.edit(&T(), &["metadata", "labels", "app"], "on");
        w.settle();
        assert!(w.has(&f.made()), "{f:?}: and it comes again");
    });
    each(&Form::ALL, true, "", |w, f| {
        w.edit(&T(), &["data", "mode"], "off");
        w.settle();
        assert!(!w.has(&f.made()), "{f:?}: by a condition");
    });
}

#[test]
fn a_trigger_that_stops_matching_leaves_its_objects_without_synchronize() {
    each(&Form::ALL, false, "", |w, f| {
        w.edit(&T(), &["data", "mode"], "off");
        w.settle();
        assert!(w.has(&f.made()), "{f:?}");
    });
}

#[test]
fn an_updated_trigger_updates_its_objects_in_place() {
    for synchronize in [true, false] {
        each(&[Made, Document], synchronize, "", |w, f| {
            let uid = metadata::uid(&w.get(&f.made()).unwrap()).unwrap().to_owned();
            w.edit(&T(), &["data", "k"], "v2");
            w.settle();
            let after = w.get(&f.made()).unwrap();
            assert_eq!(after.str_at(["data", "from"]), Some("v2"), "{f:?} {synchronize}");
            assert_eq!(metadata::uid(&after), Some(uid.as_str()));
            assert_eq!(w.writes().len(), 1, "one write");
        });
    }
}

#[test]
fn a_trigger_whose_policy_listens_to_its_end_fires_then() {
    let mut w = World::new();
    w.apply(
        &policy(true, "", "  - expression: >-
      generator.Apply('default', [{'apiVersion': 'v1', 'kind': 'ConfigMap', 'metadata': {'name': oldObject.metadata.name + '-gone'}}])")
            .replace("[CREATE, UPDATE]", "[DELETE]")
            .replace("object.data[?'mode']", "oldObject.data[?'mode']"),
    );
    w.settle();
    w.put(trigger("t", "v1"));
    w.settle();
    let gone = id("ConfigMap", "default", "t-gone");
    assert!(!w.has(&gone));
    w.delete(&T());
    w.settle();
    assert!(w.has(&gone), "{}", w.explain());
    at_rest(&mut w, Made);
    assert!(w.has(&gone), "nothing follows it afterwards");
}

// Sources.

#[test]
fn an_edited_source_reaches_its_copies() {
    each(&COPIES, true, "", |w, f| {
        w.edit(&O(), &["data", "k"], "dHdv");
        w.settle();
        assert_eq!(text(w, f).as_deref(), Some("dHdv"), "{f:?}");
        assert_eq!(w.writes().len(), 1, "{f:?}: one write, none to the source");
        w.edit(&O(), &["metadata", "labels", "team"], "red");
        w.settle();
        assert_eq!(metadata::label(&w.get(&f.made()).unwrap(), "team"), Some("red"), "{f:?}");
    });
}

#[test]
fn an_edited_source_leaves_its_copies_without_synchronize() {
    each(&COPIES, false, "", |w, f| {
        w.edit(&O(), &["data", "k"], "dHdv");
        w.settle();
        assert_eq!(text(w, f).as_deref(), Some(ORIGIN), "{f:?}");
    });
}

#[test]
fn a_deleted_source_takes_its_copies_along() {
    each(&COPIES, true, "", |w, f| {
        w.delete(&O());
        w.settle();
        assert!(!w.has(&f.made()), "{f:?}: {}", w.explain());
        w.put(origin("two"));
        w.settle();
        assert_eq!(
            text(w, f).as_deref(),
            Some("dHdv"),
            "{f:?}: one that comes back is copied again"
        );
    });
}

#[test]
fn a_deleted_source_leaves_its_copies_without_synchronize() {
    each(&COPIES, false, "", |w, f| {
        w.delete(&O());
        w.settle();
        assert!(w.has(&f.made()), "{f:?}");
    });
}

#[test]
fn a_source_deleted_while_nobody_looked_takes_its_copies_along() {
    each(&COPIES, true, "", |w, f| {
        w.seconds(5);
        w.delete(&O());
        w.restart();
        w.settle();
        assert!(!w.has(&f.made()), "{f:?}: {}", w.explain());
    });
}

#[test]
fn of_several_sources_each_has_its_own_copy() {
    let mut w = world(Listed, true, "");
    let mut second = secret("source", "second", value!({"k": "x"}));
    metadata::set_label(&mut second, "copy", "yes").unwrap();
    w.put(second);
    w.settle();
    let copy = id("Secret", "default", "second");
    assert!(w.has(&copy), "a source that comes later is copied");
    w.delete(&O());
    w.settle();
    assert!(!w.has(&Listed.made()));
    assert!(w.has(&copy), "the others stay");
    at_rest(&mut w, Listed);
}

// Policy.

#[test]
fn a_deleted_policy_takes_what_it_made_along_and_leaves_copies() {
    for more in ["", ", orphanDownstreamOnPolicyDelete: {enabled: false}"] {
        each(&Form::ALL, true, more, |w, f| {
            w.delete(&P());
            w.settle();
            assert_eq!(w.has(&f.made()), f.is_copy(), "{f:?}");
        });
    }
    each(&[Made, Document], true, "", |w, f| {
        w.seconds(5);
        w.delete(&P());
        w.restart();
        w.settle();
        assert!(!w.has(&f.made()), "{f:?}: also without a watch");
    });
}

#[test]
fn a_deleted_policy_leaves_orphans_where_they_are_wanted_and_without_synchronize() {
    for (synchronize, more) in [
        (true, ", orphanDownstreamOnPolicyDelete: {enabled: true}"),
        (true, ", orphanDownstreamOnPolicyDelete: true"),
        (false, ""),
    ] {
        each(&Form::ALL, synchronize, more, |w, f| {
            w.delete(&P());
            w.settle();
            assert!(w.has(&f.made()), "{f:?}");
            w.delete(&T());
            w.settle();
            assert!(w.has(&f.made()), "{f:?}: it is orphaned");
        });
    }
}

#[test]
fn an_edited_policy_reaches_its_objects() {
    each(&[Made, Document], true, "", |w, f| {
        w.apply(
            &f.policy(true, "")
                .replace("fixed': 'one'", "fixed': 'two'")
                .replace("fixed: one", "fixed: two"),
        );
        w.settle();
        assert_eq!(text(w, f).as_deref(), Some("two"), "{f:?}");
        assert_eq!(w.writes().len(), 1, "{f:?}: one write");
    });
    each(&[Made, Document], false, "", |w, f| {
        w.apply(
            &f.policy(false, "")
                .replace("fixed': 'one'", "fixed': 'two'")
                .replace("fixed: one", "fixed: two"),
        );
        w.settle();
        assert_eq!(text(w, f).as_deref(), Some("one"), "{f:?}: not before the next event");
    });
}

#[test]
fn a_policy_that_makes_another_object_leaves_nothing_behind() {
    each(&[Made, Document, SetField, ByHand], true, "", |w, f| {
        w.apply(&f.policy(true, "").replace("-made'", "-new'"));
        w.settle();
        let new = ObjectId { name: "t-new".into(), ..f.made() };
        assert!(w.has(&new), "{f:?}");
        assert!(!w.has(&f.made()), "{f:?}");
    });
    // Another kind, too.
    let mut w = world(Made, true, "");
    w.apply(&Copied.policy(true, ""));
    w.settle();
    assert!(w.has(&Copied.made()) && !w.has(&Made.made()));
    w.put(config_map("source", "origin", value!({"k": "map"})));
    w.apply(&Copied.policy(true, "").replace("'secrets'", "'configmaps'"));
    w.settle();
    assert!(!w.has(&Copied.made()), "{}", w.explain());
    assert!(w.has(&id("ConfigMap", "default", "origin")));
    at_rest(&mut w, Made);
}

#[test]
fn synchronize_switched_off_keeps_what_is_there() {
    each(&Form::ALL, true, "", |w, f| {
        w.apply(&f.policy(false, ""));
        w.settle();
        w.delete(&f.made());
        w.settle();
        assert!(!w.has(&f.made()), "{f:?}");
    });
}

#[test]
fn existing_triggers_count_when_the_policy_says_so() {
    for (more, wanted) in [
        ("", false),
        (", generateExisting: {enabled: true}", true),
        (", generateExisting: true", true),
    ] {
        for synchronize in [true, false] {
            let mut w = World::new();
            w.put(namespace("source", value!({})));
            w.put(origin("one"));
            w.put(trigger("t", "v1"));
            w.settle();
            w.apply(&Made.policy(synchronize, more));
            w.settle();
            assert_eq!(w.has(&Made.made()), wanted, "{more} {synchronize}");
            at_rest(&mut w, Made);
        }
    }
}

// Objects of others.

#[test]
fn what_somebody_else_made_is_left_alone() {
    let mut w = World::new();
    w.put(config_map("default", "t-made", value!({"mine": "yes"})));
    w.apply(&Made.policy(true, ""));
    w.settle();
    w.put(trigger("t", "v1"));
    w.settle();
    let foreign = w.get(&Made.made()).unwrap();
    assert_eq!(foreign.get("data"), Some(&value!({"mine": "yes"})));
    w.delete(&T());
    w.settle();
    assert!(w.has(&Made.made()), "and outlives the trigger");
    w.put(trigger("t", "v1"));
    w.settle();
    w.delete(&Made.made());
    w.settle();
    assert_eq!(text(&w, Made).as_deref(), Some("one"), "once it is gone, ours is made");
    at_rest(&mut w, Made);
}

#[test]
fn namespaced_policies_keep_to_their_namespace() {
    let mut w = World::new();
    w.put(namespace("team", value!({})));
    w.put(namespace("other", value!({})));
    w.apply(
        "apiVersion: policies.kyverno.io/v1
kind: NamespacedGeneratingPolicy
metadata: {name: p, namespace: team}
spec:
  evaluation: {synchronize: {enabled: true}, generateExisting: {enabled: true}}
  matchConstraints:
    resourceRules: [{apiGroups: [''], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [secrets, namespaces]}]
  generate:
  - expression: \"generator.Apply([{'apiVersion': 'v1', 'kind': 'ConfigMap', 'metadata': {'name': object.kind.lowerAscii() + '-made'}}])\"
",
    );
    w.settle();
    assert!(w.has(&id("ConfigMap", "team", "namespace-made")), "{}", w.explain());
    assert!(!w.has(&id("ConfigMap", "other", "namespace-made")));
    w.put(secret("team", "s", value!({"k": "v"})));
    w.put(secret("other", "s", value!({"k": "v"})));
    w.settle();
    assert!(w.has(&id("ConfigMap", "team", "secret-made")));
    assert!(!w.has(&id("ConfigMap", "other", "secret-made")));
    // Cleaning up finds what the policy made, though labels hold its bare name.
    w.delete(&id("Secret", "team", "s"));
    w.settle();
    assert!(!w.has(&id("ConfigMap", "team", "secret-made")));
    w.delete(&id("NamespacedGeneratingPolicy", "team", "p"));
    w.settle();
    assert!(!w.has(&id("ConfigMap", "team", "namespace-made")), "{}", w.explain());
    at_rest(&mut w, Made);
}

// What the original was reported to do.

#[test]
fn an_update_of_the_trigger_that_changes_nothing_deletes_nothing() {
    each(&Form::ALL, true, "", |w, f| {
        let before = w.get(&f.made()).unwrap();
        w.edit(&T(), &["metadata", "annotations"], value!({"note": "x"}));
        w.settle();
        w.edit(&T(), &["metadata", "labels", "other"], "x");
        w.settle();
        assert!(w.writes().is_empty(), "{f:?}: {:?}", w.writes());
        assert_eq!(w.get(&f.made()), Some(before), "{f:?}");
    });
}

#[test]
fn deleting_one_trigger_leaves_the_objects_of_others() {
    each(&[Made, Document, SetField, ByHand], true, "", |w, f| {
        w.put(trigger("u", "v1"));
        w.settle();
        let other = ObjectId { name: "u-made".into(), ..f.made() };
        assert!(w.has(&other), "{f:?}: {}", w.explain());
        w.delete(&T());
        w.settle();
        assert!(!w.has(&f.made()), "{f:?}");
        assert!(w.has(&other), "{f:?}: each trigger has its own");
        w.edit(&id("ConfigMap", "default", "u"), &["data", "mode"], "off");
        w.settle();
        assert!(!w.has(&other), "{f:?}");
    });
}

#[test]
fn two_triggers_that_want_one_object_do_not_fight_over_it() {
    let mut w = world(Listed, true, "");
    w.put(trigger("u", "v1"));
    w.settle();
    w.forget_calls();
    w.seconds(600);
    assert!(w.writes().is_empty(), "neither adds and deletes for ever: {:?}", w.writes());
    w.delete(&T());
    w.settle();
    assert!(w.has(&Listed.made()), "as long as one wants it, it is there: {}", w.explain());
    w.delete(&id("ConfigMap", "default", "u"));
    w.settle();
    assert!(!w.has(&Listed.made()), "{}", w.explain());
    at_rest(&mut w, Listed);
}

#[test]
fn two_policies_that_want_one_object_do_not_add_and_delete_for_ever() {
    let mut w = world(Made, true, "");
    w.apply(&Made.policy(true, "").replace("{name: p}", "{name: q}").replace("'one'", "'two'"));
    w.edit(&T(), &["data", "k"], "v2");
    w.settle();
    w.forget_calls();
    w.seconds(600);
    assert!(w.writes().is_empty(), "{:?}", w.writes());
    assert_eq!(text(&w, Made).as_deref(), Some("one"), "the first has it");
    w.delete(&P());
    w.seconds(600);
    assert_eq!(text(&w, Made).as_deref(), Some("two"), "then the other: {}", w.explain());
    at_rest(&mut w, Made);
}

#[test]
fn an_object_that_fires_its_own_policy_makes_no_chain() {
    let mut w = World::new();
    w.apply(&Made.policy(true, "").replace(
        "'metadata': {'name': variables.name}",
        "'metadata': {'name': variables.name, 'labels': {'app': 'on'}}",
    ));
    w.settle();
    w.put(trigger("t", "v1"));
    w.seconds(60);
    assert!(w.has(&Made.made()), "{}", w.explain());
    assert!(!w.has(&id("ConfigMap", "default", "t-made-made")), "{}", w.explain());
    at_rest(&mut w, Made);
}

#[test]
fn one_failing_trigger_blocks_no_other() {
    let mut w = World::new();
    w.apply(&Made.policy(true, ""));
    w.settle();
    let mut bad = config_map("default", "bad", value!({"other": "x"}));
    metadata::set_label(&mut bad, "app", "on").unwrap();
    w.put(bad);
    w.put(trigger("t", "v1"));
    w.settle();
    assert!(w.has(&Made.made()), "{}", w.explain());
    assert!(
        w.conditions().iter().any(|condition| condition.contains("no such key: k")),
        "{:?}",
        w.conditions()
    );
    // What it made while it was good stays while it fails.
    w.edit(&id("ConfigMap", "default", "bad"), &["data", "k"], "now");
    w.settle();
    let made = id("ConfigMap", "default", "bad-made");
    assert!(w.has(&made));
    let mut worse = w.get(&id("ConfigMap", "default", "bad")).unwrap();
    worse.remove(["data", "k"]);
    w.put(worse);
    w.seconds(120);
    assert!(w.has(&made), "a failed evaluation deletes nothing");
}

#[test]
fn labels_of_a_source_and_of_the_policy_reach_the_copy() {
    let mut w = world(Copied, true, "");
    let copy = w.get(&Copied.made()).unwrap();
    assert_eq!(metadata::label(&copy, "team"), Some("blue"));
    assert_eq!(metadata::label(&copy, "generate.kyverno.io/policy-name"), Some("p"));
    let source = w.get(&O()).unwrap();
    assert_eq!(metadata::label(&copy, "generate.kyverno.io/source-uid"), metadata::uid(&source));
    assert_eq!(
        metadata::label(&source, "app.kubernetes.io/managed-by"),
        None,
        "nothing is written to it"
    );
    at_rest(&mut w, Copied);
}
