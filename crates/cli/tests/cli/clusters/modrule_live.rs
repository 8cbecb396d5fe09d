//! ModRules on a real control plane, with the definitions and rights of `kiln install` and nothing else. Skipped, and
//! loudly, where there is none.

use kiln_value::{Value, json};

use crate::clusters::live::Running;

const NAMESPACES: &str = "
apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: v1
kind: Namespace
metadata: {name: other}
---
apiVersion: v1
kind: Namespace
metadata: {name: kubemod-system}
---
apiVersion: v1
kind: Namespace
metadata: {name: team-a, labels: {cost: '7'}}
---
apiVersion: v1
kind: Namespace
metadata: {name: team-ignored, labels: {admission.kubemod.io/ignore: 'true'}}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: widgets, singular: widget, kind: Widget}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
";

/// The rules of the manual, in a namespace of their own, and some for a whole cluster.
const RULES: &str = r#"
apiVersion: api.kubemod.io/v1beta1
kind: ModRule
metadata: {name: sidecar, namespace: shop}
spec:
  type: Patch
  match:
  - {select: $.kind, matchValue: Deployment}
  - {select: '$.metadata.annotations["my-inject-annotation"]', matchValue: 'true'}
  - {select: '$.spec.template.spec.containers[*].name', matchValue: jaeger-agent, negate: true}
  patch:
  - op: add
    path: /spec/template/spec/containers/-1
    value: |-
      name: jaeger-agent
      image: jaegertracing/jaeger-agent:1.18.1
      args: ['--jaeger.tags=deployment.name={{ .Target.metadata.name }},pod.namespace={{ .Namespace }}']
      ports: [{containerPort: 6832, name: jg-binary-trft, protocol: UDP}]
---
apiVersion: api.kubemod.io/v1beta1
kind: ModRule
metadata: {name: metadata, namespace: shop}
spec:
  type: Patch
  match:
  - {select: $.kind, matchValue: Deployment}
  - {select: $.metadata.labels.app, matchValue: jaeger}
  - {select: '$.metadata.annotations["sidecar.istio.io/inject"]', negate: true}
  patch:
  - {op: add, path: /metadata/annotations/sidecar.istio.io~1inject, value: '"false"'}
---
apiVersion: api.kubemod.io/v1beta1
kind: ModRule
metadata: {name: owner, namespace: shop}
spec:
  type: Patch
  matches:
  - {select: $.kind, matchValue: PersistentVolumeClaim}
  - {select: '$.metadata.labels["common.k8s.elastic.co/type"]', matchValue: elasticsearch}
  patch:
  - {op: remove, path: /metadata/ownerReferences/0}
---
apiVersion: api.kubemod.io/v1beta1
kind: ModRule
metadata: {name: reject, namespace: shop}
spec:
  type: Reject
  rejectMessage: 'set runAsNonRoot in {{ .Target.metadata.name }}'
  match:
  - {select: $.kind, matchValues: [StatefulSet, Widget]}
  - {select: $.spec.template.spec.securityContext.runAsNonRoot == true, negate: true}
---
apiVersion: api.kubemod.io/v1beta1
kind: ModRule
metadata: {name: keep, namespace: shop}
spec:
  type: Reject
  admissionOperations: [DELETE]
  match:
  - {select: $.kind, matchValue: ConfigMap}
  - {select: $.metadata.name, matchValue: ledger}
---
apiVersion: api.kubemod.io/v1beta1
kind: ModRule
metadata: {name: widgets, namespace: kubemod-system}
spec:
  type: Patch
  targetNamespaceRegex: ^(team-|other$)
  match:
  - {select: $.kind, matchValue: Widget}
  patch:
  - {op: add, path: /spec/colour, value: blue}
  - {op: add, path: /spec/cost, value: '"{{ .Target.syntheticRefs.namespace.metadata.labels.cost }}"'}
---
apiVersion: api.kubemod.io/v1beta1
kind: ModRule
metadata: {name: cluster, namespace: kubemod-system}
spec:
  type: Patch
  match:
  - {select: $.kind, matchValues: [Namespace, ConfigMap]}
  patch:
  - {op: add, path: /metadata/labels/seen, value: '"yes"'}
"#;

const DEPLOYMENT: &str = "
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
  namespace: NAMESPACE
  annotations: {my-inject-annotation: 'true'}
  labels: {app: jaeger}
spec:
  replicas: 0
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: web}]}
";

const CLAIM: &str = "
apiVersion: v1
kind: PersistentVolumeClaim
metadata:
  name: data
  namespace: shop
  labels: {common.k8s.elastic.co/type: elasticsearch}
  ownerReferences:
  - {apiVersion: v1, kind: ConfigMap, name: gone, uid: 9c0e4c2b-0000-4000-8000-000000000000}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
";

fn running() -> Option<Running> {
    let running = Running::start(&["--no-workload"], &["--only=admission"])?;
    running.cluster.apply(NAMESPACES).unwrap();
    let wait = ["wait", "--for=condition=Established", "crd/widgets.example.com", "--timeout=60s"];
    running.cluster.kubectl(&wait).unwrap();
    Some(running)
}

/// The webhook of ModRules, if there is one.
fn dragnet(running: &Running) -> Option<Value> {
    let name = ["mutatingwebhookconfiguration", "kyverno-resource-mutating-webhook-cfg"];
    let configuration = running.get(&name);
    let hooks = configuration.get("webhooks").and_then(Value::as_list)?;
    hooks.iter().find(|hook| hook.str_at(["name"]) == Some("dragnet.kubemod.io")).cloned()
}

fn containers(deployment: &Value) -> Vec<&str> {
    let list = deployment.get_path(["spec", "template", "spec", "containers"]);
    let list = list.and_then(Value::as_list).unwrap();
    list.iter().map(|container| container.str_at(["name"]).unwrap()).collect()
}

/// Starting a control plane takes longer than all of this together.
#[test]
fn modrules_act_on_a_real_control_plane() {
    let Some(running) = running() else { return };
    running.rules(RULES);

    // A sidecar and an annotation, in the namespace of the rules and nowhere else.
    let web = running.create(&DEPLOYMENT.replace("NAMESPACE", "shop")).unwrap();
    assert_eq!(containers(&web), ["web", "jaeger-agent"]);
    let sidecar = web.get_path(["spec", "template", "spec", "containers"]).unwrap().index(1);
    let argument = sidecar.and_then(|sidecar| sidecar.get("args")?.index(0)).unwrap();
    let tags = "--jaeger.tags=deployment.name=web,pod.namespace=shop";
    assert_eq!(argument.as_str(), Some(tags));
    let inject = ["metadata", "annotations", "sidecar.istio.io/inject"];
    assert_eq!(web.str_at(inject), Some("false"));
    let elsewhere = running.create(&DEPLOYMENT.replace("NAMESPACE", "other")).unwrap();
    assert_eq!((containers(&elsewhere).len(), elsewhere.str_at(inject)), (1, None));
    // What is patched once is not patched again.
    running.cluster.kubectl(&["label", "deployment/web", "-n", "shop", "a=b"]).unwrap();
    let web = running.get(&["deployment/web", "-n", "shop"]);
    assert_eq!(containers(&web), ["web", "jaeger-agent"]);

    // An owner is taken away, so that the claim is not garbage collected.
    let claim = running.create(CLAIM).unwrap();
    let owners = claim.get_path(["metadata", "ownerReferences"]).and_then(Value::as_list);
    assert!(owners.is_none_or(|owners| owners.is_empty()), "{claim:?}");

    // A refusal names the rule and says why, for a custom resource like for others.
    let widget = "{apiVersion: example.com/v1, kind: Widget, metadata: {name: w, namespace: NS}}";
    let refusal = running.create(&widget.replace("NS", "shop")).unwrap_err();
    let said =
        "operation rejected by the following ModRule(s): shop/reject: \"set runAsNonRoot in w\"";
    assert!(refusal.contains(said), "{refusal}");
    running.cluster.kubectl(&["create", "configmap", "ledger", "-n", "shop"]).unwrap();
    let kept = running.cluster.kubectl(&["delete", "configmap", "ledger", "-n", "shop"]);
    let kept = kept.unwrap_err().to_string();
    assert!(kept.contains("operation rejected by the following ModRule(s): shop/keep"), "{kept}");

    // Rules for the whole cluster: namespaces by name, cluster-scoped objects, nothing else, and nothing in
    // namespaces that are labelled.
    let made = running.create(&widget.replace("NS", "team-a")).unwrap();
    assert_eq!(made.str_at(["spec", "colour"]), Some("blue"));
    assert_eq!(made.str_at(["spec", "cost"]), Some("7"), "the namespace is a synthetic reference");
    let ignored = running.create(&widget.replace("NS", "team-ignored")).unwrap();
    assert_eq!(ignored.str_at(["spec", "colour"]), None);
    let seen = ["metadata", "labels", "seen"];
    let fresh = running.create("{apiVersion: v1, kind: Namespace, metadata: {name: fresh}}");
    assert_eq!(fresh.unwrap().str_at(seen), Some("yes"));
    let ledger = running.get(&["configmap/ledger", "-n", "shop"]);
    assert_eq!(ledger.str_at(seen), None, "only cluster-scoped objects are meant");

    webhooks_follow_the_rules(&running);
    reinvocation_doubles_nothing(&running);
    invalid_rules_are_refused_with_their_place(&running);
    rules_are_explained(&running);
}

/// The kinds and operations that the webhook asks for, as `group/resource operations`.
fn asked(hook: &Value) -> Vec<String> {
    let texts = |rule: &Value, key: &str| -> Vec<String> {
        let list = rule.get(key).and_then(Value::as_list).unwrap();
        list.iter().map(|text| text.as_str().unwrap().to_owned()).collect()
    };
    let mut asked = Vec::new();
    for rule in hook.get("rules").and_then(Value::as_list).unwrap() {
        assert_eq!(texts(rule, "apiVersions"), ["*"]);
        let operations = texts(rule, "operations").join(",");
        for resource in texts(rule, "resources") {
            let group = texts(rule, "apiGroups").join(",");
            let scope = rule.str_at(["scope"]).unwrap();
            asked.push(format!("{group}/{resource} {operations} {scope}"));
        }
    }
    asked.sort();
    asked
}

fn webhooks_follow_the_rules(running: &Running) {
    let hook = dragnet(running).unwrap();
    assert_eq!(hook.str_at(["failurePolicy"]), Some("Ignore"));
    assert_eq!(hook.str_at(["reinvocationPolicy"]), Some("IfNeeded"));
    assert_eq!(hook.str_at(["matchPolicy"]), Some("Equivalent"));
    let selector = hook.get("namespaceSelector").map(json::to_string).unwrap();
    assert!(selector.contains("admission.kubemod.io/ignore"), "{selector}");
    assert_eq!(
        asked(&hook),
        [
            "/configmaps CREATE,UPDATE *",
            "/configmaps DELETE Namespaced",
            "/namespaces CREATE,UPDATE *",
            "/persistentvolumeclaims CREATE,UPDATE Namespaced",
            "apps/deployments CREATE,UPDATE Namespaced",
            "apps/statefulsets CREATE,UPDATE Namespaced",
            // That of the rule for namespaces is among it.
            "example.com/widgets CREATE,UPDATE *",
        ]
    );
    // Rules that name no kind are asked about all but what clusters and engines write all the time.
    let any = "
apiVersion: api.kubemod.io/v1beta1
kind: ModRule
metadata: {name: any, namespace: kubemod-system}
spec:
  type: Reject
  targetNamespaceRegex: .*
  match:
  - {select: $.kind, ITEM}
  - {select: '$.metadata.labels.never == \"x\"'}
";
    let kinds = |item: &str| {
        running.rules(&any.replace("ITEM", item));
        asked(&dragnet(running).unwrap())
    };
    let has = |kinds: &[String], resource: &str| {
        kinds.iter().any(|kind| kind.starts_with(&format!("{resource} ")))
    };
    let regex = kinds("matchRegex: ^Serv");
    assert!(has(&regex, "/services") && has(&regex, "/serviceaccounts"), "{regex:?}");
    assert!(!has(&regex, "/secrets"), "{regex:?}");
    let negated = kinds("matchValue: Secret, negate: true");
    for there in
        ["/pods", "/nodes", "apps/replicasets", "apiextensions.k8s.io/customresourcedefinitions"]
    {
        assert!(has(&negated, there), "{there}: {negated:?}");
    }
    for absent in [
        "/secrets",
        "/events",
        "events.k8s.io/events",
        "coordination.k8s.io/leases",
        "kyverno.io/clusterpolicies",
        "policies.kyverno.io/generatingpolicies",
        "api.kubemod.io/modrules",
        "authorization.k8s.io/subjectaccessreviews",
    ] {
        assert!(!has(&negated, absent), "{absent}: {negated:?}");
    }
    running.cluster.kubectl(&["delete", "modrule/any", "-n", "kubemod-system"]).unwrap();
    running.wait("the webhook without the rule", || asked(&dragnet(running).unwrap()).len() == 7);
}

/// A rule that adds its sidecar whatever is there, and a policy whose own webhook changes what it left, so that the
/// API server asks again.
fn reinvocation_doubles_nothing(running: &Running) {
    let policy = "
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: later}
spec:
  rules:
  - name: label
    match: {any: [{resources: {kinds: [Deployment], namespaces: [again]}}]}
    mutate: {patchStrategicMerge: {metadata: {labels: {later: 'yes'}}}}
";
    let rule = "
apiVersion: api.kubemod.io/v1beta1
kind: ModRule
metadata: {name: unguarded, namespace: again}
spec:
  type: Patch
  match: [{select: $.kind, matchValue: Deployment}]
  patch:
  - {op: add, path: /spec/template/spec/containers/-1, value: '{name: agent, image: agent}'}
---
apiVersion: api.kubemod.io/v1beta1
kind: ModRule
metadata: {name: what-is-later, namespace: again}
spec:
  type: Patch
  match:
  - {select: $.kind, matchValue: Deployment}
  - {select: $.metadata.labels.later}
  patch:
  - {op: add, path: /metadata/labels/asked-again, value: '\"yes\"'}
";
    running.cluster.kubectl(&["create", "namespace", "again"]).unwrap();
    running.cluster.apply(policy).unwrap();
    let ready = ["wait", "--for=condition=Ready", "clusterpolicy/later", "--timeout=60s"];
    running.cluster.kubectl(&ready).unwrap();
    running.rules(rule);
    let web = running.create(&DEPLOYMENT.replace("NAMESPACE", "again")).unwrap();
    assert_eq!(containers(&web), ["web", "agent"]);
    let label = |name: &str| web.str_at(["metadata", "labels", name]);
    assert_eq!((label("later"), label("asked-again")), (Some("yes"), Some("yes")));
}

fn invalid_rules_are_refused_with_their_place(running: &Running) {
    let rule = "
apiVersion: api.kubemod.io/v1beta1
kind: ModRule
metadata: {name: wrong, namespace: shop}
spec:
  type: Patch
  match:
  - {select: $.kind, matchValue: Pod}
  - {select: $.metadata.name}
  patch:
  - {op: add, path: /metadata/labels/a, value: '{{ .Target.kind }}'}
";
    for (from, to, said) in [
        ("$.metadata.name", "'$.metadata['", "spec.match[1].select: "),
        ("matchValue: Pod", "matchRegex: '('", "spec.match[0].matchRegex: "),
        (".Target.kind }}", ".Target.kind | shout }}", "spec.patch[0].value: "),
        ("path: /metadata", "select: length($.x), path: /metadata", "spec.patch[0].select: "),
        ("  patch:", "  patches:", "spec.patches: "),
        (
            "type: Patch",
            "type: Patch\n  admissionOperations: [DELETE]",
            "spec.admissionOperations: ",
        ),
    ] {
        let refusal = running.cluster.apply(&rule.replacen(from, to, 1));
        let refusal = refusal.expect_err(to).to_string();
        assert!(refusal.contains("validate-policy.kyverno.svc"), "{to}: {refusal}");
        assert!(refusal.contains(said), "{to}: {refusal}");
    }
    running.rules(rule);
}

fn rules_are_explained(running: &Running) {
    let kubeconfig = running.cluster.kubeconfig().display().to_string();
    let explain = |object: &str, namespace: &str| {
        let args =
            ["explain", "--all", "--kubeconfig", &kubeconfig, object, "--namespace", namespace];
        let run = running.folder.kiln(&args);
        assert_eq!(run.code, 0, "{}", run.stderr);
        run.stdout
    };
    let said = explain("deployment/web", "shop");
    for line in [
        "policy shop/sidecar, rule sidecar\n  no match: $.spec.template.spec.containers[*].name is \
         \"jaeger-agent\": it is [web jaeger-agent]; negated\n",
        "policy shop/owner, rule owner\n  no match: it does not match kind apps/v1/Deployment\n",
    ] {
        assert!(said.contains(line), "{line}\nin\n{said}");
    }
    let said = explain("deployment/web", "other");
    assert!(!said.contains("policy shop/sidecar, rule sidecar\n  pass"), "{said}");
    let said = explain("configmap/ledger", "shop");
    let reach = "policy kubemod-system/cluster, rule cluster\n  no match: namespace: the object is in \"shop\"\n";
    assert!(said.contains(reach), "{said}");
    let said = explain("widget/w", "team-a");
    assert!(said.contains("policy kubemod-system/widgets, rule widgets\n"), "{said}");
}
