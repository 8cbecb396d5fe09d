//! Settings, and what runs: one Deployment behind one Service, or one for each side of the work.

use kiln_value::{Map, Value, json, value};

use crate::{Features, InstallOptions, ReportedRules, access, labels, merged, metadata};

const HTTPS: u16 = 9443;

/// What the Deployment and the Service of the controller are called, where it has its own.
pub(crate) const CONTROLLER: &str = "kiln-controller";

/// The ConfigMap that users set the engine's behavior with.
pub(crate) fn settings(options: &InstallOptions) -> Value {
    let InstallOptions { namespace, config, .. } = options;
    let mut data = Map::new();
    let filters = config.resource_filters.iter().map(|filter| format!("{filter} "));
    let filters: String = filters.chain([format!("[*/*,{namespace},*]")]).collect();
    data.insert("resourceFilters", filters);
    data.insert("generateSuccessEvents", config.generate_success_events.to_string());
    let mut set = |key: &str, text: String| {
        if !text.is_empty() {
            data.insert(key, text);
        }
    };
    for (key, words) in [
        ("excludeGroups", &config.exclude_groups),
        ("excludeUsernames", &config.exclude_usernames),
        ("excludeRoles", &config.exclude_roles),
        ("excludeClusterRoles", &config.exclude_cluster_roles),
        ("successEventActions", &config.success_event_actions),
        ("kiln.services", &config.services),
    ] {
        set(key, words.join(","));
    }
    for (key, map) in [
        ("webhooks", &config.webhooks),
        ("webhookLabels", &config.webhook_labels),
        ("webhookAnnotations", &config.webhook_annotations),
    ] {
        if !map.is_empty() {
            set(key, json::to_string(&Value::Map(map.clone())));
        }
    }
    if !config.match_conditions.is_empty() {
        set("matchConditions", json::to_string(&Value::from(config.match_conditions.clone())));
    }
    set("maxContextSize", config.max_context_size.clone());
    set("kiln.maxReviewSize", config.max_review_size.clone());
    set("kiln.maxSteps", config.max_steps.map(|steps| steps.to_string()).unwrap_or_default());
    set("kiln.authorRights", config.author_rights.clone());
    for (key, text) in reporting(&options.features) {
        data.insert(key, text);
    }
    // An empty list is another answer than none.
    for (key, namespaces) in [
        ("kiln.exceptionNamespaces", &options.exception_namespaces),
        ("kiln.protectedNamespaces", &options.protected_namespaces),
    ] {
        if let Some(namespaces) = namespaces {
            data.insert(key, namespaces.join(","));
        }
    }
    value!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata(options, namespace, &options.names().config_map(), "config"),
        "data": data,
    })
}

/// What is said about reports and the scan, as far as it is not what counts anyway.
fn reporting(features: &Features) -> Vec<(&'static str, String)> {
    let ReportedRules { allowed_results: results, .. } = &features.reporting;
    let rules = &features.reporting;
    let listed = |all: &[(&str, bool)]| -> Option<String> {
        let words = all.iter().filter(|(_, on)| *on).map(|(word, _)| *word);
        all.iter().any(|(_, on)| !on).then(|| words.collect::<Vec<_>>().join(","))
    };
    let off = |on: bool| (!on).then(|| "false".to_owned());
    let scan = &features.background_scan;
    let interval = &scan.background_scan_interval;
    let all = [
        ("kiln.policyReports", off(features.policy_reports.enabled)),
        ("kiln.admissionReports", off(features.admission_reports.enabled)),
        (
            "kiln.enableReporting",
            listed(&[
                ("validate", rules.validate),
                ("mutate", rules.mutate),
                ("mutateExisting", rules.mutate_existing),
                ("imageVerify", rules.image_verify),
                ("generate", rules.generate),
            ]),
        ),
        (
            "kiln.allowedResults",
            listed(&[
                ("pass", results.pass),
                ("fail", results.fail),
                ("error", results.error),
                ("skip", results.skip),
                ("warn", results.warn),
            ]),
        ),
        ("kiln.backgroundScan", off(scan.enabled)),
        ("kiln.backgroundScanInterval", (interval != "1h").then(|| interval.clone())),
        ("kiln.skipResourceFilters", off(scan.skip_resource_filters)),
        ("kiln.omitEvents", {
            let reasons = features.omit_events.event_types.join(",");
            (!reasons.is_empty()).then_some(reasons)
        }),
        (
            "kiln.generateValidatingAdmissionPolicy",
            off(features.generate_validating_admission_policy.enabled),
        ),
    ];
    all.into_iter().filter_map(|(key, text)| Some((key, text?))).collect()
}

/// A Deployment: pods that do the whole work or a part of it.
struct WorkloadPart<'o> {
    name: &'static str,
    component: &'static str,
    /// Which part of the work its pods do.
    args: Vec<String>,
    replicas: u32,
    resources: &'o Map,
}

impl WorkloadPart<'_> {
    fn labels(&self) -> Value {
        value!({"app.kubernetes.io/name": "kiln", "app.kubernetes.io/component": self.component})
    }
}

/// What answers requests, and what acts if that is something else.
fn parts(options: &InstallOptions) -> (WorkloadPart<'_>, Option<WorkloadPart<'_>>) {
    let only = |side: &str| format!("--only={side}");
    let admission = format!("--as-admission={}", access::user(options, "admission-controller"));
    let controller = format!("--as-controller={}", access::user(options, "background-controller"));
    let cleanup = format!("--as-cleanup={}", access::user(options, "cleanup-controller"));
    if !options.is_split() {
        let args = match (options.features.admission, options.features.controller) {
            (true, false) => vec![only("admission"), admission],
            (false, true) => vec![only("controller"), controller, cleanup],
            _ => vec![admission, controller, cleanup],
        };
        let (replicas, resources) = (options.replicas, &options.resources);
        return (
            WorkloadPart { name: "kiln", component: "engine", args, replicas, resources },
            None,
        );
    }
    let answers = WorkloadPart {
        name: "kiln-admission",
        component: "admission",
        args: vec![only("admission"), admission],
        replicas: options.replicas,
        resources: &options.resources,
    };
    let own = &options.controller.resources;
    let acts = WorkloadPart {
        name: CONTROLLER,
        component: "controller",
        args: vec![only("controller"), controller, cleanup],
        replicas: options.controller.replicas,
        resources: if own.is_empty() { &options.resources } else { own },
    };
    (answers, Some(acts))
}

pub(crate) fn objects(options: &InstallOptions) -> Vec<Value> {
    let namespace = &options.namespace;
    let (answers, acts) = parts(options);
    let mut objects = vec![
        service(
            &metadata(options, namespace, &options.names().service(), "admission-controller"),
            &answers,
        ),
        deployment(options, &answers),
    ];
    if let Some(acts) = &acts {
        // No reviews are sent there: it is for health and metrics.
        let about = metadata(options, namespace, CONTROLLER, "controller");
        objects.extend([service(&about, acts), deployment(options, acts)]);
    }
    let budget = &options.pod_disruption_budget;
    if budget.enabled {
        let mut spec = value!({"selector": {"matchLabels": answers.labels()}});
        let (field, number) = match &budget.min_available {
            Value::Null => ("maxUnavailable", &budget.max_unavailable),
            number => ("minAvailable", number),
        };
        let _ = spec.set([field], number.clone());
        objects.push(value!({
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": metadata(options, namespace, "kiln", "admission-controller"),
            "spec": spec,
        }));
    }
    if options.network_policy.enabled {
        let mut components = vec![answers.component];
        components.extend(acts.as_ref().map(|acts| acts.component));
        objects.push(network_policy(options, &components));
    }
    objects
}

/// Lets API servers reach the pods, and whom else the user names. Until the addresses of API servers are known, any client
/// may connect: a policy that keeps them out would stop the cluster.
fn network_policy(options: &InstallOptions, components: &[&str]) -> Value {
    let policy = &options.network_policy;
    let mut ingress = value!({"ports": [{"protocol": "TCP", "port": HTTPS}]});
    if !policy.api_servers.is_empty() {
        let servers = policy.api_servers.iter();
        let servers = servers.map(|cidr| value!({"ipBlock": {"cidr": cidr.as_str()}}));
        let from: Vec<Value> = servers.chain(policy.from.iter().cloned()).collect();
        let _ = ingress.set(["from"], from);
    }
    value!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": metadata(options, &options.namespace, "kiln", "admission-controller"),
        "spec": {
            "podSelector": {
                "matchLabels": {"app.kubernetes.io/name": "kiln"},
                "matchExpressions": [
                    {"key": "app.kubernetes.io/component", "operator": "In", "values": components},
                ],
            },
            "policyTypes": ["Ingress"],
            "ingress": [ingress],
        },
    })
}

fn service(metadata: &Value, part: &WorkloadPart<'_>) -> Value {
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

fn deployment(options: &InstallOptions, part: &WorkloadPart<'_>) -> Value {
    value!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata(options, &options.namespace, part.name, part.component),
        "spec": {
            "replicas": part.replicas,
            "selector": {"matchLabels": part.labels()},
            // The new one answers before the old one ends.
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}},
            "template": {"metadata": pod_metadata(options, part), "spec": pod(options, part)},
        },
    })
}

fn pod_metadata(options: &InstallOptions, part: &WorkloadPart<'_>) -> Value {
    let labels = merged(options.pod_labels.clone(), &labels(options, part.component));
    let mut metadata = value!({"labels": labels});
    if !options.pod_annotations.is_empty() {
        let _ = metadata.set(["annotations"], options.pod_annotations.clone());
    }
    metadata
}

fn pod(options: &InstallOptions, part: &WorkloadPart<'_>) -> Value {
    let mut spec = value!({
        "serviceAccountName": options.service_account.name.as_str(),
        // Longer than it keeps serving after SIGTERM and finishes open calls.
        "terminationGracePeriodSeconds": 60,
        "securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [container(options, part)],
    });
    let spread = &options.topology_spread;
    if spread.enabled && !spread.topology_keys.is_empty() {
        let constraints = spread.topology_keys.iter().map(|key| {
            value!({
                "maxSkew": 1,
                "topologyKey": key.as_str(),
                "whenUnsatisfiable": spread.when_unsatisfiable.as_str(),
                "labelSelector": {"matchLabels": part.labels()},
            })
        });
        let _ = spec.set(["topologySpreadConstraints"], constraints.collect::<Value>());
    }
    if !options.priority_class_name.is_empty() {
        let _ = spec.set(["priorityClassName"], options.priority_class_name.as_str());
    }
    for (field, map) in [("affinity", &options.affinity), ("nodeSelector", &options.node_selector)]
    {
        if !map.is_empty() {
            let _ = spec.set([field], map.clone());
        }
    }
    for (field, list) in
        [("tolerations", &options.tolerations), ("imagePullSecrets", &options.image_pull_secrets)]
    {
        if !list.is_empty() {
            let _ = spec.set([field], list.clone());
        }
    }
    spec
}

fn container(options: &InstallOptions, part: &WorkloadPart<'_>) -> Value {
    let probe =
        |path: &str| value!({"httpGet": {"path": path, "port": "https", "scheme": "HTTPS"}});
    let mut args = vec!["run".to_owned(), format!("--namespace={}", options.namespace)];
    if !options.names().stands_for_kyverno() {
        args.push(format!("--name={}", options.name));
    }
    if options.open_reports {
        args.push("--openreports".to_owned());
    }
    if options.monitoring.kyverno_metrics {
        args.push("--kyverno-metrics".to_owned());
    }
    args.extend(part.args.iter().cloned());
    args.push(format!("--listen=0.0.0.0:{HTTPS}"));
    if options.logging.level != "info" {
        args.push(format!("--log={}", options.logging.level));
    }
    if options.logging.json {
        args.push("--log-json".to_owned());
    }
    args.extend(options.extra_args.iter().cloned());
    value!({
        "name": "kiln",
        "image": options.image.reference(),
        "imagePullPolicy": options.image.pull_policy.as_str(),
        "args": args,
        "ports": [{"name": "https", "containerPort": HTTPS}],
        "livenessProbe": probe("/healthz"),
        "readinessProbe": probe("/readyz"),
        "resources": part.resources.clone(),
        "securityContext": {
            "allowPrivilegeEscalation": false,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": true,
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
        let options = InstallOptions { split: true, replicas: 3, ..InstallOptions::default() };
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
        let controller = format!(
            "controller={account}-background-controller --as-cleanup={account}-cleanup-controller"
        );
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
        let objects = objects(&InstallOptions::default());
        let services = of_kind(&objects, "Service");
        assert_eq!(services.len(), 1);
        let selector = services[0].get_path(["spec", "selector"]).unwrap();
        assert_eq!(selected(&objects, selector), ["kiln"]);
    }
}
