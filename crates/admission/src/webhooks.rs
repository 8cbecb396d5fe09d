//! The webhook configurations that rules need, as objects to publish.
//!
//! Everything is written out, also what an API server would fill in, so that comparing the stored configuration with what
//! should be needs no knowledge of defaults. Names are those that Kyverno's users and tests know.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kiln_cleanup::TTL_LABEL;
use kiln_object::policy_kinds::{OWN_GROUP, POLICY_KINDS, PolicyFamily, PolicyKind, PolicyRole};
use kiln_object::{EngineNames, Kind, Kinds};
use kiln_rules::{
    AdmissionPart, FailurePolicy, Filter, Filters, Modify, Operation, Operations, Policy, Program,
    Rule,
};
use kiln_value::{Map, Str, Value, value};

use crate::authors::{AUTHOR_PATH, Authors};
use crate::hooks::{Hook, HookCall, Hooks, Purpose};
use crate::named_resources::resources;
use crate::settings::Settings;

/// The path at which policies are checked.
pub const POLICY_PATH: &str = "/policyvalidate";
/// The path at which values of the TTL label are checked.
pub const TTL_PATH: &str = "/verifyttl";
/// The label on every configuration.
pub const MANAGED_BY: &str = "webhook.kyverno.io/managed-by";

/// Whether reviews are answered at a path.
pub fn is_served(path: &str) -> bool {
    [POLICY_PATH, AUTHOR_PATH, TTL_PATH].contains(&path) || Hooks::knows(path)
}

/// Where an API server finds the webhooks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    Service {
        namespace: Str,
        name: Str,
        port: u16,
    },
    /// By a URL, without a path.
    Url(String),
}

impl Address {
    /// The Service that Kyverno has.
    pub fn usual(namespace: &str) -> Self {
        Address::Service { namespace: namespace.into(), name: "kyverno-svc".into(), port: 443 }
    }

    fn client_config(&self, path: &str, ca_bundle: &str) -> Value {
        let mut config = Map::new();
        match self {
            Address::Service { namespace, name, port } => {
                let mut service = Map::new();
                service.insert("name", name.clone());
                service.insert("namespace", namespace.clone());
                service.insert("path", path);
                service.insert("port", u64::from(*port));
                config.insert("service", service);
            }
            Address::Url(base) => {
                config.insert("url", format!("{}{path}", base.trim_end_matches('/')));
            }
        }
        config.insert("caBundle", ca_bundle);
        Value::Map(config)
    }
}

/// All configurations that are to be there. One without webhooks is to be there as well, so that what was in it
/// is gone.
pub fn configurations(
    hooks: &Hooks,
    settings: &Settings,
    address: &Address,
    ca_bundle: &str,
) -> Vec<Value> {
    let of = |purpose: Purpose| -> Vec<Value> {
        let mut hooks: Vec<&Hook> =
            hooks.iter().filter(|hook| hook.webhook.purpose == purpose).collect();
        hooks.sort_by(|a, b| a.webhook.name.cmp(&b.webhook.name));
        // A webhook without rules is never called; kinds that are not served yet make such.
        let hooks = hooks.into_iter().filter(|hook| !hook.webhook.rules.is_empty());
        hooks.map(|hook| webhook(&hook.webhook, address, ca_bundle)).collect()
    };
    let policies = vec![policy_webhook(&settings.names, address, ca_bundle)];
    let authors = author_webhook(settings.authors, &settings.names, address, ca_bundle);
    let names = settings.names.webhook_configurations();
    // Beside Kyverno, the label is for its cleanup controller.
    let labels = settings.names.stands_for_kyverno().then(|| ttl_webhook(address, ca_bundle));
    let webhooks = [
        of(Purpose::Mutate),
        of(Purpose::Observe),
        policies,
        authors.into_iter().collect(),
        labels.into_iter().collect(),
    ];
    let both = names.into_iter().zip(webhooks);
    both.map(|((kind, name), webhooks)| configuration(kind, &name, webhooks, settings)).collect()
}

/// Whether a configuration that is there is as it should be: what others added to its metadata does not count.
pub fn is_current(there: &Value, wanted: &Value) -> bool {
    let pairs = |object: &Value, key: &str| {
        object.get_path(["metadata", key]).and_then(Value::as_map).cloned().unwrap_or_default()
    };
    let held = |key: &str| {
        let there = pairs(there, key);
        pairs(wanted, key).iter().all(|(key, value)| there.get(key) == Some(value))
    };
    there.get("webhooks").filter(|list| !list.is_null()).unwrap_or(&Value::list())
        == wanted.get("webhooks").unwrap_or(&Value::list())
        && held("labels")
        && held("annotations")
}

fn configuration(kind: &str, name: &str, webhooks: Vec<Value>, settings: &Settings) -> Value {
    let mut labels = settings.webhooks.labels.clone();
    labels.insert(MANAGED_BY, settings.names.name());
    let mut annotations = settings.webhooks.annotations.clone();
    // Some clouds change webhook configurations unless an annotation tells them not to.
    annotations.insert("admissions.enforcer/disabled", "true");
    let mut metadata = Map::new();
    metadata.insert("name", name);
    metadata.insert("labels", labels);
    metadata.insert("annotations", annotations);
    let mut object = Map::new();
    object.insert("apiVersion", "admissionregistration.k8s.io/v1");
    object.insert("kind", kind);
    object.insert("metadata", metadata);
    object.insert("webhooks", Value::from_iter(webhooks));
    Value::Map(object)
}

fn webhook(call: &HookCall, address: &Address, ca_bundle: &str) -> Value {
    let mut webhook = Map::new();
    webhook.insert("name", call.name.as_str());
    webhook.insert("admissionReviewVersions", value!(["v1"]));
    webhook.insert("clientConfig", address.client_config(&call.path, ca_bundle));
    webhook.insert("failurePolicy", call.failure.to_string());
    if !call.match_conditions.is_empty() {
        webhook.insert("matchConditions", Value::from_iter(call.match_conditions.iter().cloned()));
    }
    webhook.insert("matchPolicy", if call.exact { "Exact" } else { "Equivalent" });
    webhook.insert("namespaceSelector", call.namespace_selector.clone());
    webhook.insert("objectSelector", call.object_selector.clone());
    if call.purpose == Purpose::Mutate {
        webhook.insert("reinvocationPolicy", if call.reinvoked { "IfNeeded" } else { "Never" });
    }
    webhook.insert("rules", Value::from_iter(call.rules.iter().cloned()));
    // Observing stores requests, though never those of a dry run.
    webhook.insert("sideEffects", "NoneOnDryRun");
    webhook.insert("timeoutSeconds", u64::from(call.timeout));
    Value::Map(webhook)
}

fn on_policies(group: &str, resources: &[&str]) -> Value {
    let mut rule = Map::new();
    rule.insert("apiGroups", Value::from_iter([group]));
    rule.insert("apiVersions", value!(["*"]));
    rule.insert("operations", value!(["CREATE", "UPDATE"]));
    rule.insert("resources", Value::from_iter(resources.iter().copied()));
    rule.insert("scope", "*");
    Value::Map(rule)
}

/// A webhook for policies, without which none is stored.
///
/// It fails closed whatever the settings say: a policy that is stored unchecked acts with the engine's permissions, and
/// one without a recorded author is not held to any user's. Refused requests can be repeated when a replica is back.
fn for_policies(
    name: &str,
    path: &str,
    rules: Vec<Value>,
    address: &Address,
    ca_bundle: &str,
) -> Map {
    let mut webhook = Map::new();
    webhook.insert("name", name);
    webhook.insert("admissionReviewVersions", value!(["v1"]));
    webhook.insert("clientConfig", address.client_config(path, ca_bundle));
    webhook.insert("failurePolicy", FailurePolicy::Fail.to_string());
    webhook.insert("matchPolicy", "Equivalent");
    webhook.insert("namespaceSelector", Value::map());
    webhook.insert("objectSelector", Value::map());
    webhook.insert("rules", Value::from_iter(rules));
    webhook.insert("sideEffects", "None");
    webhook.insert("timeoutSeconds", 10);
    webhook
}

/// The resources of policies of these kinds, by group: Kyverno's if their policies are run, then Kiln's own.
fn policy_rules(names: &EngineNames, is_wanted: impl Fn(&PolicyKind) -> bool) -> Vec<Value> {
    let wanted = || POLICY_KINDS.iter().filter(|row| is_wanted(row));
    let of_group = |group: &str| -> Vec<&str> {
        wanted().filter(|row| row.kyverno_group() == group).map(|row| row.plural).collect()
    };
    let mut rules = Vec::new();
    if names.stands_for_kyverno() {
        for group in ["kyverno.io", "policies.kyverno.io"] {
            rules.push(on_policies(group, &of_group(group)));
        }
    }
    let own: BTreeSet<&str> = wanted().filter(|row| row.own).map(|row| row.plural).collect();
    rules.push(on_policies(OWN_GROUP, &own.into_iter().collect::<Vec<_>>()));
    rules
}

/// The webhook that writes down who stores policies: their rules write, delete, and show what they read.
/// Whatever kinds a namespace has policies of must be among them: without an author they have the engine's permissions.
fn author_webhook(
    authors: Authors,
    names: &EngineNames,
    address: &Address,
    ca_bundle: &str,
) -> Option<Value> {
    let is_run = |row: &PolicyKind| {
        matches!(row.role, PolicyRole::Acts | PolicyRole::Checks | PolicyRole::Deletes)
    };
    let rules = match authors {
        Authors::Off => return None,
        Authors::Namespaced => policy_rules(names, |row| is_run(row) && row.namespaced),
        Authors::All => policy_rules(names, is_run),
    };
    let name = "mutate-policy.kyverno.svc";
    let mut webhook = for_policies(name, AUTHOR_PATH, rules, address, ca_bundle);
    webhook.insert("reinvocationPolicy", "IfNeeded");
    Some(Value::Map(webhook))
}

/// The webhook that checks policies of all languages before they are stored.
fn policy_webhook(names: &EngineNames, address: &Address, ca_bundle: &str) -> Value {
    let is_checked = |row: &PolicyKind| match row.role {
        // Policies about images are only warned about: they are not run.
        PolicyRole::Acts | PolicyRole::Checks | PolicyRole::Deletes | PolicyRole::NotRun => true,
        PolicyRole::Exempts => row.family == PolicyFamily::Rules,
        PolicyRole::Data | PolicyRole::Request => false,
    };
    let mut rules = policy_rules(names, is_checked);
    rules.push(on_policies("api.kubemod.io", &["modrules"]));
    let name = "validate-policy.kyverno.svc";
    Value::Map(for_policies(name, POLICY_PATH, rules, address, ca_bundle))
}

/// The webhook that warns of values of the TTL label that cannot be read. It never denies: a request that it does not
/// answer goes through.
fn ttl_webhook(address: &Address, ca_bundle: &str) -> Value {
    let rule = value!({
        "apiGroups": ["*"], "apiVersions": ["*"], "operations": ["CREATE", "UPDATE"], "resources": ["*"], "scope": "*",
    });
    let name = "validate-ttl.kyverno.svc";
    let mut webhook = for_policies(name, TTL_PATH, vec![rule], address, ca_bundle);
    webhook.insert("failurePolicy", FailurePolicy::Ignore.to_string());
    let has_label = value!({"matchExpressions": [{"key": TTL_LABEL, "operator": "Exists"}]});
    webhook.insert("objectSelector", has_label);
    Value::Map(webhook)
}

/// One selector for what several ask.
pub(crate) fn joined_selectors<const N: usize>(selectors: [Option<&Value>; N]) -> Value {
    let (mut labels, mut expressions) = (Map::new(), Vec::new());
    for selector in selectors.into_iter().flatten() {
        if let Some(Value::Map(more)) = selector.get("matchLabels") {
            for (key, value) in more {
                // Two values of one label can never both hold; as expressions they say so.
                match labels.get(key) {
                    Some(known) if known != value => {
                        let (key, value) = (Value::from(key.as_str()), value.clone());
                        let mut expression = Map::new();
                        expression.insert("key", key);
                        expression.insert("operator", "In");
                        expression.insert("values", Value::from_iter([value]));
                        expressions.push(Value::Map(expression));
                    }
                    _ => drop(labels.insert(key.clone(), value.clone())),
                }
            }
        }
        if let Some(Value::List(more)) = selector.get("matchExpressions") {
            expressions.extend(
                more.iter().filter(|e| !expressions.contains(e)).cloned().collect::<Vec<_>>(),
            );
        }
    }
    let mut joined = Map::new();
    if !expressions.is_empty() {
        joined.insert("matchExpressions", Value::from_iter(expressions));
    }
    if !labels.is_empty() {
        joined.insert("matchLabels", labels);
    }
    Value::Map(joined)
}

/// A selector of namespaces by name.
pub(crate) fn only_in(namespaces: &[&str]) -> Value {
    let mut expression = Map::new();
    expression.insert("key", "kubernetes.io/metadata.name");
    expression.insert("operator", "In");
    expression.insert("values", Value::from_iter(namespaces.iter().copied()));
    let mut selector = Map::new();
    selector.insert("matchExpressions", Value::from_iter([Value::Map(expression)]));
    Value::Map(selector)
}

/// Groups, versions, scope and operations that resources have in common.
type Common = (Vec<String>, Vec<String>, &'static str, Vec<&'static str>);

/// The resources and operations that policies name, as a webhook configuration has them.
pub(crate) fn webhook_rules(members: &[Arc<Policy>], kinds: &Kinds) -> Vec<Value> {
    let mut asked: BTreeMap<Common, BTreeSet<String>> = BTreeMap::new();
    // Kyverno: what policies that check objects write is not put together.
    let mut written = BTreeSet::new();
    for policy in members {
        if let Some(rules) = &policy.delivery.resource_rules {
            let part =
                policy.rules.first().map_or(AdmissionPart::Observe, |rule| AdmissionPart::of(rule));
            for rule in rules {
                let (common, resources) = as_written(rule, part);
                if part == AdmissionPart::Validate {
                    let (groups, versions, scope, operations) = common;
                    written.insert((groups, versions, resources, scope, operations));
                } else {
                    asked.entry(common).or_default().extend(resources);
                }
            }
            continue;
        }
        for rule in &policy.rules {
            let stays = rule.scope.namespace().is_some();
            let operations = operations(rule);
            if let Program::Modify(modify) = &rule.program {
                let scope = if stays { "Namespaced" } else { "*" };
                for (group, resource) in modified(modify, stays, kinds) {
                    // KubeMod: rules see objects in the version in which they are sent.
                    let common = (vec![group], vec!["*".to_owned()], scope, words(operations));
                    asked.entry(common).or_default().insert(resource);
                }
                continue;
            }
            for pattern in rule.trigger.include.filters().iter().flat_map(|filter| &filter.kinds) {
                for named in resources(pattern, kinds) {
                    let scope = if stays || named.namespaced { "Namespaced" } else { "*" };
                    let common = (vec![named.group], vec![named.version], scope, words(operations));
                    asked.entry(common).or_default().insert(named.resource);
                }
            }
        }
    }
    asked.retain(|(_, _, _, operations), _| !operations.is_empty());
    drop_covered(&mut asked);
    let asked = asked.into_iter().map(|((groups, versions, scope, operations), resources)| {
        (groups, versions, resources.into_iter().collect(), scope, operations)
    });
    let all: Vec<_> = asked.chain(written).collect();
    all.into_iter()
        .map(|(groups, versions, resources, scope, operations): Written| {
            let mut rule = Map::new();
            rule.insert("apiGroups", Value::from_iter(groups));
            rule.insert("apiVersions", Value::from_iter(versions));
            rule.insert("operations", Value::from_iter(operations));
            rule.insert("resources", Value::from_iter(resources));
            rule.insert("scope", scope);
            Value::Map(rule)
        })
        .collect()
}

/// Groups, versions, resources, scope and operations of a rule.
type Written = (Vec<String>, Vec<String>, Vec<String>, &'static str, Vec<&'static str>);

/// Takes out resources in namespaces that are asked about wherever they are.
fn drop_covered(asked: &mut BTreeMap<Common, BTreeSet<String>>) {
    let everywhere: Vec<(Common, BTreeSet<String>)> = asked
        .iter()
        .filter(|((_, _, scope, _), _)| *scope == "*")
        .map(|(common, resources)| (common.clone(), resources.clone()))
        .collect();
    for ((groups, versions, _, operations), covered) in everywhere {
        let narrow = (groups, versions, "Namespaced", operations);
        if let Some(resources) = asked.get_mut(&narrow) {
            resources.retain(|resource| !covered.contains(resource));
        }
    }
    asked.retain(|_, resources| !resources.is_empty());
}

/// What a policy itself writes in the form of a webhook's rule.
fn as_written(rule: &Value, part: AdmissionPart) -> (Common, Vec<String>) {
    let list = |key: &str| -> Vec<String> {
        let list = rule.get(key).and_then(Value::as_list);
        list.into_iter()
            .flat_map(|l| l.iter())
            .filter_map(Value::as_str)
            .map(str::to_owned)
            .collect()
    };
    let scope = match rule.str_at(["scope"]) {
        Some("Cluster") => "Cluster",
        Some("Namespaced") => "Namespaced",
        _ => "*",
    };
    let named = list("operations");
    let any = named.is_empty() || named.iter().any(|word| word == "*");
    // Kyverno: a trigger that stops matching must be heard of whatever the policy names.
    let operations = match part {
        AdmissionPart::Mutate | AdmissionPart::Validate if !any => {
            named.iter().filter_map(|word| word.parse().ok()).collect()
        }
        _ => Operations::ALL,
    };
    ((list("apiGroups"), list("apiVersions"), scope, words(operations)), list("resources"))
}

/// The operations in which a rule wants to be asked.
fn operations(rule: &Rule) -> Operations {
    let named = rule.trigger.named_operations();
    let all_name_some =
        rule.trigger.include.filters().iter().all(|filter| !filter.operations.is_empty());
    let usual: Operations = match &rule.program {
        Program::Mutate(_) | Program::Modify(_) => {
            [Operation::Create, Operation::Update].into_iter().collect()
        }
        _ => Operations::ALL,
    };
    let asked = if all_name_some { named } else { named.union(usual) };
    let asked = match &rule.program {
        Program::Validate(_) => {
            let excluded = excluded_operations(rule);
            asked.iter().filter(|operation| !excluded.contains(*operation)).collect()
        }
        _ => asked,
    };
    if rule.lifecycle.synchronize {
        // What was made goes when its trigger does, or stops being one.
        let ends: Operations = [Operation::Update, Operation::Delete].into_iter().collect();
        return asked.union(ends);
    }
    asked
}

/// The operations that a rule excludes whatever the object is.
fn excluded_operations(rule: &Rule) -> Operations {
    let Filters::Any(filters) = &rule.trigger.exclude else { return Operations::NONE };
    let by_operation = |filter: &&Filter| {
        let others = Filter { operations: Operations::NONE, ..Filter::clone(filter) };
        others.is_empty()
    };
    let excluded = filters.iter().filter(by_operation);
    excluded.fold(Operations::NONE, |all, filter| all.union(filter.operations))
}

/// In the order in which an API server's users see them.
fn words(operations: Operations) -> Vec<&'static str> {
    let mut words: Vec<&str> = operations.iter().map(Operation::as_str).collect();
    words.sort_unstable();
    words
}

/// Group and resource of every kind that a rule about objects' own contents can take.
fn modified(modify: &Modify, namespaced: bool, kinds: &Kinds) -> BTreeSet<(String, String)> {
    let named = modify.named_kinds();
    let meant = |kind: &&Kind| match named {
        Some(_) => modify.may_take_kind(kind.kind()),
        // A policy that names no kind does not mean what a cluster and its engines write all the time, nor questions
        // that are not stored.
        None => {
            let stored = kind.verbs().contains(&"list");
            stored && !is_noise(kind) && modify.may_take_kind(kind.kind())
        }
    };
    kinds
        .iter()
        .filter(|kind| kind.is_namespaced() || !namespaced)
        .filter(meant)
        .map(|kind| (kind.group().to_owned(), kind.plural().to_owned()))
        .collect()
}

/// Leases, events, and what the engine keeps.
fn is_noise(kind: &Kind) -> bool {
    let own = ["kyverno.io", OWN_GROUP, "api.kubemod.io", "wgpolicyk8s.io"];
    let group = kind.group();
    matches!(kind.kind(), "Lease" | "Event")
        || own.iter().any(|own| group == *own || group.ends_with(&format!(".{own}")))
}
