//! The samples of the generate documentation, run on a new Namespace, Service or Deployment.

use crate::support::{Objects, made, objects, rules, run, shown};
use kiln_engine::{Event, User};

const NAMESPACE: &str = "{apiVersion: v1, kind: Namespace, metadata: {name: dev, uid: u}}";

/// A ClusterPolicy with one rule for a kind.
fn policy(name: &str, spec: &str, kind: &str, exclude: &str, generate: &str) -> String {
    let generate = generate.trim_matches('\n').replace('\n', "\n      ");
    format!(
        "apiVersion: kyverno.io/v1\nkind: ClusterPolicy\nmetadata:\n  name: {name}\nspec:\n{spec}  rules:\n  - name: {name}\n    match:\n      any:\n      - resources:\n          kinds:\n          - {kind}\n{exclude}    generate:\n      {generate}\n"
    )
}

const EXCLUDE: &str = "    exclude:
      any:
      - resources:
          namespaces:
          - kube-system
          - default
          - kube-public
          - kyverno
";

#[test]
fn a_config_map_for_every_namespace_but_some() {
    let policy = policy(
        "zk-kafka-address",
        "",
        "Namespace",
        EXCLUDE,
        r#"
synchronize: true
apiVersion: v1
kind: ConfigMap
name: zk-kafka-address
# generate the resource in the new namespace
namespace: "{{request.object.metadata.name}}"
data:
  kind: ConfigMap
  metadata:
    labels:
      somekey: somevalue
  data:
    ZK_ADDRESS: "192.168.10.10:2181"
"#,
    );
    assert_eq!(
        made(&policy, NAMESPACE, ""),
        "# zk-kafka-address: pass\napiVersion: v1\ndata:\n  ZK_ADDRESS: 192.168.10.10:2181\nkind: ConfigMap\nmetadata:\n  \
         labels:\n    somekey: somevalue\n  name: zk-kafka-address\n  namespace: dev\n---\n"
    );
    let excluded = NAMESPACE.replace("name: dev", "name: kyverno");
    assert_eq!(made(&policy, &excluded, ""), "");
}

#[test]
fn several_kinds_are_cloned_by_label() {
    let policy = policy(
        "sync-secret-with-multi-clone",
        "",
        "Namespace",
        EXCLUDE,
        r#"
namespace: "{{request.object.metadata.name}}"
synchronize: true
cloneList:
  namespace: staging
  kinds:
    - v1/Secret
    - v1/ConfigMap
  selector:
    matchLabels:
      allowedToBeCloned: "true"
"#,
    );
    let sources = "
{apiVersion: v1, kind: Secret, metadata: {name: a, namespace: staging, labels: {allowedToBeCloned: 'true'}}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: b, namespace: staging}}
";
    assert_eq!(
        made(&policy, NAMESPACE, sources),
        "# sync-secret-with-multi-clone: pass\napiVersion: v1\nkind: Secret\nmetadata:\n  labels:\n    allowedToBeCloned: \
         \"true\"\n  name: a\n  namespace: dev\n---\n"
    );
}

#[test]
fn a_role_binding_for_every_namespace() {
    let policy = policy(
        "steven-rolebinding",
        "",
        "Namespace",
        "",
        r#"
kind: RoleBinding
apiVersion: rbac.authorization.k8s.io/v1
name: steven:rolebinding
namespace: "{{request.object.metadata.name}}"
data:
  subjects:
  - kind: User
    name: steven
    apiGroup: rbac.authorization.k8s.io
  roleRef:
    kind: ClusterRole
    name: admin
    apiGroup: rbac.authorization.k8s.io
"#,
    );
    assert_eq!(
        made(&policy, NAMESPACE, ""),
        "\
# steven-rolebinding: pass
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: steven:rolebinding
  namespace: dev
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: admin
subjects:
- apiGroup: rbac.authorization.k8s.io
  kind: User
  name: steven
---
"
    );
}

#[test]
fn an_owner_reference_links_trigger_and_downstream() {
    let policy = policy(
        "demo-ownerref",
        "  background: false\n",
        "Service",
        "",
        r#"
kind: ConfigMap
apiVersion: v1
name: "{{request.object.metadata.name}}-gen-cm"
namespace: "{{request.namespace}}"
synchronize: false
data:
  metadata:
    ownerReferences:
    - apiVersion: v1
      kind: Service
      name: "{{request.object.metadata.name}}"
      uid: "{{request.object.metadata.uid}}"
  data:
    foo: bar
"#,
    );
    let service =
        "{apiVersion: v1, kind: Service, metadata: {name: web, namespace: dev, uid: s-1}}";
    assert_eq!(
        made(&policy, service, ""),
        "\
# demo-ownerref: pass
apiVersion: v1
data:
  foo: bar
kind: ConfigMap
metadata:
  name: web-gen-cm
  namespace: dev
  ownerReferences:
  - apiVersion: v1
    kind: Service
    name: web
    uid: s-1
---
"
    );
}

#[test]
fn a_disruption_budget_for_existing_deployments() {
    let policy = policy(
        "create-default-pdb",
        "  generateExisting: true\n",
        "Deployment",
        "    exclude:\n      resources:\n        namespaces:\n        - local-path-storage\n",
        r#"
apiVersion: policy/v1
kind: PodDisruptionBudget
name: "{{request.object.metadata.name}}-default-pdb"
namespace: "{{request.object.metadata.namespace}}"
synchronize: true
data:
  spec:
    minAvailable: 1
    selector:
      matchLabels:
        "{{request.object.metadata.labels}}"
"#,
    );
    let rules = rules(&policy);
    assert!(rules.rules().all(|rule| rule.lifecycle.existing));
    let deployment = |namespace: &str| {
        objects(&format!("{{apiVersion: apps/v1, kind: Deployment, metadata: {{name: web, namespace: {namespace}, labels: {{app: web}}}}}}")).remove(0)
    };
    let outcomes = run(&rules, &Event::existing(deployment("dev")), &Objects::default());
    assert_eq!(
        shown(&outcomes, &rules),
        "\
# create-default-pdb: pass
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: web-default-pdb
  namespace: dev
spec:
  minAvailable: 1
  selector:
    matchLabels:
      app: web
---
"
    );
    let excluded = Event::existing(deployment("local-path-storage"));
    assert!(run(&rules, &excluded, &Objects::default()).is_empty());
}

#[test]
fn the_user_of_a_request_can_be_named() {
    let policy = policy(
        "owner",
        "  background: false\n",
        "Namespace",
        "    exclude: {any: [{clusterRoles: [cluster-admin]}]}\n",
        r#"
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
name: "{{ request.namespace }}-{{ request.userInfo.username }}"
data: {rules: [{apiGroups: [''], resources: [namespaces], verbs: [delete], resourceNames: ["{{ request.name }}"]}]}
"#,
    );
    let rules = rules(&policy);
    let by = |username: &str, roles: &[&str]| {
        let cluster_roles = roles.iter().copied().map(Into::into).collect();
        let user = User { username: username.into(), cluster_roles, ..User::default() };
        let event = Event { user: Some(user), ..Event::created(objects(NAMESPACE).remove(0)) };
        shown(&run(&rules, &event, &Objects::default()), &rules)
    };
    let made = by("nancy", &["view"]);
    assert!(made.contains("name: dev-nancy\n") && made.contains("  - dev\n"), "{made}");
    assert_eq!(by("root", &["cluster-admin"]), "");
}
