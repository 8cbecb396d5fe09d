//! `kiln plan --kustomize` against what really happens: random overlays under random policies are planned, then stored
//! in a cluster where `kiln run` has these policies, and both must come to the same objects.
//!
//! Compared is everything that a user or a rule can decide. Left out are what the server alone writes (UIDs, times,
//! versions, status, addresses of Services) and the labels and annotations by which the engine knows its own objects.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use kiln_testkit::control_plane::ControlPlane;
use kiln_value::{Value, json};

use crate::harness::{Cluster, KILN, cluster, on};

/// Chance that repeats itself: SplitMix64.
struct Chance(u64);

impl Chance {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % most
    }

    fn yes(&mut self) -> bool {
        self.below(2) == 0
    }

    fn of<'c>(&mut self, choices: &[&'c str]) -> &'c str {
        let at = self.below(choices.len() as u64);
        choices[usize::try_from(at).unwrap_or_default()]
    }
}

/// A kustomization with an overlay and a chart, and policies, all for one namespace.
struct Case {
    namespace: String,
    files: Vec<(String, String)>,
    policies: String,
}

const BASE: &str = "apiVersion: v1
kind: ConfigMap
metadata: {name: settings, labels: {tier: LABEL}}
data: {mode: MODE, size: \"3\"}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{port: PORT, name: http}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 1
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - {name: web, image: example.com/web:1, envFrom: [{configMapRef: {name: settings}}]MORE}
";

const CHART: &str = "apiVersion: v1
kind: ConfigMap
metadata: {name: {{ .Release.Name }}-chart}
data:
  theme: {{ .Values.theme | quote }}
{{- range $i, $name := .Values.names }}
  name-{{ $i }}: {{ $name }}
{{- end }}
";

/// A case as it is first, or as its files are changed later; the policies are the same.
fn case(number: u64, later: bool) -> Case {
    let mut chance = Chance(if later { number + 1_000_000 } else { number });
    let namespace = format!("case-{number}");
    let mut base = BASE.replace("LABEL", chance.of(&["front", "back"]));
    base = base.replace("MODE", chance.of(&["quiet", "loud"]));
    base = base.replace("PORT", chance.of(&["80", "8080"]));
    let more = [
        "",
        ", env: [{name: A, value: x}]",
        ", env: [{name: B, value: y}, {name: A, value: z}]",
        ", resources: {limits: {cpu: 100m}}",
    ];
    base = base.replace("MORE", chance.of(&more));
    if chance.yes() {
        base = base.replace("  replicas: 1\n", "  replicas: 1\n  strategy: {type: Recreate}\n");
    }
    let mut overlay = format!("namespace: {namespace}\nresources: [../base]\n");
    if chance.yes() {
        let _ = writeln!(overlay, "namePrefix: {}-", chance.of(&["red", "blue"]));
    }
    if chance.yes() {
        let _ = writeln!(overlay, "labels: [{{pairs: {{team: {}}}}}]", chance.of(&["a", "b"]));
    }
    if chance.yes() {
        let tag = chance.below(9);
        let _ = writeln!(overlay, "images: [{{name: example.com/web, newTag: \"{tag}\"}}]");
    }
    if chance.yes() {
        overlay.push_str("configMapGenerator: [{name: made, literals: [a=1, b=two]}]\n");
    }
    if chance.yes() {
        let replicas = 2 + chance.below(3);
        let _ = writeln!(
            overlay,
            "patches:\n- target: {{kind: Deployment}}\n  patch: |\n    - {{op: replace, path: /spec/replicas, value: {replicas}}}"
        );
    }
    if chance.yes() {
        overlay.push_str("generators: [chart.yaml]\n");
    }
    let chart = format!(
        "groupVersion: helm.kustomize.io/v1beta1\nkind: Chart\ngenerate: {{chart: chart, releaseName: r, values: {{theme: {}, names: [x, y]}}}}\n",
        chance.of(&["dark", "plain"])
    );
    let policies = policies(&namespace, &mut Chance(number));
    let file = |path: &str, text: &str| (path.to_owned(), text.to_owned());
    Case {
        files: vec![
            file("base/kustomization.yaml", "resources: [all.yaml]\n"),
            file("base/all.yaml", &base),
            file("overlay/kustomization.yaml", &overlay),
            file("overlay/chart.yaml", &chart),
            file("overlay/chart/Chart.yaml", "apiVersion: v2\nname: c\nversion: 1.0.0\n"),
            file("overlay/chart/values.yaml", "theme: none\nnames: []\n"),
            file("overlay/chart/templates/c.yaml", CHART),
            file("rules.yaml", &policies),
        ],
        namespace,
        policies,
    }
}

/// One to four policies that act in a namespace.
fn policies(namespace: &str, chance: &mut Chance) -> String {
    let rule = |name: &str, kinds: &str, body: &str| {
        format!(
            "---\napiVersion: kyverno.io/v1\nkind: ClusterPolicy\nmetadata: {{name: {name}-{namespace}}}\nspec:\n  rules:\n  \
             - name: r\n    match: {{any: [{{resources: {{kinds: [{kinds}], namespaces: [{namespace}]}}}}]}}\n{body}"
        )
    };
    let all = [
        rule(
            "label",
            "ConfigMap, Deployment",
            "    mutate: {patchStrategicMerge: {metadata: {labels: {+(team): nobody, checked: 'yes'}}}}\n",
        ),
        rule(
            "replicas",
            "Deployment",
            "    mutate: {patchesJson6902: '[{\"op\": \"add\", \"path\": \"/spec/minReadySeconds\", \"value\": 7}]'}\n",
        ),
        rule(
            "limits",
            "Deployment",
            "    mutate: {patchStrategicMerge: {spec: {template: {spec: {containers: [{(name): '*', resources: {limits: {memory: 64Mi}}}]}}}}}\n",
        ),
        rule(
            "network",
            "Service",
            "    generate:\n      apiVersion: networking.k8s.io/v1\n      kind: NetworkPolicy\n      name: 'for-{{request.object.metadata.name}}'\n      \
             namespace: '{{request.namespace}}'\n      synchronize: true\n      data: {spec: {podSelector: {}, policyTypes: [Ingress]}}\n",
        ),
        rule(
            "copy",
            "Deployment",
            "    generate:\n      apiVersion: v1\n      kind: ConfigMap\n      name: 'copy-{{request.object.metadata.name}}'\n      \
             namespace: '{{request.namespace}}'\n      synchronize: false\n      data: {data: {replicas: '{{request.object.spec.replicas}}'}}\n",
        ),
        rule(
            "quiet",
            "ConfigMap",
            "    validate: {failureAction: Enforce, message: too loud, pattern: {=(data): {=(mode): '!loud'}}}\n",
        ),
        format!(
            "---\napiVersion: api.kubemod.io/v1beta1\nkind: ModRule\nmetadata: {{name: mod, namespace: {namespace}}}\nspec:\n  type: Patch\n  \
             match: [{{select: '$.kind', matchValue: Service}}]\n  patch: [{{op: add, path: /metadata/annotations, value: '{{\"by\": \"mod\"}}'}}]\n"
        ),
    ];
    let mut chosen: Vec<&String> = all.iter().filter(|_| chance.below(3) == 0).collect();
    if chosen.is_empty() {
        chosen.push(&all[0]);
    }
    chosen.into_iter().map(String::as_str).collect()
}

/// What is compared of the objects of a namespace, by kind and name.
type Objects = BTreeMap<String, Value>;

/// An object without what only the server or the engine writes.
fn comparable(mut object: Value) -> (String, Value) {
    let named = format!(
        "{}/{}",
        object.str_at(["kind"]).unwrap_or_default(),
        object.str_at(["metadata", "name"]).unwrap_or_default()
    );
    object.remove(["status"]);
    for field in ["uid", "creationTimestamp", "resourceVersion", "generation", "managedFields"] {
        object.remove(["metadata", field]);
    }
    for field in ["clusterIP", "clusterIPs"] {
        object.remove(["spec", field]);
    }
    for field in ["labels", "annotations"] {
        let Some(metadata) = object.get_mut("metadata").and_then(Value::as_map_mut) else { break };
        let Some(pairs) = metadata.get_mut(field).and_then(Value::as_map_mut) else { continue };
        pairs.retain(|key, _| {
            let own = ["generate.kyverno.io/", "kiln.dev/", "kubectl.kubernetes.io/"];
            !own.iter().any(|prefix| key.starts_with(prefix))
                && key != "app.kubernetes.io/managed-by"
                && key != "deployment.kubernetes.io/revision"
        });
        if pairs.is_empty() {
            metadata.remove(field);
        }
    }
    (named, object)
}

/// Runs the command; its output, whatever the exit code says of differences.
fn kiln(directory: &Path, args: &[&str]) -> String {
    let output = Command::new(KILN).args(args).current_dir(directory).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(matches!(output.status.code(), Some(0 | 1)), "{args:?}: {said}");
    String::from_utf8(output.stdout).unwrap()
}

/// What the plan says would be stored beside or in the place of these objects, and how many would be denied.
fn predicted(directory: &Path, kubeconfig: &str, mut stored: Objects) -> (Objects, usize) {
    let args =
        ["plan", "-k", "overlay", "rules.yaml", "--kubeconfig", kubeconfig, "--format", "json"];
    let plan = json::parse(&kiln(directory, &args)).unwrap();
    let changes = plan.get("changes").unwrap().as_list().unwrap();
    for change in changes {
        match (change.get("before"), change.get("after")) {
            (_, Some(after)) => stored.extend([comparable(after.clone())]),
            (Some(before), None) => drop(stored.remove(&comparable(before.clone()).0)),
            (None, None) => {}
        }
    }
    let denied = plan.get("denied").unwrap().as_list().unwrap();
    (stored, denied.len())
}

const KINDS: &str = "configmaps,services,deployments,networkpolicies";

fn stored(cluster: &ControlPlane, namespace: &str) -> Objects {
    let listed = cluster.kubectl(&["get", KINDS, "-n", namespace, "-o", "json"]).unwrap();
    let listed = json::parse(&listed).unwrap();
    let items = listed.get("items").unwrap().as_list().unwrap().iter().cloned();
    let mut objects: Objects = items.map(comparable).collect();
    objects.remove("ConfigMap/kube-root-ca.crt");
    objects
}

fn write_files(case: &Case, directory: &Path) {
    for (path, text) in &case.files {
        let path = directory.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
}

/// Applies what cases build, and compares what is stored then with what was planned.
fn apply_and_compare(
    cluster: &ControlPlane,
    folder: &Path,
    cases: &[Case],
    plans: &[(Objects, usize)],
) {
    for (case, (_, denied)) in cases.iter().zip(plans) {
        let directory = folder.join(&case.namespace);
        let built = kiln(&directory, &["build", "overlay"]);
        let applied = cluster.kubectl_with_input(&["apply", "-f", "-"], &built);
        assert_eq!(applied.is_err(), *denied > 0, "{}: {applied:?}", case.namespace);
    }
    let mut differences = String::new();
    for (case, (wanted, _)) in cases.iter().zip(plans) {
        let mut found = Objects::new();
        let begin = std::time::Instant::now();
        // What rules generate and synchronize comes a little later.
        while begin.elapsed() < crate::harness::PATIENCE {
            found = stored(cluster, &case.namespace);
            if found == *wanted {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(200));
        }
        if found != *wanted {
            let shown = |objects: &Objects| -> String {
                objects.values().map(|object| format!("---\n{}", kiln_yaml::emit(object))).collect()
            };
            let difference = kiln_testkit::difference(&shown(wanted), &shown(&found));
            let _ = writeln!(
                differences,
                "{}:\n{}\n{}",
                case.namespace,
                case.policies,
                difference.unwrap_or_default()
            );
        }
    }
    assert!(differences.is_empty(), "plans and clusters differ:\n{differences}");
}

/// Plans and stores cases, and compares; then changes their files, and does the same again.
fn compare(cluster: &Cluster, cases: u64) {
    let folder = tempfile::tempdir().unwrap();
    let all: Vec<Case> = (0..cases).map(|number| case(number, false)).collect();
    let mut namespaces = String::new();
    for case in &all {
        let _ = writeln!(
            namespaces,
            "---\napiVersion: v1\nkind: Namespace\nmetadata: {{name: {}}}",
            case.namespace
        );
    }
    cluster.apply(&namespaces).unwrap();
    let kubeconfig = cluster.kubeconfig().display().to_string();
    let mut plans = Vec::new();
    for case in &all {
        let directory = folder.path().join(&case.namespace);
        write_files(case, &directory);
        plans.push(predicted(&directory, &kubeconfig, Objects::new()));
    }
    assert!(plans.iter().any(|(_, denied)| *denied > 0), "nothing is ever denied");

    let _engine = cluster.whole(&[]);
    let policies: String = all.iter().map(|case| case.policies.as_str()).collect();
    cluster.wait("the policies are accepted", || cluster.apply(&policies).is_ok());
    let names = policies.matches("kind: ClusterPolicy").count();
    cluster.wait("the policies are ready", || {
        let ready = r#"jsonpath={.items[*].status.conditions[?(@.type=="Ready")].status}"#;
        let found = cluster.kubectl(&["get", "clusterpolicies", "-o", ready]).unwrap_or_default();
        found.split_whitespace().filter(|status| *status == "True").count() >= names
    });
    // ModRules have no status; the webhook knows them when it acts.
    let with_rule = all.iter().find(|case| case.policies.contains("kind: ModRule"));
    if let Some(case) = with_rule {
        let probe =
            "apiVersion: v1\nkind: Service\nmetadata: {name: probe}\nspec: {ports: [{port: 1}]}\n";
        cluster.wait("ModRules act", || {
            let args =
                ["create", "--dry-run=server", "-n", &case.namespace, "-o", "yaml", "-f", "-"];
            cluster.kubectl_with_input(&args, probe).is_ok_and(|said| said.contains("by: mod"))
        });
    }
    apply_and_compare(cluster, folder.path(), &all, &plans);

    let all: Vec<Case> = (0..cases).map(|number| case(number, true)).collect();
    let mut plans = Vec::new();
    for case in &all {
        let directory = folder.path().join(&case.namespace);
        let before = stored(cluster, &case.namespace);
        write_files(case, &directory);
        plans.push(predicted(&directory, &kubeconfig, before));
    }
    apply_and_compare(cluster, folder.path(), &all, &plans);
}

#[test]
fn plans_of_kustomizations_come_true_in_the_sandbox() {
    let Some(sandbox) = on(|| ControlPlane::sandbox(Path::new(KILN))) else { return };
    compare(&sandbox, 50);
}

#[test]
#[ignore = "takes minutes; cargo test --test live -- --ignored plans_of_kustomizations"]
fn plans_of_kustomizations_come_true_on_a_real_control_plane() {
    let Some(cluster) = cluster() else { return };
    compare(&cluster, 200);
}
