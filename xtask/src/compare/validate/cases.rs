//! Policies and resources.

use kiln_value::{Map, Value, value};

use super::super::dice::Dice;
use super::super::patterns::{Anchored, pattern_of};

/// A policy, and the resources of its namespace.
#[derive(Clone)]
pub(super) struct Case {
    pub(super) number: u64,
    pub(super) policy: Value,
    pub(super) resources: Vec<Value>,
}

impl Case {
    pub(super) fn of(number: u64) -> Self {
        let mut dice = Dice::new(number);
        let namespace = namespace(number);
        let count = 2 + dice.roll(3);
        let resources: Vec<Value> =
            (0..count).map(|at| resource(&mut dice, &namespace, at)).collect();
        let policy = match dice.roll(6) {
            0 => validating_policy(&mut dice, number),
            _ => cluster_policy(&mut dice, number, &resources),
        };
        Case { number, policy, resources }
    }

    /// The name of its policy.
    pub(super) fn name(&self) -> String {
        format!("policy-{}", self.number)
    }

    /// Whether a resource, as `Kind/namespace/name`, is its own.
    pub(super) fn holds(&self, resource: &str) -> bool {
        resource.split('/').nth(1) == Some(&namespace(self.number))
    }

    /// A resource by `Kind/namespace/name`.
    pub(super) fn resource(&self, called: &str) -> Option<&Value> {
        let is_meant = |resource: &&Value| {
            let text = |key: &str| resource.str_at(["metadata", key]).unwrap_or_default();
            let kind = resource.str_at(["kind"]).unwrap_or_default();
            called == format!("{kind}/{}/{}", text("namespace"), text("name"))
        };
        self.resources.iter().find(is_meant)
    }

    /// Whether it still has what makes it a case: the policy its name and rules, the resources their namespace.
    pub(super) fn is_whole(&self) -> bool {
        let named = |object: &Value| {
            ["apiVersion", "kind"].iter().all(|key| object.get(key).is_some())
                && object.str_at(["metadata", "name"]).is_some()
        };
        named(&self.policy)
            && self.resources.iter().all(|resource| {
                named(resource) && resource.str_at(["metadata", "namespace"]).is_some()
            })
    }
}

fn namespace(number: u64) -> String {
    format!("case-{number}")
}

// Resources.

const IMAGES: [&str; 5] = [
    "nginx:1.14",
    "nginx",
    "ghcr.io/acme/app:v2",
    "busybox:latest",
    "example.com:5000/team/db:1.0",
];
const WORDS: [&str; 6] = ["red", "green", "shop", "1", "true", "a-b"];

fn resource(dice: &mut Dice, namespace: &str, at: usize) -> Value {
    let metadata = metadata(dice, &format!("r{at}"), Some(namespace));
    match dice.roll(8) {
        0 => value!({
            "apiVersion": "apps/v1", "kind": dice.one(&["Deployment", "StatefulSet", "DaemonSet"]), "metadata": metadata,
            "spec": {
                "replicas": dice.roll(4),
                "selector": {"matchLabels": {"app": "x"}},
                "template": {"metadata": self::metadata(dice, "", None), "spec": pod_spec(dice)},
            },
        }),
        1 => value!({
            "apiVersion": "batch/v1", "kind": "CronJob", "metadata": metadata,
            "spec": {
                "schedule": "0 * * * *",
                "jobTemplate": {"spec": {"template": {
                    "metadata": self::metadata(dice, "", None), "spec": pod_spec(dice),
                }}},
            },
        }),
        2 => value!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata,
            "data": {"a": dice.one(&WORDS), "b": dice.one(&WORDS)},
        }),
        3 => value!({
            "apiVersion": "v1", "kind": "Service", "metadata": metadata,
            "spec": {
                "type": dice.one(&["ClusterIP", "NodePort", "LoadBalancer"]),
                "ports": [{"port": 80, "targetPort": 8080 + dice.roll(3)}],
            },
        }),
        _ => {
            value!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod_spec(dice)})
        }
    }
}

fn metadata(dice: &mut Dice, name: &str, namespace: Option<&str>) -> Value {
    let mut fields = Map::new();
    if !name.is_empty() {
        fields.insert("name", name);
    }
    if let Some(namespace) = namespace {
        fields.insert("namespace", namespace);
    }
    for field in ["labels", "annotations"] {
        let keys: Vec<&str> =
            ["app", "team.io/owner", "tier"].into_iter().filter(|_| dice.once_in(2)).collect();
        if !keys.is_empty() {
            let pairs = keys.into_iter().map(|key| (key, dice.one(&WORDS)));
            fields.insert(field, Map::from_iter(pairs));
        }
    }
    fields.into()
}

fn pod_spec(dice: &mut Dice) -> Value {
    let mut spec = Map::new();
    let count = 1 + dice.roll(3);
    let containers: Value =
        (0..count).map(|at| container(dice, ["web", "log", "db"][at])).collect();
    spec.insert("containers", containers);
    if dice.once_in(4) {
        let init: Value = [container(dice, "init")].into_iter().collect();
        spec.insert("initContainers", init);
    }
    for field in ["hostNetwork", "hostPID", "hostIPC", "automountServiceAccountToken"] {
        if dice.once_in(5) {
            spec.insert(field, dice.once_in(2));
        }
    }
    if dice.once_in(3) {
        spec.insert("serviceAccountName", dice.one(&["default", "builder"]));
    }
    if dice.once_in(3) {
        spec.insert("securityContext", security_context(dice));
    }
    if dice.once_in(3) {
        let volume = match dice.roll(4) {
            0 => {
                value!({"name": "v", "hostPath": {"path": dice.one(&["/var/run/docker.sock", "/etc"])}})
            }
            1 => value!({"name": "v", "emptyDir": {}}),
            2 => value!({"name": "v", "secret": {"secretName": "s"}}),
            _ => value!({"name": "v", "nfs": {"server": "s", "path": "/"}}),
        };
        let volumes: Value = [volume].into_iter().collect();
        spec.insert("volumes", volumes);
    }
    spec.into()
}

fn container(dice: &mut Dice, name: &str) -> Value {
    let mut fields = Map::from_iter([("name", name), ("image", dice.one(&IMAGES))]);
    if dice.once_in(2) {
        let resources = value!({
            "limits": {"memory": dice.one(&["64Mi", "1Gi", "2048Mi"])},
            "requests": {"cpu": dice.one(&["100m", "1", "0.5"]), "memory": dice.one(&["64Mi", "1Gi"])},
        });
        fields.insert("resources", resources);
    }
    if dice.once_in(2) {
        fields.insert("securityContext", security_context(dice));
    }
    if dice.once_in(3) {
        fields.insert("imagePullPolicy", dice.one(&["Always", "IfNotPresent"]));
    }
    if dice.once_in(3) {
        let host_port = [0, 80, 8080][dice.roll(3)];
        let ports = value!([{"containerPort": 80, "hostPort": host_port}]);
        fields.insert("ports", ports);
    }
    if dice.once_in(3) {
        let env = value!([{"name": "A", "value": dice.one(&WORDS)}, {"name": "B", "value": "b"}]);
        fields.insert("env", env);
    }
    fields.into()
}

fn security_context(dice: &mut Dice) -> Value {
    let mut fields = Map::new();
    if dice.once_in(2) {
        fields.insert("runAsNonRoot", dice.once_in(2));
    }
    if dice.once_in(3) {
        fields.insert("runAsUser", [0, 1000][dice.roll(2)]);
    }
    if dice.once_in(3) {
        fields.insert(
            "seccompProfile",
            value!({"type": dice.one(&["RuntimeDefault", "Unconfined"])}),
        );
    }
    fields.into()
}

// Policies.

/// Expressions about Pods in CEL. Some have errors on some of the resources.
const EXPRESSIONS: [&str; 12] = [
    "object.spec.containers.all(c, has(c.resources))",
    "!has(object.spec.hostNetwork) || object.spec.hostNetwork == false",
    "object.spec.containers.all(c, c.image.startsWith('nginx'))",
    "object.spec.containers.exists(c, c.name == 'web')",
    "object.metadata.?labels[?'app'].orValue('') != ''",
    "size(object.spec.containers) < 3",
    "object.spec.hostPID == true",
    "has(object.spec.volumes) ? object.spec.volumes.all(v, !has(v.hostPath)) : true",
    "object.spec.containers.all(c, c.?resources.?limits.?memory.hasValue())",
    "object.spec.containers.map(c, c.image).filter(i, i.endsWith(':latest')).size() == 0",
    "quantity(object.spec.containers[0].resources.limits.memory).isLessThan(quantity('1500Mi'))",
    "object.metadata.namespace.matches('^case-[0-9]+$')",
];

fn validating_policy(dice: &mut Dice, number: u64) -> Value {
    let namespace = namespace(number);
    let validations: Value = (0..=dice.roll(2))
        .map(|_| {
            let mut one = value!({"expression": dice.one(&EXPRESSIONS)});
            // The paths are there.
            let _ = match dice.roll(3) {
                0 => one.set(["message"], "not as wanted").map(drop),
                1 => one
                    .set(["messageExpression"], "'wrong: ' + object.metadata.namespace")
                    .map(drop),
                _ => Ok(()),
            };
            one
        })
        .collect();
    let mut spec = value!({
        "validationActions": [dice.one(&["Deny", "Audit", "Warn"])],
        "matchConstraints": {"resourceRules": [{
            "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": ["pods"],
        }]},
        "matchConditions": [{"name": "own", "expression": format!("object.metadata.namespace == '{namespace}'")}],
        "validations": validations,
    });
    if dice.once_in(4) {
        let _ = spec.set(["autogen"], value!({"podControllers": {"controllers": ["deployments"]}}));
    }
    value!({
        "apiVersion": "policies.kyverno.io/v1", "kind": "ValidatingPolicy",
        "metadata": {"name": format!("policy-{number}")},
        "spec": spec,
    })
}

fn cluster_policy(dice: &mut Dice, number: u64, resources: &[Value]) -> Value {
    let rules: Value = (0..=dice.roll(2)).map(|at| rule(dice, number, at, resources)).collect();
    let mut spec = value!({
        "background": false,
        "validationFailureAction": dice.one(&["Audit", "Enforce"]),
        "rules": rules,
    });
    if dice.once_in(8) {
        let _ = spec.set(["applyRules"], "One");
    }
    value!({
        "apiVersion": "kyverno.io/v1", "kind": "ClusterPolicy",
        "metadata": {"name": format!("policy-{number}")},
        "spec": spec,
    })
}

fn rule(dice: &mut Dice, number: u64, at: usize, resources: &[Value]) -> Value {
    let example = &resources[dice.roll(resources.len())];
    let kind = example.str_at(["kind"]).unwrap_or("Pod").to_owned();
    let kinds = match dice.roll(6) {
        0..4 => value!([kind]),
        4 => value!(["Pod"]),
        _ => value!([kind, "Service"]),
    };
    let mut validate = check(dice, example, &kind);
    // The paths are there.
    let _ = match dice.roll(4) {
        0 => Ok(()),
        1 => validate
            .set(["message"], "{{ request.object.metadata.namespace }} is not as wanted")
            .map(drop),
        2 => validate.set(["message"], "it is not as wanted.").map(drop),
        _ => validate.set(["message"], "not as wanted").map(drop),
    };
    let mut rule = value!({
        "name": format!("rule-{at}"),
        "match": {"any": [{"resources": {"kinds": kinds, "namespaces": [namespace(number)]}}]},
        "validate": validate,
    });
    if dice.once_in(5) {
        let excluded =
            value!({"any": [{"resources": {"kinds": ["Pod"], "namespaces": ["other"]}}]});
        let _ = rule.set(["exclude"], excluded);
    }
    if dice.once_in(4) {
        let conditions: Value =
            (0..=dice.roll(2)).map(|_| condition(dice, "request.object")).collect();
        let _ = rule.set(["preconditions", dice.one(&["any", "all"])], conditions);
    }
    if dice.once_in(6) {
        let context = value!([{
            "name": "wanted",
            "variable": {"jmesPath": "request.object.metadata.labels.app || 'none'", "default": "none"},
        }]);
        let _ = rule.set(["context"], context);
    }
    rule
}

fn check(dice: &mut Dice, example: &Value, kind: &str) -> Value {
    let has_pods = matches!(kind, "Pod" | "Deployment" | "StatefulSet" | "DaemonSet" | "CronJob");
    match dice.roll(if has_pods { 14 } else { 9 }) {
        0..4 => value!({"pattern": pattern(dice, example)}),
        4 => {
            let patterns: Value = (0..=dice.roll(2)).map(|_| pattern(dice, example)).collect();
            value!({"anyPattern": patterns})
        }
        5..9 => {
            let conditions: Value =
                (0..=dice.roll(2)).map(|_| condition(dice, "request.object")).collect();
            let group = dice.one(&["any", "all"]);
            value!({"deny": {"conditions": Value::from(Map::from_iter([(group, conditions)]))}})
        }
        9..12 => {
            let loops: Value = (0..=dice.roll(2)).map(|_| one_loop(dice, example)).collect();
            value!({"foreach": loops})
        }
        12 if kind == "Pod" => {
            let expressions: Value = (0..=dice.roll(2))
                .map(|_| value!({"expression": dice.one(&EXPRESSIONS), "message": "not as wanted"}))
                .collect();
            value!({"cel": {"expressions": expressions}})
        }
        // What the newest checks ask for is newer than Kyverno's.
        _ => {
            value!({"podSecurity": {"level": dice.one(&["baseline", "restricted"]), "version": "v1.29"}})
        }
    }
}

/// A pattern about metadata and spec of a resource, as it may stand in a policy.
fn pattern(dice: &mut Dice, example: &Value) -> Value {
    let parts: Map = ["metadata", "spec", "data"]
        .into_iter()
        .filter_map(|key| Some((key, example.get(key)?.clone())))
        .collect();
    let mut wanted = pattern_of(dice, &parts.into(), Anchored::AsPolicies);
    if wanted.as_map().is_some_and(Map::is_empty) {
        wanted = value!({"metadata": {"name": "?*"}});
    }
    wanted
}

fn one_loop(dice: &mut Dice, example: &Value) -> Value {
    let at = ["", ".template.spec", ".jobTemplate.spec.template.spec"]
        .into_iter()
        .map(|below| format!("spec{below}"))
        .find(|path| example.get_path(path.split('.').chain(["containers"])).is_some())
        .unwrap_or_else(|| "spec".to_owned());
    let list = match dice.roll(5) {
        0 => format!("request.object.{at}.[containers, initContainers][]"),
        1 => format!("request.object.{at}.volumes"),
        2 => format!("request.object.{at}.containers[].image"),
        _ => format!("request.object.{at}.containers"),
    };
    let element = example.get_path(at.split('.').chain(["containers"]));
    let element = element.and_then(Value::as_list).and_then(|list| list.first());
    let element = element.cloned().unwrap_or_else(|| value!({"name": "x"}));
    let is_text = list.ends_with(".image");
    let mut one = match dice.roll(4) {
        0 | 1 if !is_text => {
            let wanted = pattern_of(dice, &element, Anchored::AsPolicies);
            value!({"list": list, "pattern": wanted})
        }
        2 if !is_text => {
            let wanted: Value =
                (0..2).map(|_| pattern_of(dice, &element, Anchored::AsPolicies)).collect();
            value!({"list": list, "anyPattern": wanted})
        }
        _ => {
            let key = if is_text { "{{ element }}" } else { "{{ element.image }}" };
            let condition = value!({
                "key": key, "operator": dice.one(&["Equals", "NotEquals", "AnyIn", "AllNotIn"]),
                "value": dice.one(&["nginx*", "nginx:1.14", "*:latest"]),
            });
            value!({"list": list, "deny": {"conditions": {"any": [condition]}}})
        }
    };
    if dice.once_in(4) && !is_text {
        let guard = value!({"all": [{
            "key": "{{ element.name }}", "operator": "NotEquals", "value": dice.one(&["web", "db"]),
        }]});
        // The path is there.
        let _ = one.set(["preconditions"], guard);
    }
    one
}

fn condition(dice: &mut Dice, object: &str) -> Value {
    let (key, value) = match dice.roll(7) {
        0 => (format!("{{{{ {object}.metadata.labels.app || '' }}}}"), value!(dice.one(&WORDS))),
        1 => (
            format!("{{{{ {object}.metadata.labels.app || '' }}}}"),
            value!([dice.one(&WORDS), dice.one(&WORDS)]),
        ),
        2 => (
            format!("{{{{ {object}.spec.containers[].image || `[]` }}}}"),
            value!(["nginx*", "busybox:*"]),
        ),
        3 => (format!("{{{{ length({object}.spec.containers || `[]`) }}}}"), value!(dice.roll(4))),
        4 => ("{{ request.operation }}".to_owned(), value!(["CREATE", "UPDATE"])),
        5 => (format!("{{{{ {object}.spec.hostNetwork || `false` }}}}"), value!(dice.once_in(2))),
        // Not there on many resources.
        _ => (format!("{{{{ {object}.metadata.annotations.tier }}}}"), value!(dice.one(&WORDS))),
    };
    let operator = match &value {
        Value::Number(_) => dice.one(&["Equals", "GreaterThan", "LessThanOrEquals", "NotEquals"]),
        Value::List(_) => dice.one(&["AnyIn", "AllIn", "AnyNotIn", "AllNotIn"]),
        _ => dice.one(&["Equals", "NotEquals"]),
    };
    let mut condition = value!({"key": key, "operator": operator, "value": value});
    if dice.once_in(5) {
        // The path is there.
        let _ = condition.set(["message"], "because of this");
    }
    condition
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_makes_the_same_case_again_and_cases_do_not_meet() {
        for number in 0..200 {
            let (one, other) = (Case::of(number), Case::of(number));
            assert!(one.policy == other.policy && one.resources == other.resources, "{number}");
            assert!(one.is_whole(), "{number}");
            for resource in &one.resources {
                let text = |key: &str| resource.str_at(["metadata", key]).unwrap_or_default();
                assert!(one.holds(&format!("Pod/{}/{}", text("namespace"), text("name"))));
            }
        }
        assert!(!Case::of(1).holds("Pod/case-2/r0"));
    }
}
