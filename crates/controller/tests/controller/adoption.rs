//! What Kyverno made: it is taken over with its UID, and written only where it is not as its rule wants it.

use crate::support::{ON, World, config_map, id, namespace, policy, secret, trigger};
use kiln_object::{ObjectId, metadata};
use kiln_testkit::{MadeBy, copied_by_kyverno, made_by_kyverno};
use kiln_value::{Value, value};

/// The ways to make objects that leave different labels.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Form {
    Data,
    /// In a Policy of a namespace.
    Namespaced,
    /// By server-side apply.
    Applied,
    Clone,
    CloneList,
    Foreach,
    ForeachClone,
    Generating,
    GeneratingNamespaced,
    /// `resource.Get`
    GeneratingCopy,
    /// `resource.List`
    GeneratingList,
}

const FORMS: [Form; 11] = [
    Form::Data,
    Form::Namespaced,
    Form::Applied,
    Form::Clone,
    Form::CloneList,
    Form::Foreach,
    Form::ForeachClone,
    Form::Generating,
    Form::GeneratingNamespaced,
    Form::GeneratingCopy,
    Form::GeneratingList,
];

const NAME: &str = "'{{request.object.metadata.name}}-made'";

impl Form {
    fn is_generating(self) -> bool {
        let generating = [Form::Generating, Form::GeneratingNamespaced];
        generating.contains(&self) || [Form::GeneratingCopy, Form::GeneratingList].contains(&self)
    }

    fn is_copy(self) -> bool {
        let copies = [Form::Clone, Form::CloneList, Form::ForeachClone];
        copies.contains(&self) || [Form::GeneratingCopy, Form::GeneratingList].contains(&self)
    }

    /// The source as it is called, so that all triggers get the same copies.
    fn is_shared(self) -> bool {
        [Form::CloneList, Form::GeneratingList].contains(&self)
    }

    fn policy(self, synchronize: bool) -> String {
        let made = format!("apiVersion: v1, kind: ConfigMap, name: {NAME}, namespace: default");
        let data = "data: {data: {k: '{{request.object.data.k}}'}}";
        let generate = match self {
            Form::Data | Form::Namespaced | Form::Applied => format!("{made}, {data}"),
            Form::Clone => format!(
                "apiVersion: v1, kind: Secret, name: {NAME}, namespace: default, clone: {{namespace: source, name: one}}"
            ),
            Form::CloneList => "namespace: default, cloneList: {namespace: source, kinds: [v1/Secret], \
                                selector: {matchLabels: {copy: 'yes'}}}"
                .into(),
            Form::Foreach => format!(
                "foreach: [{{list: \"request.object.data.each | split(@, ',')\", apiVersion: v1, kind: ConfigMap, namespace: default, \
                 name: '{{{{request.object.metadata.name}}}}-{{{{element}}}}', {data}}}]"
            ),
            Form::ForeachClone => "foreach: [{list: \"request.object.data.each | split(@, ',')\", apiVersion: v1, kind: Secret, \
                namespace: default, name: '{{request.object.metadata.name}}-{{element}}', clone: {namespace: source, name: '{{element}}'}}]"
                .into(),
            Form::Generating | Form::GeneratingNamespaced => "generator.Apply('default', [{'apiVersion': 'v1', 'kind': 'ConfigMap', \
                'metadata': {'name': object.metadata.name + '-made'}, 'data': {'k': object.data.k}}])"
                .into(),
            Form::GeneratingCopy => "generator.Apply('default', \
                [resource.Get('v1', 'secrets', 'source', 'one').setField('metadata.name', object.metadata.name + '-made')])"
                .into(),
            Form::GeneratingList => "generator.Apply('default', [resource.List('v1', 'secrets', 'source', {'copy': 'yes'})])".into(),
        };
        if self == Form::GeneratingNamespaced {
            // A policy of a namespace writes there.
            return generating(self, synchronize, &generate.replace("'default', ", ""));
        }
        if self.is_generating() {
            return generating(self, synchronize, &generate);
        }
        let text = policy("p", ON, &format!("{{synchronize: {synchronize}, {generate}}}"));
        match self {
            Form::Namespaced => text
                .replace("ClusterPolicy", "Policy")
                .replace("{name: p}", "{name: p, namespace: default}"),
            Form::Applied => text.replace("  rules:", "  useServerSideApply: true\n  rules:"),
            _ => text,
        }
    }

    fn maker(self) -> MadeBy<'static> {
        match self {
            _ if self.is_generating() => MadeBy::GeneratingPolicy("p"),
            Form::Namespaced => MadeBy::Rule { policy: "p", namespace: "default", rule: "r" },
            _ => MadeBy::Rule { policy: "p", namespace: "", rule: "r" },
        }
    }

    /// What Kyverno makes of a trigger.
    fn made(self, trigger: &Value, sources: &[Value]) -> Vec<Value> {
        let of = metadata::name(trigger).unwrap();
        let k = trigger.str_at(["data", "k"]).unwrap();
        let data = |name: &str| config_map("default", name, value!({"k": k}));
        let copy = |source: &Value, name: &str| {
            let copy = copied_by_kyverno(source, "default", name);
            made_by_kyverno(copy, self.maker(), trigger, Some(source))
        };
        let names: Vec<String> = match self {
            Form::Foreach => ["one", "two"].iter().map(|each| format!("{of}-{each}")).collect(),
            _ => vec![format!("{of}-made")],
        };
        match self {
            Form::Clone | Form::GeneratingCopy => vec![copy(&sources[0], &names[0])],
            Form::CloneList | Form::GeneratingList => {
                sources.iter().map(|source| copy(source, metadata::name(source).unwrap())).collect()
            }
            Form::ForeachClone => sources
                .iter()
                .map(|source| copy(source, &format!("{of}-{}", metadata::name(source).unwrap())))
                .collect(),
            _ => names
                .iter()
                .map(|name| made_by_kyverno(data(name), self.maker(), trigger, None))
                .collect(),
        }
    }
}

fn generating(form: Form, synchronize: bool, expression: &str) -> String {
    let (kind, place) = match form {
        Form::GeneratingNamespaced => ("NamespacedGeneratingPolicy", ", namespace: default"),
        _ => ("GeneratingPolicy", ""),
    };
    format!(
        "apiVersion: policies.kyverno.io/v1
kind: {kind}
metadata: {{name: p{place}}}
spec:
  evaluation: {{synchronize: {{enabled: {synchronize}}}}}
  matchConstraints:
    objectSelector: {{matchLabels: {{app: 'on'}}}}
    resourceRules: [{{apiGroups: [''], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [configmaps]}}]
  generate:
  - expression: >-
      {expression}
"
    )
}

fn trigger_with(name: &str, k: &str) -> Value {
    let mut trigger = trigger(name, k);
    trigger.set(["data", "each"], "one,two").unwrap();
    trigger
}

/// A source that a user applied, after Kyverno copied it.
fn source(name: &str) -> Value {
    let mut source = secret("source", name, value!({"k": "old"}));
    for (key, text) in [("copy", "yes"), ("generate.kyverno.io/clone-source", "")] {
        metadata::set_label(&mut source, key, text).unwrap();
    }
    let applied = "kubectl.kubernetes.io/last-applied-configuration";
    metadata::set_annotation(&mut source, applied, "{}").unwrap();
    source
}

/// A cluster in which Kyverno has done all that there was to do, and what it made.
fn world(form: Form, synchronize: bool) -> (World, Vec<ObjectId>) {
    let mut world = World::new();
    world.put(namespace("source", value!({})));
    world.apply(&form.policy(synchronize));
    let sources = ["one", "two"].map(|name| world.put(source(name)));
    let triggers: &[&str] = if form.is_shared() { &["t"] } else { &["t", "u"] };
    let mut all = Vec::new();
    for name in triggers {
        let trigger = world.put(trigger_with(name, "old"));
        for mut made in form.made(&trigger, &sources) {
            let signed = "generate.kyverno.io/provenance";
            metadata::set_annotation(&mut made, signed, "v1:c2lnbmVk").unwrap();
            all.push(ObjectId::of(&world.put(made)).unwrap());
        }
    }
    (world, all)
}

fn uid(world: &World, target: &ObjectId) -> String {
    metadata::uid(&world.get(target).unwrap()).unwrap().to_owned()
}

/// Which objects were written, other than the controller's own.
fn written(world: &World) -> Vec<ObjectId> {
    let mut written: Vec<_> = world.writes().iter().map(|call| call.about()).collect();
    written.sort();
    written
}

#[test]
fn what_is_as_its_rule_wants_it_is_not_written() {
    for form in FORMS {
        for synchronize in [true, false] {
            let (mut world, made) = world(form, synchronize);
            let before: Vec<_> = made.iter().map(|id| world.get(id)).collect();
            world.seconds(3);
            let after: Vec<_> = made.iter().map(|id| world.get(id)).collect();
            assert_eq!(after, before, "{form:?} {synchronize}: {}", world.explain());
            assert_eq!(written(&world), [], "{form:?} {synchronize}: {}", world.explain());
            assert_eq!(world.conditions(), Vec::<String>::new(), "{form:?} {synchronize}");
            // Nor by the next process.
            world.restart();
            world.seconds(3);
            assert_eq!(written(&world), [], "{form:?} {synchronize}: {}", world.explain());
        }
    }
}

#[test]
fn a_change_is_one_write_to_the_same_object() {
    for form in FORMS {
        let (mut world, mut made) = world(form, true);
        world.seconds(3);
        let before: Vec<_> = made.iter().map(|id| uid(&world, id)).collect();
        let new = if form.is_copy() {
            for source in ["one", "two"] {
                world.edit(&id("Secret", "source", source), &["data", "k"], "bmV3");
            }
            "bmV3"
        } else {
            for name in ["t", "u"] {
                world.edit(&id("ConfigMap", "default", name), &["data", "k"], "new");
            }
            "new"
        };
        world.forget_calls();
        world.seconds(3);
        let after: Vec<_> = made.iter().map(|id| uid(&world, id)).collect();
        assert_eq!(after, before, "{form:?}: {}", world.explain());
        for id in &made {
            let object = world.get(id).unwrap();
            assert_eq!(object.str_at(["data", "k"]), Some(new), "{form:?}: {}", world.explain());
        }
        made.sort();
        assert_eq!(written(&world), made, "{form:?}: {}", world.explain());
        // Then it is Kiln's like all that it makes.
        for id in &made {
            world.edit(id, &["data", "k"], "bWluZQ==");
        }
        world.seconds(3);
        for id in &made {
            let object = world.get(id).unwrap();
            assert_eq!(object.str_at(["data", "k"]), Some(new), "{form:?}: {}", world.explain());
        }
    }
}

#[test]
fn what_somebody_changed_is_put_right_with_its_uid() {
    for form in FORMS {
        let (mut world, made) = world(form, true);
        let (changed, before) = (made[0].clone(), uid(&world, &made[0]));
        let right = world.get(&changed).unwrap().get_path(["data", "k"]).unwrap().clone();
        let sources =
            |world: &World| ["one", "two"].map(|name| world.get(&id("Secret", "source", name)));
        let untouched = sources(&world);
        world.edit(&changed, &["data", "k"], "bWluZQ==");
        world.seconds(3);
        assert_eq!(sources(&world), untouched, "{form:?}: nothing flows back");
        let object = world.get(&changed).unwrap();
        assert_eq!(object.get_path(["data", "k"]), Some(&right), "{form:?}: {}", world.explain());
        assert_eq!(uid(&world, &changed), before, "{form:?}");
        assert_eq!(written(&world), [changed], "{form:?}: {}", world.explain());
    }
}

#[test]
fn the_end_of_a_trigger_ends_what_kyverno_would_have_ended() {
    for form in FORMS {
        for synchronize in [true, false] {
            // Before it was ever looked at, and afterwards.
            for adopted in [true, false] {
                let (mut world, made) = world(form, synchronize);
                if adopted {
                    world.seconds(3);
                }
                world.delete(&id("ConfigMap", "default", "t"));
                world.seconds(5);
                let said = || format!("{form:?} {synchronize} {adopted}: {}", world.explain());
                for id in made {
                    let of_another = id.name.starts_with("u-");
                    assert_eq!(world.has(&id), of_another || !synchronize, "{id} {}", said());
                }
                for name in ["one", "two"] {
                    assert!(world.has(&id("Secret", "source", name)), "{}", said());
                }
            }
        }
    }
}

#[test]
fn the_end_of_a_policy_ends_what_kyverno_would_have_ended() {
    for form in FORMS {
        let (mut world, made) = world(form, true);
        world.seconds(3);
        let (kind, place) = match form {
            Form::GeneratingNamespaced => ("NamespacedGeneratingPolicy", "default"),
            Form::Namespaced => ("Policy", "default"),
            _ if form.is_generating() => ("GeneratingPolicy", ""),
            _ => ("ClusterPolicy", ""),
        };
        world.delete(&id(kind, place, "p"));
        world.seconds(5);
        for id in made {
            assert_eq!(world.has(&id), form.is_copy(), "{form:?} {id}: {}", world.explain());
        }
    }
}

#[test]
fn the_end_of_a_source_ends_its_copies() {
    for form in FORMS.into_iter().filter(|form| form.is_copy()) {
        let (mut world, made) = world(form, true);
        world.seconds(3);
        world.delete(&id("Secret", "source", "one"));
        world.seconds(5);
        for id in made {
            let stays = id.name.ends_with("two");
            assert_eq!(world.has(&id), stays, "{form:?} {id}: {}", world.explain());
        }
    }
}

#[test]
fn what_a_rule_no_longer_makes_is_let_go() {
    let (mut world, made) = world(Form::Foreach, true);
    world.seconds(3);
    world.edit(&id("ConfigMap", "default", "t"), &["data", "each"], "one");
    world.seconds(5);
    let left = world.get(&id("ConfigMap", "default", "t-two")).unwrap();
    assert_eq!(metadata::label(&left, "generate.kyverno.io/policy-name"), None);
    assert!(made.iter().all(|id| world.has(id)), "{}", world.explain());
}

/// Kyverno's labels do not tell a GeneratingPolicy from a NamespacedGeneratingPolicy of its name.
#[test]
fn an_object_that_two_policies_may_have_made_is_for_the_one_that_wants_it() {
    let (mut world, made) = world(Form::GeneratingNamespaced, true);
    let other = Form::Generating.policy(true).replace("'-made'", "'-other'");
    world.apply(&other);
    let before: Vec<_> = made.iter().map(|id| world.get(id)).collect();
    world.seconds(5);
    let after: Vec<_> = made.iter().map(|id| world.get(id)).collect();
    assert_eq!(after, before, "{}", world.explain());
    assert!(written(&world).iter().all(|id| id.name.ends_with("-other")), "{}", world.explain());
}

/// What Kyverno's GeneratingPolicy `p` made of the trigger `t`: elsewhere, beside it, and without a namespace.
fn made_of_the_trigger(world: &mut World) -> [ObjectId; 3] {
    let trigger = world.put(trigger_with("t", "old"));
    [
        config_map("central", "kept", value!({"k": "v"})),
        config_map("default", "kept", value!({"k": "v"})),
        namespace("kept", value!({})),
    ]
    .map(|object| {
        let made = made_by_kyverno(object, MadeBy::GeneratingPolicy("p"), &trigger, None);
        ObjectId::of(&world.put(made)).unwrap()
    })
}

/// A policy of the cluster, as the mirror finds it.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Stored {
    Good,
    /// Kiln does not know what it means; Kyverno may.
    Broken,
    Gone,
}

#[test]
fn a_policy_of_a_namespace_ends_nothing_that_a_policy_of_the_cluster_may_have_made() {
    let tenants = Form::GeneratingNamespaced.policy(true).replace("'-made'", "'-other'");
    for stored in [Stored::Good, Stored::Broken, Stored::Gone] {
        let mut world = World::new();
        world.put(namespace("central", value!({})));
        let theirs = Form::Generating.policy(false);
        match stored {
            Stored::Good => world.apply(&theirs),
            Stored::Broken => world.apply(&theirs.replace("object.data.k}", "nonsense(}")),
            Stored::Gone => {}
        }
        let [elsewhere, beside, above] = made_of_the_trigger(&mut world);
        let before = |world: &World| [&elsewhere, &above].map(|id| world.get(id));
        let (kept, own) = (before(&world), world.get(&beside));
        world.seconds(3);
        // It makes something else of the trigger, then nothing, and then it is gone itself.
        world.apply(&tenants);
        world.seconds(5);
        let other = id("ConfigMap", "default", "t-other");
        // What an unsigned claim says does not make the older trigger one of a rule that makes something else.
        assert!(!world.has(&other), "{stored:?}: {}", world.explain());
        world.edit(&id("ConfigMap", "default", "t"), &["data", "k"], "touched");
        world.seconds(5);
        assert!(world.has(&other), "{stored:?}: {}", world.explain());
        let first = world.get(&beside);
        world.delete(&id("ConfigMap", "default", "t"));
        world.seconds(5);
        assert!(!world.has(&other), "{stored:?}: {}", world.explain());
        let second = world.get(&beside);
        world.delete(&id("NamespacedGeneratingPolicy", "default", "p"));
        world.seconds(5);
        assert_eq!(before(&world), kept, "{stored:?}: {}", world.explain());
        // In its own namespace it may have made everything that is so labelled, unless another rule may have.
        for found in [first, second, world.get(&beside)] {
            let wanted = own.clone().filter(|_| stored != Stored::Gone);
            assert_eq!(found, wanted, "{stored:?}: {}", world.explain());
        }
    }
}

#[test]
fn the_end_of_a_policy_of_a_namespace_ends_nothing_elsewhere() {
    for stored in [true, false] {
        let mut world = World::new();
        world.put(namespace("central", value!({})));
        if stored {
            world.apply(&Form::Generating.policy(false));
        }
        // It is not a trigger of the policy, which therefore looks at nothing while it is there.
        let made = made_of_the_trigger(&mut world);
        let tenants = Form::GeneratingNamespaced.policy(true).replace("app: 'on'", "app: 'off'");
        let before = made.clone().map(|id| world.get(&id));
        world.apply(&tenants);
        world.settle();
        world.delete(&id("NamespacedGeneratingPolicy", "default", "p"));
        world.seconds(5);
        let after = made.map(|id| world.get(&id));
        assert_eq!(after[0], before[0], "{stored}: {}", world.explain());
        assert_eq!(after[2], before[2], "{stored}: {}", world.explain());
        if stored {
            assert_eq!(after[1], before[1], "{}", world.explain());
        }
    }
}

#[test]
fn whoever_stores_a_policy_in_a_namespace_later_keeps_nothing_of_the_clusters() {
    let tenants = Form::GeneratingNamespaced.policy(false).replace("'-made'", "'-other'");
    // Than the objects were made.
    for later in [false, true] {
        let mut world = World::new();
        world.put(namespace("central", value!({})));
        world.apply(&Form::Generating.policy(true));
        if !later {
            world.apply(&tenants);
        }
        let [elsewhere, beside, _] = made_of_the_trigger(&mut world);
        if later {
            world.now += 10_000;
            world.memory.set_time(i64::try_from(world.now / 1000).unwrap());
            world.apply(&tenants);
        }
        // The policy of the cluster makes something else of the trigger.
        world.seconds(5);
        assert!(!world.has(&elsewhere), "{later}: {}", world.explain());
        assert_eq!(world.has(&beside), !later, "{}", world.explain());
    }
}

/// Labels say what they like, and come along with copies.
#[test]
fn a_rule_of_a_namespace_lets_go_of_nothing_elsewhere() {
    for annotated in [false, true] {
        let (mut world, made) = world(Form::Namespaced, true);
        world.put(namespace("central", value!({})));
        let trigger = world.get(&id("ConfigMap", "default", "t")).unwrap();
        let object = config_map("central", "kept", value!({"k": "v"}));
        let mut object = made_by_kyverno(object, Form::Namespaced.maker(), &trigger, None);
        if annotated {
            metadata::set_annotation(&mut object, "kiln.dev/rule", "kyverno:default/p/r").unwrap();
        }
        let kept = ObjectId::of(&world.put(object)).unwrap();
        let before = world.get(&kept);
        world.seconds(3);
        world.edit(&id("ConfigMap", "default", "t"), &["data", "k"], "new");
        world.seconds(3);
        assert_eq!(world.get(&kept), before, "{annotated}: {}", world.explain());
        world.delete(&id("ConfigMap", "default", "t"));
        world.seconds(5);
        assert!(!world.has(&made[0]), "{annotated}: {}", world.explain());
        world.delete(&id("Policy", "default", "p"));
        world.seconds(5);
        assert_eq!(world.get(&kept), before, "{annotated}: {}", world.explain());
    }
}

/// Labels that a copy has from its source name a rule that did not make it.
#[test]
fn a_copy_of_what_a_rule_made_is_its_own_policys() {
    let (mut world, made) = world(Form::GeneratingCopy, true);
    let object = world.get(&made[0]).unwrap();
    for id in &made {
        for (label, text) in [("rule-name", "elsewhere"), ("policy-namespace", "elsewhere")] {
            let key = format!("generate.kyverno.io/{label}");
            world.edit(id, &["metadata", "labels", &key], text);
        }
    }
    world.seconds(3);
    assert_eq!(written(&world), [], "{}", world.explain());
    assert_eq!(uid(&world, &made[0]), metadata::uid(&object).unwrap());
    world.delete(&id("ConfigMap", "default", "t"));
    world.seconds(5);
    assert!(!world.has(&made[0]), "{}", world.explain());
}

/// Older versions of Kyverno wrote no UID of the trigger.
#[test]
fn labels_without_a_trigger_are_completed_while_it_is_there() {
    let uid_label = "generate.kyverno.io/trigger-uid";
    for is_there in [true, false] {
        let (mut world, made) = world(Form::Data, true);
        for id in &made {
            let mut object = world.get(id).unwrap();
            metadata::remove_label(&mut object, uid_label);
            world.put(object);
        }
        let before = uid(&world, &made[0]);
        if is_there {
            world.seconds(3);
            let object = world.get(&made[0]).unwrap();
            assert!(metadata::label(&object, uid_label).is_some(), "{}", world.explain());
            assert_eq!(uid(&world, &made[0]), before);
        }
        world.delete(&id("ConfigMap", "default", "t"));
        world.seconds(5);
        assert_eq!(world.has(&made[0]), !is_there, "{}", world.explain());
    }
}
