//! What admission would not ask about fires nothing either when it is seen by a watch.

use crate::support::{World, config_map, id};
use kiln_engine::User;
use kiln_value::value;

/// ConfigMaps in `default` fire the policy.
fn generating(evaluation: &str, condition: &str) -> String {
    format!(
        "apiVersion: policies.kyverno.io/v1
kind: GeneratingPolicy
metadata: {{name: p}}
spec:
  evaluation: {{{evaluation}}}
  matchConstraints:
    resourceRules: [{{apiGroups: [''], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [configmaps]}}]
  matchConditions:
  - {{name: c, expression: \"object.metadata.name.startsWith('t') && {condition}\"}}
  generate:
  - expression: >-
      generator.Apply('target', [{{'apiVersion': 'v1', 'kind': 'ConfigMap', 'metadata': {{'name': 'of-' + object.metadata.name}},
        'data': object.data}}])
"
    )
}

fn world(policy: &str) -> World {
    let mut world = World::new();
    for name in ["default", "target"] {
        world.put(crate::support::namespace(name, value!({})));
    }
    world.put(config_map("default", "t-before", value!({"k": "one"})));
    world.seconds(5);
    world.apply(policy);
    world.seconds(5);
    world
}

fn made(world: &World, of: &str) -> Option<String> {
    let found = world.get(&id("ConfigMap", "target", &format!("of-{of}")))?;
    found.str_at(["data", "k"]).map(str::to_owned)
}

#[test]
fn a_policy_without_admission_only_sees_what_was_there_before_it() {
    let off = "admission: {enabled: false}, generateExisting: {enabled: true}";
    for synchronize in [true, false] {
        let evaluation = format!("{off}, synchronize: {{enabled: {synchronize}}}");
        let mut world = world(&generating(&evaluation, "true"));
        assert_eq!(made(&world, "t-before").as_deref(), Some("one"), "{}", world.explain());
        world.put(config_map("default", "t-after", value!({"k": "one"})));
        world.put(config_map("default", "t-before", value!({"k": "two"})));
        world.seconds(5);
        world.restart();
        world.seconds(5);
        assert_eq!(made(&world, "t-after"), None, "{}", world.explain());
        let kept = if synchronize { "two" } else { "one" };
        assert_eq!(made(&world, "t-before").as_deref(), Some(kept), "{}", world.explain());
    }
    let neither = world(&generating("admission: {enabled: false}", "true"));
    assert_eq!(made(&neither, "t-before"), None);
}

#[test]
fn a_condition_on_the_user_waits_for_the_request() {
    for synchronize in [true, false] {
        let evaluation = format!("synchronize: {{enabled: {synchronize}}}");
        let policy = generating(&evaluation, "request.userInfo.username == 'jane'");
        let mut world = world(&policy);
        world.put(config_map("default", "t-unknown", value!({"k": "one"})));
        for (user, name) in [("jane", "t-jane"), ("joe", "t-joe")] {
            let user = User { username: user.into(), ..User::default() };
            world.put_as(&user, config_map("default", name, value!({"k": "one"})));
        }
        world.seconds(5);
        assert_eq!(made(&world, "t-jane").as_deref(), Some("one"), "{}", world.explain());
        assert_eq!(made(&world, "t-joe"), None);
        assert_eq!(made(&world, "t-unknown"), None);
        world.restart();
        world.seconds(5);
        assert_eq!(made(&world, "t-jane").as_deref(), Some("one"), "{}", world.explain());
    }
}

#[test]
fn conditions_on_the_webhook_of_a_cluster_policy_hold_for_what_watches_tell() {
    let policy = "apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: p}
spec:
  webhookConfiguration:
    matchConditions:
    - {name: no-off, expression: \"object.data[?'k'].orValue('') != 'off'\"}
    - {name: fails, expression: \"object.data.k != 'x'\"}
  rules:
  - name: r
    match: {any: [{resources: {kinds: [ConfigMap], namespaces: [default]}}]}
    generate:
      synchronize: true
      apiVersion: v1
      kind: ConfigMap
      namespace: target
      name: 'of-{{ request.object.metadata.name }}'
      data: {data: {k: \"{{ request.object.data.k || 'none' }}\"}}
";
    let mut world = world(policy);
    for (name, data) in
        [("on", value!({"k": "on"})), ("off", value!({"k": "off"})), ("failing", value!({"y": ""}))]
    {
        world.put(config_map("default", name, data));
    }
    world.seconds(5);
    assert_eq!(made(&world, "on").as_deref(), Some("on"), "{}", world.explain());
    assert_eq!(made(&world, "off"), None);
    assert_eq!(made(&world, "failing"), None, "an API server passes over what it cannot check");
    world.put(config_map("default", "off", value!({"k": "on"})));
    world.delete(&id("ConfigMap", "default", "on"));
    world.seconds(5);
    assert_eq!(made(&world, "off").as_deref(), Some("on"), "{}", world.explain());
    assert_eq!(made(&world, "on"), None, "what is gone takes its objects along");
}
