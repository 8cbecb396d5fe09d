//! Settings, and what runs: one Deployment behind one Service, or one for each side of the work.

use kiln_value::{Value, value};

use crate::{Options, access, labels};

const HTTPS: u16 = 9443;

/// What the Deployment and the Service of those who act are called, where they have their own.
pub(crate) const CONTROLLER: &str = "kiln-controller";

/// Kinds and namespaces that no rule sees. Users edit the ConfigMap; changes are in force at once.
const RESOURCE_FILTERS: &str = "[Event,*,*] [*/*,kube-system,*] [*/*,kube-public,*] [*/*,kube-node-lease,*] \
     [Node,*,*] [Node/?*,*,*] [APIService,*,*] [APIService/?*,*,*] [TokenReview,*,*] \
     [SubjectAccessReview,*,*] [SelfSubjectAccessReview,*,*] [Binding,*,*] [Pod/binding,*,*] \
     [ReplicaSet,*,*] [ReplicaSet/?*,*,*] [EphemeralReport,*,*] [ClusterEphemeralReport,*,*]";

/// The ConfigMap that users set the engine's behaviour with.
pub(crate) fn settings(Options { namespace, exceptions, .. }: &Options) -> Value {
    let mut settings = value!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "kyverno", "namespace": namespace, "labels": labels("config")},
        "data": {
            "excludeGroups": "system:nodes",
            "generateSuccessEvents": "false",
            "resourceFilters": format!("{RESOURCE_FILTERS} [*/*,{namespace},*]"),
        },
    });
    if let Some(namespaces) = exceptions {
        let _ = settings.set(["data", "kiln.exceptionNamespaces"], namespaces.as_str());
    }
    settings
}

/// A Deployment: pods that do the whole work or a part of it.
struct Part {
    name: &'static str,
    component: &'static str,
    /// Further arguments of the engine.
    args: Vec<String>,
    replicas: u32,
}

impl Part {
    fn labels(&self) -> Value {
        value!({"app.kubernetes.io/name": "kiln", "app.kubernetes.io/component": self.component})
    }
}

/// What answers requests, and what acts if that is something else.
fn parts(options: &Options) -> (Part, Option<Part>) {
    let admission = format!("--as-admission={}", access::user(options, "admission-controller"));
    let controller = format!("--as-controller={}", access::user(options, "background-controller"));
    if !options.split {
        let args = vec![admission, controller];
        let replicas = options.replicas;
        return (Part { name: "kiln", component: "engine", args, replicas }, None);
    }
    let answers = Part {
        name: "kiln-admission",
        component: "admission",
        args: vec!["--only=admission".to_owned(), admission],
        replicas: options.replicas,
    };
    let acts = Part {
        name: CONTROLLER,
        component: "controller",
        args: vec!["--only=controller".to_owned(), controller],
        // A second one would only stand by.
        replicas: 1,
    };
    (answers, Some(acts))
}

pub(crate) fn objects(options: &Options) -> Vec<Value> {
    let namespace = &options.namespace;
    let named = |name: &str| value!({"name": name, "namespace": namespace, "labels": labels("admission-controller")});
    let (answers, acts) = parts(options);
    let mut components = vec![answers.component];
    components.extend(acts.as_ref().map(|acts| acts.component));
    let disruption = value!({
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": named("kiln"),
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": answers.labels()}},
    });
    let network = value!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": named("kiln"),
        "spec": {
            "podSelector": {
                "matchLabels": {"app.kubernetes.io/name": "kiln"},
                "matchExpressions": [
                    {"key": "app.kubernetes.io/component", "operator": "In", "values": components},
                ],
            },
            "policyTypes": ["Ingress"],
            "ingress": [{"ports": [{"protocol": "TCP", "port": HTTPS}]}],
        },
    });
    let mut objects = vec![service(&named("kyverno-svc"), &answers), deployment(options, &answers)];
    if let Some(acts) = &acts {
        // No reviews are sent there: it is for health and metrics.
        let about =
            value!({"name": CONTROLLER, "namespace": namespace, "labels": labels("controller")});
        objects.extend([service(&about, acts), deployment(options, acts)]);
    }
    objects.extend([disruption, network]);
    objects
}

fn service(metadata: &Value, part: &Part) -> Value {
    value!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata,
        "spec": {
            "selector": part.labels(),
            "ports": [{"name": "https", "port": 443, "targetPort": "https"}],
        },
    })
}

fn deployment(options: &Options, part: &Part) -> Value {
    let probe =
        |path: &str| value!({"httpGet": {"path": path, "port": "https", "scheme": "HTTPS"}});
    let mut args = vec!["run".to_owned(), format!("--namespace={}", options.namespace)];
    args.extend(part.args.iter().cloned());
    args.push(format!("--listen=0.0.0.0:{HTTPS}"));
    value!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": part.name, "namespace": options.namespace, "labels": labels(part.component)},
        "spec": {
            "replicas": part.replicas,
            "selector": {"matchLabels": part.labels()},
            // The new one answers before the old one ends.
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}},
            "template": {
                "metadata": {"labels": labels(part.component)},
                "spec": {
                    "serviceAccountName": access::POD_ACCOUNT,
                    // Longer than it lingers and lets calls come to their end.
                    "terminationGracePeriodSeconds": 60,
                    "securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}},
                    "containers": [{
                        "name": "kiln",
                        "image": options.image,
                        "args": args,
                        "ports": [{"name": "https", "containerPort": HTTPS}],
                        "livenessProbe": probe("/healthz"),
                        "readinessProbe": probe("/readyz"),
                        "resources": {
                            "requests": {"cpu": "100m", "memory": "64Mi"},
                            "limits": {"memory": "512Mi"},
                        },
                        "securityContext": {
                            "allowPrivilegeEscalation": false,
                            "capabilities": {"drop": ["ALL"]},
                            "readOnlyRootFilesystem": true,
                        },
                    }],
                },
            },
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_kind<'o>(objects: &'o [Value], kind: &str) -> Vec<&'o Value> {
        objects.iter().filter(|object| object.str_at(["kind"]) == Some(kind)).collect()
    }

    /// The Deployments whose pods have all of these labels.
    fn selected<'o>(objects: &'o [Value], selector: &Value) -> Vec<&'o str> {
        let labels = |deployment: &'o Value| {
            deployment.get_path(["spec", "template", "metadata", "labels"]).unwrap()
        };
        of_kind(objects, "Deployment")
            .into_iter()
            .filter(|deployment| {
                let mut wanted = selector.as_map().unwrap().iter();
                wanted.all(|(key, value)| labels(deployment).get(key.as_str()) == Some(value))
            })
            .filter_map(|deployment| deployment.str_at(["metadata", "name"]))
            .collect()
    }

    #[test]
    fn each_side_has_a_deployment_of_its_own_when_they_are_split() {
        let options = Options { split: true, replicas: 3, ..Options::default() };
        let objects = objects(&options);
        let deployments = of_kind(&objects, "Deployment");
        let told: Vec<_> = deployments
            .iter()
            .map(|deployment| {
                let containers = deployment.get_path(["spec", "template", "spec", "containers"]);
                let args = containers.unwrap().index(0).unwrap().get("args").unwrap();
                let args = args.as_list().unwrap().iter().filter_map(Value::as_str);
                let name = deployment.str_at(["metadata", "name"]).unwrap();
                let replicas = deployment.get_path(["spec", "replicas"]).and_then(Value::as_i64);
                (name, replicas, args.collect::<Vec<_>>().join(" "))
            })
            .collect();
        let account = "system:serviceaccount:kyverno:kyverno";
        let args = |only: &str, user: &str| {
            format!("run --namespace=kyverno --only={only} --as-{user} --listen=0.0.0.0:9443")
        };
        let admission = format!("admission={account}-admission-controller");
        let controller = format!("controller={account}-background-controller");
        assert_eq!(
            told,
            [
                ("kiln-admission", Some(3), args("admission", &admission)),
                ("kiln-controller", Some(1), args("controller", &controller)),
            ]
        );
        for deployment in deployments {
            let selector = deployment.get_path(["spec", "selector", "matchLabels"]).unwrap();
            let name = deployment.str_at(["metadata", "name"]).unwrap();
            assert_eq!(selected(&objects, selector), [name], "its own pods and no others");
        }
        let services: Vec<_> = of_kind(&objects, "Service")
            .into_iter()
            .map(|service| {
                let selector = service.get_path(["spec", "selector"]).unwrap();
                (service.str_at(["metadata", "name"]).unwrap(), selected(&objects, selector))
            })
            .collect();
        assert_eq!(
            services,
            [("kyverno-svc", vec!["kiln-admission"]), ("kiln-controller", vec!["kiln-controller"])]
        );
    }

    #[test]
    fn one_deployment_does_both_otherwise() {
        let objects = objects(&Options::default());
        let services = of_kind(&objects, "Service");
        assert_eq!(services.len(), 1);
        let selector = services[0].get_path(["spec", "selector"]).unwrap();
        assert_eq!(selected(&objects, selector), ["kiln"]);
    }
}
