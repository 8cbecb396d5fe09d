//! Mutate blocks that are refused, each with its place and what to do.

use crate::support::{compiled, messages};

/// What is said about a policy whose only rule has this block; the block begins in line 9.
fn said(mutate: &str) -> Vec<String> {
    let mutate = mutate.replace('\n', "\n    ");
    let policy = format!(
        "apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {{name: p}}
spec:
  rules:
  - name: r
    match: {{any: [{{resources: {{kinds: [Pod]}}}}]}}
    mutate:
      {mutate}
"
    );
    // What a Pod does not have is another matter.
    let mut said = messages(&compiled(&policy));
    said.retain(|message| !message.contains(" has no field "));
    said
}

#[test]
fn bad_blocks_are_refused_in_place() {
    let mut others = Vec::new();
    for (block, wanted) in [
        (
            "patchStrategicMarge: {}",
            &[
                "error: policy.yaml:9:7: unknown field spec.rules[0].mutate.patchStrategicMarge (did you mean \"patchStrategicMerge\"?)",
                "error: policy.yaml:9:7: the mutate block has no patch (add patchStrategicMerge, patchesJson6902 or foreach)",
            ][..],
        ),
        (
            "patchStrategicMerge: {spec: {}}\n  patchesJson6902: '[]'",
            &[
                "error: policy.yaml:10:24: only one of `patchStrategicMerge` or `patchesJson6902` is allowed (write one rule for each)",
            ],
        ),
        (
            "patchStrategicMerge: {spec: {}}\n  foreach: [{list: a, patchesJson6902: '[]'}]",
            &[
                "error: policy.yaml:10:16: only one of `foreach`, `patchStrategicMerge`, or `patchesJson6902` is allowed (write one rule for each)",
            ],
        ),
        (
            "patchStrategicMerge: [a]",
            &[
                "error: policy.yaml:9:28: spec.rules[0].mutate.patchStrategicMerge must be a map, and this is a list (write the patch as a part of the object)",
            ],
        ),
        (
            "patchStrategicMerge: {spec: {=(hostNetwork): false, X(hostPID): true}}",
            &[
                "error: policy.yaml:9:36: the anchor =( ) is for validate patterns; a patch would write it out (patches know ( ), +( ) and <( ))",
                "error: policy.yaml:9:59: the anchor X( ) is for validate patterns; a patch would write it out (patches know ( ), +( ) and <( ))",
            ],
        ),
        (
            "patchStrategicMerge: {metadata: {labels: {a: 1, b: null, c: '{{ request.name }}'}}}",
            &[
                "error: policy.yaml:9:52: labels and annotations supports only string values, \"use double quotes around the non string values\" (write a: \"1\")",
            ],
        ),
        (
            "patchStrategicMerge: {spec: {a: '{{ element.x }}', b: '{{ target.x }}', c: '{{ nothing }}'}}",
            &[
                "error: policy.yaml:9:39: variable 'element.x' present outside of foreach at path spec.rules[0].mutate.patchStrategicMerge.spec.a (move it below foreach)",
                "error: policy.yaml:9:61: policy contains invalid variables: variable substitution failed for rule r: {{ target.x }} at spec.rules[0].mutate.patchStrategicMerge.spec.b: it names no part of the context and no context entry of the rule (declare a context entry of this name)",
                "error: policy.yaml:9:82: policy contains invalid variables: variable substitution failed for rule r: {{ nothing }} at spec.rules[0].mutate.patchStrategicMerge.spec.c: it names no part of the context and no context entry of the rule (declare a context entry of this name)",
            ],
        ),
        (
            "patchesJson6902: '{op: add}'",
            &[
                "error: policy.yaml:9:24: patchesJson6902 must be a list of operations, and this is a map (write a list: - op: add, path: /metadata/labels/x, value: y)",
            ],
        ),
        (
            "patchesJson6902: '- {op: add, path: metadata/labels, value: 1}'",
            &[
                "error: policy.yaml:9:24: path must begin with a forward slash: \"metadata/labels\" (write \"/metadata/labels\")",
            ],
        ),
        (
            "patchesJson6902: '- {op: ad, path: /metadata/labels, value: 1}'",
            &[
                "error: policy.yaml:9:24: bad patchesJson6902: operation 1 of 1 (ad \"/metadata/labels\"): unknown op \"ad\"; it must be add, remove, replace, move, copy or test (each operation has op, path and, to add, replace or test, a value)",
            ],
        ),
        (
            "patchesJson6902: '- {op: add, path: /metadata/labels}'",
            &[
                "error: policy.yaml:9:24: bad patchesJson6902: operation 1 of 1 (add \"/metadata/labels\"): the operation needs \"value\" (each operation has op, path and, to add, replace or test, a value)",
            ],
        ),
        (
            "patchesJson6902: '- {op: remove, path: \"/spec/{{ request.name }}\"}'",
            &[
                "error: policy.yaml:9:24: rule \"r\" should not have variables in patchesJSON6902 path section (use foreach, where paths may hold {{elementIndex}})",
            ],
        ),
        (
            "foreach: []",
            &["error: policy.yaml:9:16: foreach has no elements (add an element with a list)"],
        ),
        (
            "foreach: [{patchStrategicMerge: {}}]",
            &[
                "error: policy.yaml:9:17: the field list of spec.rules[0].mutate.foreach[0] is missing (add \"list\" here)",
            ],
        ),
        (
            "foreach: [{list: 'request.object.spec.', patchStrategicMerge: {a: b}, order: Down}]",
            &[
                "error: policy.yaml:9:24: \"request.object.spec.\" is not an expression: expected a name, `*`, `[` or `{`, found the end at character 21",
                "error: policy.yaml:9:84: unknown order \"Down\" (use Ascending or Descending)",
            ],
        ),
        (
            "foreach: [{list: request.object.a, preconditions: {all: []}, foreach: [{list: element, patchesJson6902: '[]'}]}]",
            &[
                "error: policy.yaml:9:57: a nested foreach cannot contain other declarations (move it into the inner foreach)",
            ],
        ),
        (
            "mutateExistingOnPolicyUpdate: true\n  patchStrategicMerge: {a: b}",
            &[
                "error: policy.yaml:9:37: mutateExistingOnPolicyUpdate needs mutate.targets (name the existing objects to change in targets)",
            ],
        ),
        (
            "targets: [{name: x}]\n  patchStrategicMerge: {a: b}",
            &[
                "error: policy.yaml:9:17: the field kind of spec.rules[0].mutate.targets[0] is missing (add \"kind\" here)",
            ],
        ),
        (
            "targets: [{kind: Secret, apiVersion: v1, name: '{{ target.metadata.name }}'}]\n  patchStrategicMerge: {a: '{{ target.metadata.name }}'}",
            &[
                "error: policy.yaml:9:54: policy contains invalid variables: variable substitution failed for rule r: {{ target.metadata.name }} at spec.rules[0].mutate.targets[0].name: it names no part of the context and no context entry of the rule (declare a context entry of this name)",
            ],
        ),
    ] {
        let said = said(block);
        if said != wanted {
            others.push(format!("{block}\n  {}", said.join("\n  ")));
        }
    }
    assert!(others.is_empty(), "\n{}", others.join("\n"));
}

#[test]
fn loops_may_not_nest_without_end() {
    let mut block = "patchesJson6902: '[]'".to_owned();
    for _ in 0..9 {
        block = format!("foreach: [{{list: request.object.a, {block}}}]");
    }
    let said = said(&block);
    assert_eq!(said.len(), 1);
    assert!(said[0].contains("foreach is nested more than 8 times"), "{said:?}");
}

#[test]
fn a_rule_for_every_kind_changes_metadata_alone() {
    let policy = |background: bool, patch: &str| {
        format!(
            "{{apiVersion: kyverno.io/v1, kind: ClusterPolicy, metadata: {{name: p}}, spec: {{background: {background}, rules: [{{name: r, match: {{any: [{{resources: {{kinds: ['*']}}}}]}}, mutate: {{patchStrategicMerge: {patch}}}}}]}}}}"
        )
    };
    let said = |background, patch: &str| messages(&compiled(&policy(background, patch)));
    assert_eq!(said(false, "{metadata: {labels: {a: b}}}"), Vec::<String>::new());
    assert!(said(false, "{spec: {a: b}}")[0].contains("only deal with the metadata field"));
    assert!(said(true, "{metadata: {}}")[0].contains("not allowed in background mode"));
    // Kyverno does not look into loops.
    let looped = policy(false, "X").replace(
        "patchStrategicMerge: X",
        "foreach: [{list: request.object.spec.list, patchStrategicMerge: {spec: {a: b}}}]",
    );
    assert_eq!(messages(&compiled(&looped)), Vec::<String>::new());
}
