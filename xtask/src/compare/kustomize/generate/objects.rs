//! Objects that refer to each other.

use super::super::node::{Node, list, map, scalar};
use super::{Random, anything, fields, pairs, text};

/// What is known of an object of the tree.
#[derive(Clone, Debug)]
pub(super) struct Known {
    pub(super) api_version: &'static str,
    pub(super) kind: &'static str,
    pub(super) name: String,
    pub(super) namespace: Option<&'static str>,
}

const NAMES: [&str; 5] = ["web", "db", "cache", "front-1", "job"];
const IMAGES: [&str; 5] = [
    "nginx",
    "nginx:1.27",
    "registry.example/team/app:v1",
    "busybox@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
    "\"redis:7\"",
];
const KINDS: [(&str, &str); 16] = [
    ("apps/v1", "Deployment"),
    ("apps/v1", "Deployment"),
    ("apps/v1", "StatefulSet"),
    ("batch/v1", "CronJob"),
    ("v1", "Service"),
    ("v1", "ConfigMap"),
    ("v1", "ConfigMap"),
    ("v1", "Secret"),
    ("v1", "ServiceAccount"),
    ("networking.k8s.io/v1", "Ingress"),
    ("networking.k8s.io/v1", "NetworkPolicy"),
    ("rbac.authorization.k8s.io/v1", "RoleBinding"),
    ("rbac.authorization.k8s.io/v1", "ClusterRole"),
    ("autoscaling/v2", "HorizontalPodAutoscaler"),
    ("v1", "PersistentVolumeClaim"),
    ("x.io/v1", "Thing"),
];

/// A base: its objects, its kustomization, and what is known of them afterwards.
pub(super) fn base(
    random: &mut Random,
    number: usize,
    directory: &str,
    files: &mut Vec<(String, Vec<Node>)>,
) -> Vec<Known> {
    let mut known: Vec<Known> = Vec::new();
    let mut documents: Vec<Node> = Vec::new();
    for _ in 0..1 + random.below(4) {
        let (api_version, kind) = KINDS[random.below(KINDS.len())];
        let mut name = random.pick(&NAMES).to_owned();
        if number > 0 {
            name.push('2');
        }
        if known.iter().any(|other| other.kind == kind && other.name == name) {
            continue;
        }
        let namespace = random.once_in(6).then_some("ns1").filter(|_| kind != "ClusterRole");
        known.push(Known { api_version, kind, name, namespace });
        let this = known[known.len() - 1].clone();
        documents.push(object(random, &this, &known));
    }
    let mut kustomization = map::<String>([]);
    if random.once_in(5) && documents.len() > 1 {
        let all = Node::Map(vec![
            ("apiVersion".to_owned(), "v1".into()),
            ("kind".to_owned(), "List".into()),
            ("items".to_owned(), Node::List(std::mem::take(&mut documents))),
        ]);
        documents.push(all);
    }
    let half = documents.split_off(documents.len() / 2);
    let mut paths = vec![scalar("a.yaml")];
    if !documents.is_empty() {
        files.push((format!("{directory}/b.yaml"), documents));
        paths.push(scalar("b.yaml"));
    }
    files.push((format!("{directory}/a.yaml"), half));
    kustomization.put("resources", list(paths));
    fields::fill(random, &mut kustomization, &known, directory, files);
    known.extend(fields::generators(random, &mut kustomization, directory, files));
    files.push((format!("{directory}/kustomization.yaml"), vec![kustomization]));
    known
}

fn object(random: &mut Random, this: &Known, known: &[Known]) -> Node {
    let mut metadata = map([("name", this.name.as_str().into())]);
    if let Some(namespace) = this.namespace {
        metadata.put("namespace", namespace);
    }
    if !random.once_in(6) {
        metadata.put("labels", pairs(random, 3, text));
    }
    if random.once_in(2) {
        metadata.put("annotations", pairs(random, 3, anything));
    } else if random.once_in(6) {
        metadata.put("annotations", random.pick(&["", "{}", "null"]));
    }
    let mut object = map([
        ("apiVersion", this.api_version.into()),
        ("kind", this.kind.into()),
        ("metadata", metadata),
    ]);
    match this.kind {
        "Deployment" | "StatefulSet" => {
            let mut spec = workload(random, known);
            if random.once_in(2) {
                spec.put("replicas", random.pick(&["1", "3"]));
            }
            if this.kind == "StatefulSet" {
                spec.put("serviceName", name_of(random, known, "Service"));
                if random.once_in(2) {
                    let claim = map([("metadata", map([("name", "data".into())]))]);
                    spec.put("volumeClaimTemplates", list([claim]));
                }
            }
            object.put("spec", spec);
        }
        "CronJob" => {
            let job = map([("spec", workload(random, known))]);
            object.put("spec", map([("schedule", "\"* * * * *\"".into()), ("jobTemplate", job)]));
        }
        "Service" => {
            let mut spec = map([("ports", list([map([("port", "80".into())])]))]);
            if random.once_in(2) {
                spec.put("selector", pairs(random, 2, text));
            }
            object.put("spec", spec);
        }
        "ConfigMap" => object.put("data", data(random)),
        "Secret" => object.put("stringData", data(random)),
        "Ingress" => {
            let service = map([("name", name_of(random, known, "Service"))]);
            object.put("spec", map([("defaultBackend", map([("service", service)]))]));
        }
        "NetworkPolicy" => {
            let selector = map([("matchLabels", pairs(random, 2, text))]);
            object.put("spec", map([("podSelector", selector)]));
        }
        "RoleBinding" => {
            let subject = map([
                ("kind", "ServiceAccount".into()),
                ("name", name_of(random, known, "ServiceAccount")),
                ("namespace", random.pick(&["default", "ns1", "other"]).into()),
            ]);
            object.put("subjects", list([subject]));
            let role = map([
                ("apiGroup", "rbac.authorization.k8s.io".into()),
                ("kind", "ClusterRole".into()),
                ("name", name_of(random, known, "ClusterRole")),
            ]);
            object.put("roleRef", role);
        }
        "HorizontalPodAutoscaler" => {
            let target = map([
                ("apiVersion", "apps/v1".into()),
                ("kind", "Deployment".into()),
                ("name", name_of(random, known, "Deployment")),
            ]);
            object.put("spec", map([("scaleTargetRef", target), ("maxReplicas", "3".into())]));
        }
        "Thing" => {
            let items = list((0..random.below(3)).map(|_| pairs(random, 2, anything)));
            object.put("spec", map([("items", items), ("more", pairs(random, 3, anything))]));
        }
        _ => {}
    }
    object
}

fn data(random: &mut Random) -> Node {
    let mut data = pairs(random, 3, anything);
    if random.once_in(3) {
        let server =
            map([("port", "80 # http".into()), ("host", text(random)), ("on", "true".into())]);
        let list = list(["a".into(), map([("name", "one".into()), ("v", "1".into())])]);
        data.put("conf.yaml", Node::Block(Box::new(map([("server", server), ("l", list)]))));
    }
    if random.once_in(6) {
        data.put("conf.json", "'{\"server\": {\"port\": 80, \"host\": \"x\"}}'");
    }
    data
}

/// The name of an object of a kind, or an unused one.
fn name_of(random: &mut Random, known: &[Known], kind: &str) -> Node {
    let names: Vec<&str> =
        known.iter().filter(|k| k.kind == kind).map(|known| known.name.as_str()).collect();
    if names.is_empty() { random.pick(&NAMES).into() } else { random.pick(&names).into() }
}

fn workload(random: &mut Random, known: &[Known]) -> Node {
    let labels = pairs(random, 2, text);
    let mut metadata = map([("labels", labels.clone())]);
    if random.once_in(3) {
        metadata.put("annotations", pairs(random, 2, anything));
    }
    let mut containers = Vec::new();
    for name in &["app", "side"][..1 + random.below(2)] {
        let mut container = map([("name", (*name).into()), ("image", random.pick(&IMAGES).into())]);
        if random.once_in(2) {
            let mut env = Vec::new();
            for name in &["A", "B"][..1 + random.below(2)] {
                env.push(map([("name", (*name).into()), ("value", anything(random))]));
            }
            container.put("env", list(env));
        }
        if random.once_in(3) {
            let from =
                map([("configMapRef", map([("name", name_of(random, known, "ConfigMap"))]))]);
            container.put("envFrom", list([from]));
        }
        if random.once_in(3) {
            let ports = ["80", "443"].map(|port| map([("containerPort", port.into())]));
            container.put("ports", list(ports));
        }
        if random.once_in(6) {
            container.put("resources", random.pick(&["", "{}", "null"]));
        }
        containers.push(container);
    }
    let mut spec = map([("containers", list(containers))]);
    if random.once_in(3) {
        spec.put("serviceAccountName", name_of(random, known, "ServiceAccount"));
    }
    if random.once_in(3) {
        let secret = map([("secretName", name_of(random, known, "Secret"))]);
        let settings = map([("name", name_of(random, known, "ConfigMap"))]);
        let mut volumes = vec![
            map([("name", "s".into()), ("secret", secret)]),
            map([("name", "c".into()), ("configMap", settings)]),
        ];
        if random.once_in(3) {
            volumes.push(map([("name", "e".into()), ("emptyDir", "".into())]));
        }
        spec.put("volumes", list(volumes));
    }
    if random.once_in(6) {
        spec.put("nodeSelector", random.pick(&["", "null", "{}"]));
    }
    let mut workload = map([("template", map([("metadata", metadata), ("spec", spec)]))]);
    if random.once_in(2) {
        workload.put("selector", map([("matchLabels", labels)]));
    }
    workload
}
