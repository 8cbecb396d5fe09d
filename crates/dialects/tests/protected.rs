//! Objects do not choose the namespaces that a cluster lives on. Whoever writes a policy may.

mod support;

use kiln_engine::{Effect, Event, World};
use kiln_object::Kinds;
use kiln_text::wildcard;
use kiln_value::{Str, Value, value};
use support::{Fixed, Objects, objects, rules};

const SECRETS: &str = "
{apiVersion: v1, kind: Secret, metadata: {name: key, namespace: other}}
---
{apiVersion: v1, kind: Secret, metadata: {name: key, namespace: kube-system}}
";

fn trigger(x: &str) -> Value {
    value!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "home"},
        "data": {"x": x},
    })
}

#[test]
fn objects_do_not_choose_protected_namespaces() {
    let generate = |namespace: &str, context: &str| {
        format!(
            "apiVersion: kyverno.io/v1\nkind: ClusterPolicy\nmetadata: {{name: p}}\nspec:\n  rules:\n  - name: r\n    match: {{any: [{{resources: {{kinds: [ConfigMap]}}}}]}}\n    exclude: {{any: [{{resources: {{namespaces: [kube-system]}}}}]}}\n    context: [{context}]\n    generate: {{apiVersion: v1, kind: Secret, name: made, namespace: \"{namespace}\", data: {{stringData: {{a: b}}}}}}\n"
        )
    };
    let cel = |namespace: &str| {
        format!(
            "apiVersion: policies.kyverno.io/v1\nkind: GeneratingPolicy\nmetadata: {{name: p}}\nspec:\n  matchConstraints: {{resourceRules: [{{apiGroups: [''], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}}]}}\n  matchConditions: [{{name: c, expression: \"object.metadata.namespace != 'kube-system'\"}}]\n  generate:\n  - expression: \"generator.Apply({namespace}, [{{'apiVersion': 'v1', 'kind': 'Secret', 'metadata': {{'name': 'made'}}}}])\"\n"
        )
    };
    let targets = |namespace: &str| {
        format!(
            "apiVersion: kyverno.io/v1\nkind: ClusterPolicy\nmetadata: {{name: p}}\nspec:\n  rules:\n  - name: r\n    match: {{any: [{{resources: {{kinds: [ConfigMap]}}}}]}}\n    mutate: {{targets: [{{apiVersion: v1, kind: Secret, name: key, namespace: \"{namespace}\"}}], patchStrategicMerge: {{metadata: {{labels: {{a: b}}}}}}}}\n"
        )
    };
    let scripted_targets = |targets: &str| {
        format!(
            "apiVersion: policies.kyverno.io/v1\nkind: MutatingPolicy\nmetadata: {{name: p}}\nspec:\n  evaluation: {{mutateExisting: {{enabled: true}}}}\n  matchConstraints: {{resourceRules: [{{apiGroups: [''], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}}]}}\n  targetMatchConstraints: {{expression: \"{targets}\"}}\n  mutations:\n  - patchType: ApplyConfiguration\n    applyConfiguration: {{expression: \"Object{{metadata: Object.metadata{{labels: {{'a': 'b'}}}}}}\"}}\n"
        )
    };
    let x = "{{ request.object.data.x }}";
    let protected = ["kube-*".into(), "engine".into()];
    for (policy, x, wanted) in [
        (generate(x, ""), "kube-system", false),
        (generate(x, ""), "engine", false),
        (generate(x, ""), "other", true),
        (generate("kube-system", ""), "", true),
        (generate("{{ to }}", "{name: to, variable: {value: kube-system}}"), "", true),
        (
            generate(
                "{{ to }}",
                "{name: to, variable: {value: not-kube-system, jmesPath: \"replace_all(@, 'not-', '')\"}}",
            ),
            "",
            false,
        ),
        (generate("kube-{{ request.object.data.x }}", ""), "system", false),
        // The trigger lives there, so whoever stored it may write there.
        (generate("{{ request.namespace }}", ""), "home", true),
        (cel("object.data.x"), "kube-system", false),
        (cel("object.data.x"), "other", true),
        (cel("'kube-system'"), "", true),
        // Words that say something else open nothing.
        (
            generate(x, "")
                .replace("stringData: {a: b}", "metadata: {labels: {created-by: engine}}"),
            "engine",
            false,
        ),
        (
            generate(x, "{name: c, configMap: {name: c, namespace: kube-system}}"),
            "kube-system",
            false,
        ),
        (
            generate(x, "").replace(
                "data: {stringData: {a: b}}",
                "clone: {name: key, namespace: kube-system}",
            ),
            "kube-public",
            false,
        ),
        (
            generate(x, "").replace(
                "data: {stringData: {a: b}}",
                "clone: {name: key, namespace: kube-system}",
            ),
            "kube-system",
            false,
        ),
        (cel("object.data.x != 'kube-system' ? object.data.x : 'a'"), "kube-public", false),
        (cel("object.data.x in ['kube-system'] ? object.data.x : 'a'"), "kube-system", false),
        // A Namespace is what it is called.
        (
            generate("", "").replace(
                "kind: Secret, name: made, namespace: \"\", data: {stringData: {a: b}}",
                &format!(
                    "kind: Namespace, name: \"{x}\", data: {{metadata: {{labels: {{a: b}}}}}}"
                ),
            ),
            "kube-system",
            false,
        ),
        (
            generate("", "").replace(
                "kind: Secret, name: made, namespace: \"\", data: {stringData: {a: b}}",
                "kind: Namespace, name: kube-system, data: {metadata: {labels: {a: b}}}",
            ),
            "",
            true,
        ),
        // A list of names is a way to name them.
        (
            generate("{{ element }}", "")
                .replace(
                    "generate: {apiVersion",
                    "generate: {foreach: [{list: \"['other', 'kube-system']\", apiVersion",
                )
                .replace("{a: b}}}", "{a: b}}}]}"),
            "",
            true,
        ),
        (
            scripted_targets("resource.Get('v1', 'secrets', object.data.x, 'key')"),
            "kube-system",
            false,
        ),
        (scripted_targets("resource.Get('v1', 'secrets', object.data.x, 'key')"), "other", true),
        (scripted_targets("resource.Get('v1', 'secrets', 'kube-system', 'key')"), "", true),
        (targets(x), "kube-system", false),
        (targets(x), "*", false),
        (targets(x), "other", true),
        (targets("kube-system"), "", true),
        (targets("*"), "", true),
    ] {
        let (kinds, sources) = (Kinds::builtin(), Fixed(std::cell::Cell::new(0)));
        let view = Objects(objects(SECRETS));
        let world = World { sources: &sources, protected: &protected, ..World::of(&view, &kinds) };
        let outcomes = rules(&policy).evaluate(&Event::created(trigger(x)), &world);
        let writes = outcomes.iter().flat_map(|outcome| &outcome.effects);
        let into =
            |namespace: &str| protected.iter().any(|p: &Str| wildcard::matches(p, namespace));
        let done = writes
            .map(|effect| match effect {
                Effect::Ensure(ensure) => ensure.target.namespace.to_string(),
                Effect::Patch(patch) => {
                    patch.after.str_at(["metadata", "namespace"]).unwrap_or_default().to_owned()
                }
                other => panic!("{other:?}"),
            })
            .collect::<Vec<_>>();
        let said = format!("{outcomes:?}").contains("it is protected");
        assert_eq!(said, !wanted, "{x:?} of {policy}: {done:?}");
        match wanted {
            true => assert!(!done.is_empty(), "{x:?} of {policy}: {outcomes:?}"),
            false => assert!(!done.iter().any(|namespace| into(namespace)), "{policy}: {done:?}"),
        }
    }
}
