//! Every key of the ConfigMap, applied while the engine runs.

use kiln_value::{Map, Value, json};

use crate::harness::{Cluster, cluster};

const POLICIES: &str = r#"
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: settings}
spec:
  rules:
  - name: label
    match: {any: [{resources: {kinds: [ConfigMap], namespaces: [shop]}}]}
    context:
    - name: words
      variable: {value: "{{ join(',', ['one', 'two', 'three', 'four', 'five', 'six', 'seven', 'eight']) }}"}
    mutate: {patchStrategicMerge: {metadata: {labels: {seen: "{{ length(words) }}"}}}}
---
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: settings-make}
spec:
  background: false
  rules:
  - name: make
    match: {any: [{resources: {kinds: [Secret], namespaces: [shop]}}]}
    generate:
      synchronize: true
      apiVersion: v1
      kind: ConfigMap
      name: "of-{{request.object.metadata.name}}"
      namespace: default
      data: {data: {a: "{{ join(',', ['one', 'two', 'three', 'four', 'five', 'six']) }}"}}
"#;

/// How people send what they send.
const ROBOT: &[&str] = &["--as=robot", "--as-group=robots", "--as-group=system:masters"];

struct Probe<'c> {
    cluster: &'c Cluster,
    number: u32,
}

impl Probe<'_> {
    fn name(&mut self) -> String {
        self.number += 1;
        format!("probe-{}", self.number)
    }

    /// Whether the mutate rule sees a new ConfigMap; none when it is refused.
    fn is_labelled(&mut self, how: &[&str]) -> Option<bool> {
        let name = self.name();
        let args = ["create", "configmap", &name, "-n", "shop", "-o", "json"];
        let made = self.cluster.kubectl(&[&args[..], how].concat()).ok()?;
        let made = json::parse(&made).unwrap();
        Some(made.str_at(["metadata", "labels", "seen"]).is_some())
    }

    /// Whether the generate rule fires on a new Secret within a moment.
    fn fires(&mut self, how: &[&str]) -> bool {
        let name = self.name();
        let args = ["create", "secret", "generic", &name, "-n", "shop"];
        self.cluster.kubectl(&[&args[..], how].concat()).unwrap();
        let made = format!("of-{name}");
        let begin = std::time::Instant::now();
        while begin.elapsed().as_secs() < 3 {
            if self.cluster.object(&["configmap", &made, "-n", "default"]).is_some() {
                return true;
            }
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
        false
    }

    fn webhook(&self, path: &[&str]) -> Option<Value> {
        let name = ["mutatingwebhookconfiguration", "kyverno-resource-mutating-webhook-cfg"];
        let found = self.cluster.object(&name)?;
        let first = found.get("webhooks").and_then(|list| list.index(0)).cloned();
        let from = if path[0] == "metadata" { Some(found) } else { first };
        from?.get_path(path.iter().copied()).cloned()
    }

    fn actions(&self) -> String {
        let path = r#"jsonpath={.items[?(@.reason=="PolicyApplied")].action}"#;
        self.cluster.kubectl(&["get", "events.events.k8s.io", "-A", "-o", path]).unwrap_or_default()
    }
}

fn configure(cluster: &Cluster, key: &str, value: &str) {
    let mut data = Map::new();
    data.insert("excludeGroups", "");
    data.insert(key, value);
    if key == "successEventActions" {
        data.insert("generateSuccessEvents", "true");
    }
    // Whatever was set before goes.
    let args = ["patch", "configmap", "kyverno", "-n", "kyverno", "--type=json", "-p"];
    let data = json::to_string(&Value::Map(data));
    let replace = format!(r#"[{{"op":"replace","path":"/data","value":{data}}}]"#);
    cluster.kubectl(&[&args[..], &[&replace]].concat()).unwrap();
}

type Holds = fn(&mut Probe<'_>) -> bool;

/// Key, value, and what holds then.
const TABLE: &[(&str, &str, Holds)] = &[
    ("resourceFilters", "[ConfigMap,shop,*]", |p| p.is_labelled(&[]) == Some(false)),
    ("resourceFilters", "[Secret,shop,*]", |p| !p.fires(&[])),
    ("resourceFilters", "", |p| p.is_labelled(&[]) == Some(true) && p.fires(&[])),
    ("excludeUsernames", "robot", |p| {
        p.is_labelled(ROBOT) == Some(false) && p.is_labelled(&[]) == Some(true)
    }),
    ("excludeUsernames", "rob*", |p| !p.fires(ROBOT) && p.fires(&[])),
    ("excludeGroups", "robots", |p| !p.fires(ROBOT) && p.fires(&[])),
    ("excludeGroups", "robots,!system:masters", |p| p.fires(ROBOT)),
    ("excludeRoles", "shop:editor", |p| !p.fires(ROBOT) && p.fires(&[])),
    ("excludeClusterRoles", "machine", |p| p.is_labelled(ROBOT) == Some(false) && !p.fires(ROBOT)),
    ("successEventActions", "Resource Mutated", |p| {
        p.is_labelled(&[]);
        p.fires(&[]);
        let actions = p.actions();
        actions.contains("Resource Mutated") && !actions.contains("Resource Generated")
    }),
    ("generateSuccessEvents", "true", |p| {
        p.fires(&[]);
        p.actions().contains("Resource Generated")
    }),
    ("webhooks", r#"{"namespaceSelector":{"matchLabels":{"watched":"yes"}}}"#, |p| {
        let path = ["namespaceSelector", "matchLabels", "watched"];
        p.webhook(&path).is_some_and(|value| value.as_str() == Some("yes"))
            && p.is_labelled(&[]) == Some(false)
    }),
    ("webhooks", r#"{"objectSelector":{"matchLabels":{"watched":"yes"}}}"#, |p| {
        p.webhook(&["objectSelector", "matchLabels", "watched"]).is_some()
    }),
    ("matchConditions", r#"[{"name":"a","expression":"request.name != 'never'"}]"#, |p| {
        p.webhook(&["matchConditions"]).is_some()
    }),
    ("webhookLabels", r#"{"team":"platform"}"#, |p| {
        p.webhook(&["metadata", "labels", "team"]).is_some()
    }),
    ("webhookAnnotations", r#"{"note":"ours"}"#, |p| {
        p.webhook(&["metadata", "annotations", "note"]).is_some()
    }),
    ("maxContextSize", "8", |p| p.is_labelled(&[]).is_none()),
    ("kiln.maxSteps", "2", |p| p.is_labelled(&[]).is_none() && !p.fires(&[])),
    ("kiln.maxReviewSize", "1Mi", |p| {
        let name = p.name();
        let big = "x".repeat(700_000);
        let text = |a: &str| {
            format!(
                "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}, namespace: shop}}\ndata: {{a: {a}, big: {big}}}\n"
            )
        };
        let created = p.cluster.kubectl_with_input(&["create", "-f", "-"], &text("a"));
        // Old and new together are too much.
        created.is_ok()
            && p.cluster.kubectl_with_input(&["replace", "-f", "-"], &text("b")).is_err()
    }),
    // And everything is as it was.
    ("excludeGroups", "system:nodes", |p| p.is_labelled(&[]) == Some(true) && p.fires(ROBOT)),
];

#[test]
fn every_key_of_the_config_map_counts_at_once() {
    let Some(cluster) = cluster() else { return };
    cluster.apply(
        "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n---\n\
         apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {name: editor, namespace: shop}\n\
         rules: [{apiGroups: [\"\"], resources: [secrets, configmaps], verbs: [\"*\"]}]\n---\n\
         apiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\nmetadata: {name: editor, namespace: shop}\n\
         subjects: [{kind: User, name: robot, apiGroup: rbac.authorization.k8s.io}]\n\
         roleRef: {kind: Role, name: editor, apiGroup: rbac.authorization.k8s.io}\n---\n\
         apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: machine}\n\
         rules: [{apiGroups: [\"\"], resources: [configmaps], verbs: [\"*\"]}]\n---\n\
         apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\nmetadata: {name: machine}\n\
         subjects: [{kind: Group, name: robots, apiGroup: rbac.authorization.k8s.io}]\n\
         roleRef: {kind: ClusterRole, name: machine, apiGroup: rbac.authorization.k8s.io}\n",
    ).unwrap();
    let mut engine = cluster.whole(&[]);
    cluster.wait("the engine is ready", || engine.get("/readyz").is_some());
    cluster.policy(POLICIES);
    cluster.wait("the second policy is ready", || cluster.ready("settings-make"));
    let mut probe = Probe { cluster: &cluster, number: 0 };
    for (key, value, holds) in TABLE {
        configure(&cluster, key, value);
        cluster.wait(&format!("{key}: {value}"), || holds(&mut probe));
    }
    cluster.kubectl(&["delete", "clusterpolicy", "settings", "settings-make"]).unwrap();
    engine.terminate();
    cluster.kubectl(&["delete", "namespace", "shop", "--wait=false"]).unwrap();
}
