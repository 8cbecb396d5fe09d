//! Objects that rules match, made from their kinds and constants, and stories about them.

use std::sync::Arc;

use kiln_object::{Gvk, Kind, Kinds};
use kiln_rules::{Emission, Emitter, Filter, Policy, Program};
use kiln_value::{Value, value};
use kiln_variables::Template;
use kiln_world::Chance;

use crate::story::{Action, Story};

/// How many objects are tried of each kind that a rule matches.
const EACH: usize = 2;
/// The namespaces that every story has.
const NAMESPACES: [&str; 2] = ["storm-a", "storm-b"];

/// Objects to play with.
#[derive(Clone, Debug, Default)]
pub(crate) struct Candidates {
    /// Objects that make rules run.
    triggers: Vec<Value>,
    /// Objects that rules copy, which are there from the start.
    sources: Vec<Value>,
    /// Labels that policies look at.
    labels: Vec<(String, String)>,
}

impl Candidates {
    pub(crate) fn of(
        policies: &[Arc<Policy>],
        documents: &[Value],
        given: Vec<Value>,
        kinds: &Kinds,
    ) -> Self {
        let mut labels = Vec::new();
        documents.iter().for_each(|document| match_labels(document, &mut labels));
        labels.sort();
        labels.dedup();
        let mut candidates = Candidates { labels, ..Candidates::default() };
        for (policy, rule) in
            policies.iter().flat_map(|policy| policy.rules.iter().map(move |rule| (policy, rule)))
        {
            let home = policy.id.namespace.as_deref().unwrap_or(NAMESPACES[0]);
            let before = candidates.triggers.len();
            for filter in rule.trigger.include.filters() {
                for kind in matched(filter, kinds) {
                    candidates.add_triggers(filter, kind, home);
                }
            }
            if candidates.triggers.len() == before && matches!(rule.program, Program::Modify(_)) {
                // ModRules ask for kinds as for any other value.
                for kind in mentioned(documents, kinds) {
                    candidates.add_triggers(&Filter::default(), kind, home);
                }
            }
            if let Program::Generate(generate) = &rule.program {
                for (_, _, emitter) in generate.emitters() {
                    candidates.sources.extend(source(emitter));
                }
            }
        }
        candidates.triggers.extend(given);
        candidates
    }

    fn add_triggers(&mut self, filter: &Filter, kind: &Kind, home: &str) {
        for number in 0..EACH {
            let Some(mut object) = skeleton(&kind.gvk()) else { return };
            let constant = |texts: &[kiln_value::Str]| {
                let text = texts.get(number % texts.len().max(1))?;
                Some(text.replace(['*', '?'], "x"))
            };
            let usual = format!("{}-{number}", kind.singular());
            let name = constant(&filter.names).unwrap_or(usual);
            let _ = object.set(["metadata", "name"], name.as_str());
            if kind.is_namespaced() {
                let namespace = constant(&filter.namespaces);
                let namespace = namespace.unwrap_or_else(|| home.to_owned());
                let _ = object.set(["metadata", "namespace"], namespace.as_str());
            }
            for (key, text) in &filter.annotations {
                let (key, text) = (key.replace('*', "x"), text.replace(['*', '?'], "x"));
                let _ = object.set(["metadata", "annotations", key.as_str()], text.as_str());
            }
            for (key, text) in &self.labels {
                let _ = object.set(["metadata", "labels", key.as_str()], text.as_str());
            }
            self.triggers.push(object);
        }
    }

    /// The namespaces, sources and one story about the triggers.
    pub(crate) fn story(&self, number: u64, chance: &mut Chance) -> Story {
        let mut actions: Vec<Action> = Vec::new();
        let mut namespaces: Vec<String> = NAMESPACES.map(str::to_owned).to_vec();
        let objects = self.sources.iter().chain(&self.triggers);
        for object in objects {
            if let Some(namespace) = object.str_at(["metadata", "namespace"])
                && !namespaces.iter().any(|known| known == namespace)
                && !matches!(namespace, "default" | "kube-system" | "kyverno")
            {
                namespaces.push(namespace.to_owned());
            }
        }
        let namespace = |name: &String| {
            Action::Apply(value!({
                "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": (name.as_str())},
            }))
        };
        actions.extend(namespaces.iter().map(namespace));
        actions.extend(self.sources.iter().cloned().map(Action::Apply));
        if self.triggers.is_empty() {
            return Story { seed: number, actions };
        }
        // The first stories are about one trigger each, from its birth to its end; later ones about anything.
        let count = u64::try_from(self.triggers.len()).unwrap_or(1);
        if number < count {
            let trigger = &self.triggers[usize::try_from(number).unwrap_or(0)];
            actions.push(Action::Apply(trigger.clone()));
            actions.push(Action::Wait(5));
            actions.push(Action::Label {
                object: trigger.clone(),
                key: "storm".to_owned(),
                value: "once".to_owned(),
            });
            actions.push(Action::Wait(5));
            return Story { seed: number, actions };
        }
        for _ in 0..4 + chance.below(8) {
            let trigger = chance.pick(&self.triggers).cloned().unwrap_or_default();
            actions.push(match chance.below(10) {
                0..5 => Action::Apply(trigger),
                5 => Action::Label {
                    object: trigger,
                    key: "storm".to_owned(),
                    value: format!("v{}", chance.below(3)),
                },
                6 => Action::Delete(trigger),
                7 => Action::DeleteMade(chance.below(4)),
                8 => Action::EditMade(chance.below(4)),
                _ if chance.one_in(3) => Action::Restart,
                _ => Action::Wait(1 + chance.below(20)),
            });
        }
        Story { seed: number, actions }
    }
}

/// The kinds that a filter matches, without subresources: those it names, or a few of those its wildcards match.
fn matched<'k>(filter: &Filter, kinds: &'k Kinds) -> Vec<&'k Kind> {
    let mut found: Vec<&Kind> = Vec::new();
    for pattern in &filter.kinds {
        let fits = kinds.iter().filter(|kind| {
            let preferred = kinds.preferred(kind.group(), kind.kind());
            preferred.is_some_and(|preferred| preferred.version() == kind.version())
                && pattern.matches(kind.group(), kind.version(), kind.kind(), "")
                && skeleton(&kind.gvk()).is_some()
        });
        found.extend(fits.take(3));
    }
    found.dedup_by_key(|kind| kind.gvk());
    found
}

/// The kinds whose names are values in policies.
fn mentioned<'k>(documents: &[Value], kinds: &'k Kinds) -> Vec<&'k Kind> {
    fn is_in(value: &Value, word: &str) -> bool {
        match value {
            Value::Map(map) => map.iter().any(|(_, field)| is_in(field, word)),
            Value::List(list) => list.iter().any(|item| is_in(item, word)),
            other => other.as_str() == Some(word),
        }
    }
    let is_preferred = |kind: &&Kind| {
        let preferred = kinds.preferred(kind.group(), kind.kind());
        preferred.is_some_and(|preferred| preferred.version() == kind.version())
    };
    let can_be_made =
        kinds.iter().filter(is_preferred).filter(|kind| skeleton(&kind.gvk()).is_some());
    // What a policy says of itself is no value.
    let specs: Vec<&Value> = documents.iter().filter_map(|document| document.get("spec")).collect();
    can_be_made.filter(|kind| specs.iter().any(|spec| is_in(spec, kind.kind()))).collect()
}

/// All labels that selectors of a policy name, with their values.
fn match_labels(value: &Value, found: &mut Vec<(String, String)>) {
    match value {
        Value::Map(map) => {
            for (key, field) in map.iter() {
                if key.as_str() == "matchLabels"
                    && let Some(labels) = field.as_map()
                {
                    for (label, wanted) in labels.iter() {
                        let wanted = wanted.as_str().unwrap_or("true");
                        let (label, wanted) = (label.replace('*', "x"), wanted.replace('*', "x"));
                        if !wanted.contains("{{") {
                            found.push((label, wanted));
                        }
                    }
                } else {
                    match_labels(field, found);
                }
            }
        }
        Value::List(list) => list.iter().for_each(|item| match_labels(item, found)),
        _ => {}
    }
}

/// The source of a clone, where the rule says what it is called.
fn source(emitter: &Emitter) -> Option<Value> {
    let Emission::Clone { source, .. } = &emitter.emission else { return None };
    let gvk = emitter.target_kinds().into_iter().next()?;
    let plain = |template: &Template| {
        template.is_plain().then(|| template.document().as_str().map(str::to_owned)).flatten()
    };
    let mut object = skeleton(&gvk)?;
    let _ = object.set(["metadata", "name"], plain(&source.name)?.as_str());
    if let Some(namespace) = source.namespace.as_ref().and_then(plain) {
        let _ = object.set(["metadata", "namespace"], namespace.as_str());
    }
    Some(object)
}

/// A small valid object of a kind; none of a kind that no user creates.
fn skeleton(gvk: &Gvk) -> Option<Value> {
    let pod = || {
        value!({"containers": [{"name": "app", "image": "registry.example/app:1.2.3",
            "env": [{"name": "STORM", "value": "yes"}],
            "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"memory": "128Mi"}}}]})
    };
    let template = || value!({"metadata": {"labels": {"app": "storm"}}, "spec": (pod())});
    let selector = || value!({"matchLabels": {"app": "storm"}});
    let rest = match (gvk.group.as_str(), gvk.kind.as_str()) {
        ("", "Namespace" | "ServiceAccount") => value!({}),
        ("", "ConfigMap") => value!({"data": {"key": "value"}}),
        ("", "Secret") => value!({"type": "Opaque", "data": {"key": "dmFsdWU="}}),
        ("", "Pod") => value!({"spec": (pod())}),
        ("", "Service") => {
            value!({"spec": {"selector": {"app": "storm"}, "ports": [{"port": 80}]}})
        }
        ("", "PersistentVolumeClaim") => value!({"spec": {
            "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
        }}),
        ("", "LimitRange") => {
            value!({"spec": {"limits": [{"type": "Container", "default": {"cpu": "1"}}]}})
        }
        ("", "ResourceQuota") => value!({"spec": {"hard": {"pods": "10"}}}),
        ("apps", "Deployment" | "ReplicaSet") => {
            value!({"spec": {"replicas": 1, "selector": (selector()), "template": (template())}})
        }
        ("apps", "StatefulSet") => value!({"spec": {
            "serviceName": "storm", "replicas": 1, "selector": (selector()), "template": (template()),
        }}),
        ("apps", "DaemonSet") => {
            value!({"spec": {"selector": (selector()), "template": (template())}})
        }
        ("batch", "Job") => {
            let mut spec = pod();
            let _ = spec.set(["restartPolicy"], "Never");
            value!({"spec": {"template": {"spec": spec}}})
        }
        ("batch", "CronJob") => {
            let mut spec = pod();
            let _ = spec.set(["restartPolicy"], "Never");
            value!({"spec": {"schedule": "0 0 1 1 *", "jobTemplate": {"spec": {"template": {"spec": spec}}}}})
        }
        ("networking.k8s.io", "Ingress") => {
            value!({"spec": {"rules": [{"host": "storm.example", "http": {
                "paths": [{"path": "/", "pathType": "Prefix", "backend": {"service": {"name": "storm", "port": {"number": 80}}}}],
            }}]}})
        }
        ("networking.k8s.io", "NetworkPolicy") => {
            value!({"spec": {"podSelector": {}, "policyTypes": ["Ingress"]}})
        }
        ("rbac.authorization.k8s.io", "Role" | "ClusterRole") => value!({"rules": []}),
        ("rbac.authorization.k8s.io", "RoleBinding" | "ClusterRoleBinding") => value!({
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
            "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "storm"}],
        }),
        ("policy", "PodDisruptionBudget") => {
            value!({"spec": {"minAvailable": 1, "selector": (selector())}})
        }
        _ => return None,
    };
    let mut object =
        value!({"apiVersion": (gvk.api_version()), "kind": (gvk.kind.as_str()), "metadata": {}});
    for (key, field) in rest.as_map().into_iter().flat_map(kiln_value::Map::iter) {
        let _ = object.set([key.as_str()], field.clone());
    }
    Some(object)
}
