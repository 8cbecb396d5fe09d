//! What users decide about an installation: the flags of `kiln install`, and the values of the Helm chart.
//!
//! [`InstallOptions`] is read from the same YAML as the chart (`charts/kiln/values.yaml`): a field there is a field here, under
//! the same name and with the same default. Tests hold both, and the chart's schema, equal.

use std::sync::Arc;

use kiln_diagnostic::Source;
use kiln_object::EngineNames;
use kiln_value::{Map, TypeError, Value, from_value, value};
use kiln_yaml::{Document, ReadOptions, read};
use serde::Deserialize;

/// Kinds and namespaces that no rule sees.
const RESOURCE_FILTERS: [&str; 17] = [
    "[Event,*,*]",
    "[*/*,kube-system,*]",
    "[*/*,kube-public,*]",
    "[*/*,kube-node-lease,*]",
    "[Node,*,*]",
    "[Node/?*,*,*]",
    "[APIService,*,*]",
    "[APIService/?*,*,*]",
    "[TokenReview,*,*]",
    "[SubjectAccessReview,*,*]",
    "[SelfSubjectAccessReview,*,*]",
    "[Binding,*,*]",
    "[Pod/binding,*,*]",
    "[ReplicaSet,*,*]",
    "[ReplicaSet/?*,*,*]",
    "[EphemeralReport,*,*]",
    "[ClusterEphemeralReport,*,*]",
];

/// What users decide about an installation.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct InstallOptions {
    /// The namespace that the engine lives in. Helm calls it the namespace of the release.
    #[serde(skip)]
    pub namespace: String,
    /// Whether there is anything that runs: a Deployment and what belongs to it.
    #[serde(skip)]
    pub workload: bool,
    /// What the names of its objects begin with. Under another name than Kyverno's it runs beside it.
    pub name: String,
    /// Reports of `openreports.io` in the place of PolicyReports.
    pub open_reports: bool,
    /// The definitions of custom resources.
    pub crds: Crds,
    /// The image that holds the `kiln` binary.
    pub image: Image,
    /// Secrets with credentials of the registry: `[{name: NAME}]`.
    pub image_pull_secrets: Vec<Value>,
    /// How many pods run; those that answer requests, when the sides are split.
    pub replicas: u32,
    /// Whether requests are answered and rules carried out by Deployments of their own.
    pub split: bool,
    /// The Deployment of the controller, when the sides are split.
    pub controller: Controller,
    /// Which sides of the work are done.
    pub features: Features,
    /// Requests and limits of the container.
    pub resources: Map,
    /// How many pods a drain of nodes may stop at once.
    pub pod_disruption_budget: DisruptionBudget,
    /// How pods are spread over nodes and zones.
    pub topology_spread: TopologySpread,
    /// The affinity of the pods.
    pub affinity: Map,
    /// Labels of the nodes that pods may run on.
    pub node_selector: Map,
    /// Taints that pods tolerate.
    pub tolerations: Vec<Value>,
    /// The PriorityClass of the pods.
    pub priority_class_name: String,
    /// Who may connect to the pods.
    pub network_policy: NetworkPolicy,
    /// What Prometheus and Grafana get.
    pub monitoring: Monitoring,
    /// Where the certificates of the webhooks come from.
    pub certificates: Certificates,
    /// What rules may read and write from the start.
    pub permissions: Permissions,
    /// The namespaces, with wildcards, whose PolicyExceptions apply to all policies; the engine's own if left out.
    pub exception_namespaces: Option<Vec<String>>,
    /// The namespaces, with wildcards, that an object's value cannot choose; the engine's default if left out.
    pub protected_namespaces: Option<Vec<String>>,
    /// The ConfigMap that users set the engine's behavior with.
    pub config: Config,
    /// What the engine logs.
    pub logging: Logging,
    /// More arguments of `kiln run`.
    pub extra_args: Vec<String>,
    /// The ServiceAccount of the pods.
    pub service_account: ServiceAccount,
    /// More labels of every object.
    pub labels: Map,
    /// Annotations of every object.
    pub annotations: Map,
    /// More labels of the pods.
    pub pod_labels: Map,
    pub pod_annotations: Map,
    /// The Job that stops the engine and removes its webhooks when Helm uninstalls it. The chart alone has it.
    pub uninstall_hook: UninstallHook,
}

/// Declares structs that are read from values.
macro_rules! values {
    ($($(#[$about:meta])* $name:ident { $($(#[$field_about:meta])* $field:ident: $type:ty = $default:expr,)* })*) => {$(
        $(#[$about])*
        #[derive(Clone, Debug, PartialEq, Deserialize)]
        #[serde(default, deny_unknown_fields, rename_all = "camelCase")]
        pub struct $name {
            $($(#[$field_about])* pub $field: $type,)*
        }

        impl Default for $name {
            fn default() -> Self {
                $name { $($field: $default,)* }
            }
        }
    )*};
}

values! {
    /// The definitions of custom resources.
    Crds {
        /// Whether they are part of the installation.
        install: bool = true,
        /// Also the kinds of policies under Kiln's own API group, `kiln.dev`.
        own_group: bool = false,
        /// Also PolicyReports under another name than Kyverno's, in a cluster without Kyverno.
        reports: bool = false,
    }

    /// The image that holds the `kiln` binary.
    Image {
        /// Registry and repository; no image is published, so there is none by default.
        repository: String = String::new(),
        /// The tag; the version of Kiln if empty.
        tag: String = String::new(),
        /// `sha256:…`, which takes precedence over the tag.
        digest: String = String::new(),
        pull_policy: String = "IfNotPresent".to_owned(),
    }

    /// The Deployment of the controller, when the sides are split.
    Controller {
        /// How many pods run: one leads, the others are on standby.
        replicas: u32 = 1,
        /// Requests and limits, if they are not those of the others.
        resources: Map = Map::new(),
    }

    /// Which sides of the work are done.
    Features {
        /// Answer admission requests, and register webhooks for them.
        admission: bool = true,
        /// Generate and synchronize.
        controller: bool = true,
        policy_reports: Switch = Switch::default(),
        /// Results of admission requests in policy reports.
        admission_reports: Switch = Switch::default(),
        /// Which results are in policy reports.
        reporting: ReportedRules = ReportedRules::default(),
        /// The scan of stored objects.
        background_scan: BackgroundScan = BackgroundScan::default(),
        /// Events that are not written.
        omit_events: OmittedEvents = OmittedEvents::default(),
        /// Policies that ask for it are generated as ValidatingAdmissionPolicies.
        generate_validating_admission_policy: Switch = Switch::default(),
    }

    /// Something that is on or off, as Kyverno's chart writes it.
    Switch {
        enabled: bool = true,
    }

    /// Which results are in policy reports: of which rules, and with which outcome.
    ReportedRules {
        validate: bool = true,
        mutate: bool = true,
        mutate_existing: bool = true,
        generate: bool = true,
        /// Of rules that verify images, which Kiln does not run.
        image_verify: bool = true,
        /// Which outcomes.
        allowed_results: AllowedResults = AllowedResults::default(),
    }

    /// Which outcomes are in policy reports.
    AllowedResults {
        pass: bool = true,
        fail: bool = true,
        error: bool = true,
        warn: bool = true,
        skip: bool = true,
    }

    /// The scan of stored objects.
    BackgroundScan {
        enabled: bool = true,
        /// How often all objects are checked again, besides when they or policies change.
        background_scan_interval: String = "1h".to_owned(),
        /// Objects that rules never see at admission are scanned all the same.
        skip_resource_filters: bool = true,
    }

    /// Events that are not written.
    OmittedEvents {
        /// By reason: `PolicyViolation`, `PolicyApplied`, `PolicyError`, `PolicySkipped`.
        event_types: Vec<String> = Vec::new(),
    }

    /// How many pods a drain of nodes may stop at once.
    DisruptionBudget {
        enabled: bool = true,
        /// A number or a percentage; takes precedence over `maxUnavailable`.
        min_available: Value = Value::Null,
        /// A number or a percentage.
        max_unavailable: Value = Value::from(1),
    }

    /// How pods are spread over nodes and zones.
    TopologySpread {
        enabled: bool = true,
        /// What becomes of a pod that cannot be placed so: `ScheduleAnyway` or `DoNotSchedule`.
        when_unsatisfiable: String = "ScheduleAnyway".to_owned(),
        /// The labels of nodes whose values are to differ.
        topology_keys: Vec<String> =
            vec!["kubernetes.io/hostname".to_owned(), "topology.kubernetes.io/zone".to_owned()],
    }

    /// Who may connect to the pods.
    NetworkPolicy {
        /// Whether there is a NetworkPolicy.
        enabled: bool = true,
        /// The addresses of the API servers in CIDR notation. Any client may connect while there are none.
        api_servers: Vec<String> = Vec::new(),
        /// Who else may connect, such as Prometheus: entries as in `ingress.from`.
        from: Vec<Value> = Vec::new(),
    }

    /// What Prometheus and Grafana get.
    Monitoring {
        /// A ServiceMonitor, for the Prometheus operator.
        service_monitor: bool = false,
        /// A PrometheusRule with alerts, for the Prometheus operator.
        prometheus_rule: bool = false,
        /// A ConfigMap with a dashboard, for Grafana's sidecar.
        dashboard: bool = false,
        /// More labels of these objects, by which the operator selects them.
        labels: Map = Map::new(),
        /// How often Prometheus scrapes; its default if empty.
        interval: String = String::new(),
        /// The address of the page about alerts, to which their annotation `runbook_url` adds `#NAME`.
        runbook_url: String = String::new(),
        /// Metrics also under Kyverno's names.
        kyverno_metrics: bool = false,
    }

    /// Where the certificates of the webhooks come from.
    Certificates {
        source: CertificateSource = CertificateSource::Generated,
        /// The issuer that cert-manager asks; a self-signed one of the chart's own if it has no name.
        issuer_ref: IssuerRef = IssuerRef::default(),
        /// How long cert-manager's certificate is valid.
        duration: String = "2160h".to_owned(),
        /// How long before its end cert-manager renews it.
        renew_before: String = "720h".to_owned(),
    }

    /// An issuer of cert-manager.
    IssuerRef {
        name: String = String::new(),
        /// `Issuer` or `ClusterIssuer`.
        kind: String = "ClusterIssuer".to_owned(),
        /// Its API group.
        group: String = "cert-manager.io".to_owned(),
    }

    /// What rules may read and write from the start.
    Permissions {
        /// Which kinds.
        grant: Grant = Grant::View,
        /// More rules of the controller's ClusterRole.
        controller: Vec<Value> = Vec::new(),
        /// More rules of the ClusterRole of the admission side.
        admission: Vec<Value> = Vec::new(),
    }

    /// The ConfigMap that users set the engine's behavior with. Changes there take effect at once.
    Config {
        /// `[Kind,namespace,name]`: objects that no rule sees. Those in the engine's namespace are always added.
        resource_filters: Vec<String> = RESOURCE_FILTERS.map(str::to_owned).to_vec(),
        /// Groups whose requests trigger no rule.
        exclude_groups: Vec<String> = vec!["system:nodes".to_owned()],
        /// Users whose requests trigger no rule.
        exclude_usernames: Vec<String> = Vec::new(),
        /// Roles whose users' requests trigger no rule.
        exclude_roles: Vec<String> = Vec::new(),
        /// ClusterRoles whose users' requests trigger no rule.
        exclude_cluster_roles: Vec<String> = Vec::new(),
        /// Events for successes, too.
        generate_success_events: bool = false,
        /// Actions whose successes get Events, if `generateSuccessEvents` is on.
        success_event_actions: Vec<String> = Vec::new(),
        /// `namespaceSelector` and `objectSelector` of every webhook.
        webhooks: Map = Map::new(),
        /// The match conditions of every webhook.
        match_conditions: Vec<Value> = Vec::new(),
        /// Labels of every webhook configuration.
        webhook_labels: Map = Map::new(),
        /// Annotations of every webhook configuration.
        webhook_annotations: Map = Map::new(),
        /// The maximum size of the context entries of a rule.
        max_context_size: String = String::new(),
        /// The largest AdmissionReview.
        max_review_size: String = String::new(),
        /// Steps of the expressions of one rule.
        max_steps: Option<u64> = None,
        /// Whose policies may read and write only what their author may.
        author_rights: String = String::new(),
        /// Hosts that rules may call.
        services: Vec<String> = Vec::new(),
    }

    /// What the engine logs.
    Logging {
        /// The level, or levels per part.
        level: String = "info".to_owned(),
        /// As JSON, one object per line.
        json: bool = false,
    }

    /// The ServiceAccount of the pods.
    ServiceAccount {
        name: String = "kiln".to_owned(),
        /// Its annotations, and those of the two accounts that it acts as.
        annotations: Map = Map::new(),
    }

    /// The Job that stops the engine and removes its webhooks when Helm uninstalls it.
    UninstallHook {
        enabled: bool = true,
    }
}

/// Where the certificates of the webhooks come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum CertificateSource {
    /// The engine makes and renews them.
    Generated,
    /// A Secret that the user stores, with `tls.crt`, `tls.key` and `ca.crt`.
    Secret,
    /// cert-manager issues them into that Secret.
    CertManager,
}

/// What rules may read and write from the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Grant {
    /// What every user who may view may read. Users add roles with the aggregation labels for all else.
    View,
    /// Also the kinds that rules commonly make: ConfigMaps, Secrets, NetworkPolicies, quotas, limits, roles and
    /// their bindings, namespaces, nodes and pods.
    Standard,
}

impl Default for InstallOptions {
    fn default() -> Self {
        let Value::Map(resources) = value!({
            "requests": {"cpu": "100m", "memory": "64Mi"},
            "limits": {"memory": "512Mi"},
        }) else {
            unreachable!("it is a map");
        };
        InstallOptions {
            namespace: "kyverno".to_owned(),
            workload: true,
            open_reports: false,
            name: EngineNames::default().name().to_owned(),
            crds: Crds::default(),
            image: Image::default(),
            image_pull_secrets: Vec::new(),
            replicas: 2,
            split: false,
            controller: Controller::default(),
            features: Features::default(),
            resources,
            pod_disruption_budget: DisruptionBudget::default(),
            topology_spread: TopologySpread::default(),
            affinity: Map::new(),
            node_selector: Map::new(),
            tolerations: Vec::new(),
            priority_class_name: String::new(),
            network_policy: NetworkPolicy::default(),
            monitoring: Monitoring::default(),
            certificates: Certificates::default(),
            permissions: Permissions::default(),
            exception_namespaces: None,
            protected_namespaces: None,
            config: Config::default(),
            logging: Logging::default(),
            extra_args: Vec::new(),
            service_account: ServiceAccount::default(),
            labels: Map::new(),
            annotations: Map::new(),
            pod_labels: Map::new(),
            pod_annotations: Map::new(),
            uninstall_hook: UninstallHook::default(),
        }
    }
}

/// The image of this version, if the build was told where it is published: `KILN_IMAGE` is its name without a tag.
pub fn published_image() -> Option<String> {
    let name = option_env!("KILN_IMAGE").filter(|name| !name.is_empty())?;
    Some(format!("{name}:{}", env!("CARGO_PKG_VERSION")))
}

/// The words of a list with commas.
pub fn words(text: &str) -> Vec<String> {
    text.split(',').map(str::trim).filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

/// The values of the chart, as they are without any that a user gives.
const VALUES: &str = include_str!("../../../charts/kiln/values.yaml");

/// The chart's own values with those of a user over them, as Helm merges them: maps key by key, everything else as a whole.
/// `null` stands for nothing of the kind that is there.
pub fn over_defaults(given: &Value) -> Value {
    let source = Arc::new(Source::new("values.yaml", VALUES));
    let documents = read(&source, ReadOptions::kubernetes()).unwrap_or_default();
    let defaults = documents.into_iter().next().map(Document::into_value).unwrap_or_default();
    over(&defaults, given)
}

fn over(default: &Value, given: &Value) -> Value {
    match (default, given) {
        (Value::Map(default), Value::Map(given)) => {
            let mut all = default.clone();
            for (key, value) in given.iter() {
                let known = default.get(key.as_str()).unwrap_or(&Value::Null);
                all.insert(key.clone(), over(known, value));
            }
            Value::Map(all)
        }
        (Value::Map(_), Value::Null) => Value::map(),
        (Value::List(_), Value::Null) => Value::from(Vec::<Value>::new()),
        (Value::String(_), Value::Null) => Value::from(""),
        _ => given.clone(),
    }
}

impl InstallOptions {
    /// What its objects are called.
    pub(crate) fn names(&self) -> EngineNames {
        EngineNames::new(&self.name)
    }

    /// The options that values of the Helm chart stand for.
    ///
    /// # Errors
    /// When a value has no meaning, or another type.
    pub fn from_values(values: &Value) -> Result<InstallOptions, TypeError> {
        from_value(&over_defaults(values))
    }

    /// What a schema cannot say.
    ///
    /// # Errors
    /// When options contradict each other.
    pub fn check(&self) -> Result<(), &'static str> {
        if !self.features.admission && !self.features.controller {
            return Err(
                "features.admission and features.controller are both false: there would be nothing to do",
            );
        }
        Ok(())
    }

    /// Whether the two sides have Deployments of their own: only where both are wanted.
    pub(crate) fn is_split(&self) -> bool {
        self.split && self.features.admission && self.features.controller
    }
}

impl Image {
    /// `repository:tag`, or `repository@digest`.
    pub fn reference(&self) -> String {
        let Image { repository, tag, digest, .. } = self;
        match (tag.as_str(), digest.as_str()) {
            ("", "") => format!("{repository}:{}", env!("CARGO_PKG_VERSION")),
            (tag, "") => format!("{repository}:{tag}"),
            (_, digest) => format!("{repository}@{digest}"),
        }
    }

    /// The image that a reference names.
    pub fn named(reference: &str) -> Self {
        let (name, digest) = reference.split_once('@').unwrap_or((reference, ""));
        // A colon before the last slash belongs to the port of the registry.
        let (repository, tag) = match name.rsplit_once(':') {
            Some((repository, tag)) if !tag.contains('/') => (repository, tag),
            _ => (name, ""),
        };
        // A reference without a tag is the newest, as everywhere.
        let tag = if tag.is_empty() && digest.is_empty() { "latest" } else { tag };
        Image {
            repository: repository.to_owned(),
            tag: tag.to_owned(),
            digest: digest.to_owned(),
            ..Image::default()
        }
    }
}

impl Monitoring {
    /// Everything that there is.
    pub fn all() -> Self {
        Monitoring {
            service_monitor: true,
            prometheus_rule: true,
            dashboard: true,
            ..Monitoring::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn image_references_are_taken_apart_and_put_together() {
        for (given, wanted) in [
            ("registry:5000/team/kiln:7", "registry:5000/team/kiln:7"),
            ("registry:5000/team/kiln", "registry:5000/team/kiln:latest"),
            ("kiln@sha256:ab", "kiln@sha256:ab"),
            ("kiln:7@sha256:ab", "kiln@sha256:ab"),
        ] {
            assert_eq!(Image::named(given).reference(), wanted, "{given}");
        }
        let image = Image { repository: "r/kiln".to_owned(), ..Image::default() };
        assert_eq!(image.reference(), format!("r/kiln:{}", env!("CARGO_PKG_VERSION")));
    }
}
