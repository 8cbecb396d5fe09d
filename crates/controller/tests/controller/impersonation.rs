//! What an attacker tries who wants a rule to run in the name of another user: by forged requests, by changing
//! a trigger after the other one, by restoring what was true once.

use crate::support::{World, admin, config_map, hint, id, namespace, nancy, policy, secret};
use kiln_engine::User;
use kiln_object::{ObjectId, metadata};
use kiln_rules::Operation;
use kiln_value::{Value, value};

fn platform() -> User {
    User { username: "boss".into(), groups: vec!["platform".into()], ..User::default() }
}

fn eve() -> User {
    User { username: "eve".into(), ..User::default() }
}

/// Copies the Secret that a request of the platform's asks for into the namespace of the request.
fn grant(synchronize: bool) -> String {
    let generate = format!(
        "{{synchronize: {synchronize}, apiVersion: v1, kind: Secret, name: 'copy-{{{{request.object.data.secret}}}}', namespace: '{{{{request.object.metadata.namespace}}}}', clone: {{namespace: platform, name: '{{{{request.object.data.secret}}}}'}}}}"
    );
    policy(
        "grant",
        "{kinds: [ConfigMap], names: ['request-*'], selector: {matchLabels: {db: 'yes'}}}",
        &generate,
    )
    .replace(
        "matchLabels: {db: 'yes'}}}}]",
        "matchLabels: {db: 'yes'}}}, subjects: [{kind: Group, name: platform}]}]",
    )
}

/// Every user may ask, but a precondition looks at who did.
fn grant_by_precondition() -> String {
    let anybody = grant(true).replace(", subjects: [{kind: Group, name: platform}]", "");
    anybody.replace(
        "    generate:",
        "    preconditions: {all: [{key: '{{request.userInfo.username}}', operator: Equals, value: boss}]}\n    generate:",
    )
}

fn ask(secret: &str) -> Value {
    let mut request = config_map("evil", "request-1", value!({"secret": secret}));
    metadata::set_label(&mut request, "db", "yes").unwrap();
    request
}

fn request() -> ObjectId {
    id("ConfigMap", "evil", "request-1")
}

fn copy(of: &str) -> ObjectId {
    id("Secret", "evil", &format!("copy-{of}"))
}

fn world(policy: &str) -> World {
    let mut world = World::new();
    for name in ["platform", "evil", "prod"] {
        world.put(namespace(name, value!({})));
    }
    for name in ["harmless", "prod-db"] {
        world.put(secret("platform", name, value!({"k": name})));
    }
    world.apply(policy);
    world.seconds(2);
    world
}

/// Puts an object as a user whose request is known in time, is stored, or is not known at all.
fn put_by(world: &mut World, user: &User, how: &str, object: Value) {
    let id = ObjectId::of(&object).unwrap();
    match how {
        "known" => world.put_as(user, object),
        "unknown" => drop(world.put(object)),
        _ => {
            let old = world.get(&id);
            let operation = if old.is_some() { Operation::Update } else { Operation::Create };
            let stored = world.put(object);
            world.carry(&hint(user, operation, &id, Some(stored), old));
        }
    }
}

/// Whatever makes a rule look at its trigger again.
fn stir(world: &mut World, how: &str, made: &ObjectId) {
    match how {
        "label" => world.edit(made, &["metadata", "labels", "x"], "y"),
        "delete" => world.delete(made),
        "restart" => world.restart(),
        "source" => {
            world.edit(&id("Secret", "platform", "prod-db"), &["data", "more"], "bQ==");
            world.edit(&id("Secret", "platform", "harmless"), &["data", "more"], "bQ==");
        }
        _ => world.apply(
            &grant(true)
                .replace("background: false", "background: false\n  webhookTimeoutSeconds: 9"),
        ),
    }
}

#[test]
fn nobody_speaks_for_whoever_made_the_trigger() {
    for policy in [grant(true), grant_by_precondition()] {
        for how in ["known", "unknown", "carried", "down"] {
            for stirred in ["label", "delete", "restart", "source", "policy"] {
                let mut world = world(&policy);
                world.put_as(&platform(), ask("harmless"));
                world.seconds(3);
                assert!(world.has(&copy("harmless")), "{}", world.explain());
                match how {
                    "down" => {
                        put_by(&mut world, &eve(), "carried", ask("prod-db"));
                        world.restart();
                    }
                    how => put_by(&mut world, &eve(), how, ask("prod-db")),
                }
                world.seconds(3);
                if world.has(&copy("harmless")) {
                    stir(&mut world, stirred, &copy("harmless"));
                }
                world.seconds(70);
                world.restart();
                world.seconds(700);
                let said = || format!("{how} {stirred}: {}", world.explain());
                assert!(!world.has(&copy("prod-db")), "{}", said());
                // Permitted requests go on.
                let mut asked = ask("prod-db");
                metadata::set_label(&mut asked, "by", "platform").unwrap();
                world.put_as(&platform(), asked);
                world.seconds(3);
                assert!(world.has(&copy("prod-db")), "{how} {stirred}: {}", world.explain());
            }
        }
    }
}

#[test]
fn what_is_as_its_sender_left_it_is_kept_in_step() {
    for stirred in ["label", "delete", "restart", "source", "policy"] {
        let mut world = world(&grant(true));
        world.put_as(&platform(), ask("harmless"));
        world.seconds(3);
        // What the cluster writes by itself changes nothing.
        world.edit(&request(), &["metadata", "finalizers"], value!(["example.org/hold"]));
        world.seconds(70);
        stir(&mut world, stirred, &copy("harmless"));
        world.seconds(3);
        world.edit(&id("Secret", "platform", "harmless"), &["data", "last"], "bA==");
        world.seconds(3);
        let made = world.get(&copy("harmless")).unwrap();
        assert_eq!(made.str_at(["data", "last"]), Some("bA=="), "{stirred}: {}", world.explain());
        // Their own change is written down with it, so that a restart knows it.
        let mut changed = ask("harmless");
        metadata::set_label(&mut changed, "more", "labels").unwrap();
        changed.set(["metadata", "finalizers"], value!([])).unwrap();
        world.put_as(&platform(), changed);
        world.seconds(3);
        world.restart();
        world.seconds(3);
        world.delete(&copy("harmless"));
        world.seconds(3);
        assert!(world.has(&copy("harmless")), "{stirred}: {}", world.explain());
        world.forget_calls();
        world.restart();
        world.seconds(700);
        assert!(world.writes().is_empty(), "{stirred}: {}", world.explain());
    }
}

#[test]
fn a_rule_that_waits_makes_what_its_sender_asked_for() {
    for synchronize in [true, false] {
        let mut world = world(&grant(synchronize));
        world.put_as(&platform(), ask("later"));
        world.seconds(3);
        put_by(&mut world, &eve(), "known", ask("prod-db"));
        world.seconds(3);
        world.put(secret("platform", "later", value!({"k": "v"})));
        world.seconds(120);
        assert!(!world.has(&copy("prod-db")), "{synchronize}: {}", world.explain());
        assert!(world.has(&copy("later")), "{synchronize}: {}", world.explain());
    }
}

#[test]
fn who_wrote_while_nobody_acted_is_not_taken_for_whoever_wrote_before() {
    for synchronize in [true, false] {
        let mut world = world(&grant(synchronize));
        put_by(&mut world, &platform(), "carried", ask("harmless"));
        put_by(&mut world, &eve(), "carried", ask("prod-db"));
        world.restart();
        world.seconds(90);
        assert!(!world.has(&copy("prod-db")), "{synchronize}: {}", world.explain());
        assert_eq!(world.carried(), 0);
    }
}

#[test]
fn a_claim_that_was_true_once_is_not_true_again() {
    for restarts in [0, 1, 2] {
        for by_request in [true, false] {
            let mut world = world(&grant(true));
            world.put_as(&platform(), ask("prod-db"));
            world.seconds(3);
            let mut saved = world.get(&copy("prod-db")).unwrap();
            for field in ["uid", "resourceVersion", "creationTimestamp"] {
                saved.remove(["metadata", field]);
            }
            saved.set(["data"], value!({})).unwrap();
            // The platform takes it back: by taking off the label, or by asking for another one.
            match by_request {
                true => world.put_as(&platform(), ask("harmless")),
                false => {
                    let mut taken_back = ask("prod-db");
                    metadata::remove_label(&mut taken_back, "db");
                    world.put_as(&platform(), taken_back);
                }
            }
            world.seconds(3);
            assert!(!world.has(&copy("prod-db")), "{}", world.explain());
            world.put_as(&eve(), ask("prod-db"));
            world.seconds(3);
            if restarts == 1 {
                world.restart();
                world.seconds(3);
            }
            world.put_as(&eve(), saved);
            world.seconds(3);
            if restarts == 2 {
                world.restart();
            }
            world.seconds(70);
            let filled = world
                .get(&copy("prod-db"))
                .is_some_and(|copy| copy.get_path(["data", "k"]).is_some());
            assert!(!filled, "{restarts} {by_request}: {}", world.explain());
        }
    }
}

/// An UpdateRequest that speaks for the platform team.
fn forged_request(place: &str, trigger: &Value) -> Value {
    value!({
        "apiVersion": "kyverno.io/v2", "kind": "UpdateRequest",
        "metadata": {"name": "ur-x", "namespace": place},
        "spec": {
            "requestType": "generate", "policy": "grant",
            "ruleContext": [{"rule": "r", "trigger": {
                "apiVersion": "v1", "kind": "ConfigMap", "namespace": "evil", "name": "request-1",
                "uid": metadata::uid(trigger).unwrap(),
            }}],
            "context": {
                "userInfo": {"userInfo": {"username": "boss", "groups": ["platform"]}},
                "admissionRequestInfo": {"operation": "CREATE"},
            },
        },
    })
}

#[test]
fn requests_outside_of_the_engines_namespace_mean_nothing() {
    for synchronize in [true, false] {
        for (place, counts) in [("kyverno", true), ("evil", false)] {
            for carries in [false, true] {
                let mut world = world(&grant(synchronize));
                let trigger = world.put(ask("prod-db"));
                world.seconds(90);
                match carries {
                    false => drop(world.put(forged_request(place, &trigger))),
                    true => {
                        let again = Some(trigger.clone());
                        let sent =
                            hint(&platform(), Operation::Update, &request(), again.clone(), again);
                        world.put(sent.to_request(
                            &kiln_controller::Settings::default().requests.kind,
                            place,
                            &[],
                            "1",
                        ));
                    }
                }
                world.seconds(90);
                let said = || format!("{synchronize} {place} {carries}: {}", world.explain());
                assert_eq!(world.has(&copy("prod-db")), counts, "{}", said());
            }
        }
    }
}

#[test]
fn requests_elsewhere_hide_none_of_the_same_name() {
    let mut world = world(&grant(true));
    let mut sent = ask("harmless");
    sent.set(["metadata", "uid"], Value::Null).unwrap();
    let true_one = hint(&platform(), Operation::Create, &request(), Some(sent), None);
    let mut elsewhere =
        true_one.to_request(&kiln_controller::Settings::default().requests.kind, "evil", &[], "1");
    let user = ["spec", "context", "userInfo", "userInfo"];
    elsewhere.set(user, value!({"username": "eve"})).unwrap();
    world.put(elsewhere);
    world.seconds(1);
    world.carry(&true_one);
    world.seconds(1);
    world.put(ask("harmless"));
    world.seconds(5);
    assert!(world.has(&copy("harmless")), "{}", world.explain());
    assert_eq!(world.carried(), 1, "the one elsewhere is ignored");
}

#[test]
fn a_request_is_joined_to_its_own_object_alone() {
    for restarts in [false, true] {
        for known in [false, true] {
            let mut world = world(&grant(true));
            world.put(ask("prod-db"));
            if restarts {
                world.restart();
            }
            world.seconds(1);
            // The API server refuses it, for the name is taken.
            let mut sent = ask("prod-db");
            sent.set(["metadata", "uid"], "11111111-2222-3333-4444-555555555555").unwrap();
            let refused = hint(&platform(), Operation::Create, &request(), Some(sent), None);
            match known {
                true => world.controller.hint(refused, world.now),
                false => world.carry(&refused),
            }
            world.seconds(90);
            assert!(!world.has(&copy("prod-db")), "{restarts} {known}: {}", world.explain());
        }
    }
}

#[test]
fn an_update_is_joined_to_the_change_that_it_makes() {
    let mut world = world(&grant(true));
    world.put_as(&eve(), ask("harmless"));
    world.seconds(90);
    // What the platform sent before was refused, and arrives late.
    let old = world.get(&request());
    let mut sent = old.clone().unwrap();
    sent.set(["data", "secret"], "harmless").unwrap();
    world.put(ask("prod-db"));
    world.seconds(90);
    let between = world.get(&request());
    world.put(ask("nothing"));
    world.seconds(90);
    world.put(ask("prod-db"));
    world.seconds(1);
    for old in [old, between] {
        world.hint(&platform(), Operation::Update, &request(), Some(sent.clone()), old);
    }
    world.seconds(90);
    assert!(!world.has(&copy("prod-db")), "{}", world.explain());
}

#[test]
fn what_only_the_engine_says_comes_from_nowhere_else() {
    let whole = policy(
        "p",
        "{kinds: [ConfigMap], names: [t]}",
        "{synchronize: true, apiVersion: v1, kind: ConfigMap, name: made, namespace: prod, data: {metadata: {labels: '{{request.object.metadata.labels}}', annotations: '{{request.object.metadata.annotations}}'}, data: {k: v}}}",
    );
    let mut world = world(&whole);
    let mut trigger = config_map("evil", "t", value!({}));
    let forged = [
        ("kiln.dev/user", "{\"username\":\"boss\",\"groups\":[\"platform\"]}"),
        ("kiln.dev/trigger-content", "9:0"),
        ("kiln.dev/source", "v1/Secret/platform/prod-db"),
        ("generate.kyverno.io/note", "x"),
        ("team", "a"),
    ];
    for (key, text) in forged {
        metadata::set_annotation(&mut trigger, key, text).unwrap();
    }
    for key in
        ["generate.kyverno.io/source-uid", "generate.kyverno.io/trigger-name", "kiln.dev/x", "team"]
    {
        metadata::set_label(&mut trigger, key, "x").unwrap();
    }
    world.put(trigger);
    world.seconds(3);
    let made = world.get(&id("ConfigMap", "prod", "made")).unwrap();
    for (key, _) in forged {
        assert_eq!(metadata::annotation(&made, key).is_some(), key == "team", "{key}: {made:?}");
    }
    for key in ["generate.kyverno.io/source-uid", "generate.kyverno.io/trigger-name", "kiln.dev/x"]
    {
        assert_eq!(metadata::label(&made, key), None, "{made:?}");
    }
    assert_eq!(metadata::label(&made, "team"), Some("x"));
    world.forget_calls();
    world.restart();
    world.seconds(700);
    assert!(world.writes().is_empty(), "{}", world.explain());
}

#[test]
fn a_saved_claim_on_other_content_keeps_no_rule_from_firing() {
    let first = policy(
        "first",
        "{kinds: [Namespace], names: [evil]}",
        "{synchronize: false, apiVersion: v1, kind: ConfigMap, name: settings, namespace: evil, data: {data: {k: right}}}",
    );
    let follow = policy(
        "follow",
        "{kinds: [ConfigMap], names: [settings]}",
        "{synchronize: false, apiVersion: v1, kind: ConfigMap, name: audit, namespace: prod, data: {data: {k: '{{request.object.data.k}}'}}}",
    )
    .replace("  - name: r", "  - name: r\n    skipBackgroundRequests: true");
    for restarts in [false, true] {
        let mut world = World::new();
        world.put(namespace("prod", value!({})));
        world.apply(&first);
        world.apply(&follow);
        world.seconds(2);
        world.put(namespace("evil", value!({})));
        world.seconds(3);
        let settings = id("ConfigMap", "evil", "settings");
        let audit = id("ConfigMap", "prod", "audit");
        assert!(world.has(&settings) && !world.has(&audit), "{}", world.explain());
        let mut saved = world.get(&settings).unwrap();
        for field in ["uid", "resourceVersion", "creationTimestamp"] {
            saved.remove(["metadata", field]);
        }
        world.delete(&settings);
        world.seconds(3);
        // As it was, it is the engine's.
        world.put(saved.clone());
        world.seconds(3);
        assert!(!world.has(&audit), "{}", world.explain());
        world.delete(&settings);
        world.seconds(3);
        saved.set(["data", "k"], "wrong").unwrap();
        world.put(saved);
        if restarts {
            world.restart();
        }
        world.seconds(3);
        assert!(world.has(&audit), "{restarts}: {}", world.explain());
    }
}

#[test]
fn requests_that_are_overtaken_are_let_go() {
    let mut world = world(&grant(true));
    // What it asks for is not there, so that it waits.
    put_by(&mut world, &platform(), "carried", ask("missing"));
    world.seconds(2);
    for number in 0..40 {
        let mut changed = ask("missing");
        metadata::set_label(&mut changed, "number", &number.to_string()).unwrap();
        put_by(&mut world, &platform(), "carried", changed);
        world.seconds(1);
    }
    world.seconds(5);
    assert!((1..=2).contains(&world.carried()), "{} are held", world.carried());
    world.restart();
    world.seconds(5);
    world.put(secret("platform", "missing", value!({"k": "v"})));
    world.seconds(70);
    assert!(world.has(&copy("missing")), "{}", world.explain());
    assert_eq!(world.carried(), 0);
}

#[test]
fn what_is_put_into_the_place_of_a_downstream_is_put_right() {
    let generating = "apiVersion: policies.kyverno.io/v1
kind: GeneratingPolicy
metadata: {name: deny}
spec:
  evaluation: {synchronize: {enabled: true}}
  matchConstraints:
    resourceRules: [{apiGroups: [''], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [namespaces]}]
  generate:
  - expression: >-
      generator.Apply(object.metadata.name, [{'apiVersion': dyn('v1'), 'kind': dyn('ConfigMap'), 'metadata': dyn({'name': 'deny'}), 'data': dyn({'deny': 'all'})}])
";
    let plain = policy(
        "deny",
        "{kinds: [Namespace]}",
        "{synchronize: true, apiVersion: v1, kind: ConfigMap, name: deny, namespace: '{{request.object.metadata.name}}', data: {data: {deny: all}}}",
    );
    for policy in [generating, &plain] {
        for seen in ["both", "one"] {
            let mut world = World::new();
            world.apply(policy);
            world.seconds(2);
            world.put_as(&nancy(), namespace("shop", value!({})));
            world.seconds(3);
            let deny = id("ConfigMap", "shop", "deny");
            assert!(world.has(&deny), "{}", world.explain());
            world.forget_calls();
            world.delete(&deny);
            if seen == "one" {
                world.controller.watch_lost(&deny.gvk);
            }
            world.put_as(&admin(), config_map("shop", "deny", value!({"deny": "raced"})));
            world.seconds(5);
            let live = world.get(&deny).unwrap();
            assert_eq!(live.str_at(["data", "deny"]), Some("all"), "{seen}: {}", world.explain());
            assert!(world.writes().len() <= 2, "{}", world.explain());
        }
    }
}

#[test]
fn where_nobody_is_asked_for_the_trigger_may_change() {
    let anybody = grant(true).replace(", subjects: [{kind: Group, name: platform}]", "");
    let mut world = world(&anybody);
    world.put_as(&platform(), ask("harmless"));
    world.seconds(3);
    for (how, other) in [("known", "prod-db"), ("unknown", "harmless"), ("carried", "prod-db")] {
        put_by(&mut world, &eve(), how, ask(other));
        world.seconds(3);
        let copies = ["harmless", "prod-db"].map(|name| world.has(&copy(name)));
        assert_eq!(copies, [other == "harmless", other == "prod-db"], "{}", world.explain());
    }
    // A copy goes with its source, whichever user caused it.
    world.delete(&id("Secret", "platform", "prod-db"));
    world.seconds(3);
    assert!(!world.has(&copy("prod-db")), "{}", world.explain());
}
