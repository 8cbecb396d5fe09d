//! Small policies, and an object that has its say in them.

use kiln_value::{Value, value};

/// A policy of Kyverno with one rule for objects of a kind. A policy of a namespace is in `home`.
pub(crate) fn kyverno(kind: &str, fires_on: &str, rule: &str) -> String {
    let place = if kind == "Policy" { ", namespace: home" } else { "" };
    format!(
        "apiVersion: kyverno.io/v1\nkind: {kind}\nmetadata: {{name: p{place}}}\nspec:\n  rules:\n  - name: r\n    \
         match: {{any: [{{resources: {{kinds: [{fires_on}]}}}}]}}\n{}",
        indented(rule, 4)
    )
}

/// A policy in CEL for resources of the core group. A policy of a namespace is in `home`.
pub(crate) fn scripted(kind: &str, resources: &str, spec: &str) -> String {
    let place = if kind.starts_with("Namespaced") { ", namespace: home" } else { "" };
    format!(
        "apiVersion: policies.kyverno.io/v1\nkind: {kind}\nmetadata: {{name: p{place}}}\nspec:\n  matchConstraints: \
         {{resourceRules: [{{apiGroups: [''], apiVersions: [v1], operations: [CREATE], resources: [{resources}]}}]}}\n{}",
        indented(spec, 2)
    )
}

/// Like [`scripted`], for a policy that gives a label to stored objects.
pub(crate) fn labelling(kind: &str, resources: &str, targets: &str) -> String {
    let spec = format!(
        "evaluation: {{mutateExisting: {{enabled: true}}}}\ntargetMatchConstraints: {{{targets}}}\nmutations:\n- \
         patchType: ApplyConfiguration\n  applyConfiguration: \
         {{expression: \"Object{{metadata: Object.metadata{{labels: {{'a': 'b'}}}}}}\"}}"
    );
    scripted(kind, resources, &spec)
}

/// An object that says something.
pub(crate) fn config_map(x: &str) -> Value {
    value!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "home"},
        "data": {"x": x, "y": "other"},
    })
}

fn indented(text: &str, by: usize) -> String {
    let pad = " ".repeat(by);
    text.lines().map(|line| format!("{pad}{line}\n")).collect()
}
