//! MutatingPolicy and MutatingAdmissionPolicy: what they change, and what is refused about them.

use crate::support::{Objects, compiled, messages, objects};
use kiln_engine::{Effect, EvalEnv, Event, PatchTarget, RuleSet, Verdict};
use kiln_object::Kinds;
use kiln_value::{Value, value};

const POD: &str =
    "{apiVersion: v1, kind: Pod, metadata: {name: web, namespace: dev, labels: {app: web}},
  spec: {replicas: 2, containers: [{name: a, image: one}, {name: b, image: two}]}}";

fn policy(rest: &str) -> String {
    let rest = rest.trim_matches('\n').replace('\n', "\n  ");
    format!(
        "apiVersion: policies.kyverno.io/v1
kind: MutatingPolicy
metadata:
  name: p
spec:
  matchConstraints:
    resourceRules:
    - {{apiGroups: [''], apiVersions: [v1], operations: [CREATE], resources: [pods]}}
  {rest}
"
    )
}

fn step(kind: &str, expression: &str) -> String {
    let field = if kind == "JSONPatch" { "jsonPatch" } else { "applyConfiguration" };
    let quoted = expression.replace('\'', "''");
    format!("- {{patchType: {kind}, {field}: {{expression: '{quoted}'}}}}\n")
}

fn apply(expression: &str) -> String {
    format!("mutations:\n{}", step("ApplyConfiguration", expression))
}

fn operations(expression: &str) -> String {
    format!("mutations:\n{}", step("JSONPatch", expression))
}

/// What policies make of a Pod, or what failed.
fn mutated(policies: &str, others: &str) -> Result<Value, String> {
    let (object, verdicts) = run(policies, others);
    match verdicts.iter().find(|verdict| verdict.starts_with("error")) {
        Some(error) => Err(error.clone()),
        None => Ok(object),
    }
}

fn run(policies: &str, others: &str) -> (Value, Vec<String>) {
    run_on(POD, policies, others)
}

fn run_on(object: &str, policies: &str, others: &str) -> (Value, Vec<String>) {
    let compiled = compiled(policies);
    assert!(!compiled.has_errors(), "{:#?}", messages(&compiled));
    let rules = RuleSet::new(compiled.policies).with_exceptions(compiled.exceptions);
    let (kinds, view) = (Kinds::builtin(), Objects(objects(others)));
    let eval_env = EvalEnv::of(&view, &kinds);
    let mutated = rules.mutate(&Event::created(objects(object).remove(0)), &eval_env);
    let verdicts = mutated
        .outcomes
        .iter()
        .map(|outcome| {
            let failed: Vec<_> = outcome.failures.iter().map(|f| f.message.clone()).collect();
            format!("{} {}", outcome.verdict.as_str(), failed.join("; "))
        })
        .collect();
    (mutated.object, verdicts)
}

#[test]
fn configurations_merge_and_operations_act() {
    let image = |object: &Value, at: usize| {
        object
            .get_path(["spec", "containers"])
            .unwrap()
            .index(at)
            .unwrap()
            .str_at(["image"])
            .map(str::to_owned)
    };
    let after = mutated(&policy(&apply(
        "Object{spec: Object.spec{containers: [Object.spec.containers{name: 'b', image: 'x'}]}}",
    )), "").unwrap();
    assert_eq!(
        (image(&after, 0).as_deref(), image(&after, 1).as_deref()),
        (Some("one"), Some("x"))
    );
    let after = mutated(&policy(&operations(
        "[JSONPatch{op: 'replace', path: '/spec/containers/0/image', value: 'x'}, JSONPatch{op: 'add', path: '/metadata/labels/' + jsonpatch.escapeKey('k8s.io/my~label'), value: 'y'}]",
    )), "").unwrap();
    assert_eq!(image(&after, 0).as_deref(), Some("x"));
    assert_eq!(after.get_path(["metadata", "labels", "k8s.io/my~label"]), Some(&value!("y")));
    // A test that does not hold leaves everything as it is.
    let before = objects(POD).remove(0);
    let (after, verdicts) = run(
        &policy(&operations(
            "[JSONPatch{op: 'test', path: '/spec/replicas', value: 1}, JSONPatch{op: 'replace', path: '/spec/replicas', value: 5}]",
        )),
        "",
    );
    assert_eq!((after, verdicts), (before.clone(), vec!["pass ".to_owned()]));
    // Nothing to do is no reason to be skipped.
    let (after, verdicts) = run(
        &policy(&apply(
            "object.metadata.name == 'web' ? Object{} : Object{metadata: Object.metadata{name: 'x'}}",
        )),
        "",
    );
    assert_eq!((after, verdicts), (before, vec!["pass ".to_owned()]));
}

#[test]
fn what_cannot_be_patched_is_an_error() {
    for (rest, wanted) in [
        (
            apply(
                "Object{spec: Object.spec{containers: [Object.spec.containers{name: 'a', args: ['x']}]}}",
            ),
            "error error applying patch: invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: .spec.containers[0].args",
        ),
        (
            apply("Object{spec: Object.specx{}}"),
            "error type mismatch: unexpected type name \"Object.specx\", expected \"Object.spec\", which matches field name path from root Object type",
        ),
        (operations("[JSONPatch{op: 'remove', path: '/metadata/labels/x'}]"), "error JSON Patch: "),
        (
            operations("[JSONPatch{op: 'add', path: '/metadata/annotations/x', value: 'y'}]"),
            "error JSON Patch: ",
        ),
    ] {
        let failed = mutated(&policy(&rest), "").unwrap_err();
        assert!(failed.starts_with(wanted), "{rest}: {failed}");
    }
    let lifted = format!(
        "evaluation: {{useServerSideApply: true}}\n{}",
        apply(
            "Object{spec: Object.spec{containers: [Object.spec.containers{name: 'a', args: ['x']}]}}"
        )
    );
    assert!(mutated(&policy(&lifted), "").is_ok());
}

#[test]
fn later_mutations_see_earlier_ones_and_values_are_kept_or_renewed() {
    let steps = format!(
        "variables: [{{name: count, expression: 'string(size(object.spec.containers))'}}]\nmutations:\n{}{}",
        step(
            "JSONPatch",
            "[JSONPatch{op: 'add', path: '/metadata/labels/first', value: variables.count}, JSONPatch{op: 'add', path: '/spec/containers/-', value: {'name': 'c'}}]"
        ),
        step(
            "JSONPatch",
            "[JSONPatch{op: 'add', path: '/metadata/labels/second', value: variables.count + object.metadata.labels.first}]"
        ),
    );
    let labels = |object: Value| object.get_path(["metadata", "labels"]).cloned().unwrap();
    let kyverno = mutated(&policy(&steps), "").unwrap();
    assert_eq!(labels(kyverno), value!({"app": "web", "first": "2", "second": "22"}));
    let native = policy(&steps)
        .replace("policies.kyverno.io/v1", "admissionregistration.k8s.io/v1")
        .replace("kind: MutatingPolicy", "kind: MutatingAdmissionPolicy")
        .replace("spec:\n  match", "spec:\n  reinvocationPolicy: Never\n  match");
    assert_eq!(
        labels(mutated(&native, "").unwrap()),
        value!({"app": "web", "first": "2", "second": "32"})
    );
}

#[test]
fn conditions_see_values_and_unmet_ones_skip() {
    let rest = format!(
        "variables: [{{name: x, expression: object.metadata.name}}]\nmatchConditions: [{{name: c, expression: variables.x == 'other'}}]\n{}",
        apply("Object{}")
    );
    assert_eq!(run(&policy(&rest), "").1, ["skip "]);
    let failing = format!(
        "matchConditions: [{{name: a, expression: object.nothing == 1}}, {{name: b, expression: 'true'}}]\n{}",
        apply("Object{}")
    );
    assert!(
        run(&policy(&failing), "").1[0]
            .starts_with("error matchConditions \"a\": no such key: nothing")
    );
}

#[test]
fn existing_objects_are_changed_by_constraints_or_an_expression() {
    let maps = "{apiVersion: v1, kind: ConfigMap, metadata: {name: one, namespace: dev, labels: {app: web}}}\n---\n{apiVersion: v1, kind: ConfigMap, metadata: {name: two, namespace: dev}}";
    let patched = |rest: &str| -> Vec<String> {
        let text = policy(&format!(
            "evaluation: {{mutateExisting: {{enabled: true}}}}\n{rest}\n{}",
            apply("Object{metadata: Object.metadata{annotations: {\"seen\": \"yes\"}}}")
        ));
        let compiled = compiled(&text);
        assert!(!compiled.has_errors(), "{:#?}", messages(&compiled));
        let rules = RuleSet::new(compiled.policies);
        let (kinds, view) = (Kinds::builtin(), Objects(objects(maps)));
        let outcomes =
            rules.evaluate(&Event::created(objects(POD).remove(0)), &EvalEnv::of(&view, &kinds));
        assert!(outcomes.iter().all(|outcome| outcome.verdict == Verdict::Pass), "{outcomes:?}");
        let effects = outcomes.iter().flat_map(|outcome| &outcome.effects);
        effects
            .filter_map(|effect| match effect {
                Effect::Patch(patch) => match &patch.target {
                    PatchTarget::Stored { object, .. } => Some(object.name.to_string()),
                    PatchTarget::Trigger => None,
                },
                _ => None,
            })
            .collect()
    };
    let rules = "resourceRules: [{apiGroups: [''], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}]";
    assert_eq!(patched(&format!("targetMatchConstraints: {{{rules}}}")), ["one", "two"]);
    assert_eq!(
        patched(&format!(
            "targetMatchConstraints: {{{rules}, objectSelector: {{matchLabels: {{app: web}}}}}}"
        )),
        ["one"]
    );
    assert_eq!(
        patched(&format!(
            "targetMatchConstraints: {{{rules}}}\ntargetMatchConditions: [{{name: t, expression: \"object.metadata.name == 'two'\"}}]"
        )),
        ["two"]
    );
    assert_eq!(
        patched(
            "targetMatchConstraints: {expression: \"resource.Get('v1', 'configmaps', object.metadata.namespace, 'two')\"}"
        ),
        ["two"]
    );
    assert_eq!(
        patched(
            "targetMatchConstraints: {expression: \"resource.List('v1', 'configmaps', object.metadata.namespace)\"}"
        ),
        ["one", "two"]
    );
    assert!(patched("targetMatchConstraints: {expression: \"resource.Get('v1', 'configmaps', object.metadata.namespace, 'missing')\"}").is_empty());
}

/// The policy of pods, for existing objects: which of them change at admission, and which afterwards.
fn changed_without_targets(evaluation: &str, event: impl Fn(Value) -> Event) -> [Vec<String>; 2] {
    let text = policy(&format!(
        "evaluation: {{{evaluation}}}\nmatchConditions: [{{name: even, expression: \"object.metadata.name != 'odd'\"}}]\n{}",
        apply("Object{metadata: Object.metadata{annotations: {\"seen\": request.namespace}}}")
    ));
    let compiled = compiled(&text);
    assert!(!compiled.has_errors(), "{:#?}", messages(&compiled));
    let pod = |namespace: &str, name: &str| value!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": namespace}});
    let stored =
        vec![pod("dev", "web"), pod("dev", "two"), pod("prod", "three"), pod("dev", "odd")];
    let (kinds, view) = (Kinds::builtin(), Objects(stored));
    let (rules, eval_env) = (RuleSet::new(compiled.policies), EvalEnv::of(&view, &kinds));
    let event = event(pod("dev", "web"));
    let mutated = rules.mutate(&event, &eval_env);
    let outcomes = mutated.outcomes.into_iter().chain(rules.evaluate(&event, &eval_env));
    let mut changed = [Vec::new(), Vec::new()];
    for effect in outcomes.flat_map(|outcome| outcome.effects) {
        let Effect::Patch(patch) = effect else { continue };
        let seen = patch.after.str_at(["metadata", "annotations", "seen"]).unwrap().to_owned();
        let name = patch.after.str_at(["metadata", "name"]).unwrap().to_owned();
        let stored = patch.target != PatchTarget::Trigger;
        changed[usize::from(stored)].push(format!("{name} in {seen}"));
    }
    changed
}

#[test]
fn without_targets_all_objects_that_match_are_the_targets() {
    let both = "mutateExisting: {enabled: true}";
    let others = || vec!["two in dev".to_owned(), "three in prod".to_owned()];
    let web = || vec!["web in dev".to_owned()];
    // A request is changed at admission, and so are all others afterwards.
    assert_eq!(changed_without_targets(both, Event::created), [web(), others()]);
    // What was there when the policy came has its own turn.
    assert_eq!(changed_without_targets(both, Event::existing)[1], web());
    let later = "admission: {enabled: false}, mutateExisting: {enabled: true}";
    let all = [web(), others()].concat();
    assert_eq!(changed_without_targets(later, Event::created), [Vec::new(), all]);
    assert_eq!(changed_without_targets(later, Event::existing), [Vec::new(), web()]);
    // Nothing is changed afterwards unless the policy says so.
    assert_eq!(changed_without_targets("", Event::created), [web(), Vec::new()]);
}

#[test]
fn native_policies_have_bindings_and_parameters() {
    let native = |binding: &str| {
        format!(
            "apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {{name: p}}
spec:
  reinvocationPolicy: Never
  paramKind: {{apiVersion: v1, kind: ConfigMap}}
  matchConstraints:
    resourceRules: [{{apiGroups: [''], apiVersions: [v1], operations: [CREATE], resources: [pods]}}]
  mutations:
  - {{patchType: JSONPatch, jsonPatch: {{expression: \"[JSONPatch{{op: 'add', path: '/metadata/labels/' + params.metadata.name, value: params.data.v}}]\"}}}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {{name: b}}
spec:
  policyName: p
  {binding}
"
        )
    };
    let params = "{apiVersion: v1, kind: ConfigMap, metadata: {name: one, namespace: dev, labels: {p: 'y'}}, data: {v: a}}\n---\n{apiVersion: v1, kind: ConfigMap, metadata: {name: two, namespace: dev, labels: {p: 'y'}}, data: {v: b}}";
    let labels = |binding: &str| {
        mutated(&native(binding), params)
            .map(|object| object.get_path(["metadata", "labels"]).cloned().unwrap())
    };
    assert_eq!(
        labels("paramRef: {name: one, parameterNotFoundAction: Deny}"),
        Ok(value!({"app": "web", "one": "a"}))
    );
    assert_eq!(
        labels("paramRef: {selector: {matchLabels: {p: 'y'}}, parameterNotFoundAction: Deny}"),
        Ok(value!({"app": "web", "one": "a", "two": "b"})),
        "one run for each"
    );
    assert_eq!(
        labels("paramRef: {name: none, parameterNotFoundAction: Allow}"),
        Ok(value!({"app": "web"}))
    );
    assert!(
        labels("paramRef: {name: none, parameterNotFoundAction: Deny}")
            .unwrap_err()
            .contains("no params found for policy binding")
    );
    assert_eq!(
        labels(
            "paramRef: {name: one}\n  matchResources: {objectSelector: {matchLabels: {app: db}}}"
        ),
        Ok(value!({"app": "web"})),
        "the binding narrows the policy"
    );
    assert_eq!(
        labels(
            "paramRef: {name: one}\n  matchResources: {excludeResourceRules: [{apiGroups: ['*'], apiVersions: ['*'], resources: ['*'], resourceNames: [web]}]}"
        ),
        Ok(value!({"app": "web"}))
    );
}

#[test]
fn what_is_wrong_is_said_with_its_place() {
    for (rest, wanted) in [
        (
            apply("{'a': 1}"),
            "output is expected to be of type Object (it is of type map(string, int))",
        ),
        (operations("'x'"), "output is expected to be of type list (it is of type string)"),
        (
            apply("Object{metadata: Object.metadata{labels: {'a': 1, 'b': 'x'}}}"),
            "expected type 'int' but found 'string'",
        ),
        (
            "mutations: [{patchType: Other}]".to_owned(),
            "unknown patchType \"Other\" (use ApplyConfiguration or JSONPatch)",
        ),
        (
            "mutations: [{patchType: JSONPatch}]".to_owned(),
            "spec.mutations[0].jsonPatch: Required value: must be specified when patchType is JSONPatch (add jsonPatch with an expression)",
        ),
        (
            format!("evaluation: {{admission: {{enabled: false}}}}\n{}", apply("Object{}")),
            "spec.evaluation: Forbidden: disabling both admission and mutateExisting evaluation modes is not allowed (switch one of them on)",
        ),
    ] {
        let found = messages(&compiled(&policy(&rest)));
        assert!(found.len() == 1 && found[0].ends_with(wanted), "{rest}: {found:?}");
    }
}

#[test]
fn policies_for_pods_hold_for_what_makes_pods() {
    const POD_PARTS: &str =
        "metadata: {labels: {app: web}}, spec: {containers: [{name: a, image: one}]}";
    let deployment = format!(
        "{{apiVersion: apps/v1, kind: Deployment, metadata: {{name: web, namespace: dev}},
         spec: {{template: {{{POD_PARTS}}}}}}}"
    );
    let cron = format!(
        "{{apiVersion: batch/v1, kind: CronJob, metadata: {{name: web, namespace: dev}},
         spec: {{jobTemplate: {{spec: {{template: {{{POD_PARTS}}}}}}}}}}}"
    );
    let rest = "
variables:
- {name: first, expression: 'object.spec.containers[0].image'}
matchConditions:
- {name: web, expression: 'object.metadata.labels.app == \"web\" && object.metadata.name == \"web\"'}
mutations:
- patchType: ApplyConfiguration
  applyConfiguration:
    expression: >-
      has(object.spec.hostPID) ? Object{} :
      Object{metadata: Object.metadata{labels: Object.metadata.labels{first: variables.first}},
             spec: Object.spec{hostPID: false}}
";
    let templates = [
        (POD, &[][..]),
        (deployment.as_str(), &["spec", "template"][..]),
        (cron.as_str(), &["spec", "jobTemplate", "spec", "template"][..]),
    ];
    let changed = |object: &str, path: &[&str], policy: &str| {
        let (object, verdicts) = run_on(object, policy, "");
        assert!(verdicts.iter().all(|verdict| !verdict.starts_with("error")), "{verdicts:?}");
        let pod = object.get_path(path.iter().copied()).unwrap();
        let label = pod.str_at(["metadata", "labels", "first"]).map(str::to_owned);
        (label, pod.get_path(["spec", "hostPID"]).and_then(Value::as_bool))
    };
    for (object, path) in templates {
        let done = (Some("one".to_owned()), Some(false));
        assert_eq!(changed(object, path, &policy(rest)), done, "{object}");
    }
    let none = "autogen: {podControllers: {controllers: []}}";
    let some = "autogen: {podControllers: {controllers: [cronjobs, nothing]}}";
    for (switch, acted) in [(none, [true, false, false]), (some, [true, false, true])] {
        for ((object, path), acted) in templates.iter().zip(acted) {
            let (label, _) = changed(object, path, &policy(&format!("{switch}{rest}")));
            assert_eq!(label.is_some(), acted, "{switch} on {object}");
        }
    }
    let slips = "autogen: {podControllers: {controllers: [Deployment, jobs, nothing]}}";
    assert_eq!(
        messages(&compiled(&policy(&format!("{slips}{rest}")))),
        [
            "warning: policy.yaml:9:44: no controllers of Pods are called \"Deployment\", so none are added (did you mean \"deployments\"?)",
            "warning: policy.yaml:9:62: no controllers of Pods are called \"nothing\", so none are added (the controllers are daemonsets, deployments, replicasets, statefulsets, jobs, cronjobs)",
        ]
    );
    // What cannot be moved acts on Pods alone, and says so unless that is what was asked for.
    let patch = operations("[JSONPatch{op: \"add\", path: \"/metadata/labels/x\", value: \"y\"}]");
    let (object, verdicts) = run_on(&deployment, &policy(&patch), "");
    assert_eq!((object, verdicts.len()), (objects(&deployment).remove(0), 0));
    let warned = |text: &str| messages(&compiled(text)).join("\n").contains("acts on Pods alone");
    assert!(warned(&policy(&patch)));
    assert!(!warned(&policy(&format!("{none}\n{patch}"))));
    let named =
        policy(rest).replace("resources: [pods]", "resources: [pods], resourceNames: [web]");
    let (object, _) = run_on(&deployment, &named, "");
    assert_eq!(object, objects(&deployment).remove(0));
}
