//! Numbers under the names that dashboards for Kyverno ask for, with `--kyverno-metrics`.
//!
//! Names, labels and buckets are Kyverno's 1.19. The label `resource_namespace` is left out everywhere, and
//! `resource_request_operation` of durations, as the metricsExposure of its chart says: the number of series must not grow
//! with the number of namespaces.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kiln_admission::{ReviewRequest, ValidationResult};
use kiln_controller::Evaluate;
use kiln_engine::{EvalEnv, Event, RuleOutcome, RuleSet};
use kiln_object::{ObjectId, metadata};
use kiln_rules::{Policy, Program, Rule, RuleId};
use kiln_value::{Str, Value};

use crate::metrics::{Family, Form, Metrics, family};
use crate::policy_store::Registry;
use crate::state::AppState;

/// The upper ends of the buckets that Kyverno counts durations in, in seconds.
pub const KYVERNO_BUCKETS: [f64; 15] =
    [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 20.0, 25.0, 30.0];

const RESULTS: &[&str] = &[
    "policy_validation_mode",
    "policy_type",
    "policy_background_mode",
    "policy_namespace",
    "policy_name",
    "resource_kind",
    "resource_request_operation",
    "rule_name",
    "rule_result",
    "rule_type",
    "rule_execution_cause",
    "dry_run",
];
const RESULTS_IN_TIME: &[&str] = &[
    "policy_validation_mode",
    "policy_type",
    "policy_background_mode",
    "policy_namespace",
    "policy_name",
    "resource_kind",
    "rule_name",
    "rule_result",
    "rule_type",
    "rule_execution_cause",
    "dry_run",
];
const CHECKED: &[&str] = &[
    "policy_validation_mode",
    "policy_background_mode",
    "policy_name",
    "policy_namespace",
    "resource_kind",
    "resource_request_operation",
    "execution_cause",
    "result",
];
const CHECKED_IN_TIME: &[&str] = &[
    "policy_validation_mode",
    "policy_background_mode",
    "policy_name",
    "policy_namespace",
    "resource_kind",
    "execution_cause",
    "result",
];
const CHANGED: &[&str] = &[
    "policy_background_mode",
    "policy_name",
    "policy_namespace",
    "resource_kind",
    "resource_request_operation",
    "execution_cause",
    "result",
];
const CHANGED_IN_TIME: &[&str] = &[
    "policy_background_mode",
    "policy_name",
    "policy_namespace",
    "resource_kind",
    "execution_cause",
    "result",
];
const GENERATED: &[&str] = &[
    "policy_name",
    "policy_namespace",
    "resource_kind",
    "resource_request_operation",
    "execution_cause",
    "result",
];
const GENERATED_IN_TIME: &[&str] =
    &["policy_name", "policy_namespace", "resource_kind", "execution_cause", "result"];
const REQUESTS: &[&str] =
    &["resource_kind", "resource_request_operation", "request_allowed", "request_webhook"];

/// Every number that is kept under Kyverno's names alone.
pub const KYVERNO_FAMILIES: [Family; 17] = [
    family(
        "kyverno_policy_results_total",
        Form::Counter,
        RESULTS,
        "Results of rules of ClusterPolicies and Policies.",
    ),
    family(
        "kyverno_policy_execution_duration_seconds",
        Form::Histogram,
        RESULTS_IN_TIME,
        "How long rules of ClusterPolicies and Policies took.",
    ),
    family(
        "kyverno_validating_policy_results_total",
        Form::Counter,
        CHECKED,
        "Results of ValidatingPolicies.",
    ),
    family(
        "kyverno_validating_policy_execution_duration_seconds",
        Form::Histogram,
        CHECKED_IN_TIME,
        "How long ValidatingPolicies took.",
    ),
    family(
        "kyverno_mutating_policy_results_total",
        Form::Counter,
        CHANGED,
        "Results of MutatingPolicies.",
    ),
    family(
        "kyverno_mutating_policy_execution_duration_seconds",
        Form::Histogram,
        CHANGED_IN_TIME,
        "How long MutatingPolicies took.",
    ),
    family(
        "kyverno_generating_policy_results_total",
        Form::Counter,
        GENERATED,
        "Results of GeneratingPolicies.",
    ),
    family(
        "kyverno_generating_policy_execution_duration_seconds",
        Form::Histogram,
        GENERATED_IN_TIME,
        "How long GeneratingPolicies took.",
    ),
    family(
        "kyverno_policy_rule_info_total",
        Form::Gauge,
        &[
            "rule_name",
            "rule_type",
            "policy_namespace",
            "policy_name",
            "status_ready",
            "policy_validation_mode",
            "policy_type",
            "policy_background_mode",
        ],
        "Rules of stored ClusterPolicies and Policies; always 1.",
    ),
    family(
        "kyverno_policy_changes_total",
        Form::Counter,
        &[
            "policy_validation_mode",
            "policy_type",
            "policy_background_mode",
            "policy_namespace",
            "policy_name",
            "policy_change_type",
        ],
        "Changes of ClusterPolicies and Policies: created, updated or deleted.",
    ),
    family(
        "kyverno_admission_requests_total",
        Form::Counter,
        REQUESTS,
        "Admission requests about objects.",
    ),
    family(
        "kyverno_admission_review_duration_seconds",
        Form::Histogram,
        REQUESTS,
        "How long admission requests about objects took.",
    ),
    family(
        "kyverno_http_requests_total",
        Form::Counter,
        &["http_method", "http_url"],
        "Requests to the webhook server, by method and path.",
    ),
    family(
        "kyverno_http_requests_duration_seconds",
        Form::Histogram,
        &["http_method", "http_url"],
        "How long requests to the webhook server took, by method and path.",
    ),
    family(
        "kyverno_client_queries_total",
        Form::Counter,
        &["operation", "client_type", "resource_kind"],
        "Calls of the controller to the API server, by verb and kind.",
    ),
    family(
        "kyverno_controller_reconcile_total",
        Form::Counter,
        &["controller_name"],
        "Evaluations and scans, by controller.",
    ),
    family("kyverno_info", Form::Gauge, &["version"], "The running version; always 1."),
];

/// Why a rule ran, in Kyverno's words.
#[derive(Clone, Copy)]
pub(crate) enum ExecutionCause {
    Request,
    Background,
}

impl ExecutionCause {
    fn word(self) -> &'static str {
        match self {
            ExecutionCause::Request => "admission_request",
            ExecutionCause::Background => "background_scan",
        }
    }
}

/// What rules were run for.
#[derive(Clone, Copy)]
pub(crate) struct RanFor<'r> {
    pub(crate) kind: &'r str,
    /// `create`, …; as Kyverno writes it.
    pub(crate) operation: &'r str,
    pub(crate) cause: ExecutionCause,
    pub(crate) dry_run: bool,
}

/// What Kyverno says of a policy in numbers.
struct PolicyWords<'p> {
    mode: &'static str,
    scope: &'static str,
    background: &'static str,
    namespace: &'p str,
    name: &'p str,
}

impl<'p> PolicyWords<'p> {
    fn of(policy: &'p Policy) -> Self {
        let in_cel = !has_named_rules(policy);
        let denies = policy.rules.iter().any(|rule| match &rule.program {
            Program::Validate(validate) => validate.on_failure.usual.deny,
            _ => false,
        });
        PolicyWords {
            mode: match (in_cel, denies) {
                (false, true) => "enforce",
                (false, false) => "audit",
                (true, true) => "Deny",
                (true, false) => "Audit",
            },
            scope: if policy.id.namespace.is_some() { "namespaced" } else { "cluster" },
            background: if policy.background { "true" } else { "false" },
            namespace: policy.id.namespace.as_deref().unwrap_or("-"),
            name: &policy.id.name,
        }
    }
}

/// Whether it is one of the policies that Kyverno counts rule by rule.
fn has_named_rules(policy: &Policy) -> bool {
    matches!(policy.kind.as_str(), "ClusterPolicy" | "Policy")
}

/// The kind of a rule, in Kyverno's words.
fn rule_type(rule: &Rule) -> &'static str {
    match &rule.program {
        Program::Validate(_) => "validate",
        Program::Mutate(_) => "mutate",
        Program::Generate(_) => "generate",
        Program::Modify(_) | Program::Delete(_) => "-",
    }
}

/// Counts the results of a request or a scan.
pub(crate) fn count_results(shared: &AppState, results: &[ValidationResult], about: RanFor<'_>) {
    if !shared.metrics.has_kyverno_names() {
        return;
    }
    let registry = shared.registry.borrow().clone();
    for result in results {
        let word = if result.is_violation() { "fail" } else { result.status.as_str() };
        count(&shared.metrics, &registry.rules, &result.rule, word, result.took, about);
    }
}

fn count(
    metrics: &Metrics,
    rules: &RuleSet,
    id: &RuleId,
    result: &str,
    took: Option<Duration>,
    about: RanFor<'_>,
) {
    let found = rules.policies().iter().find(|policy| policy.id == id.policy);
    let (Some(policy), Some(rule)) = (found, rules.rule(id)) else { return };
    let words = PolicyWords::of(policy);
    let PolicyWords { mode, scope, background, namespace, name } = words;
    let dry_run = if about.dry_run { "true" } else { "false" };
    let in_rules = [
        ("policy_validation_mode", mode),
        ("policy_type", scope),
        ("policy_background_mode", background),
        ("policy_namespace", namespace),
        ("policy_name", name),
        ("resource_kind", about.kind),
        ("resource_request_operation", about.operation),
        ("rule_name", &id.rule),
        ("rule_result", result),
        ("rule_type", rule_type(rule)),
        ("rule_execution_cause", about.cause.word()),
        ("dry_run", dry_run),
    ];
    let in_cel = [
        ("policy_validation_mode", mode),
        ("policy_background_mode", background),
        ("policy_name", name),
        ("policy_namespace", policy.id.namespace.as_deref().unwrap_or_default()),
        ("resource_kind", about.kind),
        ("resource_request_operation", about.operation),
        ("execution_cause", about.cause.word()),
        ("result", result),
    ];
    let (counted, timed, labels): (_, _, &[(&str, &str)]) = match &rule.program {
        Program::Modify(_) | Program::Delete(_) => return,
        _ if has_named_rules(policy) => {
            ("kyverno_policy_results_total", "kyverno_policy_execution_duration_seconds", &in_rules)
        }
        Program::Validate(_) => (
            "kyverno_validating_policy_results_total",
            "kyverno_validating_policy_execution_duration_seconds",
            &in_cel,
        ),
        Program::Mutate(_) => (
            "kyverno_mutating_policy_results_total",
            "kyverno_mutating_policy_execution_duration_seconds",
            &in_cel[1..],
        ),
        Program::Generate(_) => (
            "kyverno_generating_policy_results_total",
            "kyverno_generating_policy_execution_duration_seconds",
            &in_cel[2..],
        ),
    };
    metrics.count(counted, labels);
    if let Some(took) = took {
        let timeless: Vec<_> = labels
            .iter()
            .filter(|(label, _)| *label != "resource_request_operation")
            .copied()
            .collect();
        metrics.observe(timed, &timeless, took.as_secs_f64());
    }
}

/// Counts a request about an object, and how long its answer took.
pub(crate) fn count_request(
    metrics: &Metrics,
    request: &ReviewRequest,
    allowed: bool,
    path: &str,
    took: Duration,
) {
    if !metrics.has_kyverno_names() {
        return;
    }
    let mutates = ["/mutate", "/mpol", "/nmpol"].iter().any(|family| path.starts_with(family));
    let operation = operation_of(&request.event);
    let labels = [
        ("resource_kind", request.event.kind.kind.as_str()),
        ("resource_request_operation", operation.as_str()),
        ("request_allowed", if allowed { "true" } else { "false" }),
        (
            "request_webhook",
            if mutates { "MutatingWebhookConfiguration" } else { "ValidatingWebhookConfiguration" },
        ),
    ];
    metrics.count("kyverno_admission_requests_total", &labels);
    metrics.observe("kyverno_admission_review_duration_seconds", &labels, took.as_secs_f64());
}

/// Counts a request to the server.
pub(crate) fn count_http(metrics: &Metrics, path: &str, took: Duration) {
    if metrics.has_kyverno_names() {
        let labels = [("http_method", "POST"), ("http_url", path)];
        metrics.count("kyverno_http_requests_total", &labels);
        metrics.observe("kyverno_http_requests_duration_seconds", &labels, took.as_secs_f64());
    }
}

/// Counts a call to the API server.
pub(crate) fn count_call(metrics: &Metrics, verb: &str, kind: &str) {
    if metrics.has_kyverno_names() {
        let labels = [("operation", verb), ("client_type", "dynamic"), ("resource_kind", kind)];
        metrics.count("kyverno_client_queries_total", &labels);
    }
}

/// Counts a look at an object.
pub(crate) fn count_reconcile(metrics: &Metrics, controller: &str) {
    if metrics.has_kyverno_names() {
        metrics.count("kyverno_controller_reconcile_total", &[("controller_name", controller)]);
    }
}

/// The operation of an event, as Kyverno writes it.
pub(crate) fn operation_of(event: &Event) -> String {
    event.operation.map(|operation| operation.as_str().to_lowercase()).unwrap_or_default()
}

/// Evaluates rules for the controller, and counts what comes of it.
pub(crate) struct CountedEvaluation {
    pub(crate) inner: Box<dyn Evaluate>,
    pub(crate) metrics: Arc<Metrics>,
}

impl Evaluate for CountedEvaluation {
    fn evaluate(
        &self,
        rules: &RuleSet,
        rule: &Rule,
        event: &Event,
        eval_env: &EvalEnv<'_>,
    ) -> RuleOutcome {
        if !self.metrics.has_kyverno_names() {
            return self.inner.evaluate(rules, rule, event, eval_env);
        }
        let began = std::time::Instant::now();
        let outcome = self.inner.evaluate(rules, rule, event, eval_env);
        count_reconcile(&self.metrics, "update-request-controller");
        let status = outcome.status();
        if status != kiln_engine::Status::NoMatch {
            let operation = operation_of(event);
            let about = RanFor {
                kind: &event.kind.kind,
                operation: &operation,
                cause: ExecutionCause::Background,
                dry_run: false,
            };
            let took = Some(began.elapsed());
            count(&self.metrics, rules, &rule.id, status.as_str(), took, about);
        }
        outcome
    }
}

/// The policies that are known, each with its life and generation and what is said of it.
type KnownPolicies = BTreeMap<ObjectId, (Str, i64, Arc<Policy>)>;

/// Follows the policies that are stored: their rules, and how they change.
pub(crate) async fn follow_policies(shared: AppState) {
    if !shared.metrics.has_kyverno_names() {
        return std::future::pending().await;
    }
    shared.metrics.set("kyverno_info", &[("version", env!("CARGO_PKG_VERSION"))], 1.0);
    let mut registry = shared.registry.clone();
    let mut known = KnownPolicies::new();
    loop {
        let stored = registry.borrow_and_update().clone();
        if stored.complete {
            known = show_policies(&shared.metrics, &stored, &known);
        }
        if registry.changed().await.is_err() {
            return;
        }
    }
}

fn show_policies(metrics: &Metrics, stored: &Registry, before: &KnownPolicies) -> KnownPolicies {
    let mut known = KnownPolicies::new();
    metrics.clear("kyverno_policy_rule_info_total");
    for policy in &stored.policies {
        let Ok(compiled) = &policy.compiled else { continue };
        if !has_named_rules(compiled) {
            continue;
        }
        let generation = policy.object.get_path(["metadata", "generation"]);
        let life = (
            Str::from(metadata::uid(&policy.object).unwrap_or_default()),
            generation.and_then(Value::as_i64).unwrap_or(0),
        );
        let change = match before.get(&policy.id) {
            None => Some("created"),
            Some((uid, number, _)) if (uid, *number) != (&life.0, life.1) => Some("updated"),
            Some(_) => None,
        };
        if let Some(change) = change {
            count_change(metrics, compiled, change);
        }
        show_rules(metrics, compiled, is_ready(&policy.object));
        known.insert(policy.id.clone(), (life.0, life.1, Arc::clone(compiled)));
    }
    for (id, (_, _, policy)) in before {
        if !known.contains_key(id) {
            count_change(metrics, policy, "deleted");
        }
    }
    known
}

fn count_change(metrics: &Metrics, policy: &Policy, change: &str) {
    let PolicyWords { mode, scope, background, namespace, name } = PolicyWords::of(policy);
    let labels = [
        ("policy_validation_mode", mode),
        ("policy_type", scope),
        ("policy_background_mode", background),
        ("policy_namespace", namespace),
        ("policy_name", name),
        ("policy_change_type", change),
    ];
    metrics.count("kyverno_policy_changes_total", &labels);
}

fn show_rules(metrics: &Metrics, policy: &Policy, ready: bool) {
    let PolicyWords { mode, scope, background, namespace, name } = PolicyWords::of(policy);
    for rule in &policy.rules {
        let labels = [
            ("rule_name", rule.id.rule.as_str()),
            ("rule_type", rule_type(rule)),
            ("policy_namespace", namespace),
            ("policy_name", name),
            ("status_ready", if ready { "true" } else { "false" }),
            ("policy_validation_mode", mode),
            ("policy_type", scope),
            ("policy_background_mode", background),
        ];
        metrics.set("kyverno_policy_rule_info_total", &labels, 1.0);
    }
}

fn is_ready(policy: &Value) -> bool {
    let conditions = policy.get_path(["status", "conditions"]).and_then(Value::as_list);
    conditions.into_iter().flat_map(|list| list.iter()).any(|condition| {
        let text = |key: &str| condition.str_at([key]).unwrap_or_default();
        (text("type"), text("status")) == ("Ready", "True")
    })
}
