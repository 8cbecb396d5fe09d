//! Claims that are forged, on a real control plane: what an attacker with a namespace of their own tries. Skipped,
//! and loudly, where there is none.

use crate::clusters::live::Running;

const RULES: &str = "
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: platform-secret}
spec:
  background: false
  rules:
  - name: copy
    match: {any: [{resources: {kinds: [Namespace]}, subjects: [{kind: Group, name: platform-team}]}]}
    generate:
      apiVersion: v1
      kind: Secret
      name: database
      namespace: '{{request.object.metadata.name}}'
      synchronize: true
      clone: {namespace: platform, name: database}
---
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: made-by}
spec:
  background: false
  rules:
  - name: by
    match: {any: [{resources: {kinds: [Namespace]}}]}
    generate:
      apiVersion: v1
      kind: ConfigMap
      name: made-by
      namespace: '{{request.object.metadata.name}}'
      synchronize: true
      data: {data: {by: '{{request.userInfo.username}}'}}
";

const PLATFORM: &str = "
apiVersion: v1
kind: Namespace
metadata: {name: platform}
---
apiVersion: v1
kind: Secret
metadata: {name: database, namespace: platform}
stringData: {password: hunter2}
---
apiVersion: v1
kind: Namespace
metadata: {name: evil}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: eve, namespace: evil}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: edit}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: eve}]
";

/// An object that says that a rule made it of a namespace, for the platform team.
fn forged(kind: &str, name: &str, policy: &str, rule: &str, uid: &str) -> String {
    format!(
        "apiVersion: v1
kind: {kind}
metadata:
  name: {name}
  namespace: evil
  labels:
    app.kubernetes.io/managed-by: kyverno
    generate.kyverno.io/policy-name: {policy}
    generate.kyverno.io/policy-namespace: ''
    generate.kyverno.io/rule-name: {rule}
    generate.kyverno.io/trigger-group: ''
    generate.kyverno.io/trigger-version: v1
    generate.kyverno.io/trigger-kind: Namespace
    generate.kyverno.io/trigger-namespace: ''
    generate.kyverno.io/trigger-uid: {uid}
  annotations:
    kiln.dev/rule: kyverno:{policy}/{rule}
    kiln.dev/operation: CREATE
    kiln.dev/content: '0'
    kiln.dev/user: '{{\"username\":\"platform-admin\",\"groups\":[\"platform-team\"]}}'
"
    )
}

#[test]
fn forged_claims_gain_nothing() {
    let Some(running) = Running::start(&["--no-workload", "--grant=standard"], &[]) else { return };
    let cluster = &running.cluster;
    cluster.apply(PLATFORM).unwrap();
    cluster.apply(RULES).unwrap();
    let ready = ["wait", "--for=condition=Ready", "clusterpolicies", "--all", "--timeout=90s"];
    cluster.kubectl(&ready).unwrap();
    let has = |what: &[&str]| cluster.kubectl(&[&["get"], what].concat()).is_ok();
    let platform = ["--as=platform-admin", "--as-group=platform-team", "--as-group=system:masters"];
    cluster.kubectl(&[&["create", "namespace", "good"], &platform[..]].concat()).unwrap();
    running.wait("the honest copy", || has(&["secret", "database", "-n", "good"]));
    running.wait("the honest note", || has(&["configmap", "made-by", "-n", "good"]));

    // In the name of the platform team, and for namespaces without permissions for Eve.
    let uid = |name: &str| {
        let namespace = running.get(&["namespace", name]);
        namespace.str_at(["metadata", "uid"]).unwrap().to_owned()
    };
    let as_eve = |document: &str| {
        cluster.kubectl_with_input(&["create", "--as=eve", "-f", "-"], document).unwrap();
    };
    for (number, namespace) in ["evil", "platform", "good"].into_iter().enumerate() {
        let uid = uid(namespace);
        let name = |what: &str| format!("{what}-{number}");
        as_eve(&forged("Secret", &name("any"), "platform-secret", "copy", &uid));
        as_eve(&forged("ConfigMap", &name("any"), "made-by", "by", &uid));
    }
    as_eve(&forged("Secret", "database", "platform-secret", "copy", &uid("evil")));
    // Whatever else is created is looked at afterwards.
    let shy = forged("Namespace", "shy", "made-by", "by", &uid("good"))
        .replace("  namespace: evil\n", "");
    cluster
        .kubectl_with_input(
            &["create", "--as=mallory", "--as-group=system:masters", "-f", "-"],
            &shy,
        )
        .unwrap();
    running.wait("the note on a namespace that looks made", || {
        has(&["configmap", "made-by", "-n", "shy"])
    });

    let note = running.get(&["configmap", "made-by", "-n", "shy"]);
    assert_eq!(
        note.str_at(["data", "by"]),
        Some("mallory"),
        "{}",
        running.folder.read("engine.log")
    );
    let stolen = running.get(&["secrets", "-n", "evil"]);
    let stolen = kiln_value::json::to_string(&stolen);
    assert!(!stolen.contains("aHVudGVyMg=="), "{stolen}");
    assert!(
        !has(&["configmap", "made-by", "-n", "platform"]),
        "{}",
        running.folder.read("engine.log")
    );
    assert!(!has(&["configmap", "made-by", "-n", "evil"]));
    let honest = running.get(&["configmap", "made-by", "-n", "good"]);
    assert_eq!(honest.str_at(["data", "by"]), Some("platform-admin"));

    // Edits of ownership metadata are reverted.
    let user = r#"{"metadata":{"annotations":{"kiln.dev/user":"{\"username\":\"eve\"}"}}}"#;
    let patch = ["patch", "configmap", "made-by", "-n", "good", "--type=merge", "-p", user];
    cluster.kubectl(&patch).unwrap();
    running.wait("the true user", || {
        let annotations = ["metadata", "annotations", "kiln.dev/user"];
        let note = running.get(&["configmap", "made-by", "-n", "good"]);
        note.str_at(annotations).is_some_and(|user| user.contains("platform-admin"))
    });
}

const GRANT: &str = "
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: grant}
spec:
  background: false
  rules:
  - name: copy
    match:
      any:
      - resources: {kinds: [ConfigMap], names: ['request-*'], selector: {matchLabels: {db: 'yes'}}}
        subjects: [{kind: Group, name: platform-team}]
    generate:
      apiVersion: v1
      kind: Secret
      name: 'copy-{{request.object.data.secret}}'
      namespace: '{{request.object.metadata.namespace}}'
      synchronize: true
      clone: {namespace: platform, name: '{{request.object.data.secret}}'}
---
apiVersion: v1
kind: Secret
metadata: {name: harmless, namespace: platform}
stringData: {text: hello}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: requests}
rules: [{apiGroups: [kyverno.io], resources: [updaterequests], verbs: [create]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: eve-requests, namespace: evil}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: requests}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: eve}]
";

/// A request for a copy of a Secret.
fn request(name: &str, secret: &str) -> String {
    format!(
        "apiVersion: v1
kind: ConfigMap
metadata: {{name: {name}, namespace: evil, labels: {{db: 'yes'}}}}
data: {{secret: {secret}}}
"
    )
}

#[test]
fn nobody_speaks_for_somebody_else() {
    let Some(running) = Running::start(&["--no-workload", "--grant=standard"], &[]) else { return };
    let cluster = &running.cluster;
    cluster.apply(PLATFORM).unwrap();
    cluster.apply(GRANT).unwrap();
    let ready = ["wait", "--for=condition=Ready", "clusterpolicies", "--all", "--timeout=90s"];
    cluster.kubectl(&ready).unwrap();
    let has = |what: &[&str]| cluster.kubectl(&[&["get"], what].concat()).is_ok();
    let platform = ["--as=platform-admin", "--as-group=platform-team", "--as-group=system:masters"];
    let as_platform = |arguments: &[&str], document: &str| {
        cluster.kubectl_with_input(&[arguments, &platform[..]].concat(), document).unwrap();
    };
    let as_eve = |arguments: &[&str], document: &str| {
        cluster.kubectl_with_input(&[arguments, &["--as=eve"]].concat(), document).unwrap();
    };
    let create = ["create", "-f", "-"];
    let replace = ["replace", "-f", "-"];

    // What was signed once is saved, and then taken back.
    as_platform(&create, &request("request-1", "database"));
    running.wait("a copy", || has(&["secret", "copy-database", "-n", "evil"]));
    let mut saved = running.get(&["secret", "copy-database", "-n", "evil"]);
    for field in ["uid", "resourceVersion", "creationTimestamp", "managedFields"] {
        saved.remove(["metadata", field]);
    }
    saved.set(["data"], kiln_value::value!({})).unwrap();
    as_platform(&replace, &request("request-1", "harmless"));
    running.wait("the other copy", || has(&["secret", "copy-harmless", "-n", "evil"]));
    running.wait("the first copy to go", || !has(&["secret", "copy-database", "-n", "evil"]));

    // The trigger is changed after the platform, and restored; the downstream is touched; the claim is replayed.
    as_eve(&replace, &request("request-1", "database"));
    as_eve(&["label", "secret", "copy-harmless", "-n", "evil", "x=y"], "");
    as_eve(&create, &kiln_value::json::to_string(&saved));

    // Requests that are forged.
    as_eve(&create, &request("request-2", "database"));
    let uid = running.get(&["configmap", "request-2", "-n", "evil"]);
    let uid = uid.str_at(["metadata", "uid"]).unwrap().to_owned();
    for (name, label) in [("ur-x", ""), ("ur-y", "labels: {kiln.dev/carries: 'true'},")] {
        let trigger = format!(
            "{{apiVersion: v1, kind: ConfigMap, namespace: evil, name: request-2, uid: {uid}}}"
        );
        let sent = format!(
            "{{operation: CREATE, kind: {{group: '', version: v1, kind: ConfigMap}}, namespace: evil, name: request-2, object: {{metadata: {{uid: {uid}}}}}}}"
        );
        let document = format!(
            "apiVersion: kyverno.io/v2
kind: UpdateRequest
metadata: {{{label} name: {name}, namespace: evil}}
spec:
  requestType: generate
  policy: grant
  rule: copy
  resource: {trigger}
  deleteDownstream: false
  synchronize: true
  ruleContext: [{{rule: copy, trigger: {trigger}}}]
  context:
    userInfo: {{userInfo: {{username: platform-admin, groups: [platform-team]}}}}
    admissionRequestInfo: {{operation: CREATE, admissionRequest: {sent}}}
"
        );
        as_eve(&create, &document);
    }
    // The platform gets the message that the name is taken.
    as_eve(&create, &request("request-3", "database"));
    let taken =
        cluster.kubectl_with_input(&[&create, &platform[..]].concat(), &request("request-3", "x"));
    assert!(taken.is_err());

    // Whatever comes later is looked at afterwards.
    as_platform(&create, &request("request-4", "harmless"));
    std::thread::sleep(std::time::Duration::from_secs(8));
    let stolen = kiln_value::json::to_string(&running.get(&["secrets", "-n", "evil"]));
    assert!(!stolen.contains("aHVudGVyMg=="), "{stolen}\n{}", running.folder.read("engine.log"));
    // Permitted requests go on.
    as_platform(&["label", "configmap", "request-1", "-n", "evil", "again=yes"], "");
    running.wait("the copy that the platform asks for", || {
        let secrets = kiln_value::json::to_string(&running.get(&["secrets", "-n", "evil"]));
        secrets.contains("aHVudGVyMg==")
    });
}
