//! How far policies of a namespace reach with what they change, and that what cannot be known is no way around a rule.

use std::collections::BTreeSet;

use crate::support::policies::{kyverno, labelling};
use crate::support::{Fixed, Objects, objects, rules};
use kiln_engine::{Effect, EvalEnv, Event, ListPage, ListQuery, PatchTarget, ReadError, View};
use kiln_object::{Gvk, Kinds};
use kiln_value::{Value, value};

const EVERYWHERE: &str = "
{apiVersion: v1, kind: ConfigMap, metadata: {name: key, namespace: home}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: key, namespace: other}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: key, namespace: kube-system}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: home, labels: {key: a}}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: key}}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: key}}
";

fn trigger(x: &str) -> Value {
    value!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "t", "namespace": "home"},
        "stringData": {"x": x},
    })
}

/// Rules that change stored objects, with `X` where the object of the request has its say.
fn changing() -> Vec<String> {
    let x = "{{ request.object.stringData.x }}";
    let targeting = |target: &str| {
        let rule = format!(
            "mutate: {{targets: [{{{target}}}], patchStrategicMerge: {{metadata: {{labels: {{a: b}}}}}}}}"
        );
        kyverno("Policy", "Secret", &rule)
    };
    let scripted = |targets: &str| labelling("NamespacedMutatingPolicy", "secrets", targets);
    vec![
        targeting(&format!("apiVersion: v1, kind: ConfigMap, name: key, namespace: \"{x}\"")),
        targeting("apiVersion: v1, kind: ConfigMap, name: '*'"),
        targeting(&format!("apiVersion: v1, kind: ConfigMap, name: \"{x}\"")),
        targeting(&format!("apiVersion: v1, kind: \"{x}\", name: key")),
        targeting("apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, name: key"),
        scripted(
            "resourceRules: [{apiGroups: ['*'], apiVersions: ['*'], operations: ['*'], resources: ['*']}]",
        ),
        scripted(
            "resourceRules: [{apiGroups: [''], apiVersions: [v1], operations: ['*'], resources: [configmaps, namespaces]}]",
        ),
        scripted("expression: \"resource.List('v1', 'configmaps')\""),
        scripted("expression: \"resource.Get('v1', 'configmaps', object.stringData.x)\""),
    ]
}

#[test]
fn what_a_namespaced_policy_changes_is_in_its_namespace() {
    let mut serving = 0;
    for policy in changing() {
        let rules = rules(&policy);
        let mut changed = BTreeSet::new();
        for x in [
            "home",
            "other",
            "kube-system",
            "key",
            "*",
            "../other",
            "ConfigMap",
            "Namespace",
            "",
            "ClusterRole",
        ] {
            let (kinds, sources) = (Kinds::builtin(), Fixed(std::cell::Cell::new(0)));
            let view = Objects(objects(EVERYWHERE));
            let eval_env = EvalEnv { sources: &sources, ..EvalEnv::of(&view, &kinds) };
            for outcome in rules.evaluate(&Event::created(trigger(x)), &eval_env) {
                for effect in &outcome.effects {
                    let Effect::Patch(patch) = effect else { continue };
                    let PatchTarget::Stored { object, .. } = &patch.target else { continue };
                    assert_eq!(object.namespace, "home", "{x:?} of {policy}: {object}");
                    changed.insert(object.to_string());
                }
            }
        }
        serving += usize::from(!changed.is_empty());
    }
    assert!(serving >= 5, "{serving} of them change what is at home");
}

/// A view of a server that does not tell of namespaces.
struct Silent(Objects);

impl View for Silent {
    fn get(
        &self,
        kind: &Gvk,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Option<Value>, ReadError> {
        match kind.kind.as_str() {
            "Namespace" => Err(ReadError::Unavailable("nothing answers".to_owned())),
            _ => self.0.get(kind, namespace, name),
        }
    }

    fn list(&self, query: &ListQuery<'_>) -> Result<ListPage, ReadError> {
        self.0.list(query)
    }
}

#[test]
fn namespaces_whose_labels_are_unknown_are_no_way_around_a_rule() {
    let kyverno = "
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: p}
spec:
  rules:
  - name: r
    match: {any: [{resources: {kinds: [Secret], namespaceSelector: {matchLabels: {key: a}}}}]}
    mutate: {patchStrategicMerge: {metadata: {labels: {safe: 'yes'}}}}
";
    let excluding = kyverno.replace(
        "namespaceSelector: {matchLabels: {key: a}}}}]}",
        "names: ['*']}}]}\n    exclude: {any: [{resources: {namespaceSelector: {matchLabels: {key: b}}}}]}",
    );
    let scripted = "
apiVersion: policies.kyverno.io/v1
kind: MutatingPolicy
metadata: {name: p}
spec:
  matchConstraints:
    namespaceSelector: {matchLabels: {key: a}}
    resourceRules: [{apiGroups: [''], apiVersions: [v1], operations: [CREATE], resources: [secrets]}]
  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration: {expression: \"Object{metadata: Object.metadata{labels: {'safe': 'yes'}}}\"}
";
    for policy in [kyverno, &excluding, scripted] {
        let rules = rules(policy);
        let (kinds, sources) = (Kinds::builtin(), Fixed(std::cell::Cell::new(0)));
        let known = Objects(objects(EVERYWHERE));
        let eval_env = EvalEnv { sources: &sources, ..EvalEnv::of(&known, &kinds) };
        let after = rules.mutate(&Event::created(trigger("")), &eval_env).object;
        assert_eq!(after.str_at(["metadata", "labels", "safe"]), Some("yes"), "{policy}");
        let silent = Silent(Objects(objects(EVERYWHERE)));
        let eval_env = EvalEnv { sources: &sources, ..EvalEnv::of(&silent, &kinds) };
        let mutated = rules.mutate(&Event::created(trigger("")), &eval_env);
        let failed = mutated.outcomes.iter().any(|outcome| !outcome.failures.is_empty());
        assert!(failed, "{policy}: {:?}", mutated.outcomes);
    }
}
