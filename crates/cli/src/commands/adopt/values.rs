//! The values of a Kyverno release, as values of Kiln's chart.
//!
//! [`FATES`] says of each value of Kyverno's chart what becomes of it. A value without a counterpart is named with the
//! reason, unless it asks for nothing: what is empty or off in Kyverno is so in Kiln.

use std::io::Write as _;

use kiln_diagnostic::Diagnostic;
use kiln_value::{Map, Path, Segment, Value, value};
use kiln_yaml::{Document, ReadOptions, emit_documents, read_bytes};
use serde_json::json;

use crate::args::Format;
use crate::exit::{CommandOutcome, CommandResult};
use crate::input;
use crate::ui::Ui;

/// The largest file of values.
const MOST_BYTES: u64 = 4 << 20;

/// What becomes of a value.
#[derive(Clone, Copy)]
enum Fate {
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
const METRICS: &str = "metrics are served on the port of the webhooks, with Kiln's names";
const REPORTS: &str = "Kiln writes no reports in the background";
const IMAGES: &str = "Kiln does not verify images";
const PAYLOADS: &str = "logging.level debug shows what is decided, without payloads";
const CLEANUP: &str = "the controller deletes on schedules and by the TTL label; grant permissions with ClusterRoles that have the label \
                       rbac.kyverno.io/aggregate-to-cleanup-controller";
const RESYNC: &str =
    "watches are restarted when they stall, and nothing is listed again at intervals";
const CLIENTS: &str = "services are trusted by the authorities in Kiln's image";

/// Values of Kyverno's chart 3.9, by path.
const FATES: &[(&str, Fate)] = &[
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
    ("openreports", No(REPORTS)),
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
    ("features.admissionReports", No(REPORTS)),
    ("features.aggregateReports", No(REPORTS)),
    ("features.policyReports", No(REPORTS)),
    ("features.validatingAdmissionPolicyReports", No(REPORTS)),
    ("features.mutatingAdmissionPolicyReports", No(REPORTS)),
    ("features.reporting", No(REPORTS)),
    ("features.backgroundScan", No(REPORTS)),
    ("features.autoUpdateWebhooks", With(always_on)),
    ("features.configMapCaching", With(always_on)),
    ("features.deferredLoading", With(always_on)),
    ("features.excludeBootstrapResources", No("name them in config.resourceFilters")),
    ("features.controllerRuntimeMetrics", No(METRICS)),
    ("features.dumpPayload", No(PAYLOADS)),
    ("features.dumpPatches", No(PAYLOADS)),
    ("features.forceFailurePolicyIgnore", No("each policy's own failurePolicy is registered")),
    (
        "features.generateValidatingAdmissionPolicy",
        No("Kiln generates no ValidatingAdmissionPolicies"),
    ),
    ("features.generateMutatingAdmissionPolicy", No("Kiln generates no MutatingAdmissionPolicies")),
    ("features.globalContext", No("global context entries have Kiln's limits")),
    (
        "features.omitEvents",
        No("Events for successes are off unless config.generateSuccessEvents is on"),
    ),
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
    ("cleanupController", No(CLEANUP)),
    ("reportsController", No(REPORTS)),
];

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

/// What there is at a path with dots.
fn at<'v>(value: &'v Value, path: &str) -> Option<&'v Value> {
    value.get_path(path.split('.'))
}

fn put(ours: &mut Value, path: &str, value: Value) {
    let _ = ours.set(path.split('.'), value);
}

/// A value that has no counterpart: its path, and why.
#[derive(Debug)]
struct Lost {
    path: Path,
    why: String,
}

/// Values of ours, and what has no counterpart in them.
#[derive(Debug, Default)]
struct Converted {
    ours: Value,
    lost: Vec<Lost>,
}

fn converted(values: &Value) -> Converted {
    let mut converted = Converted { ours: Value::map(), lost: Vec::new() };
    converted.visit(values, &mut Path::default(), "", None);
    converted
}

/// Whether a value asks for nothing.
fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::String(text) => text.as_str().is_empty(),
        Value::List(list) => list.is_empty(),
        Value::Map(map) => map.values().all(is_nothing),
        _ => false,
    }
}

impl Converted {
    /// Looks at a value, and at those in it unless something is known of it as a whole. `around` is what is known of
    /// the values around it.
    fn visit(&mut self, value: &Value, path: &mut Path, name: &str, around: Option<Fate>) {
        let known = FATES.iter().find(|(known, _)| *known == name).map(|(_, fate)| *fate);
        let inner =
            |known: &str| known.strip_prefix(name).is_some_and(|rest| rest.starts_with('.'));
        let has_parts = name.is_empty() || FATES.iter().any(|(known, _)| inner(known));
        if let (Some(map), true) = (value.as_map(), has_parts) {
            for (key, part) in map.iter() {
                let name = if name.is_empty() { key.to_string() } else { format!("{name}.{key}") };
                path.push(Segment::Key(key.clone()));
                self.visit(part, path, &name, known.or(around));
                path.pop();
            }
            return;
        }
        if is_nothing(value) && !matches!(known, Some(To(_) | With(_))) {
            return;
        }
        let Some(fate) = known.or(around) else {
            let why = "it is not a value of Kyverno's chart that Kiln knows";
            self.lost.push(Lost { path: path.clone(), why: why.to_owned() });
            return;
        };
        match fate {
            // What is not set has the default of the chart.
            To(_) | With(_) if value.is_null() => {}
            To(_) if is_nothing(value) && !matches!(value, Value::Bool(_) | Value::List(_)) => {}
            To(ours) => put(&mut self.ours, ours, value.clone()),
            Global(ours) => {
                if at(&self.ours, ours).is_none() {
                    put(&mut self.ours, ours, value.clone());
                }
            }
            Split(ours) => {
                put(&mut self.ours, "split", Value::from(true));
                put(&mut self.ours, ours, value.clone());
            }
            Rules(ours) => {
                let known = at(&self.ours, ours).and_then(Value::as_list);
                let mut rules: Vec<Value> = known.into_iter().flatten().cloned().collect();
                rules.extend(value.as_list().into_iter().flatten().cloned());
                put(&mut self.ours, ours, Value::from(rules));
            }
            With(convert) => {
                if let Err(why) = convert(value, &mut self.ours) {
                    self.lost.push(Lost { path: path.clone(), why: why.to_owned() });
                }
            }
            Done => {}
            No(why) => self.lost.push(Lost { path: path.clone(), why: why.to_owned() }),
        }
    }
}

/// Prints the values of a Kyverno release as values of Kiln's chart.
pub(super) fn run(ui: &Ui, path: &str) -> CommandResult {
    let input = input::read(path, MOST_BYTES)?;
    let documents = read_bytes(&input.name, &input.bytes, ReadOptions::kubernetes())?;
    let [document] = documents.as_slice() else {
        return Err(Diagnostic::error(format!("{} does not hold one document", input.name))
            .hint(
                "write the values of the release to it: helm get values kyverno -n kyverno -o yaml",
            )
            .into());
    };
    if document.value().as_map().is_none() {
        return Err(Diagnostic::error("values are a map")
            .at(document.place())
            .hint(
                "write the values of the release to it: helm get values kyverno -n kyverno -o yaml",
            )
            .into());
    }
    let Converted { ours, lost } = converted(document.value());
    show(ui, document, &ours, &lost)?;
    Ok(if lost.is_empty() { CommandOutcome::Done } else { CommandOutcome::Negative })
}

fn show(ui: &Ui, document: &Document, ours: &Value, lost: &[Lost]) -> CommandResult {
    let mut out = ui.stdout();
    if ui.format() == Format::Json {
        let lost: Vec<_> = lost
            .iter()
            .map(|Lost { path, why }| json!({"value": path.to_string(), "why": why}))
            .collect();
        let values = serde_json::to_value(ours)
            .map_err(|error| Diagnostic::error(format!("cannot write: {error}")))?;
        writeln!(out, "{:#}", json!({"values": values, "withoutCounterpart": lost}))?;
        out.flush()?;
        return Ok(CommandOutcome::Done);
    }
    for Lost { path, why } in lost {
        let message = format!("{path} has no counterpart: {why}");
        ui.problem(&Diagnostic::warning(message).at(document.locate_key(path)));
    }
    writeln!(out, "# Values of Kiln's chart. image.repository is required in any case.")?;
    if ours.as_map().is_none_or(Map::is_empty) {
        writeln!(out, "{{}}")?;
    } else {
        out.write_all(emit_documents(std::slice::from_ref(ours)).as_bytes())?;
    }
    out.flush()?;
    Ok(CommandOutcome::Done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_goes_where_the_chart_has_one() {
        let values: &[(&str, Value)] = &[
            ("global.tolerations", value!([{"key": "infra", "operator": "Exists"}])),
            ("config.excludeGroups", value!(["system:nodes"])),
            ("config.successEventActions", Value::from("Resource Generated, Resource Mutated")),
            ("config.resourceFilters", value!(["[Event,*,*]", "[Pod,{{ x }},*]"])),
            ("config.resourceFiltersInclude", value!(["[Lease,*,*]"])),
            ("config.webhooks", value!([{"namespaceSelector": {"matchLabels": {"a": "b"}}}])),
            ("existingImagePullSecrets", value!(["registry"])),
            ("features.policyExceptions", value!({"enabled": true, "namespace": "team-*"})),
            ("features.logging", value!({"format": "json", "verbosity": 4})),
            ("admissionController.replicas", Value::from(3)),
            ("admissionController.container.resources", value!({"limits": {"memory": "1Gi"}})),
            (
                "admissionController.topologySpreadConstraints",
                value!([
                    {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"},
                ]),
            ),
            ("admissionController.podDisruptionBudget.minAvailable", Value::from(2)),
            (
                "admissionController.certManager",
                value!({
                    "enabled": true, "createSelfSignedIssuer": false,
                    "issuerRef": {"name": "internal", "kind": "Issuer", "group": "cert-manager.io"},
                    "tls": {"duration": "100h", "renewBefore": "10h"},
                }),
            ),
            ("backgroundController.replicas", Value::from(2)),
            (
                "backgroundController.rbac.clusterRole.extraResources",
                value!([
                    {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["get"]},
                ]),
            ),
            ("webhooksCleanup.enabled", Value::from(false)),
        ];
        let mut kyverno = Value::map();
        for (path, value) in values {
            put(&mut kyverno, path, value.clone());
        }
        let Converted { ours, lost } = converted(&kyverno);
        assert!(lost.is_empty(), "{lost:?}");
        let options = kiln_install::Options::from_values(&ours).unwrap();
        assert_eq!((options.replicas, options.split, options.controller.replicas), (3, true, 2));
        assert_eq!(options.config.resource_filters, ["[Event,*,*]", "[Lease,*,*]"]);
        assert_eq!(options.config.success_event_actions.len(), 2);
        assert_eq!(options.exception_namespaces.as_deref(), Some(&["team-*".to_owned()][..]));
        assert_eq!(options.topology_spread.topology_keys, ["zone"]);
        assert_eq!(options.certificates.issuer_ref.name, "internal");
        assert_eq!(options.certificates.duration, "100h");
        assert_eq!(options.permissions.controller.len(), 1);
        assert_eq!(options.pod_disruption_budget.min_available, Value::from(2));
        assert!(options.logging.json && options.logging.level == "debug");
        assert!(!options.uninstall_hook.enabled);
        assert_eq!(options.tolerations.len(), 1);
    }

    #[test]
    fn what_has_no_counterpart_is_named_once_and_what_asks_for_nothing_is_not() {
        let kyverno = value!({
            "cleanupController": {"replicas": 2, "resources": {"limits": {}}, "hostNetwork": false},
            "admissionController": {"hostNetwork": true, "dnsConfig": {}, "replicas": null},
            "features": {"tuf": {"enabled": false}, "forceFailurePolicyIgnore": {"enabled": true}},
            "admisionController": {"replicas": 3},
        });
        let Converted { ours, lost } = converted(&kyverno);
        assert!(ours.as_map().unwrap().is_empty(), "{ours:?}");
        let paths: Vec<String> = lost.iter().map(|lost| lost.path.to_string()).collect();
        assert_eq!(
            paths,
            [
                "cleanupController",
                "admissionController.hostNetwork",
                "features.forceFailurePolicyIgnore",
                "admisionController",
            ]
        );
        assert!(lost[3].why.contains("not a value of Kyverno's chart"), "{lost:?}");
    }

    #[test]
    fn every_target_is_a_value_of_the_chart() {
        let defaults = kiln_install::over_defaults(&Value::map());
        for (path, fate) in FATES {
            if let To(ours) | Global(ours) | Split(ours) | Rules(ours) = fate {
                let below = ours.starts_with("affinity.");
                assert!(below || at(&defaults, ours).is_some(), "{path} goes to {ours}");
            }
        }
    }
}
