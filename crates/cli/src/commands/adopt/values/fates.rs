//! What becomes of each value of Kyverno's chart.

use kiln_value::{Map, Value, value};

use super::{at, is_nothing, put};

/// What becomes of a value.
#[derive(Clone, Copy)]
pub(super) enum Fate {
    /// It is the value of this path.
    To(&'static str),
    /// The same, unless the admission controller has one of its own.
    Global(&'static str),
    /// It is about the background controller, which has a Deployment of its own only if the sides are split.
    Split(&'static str),
    /// Rules of a role, among others.
    Rules(&'static str),
    /// Something that needs a closer look, which may find that there is no counterpart.
    With(fn(&Value, &mut Value) -> Result<(), &'static str>),
    /// Kiln does it in any case.
    Done,
    /// There is no counterpart, for this reason.
    None(&'static str),
}

use Fate::{Done, Global, None as No, Rules, Split, To, With};

const FIXED: &str = "it is part of Kiln's Deployment and cannot be changed there";
const SCHEDULED: &str =
    "pods of both sides are scheduled by the values of the admission controller";
const NAMES: &str =
    "names are those that Kyverno's users know; give the namespace to helm --namespace";
const ACCOUNTS: &str =
    "accounts and roles are always created, with the names that Kyverno gives them";
const IMAGE: &str = "Kiln has one image: set image.repository, image.tag and image.pullPolicy";
const FLAG: &str = "Kiln has other flags: see `kiln run --help` and extraArgs";
const METRICS: &str = "metrics are served on the port of the webhooks; monitoring.kyvernoMetrics adds Kyverno's names";
const REPORTS: &str = "reports are kept by Kiln's own pods, in the API server";
const NATIVE_REPORTS: &str = "Kiln reports on policies that it runs, and not on Kubernetes' own";
const IMAGES: &str = "Kiln does not verify images";
const PAYLOADS: &str = "logging.level debug shows what is decided, without payloads";
const CLEANUP: &str = "the controller deletes on schedules and by the TTL label; grant permissions with ClusterRoles that have the label \
                       rbac.kyverno.io/aggregate-to-cleanup-controller";
const NO_CLEANUP: &str = "Kiln deletes on schedules and by the TTL label all the same: delete cleanup policies and labels that are to have \
                          no effect; `kiln plan` lists what the next runs delete";
const RESYNC: &str =
    "watches are restarted when they stall, and nothing is listed again at intervals";
const CLIENTS: &str = "services are trusted by the authorities in Kiln's image";

/// Values of Kyverno's chart 3.9, by path.
pub(super) const FATES: &[(&str, Fate)] = &[
    ("global.image", No(IMAGE)),
    ("global.imagePullSecrets", Global("imagePullSecrets")),
    ("global.priorityClassName", Global("priorityClassName")),
    ("global.nodeSelector", Global("nodeSelector")),
    ("global.tolerations", Global("tolerations")),
    ("global.resyncPeriod", No(RESYNC)),
    ("global.crdWatcher", Done),
    ("global.caCertificates", No(CLIENTS)),
    ("global.extraEnvVars", No(FIXED)),
    ("global.templating", No("`kiln install` prints manifests")),
    ("nameOverride", No(NAMES)),
    ("fullnameOverride", No(NAMES)),
    ("namespaceOverride", No(NAMES)),
    ("upgrade", Done),
    ("apiVersionOverride", Done),
    (
        "rbac.roles.aggregate",
        No("Kiln prints no ClusterRoles for users: aggregate your own to admin and view"),
    ),
    ("openreports.enabled", To("openReports")),
    ("openreports", Done),
    ("reportsServer", No(REPORTS)),
    ("crds.install", To("crds.install")),
    ("crds.groups", No("all CRDs are installed, or none")),
    ("crds.annotations", No("annotations applies to every object")),
    ("crds.customLabels", No("labels applies to every object")),
    ("crds.migration", Done),
    ("crds.reportsServer", No(REPORTS)),
    ("apiCallToken", No("services are called without a token")),
    ("config.create", No("the ConfigMap kyverno is always created")),
    ("config.preserve", No("helm uninstall deletes the ConfigMap; its values are the release's")),
    ("config.name", No("the ConfigMap is called kyverno")),
    ("config.annotations", No("annotations applies to every object")),
    ("config.enableDefaultRegistryMutation", No(IMAGES)),
    ("config.defaultRegistry", No(IMAGES)),
    ("config.excludeGroups", To("config.excludeGroups")),
    ("config.excludeUsernames", To("config.excludeUsernames")),
    ("config.excludeRoles", To("config.excludeRoles")),
    ("config.excludeClusterRoles", To("config.excludeClusterRoles")),
    ("config.generateSuccessEvents", To("config.generateSuccessEvents")),
    ("config.successEventActions", With(success_actions)),
    ("config.maxContextSize", To("config.maxContextSize")),
    ("config.resourceFilters", With(resource_filters)),
    ("config.resourceFiltersInclude", With(more_filters)),
    ("config.resourceFiltersExclude", No("write config.resourceFilters without these entries")),
    (
        "config.resourceFiltersExcludeNamespaces",
        No("write config.resourceFilters without these entries"),
    ),
    ("config.resourceFiltersIncludeNamespaces", With(more_namespaces)),
    ("config.excludeKyvernoNamespace", With(own_namespace)),
    (
        "config.updateRequestThreshold",
        No("stored requests are bounded by the cost of each client instead"),
    ),
    ("config.webhooks", With(webhooks)),
    ("config.webhookAnnotations", To("config.webhookAnnotations")),
    ("config.webhookLabels", To("config.webhookLabels")),
    ("config.matchConditions", To("config.matchConditions")),
    ("metricsConfig", No(METRICS)),
    ("imagePullSecrets", No("store the Secret yourself and name it in imagePullSecrets")),
    ("existingImagePullSecrets", With(existing_pull_secrets)),
    ("test", Done),
    ("customLabels", To("labels")),
    ("webhooksCleanup.enabled", To("uninstallHook.enabled")),
    (
        "webhooksCleanup",
        No("the Job of uninstallHook has the image and placement of the other pods"),
    ),
    ("grafana.enabled", To("monitoring.dashboard")),
    (
        "grafana",
        No("the dashboard is in the release's namespace, with the label grafana_dashboard"),
    ),
    ("prometheusRule.enabled", To("monitoring.prometheusRule")),
    ("prometheusRule.additionalLabels", To("monitoring.labels")),
    ("prometheusRule", No("Kiln has alerts of its own, in the release's namespace")),
    ("features.policyExceptions", With(exceptions)),
    ("features.logging.format", With(log_format)),
    ("features.logging.verbosity", With(log_level)),
    ("features.admissionReports.enabled", To("features.admissionReports.enabled")),
    ("features.aggregateReports", With(always_on)),
    ("features.policyReports.enabled", To("features.policyReports.enabled")),
    ("features.validatingAdmissionPolicyReports", No(NATIVE_REPORTS)),
    ("features.mutatingAdmissionPolicyReports", With(always_off)),
    ("features.reporting.validate", To("features.reporting.validate")),
    ("features.reporting.mutate", To("features.reporting.mutate")),
    ("features.reporting.mutateExisting", To("features.reporting.mutateExisting")),
    ("features.reporting.imageVerify", To("features.reporting.imageVerify")),
    ("features.reporting.generate", To("features.reporting.generate")),
    ("features.reporting.allowedResults", With(allowed_results)),
    ("features.backgroundScan.enabled", To("features.backgroundScan.enabled")),
    ("features.backgroundScan.backgroundScanWorkers", No("scans have a pace of their own")),
    (
        "features.backgroundScan.backgroundScanInterval",
        To("features.backgroundScan.backgroundScanInterval"),
    ),
    (
        "features.backgroundScan.skipResourceFilters",
        To("features.backgroundScan.skipResourceFilters"),
    ),
    ("features.autoUpdateWebhooks", With(always_on)),
    ("features.configMapCaching", With(always_on)),
    ("features.deferredLoading", With(always_on)),
    ("features.excludeBootstrapResources", No("name them in config.resourceFilters")),
    ("features.controllerRuntimeMetrics", No(METRICS)),
    ("features.dumpPayload", No(PAYLOADS)),
    ("features.dumpPatches", No(PAYLOADS)),
    ("features.forceFailurePolicyIgnore", No("each policy's own failurePolicy is registered")),
    (
        "features.generateValidatingAdmissionPolicy.enabled",
        To("features.generateValidatingAdmissionPolicy.enabled"),
    ),
    ("features.generateMutatingAdmissionPolicy", No("Kiln generates no MutatingAdmissionPolicies")),
    ("features.globalContext", No("global context entries have Kiln's limits")),
    ("features.omitEvents.eventTypes", To("features.omitEvents.eventTypes")),
    (
        "features.protectManagedResources",
        No("generated objects are repaired, and changes to them are not denied"),
    ),
    ("features.registryClient", No(IMAGES)),
    ("features.ttlController", No(CLEANUP)),
    ("features.tuf", No(IMAGES)),
    ("admissionController.replicas", To("replicas")),
    (
        "admissionController.autoscaling",
        No("there is no HorizontalPodAutoscaler in Kiln's chart; add your own for its Deployment"),
    ),
    ("admissionController.container.resources", To("resources")),
    ("admissionController.container.image", No(IMAGE)),
    ("admissionController.container.extraArgs", No(FLAG)),
    ("admissionController.container", No(FIXED)),
    ("admissionController.initContainer", No("Kiln has no init container")),
    ("admissionController.featuresOverride", No("features are those of the release")),
    ("admissionController.priorityClassName", To("priorityClassName")),
    ("admissionController.nodeSelector", To("nodeSelector")),
    ("admissionController.tolerations", To("tolerations")),
    ("admissionController.antiAffinity.enabled", To("topologySpread.enabled")),
    ("admissionController.podAntiAffinity", To("affinity.podAntiAffinity")),
    ("admissionController.podAffinity", To("affinity.podAffinity")),
    ("admissionController.nodeAffinity", To("affinity.nodeAffinity")),
    ("admissionController.topologySpreadConstraints", With(spread)),
    ("admissionController.podDisruptionBudget.enabled", To("podDisruptionBudget.enabled")),
    (
        "admissionController.podDisruptionBudget.minAvailable",
        To("podDisruptionBudget.minAvailable"),
    ),
    (
        "admissionController.podDisruptionBudget.maxUnavailable",
        To("podDisruptionBudget.maxUnavailable"),
    ),
    ("admissionController.podDisruptionBudget.unhealthyPodEvictionPolicy", No(FIXED)),
    ("admissionController.networkPolicy.enabled", To("networkPolicy.enabled")),
    ("admissionController.networkPolicy.ingressFrom", To("networkPolicy.from")),
    ("admissionController.serviceMonitor.enabled", To("monitoring.serviceMonitor")),
    ("admissionController.serviceMonitor.additionalLabels", To("monitoring.labels")),
    ("admissionController.serviceMonitor.interval", To("monitoring.interval")),
    (
        "admissionController.serviceMonitor",
        No("the ServiceMonitor is in the release's namespace and trusts the webhooks' authority"),
    ),
    ("admissionController.certManager", With(cert_manager)),
    ("admissionController.createSelfSignedCert", Done),
    ("admissionController.tlsKeyAlgorithm", No("keys that Kiln makes are ECDSA")),
    ("admissionController.imagePullSecrets", To("imagePullSecrets")),
    ("admissionController.podLabels", To("podLabels")),
    ("admissionController.podAnnotations", To("podAnnotations")),
    ("admissionController.labels", No("labels applies to every object")),
    ("admissionController.annotations", No("annotations applies to every object")),
    ("admissionController.rbac.serviceAccount.annotations", To("serviceAccount.annotations")),
    ("admissionController.rbac.coreClusterRole.extraResources", Rules("permissions.admission")),
    ("admissionController.rbac.clusterRole.extraResources", Rules("permissions.admission")),
    ("admissionController.rbac", No(ACCOUNTS)),
    ("admissionController.resyncPeriod", No(RESYNC)),
    ("admissionController.crdWatcher", Done),
    ("admissionController.caCertificates", No(CLIENTS)),
    ("admissionController.metricsService", No(METRICS)),
    ("admissionController.metering", No(METRICS)),
    ("admissionController.tracing", No("Kiln sends no traces")),
    ("admissionController.profiling", No("Kiln has no profiling endpoint")),
    (
        "admissionController.apiPriorityAndFairness",
        No("write a FlowSchema for the account kyverno-admission-controller"),
    ),
    (
        "admissionController.priorityLevelConfigurationSpec",
        No("write a FlowSchema for the account kyverno-admission-controller"),
    ),
    ("admissionController.sigstoreVolume", No(IMAGES)),
    ("admissionController.tufRootMountPath", No(IMAGES)),
    ("admissionController.revisionHistoryLimit", No(FIXED)),
    ("admissionController", No(FIXED)),
    ("backgroundController.enabled", To("features.controller")),
    ("backgroundController.replicas", Split("controller.replicas")),
    ("backgroundController.resources", Split("controller.resources")),
    ("backgroundController.rbac.coreClusterRole.extraResources", Rules("permissions.controller")),
    ("backgroundController.rbac.clusterRole.extraResources", Rules("permissions.controller")),
    (
        "backgroundController.rbac.serviceAccount.annotations",
        No("serviceAccount.annotations applies to all accounts"),
    ),
    ("backgroundController.rbac", No(ACCOUNTS)),
    ("backgroundController.image", No(IMAGE)),
    ("backgroundController.extraArgs", No(FLAG)),
    ("backgroundController.featuresOverride", No("features are those of the release")),
    ("backgroundController.serviceMonitor.enabled", To("monitoring.serviceMonitor")),
    (
        "backgroundController.serviceMonitor",
        No("both sides have the settings of the admission controller's ServiceMonitor"),
    ),
    ("backgroundController.networkPolicy", No("one NetworkPolicy is for both sides")),
    (
        "backgroundController.podDisruptionBudget",
        No("while the controller restarts, no request waits for it"),
    ),
    ("backgroundController.priorityClassName", No(SCHEDULED)),
    ("backgroundController.nodeSelector", No(SCHEDULED)),
    ("backgroundController.tolerations", No(SCHEDULED)),
    ("backgroundController.antiAffinity", No(SCHEDULED)),
    ("backgroundController.podAntiAffinity", No(SCHEDULED)),
    ("backgroundController.podAffinity", No(SCHEDULED)),
    ("backgroundController.nodeAffinity", No(SCHEDULED)),
    ("backgroundController.topologySpreadConstraints", No(SCHEDULED)),
    ("backgroundController.resyncPeriod", No(RESYNC)),
    ("backgroundController.caCertificates", No(CLIENTS)),
    ("backgroundController.metricsService", No(METRICS)),
    ("backgroundController.metering", No(METRICS)),
    ("backgroundController.tracing", No("Kiln sends no traces")),
    ("backgroundController.profiling", No("Kiln has no profiling endpoint")),
    ("backgroundController", No(FIXED)),
    ("cleanupController", With(cleanup)),
    ("reportsController", With(reports)),
];

/// The controller is on unless it is switched off, and then what it did is missed if Kiln does it.
fn cleanup(given: &Value, _: &mut Value) -> Result<(), &'static str> {
    match (is_on(given), has_settings(given)) {
        (false, _) => Err(NO_CLEANUP),
        (true, true) => Err(CLEANUP),
        (true, false) => Ok(()),
    }
}

/// Without its controller, Kyverno writes no reports.
fn reports(given: &Value, ours: &mut Value) -> Result<(), &'static str> {
    if !is_on(given) {
        put(ours, "features.policyReports.enabled", Value::from(false));
        return Ok(());
    }
    if has_settings(given) { Err(REPORTS) } else { Ok(()) }
}

fn is_on(controller: &Value) -> bool {
    at(controller, "enabled").and_then(Value::as_bool).unwrap_or(true)
}

fn has_settings(controller: &Value) -> bool {
    let mut parts = controller.as_map().into_iter().flat_map(Map::iter);
    parts.any(|(key, value)| key.as_str() != "enabled" && !is_nothing(value))
}

/// A text with commas is a list in Kiln's chart.
fn success_actions(given: &Value, ours: &mut Value) -> Result<(), &'static str> {
    let words = kiln_install::words(given.as_str().unwrap_or_default());
    put(ours, "config.successEventActions", Value::from(words));
    Ok(())
}

/// Kyverno's own objects are named by templates; Kiln adds its namespace in any case.
fn resource_filters(given: &Value, ours: &mut Value) -> Result<(), &'static str> {
    let filters = given.as_list().ok_or("it is not a list")?.iter();
    let filters = filters.filter(|filter| filter.as_str().is_some_and(|text| !text.contains("{{")));
    put(ours, "config.resourceFilters", filters.cloned().collect());
    Ok(())
}

fn more_filters(given: &Value, ours: &mut Value) -> Result<(), &'static str> {
    let given = given.as_list().ok_or("it is not a list")?;
    add_filters(ours, given.iter().cloned());
    Ok(())
}

fn more_namespaces(given: &Value, ours: &mut Value) -> Result<(), &'static str> {
    let names = given.as_list().ok_or("it is not a list")?.iter().filter_map(Value::as_str);
    add_filters(ours, names.map(|name| Value::from(format!("[*/*,{name},*]"))));
    Ok(())
}

fn add_filters(ours: &mut Value, more: impl Iterator<Item = Value>) {
    let known = at(ours, "config.resourceFilters").and_then(Value::as_list);
    let mut filters: Vec<Value> = match known {
        Some(known) => known.iter().cloned().collect(),
        None => {
            kiln_install::Config::default().resource_filters.into_iter().map(Value::from).collect()
        }
    };
    filters.extend(more);
    put(ours, "config.resourceFilters", Value::from(filters));
}

fn own_namespace(given: &Value, _: &mut Value) -> Result<(), &'static str> {
    match given.as_bool() {
        Some(false) => Err("rules never see the namespace that Kiln lives in"),
        _ => Ok(()),
    }
}

/// Kyverno took a list with one entry in earlier versions.
fn webhooks(given: &Value, ours: &mut Value) -> Result<(), &'static str> {
    let selectors = match given {
        Value::List(list) if list.len() > 1 => {
            return Err("Kiln has one set of selectors for all webhooks");
        }
        Value::List(list) => list.iter().next().cloned().unwrap_or(Value::Null),
        other => other.clone(),
    };
    if selectors.as_map().is_some_and(|map| !map.is_empty()) {
        put(ours, "config.webhooks", selectors);
    }
    Ok(())
}

fn existing_pull_secrets(given: &Value, ours: &mut Value) -> Result<(), &'static str> {
    let names = given.as_list().ok_or("it is not a list")?.iter().filter_map(Value::as_str);
    let secrets: Vec<Value> = names.map(|name| value!({"name": name})).collect();
    put(ours, "imagePullSecrets", Value::from(secrets));
    Ok(())
}

fn exceptions(given: &Value, ours: &mut Value) -> Result<(), &'static str> {
    let namespace = given.str_at(["namespace"]).unwrap_or_default();
    let namespaces = match given.get("enabled").and_then(Value::as_bool) {
        Some(true) => kiln_install::words(namespace),
        Some(false) => Vec::new(),
        None => return Ok(()),
    };
    put(ours, "exceptionNamespaces", Value::from(namespaces));
    Ok(())
}

fn log_format(given: &Value, ours: &mut Value) -> Result<(), &'static str> {
    if given.as_str() == Some("json") {
        put(ours, "logging.json", Value::from(true));
    }
    Ok(())
}

/// Kyverno's default is 2.
fn log_level(given: &Value, ours: &mut Value) -> Result<(), &'static str> {
    if given.as_i64().is_some_and(|verbosity| verbosity > 2) {
        put(ours, "logging.level", Value::from("debug"));
    }
    Ok(())
}

fn always_on(given: &Value, _: &mut Value) -> Result<(), &'static str> {
    match given.get("enabled").and_then(Value::as_bool) {
        Some(false) => Err("it is always on"),
        _ => Ok(()),
    }
}

fn always_off(given: &Value, _: &mut Value) -> Result<(), &'static str> {
    match given.get("enabled").and_then(Value::as_bool) {
        Some(true) => Err(NATIVE_REPORTS),
        _ => Ok(()),
    }
}

/// Kyverno: if some are listed, those that are left out are off.
fn allowed_results(given: &Value, ours: &mut Value) -> Result<(), &'static str> {
    let given = given.as_map().ok_or("it is not a map")?;
    if given.is_empty() {
        return Ok(());
    }
    for word in ["pass", "fail", "error", "skip", "warn"] {
        let is_on = given.get(word).and_then(Value::as_bool).unwrap_or(false);
        put(ours, &format!("features.reporting.allowedResults.{word}"), Value::from(is_on));
    }
    Ok(())
}

fn cert_manager(given: &Value, ours: &mut Value) -> Result<(), &'static str> {
    if given.get("enabled").and_then(Value::as_bool) != Some(true) {
        return Ok(());
    }
    put(ours, "certificates.source", Value::from("certManager"));
    if given.get("createSelfSignedIssuer").and_then(Value::as_bool) == Some(false)
        && let Some(issuer) = given.get("issuerRef")
    {
        put(ours, "certificates.issuerRef", issuer.clone());
    }
    for field in ["duration", "renewBefore"] {
        if let Some(time) = given.get_path(["tls", field]) {
            put(ours, &format!("certificates.{field}"), time.clone());
        }
    }
    Ok(())
}

fn spread(given: &Value, ours: &mut Value) -> Result<(), &'static str> {
    let mut keys = Vec::new();
    let mut reactions = Vec::new();
    for constraint in given.as_list().ok_or("it is not a list")? {
        if constraint.get("maxSkew").and_then(Value::as_i64).is_some_and(|skew| skew != 1) {
            return Err("topologySpread has a skew of 1");
        }
        keys.extend(constraint.str_at(["topologyKey"]).map(Value::from));
        let reaction = constraint.str_at(["whenUnsatisfiable"]).unwrap_or("DoNotSchedule");
        if !reactions.contains(&reaction) {
            reactions.push(reaction);
        }
    }
    match reactions.as_slice() {
        [] => Ok(()),
        [reaction] => {
            put(ours, "topologySpread.topologyKeys", Value::from(keys));
            put(ours, "topologySpread.whenUnsatisfiable", Value::from(*reaction));
            Ok(())
        }
        _ => Err("topologySpread has one whenUnsatisfiable for all keys"),
    }
}
