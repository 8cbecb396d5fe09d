//! GeneratingPolicy and NamespacedGeneratingPolicy: what they make, and what is refused about them.

use crate::support::{Objects, compiled, made, messages, objects, rules, run, run_within, shown};
use kiln_engine::{Effect, EvaluationLimits, Event, Existing, RuleOutcome, RuleSet, Verdict};
use kiln_rules::Write;
use kiln_value::{Value, value};

const NAMESPACE: &str =
    "{apiVersion: v1, kind: Namespace, metadata: {name: team, uid: u-1, labels: {color: red}}}";

const SECRETS: &str = "
{apiVersion: v1, kind: Secret, metadata: {name: one, namespace: default, uid: s-1, resourceVersion: '7',
  labels: {copy: 'yes'}, ownerReferences: [{kind: X, name: x}]}, data: {a: QQ==}, type: Opaque}
---
{apiVersion: v1, kind: Secret, metadata: {name: two, namespace: default, uid: s-2, labels: {copy: 'no'}},
  data: {b: Qg==}, type: Opaque}
";

/// A policy that fires on Namespaces, with more fields of `spec`.
fn policy(rest: &str) -> String {
    policy_of("GeneratingPolicy", "", rest)
}

fn policy_of(kind: &str, namespace: &str, rest: &str) -> String {
    let rest = rest.trim_matches('\n').replace('\n', "\n  ");
    format!(
        "apiVersion: policies.kyverno.io/v1
kind: {kind}
metadata:
  name: p{namespace}
spec:
  matchConstraints:
    resourceRules:
    - apiGroups: ['']
      apiVersions: [v1]
      operations: [CREATE, UPDATE]
      resources: [namespaces]
  {rest}
"
    )
}

/// What one generate expression makes of a Namespace, as `kind namespace/name`, or what failed.
fn targets(expression: &str) -> Vec<String> {
    let quoted = expression.replace('\'', "''");
    let rules = rules(&policy(&format!("generate: [{{expression: '{quoted}'}}]")));
    let outcomes =
        run(&rules, &Event::created(objects(NAMESPACE).remove(0)), &Objects(objects(SECRETS)));
    lines(&outcomes)
}

fn lines(outcomes: &[RuleOutcome]) -> Vec<String> {
    let mut lines = Vec::new();
    for outcome in outcomes {
        for effect in &outcome.effects {
            if let Effect::Ensure(ensure) = effect {
                let id = &ensure.target;
                lines.push(format!("{} {}/{}", id.gvk.kind, id.namespace, id.name));
            }
        }
        lines.extend(outcome.failures.iter().map(|failure| format!("failed: {}", failure.message)));
    }
    lines
}

#[test]
fn calls_make_objects() {
    let map =
        "{'apiVersion': 'v1', 'kind': 'ConfigMap', 'metadata': {'name': 'x', 'namespace': 'b'}}";
    let dynamic =
        "{'apiVersion': dyn('v1'), 'kind': dyn('ConfigMap'), 'metadata': dyn({'name': 'x'})}";
    let cluster = "{'apiVersion': 'v1', 'kind': 'Namespace', 'metadata': {'name': 'n'}}";
    for (expression, wanted) in [
        (format!("generator.apply('a', [{map}])"), vec!["ConfigMap a/x"]),
        (format!("generator.Apply('a', [{dynamic}])"), vec!["ConfigMap a/x"]),
        (format!("generator.ApplyAll('a', {map})"), vec!["ConfigMap a/x"]),
        ("generator.apply('a', [resource.list('v1', 'secrets', 'default')])".into(), vec!["Secret a/one", "Secret a/two"]),
        ("generator.apply('a', resource.List('v1', 'secrets', 'default').items)".into(), vec!["Secret a/one", "Secret a/two"]),
        ("generator.apply('a', resource.List('v1', 'secrets', 'default', {'copy': 'yes'}).items)".into(), vec!["Secret a/one"]),
        (format!("generator.apply('a', [{cluster}])"), vec!["Namespace /n"]),
        (format!("['a', 'b'].all(ns, generator.apply(ns, [{map}]))"), vec!["ConfigMap a/x", "ConfigMap b/x"]),
        (format!("['a', 'b'].map(ns, generator.ApplyAll(ns, [{map}]))"), vec!["ConfigMap a/x", "ConfigMap b/x"]),
        (format!("['a', 'b'].exists(ns, generator.apply(ns, [{map}]))"), vec!["ConfigMap a/x"]),
        (format!("['a', 'a'].all(ns, generator.apply(ns, [{map}, {map}]))"), vec!["ConfigMap a/x"]),
        ("true".into(), vec![]),
        (
            "generator.apply('a', [resource.get('v1', 'secrets', 'default', 'missing')])".into(),
            vec!["failed: source resource v1/Secret/default/missing not found: failed to generate resources: [0] is null_type, not an object, for v1/Namespace/team"],
        ),
        (
            "generator.apply('a', [{'apiVersion': 'v1', 'kind': 'ConfigMap'}])".into(),
            vec!["failed: failed to generate resources: spec.generate[0] asks for a ConfigMap without metadata.name"],
        ),
        (
            "resource.get('v1', 'secretz', 'default', 'x') == null".into(),
            vec!["failed: failed to get resource: there is no resource \"secretz\" in v1 here; is its definition given?, for v1/Namespace/team"],
        ),
    ] {
        assert_eq!(targets(&expression), wanted, "{expression}");
    }
}

#[test]
fn an_object_of_one_name_and_two_contents_is_an_error_that_names_both() {
    let one = |value: &str| {
        format!(
            "{{'apiVersion': 'v1', 'kind': 'ConfigMap', 'metadata': {{'name': 'x'}}, 'data': {{'a': '{value}'}}}}"
        )
    };
    assert_eq!(
        targets(&format!("generator.apply('a', [{}, {}])", one("1"), one("2"))),
        ["failed: two parts of the rule make different objects of the name v1/ConfigMap/a/x: \
          spec.generate[0] for element 0 and spec.generate[0] for element 1"]
    );
}

#[test]
fn copies_lose_what_is_their_sources_own_and_know_their_sources() {
    let text = made(
        &policy(
            "generate: [{expression: \"generator.Apply(object.metadata.name, [resource.Get('v1', 'secrets', 'default', 'one')])\"}]",
        ),
        NAMESPACE,
        SECRETS,
    );
    assert_eq!(
        text,
        "\
# p: pass
apiVersion: v1
data:
  a: QQ==
kind: Secret
metadata:
  labels:
    copy: \"yes\"
  name: one
  namespace: team
type: Opaque
---
"
    );
    let sources = |expression: &str| -> Vec<String> {
        let rules = rules(&policy(&format!(
            "
variables:
- name: source
  expression: resource.Get('v1', 'secrets', 'default', 'one')
generate:
- expression: {expression}
"
        )));
        let event = Event::created(objects(NAMESPACE).remove(0));
        let outcomes = run(&rules, &event, &Objects(objects(SECRETS)));
        assert_eq!(outcomes[0].verdict, Verdict::Pass, "{:?}", outcomes[0].failures);
        let effects = outcomes[0].effects.iter().filter_map(|effect| match effect {
            Effect::Ensure(ensure) => Some(ensure),
            _ => None,
        });
        effects
            .map(|ensure| {
                let all: Vec<_> = ensure.claim.sources.iter().map(ToString::to_string).collect();
                all.join(" ")
            })
            .collect()
    };
    for expression in [
        "generator.Apply('a', variables.source)",
        "generator.Apply('a', variables.source.setField('metadata.namespace', 'a'))",
        "generator.Apply('a', variables.source.setField('metadata.name', 'other'))",
        "\"generator.Apply('a', {'apiVersion': 'v1', 'kind': 'Secret', 'metadata': {'name': 'new'}, 'data': variables.source.data})\"",
        "\"generator.Apply('a', {'apiVersion': 'v1', 'kind': 'Secret', 'metadata': {'name': 'one'}, 'data': {'a': variables.source.data.a}})\"",
    ] {
        assert_eq!(sources(expression), ["v1/Secret/default/one"], "{expression}");
    }
    assert_eq!(
        sources(
            "\"generator.Apply('a', {'apiVersion': 'v1', 'kind': 'Secret', 'metadata': {'name': 'new'}, 'data': {'x': 'y'}})\""
        ),
        [""]
    );
}

#[test]
fn claims_carry_the_labels_of_generating_policies() {
    let rules = rules(&policy(
        "useServerSideApply: true
evaluation: {synchronize: true, generateExisting: {enabled: true}}
generate: [{expression: \"generator.Apply('a', [resource.Get('v1', 'secrets', 'default', 'one')])\"}]",
    ));
    let outcomes =
        run(&rules, &Event::created(objects(NAMESPACE).remove(0)), &Objects(objects(SECRETS)));
    let Effect::Ensure(ensure) = &outcomes[0].effects[0] else { panic!() };
    assert_eq!(
        ensure.object.get_path(["metadata", "labels"]),
        Some(&value!({
            "copy": "yes",
            "app.kubernetes.io/managed-by": "kyverno",
            "generate.kyverno.io/policy-name": "p",
            "generate.kyverno.io/policy-namespace": "",
            "generate.kyverno.io/trigger-group": "",
            "generate.kyverno.io/trigger-version": "v1",
            "generate.kyverno.io/trigger-kind": "Namespace",
            "generate.kyverno.io/trigger-namespace": "",
            "generate.kyverno.io/trigger-uid": "u-1",
            "generate.kyverno.io/trigger-name": "team",
            "generate.kyverno.io/source-uid": "s-1"
        }))
    );
    assert_eq!(ensure.write, Write::Apply { manager: "generate" });
    assert_eq!(ensure.existing, Existing::UpdateOwn);
    let rule = rules.rules().next().unwrap();
    assert!(rule.lifecycle.synchronize && rule.lifecycle.existing);
}

#[test]
fn conditions_and_values_are_asked_in_order() {
    let conditions = |list: &[(&str, &str)]| -> (Option<Verdict>, Vec<String>) {
        let mut text = String::from("matchConditions:\n");
        for (name, expression) in list {
            text.push_str(&format!("- {{name: {name}, expression: \"{expression}\"}}\n"));
        }
        text.push_str("generate: [{expression: 'true'}]");
        let rules = rules(&policy(&text));
        let outcomes =
            run(&rules, &Event::created(objects(NAMESPACE).remove(0)), &Objects::default());
        (outcomes.first().map(|outcome| outcome.verdict), lines(&outcomes))
    };
    let red = ("red", "object.metadata.labels['color'] == 'red'");
    let fails = ("fails", "object.metadata.annotations['x'] == 'y'");
    assert_eq!(conditions(&[red]).0, Some(Verdict::Pass));
    assert_eq!(conditions(&[("never", "false")]).0, None);
    assert_eq!(conditions(&[fails, ("never", "false")]).0, None);
    assert_eq!(
        conditions(&[fails, red]),
        (
            Some(Verdict::Error),
            vec!["failed: matchConditions \"fails\": no such key: annotations, for v1/Namespace/team".to_owned()]
        )
    );
    // An unused value is never computed, one that is asked for twice is computed once.
    let text = made(
        &policy(
            "
variables:
- {name: unused, expression: object.nothing.here}
- {name: name, expression: object.metadata.name}
- {name: map, expression: \"{'apiVersion': 'v1', 'kind': 'ConfigMap', 'metadata': {'name': variables.name + '-' + variables.name}}\"}
generate:
- {name: first, expression: \"generator.ApplyAll(variables.name, variables.map)\"}
",
        ),
        NAMESPACE,
        "",
    );
    assert!(text.contains("name: team-team"), "{text}");
}

#[test]
fn a_failed_entry_stops_those_after_it_and_keeps_those_before() {
    let rules = rules(&policy(
        "
generate:
- expression: \"generator.Apply('a', [{'apiVersion': 'v1', 'kind': 'ConfigMap', 'metadata': {'name': 'one'}}])\"
- expression: generator.Apply('a', [object.nothing])
- expression: \"generator.Apply('a', [{'apiVersion': 'v1', 'kind': 'ConfigMap', 'metadata': {'name': 'three'}}])\"
",
    ));
    let outcomes = run(&rules, &Event::created(objects(NAMESPACE).remove(0)), &Objects::default());
    assert_eq!(
        lines(&outcomes),
        ["ConfigMap a/one", "failed: no such key: nothing, for v1/Namespace/team"]
    );
    let text = shown(&outcomes, &rules);
    assert!(text.contains("# failed: policy.yaml:14:39: no such key: nothing, for v1/Namespace/team (if it may be missing"), "{text}");
}

#[test]
fn documents_are_filled_in() {
    let template = |interpolate: &str, text: &str| {
        let text = text.replace('\n', "\n      ");
        made(
            &policy(&format!(
                "
variables:
- {{name: labels, expression: object.metadata.labels}}
generate:
- template:
    interpolate: {interpolate}
    value: |
      {text}
"
            )),
            NAMESPACE,
            "",
        )
    };
    assert_eq!(
        template(
            "cel",
            "apiVersion: v1
kind: ConfigMap
metadata:
  name: x-(( object.metadata.name ))
  namespace: (( object.metadata.name ))
  labels: (( variables.labels ))
data:
  number: (( 1 + 1 ))
  text: x-(( 1 + 1 ))
  literal: \\((not))
  sign: (( \":)\" ))
  list: [(( 'a' )), b]
---
apiVersion: v1
kind: Namespace
metadata: {name: other}"
        ),
        "\
# p: pass
apiVersion: v1
data:
  list:
  - a
  - b
  literal: ((not))
  number: 2
  sign: :)
  text: x-2
kind: ConfigMap
metadata:
  labels:
    color: red
  name: x-team
  namespace: team
---
apiVersion: v1
kind: Namespace
metadata:
  name: other
---
"
    );
    let plain = template(
        "none",
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x, namespace: a}\ndata: {a: (( x ))}",
    );
    assert!(plain.contains("a: (( x ))"), "{plain}");
    let structured = template(
        "cel",
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: 'x-(( object ))', namespace: a}",
    );
    assert!(
        structured.contains("failed to render generation template: document 1: field \"metadata\": field \"name\": placeholder \"object\" embedded in a string must evaluate to a scalar, got map; use a whole-value placeholder for structured results"),
        "{structured}"
    );
}

#[test]
fn namespaced_policies_stay_in_their_namespace() {
    let run_in = |rest: &str, trigger: &str| {
        let rules = rules(&policy_of("NamespacedGeneratingPolicy", "\n  namespace: team", rest));
        let outcomes =
            run(&rules, &Event::created(objects(trigger).remove(0)), &Objects(objects(SECRETS)));
        lines(&outcomes)
    };
    let one = "generate: [{expression: \"generator.apply([{'apiVersion': 'v1', 'kind': 'ConfigMap', 'metadata': {'name': 'x', 'namespace': 'b'}}])\"}]";
    assert_eq!(run_in(one, NAMESPACE), ["ConfigMap team/x"]);
    let other = NAMESPACE.replace("team", "other");
    assert!(run_in(one, &other).is_empty());
    let cluster = "generate: [{expression: \"generator.apply([{'apiVersion': 'v1', 'kind': 'Namespace', 'metadata': {'name': 'n'}}])\"}]";
    assert_eq!(
        run_in(cluster, NAMESPACE),
        [
            "failed: failed to generate resources: cross-scope generation denied: a policy scoped to namespace \"team\" cannot generate cluster-scoped resource v1/Namespace"
        ]
    );
    let template = "generate: [{template: {value: \"{apiVersion: v1, kind: ConfigMap, metadata: {name: x, namespace: b}}\"}}]";
    assert_eq!(
        run_in(template, NAMESPACE),
        [
            "failed: cross-namespace generation denied: a policy in namespace \"team\" cannot generate resources into namespace \"b\""
        ]
    );
    let own = "generate: [{template: {value: \"{apiVersion: v1, kind: ConfigMap, metadata: {name: x}}\"}}]";
    assert_eq!(run_in(own, NAMESPACE), ["ConfigMap team/x"]);
    // Reads are limited as well.
    let secrets =
        "generate: [{expression: \"generator.apply(resource.List('v1', 'secrets').items)\"}]";
    assert!(run_in(secrets, NAMESPACE).is_empty());
    let nodes = "generate: [{expression: \"resource.List('v1', 'nodes').items.size() > 0\"}]";
    assert_eq!(
        run_in(nodes, NAMESPACE),
        [
            "failed: failed to list resource: a policy of namespace \"team\" cannot read the objects of kind Node in all namespaces, for v1/Namespace/team"
        ]
    );
}

#[test]
fn what_is_wrong_is_said_with_its_place() {
    for (rest, wanted) in [
        (
            "variables: [{name: x, expression: object.metadata.name}]\ngenerate: [{expression: variables.x + 1 == 2}]",
            vec![],
        ),
        (
            "variables:\n- name: x\n  expression: \"'a'\"\ngenerate:\n- expression: variables.x",
            vec![
                "error: policy.yaml:16:17: output is expected to be of type bool (it is of type string)",
            ],
        ),
        (
            "generate:\n- expression: >-\n    object.metadata.name == 'x' &&\n    missing.field",
            vec!["error: policy.yaml:15:7: undeclared reference to 'missing' (in container '')"],
        ),
        (
            "matchConditions:\n- {name: c, expression: variables.x == 1}\nvariables:\n- {name: x, expression: '1'}\ngenerate: [{expression: 'true'}]",
            vec![
                "error: policy.yaml:13:27: undeclared reference to 'variables' (in container '') (a value is there for those listed after it; conditions of a GeneratingPolicy see none)",
            ],
        ),
        (
            "variables:\n- {name: x, expression: variables.z}\n- {name: z, expression: '1'}\ngenerate: [{expression: 'true'}]",
            vec![
                "error: policy.yaml:13:27: undeclared reference to 'variables' (in container '') (a value is there for those listed after it; conditions of a GeneratingPolicy see none)",
            ],
        ),
        (
            "generate:\n- expression: generator.apply([])",
            vec![
                "error: policy.yaml:13:26: found no matching overload for 'apply' applied to 'kyverno.Generator.(list(dyn))' (a cluster policy writes generator.Apply(namespace, objects), a namespaced one generator.Apply(objects))",
            ],
        ),
        (
            "evaluation: {synchronise: true}\ngenerate: [{expression: 'true'}]",
            vec![
                "error: policy.yaml:12:16: unknown field spec.evaluation.synchronise (did you mean \"synchronize\"?)",
            ],
        ),
        (
            "generate: [{}]",
            vec![
                "error: policy.yaml:12:14: spec.generate[0]: Required value: one of expression or template must be set (add one of them)",
            ],
        ),
        (
            "variables: []",
            vec![
                "error: policy.yaml:6:3: The GeneratingPolicy \"p\" is invalid: spec.generate: Required value (add generate with an expression or a template)",
            ],
        ),
        (
            "generate:\n- template:\n    interpolate: cel\n    value: |\n      apiVersion: v1\n      kind: ConfigMap\n      metadata: {name: (( objekt.metadata.name )), namespace: a}",
            vec![
                "error: policy.yaml:18:29: undeclared reference to 'objekt' (in container '') (did you mean \"object\"?)",
            ],
        ),
        (
            "generate:\n- template:\n    interpolate: cel\n    value: |\n      (( 'k' )): v",
            vec![
                "error: policy.yaml:16:9: spec.generate[0].template.value: placeholders are not supported in mapping keys; build the map with a whole-value placeholder",
            ],
        ),
        (
            "generate:\n- template: {value: ''}",
            vec![
                "error: policy.yaml:13:23: spec.generate[0].template.value: template must contain at least one YAML document (write an object)",
            ],
        ),
        (
            "generate:\n- expression: \"['a'].exists(n, generator.Apply(n, [object]))\"",
            vec![
                "warning: policy.yaml:13:17: exists stops at the first call of the generator, so nothing more is made (use all to make an object for each element)",
            ],
        ),
    ] {
        assert_eq!(messages(&compiled(&policy(rest))), wanted, "{rest}");
    }
    let bare = "apiVersion: policies.kyverno.io/v1beta1\nkind: GeneratingPolicy\nmetadata: {name: p}\nspec:\n  generate: [{expression: 'true'}]\n";
    assert_eq!(
        messages(&compiled(bare)),
        [
            "error: policy.yaml:5:3: spec.matchConstraints: Required value: a matchConstraints with at least one resource rule is required (add resourceRules)"
        ]
    );
    let http = policy_of(
        "NamespacedGeneratingPolicy",
        "\n  namespace: team",
        "generate: [{expression: \"http.Get('http://x').a == 1\"}]",
    );
    assert_eq!(
        messages(&compiled(&http)),
        [
            "error: policy.yaml:7:3: spec: Forbidden: http.* is not allowed in namespaced policies (use a policy for the cluster; --allow-service, or kiln.services in a cluster, lists the hosts that it may ask)"
        ]
    );
}

#[test]
fn triggers_are_matched_as_the_api_server_does() {
    let fires = |constraints: &str, event: &Event| -> bool {
        let text = format!(
            "apiVersion: policies.kyverno.io/v1beta1\nkind: GeneratingPolicy\nmetadata: {{name: p}}\nspec:\n  matchConstraints: {constraints}\n  generate: [{{expression: 'true'}}]\n"
        );
        let view = Objects(objects(
            "{apiVersion: v1, kind: Namespace, metadata: {name: dev, labels: {env: dev}}}",
        ));
        run(&rules(&text), event, &view).iter().any(|outcome| outcome.verdict == Verdict::Pass)
    };
    let object = |text: &str| Event::created(objects(text).remove(0));
    let namespace = object(NAMESPACE);
    let pod = object(
        "{apiVersion: v1, kind: Pod, metadata: {name: web, namespace: dev, labels: {app: web}}}",
    );
    let generated =
        object("{apiVersion: v1, kind: Pod, metadata: {generateName: web-, namespace: dev}}");
    let node = object("{apiVersion: v1, kind: Node, metadata: {name: n}}");
    let all = "apiGroups: ['*'], apiVersions: ['*'], operations: ['*']";
    for (constraints, event, wanted) in [
        (format!("{{resourceRules: [{{{all}, resources: ['*']}}]}}"), &pod, true),
        (format!("{{resourceRules: [{{{all}, resources: ['pods/*']}}]}}"), &pod, false),
        (format!("{{resourceRules: [{{{all}, resources: [pods], resourceNames: [web]}}]}}"), &pod, true),
        (format!("{{resourceRules: [{{{all}, resources: [pods], resourceNames: [we]}}]}}"), &pod, false),
        (format!("{{resourceRules: [{{{all}, resources: [pods], resourceNames: [we]}}]}}"), &generated, true),
        (format!("{{resourceRules: [{{{all}, resources: ['*'], scope: Cluster}}]}}"), &pod, false),
        (format!("{{resourceRules: [{{{all}, resources: ['*'], scope: Cluster}}]}}"), &namespace, true),
        (format!("{{resourceRules: [{{{all}, resources: ['*'], scope: Namespaced}}]}}"), &pod, true),
        (format!("{{resourceRules: [{{{all}, resources: ['*']}}], excludeResourceRules: [{{{all}, resources: [pods]}}]}}"), &pod, false),
        (format!("{{resourceRules: [{{{all}, resources: ['*']}}], objectSelector: {{matchLabels: {{app: web}}}}}}"), &pod, true),
        (format!("{{resourceRules: [{{{all}, resources: ['*']}}], objectSelector: {{matchLabels: {{app: db}}}}}}"), &pod, false),
        (format!("{{resourceRules: [{{{all}, resources: ['*']}}], namespaceSelector: {{matchLabels: {{env: dev}}}}}}"), &pod, true),
        (format!("{{resourceRules: [{{{all}, resources: ['*']}}], namespaceSelector: {{matchLabels: {{env: prod}}}}}}"), &pod, false),
        (format!("{{resourceRules: [{{{all}, resources: ['*']}}], namespaceSelector: {{matchLabels: {{color: red}}}}}}"), &namespace, true),
        (format!("{{resourceRules: [{{{all}, resources: ['*']}}], namespaceSelector: {{matchLabels: {{color: blue}}}}}}"), &namespace, false),
        (format!("{{resourceRules: [{{{all}, resources: ['*']}}], namespaceSelector: {{matchLabels: {{color: blue}}}}}}"), &node, true),
        ("{resourceRules: [{apiGroups: [apps], apiVersions: [v1], resources: [deployments]}]}".to_owned(), &pod, false),
        ("{resourceRules: [{apiGroups: [''], apiVersions: [v1], operations: [UPDATE], resources: [pods]}]}".to_owned(), &pod, false),
    ] {
        assert_eq!(fires(&constraints, event), wanted, "{constraints}");
    }
}

#[test]
fn a_trigger_that_ends_fires_only_policies_that_ask_for_it() {
    let config = "generate: [{expression: \"generator.Apply('a', [{'apiVersion': 'v1', 'kind': 'ConfigMap', 'metadata': {'name': oldObject.metadata.name}, 'data': {'gone': string(object == null)}}])\"}]";
    let gone = objects(NAMESPACE).remove(0);
    let on_delete = rules(&policy(config).replace("[CREATE, UPDATE]", "[DELETE]"));
    let outcomes = run(&on_delete, &Event::deleted(gone.clone()), &Objects::default());
    assert_eq!(lines(&outcomes), ["ConfigMap a/team"]);
    let Effect::Ensure(ensure) = &outcomes[0].effects[0] else { panic!() };
    assert_eq!(ensure.claim.trigger.uid, "u-1");
    let synced = rules(&policy(&format!("evaluation: {{synchronize: true}}\n{config}")));
    let outcomes = run(&synced, &Event::deleted(gone.clone()), &Objects::default());
    assert_eq!(outcomes[0].verdict, Verdict::Lapsed);
    // One that no longer meets the conditions lapses, too.
    let condition = "evaluation: {synchronize: {enabled: true}}\nmatchConditions: [{name: red, expression: \"object.metadata.labels.color == 'red'\"}]\ngenerate: [{expression: 'true'}]";
    let rules = rules(&policy(condition));
    let mut blue = gone.clone();
    blue.set(["metadata", "labels", "color"], "blue").unwrap();
    let outcomes = run(&rules, &Event::updated(gone, blue), &Objects::default());
    assert_eq!(outcomes[0].verdict, Verdict::Lapsed);
}

fn with_exceptions(policy: &str, exceptions: &str) -> RuleSet {
    let compiled = compiled(&format!("{policy}\n---\n{exceptions}"));
    assert!(!compiled.has_errors(), "{:#?}", messages(&compiled));
    RuleSet::new(compiled.policies).with_exceptions(compiled.exceptions)
}

fn exception(name: &str, rest: &str) -> String {
    format!(
        "apiVersion: policies.kyverno.io/v1\nkind: PolicyException\nmetadata: {{name: {name}, namespace: ops}}\nspec:\n  policyRefs: [{{name: p, kind: GeneratingPolicy}}]\n  {rest}\n---\n"
    )
}

#[test]
fn exceptions_exempt_or_allow() {
    let policy = policy(
        "generate: [{expression: \"exceptions.allowedValues.exists(v, v == 'team') && generator.Apply('a', [{'apiVersion': 'v1', 'kind': 'ConfigMap', 'metadata': {'name': 'x'}}])\"}]",
    );
    let run_with = |exceptions: &str| {
        let rules = with_exceptions(&policy, exceptions);
        let outcomes =
            run(&rules, &Event::created(objects(NAMESPACE).remove(0)), &Objects::default());
        let why = outcomes[0].why.clone().map(|why| why.to_string()).unwrap_or_default();
        (outcomes[0].verdict, why, lines(&outcomes))
    };
    let condition =
        |expression: &str| format!("matchConditions: [{{name: c, expression: \"{expression}\"}}]");
    let team = condition("object.metadata.name == 'team'");
    let none = Vec::<String>::new();
    assert_eq!(run_with(""), (Verdict::Pass, String::new(), none.clone()));
    assert_eq!(
        run_with(&exception("e", &team)),
        (Verdict::Skip, "rule is skipped due to policy exception: ops/e".into(), none.clone())
    );
    assert_eq!(
        run_with(&exception("e", &format!("{team}\n  reportResult: pass"))),
        (Verdict::Pass, "rule is passed due to policy exception: ops/e".into(), none)
    );
    assert_eq!(run_with(&exception("e", &condition("false"))).1, "");
    assert_eq!(
        run_with(&exception("e", "allowedValues: [team]")),
        (Verdict::Pass, String::new(), vec!["ConfigMap a/x".to_owned()])
    );
    assert_eq!(
        run_with(&exception("e", &condition("object.nothing == 1"))).2,
        ["failed: exception ops/e \"c\": no such key: nothing, for v1/Namespace/team"]
    );
    // One that holds anyway makes up for one that fails.
    let both = exception("e", &condition("object.nothing == 1")) + &exception("f", &team);
    assert_eq!(run_with(&both).0, Verdict::Skip);
    assert_eq!(run_with(&exception("e", "expiresAt: '2020-01-01T00:00:00Z'")).1, "");
    let other = exception("e", &team).replace("kind: GeneratingPolicy", "kind: MutatingPolicy");
    assert_eq!(run_with(&other).1, "");
}

#[test]
fn annotations_for_reports_are_computed_at_the_end() {
    let rules = rules(&policy(
        "auditAnnotations:\n- {key: who, valueExpression: object.metadata.name}\n- {key: nothing, valueExpression: \"''\"}\ngenerate: [{expression: 'true'}]",
    ));
    let outcomes = run(&rules, &Event::created(objects(NAMESPACE).remove(0)), &Objects::default());
    assert_eq!(outcomes[0].properties, [("who".into(), "team".into())]);
}

#[test]
fn a_lint_says_when_the_call_moves_an_object() {
    let text = made(
        &policy(
            "generate: [{expression: \"generator.Apply('a', [{'apiVersion': 'v1', 'kind': 'ConfigMap', 'metadata': {'name': 'x', 'namespace': 'b'}}])\"}]",
        ),
        NAMESPACE,
        "",
    );
    assert!(
        text.ends_with("# warning: policy.yaml:12:14: v1/ConfigMap/b/x says namespace \"b\" itself, and is made in \"a\": the namespace of the call wins\n"),
        "{text}"
    );
}

#[test]
fn functions_ask_the_host() {
    let value = |expression: &str| -> Vec<String> {
        let quoted = expression.replace('\'', "''");
        let rules = rules(&policy(&format!("generate: [{{expression: '{quoted}'}}]")));
        let event = Event::created(objects(NAMESPACE).remove(0));
        let outcomes = run(&rules, &event, &Objects(objects(SECRETS)));
        lines(&outcomes)
    };
    for expression in [
        "yaml.parse('a: [1, x]').a[1] == 'x'",
        "time.now() > timestamp('2020-01-01T00:00:00Z')",
        "random().size() == 8",
        "globalContext.Get('absent') == null",
        "resource.Get(resource.ToGVR('v1', 'Secret'), 'default', 'one').metadata.name == 'one'",
        "resource.Get('v1', 'Secret', 'default', 'one').metadata.name == 'one'",
        "request.operation == 'CREATE' && request.kind.kind == 'Namespace' && request.resource.resource == 'namespaces'",
        "!has(request.userInfo.username) && request.namespace == 'team' && !request.dryRun",
        "namespaceObject == null",
    ] {
        let generated = format!(
            "{expression} ? generator.Apply('a', [{{'apiVersion': 'v1', 'kind': 'ConfigMap', 'metadata': {{'name': 'x'}}}}]) : false"
        );
        assert_eq!(value(&generated), ["ConfigMap a/x"], "{expression}");
    }
    assert_eq!(
        value("http.Get('http://x').a == 1"),
        ["failed: request failed: the service http://x is not called, for v1/Namespace/team"]
    );
    assert_eq!(
        value("x509.decode('x') == null"),
        ["failed: the text has no PEM block, for v1/Namespace/team"]
    );
}

#[test]
fn budgets_hold() {
    let rules = rules(&policy(
        "generate: [{expression: \"lists.range(1000).all(i, lists.range(1000).all(j, generator.Apply('a', [{'apiVersion': 'v1', 'kind': 'ConfigMap', 'metadata': {'name': 'x-' + string(i) + '-' + string(j)}}])))\"}]",
    ));
    let event = Event::created(objects(NAMESPACE).remove(0));
    let outcomes = run(&rules, &event, &Objects::default());
    assert_eq!(
        lines(&outcomes),
        ["failed: operation cancelled: actual cost limit exceeded, for v1/Namespace/team"]
    );
    let few = rules_for_many(20);
    let outcomes = run_within(
        &few,
        &event,
        &Objects::default(),
        EvaluationLimits { objects: 10, ..EvaluationLimits::default() },
    );
    assert_eq!(
        lines(&outcomes),
        ["failed: failed to generate resources: the rule makes more than 10 objects"]
    );
    let outcomes = run(&few, &event, &Objects::default());
    assert_eq!(lines(&outcomes).len(), 20);
    assert!(outcomes[0].cost.steps > 20 && outcomes[0].cost.objects == 20);
}

fn rules_for_many(count: usize) -> RuleSet {
    rules(&policy(&format!(
        "generate: [{{expression: \"lists.range({count}).all(i, generator.Apply('a', [{{'apiVersion': 'v1', 'kind': 'ConfigMap', 'metadata': {{'name': 'x-' + string(i)}}}}]))\"}}]"
    )))
}

#[test]
fn one_failing_trigger_blocks_no_other() {
    let rules = rules(&policy(
        "generate: [{expression: \"generator.Apply('a', [{'apiVersion': 'v1', 'kind': 'ConfigMap', 'metadata': {'name': object.metadata.labels['color']}}])\"}]",
    ));
    let bare: Value =
        objects("{apiVersion: v1, kind: Namespace, metadata: {name: bare}}").remove(0);
    let outcomes = run(&rules, &Event::created(bare), &Objects::default());
    assert!(
        shown(&outcomes, &rules).contains(".?labels.?color.orValue("),
        "{}",
        shown(&outcomes, &rules)
    );
    let outcomes = run(&rules, &Event::created(objects(NAMESPACE).remove(0)), &Objects::default());
    assert_eq!(lines(&outcomes), ["ConfigMap a/red"]);
}
