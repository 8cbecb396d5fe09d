//! The ConfigMap that users set Kyverno's behaviour with.
//!
//! Each key is read by itself: what is left out has its default, and what cannot be read leaves the value as it
//! was and is warned about, so that a slip in one key never switches the others off.

use std::sync::Arc;

use kiln_engine::{
    EvaluationLimits, HostAllowlist, ResourceFilter, User, usual_protected_namespaces,
};
use kiln_object::{EngineNames, Gvk, Selector};
use kiln_rules::Exception;
use kiln_text::wildcard;
use kiln_value::{Map, Str, Value, value};

use crate::authors::Authors;
use crate::reporting::Reporting;
use crate::setting_values::{
    SettingError, read_conditions, read_document, read_filters, read_flag, read_size, read_texts,
    words,
};

/// What users decide about admission.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What the engine calls its own objects.
    pub names: EngineNames,
    /// The namespace that the engine lives in.
    pub namespace: Str,
    /// Objects that no rule sees.
    pub filters: Vec<ResourceFilter>,
    /// People whose requests no rule sees.
    pub excluded: Excluded,
    pub events: EventSettings,
    pub webhooks: WebhookSettings,
    /// What the evaluation of one rule may cost.
    pub limits: EvaluationLimits,
    /// The most bytes that a review may have.
    pub review_bytes: usize,
    /// Whose policies are held to the rights of those who store them.
    pub authors: Authors,
    /// The services that rules may ask.
    pub services: HostAllowlist,
    /// Namespaces that objects cannot choose for what rules write, with wildcards.
    pub protected_namespaces: Vec<Str>,
    /// Namespaces, with wildcards, of which exceptions hold for all policies.
    pub exception_namespaces: Vec<Str>,
    /// Which results are in reports, and when objects are scanned.
    pub reporting: Reporting,
}

/// Which Events there are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventSettings {
    /// They tell of what rules did, not only of what failed.
    pub success: bool,
    /// The actions that they tell of; all when empty.
    pub actions: Vec<Str>,
}

/// What webhook configurations say besides what the policies need.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WebhookSettings {
    /// The namespaces that webhooks are called for, as a label selector.
    pub namespace_selector: Value,
    /// The objects that webhooks are called for, as a label selector.
    pub object_selector: Value,
    /// What must hold of a request for webhooks to be called: each with name and expression.
    pub match_conditions: Vec<Value>,
    /// Labels, besides our own.
    pub labels: Map,
    /// Annotations, besides our own.
    pub annotations: Map,
}

/// People whose requests no rule sees.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Excluded {
    pub groups: Patterns,
    /// By name.
    pub usernames: Patterns,
    /// By role, as `namespace:name`.
    pub roles: Patterns,
    pub cluster_roles: Patterns,
}

/// Wildcards; one with `!` in front lets in what others keep out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Patterns {
    out: Vec<Str>,
    back_in: Vec<Str>,
}

/// An API server sends both the old and the new object, each of up to three megabytes.
const REVIEW_BYTES: usize = 12 << 20;

/// A conservative bound that keeps one slow rule from holding a request for the whole of its time.
const STEPS: u64 = 2_000_000;

/// Reads the text of a key into the settings.
type Set = fn(&mut Settings, &str) -> Result<(), SettingError>;

/// The keys of the ConfigMap. The reference has a row for each.
const KEYS: &[(&str, Set)] = &[
    ("resourceFilters", |to, text| {
        to.filters = read_filters(text)?;
        Ok(())
    }),
    ("excludeGroups", |to, text| {
        to.excluded.groups = Patterns::read(text);
        Ok(())
    }),
    ("excludeUsernames", |to, text| {
        to.excluded.usernames = Patterns::read(text);
        Ok(())
    }),
    ("excludeRoles", |to, text| {
        to.excluded.roles = Patterns::read(text);
        Ok(())
    }),
    ("excludeClusterRoles", |to, text| {
        to.excluded.cluster_roles = Patterns::read(text);
        Ok(())
    }),
    ("generateSuccessEvents", |to, text| {
        to.events.success = read_flag(text)?;
        Ok(())
    }),
    ("successEventActions", |to, text| {
        to.events.actions = words(text).collect();
        Ok(())
    }),
    ("webhooks", Settings::set_webhooks),
    ("matchConditions", |to, text| {
        to.webhooks.match_conditions = read_conditions(text)?;
        Ok(())
    }),
    ("webhookLabels", |to, text| {
        to.webhooks.labels = read_texts(text)?;
        Ok(())
    }),
    ("webhookAnnotations", |to, text| {
        to.webhooks.annotations = read_texts(text)?;
        Ok(())
    }),
    ("maxContextSize", |to, text| {
        to.limits.context_bytes = read_size(text)?;
        Ok(())
    }),
    ("kiln.authorRights", |to, text| {
        to.authors = Authors::read(text).map_err(SettingError::ReadAuthors)?;
        Ok(())
    }),
    ("kiln.maxReviewSize", |to, text| {
        let bytes = usize::try_from(read_size(text)?).unwrap_or(usize::MAX);
        to.review_bytes = bytes.max(1 << 20);
        Ok(())
    }),
    ("kiln.maxSteps", |to, text| {
        let steps = text.trim().parse();
        to.limits.steps = steps.map_err(|_| SettingError::ReadNumber(text.to_owned()))?;
        Ok(())
    }),
    ("kiln.protectedNamespaces", |to, text| {
        to.protected_namespaces = words(text).collect();
        Ok(())
    }),
    ("kiln.exceptionNamespaces", |to, text| {
        to.exception_namespaces = words(text).collect();
        Ok(())
    }),
    ("kiln.services", |to, text| {
        to.services = HostAllowlist::read(text).map_err(SettingError::ReadServices)?;
        Ok(())
    }),
    ("kiln.policyReports", |to, text| {
        to.reporting.reports = read_flag(text)?;
        Ok(())
    }),
    ("kiln.admissionReports", |to, text| {
        to.reporting.admission = read_flag(text)?;
        Ok(())
    }),
    ("kiln.enableReporting", |to, text| to.reporting.set_rules(text)),
    ("kiln.allowedResults", |to, text| to.reporting.set_results(text)),
    ("kiln.backgroundScan", |to, text| {
        to.reporting.scan = read_flag(text)?;
        Ok(())
    }),
    ("kiln.backgroundScanInterval", |to, text| to.reporting.set_interval(text)),
    ("kiln.skipResourceFilters", |to, text| {
        to.reporting.filtered = !read_flag(text)?;
        Ok(())
    }),
    ("kiln.omitEvents", |to, text| to.reporting.set_omitted_events(text)),
    ("kiln.generateValidatingAdmissionPolicy", |to, text| {
        to.reporting.native_policies = read_flag(text)?;
        Ok(())
    }),
];

impl Settings {
    /// What counts without a ConfigMap.
    pub fn new(namespace: &str) -> Self {
        Settings {
            names: EngineNames::default(),
            namespace: namespace.into(),
            filters: ResourceFilter::usual(namespace),
            excluded: Excluded { groups: Patterns::read("system:nodes"), ..Excluded::default() },
            events: EventSettings::default(),
            webhooks: WebhookSettings {
                namespace_selector: usual_namespaces(namespace),
                object_selector: Value::map(),
                ..WebhookSettings::default()
            },
            limits: EvaluationLimits { steps: STEPS, ..EvaluationLimits::default() },
            review_bytes: REVIEW_BYTES,
            authors: Authors::default(),
            services: HostAllowlist::default(),
            protected_namespaces: usual_protected_namespaces(namespace),
            exception_namespaces: vec![namespace.into()],
            reporting: Reporting::default(),
        }
    }

    /// The settings of an engine that calls its objects so.
    pub fn named(namespace: &str, names: &EngineNames) -> Self {
        Settings { names: names.clone(), ..Settings::new(namespace) }
    }

    /// The user that changes objects in the background.
    pub fn background_user(&self) -> String {
        self.names.user(&self.namespace, "background-controller")
    }

    /// The user that deletes objects whose time has come.
    pub fn cleanup_user(&self) -> String {
        self.names.user(&self.namespace, "cleanup-controller")
    }

    /// The user that answers admission requests.
    pub fn admission_user(&self) -> String {
        self.names.user(&self.namespace, "admission-controller")
    }

    /// Whether an exception holds. A user who may store one in some namespace must not switch off rules for the whole cluster:
    /// elsewhere an exception is for policies of its own namespace.
    pub fn holds(&self, exception: &Exception) -> bool {
        let Some((namespace, _)) = exception.name.split_once('/') else { return true };
        let is_own = |policy: &str| policy.split_once('/').is_some_and(|(of, _)| of == namespace);
        self.exception_namespaces.iter().any(|pattern| wildcard::matches(pattern, namespace))
            || exception.rules.iter().all(|excepted| is_own(&excepted.policy))
    }

    /// The exceptions that hold.
    pub fn in_force(&self, exceptions: &[Arc<Exception>]) -> Vec<Arc<Exception>> {
        exceptions.iter().filter(|exception| self.holds(exception)).cloned().collect()
    }

    /// The settings of a ConfigMap, and what is wrong with it. What cannot be read stays as it is here.
    #[must_use]
    pub fn read(&self, config_map: Option<&Value>) -> (Settings, Vec<String>) {
        let mut settings = Settings::named(&self.namespace, &self.names);
        let mut warnings = Vec::new();
        let Some(data) = config_map.and_then(|map| map.get("data")).and_then(Value::as_map) else {
            return (settings, warnings);
        };
        for (key, value) in data {
            let Some(text) = value.as_str() else { continue };
            if let Err(why) = settings.set(key, text) {
                let config_map = self.names.config_map();
                warnings.push(format!("{key} of ConfigMap {}/{config_map}: {why}", self.namespace));
                settings.keep(key, self);
            }
        }
        (settings, warnings)
    }

    /// Sets one key. Keys that mean nothing here are skipped.
    fn set(&mut self, key: &str, text: &str) -> Result<(), SettingError> {
        match KEYS.iter().find(|(known, _)| *known == key) {
            Some((_, set)) => set(self, text),
            None => Ok(()),
        }
    }

    fn keep(&mut self, key: &str, old: &Settings) {
        match key {
            "resourceFilters" => self.filters = old.filters.clone(),
            "generateSuccessEvents" => self.events.success = old.events.success,
            "webhooks" => {
                self.webhooks.namespace_selector = old.webhooks.namespace_selector.clone();
                self.webhooks.object_selector = old.webhooks.object_selector.clone();
            }
            "matchConditions" => {
                self.webhooks.match_conditions.clone_from(&old.webhooks.match_conditions);
            }
            "webhookLabels" => self.webhooks.labels = old.webhooks.labels.clone(),
            "webhookAnnotations" => self.webhooks.annotations = old.webhooks.annotations.clone(),
            "maxContextSize" => self.limits.context_bytes = old.limits.context_bytes,
            "kiln.maxReviewSize" => self.review_bytes = old.review_bytes,
            "kiln.authorRights" => self.authors = old.authors,
            "kiln.maxSteps" => self.limits.steps = old.limits.steps,
            "kiln.services" => self.services = old.services.clone(),
            "kiln.policyReports" => self.reporting.reports = old.reporting.reports,
            "kiln.admissionReports" => self.reporting.admission = old.reporting.admission,
            "kiln.enableReporting" => self.reporting.rules.clone_from(&old.reporting.rules),
            "kiln.allowedResults" => self.reporting.results.clone_from(&old.reporting.results),
            "kiln.backgroundScan" => self.reporting.scan = old.reporting.scan,
            "kiln.backgroundScanInterval" => self.reporting.interval = old.reporting.interval,
            "kiln.skipResourceFilters" => self.reporting.filtered = old.reporting.filtered,
            "kiln.generateValidatingAdmissionPolicy" => {
                self.reporting.native_policies = old.reporting.native_policies;
            }
            "kiln.omitEvents" => {
                self.reporting.omitted_events.clone_from(&old.reporting.omitted_events);
            }
            _ => {}
        }
    }

    fn set_webhooks(&mut self, text: &str) -> Result<(), SettingError> {
        let read = read_document(text)?;
        // Kyverno: older releases wrote a list with one entry.
        let one = read.index(0).cloned().unwrap_or(read);
        if !matches!(one, Value::Map(_)) {
            return Err(SettingError::WrongShape(
                "a map with namespaceSelector and objectSelector",
            ));
        }
        for (key, place) in [
            ("namespaceSelector", &mut self.webhooks.namespace_selector),
            ("objectSelector", &mut self.webhooks.object_selector),
        ] {
            let Some(selector) = one.get(key).filter(|selector| !selector.is_null()) else {
                continue;
            };
            Selector::from_value(selector)
                .map_err(|source| SettingError::ReadSelector { key, source })?;
            *place = selector.clone();
        }
        Ok(())
    }

    /// Whether no rule sees an object.
    pub fn filters_out(&self, kind: &Gvk, subresource: &str, namespace: &str, name: &str) -> bool {
        self.filters.iter().any(|filter| filter.takes(kind, subresource, namespace, name))
    }
}

impl Excluded {
    /// Whether no rule sees requests of a user. Roles count as far as they are known.
    pub fn holds(&self, user: &User) -> bool {
        let name = std::slice::from_ref(&user.username);
        let lists = [
            (&self.groups, user.groups.as_slice()),
            (&self.usernames, name),
            (&self.roles, user.roles.as_slice()),
            (&self.cluster_roles, user.cluster_roles.as_slice()),
        ];
        // Kyverno: a user whom one list includes again is included.
        let meets = |patterns: &[Str], values: &[Str]| {
            patterns.iter().any(|p| values.iter().any(|value| wildcard::matches(p, value)))
        };
        !lists.iter().any(|(patterns, values)| meets(&patterns.back_in, values))
            && lists.iter().any(|(patterns, values)| meets(&patterns.out, values))
    }

    /// Whether the list is empty.
    pub fn is_empty(&self) -> bool {
        *self == Excluded::default()
    }

    /// Whether roles must be known.
    pub fn asks_for_roles(&self) -> bool {
        self.roles != Patterns::default() || self.cluster_roles != Patterns::default()
    }
}

impl Patterns {
    /// Reads a list with commas.
    pub fn read(text: &str) -> Self {
        let mut patterns = Patterns::default();
        for word in words(text) {
            match word.strip_prefix('!') {
                Some(back_in) => patterns.back_in.push(back_in.into()),
                None => patterns.out.push(word),
            }
        }
        patterns
    }
}

/// The selector that leaves out what the cluster and the engine live on.
fn usual_namespaces(namespace: &str) -> Value {
    let without = |namespace: &str| value!({"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": [namespace]});
    let mut selector = Map::new();
    let mut expressions = vec![without("kube-system")];
    if namespace != "kube-system" {
        expressions.push(without(namespace));
    }
    selector.insert("matchExpressions", Value::from_iter(expressions));
    Value::Map(selector)
}

#[cfg(test)]
mod tests {
    use kiln_rules::{Dialect, ExceptedRules};

    use super::*;

    fn config(key: &str, text: &str) -> Value {
        let mut data = Map::new();
        data.insert(key, text);
        let mut map = Map::new();
        map.insert("data", data);
        Value::Map(map)
    }

    fn pod() -> Gvk {
        Gvk::new("v1", "Pod")
    }

    #[test]
    fn the_reference_has_a_row_for_every_key() {
        let page = kiln_testkit::project_root().join("docs/reference/configmap.md");
        let page = std::fs::read_to_string(page).unwrap();
        let cells = page.lines().filter_map(|line| line.strip_prefix("| `")?.split('|').next());
        let documented: Vec<&str> = cells.flat_map(|cell| cell.split('`').step_by(2)).collect();
        for (key, _) in KEYS {
            assert!(documented.contains(key), "docs/reference/configmap.md has no row for {key}");
        }
        for key in documented.iter().filter(|key| !key.trim().is_empty()) {
            let is_known = KEYS.iter().any(|(known, _)| known == key);
            assert!(is_known, "docs/reference/configmap.md has {key}, which is not read");
        }
    }

    #[test]
    fn filters_are_read_as_kyverno_writes_them() {
        let text =
            "[Event,*,*] [*/*,kube-system,*]\n[Pod/binding,*,*][Node/?*,*,*][Secret,ns,kiln-?*]";
        let (settings, warnings) =
            Settings::new("kyverno").read(Some(&config("resourceFilters", text)));
        assert_eq!(warnings, Vec::<String>::new());
        assert_eq!(settings.filters.len(), 5);
        let node = Gvk::new("v1", "Node");
        let namespace = Gvk::new("v1", "Namespace");
        for (kind, subresource, namespace, name, out) in [
            (pod(), "", "kube-system", "a", true),
            (pod(), "exec", "kube-system", "a", true),
            (pod(), "", "dev", "a", false),
            (pod(), "binding", "dev", "a", true),
            (node.clone(), "status", "", "n", true),
            (node, "", "", "n", false),
            (Gvk::new("v1", "Secret"), "", "ns", "kiln-x", true),
            (Gvk::new("v1", "Secret"), "", "ns", "kiln-", false),
            (namespace.clone(), "", "", "kube-system", true),
            (namespace, "", "dev", "dev", false),
        ] {
            assert_eq!(
                settings.filters_out(&kind, subresource, namespace, name),
                out,
                "{kind} {subresource} {namespace}/{name}"
            );
        }
    }

    #[test]
    fn a_broken_value_leaves_the_old_one() {
        let (old, _) = Settings::new("kyverno").read(Some(&config("resourceFilters", "[Pod,*,*]")));
        for (key, text) in [
            ("resourceFilters", "[Pod,*,*] Secret"),
            ("resourceFilters", "[a,b,c,d]"),
            ("generateSuccessEvents", "yes"),
            (
                "webhooks",
                "{\"namespaceSelector\": {\"matchExpressions\": [{\"key\": \"a\", \"operator\": \"Is\"}]}}",
            ),
            ("webhooks", "[1]"),
            ("matchConditions", "[{\"name\": \"a\"}]"),
            ("webhookLabels", "{\"a\": 1}"),
            ("maxContextSize", "-4Mi"),
            ("kiln.maxSteps", "many"),
            ("kiln.authorRights", "some"),
            ("kiln.services", "http://a"),
            ("kiln.policyReports", "off"),
            ("kiln.enableReporting", "validate,images"),
            ("kiln.allowedResults", "good"),
            ("kiln.backgroundScanInterval", "often"),
            ("kiln.omitEvents", "all"),
        ] {
            let (new, warnings) = old.read(Some(&config(key, text)));
            assert_eq!(warnings.len(), 1, "{key} {text}");
            assert!(warnings[0].starts_with(&format!("{key} of ConfigMap kyverno/kyverno: ")));
            let filtered = |settings: &Settings| settings.filters_out(&pod(), "", "dev", "a");
            assert_eq!(filtered(&new), key == "resourceFilters", "{key}");
            assert_eq!(new.webhooks, old.webhooks);
            assert_eq!(new.limits, old.limits);
        }
    }

    #[test]
    fn values_of_all_keys_are_taken() {
        let settings = Settings::new("kyverno");
        let read = |key: &str, text: &str| {
            let (settings, warnings) = settings.read(Some(&config(key, text)));
            assert_eq!(warnings, Vec::<String>::new(), "{key}");
            settings
        };
        assert!(read("generateSuccessEvents", "true").events.success);
        let selector = "{\"namespaceSelector\":{\"matchLabels\":{\"a\":\"b\"}}}";
        assert_eq!(
            read("webhooks", selector).webhooks.namespace_selector,
            value!({"matchLabels": {"a": "b"}})
        );
        assert_eq!(read("webhookAnnotations", "{\"a\": \"b\"}").webhooks.annotations.len(), 1);
        assert!(!read("kiln.services", "prices.shop.svc:8080, *.example.com").services.is_empty());
        let protected_namespaces =
            read("kiln.protectedNamespaces", "kube-system, openshift-*").protected_namespaces;
        assert_eq!(protected_namespaces, ["kube-system", "openshift-*"]);
        assert!(read("kiln.protectedNamespaces", "").protected_namespaces.is_empty());
        assert!(read("kiln.services", "").protected_namespaces.contains(&"kube-public".into()));
        assert_eq!(read("maxContextSize", "4Mi").limits.context_bytes, 4 << 20);
        assert!(!read("kiln.policyReports", "false").reporting.reports);
        assert!(!read("kiln.admissionReports", "false").reporting.admission);
        assert_eq!(read("kiln.enableReporting", "generate").reporting.rules.len(), 1);
        assert_eq!(read("kiln.allowedResults", "fail,error").reporting.results.len(), 2);
        assert!(!read("kiln.backgroundScan", "false").reporting.scan);
        assert_eq!(read("kiln.backgroundScanInterval", "30m").reporting.interval, 1_800);
        assert!(read("kiln.skipResourceFilters", "false").reporting.filtered);
        assert_eq!(read("kiln.omitEvents", "PolicyApplied").reporting.omitted_events.len(), 1);
        let conditions = "- name: a\n  expression: 'true'\n";
        assert_eq!(read("matchConditions", conditions).webhooks.match_conditions.len(), 1);
        assert_eq!(read("defaultRegistry", "docker.io").filters.len(), settings.filters.len());
    }

    #[test]
    fn exceptions_hold_for_all_policies_in_some_namespaces_only() {
        let exception = |name: &str, policies: &[&str]| Exception {
            name: name.into(),
            rules: policies
                .iter()
                .map(|policy| ExceptedRules {
                    dialect: Dialect::Kyverno,
                    policy: (*policy).into(),
                    rules: vec!["*".into()],
                })
                .collect(),
            ..text_exception()
        };
        let usual = Settings::new("engine");
        let (some, _) = usual.read(Some(&config("kiln.exceptionNamespaces", "team-*, ops")));
        let (none, _) = usual.read(Some(&config("kiln.exceptionNamespaces", "")));
        for (name, policies, holds) in [
            ("engine/e", &["of-cluster"][..], [true, false, false]),
            ("team-a/e", &["of-cluster"], [false, true, false]),
            ("attacker/e", &["of-cluster"], [false, false, false]),
            ("attacker/e", &["attacker/own", "of-cluster"], [false, false, false]),
            ("attacker/e", &["other/policy"], [false, false, false]),
            ("attacker/e", &["attacker/own"], [true, true, true]),
            ("given-as-a-file", &["of-cluster"], [true, true, true]),
        ] {
            let exception = exception(name, policies);
            let found = [&usual, &some, &none].map(|settings| settings.holds(&exception));
            assert_eq!(found, holds, "{name} for {policies:?}");
        }
    }

    fn text_exception() -> Exception {
        let text = "apiVersion: kyverno.io/v2\nkind: PolicyException\nmetadata: {name: e}\nspec:\n  \
                    exceptions: [{policyName: p, ruleNames: [r]}]\n  match: {any: [{resources: {kinds: [Pod]}}]}\n";
        let documents =
            kiln_yaml::read_bytes("e.yaml", text.as_bytes(), kiln_yaml::ReadOptions::kubernetes());
        let compiled = kiln_dialects::compile(&documents.unwrap(), &kiln_object::Kinds::builtin());
        Exception::clone(&compiled.exceptions[0])
    }

    #[test]
    fn people_are_excluded_and_let_in_again() {
        let user = |name: &str, groups: &[&str]| User {
            username: name.into(),
            groups: groups.iter().map(|group| Str::from(*group)).collect(),
            cluster_roles: vec!["edit".into()],
            ..User::default()
        };
        let excluded = Excluded {
            groups: Patterns::read("system:nodes, team:*,!team:a"),
            usernames: Patterns::read("bot-*"),
            roles: Patterns::default(),
            cluster_roles: Patterns::read("cluster-admin"),
        };
        assert!(excluded.asks_for_roles());
        for (name, groups, out) in [
            ("ann", &["system:nodes"][..], true),
            ("ann", &["team:b"], true),
            ("ann", &["team:a", "team:b"], false),
            ("bot-1", &[], true),
            ("bot-1", &["team:a"], false),
            ("ann", &[], false),
        ] {
            assert_eq!(excluded.holds(&user(name, groups)), out, "{name} {groups:?}");
        }
        let nodes = Settings::new("kyverno").excluded;
        assert!(nodes.holds(&user("n", &["system:nodes"])));
        assert!(!nodes.asks_for_roles());
    }
}
