//! Claims that are forged: they supply no cause, lead to no write elsewhere, and keep no rule from firing.

use crate::support::{World, id, namespace, secret};
use kiln_engine::User;
use kiln_object::{Gvk, ObjectId, metadata};
use kiln_value::{Map, Value, json, value};

/// What rules are, as far as their claims differ.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Form {
    Data,
    Clone,
    CloneList,
    Foreach,
    ForeachClone,
    Generating,
    GeneratingCopy,
}

const FORMS: [Form; 7] = [
    Form::Data,
    Form::Clone,
    Form::CloneList,
    Form::Foreach,
    Form::ForeachClone,
    Form::Generating,
    Form::GeneratingCopy,
];

const IN: &str = "namespace: '{{request.object.metadata.name}}'";

impl Form {
    /// Gives namespaces that are labelled so a Secret `made`; with `of`, only those of a group.
    fn policy(self, of: Option<&str>) -> String {
        let secret = "apiVersion: v1, kind: Secret";
        let data = "data: {stringData: {k: right}}";
        let generate = match self {
            Form::Data => format!("{secret}, name: made, {IN}, {data}"),
            Form::Clone => {
                format!("{secret}, name: made, {IN}, clone: {{namespace: platform, name: made}}")
            }
            Form::CloneList => format!(
                "{IN}, cloneList: {{namespace: platform, kinds: [v1/Secret], selector: {{matchLabels: {{copy: 'yes'}}}}}}"
            ),
            Form::Foreach => {
                format!(
                    "foreach: [{{list: \"['made']\", {secret}, name: '{{{{element}}}}', {IN}, {data}}}]"
                )
            }
            Form::ForeachClone => format!(
                "foreach: [{{list: \"['made']\", {secret}, name: '{{{{element}}}}', {IN}, clone: {{namespace: platform, name: made}}}}]"
            ),
            Form::Generating => {
                let object = "{'apiVersion': 'v1', 'kind': 'Secret', 'metadata': {'name': 'made'}, 'stringData': {'k': 'right'}}";
                return generating(
                    of,
                    &format!("generator.Apply(object.metadata.name, [{object}])"),
                );
            }
            Form::GeneratingCopy => {
                let source = "resource.Get('v1', 'secrets', 'platform', 'made')";
                return generating(
                    of,
                    &format!("generator.Apply(object.metadata.name, [{source}])"),
                );
            }
        };
        let subjects = of
            .map_or(String::new(), |group| format!(", subjects: [{{kind: Group, name: {group}}}]"));
        format!(
            "apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {{name: p}}
spec:
  background: false
  rules:
  - name: r
    match: {{any: [{{resources: {{kinds: [Namespace], selector: {{matchLabels: {{tier: shop}}}}}}{subjects}}}]}}
    generate: {{synchronize: true, {generate}}}
"
        )
    }

    fn is_generating(self) -> bool {
        [Form::Generating, Form::GeneratingCopy].contains(&self)
    }
}

fn generating(of: Option<&str>, expression: &str) -> String {
    let conditions = of.map_or(String::new(), |group| {
        format!("  matchConditions: [{{name: who, expression: \"'{group}' in request.userInfo.groups\"}}]\n")
    });
    format!(
        "apiVersion: policies.kyverno.io/v1
kind: GeneratingPolicy
metadata: {{name: p}}
spec:
  evaluation: {{synchronize: {{enabled: true}}}}
  matchConstraints:
    objectSelector: {{matchLabels: {{tier: shop}}}}
    resourceRules: [{{apiGroups: [''], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [namespaces]}}]
{conditions}  generate:
  - expression: >-
      {expression}
"
    )
}

/// How a claim is made up.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Forgery {
    /// Labels as Kyverno writes them.
    Labels,
    /// With the annotations of older versions, a user of the forger's choice among them.
    Annotations,
    /// Likewise, as if the content were another one each time.
    OwnWriting,
    /// Likewise, with a signature by the name of the engine's key.
    Signed,
    /// Likewise, by an unknown key.
    UnknownKey,
    /// The whole claim of something that the engine made.
    Copied,
    /// The same with another trigger.
    CopiedForAnother,
}

const FORGERIES: [Forgery; 7] = [
    Forgery::Labels,
    Forgery::Annotations,
    Forgery::OwnWriting,
    Forgery::Signed,
    Forgery::UnknownKey,
    Forgery::Copied,
    Forgery::CopiedForAnother,
];

const SIGNATURE: &str = "kiln.dev/signature";

fn platform_admin() -> User {
    User { username: "admin".into(), groups: vec!["platform".into()], ..User::default() }
}

/// A cluster with namespaces that are older than the rule, and one that the platform made afterwards.
fn world(form: Form, of: Option<&str>) -> World {
    let mut world = World::new();
    for name in ["platform", "prod", "evil"] {
        let labels = if name == "platform" { value!({}) } else { value!({"tier": "shop"}) };
        world.put(namespace(name, labels));
    }
    let mut source = secret("platform", "made", value!({"k": "right"}));
    metadata::set_label(&mut source, "copy", "yes").unwrap();
    world.put(source);
    world.seconds(2);
    world.apply(&form.policy(of));
    world.seconds(2);
    world.put_as(&platform_admin(), namespace("good", value!({"tier": "shop"})));
    world.seconds(3);
    let made = id("Secret", "good", "made");
    assert!(world.has(&made), "{form:?}: {}", world.explain());
    for name in ["prod", "evil"] {
        assert!(!world.has(&id("Secret", name, "made")), "{form:?}: {}", world.explain());
    }
    world
}

/// Writes a claim of the rule for a trigger onto an object.
fn forge(world: &World, form: Form, forgery: Forgery, trigger: &Value, object: &mut Value) {
    let genuine = world.get(&id("Secret", "good", "made")).unwrap();
    if matches!(forgery, Forgery::Copied | Forgery::CopiedForAnother) {
        for field in ["labels", "annotations"] {
            let copied = genuine.get_path(["metadata", field]).unwrap().clone();
            object.set(["metadata", field], copied).unwrap();
        }
        if forgery == Forgery::Copied {
            return;
        }
    }
    let mut labels = vec![
        ("app.kubernetes.io/managed-by", "kyverno"),
        ("generate.kyverno.io/policy-name", "p"),
        ("generate.kyverno.io/policy-namespace", ""),
        ("generate.kyverno.io/trigger-group", ""),
        ("generate.kyverno.io/trigger-version", "v1"),
        ("generate.kyverno.io/trigger-kind", "Namespace"),
        ("generate.kyverno.io/trigger-namespace", ""),
        ("generate.kyverno.io/trigger-uid", metadata::uid(trigger).unwrap()),
    ];
    match form.is_generating() {
        true => {
            labels.push(("generate.kyverno.io/trigger-name", metadata::name(trigger).unwrap()));
        }
        false => labels.push(("generate.kyverno.io/rule-name", "r")),
    }
    for (key, text) in labels {
        metadata::set_label(object, key, text).unwrap();
    }
    if forgery == Forgery::Labels || forgery == Forgery::CopiedForAnother {
        return;
    }
    let rule = metadata::annotation(&genuine, "kiln.dev/rule").unwrap();
    let policy = metadata::annotation(&genuine, "kiln.dev/policy-uid").unwrap();
    let pattern = metadata::annotation(&genuine, "kiln.dev/pattern").unwrap();
    let user = value!({"username": "admin", "groups": ["platform"]});
    let mut annotations = vec![
        ("kiln.dev/rule", rule.to_owned()),
        ("kiln.dev/trigger", format!("v1/Namespace/{}", metadata::name(trigger).unwrap())),
        ("kiln.dev/slot", "0//0".to_owned()),
        ("kiln.dev/operation", "CREATE".to_owned()),
        ("kiln.dev/policy-uid", policy.to_owned()),
        ("kiln.dev/pattern", pattern.to_owned()),
        ("kiln.dev/user", json::to_string(&user)),
    ];
    if forgery != Forgery::Annotations {
        annotations.push(("kiln.dev/content", "0".to_owned()));
    }
    match forgery {
        Forgery::Signed => annotations.push((SIGNATURE, format!("v1:7-key:{}", "0".repeat(64)))),
        Forgery::UnknownKey => {
            annotations.push((SIGNATURE, format!("v1:8-key:{}", "0".repeat(64))));
        }
        _ => {}
    }
    for (key, text) in annotations {
        metadata::set_annotation(object, key, &text).unwrap();
    }
}

/// All that is stored outside of the engine's namespace, but for one object.
fn others(world: &World, but: &ObjectId) -> Vec<Value> {
    let kinds = ["Namespace", "ConfigMap", "Secret"].map(|kind| Gvk::new("v1", kind));
    let all = kinds.iter().flat_map(|kind| world.all(kind));
    all.filter(|object| {
        metadata::namespace(object) != Some("kyverno") && ObjectId::of(object).unwrap() != *but
    })
    .collect()
}

#[test]
fn a_forged_claim_touches_nothing_but_the_object_that_carries_it() {
    let mut tried = 0;
    for form in FORMS {
        for of in [None, Some("platform")] {
            for forgery in FORGERIES {
                for about in ["evil", "prod", "good", "nobody"] {
                    for name in ["made", "other"] {
                        let mut world = world(form, of);
                        let trigger = match about {
                            "nobody" => {
                                let uid = "11111111-2222-3333-4444-555555555555";
                                value!({"metadata": {"name": "nobody", "uid": uid}})
                            }
                            name => world.get(&id("Namespace", "", name)).unwrap(),
                        };
                        let forged = id("Secret", "evil", name);
                        let mut object = secret("evil", name, value!({"k": "forged"}));
                        forge(&world, form, forgery, &trigger, &mut object);
                        let before = others(&world, &forged);
                        world.put(object.clone());
                        world.forget_calls();
                        world.seconds(5);
                        world.restart();
                        world.seconds(5);
                        let said = || {
                            format!(
                                "{form:?} {of:?} {forgery:?} {about} {name}: {}",
                                world.explain()
                            )
                        };
                        assert_eq!(others(&world, &forged), before, "{}", said());
                        let elsewhere: Vec<_> = world
                            .writes()
                            .into_iter()
                            .filter(|call| !call.about().same_object(&forged))
                            .collect();
                        assert!(elsewhere.is_empty(), "{elsewhere:?} {}", said());
                        // Only what the rule means for this very trigger, whichever user makes it one, may come into it.
                        let may_be_filled = about == "evil" && name == "made" && of.is_none();
                        let k = world.get(&forged);
                        let k = k.as_ref().and_then(|object| object.str_at(["data", "k"]));
                        let is_right = k == Some("cmlnaHQ=");
                        assert!(!is_right || may_be_filled, "{k:?} {}", said());
                        tried += 1;
                    }
                }
            }
        }
    }
    assert_eq!(tried, 7 * 2 * 7 * 4 * 2);
}

#[test]
fn a_forged_claim_keeps_no_rule_from_firing() {
    let mut tried = 0;
    for form in FORMS {
        for of in [None, Some("platform")] {
            for forgery in FORGERIES {
                for about in ["good", "platform"] {
                    for restarts in [false, true] {
                        let mut world = world(form, of);
                        let trigger = world.get(&id("Namespace", "", about)).unwrap();
                        let mut object = namespace("shy", value!({"tier": "shop"}));
                        let labels = object.get_path(["metadata", "labels"]).unwrap().clone();
                        forge(&world, form, forgery, &trigger, &mut object);
                        for (key, text) in labels.as_map().into_iter().flat_map(Map::iter) {
                            metadata::set_label(&mut object, key, text.as_str().unwrap()).unwrap();
                        }
                        match of {
                            None if restarts => {
                                world.put(object);
                                world.restart();
                            }
                            None => drop(world.put(object)),
                            Some(_) => world.put_as(&platform_admin(), object),
                        }
                        world.seconds(5);
                        let made = id("Secret", "shy", "made");
                        let said = || format!("{form:?} {of:?} {forgery:?} {about} {restarts}");
                        assert!(world.has(&made), "{}: {}", said(), world.explain());
                        // Else the engine itself would be the last who changed the trigger.
                        let shy = id("Namespace", "", "shy");
                        let writes = world.writes();
                        let touches = writes.iter().any(|call| call.about().same_object(&shy));
                        assert!(!touches, "{}: {writes:?}", said());
                        tried += 1;
                    }
                }
            }
        }
    }
    assert_eq!(tried, 7 * 2 * 7 * 2 * 2);
}

#[test]
fn edits_of_a_claim_are_put_right() {
    let made = id("Secret", "good", "made");
    for form in FORMS {
        for of in [None, Some("platform")] {
            let genuine = world(form, of).get(&made).unwrap();
            let keys = |field: &str| -> Vec<(String, String)> {
                let texts = genuine.get_path(["metadata", field]).and_then(Value::as_map);
                let texts = texts.into_iter().flat_map(Map::iter);
                let ours = texts.filter(|(key, _)| {
                    ["generate.kyverno.io/", "kiln.dev/", "app.kubernetes.io/managed-by"]
                        .iter()
                        .any(|ours| key.starts_with(ours))
                });
                ours.map(|(key, _)| (field.to_owned(), key.as_str().to_owned())).collect()
            };
            let all = [keys("labels"), keys("annotations")].concat();
            assert!(all.iter().any(|(_, key)| key == SIGNATURE), "{form:?}: {all:?}");
            for (field, key) in all {
                for edit in [Some("edited"), None] {
                    let mut world = world(form, of);
                    let mut object = world.get(&made).unwrap();
                    match edit {
                        Some(text) => {
                            object.set(["metadata", &field, &key], text).unwrap();
                        }
                        None => drop(object.remove(["metadata", &field, &key])),
                    }
                    let before = world.get(&made).unwrap();
                    world.put(object);
                    world.forget_calls();
                    world.seconds(5);
                    let after = world.get(&made).unwrap();
                    let said = || format!("{form:?} {of:?} {field} {key} {edit:?}");
                    for field in ["labels", "annotations", "uid"] {
                        let at = ["metadata", field];
                        let is = after.get_path(at);
                        assert_eq!(is, before.get_path(at), "{}: {}", said(), world.explain());
                    }
                    assert_eq!(world.writes().len(), 1, "{}: {}", said(), world.explain());
                }
            }
        }
    }
}
