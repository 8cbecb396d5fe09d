//! A mistake in Kiln itself: work on one key panics, and the others go on.

use kiln_controller::{Controller, ControllerEvent, Engine, Evaluate};
use kiln_engine::{Event, RuleOutcome, RuleSet};
use kiln_object::metadata;
use kiln_rules::Rule;
use kiln_value::{Value, value};

use crate::support::{World, config_map, id, namespace};

/// Panics whenever a rule is evaluated for an object that is labelled so.
struct Breaks;

impl Evaluate for Breaks {
    fn evaluate(
        &self,
        rules: &RuleSet,
        rule: &Rule,
        event: &Event,
        world: &kiln_engine::EvalEnv<'_>,
    ) -> RuleOutcome {
        let labels = event.trigger().and_then(metadata::labels);
        assert!(labels.is_none_or(|labels| labels.get("breaks").is_none()), "a mistake in Kiln");
        Engine.evaluate(rules, rule, event, world)
    }
}

const POLICY: &str = "
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: p}
spec:
  rules:
  - name: copy
    match: {any: [{resources: {kinds: [ConfigMap], namespaces: [default]}}]}
    generate:
      synchronize: true
      apiVersion: v1
      kind: ConfigMap
      name: 'of-{{ request.object.metadata.name }}'
      namespace: target
      data: {data: {k: '{{ request.object.data.k }}'}}
";

fn labelled(name: &str) -> Value {
    let mut object = config_map("default", name, value!({"k": "two"}));
    object.set(["metadata", "labels"], value!({"breaks": "yes"})).unwrap();
    object
}

#[test]
fn a_panic_is_an_error_of_its_key_and_nothing_else() {
    let mut world = World::new();
    let kinds = world.memory.kinds().clone();
    world.controller =
        Controller::new(world.settings.clone(), kinds).evaluating_with(Box::new(Breaks));
    for name in ["default", "target"] {
        world.put(namespace(name, value!({})));
    }
    world.seconds(5);
    world.apply(POLICY);
    world.seconds(5);
    world.put(config_map("default", "before", value!({"k": "one"})));
    world.seconds(5);
    let made = |world: &World, of: &str| {
        let found = world.get(&id("ConfigMap", "target", &format!("of-{of}")))?;
        found.str_at(["data", "k"]).map(str::to_owned)
    };
    assert_eq!(made(&world, "before").as_deref(), Some("one"), "{}", world.explain());
    assert_eq!(world.controller.panics(), 0);
    world.controller.take_news();

    world.put(labelled("before"));
    world.put(labelled("never"));
    world.put(config_map("default", "other", value!({"k": "three"})));
    world.seconds(120);
    assert_eq!(
        made(&world, "other").as_deref(),
        Some("three"),
        "others go on: {}",
        world.explain()
    );
    assert_eq!(made(&world, "never"), None);
    assert_eq!(made(&world, "before").as_deref(), Some("one"), "what was made before stays");
    let panics = world.controller.panics();
    assert!((2..=20).contains(&panics), "it is tried again a few times, not for ever: {panics}");
    let failed: Vec<String> = world
        .controller
        .take_news()
        .into_iter()
        .filter_map(|news| match news {
            ControllerEvent::Failed { trigger, condition, .. } => {
                Some(format!("{}: {}", trigger.unwrap().name, condition.message))
            }
            _ => None,
        })
        .collect();
    for name in ["before", "never"] {
        let said = format!("{name}: internal error; see the Kiln log");
        assert!(failed.contains(&said), "{failed:?}");
    }

    // It goes on when the object is one that it can be evaluated for.
    world.put(config_map("default", "before", value!({"k": "four"})));
    world.seconds(5);
    assert_eq!(made(&world, "before").as_deref(), Some("four"), "{}", world.explain());
}
