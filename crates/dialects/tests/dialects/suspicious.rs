//! Rules that compile and cannot do what their author meant: each is a warning with place and next step.

use crate::support::{compiled, messages};

fn rule(rest: &str) -> String {
    format!(
        "apiVersion: kyverno.io/v1\nkind: ClusterPolicy\nmetadata: {{name: p}}\nspec:\n  rules:\n  - name: r\n{rest}"
    )
}

fn check_all(cases: &[(String, &str)]) {
    let wrong: Vec<_> = cases
        .iter()
        .map(|(text, wanted)| (messages(&compiled(text)), wanted))
        .filter(|(found, wanted)| found[..] != [format!("warning: policy.yaml:{wanted}")])
        .map(|(found, wanted)| format!("found {found:#?}\nwanted {wanted}\n"))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

const NAMESPACES: &str = "    match: {any: [{resources: {kinds: [Namespace]}}]}\n";
const PODS: &str = "    match: {any: [{resources: {kinds: [Pod]}}]}\n";

/// A MutatingPolicy for Deployments with these lines of a mutation.
fn mutating(resources: &str, mutation: &str) -> String {
    format!(
        "apiVersion: policies.kyverno.io/v1\nkind: MutatingPolicy\nmetadata: {{name: p}}\nspec:\n  matchConstraints:\n    \
         resourceRules: [{{apiGroups: [apps], apiVersions: [v1], operations: [CREATE], resources: [{resources}]}}]\n  \
         mutations:\n{mutation}"
    )
}

#[test]
fn what_expressions_write_into_built_in_kinds_is_held_to_their_fields() {
    let applied = |resources: &str, expression: &str| {
        mutating(
            resources,
            &format!(
                "  - patchType: ApplyConfiguration\n    applyConfiguration:\n      expression: '{expression}'\n"
            ),
        )
    };
    let operations = |path: &str| {
        mutating(
            "deployments",
            &format!(
                "  - patchType: JSONPatch\n    jsonPatch:\n      expression: '[JSONPatch{{op: \"add\", path: {path}, value: 3}}]'\n"
            ),
        )
    };
    check_all(&[
        (
            applied("deployments", "Object{spec: Object.spec{replicaz: 3}}"),
            "10:45: a Deployment has no field spec.replicaz (did you mean \"replicas\"?)",
        ),
        (
            // A part that stands on its own, in a list.
            applied(
                "deployments",
                "Object{spec: Object.spec{template: Object.spec.template{spec: Object.spec.template.spec{containers: \
                 object.spec.template.spec.containers.map(c, Object.spec.template.spec.containers{name: c.name, imag: \"a\"})}}}}",
            ),
            "10:215: a Deployment has no field spec.template.spec.containers.imag (did you mean \"image\"?)",
        ),
        (
            applied("deployments", "Object{spec: Object.spec{replicas: \"3\"}}"),
            "10:45: spec.replicas of a Deployment must be a number, and this is a string (write a number: the API server rejects anything else)",
        ),
        (
            // What is read.
            applied(
                "deployments",
                "Object{metadata: Object.metadata{labels: {\"a\": string(object.metadata.nmae)}}}",
            ),
            "10:89: undefined field 'nmae'; a Deployment has no field metadata.nmae (did you mean \"name\"?)",
        ),
        (
            operations("\"/spec/replicaz\""),
            "10:42: a Deployment has no field spec.replicaz (did you mean \"replicas\"?)",
        ),
    ]);
    for fine in [
        applied("deployments", "Object{spec: Object.spec{replicas: 3}}"),
        // A DaemonSet has no replicas, a Deployment has them.
        applied("deployments, daemonsets", "Object{spec: Object.spec{replicas: 3}}"),
        applied(
            "deployments",
            "Object{metadata: Object.metadata{labels: {\"a\": object.metadata.name}}}",
        ),
        applied("\"*\"", "Object{spec: Object.spec{anything: 3}}"),
        applied(
            "deployments",
            "Object{metadata: Object.metadata{labels: {\"a\": has(object.spec.paused) ? \"b\" : object.spec.template.spec.containers[0].image + object.metadata.labels.x}}}",
        ),
        operations("\"/spec/\" + object.metadata.name"),
        operations("\"/metadata/labels/a\"").replace("value: 3", "value: \"3\""),
    ] {
        assert_eq!(messages(&compiled(&fine)), Vec::<String>::new(), "{fine}");
    }
}

#[test]
fn what_a_built_in_kind_does_not_have_is_told() {
    let made = |target: &str| rule(&format!("{NAMESPACES}    generate: {{{target}}}\n"));
    let patched = |patch: &str| rule(&format!("{PODS}    mutate: {patch}\n"));
    check_all(&[
        (
            made(
                "apiVersion: extensions/v1beta1, kind: NetworkPolicy, name: made, namespace: x, data: {spec: {}}",
            ),
            "8:28: rule r: NetworkPolicy is not served as extensions/v1beta1 (write `apiVersion: networking.k8s.io/v1`)",
        ),
        (
            rule(
                "    match: {any: [{resources: {kinds: [Pod, apps/v2/Deployment]}}]}\n    validate: {message: m, pattern: {kind: '?*'}}\n",
            ),
            "7:45: rule r: Deployment is not served as apps/v2 (write apps/v1/Deployment)",
        ),
        (
            rule(
                "    match: {any: [{resources: {kinds: [Pod]}}, {resources: {kinds: [apps/v1/Deploymnet]}}]}\n    validate: {message: m, pattern: {kind: '?*'}}\n",
            ),
            "7:69: rule r: no kind \"Deploymnet\" is known (did you mean \"Deployment\"? if not, give its definition along)",
        ),
        (
            made("apiVersion: v1, kind: ConfigMap, name: made, namespace: x, data: {ZOO: a}"),
            "8:82: a ConfigMap has no field ZOO (put it below data, one level deeper: data: {ZOO: …})",
        ),
        (
            made(
                "apiVersion: v1, kind: ConfigMap, name: made, namespace: x, data: {data: {port: 80}}",
            ),
            "8:89: data.port of a ConfigMap must be text, and this is a number (put it in quotes: \"80\")",
        ),
        (
            patched("{patchStrategicMerge: {spec: {contianers: []}}}"),
            "8:43: a Pod has no field spec.contianers (did you mean \"containers\"?)",
        ),
        (
            patched(
                "{patchesJson6902: '[{\"op\": \"add\", \"path\": \"/spec/nodeSelektor\", \"value\": {}}]'}",
            ),
            "8:31: a Pod has no field spec.nodeSelektor (did you mean \"nodeSelector\"?)",
        ),
        (
            patched(
                "{patchStrategicMerge: {metadata: {annotations: {a: \"{{ request.object.metdata.name || 'x' }}\"}}}}",
            ),
            "8:64: a Pod has no field metdata (did you mean \"metadata\"?)",
        ),
        (
            patched("{patchStrategicMerge: {metadata: {name: '{{ to_loer(request.name) }}'}}}"),
            "8:53: unknown function \"to_loer\" (did you mean \"to_lower\"?)",
        ),
    ]);
}

#[test]
fn copies_onto_their_own_source_are_told() {
    check_all(&[
        (
            rule(&format!(
                "{NAMESPACES}    generate: {{apiVersion: v1, kind: Secret, name: s, namespace: home, clone: {{name: s, namespace: home}}}}\n"
            )),
            "8:79: the source is cloned onto itself, so nothing is ever made (give the copy another name or namespace)",
        ),
        (
            rule(&format!(
                "{NAMESPACES}    generate: {{namespace: home, cloneList: {{kinds: [v1/Secret], namespace: home}}}}\n"
            )),
            "8:44: the copies go to where their sources are, so nothing is ever made (clone into another namespace)",
        ),
    ]);
}

#[test]
fn objects_of_generating_policies_have_names_and_known_fields() {
    let policy = |object: &str| {
        format!(
            "apiVersion: policies.kyverno.io/v1\nkind: GeneratingPolicy\nmetadata: {{name: p}}\nspec:\n  matchConstraints:\n    resourceRules:\n    - {{apiGroups: [''], apiVersions: [v1], operations: [CREATE], resources: [namespaces]}}\n  variables:\n  - name: made\n    expression: >-\n      [{object}]\n  generate:\n  - expression: generator.Apply(object.metadata.name, variables.made)\n"
        )
    };
    let told = |object: &str| -> Vec<String> {
        let text = policy(object);
        let all = messages(&compiled(&text));
        all.iter()
            .map(|m| m.split_once(": policy.yaml:").map_or(m.clone(), |(_, m)| m.to_owned()))
            .collect()
    };
    assert_eq!(
        told(
            "{'apiVersion': dyn('v1'), 'kind': dyn('ConfigMap'), 'metadata': dyn({'labels': {'a': 'b'}})}"
        ),
        [
            "11:60: this ConfigMap has no metadata.name, so it cannot be made (add \"name\" to its metadata)"
        ]
    );
    assert_eq!(
        told(
            "{'apiVersion': dyn('v1'), 'kind': dyn('ConfigMap'), 'metadata': dyn({'name': 'a'}), 'dataa': dyn({'a': 'b'})}"
        ),
        ["11:92: a ConfigMap has no field dataa (did you mean \"data\"?)"]
    );
    assert_eq!(
        told(
            "{'apiVersion': dyn('v1'), 'kind': dyn('ConfigMap'), 'metadata': dyn({'name': object.metadata.name}), 'data': dyn({'a': 'b'})}"
        ),
        Vec::<String>::new()
    );
}

#[test]
fn what_modrules_write_into_built_in_kinds_is_held_to_their_fields() {
    let rule = |kind: &str, patch: &str| {
        format!(
            "apiVersion: api.kubemod.io/v1beta1\nkind: ModRule\nmetadata: {{name: m, namespace: home}}\nspec:\n  type: Patch\n  match: [{{select: $.kind, matchValue: {kind}}}]\n  patch:\n  - {{{patch}}}\n"
        )
    };
    let said = |kind: &str, patch: &str| messages(&compiled(&rule(kind, patch))).join("\n");
    check_all(&[
        (
            rule("Deployment", "op: remove, path: /spec/replcas"),
            "8:24: a Deployment has no field spec.replcas (did you mean \"replicas\"?)",
        ),
        (
            rule("Deployment", "op: replace, path: /spec/replicas, value: '\"lots\"'"),
            "8:48: spec.replicas of a Deployment must be a number, and this is a string (write a number: the API server rejects anything else)",
        ),
        (
            rule("Pod", "op: add, path: /spec/contianers/#0/image, value: a"),
            "8:21: a Pod has no field spec.contianers (did you mean \"containers\"?)",
        ),
    ]);
    // What a template computes, what a kind has, and kinds that are not built in.
    assert_eq!(said("Deployment", "op: add, path: /spec/replicas, value: '{{ .Target.x }}'"), "");
    assert_eq!(
        said("Deployment", "op: add, path: /spec/template/spec/containers/0/image, value: a"),
        ""
    );
    assert_eq!(said("Widget", "op: add, path: /spec/sise, value: '3'"), "");
}

#[test]
fn old_operators_of_conditions_are_told_and_those_of_selectors_left_alone() {
    let checks = |rest: &str| {
        rule(&format!(
            "{PODS}{rest}    validate: {{message: m, pattern: {{metadata: {{name: '?*'}}}}}}\n"
        ))
    };
    let condition = "    preconditions: {all: [{key: a, operator: In, value: [b]}]}\n";
    let said = messages(&compiled(&checks(condition))).join("\n");
    assert!(said.contains("Operator In has been deprecated"), "{said}");
    let selector = "    exclude: {any: [{resources: {kinds: [Pod], selector: {matchExpressions: [{key: tier, operator: In, values: [gold]}]}}}]}\n";
    assert_eq!(messages(&compiled(&checks(selector))), Vec::<String>::new());
}

#[test]
fn fields_that_another_request_changes_are_told() {
    let checks = |kinds: &str, pattern: &str| {
        rule(&format!(
            "    match: {{any: [{{resources: {{kinds: [{kinds}]}}}}]}}\n    validate: {{message: m, pattern: {pattern}}}\n"
        ))
    };
    let replicas = "8:45: You are matching on replicas but not including the scale subresource in the policy. (add a \
                    rule for KIND/scale)";
    let status = "8:38: You are matching on status but not including the status subresource in the policy. (add a \
                  rule for KIND/status)";
    check_all(&[
        (checks("Deployment", "{spec: {replicas: '>1'}}"), replicas),
        (checks("Deployment", "{spec: {=(replicas): '>1'}}"), replicas),
        (checks("Deployment", "{status: {phase: Running}}"), status),
    ]);
    for (kinds, pattern) in [
        ("Deployment, Deployment/scale", "{spec: {replicas: '>1'}}"),
        ("Deployment", "{spec: {paused: false}}"),
    ] {
        let text =
            checks(kinds, pattern).replace("spec:\n  rules", "spec:\n  background: false\n  rules");
        assert_eq!(messages(&compiled(&text)), Vec::<String>::new(), "{kinds} {pattern}");
    }
}

#[test]
fn background_scans_of_subresources_are_told() {
    let checks = |background: &str| {
        rule(
            "    match: {any: [{resources: {kinds: [Deployment/scale]}}]}\n    validate: {message: m, pattern: {spec: {replicas: '>1'}}}\n",
        )
        .replace("spec:\n  rules", &format!("spec:\n{background}  rules"))
    };
    let said = "7:12: background scan enabled with subresource Deployment/scale: Kyverno rejects the policy (add `background: \
                false` below spec)";
    check_all(&[(checks(""), said)]);
    assert_eq!(messages(&compiled(&checks("  background: false\n"))), Vec::<String>::new());
}

#[test]
fn labels_of_modrules_are_text() {
    let policy = |value: &str| {
        format!(
            "apiVersion: api.kubemod.io/v1beta1\nkind: ModRule\nmetadata: {{name: m, namespace: home}}\nspec:\n  type: Patch\n  match: [{{select: $.kind, matchValue: Pod}}]\n  patch:\n  - {{op: add, path: /metadata/labels/x, value: {value}}}\n"
        )
    };
    let told = |value: &str| messages(&compiled(&policy(value)));
    assert_eq!(
        told("'true'"),
        [
            "warning: policy.yaml:8:48: metadata.labels.x must be text: an API server refuses anything else (values are read as YAML, so quote it twice: '\"true\"')"
        ]
    );
    assert_eq!(told("'7'").len(), 1);
    for value in ["'\"true\"'", "yes-it-is", "'{{ .Target.kind }}'"] {
        assert_eq!(told(value), Vec::<String>::new(), "{value}");
    }
}

#[test]
fn variables_anchors_and_custom_kinds_are_left_alone() {
    for text in [
        rule(&format!(
            "{PODS}    mutate: {{patchStrategicMerge: {{spec: {{(hostNetwork): 'true', +(priorityClassName): low, containers: [{{(name): '*', image: '{{{{ element }}}}'}}]}}}}}}\n"
        )),
        rule(&format!(
            "{NAMESPACES}    generate: {{apiVersion: example.com/v1, kind: Widget, name: made, namespace: x, data: {{anything: 1}}}}\n"
        )),
        rule(&format!(
            "{NAMESPACES}    generate: {{apiVersion: v1, kind: ConfigMap, name: made, namespace: x, data: '{{{{ request.object.metadata }}}}'}}\n"
        )),
    ] {
        let told: Vec<String> = messages(&compiled(&text))
            .into_iter()
            .filter(|message| message.contains("no field") || message.contains("must be"))
            .collect();
        assert_eq!(told, Vec::<String>::new());
    }
}

#[test]
fn fields_without_effect_that_rules_may_depend_on_are_named() {
    check_all(&[(
        rule(&format!(
            "{PODS}    imageExtractors: {{Task: [{{path: /spec/steps/*/image}}]}}\n    \
             mutate: {{patchStrategicMerge: {{metadata: {{labels: {{a: b}}}}}}}}\n"
        )),
        "8:5: imageExtractors has no effect in Kiln: `images` holds the images of Pods and of their controllers (read images of \
         other kinds from request.object, completed with image_normalize)",
    )]);
}

#[test]
fn checks_in_cel_that_read_what_no_kind_has_are_named() {
    let in_a_rule = |kinds: &str, expression: &str| {
        rule(&format!(
            "    match: {{any: [{{resources: {{kinds: [{kinds}]}}}}]}}\n    validate:\n      cel:\n        \
             expressions:\n        - expression: \"{expression}\"\n"
        ))
    };
    let alone = |resources: &str, expression: &str| {
        format!(
            "apiVersion: policies.kyverno.io/v1\nkind: ValidatingPolicy\nmetadata: {{name: p}}\nspec:\n  \
             matchConstraints:\n    resourceRules: [{{apiGroups: [apps], apiVersions: [v1], operations: [CREATE], \
             resources: [{resources}]}}]\n  validations:\n  - expression: \"{expression}\"\n"
        )
    };
    check_all(&[
        (
            in_a_rule("Deployment", "object.replicas > 1"),
            "11:30: undefined field 'replicas'; a Deployment has no field replicas (the fields here are metadata, spec, status)",
        ),
        (
            in_a_rule("Secret", "!has(object.automountServiceAccountToken)"),
            "11:35: undefined field 'automountServiceAccountToken'; a Secret has no field automountServiceAccountToken (put it below data, one level deeper: data: {automountServiceAccountToken: …})",
        ),
        (
            alone("deployments", "object.spec.replicaz > 1"),
            "8:29: undefined field 'replicaz'; a Deployment has no field spec.replicaz (did you mean \"replicas\"?)",
        ),
    ]);
    // What one of the kinds has, what is optional, and what a loop calls by the name.
    for policy in [
        in_a_rule("Deployment, Secret", "has(object.type) || object.spec.replicas > 1"),
        in_a_rule("Deployment", "object.?replicas.orValue(2) > 1"),
        in_a_rule("Deployment", "[{'replicas': 2}].all(object, object.replicas > 1)"),
        in_a_rule("Deployment, example.com/v1/Shop", "object.replicas > 1"),
        alone(
            "deployments, statefulsets",
            "object.spec.?serviceName.orValue('') == '' || object.spec.serviceName != 'a'",
        ),
    ] {
        assert_eq!(messages(&compiled(&policy)), [""; 0], "{policy}");
    }
}
