//! `kiln adopt --plan`, on a cluster state as Kyverno leaves it.

use kiln_testkit::control_plane::ControlPlane;
use kiln_testkit::{MadeBy, made_by_kyverno};
use kiln_value::{json, value};

use crate::harness::{Folder, Run, SETTINGS_POLICY, install, kiln};

const CHECKS: &str = "
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: checks}
spec:
  rules:
  - name: signed
    match: {any: [{resources: {kinds: [Pod]}}]}
    verifyImages: [{imageReferences: ['*']}]
";

/// What Kyverno makes of a Namespace.
pub(crate) fn made(cluster: &ControlPlane, namespace: &str, mode: &str) -> String {
    let trigger = cluster.kubectl(&["get", "namespace", namespace, "-o", "json"]).unwrap();
    let trigger = json::parse(&trigger).unwrap();
    let object = value!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "settings", "namespace": namespace}, "data": {"mode": mode},
    });
    let by = MadeBy::Rule { policy: "settings", namespace: "", rule: "make" };
    json::to_string(&made_by_kyverno(object, by, &trigger, None))
}

const SETTINGS_OF_A_NAMESPACE: &str = "
apiVersion: kyverno.io/v1
kind: Policy
metadata: {name: NAME, namespace: default}
spec:
  rules:
  - name: make
    match: {any: [{resources: {kinds: [ConfigMap], names: [NAME]}}]}
    generate: {apiVersion: v1, kind: ConfigMap, name: made-NAME, namespace: default, data: {data: {a: b}}}
";

#[test]
fn says_what_runs_unchanged_and_what_becomes_of_what_was_made() {
    let Some(cluster) = ControlPlane::for_test() else { return };
    let folder = Folder::with(&[]);
    install(&cluster, &folder, &[]);
    let policies = format!("{SETTINGS_POLICY}---{CHECKS}");
    cluster.kubectl_with_input(&["create", "-f", "-"], &policies).unwrap();
    for name in ["team-a", "team-b"] {
        cluster.kubectl(&["create", "namespace", name]).unwrap();
    }
    for name in ["team-a", "team-b"] {
        cluster.apply(&made(&cluster, name, "quiet")).unwrap();
    }
    let kubeconfig = cluster.kubeconfig().display().to_string();
    let adopt = |args: &[&str]| -> Run {
        folder.kiln(&[&["adopt", "--plan", "--kubeconfig", &kubeconfig], args].concat())
    };
    let run = adopt(&[]);
    assert_eq!(run.code, 1, "{}", run.stderr);
    for wanted in [
        "not run   kyverno.io/v1/ClusterPolicy/checks\n",
        "unchanged kyverno.io/v1/ClusterPolicy/settings\n",
        "2 policies: 1 unchanged, 0 in part, 1 not run; 2 objects that rules made stay as they are",
    ] {
        assert!(run.stdout.contains(wanted), "{wanted:?} is missing in\n{}", run.stdout);
    }
    for unwanted in ["\nchange", "\ndelete", "\ncreate", "not done"] {
        assert!(!run.stdout.contains(unwanted), "{}", run.stdout);
    }

    cluster.apply(&made(&cluster, "team-b", "loud")).unwrap();
    let run = adopt(&[]);
    assert!(
        run.stdout.contains(
            "change    v1/ConfigMap/team-b/settings (policy settings, rule make): data.mode\n"
        ),
        "{}",
        run.stdout
    );
    let run = adopt(&["--format=json"]);
    assert!(run.stdout.contains("\"made\": 2"), "{}", run.stdout);
    assert!(run.stdout.contains("\"data.mode\""), "{}", run.stdout);
    cluster.kubectl(&["delete", "clusterpolicy", "checks"]).unwrap();
    cluster.apply(&made(&cluster, "team-b", "quiet")).unwrap();
    let run = adopt(&[]);
    assert_eq!(run.code, 0, "{}", run.stdout);

    // Older versions of Kyverno did not write down whose object it is.
    let uid = "generate.kyverno.io/trigger-uid-";
    cluster.kubectl(&["label", "configmap", "settings", "-n", "team-b", uid]).unwrap();
    let run = adopt(&[]);
    assert_eq!(run.code, 1, "{}", run.stdout);
    let wanted = "differs   1 object carries labels without the UID of a trigger";
    assert!(run.stdout.contains(wanted), "{wanted:?} is missing in\n{}", run.stdout);
}

/// What Kiln refuses or does not run, a policy of each kind; and what becomes of it.
const REFUSED: [(&str, &str); 6] = [
    (
        "
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: prices}
spec:
  rules:
  - name: ask
    match: {any: [{resources: {kinds: [Namespace], names: [shop-*]}}]}
    context: [{name: prices, apiCall: {service: {url: 'http://prices.shop.svc/all'}}}]
    generate:
      {apiVersion: v1, kind: ConfigMap, name: prices, namespace: '{{request.object.metadata.name}}', data: {data: {all: '{{prices}}'}}}
",
        "differs   kyverno.io/v1/ClusterPolicy/prices\n          the service prices.shop.svc is not called: no services are allowed \
         (list the host under kiln.services in the ConfigMap)\n",
    ),
    (
        "
apiVersion: policies.kyverno.io/v1
kind: GeneratingPolicy
metadata: {name: prices}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [''], apiVersions: [v1], operations: [CREATE], resources: [namespaces]}]
  generate:
  - expression: >-
      generator.Apply(object.metadata.name, [{'apiVersion': 'v1', 'kind': 'ConfigMap', 'metadata': {'name': 'prices'},
        'data': {'all': string(http.Get('http://prices.shop.svc/all').price)}}])
",
        "differs   policies.kyverno.io/v1/GeneratingPolicy/prices\n          the service prices.shop.svc is not called: no services are \
         allowed (list the host under kiln.services in the ConfigMap)\n",
    ),
    (
        "
apiVersion: kyverno.io/v1
kind: Policy
metadata: {name: regions, namespace: default}
spec:
  rules:
  - name: make
    match: {any: [{resources: {kinds: [ConfigMap], names: [trigger]}}]}
    context: [{name: regions, globalReference: {name: regions}}]
    generate: {apiVersion: v1, kind: ConfigMap, name: regions, namespace: default, data: {data: {all: '{{regions}}'}}}
",
        "differs   kyverno.io/v1/Policy/default/regions\n          namespaced policies cannot read the global context\n",
    ),
    (
        "
apiVersion: kyverno.io/v2
kind: ClusterCleanupPolicy
metadata: {name: sweep}
spec: {schedule: '* * * * *', match: {any: [{resources: {kinds: [Pod]}}]}}
",
        "unchanged kyverno.io/v2/ClusterCleanupPolicy/sweep\n",
    ),
    (
        "
apiVersion: policies.kyverno.io/v1
kind: DeletingPolicy
metadata: {name: sweep}
spec:
  schedule: '* * * * *'
  matchConstraints:
    resourceRules: [{apiGroups: [''], apiVersions: [v1], resources: [pods]}]
",
        "unchanged policies.kyverno.io/v1/DeletingPolicy/sweep\n",
    ),
    (
        "
apiVersion: kyverno.io/v2
kind: GlobalContextEntry
metadata: {name: rates}
spec: {apiCall: {service: {url: 'http://rates.shop.svc'}, method: GET}}
",
        "not run   kyverno.io/v2/GlobalContextEntry/rates\n          only responses of the API server are cached, so rules that \
         use it fail\n",
    ),
];

/// A rule of KubeMod, an object with its effect, and one that it acts on when it is written.
const KUBEMOD: &str = "
apiVersion: api.kubemod.io/v1beta1
kind: ModRule
metadata: {name: cost, namespace: default}
spec:
  type: Patch
  match:
  - {select: $.kind, matchValue: ConfigMap}
  - {select: $.metadata.name, matchValue: bill}
  patch:
  - {op: add, path: /data/cost, value: '\"7\"'}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: bill, namespace: default}, data: {cost: '7'}}
";

/// A Deployment of an image.
fn deployment(name: &str, image: &str) -> String {
    format!(
        "---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: {name}, namespace: default}}\nspec:\n  \
         selector: {{matchLabels: {{app: {name}}}}}\n  template:\n    metadata: {{labels: {{app: {name}}}}}\n    \
         spec: {{containers: [{{name: main, image: '{image}'}}]}}\n"
    )
}

#[test]
fn says_what_is_refused_or_not_run_and_whom_to_stop() {
    let Some(cluster) = ControlPlane::for_test() else { return };
    let folder = Folder::with(&[]);
    install(&cluster, &folder, &[]);
    let kubeconfig = cluster.kubeconfig().display().to_string();
    let adopt = || folder.kiln(&["adopt", "--plan", "--kubeconfig", &kubeconfig]);

    // What KubeMod did goes on, and the plan says to stop it by whatever name its image has.
    cluster.apply(KUBEMOD).unwrap();
    let digest = "0123456789abcdef".repeat(4);
    let images = [
        ("tagged", "kubemod/kubemod:v0.15.3".to_owned()),
        ("digest", format!("kubemod/kubemod@sha256:{digest}")),
        ("mirror", format!("registry.example:5000/mirror/kubemod:v1@sha256:{digest}")),
        ("bystander", "example/kubemod-exporter:v1".to_owned()),
    ];
    for (name, image) in &images {
        cluster.apply(&deployment(name, image)).unwrap();
    }
    let run = adopt();
    assert_eq!(run.code, 0, "{}{}", run.stdout, run.stderr);
    assert!(
        run.stdout.contains("unchanged api.kubemod.io/v1beta1/ModRule/default/cost\n"),
        "{}",
        run.stdout
    );
    for (name, _) in &images[..3] {
        let wanted =
            format!("stop      Deployment default/{name} (KubeMod), before `kiln run` starts");
        assert!(run.stdout.contains(&wanted), "{wanted:?} is missing in\n{}", run.stdout);
    }
    assert!(!run.stdout.contains("bystander"), "{}", run.stdout);

    // A policy of a namespace that was stored without a recorded author.
    cluster.apply(&SETTINGS_OF_A_NAMESPACE.replace("NAME", "unsigned")).unwrap();
    let signed = SETTINGS_OF_A_NAMESPACE.replace("NAME", "signed").replace(
        "namespace: default}\nspec",
        "namespace: default, annotations: {kiln.dev/author: '{\"username\":\"ann\",\"groups\":[]}'}}\nspec",
    );
    cluster.apply(&signed).unwrap();
    let run = adopt();
    assert_eq!(run.code, 0, "{}{}", run.stdout, run.stderr);
    let wanted =
        "unchanged kyverno.io/v1/Policy/default/unsigned\n          its author is not recorded";
    assert!(run.stdout.contains(wanted), "{}", run.stdout);
    assert_eq!(run.stdout.matches("is not recorded").count(), 1, "{}", run.stdout);
    let run = folder.kiln(&["doctor", "--kubeconfig", &kubeconfig]);
    let wanted = "the author of kyverno.io/v1/Policy/default/unsigned is not recorded";
    assert!(run.stdout.contains(wanted), "{}", run.stdout);
    assert_eq!(run.stdout.matches("is not recorded").count(), 1, "{}", run.stdout);

    // Its webhooks stay when Kyverno is stopped, and Kiln does not answer them all.
    for (name, service, path) in [
        (
            "kyverno-exception-validating-webhook-cfg",
            "namespace: kyverno, name: kyverno-svc",
            "/exceptionvalidate",
        ),
        (
            "kyverno-policy-validating-webhook-cfg",
            "namespace: kyverno, name: kyverno-svc",
            "/policyvalidate",
        ),
        (
            "kyverno-cleanup-validating-webhook-cfg",
            "namespace: kyverno, name: kyverno-cleanup-controller",
            "/validate",
        ),
        (
            "kubemod-validating-webhook-configuration",
            "namespace: kubemod-system, name: kubemod-webhook-service",
            "/validate",
        ),
    ] {
        cluster
            .apply(&format!(
                "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingWebhookConfiguration\nmetadata: {{name: {name}}}\nwebhooks:\n\
                 - name: a.example.org\n  clientConfig: {{service: {{{service}, path: {path}}}}}\n  failurePolicy: Fail\n  sideEffects: None\n  \
                 admissionReviewVersions: [v1]\n  rules: [{{apiGroups: [nowhere.example.org], apiVersions: ['*'], operations: ['*'], resources: ['*']}}]\n"
            ))
            .unwrap();
    }
    let run = adopt();
    for (name, calls) in [
        ("kyverno-exception-validating-webhook-cfg", "kyverno/kyverno-svc/exceptionvalidate"),
        ("kubemod-validating-webhook-configuration", "kubemod-system/kubemod-webhook-service"),
    ] {
        let wanted = format!(
            "remove    ValidatingWebhookConfiguration {name} (calls {calls}), which stays when its engine is stopped and then refuses \
             requests\n          kubectl delete validatingwebhookconfiguration {name}\n"
        );
        assert!(run.stdout.contains(&wanted), "{wanted:?} is missing in\n{}", run.stdout);
    }
    assert_eq!(run.stdout.matches("remove  ").count(), 2, "{}", run.stdout);
    let run = folder.kiln(&["doctor", "--kubeconfig", &kubeconfig]);
    assert_eq!(run.stdout.matches("is of an engine that is gone").count(), 2, "{}", run.stdout);

    // Permission to store exceptions in one namespace does not switch off rules for others.
    cluster
        .kubectl_with_input(
            &["create", "-f", "-"],
            "apiVersion: kyverno.io/v2\nkind: PolicyException\nmetadata: {name: all, namespace: default}\nspec:\n  \
             exceptions: [{policyName: settings, ruleNames: ['*']}]\n  match: {any: [{resources: {kinds: [Namespace]}}]}\n",
        )
        .unwrap();
    let run = adopt();
    assert_eq!(run.code, 1, "{}{}", run.stdout, run.stderr);
    let wanted = "not run   PolicyException/default/all\n          exceptions hold for all policies in kyverno alone";
    assert!(run.stdout.contains(wanted), "{}", run.stdout);
    let run = folder.kiln(&["doctor", "--kubeconfig", &kubeconfig]);
    assert!(run.stdout.contains("PolicyException default/all does not apply"), "{}", run.stdout);

    for (policy, _) in REFUSED {
        cluster.kubectl_with_input(&["create", "-f", "-"], policy).unwrap();
    }
    let run = adopt();
    assert_eq!(run.code, 1, "{}{}", run.stdout, run.stderr);
    for (_, wanted) in REFUSED {
        assert!(run.stdout.contains(wanted), "{wanted:?} is missing in\n{}", run.stdout);
    }
    // Services that are listed are asked.
    cluster
        .apply(
            "{apiVersion: v1, kind: ConfigMap, metadata: {name: kyverno, namespace: kyverno}, data: {kiln.services: prices.shop.svc}}",
        )
        .unwrap();
    let run = adopt();
    for kind in ["kyverno.io/v1/ClusterPolicy", "policies.kyverno.io/v1/GeneratingPolicy"] {
        let wanted = format!("unchanged {kind}/prices\n");
        assert!(run.stdout.contains(&wanted), "{wanted:?} is missing in\n{}", run.stdout);
    }
}

#[test]
fn it_only_says_it() {
    let run = kiln(&["adopt"]);
    assert_eq!(run.code, 2);
    assert!(run.stderr.contains("--plan"), "{}", run.stderr);
}
