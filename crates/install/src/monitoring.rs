//! What operators watch the engine with: alerts, a dashboard, and where Prometheus finds the numbers.
//!
//! What each alert means and what to do about it is in `docs/reference/alerts.md`, under its name.

use kiln_value::{Value, value};

use crate::certificates::authority;
use crate::workload::CONTROLLER;
use crate::{InstallOptions, Monitoring, merged, metadata};

/// Something that an operator should look at.
struct Alert {
    name: &'static str,
    severity: &'static str,
    /// How long it has to hold.
    lasting: &'static str,
    when: &'static str,
    summary: &'static str,
}

const fn alert(
    name: &'static str,
    severity: &'static str,
    lasting: &'static str,
    when: &'static str,
    summary: &'static str,
) -> Alert {
    Alert { name, severity, lasting, when, summary }
}

const ALERTS: [Alert; 20] = [
    alert(
        "KilnAbsent",
        "critical",
        "5m",
        "absent(kiln_build_info)",
        "No Kiln replica is scraped: none may be answering admission requests.",
    ),
    alert(
        "KilnNoLeader",
        "critical",
        "2m",
        "(sum(kiln_leader) or vector(0)) == 0",
        "No replica holds the Lease: nothing is generated or synchronized.",
    ),
    alert(
        "KilnMultipleLeaders",
        "warning",
        "2m",
        "sum(kiln_leader) > 1",
        "{{ $value }} replicas act as leader: Leases are forbidden, or there are two installations.",
    ),
    alert(
        "KilnUnhealthy",
        "warning",
        "10m",
        "max by (part) (kiln_problems) > 0",
        "{{ $labels.part }} has not worked for ten minutes.",
    ),
    alert(
        "KilnPanics",
        "warning",
        "1m",
        "sum by (part) (increase(kiln_panics_total[15m])) > 0",
        "Bug in Kiln: {{ $labels.part }} panicked and was restarted.",
    ),
    alert(
        "KilnAdmissionBroken",
        "critical",
        "5m",
        "sum by (answer) (rate(kiln_admission_requests_total{answer=~\"broken|late|too many connections|too many reviews\"}[5m])) > 0",
        "Admission requests end with \"{{ $labels.answer }}\".",
    ),
    alert(
        "KilnAdmissionSlow",
        "warning",
        "10m",
        "histogram_quantile(0.99, sum by (le) (rate(kiln_admission_seconds_bucket[5m]))) > 1",
        "One in a hundred admission requests takes longer than a second.",
    ),
    alert(
        "KilnPoliciesBroken",
        "warning",
        "10m",
        "max(kiln_policies{state=\"broken\"}) > 0",
        "{{ $value }} policies cannot be used.",
    ),
    alert(
        "KilnPermissionsMissing",
        "warning",
        "10m",
        "sum(kiln_conditions{reason=\"Forbidden\"}) > 0",
        "{{ $value }} work queue items wait for permissions.",
    ),
    alert(
        "KilnWorkPending",
        "warning",
        "15m",
        "sum by (reason) (kiln_conditions{reason=~\"Failed|Missing|Unavailable\"}) > 0",
        "{{ $value }} work queue items are not reconciled: {{ $labels.reason }}.",
    ),
    alert(
        "KilnContested",
        "warning",
        "10m",
        "sum by (reason) (kiln_conditions{reason=~\"Contested|Loop\"}) > 0",
        "{{ $value }} objects have conflicting writers, or trigger their own rule.",
    ),
    alert(
        "KilnCertificateEnds",
        "critical",
        "1h",
        "min(kiln_certificate_end_seconds) - time() < 7 * 24 * 3600",
        "The serving certificate expires within a week and was not renewed.",
    ),
    alert(
        "KilnCallsFail",
        "warning",
        "10m",
        "sum(rate(kiln_api_calls_total{outcome=~\"Forbidden|Invalid|ServiceUnavailable\"}[5m])) / sum(rate(kiln_api_calls_total[5m])) > 0.05",
        "{{ $value | humanizePercentage }} of the calls to the API server fail.",
    ),
    alert(
        "KilnRequestsNotWritten",
        "critical",
        "1m",
        "sum(increase(kiln_requests_written_total{outcome=~\"failed|held back\"}[10m])) > 0",
        "Admission requests that rules need could not be stored.",
    ),
    alert(
        "KilnDenials",
        "warning",
        "15m",
        "sum(rate(kiln_admission_requests_total{answer=\"refused\"}[10m])) / sum(rate(kiln_admission_requests_total[10m])) > 0.5",
        "{{ $value | humanizePercentage }} of the admission requests are denied.",
    ),
    alert(
        "KilnAuditsDropped",
        "warning",
        "5m",
        "sum(increase(kiln_audits_dropped_total[15m])) > 0",
        "Rules that audit were not evaluated for some requests: too many were waiting.",
    ),
    alert(
        "KilnScanSlow",
        "warning",
        "1h",
        "sum(kiln_scan_objects{state=\"waiting\"}) > 0",
        "{{ $value }} objects wait for the background scan.",
    ),
    alert(
        "KilnReportsWaiting",
        "warning",
        "15m",
        "sum(kiln_reports_waiting) > 100",
        "{{ $value }} policy reports wait to be written.",
    ),
    alert(
        "KilnCleanupFails",
        "warning",
        "1m",
        "sum by (policy_type, policy_name) (increase(kyverno_cleanup_controller_errors_total[1h])) > 0 or sum by (policy_type, policy_name) (increase(kyverno_deleting_controller_errors_total[1h])) > 0",
        "{{ $labels.policy_type }} {{ $labels.policy_name }} cannot delete {{ $value }} objects.",
    ),
    alert(
        "KilnTtlFails",
        "warning",
        "1m",
        "sum by (resource_resource) (increase(kyverno_ttl_controller_errors_total[1h])) > 0",
        "{{ $value }} {{ $labels.resource_resource }} whose TTL is over cannot be deleted.",
    ),
];

/// A picture of the dashboard: its title, unit, and what is drawn.
struct Panel {
    title: &'static str,
    unit: &'static str,
    /// Expressions, and what their lines are called.
    lines: &'static [(&'static str, &'static str)],
}

const fn panel(
    title: &'static str,
    unit: &'static str,
    lines: &'static [(&'static str, &'static str)],
) -> Panel {
    Panel { title, unit, lines }
}

const ROWS: [(&str, &[Panel]); 7] = [
    (
        "Overview",
        &[
            panel(
                "Replicas",
                "none",
                &[
                    ("count by (version) (kiln_build_info)", "{{version}}"),
                    ("sum(kiln_leader)", "leaders"),
                ],
            ),
            panel(
                "Policies",
                "none",
                &[
                    ("max by (state) (kiln_policies)", "{{state}}"),
                    ("max by (operation) (kiln_rules_not_run)", "{{operation}} rules, not run"),
                ],
            ),
            panel(
                "Unhealthy parts",
                "none",
                &[
                    ("max by (part) (kiln_problems)", "{{part}}"),
                    (
                        "sum by (part) (increase(kiln_panics_total[$__rate_interval]))",
                        "{{part}} panicked",
                    ),
                ],
            ),
            panel(
                "Certificate expires in",
                "s",
                &[("min(kiln_certificate_end_seconds) - time()", "webhooks")],
            ),
        ],
    ),
    (
        "Admission",
        &[
            panel(
                "Requests by answer",
                "reqps",
                &[(
                    "sum by (answer) (rate(kiln_admission_requests_total[$__rate_interval]))",
                    "{{answer}}",
                )],
            ),
            panel(
                "Time to answer",
                "s",
                &[
                    (
                        "histogram_quantile(0.5, sum by (le) (rate(kiln_admission_seconds_bucket[$__rate_interval])))",
                        "p50",
                    ),
                    (
                        "histogram_quantile(0.99, sum by (le) (rate(kiln_admission_seconds_bucket[$__rate_interval])))",
                        "p99",
                    ),
                ],
            ),
            panel(
                "Results by policy",
                "reqps",
                &[
                    (
                        "sum by (policy, result) (rate(kiln_rule_results_total{result=~\"pass|fail|error\"}[$__rate_interval]))",
                        "{{policy}} {{result}}",
                    ),
                    ("sum(rate(kiln_audits_dropped_total[$__rate_interval]))", "audits left out"),
                    (
                        "sum by (shadow, result) (rate(kiln_shadow_requests_total{result!=\"same\"}[$__rate_interval]))",
                        "shadow {{shadow}} {{result}}",
                    ),
                ],
            ),
            panel(
                "Denied requests by operation",
                "reqps",
                &[(
                    "sum by (operation) (rate(kiln_admission_requests_total{answer=\"refused\"}[$__rate_interval]))",
                    "{{operation}}",
                )],
            ),
            panel(
                "Rules that fail at admission",
                "reqps",
                &[(
                    "sum by (policy, rule) (rate(kiln_rule_results_total{result=~\"fail|error\"}[$__rate_interval]))",
                    "{{policy}} {{rule}}",
                )],
            ),
            panel(
                "Requests passed to the controller",
                "reqps",
                &[
                    ("sum(rate(kiln_observed_requests_total[$__rate_interval]))", "in the process"),
                    (
                        "sum by (outcome) (rate(kiln_requests_written_total[$__rate_interval]))",
                        "UpdateRequests {{outcome}}",
                    ),
                ],
            ),
        ],
    ),
    (
        "Generating",
        &[
            panel(
                "Objects created and updated",
                "ops",
                &[(
                    "sum by (policy, result) (rate(kiln_rule_results_total{result=~\"made|changed|failed\"}[$__rate_interval]))",
                    "{{policy}} {{result}}",
                )],
            ),
            panel(
                "Unreconciled items",
                "none",
                &[("sum by (reason) (kiln_conditions)", "{{reason}}")],
            ),
            panel("Work queue items", "none", &[("sum(kiln_keys)", "rules × triggers")]),
        ],
    ),
    (
        "Reports and background scan",
        &[
            panel(
                "Objects of the scan",
                "none",
                &[("sum by (state) (kiln_scan_objects)", "{{state}}")],
            ),
            panel(
                "Results of the scan",
                "ops",
                &[(
                    "sum by (result) (rate(kiln_scan_results_total[$__rate_interval]))",
                    "{{result}}",
                )],
            ),
            panel(
                "Policies that objects fail in the scan",
                "ops",
                &[(
                    "sum by (policy) (rate(kiln_scan_results_total{result=~\"fail|error\"}[$__rate_interval]))",
                    "{{policy}}",
                )],
            ),
            panel("Reports that wait", "none", &[("sum(kiln_reports_waiting)", "reports")]),
        ],
    ),
    (
        "Cleanup",
        &[
            panel(
                "Objects deleted",
                "ops",
                &[
                    (
                        "sum by (policy_name) (rate(kyverno_cleanup_controller_deletedobjects_total[$__rate_interval]))",
                        "cleanup policy {{policy_name}}",
                    ),
                    (
                        "sum by (policy_name) (rate(kyverno_deleting_controller_deletedobjects_total[$__rate_interval]))",
                        "DeletingPolicy {{policy_name}}",
                    ),
                    (
                        "sum by (resource_resource) (rate(kyverno_ttl_controller_deletedobjects_total[$__rate_interval]))",
                        "TTL label: {{resource_resource}}",
                    ),
                ],
            ),
            panel(
                "Objects that could not be deleted",
                "ops",
                &[
                    (
                        "sum by (policy_name) (rate(kyverno_cleanup_controller_errors_total[$__rate_interval]))",
                        "cleanup policy {{policy_name}}",
                    ),
                    (
                        "sum by (policy_name) (rate(kyverno_deleting_controller_errors_total[$__rate_interval]))",
                        "DeletingPolicy {{policy_name}}",
                    ),
                    (
                        "sum by (resource_resource) (rate(kyverno_ttl_controller_errors_total[$__rate_interval]))",
                        "TTL label: {{resource_resource}}",
                    ),
                ],
            ),
            panel(
                "Kinds with the TTL label",
                "none",
                &[("sum(kyverno_ttl_controller_info)", "kinds")],
            ),
        ],
    ),
    (
        "API server",
        &[
            panel(
                "Calls by verb",
                "reqps",
                &[("sum by (verb) (rate(kiln_api_calls_total[$__rate_interval]))", "{{verb}}")],
            ),
            panel(
                "Calls that did not succeed",
                "reqps",
                &[(
                    "sum by (kind, outcome) (rate(kiln_api_calls_total{outcome!=\"ok\"}[$__rate_interval]))",
                    "{{kind}} {{outcome}}",
                )],
            ),
            panel(
                "Time of a call, p99",
                "s",
                &[(
                    "histogram_quantile(0.99, sum by (le, verb) (rate(kiln_api_call_seconds_bucket[$__rate_interval])))",
                    "{{verb}}",
                )],
            ),
            panel(
                "Watches",
                "ops",
                &[
                    (
                        "sum by (kind) (rate(kiln_watch_events_total[$__rate_interval]))",
                        "{{kind}} events",
                    ),
                    (
                        "sum by (kind, reason) (rate(kiln_watch_restarts_total[$__rate_interval]))",
                        "{{kind}} restarted: {{reason}}",
                    ),
                ],
            ),
        ],
    ),
    (
        "Process",
        &[
            panel(
                "Memory",
                "bytes",
                &[(
                    "process_resident_memory_bytes and on (instance) kiln_build_info",
                    "{{instance}}",
                )],
            ),
            panel(
                "Processors",
                "none",
                &[(
                    "rate(process_cpu_seconds_total[$__rate_interval]) and on (instance) kiln_build_info",
                    "{{instance}}",
                )],
            ),
            panel(
                "Open files",
                "none",
                &[("process_open_fds and on (instance) kiln_build_info", "{{instance}}")],
            ),
            panel(
                "Up since",
                "s",
                &[(
                    "time() - process_start_time_seconds and on (instance) kiln_build_info",
                    "{{instance}}",
                )],
            ),
        ],
    ),
];

/// How wide Grafana's page is, and how high pictures are.
const PAGE: i64 = 24;
const HEIGHT: i64 = 7;

/// Groups of alerts, as Prometheus reads them from a file. What to do about an alert is below its name on the page at
/// `runbook_url`, if that is given.
pub fn alerts(runbook_url: &str) -> Value {
    let rules: Vec<Value> = ALERTS
        .iter()
        .map(|alert| {
            let mut annotations = value!({"summary": alert.summary});
            if !runbook_url.is_empty() {
                let anchor = alert.name.to_lowercase();
                let _ = annotations.set(["runbook_url"], format!("{runbook_url}#{anchor}"));
            }
            value!({
                "alert": alert.name,
                "expr": alert.when,
                "for": alert.lasting,
                "labels": {"severity": alert.severity},
                "annotations": annotations,
            })
        })
        .collect();
    value!({"groups": [{"name": "kiln", "rules": rules}]})
}

/// The dashboard, as Grafana imports it.
pub fn dashboard() -> Value {
    let source = value!({"type": "prometheus", "uid": "${source}"});
    let mut panels: Vec<Value> = Vec::new();
    let mut top = 0;
    let number = |panels: &[Value]| i64::try_from(panels.len() + 1).unwrap_or(0);
    for (title, row) in ROWS {
        panels.push(value!({
            "id": number(&panels), "type": "row", "title": title, "collapsed": false, "panels": [],
            "gridPos": {"x": 0, "y": top, "w": PAGE, "h": 1},
        }));
        top += 1;
        let width = PAGE / i64::try_from(row.len()).unwrap_or(1);
        for (column, panel) in (0..).zip(row) {
            let targets: Vec<Value> = ('A'..)
                .zip(panel.lines)
                .map(|(letter, (expression, legend))| {
                    value!({
                        "refId": letter.to_string(), "expr": *expression, "legendFormat": *legend,
                        "datasource": source.clone(),
                    })
                })
                .collect();
            panels.push(value!({
                "id": number(&panels), "type": "timeseries", "title": panel.title,
                "datasource": source.clone(),
                "gridPos": {"x": column * width, "y": top, "w": width, "h": HEIGHT},
                "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
                "targets": targets,
            }));
        }
        top += HEIGHT;
    }
    value!({
        "title": "Kiln", "uid": "kiln", "schemaVersion": 39, "tags": ["kiln", "kubernetes"],
        "editable": true, "refresh": "30s", "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": [
            {"name": "source", "label": "Prometheus", "type": "datasource", "query": "prometheus"},
        ]},
        "panels": panels,
    })
}

/// What the operator of Prometheus and Grafana's sidecar pick up.
pub(crate) fn objects(options: &InstallOptions) -> Vec<Value> {
    let Monitoring { service_monitor, prometheus_rule, dashboard: with_dashboard, .. } =
        options.monitoring;
    let mut objects = Vec::new();
    // They select the Services of the workload.
    if service_monitor && options.workload {
        objects.extend(service_monitors(options));
    }
    if prometheus_rule {
        objects.push(value!({
            "apiVersion": "monitoring.coreos.com/v1",
            "kind": "PrometheusRule",
            "metadata": named(options, "kiln"),
            "spec": alerts(&options.monitoring.runbook_url),
        }));
    }
    if with_dashboard {
        let mut shown = named(options, "kiln-dashboard");
        let _ = shown.set(["labels", "grafana_dashboard"], "1");
        objects.push(value!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": shown,
            "data": {"kiln.json": kiln_value::json::to_string(&dashboard())},
        }));
    }
    objects
}

fn named(options: &InstallOptions, name: &str) -> Value {
    let mut metadata = metadata(options, &options.namespace, name, "monitoring");
    let own = metadata.get("labels").and_then(Value::as_map).cloned().unwrap_or_default();
    let _ = metadata.set(["labels"], merged(options.monitoring.labels.clone(), &own));
    metadata
}

fn service_monitors(options: &InstallOptions) -> Vec<Value> {
    let interval = options.monitoring.interval.as_str();
    let scraping = |name: &str, component: &str, trust: Value| {
        let mut endpoint =
            value!({"port": "https", "scheme": "https", "path": "/metrics", "tlsConfig": trust});
        if !interval.is_empty() {
            let _ = endpoint.set(["interval"], interval);
        }
        value!({
            "apiVersion": "monitoring.coreos.com/v1",
            "kind": "ServiceMonitor",
            "metadata": named(options, name),
            "spec": {
                "selector": {"matchLabels": {"app.kubernetes.io/name": "kiln", "app.kubernetes.io/component": component}},
                "endpoints": [endpoint],
            },
        })
    };
    // A process that answers no requests serves a certificate that no other process knows.
    let unknown = || value!({"insecureSkipVerify": true});
    let trust = if options.features.admission {
        let (secret, key) = authority(options);
        value!({
            "serverName": format!("{}.{}.svc", options.names().service(), options.namespace),
            "ca": {"secret": {"name": secret, "key": key}},
        })
    } else {
        unknown()
    };
    let mut monitors = vec![scraping("kiln", "admission-controller", trust)];
    if options.is_split() {
        monitors.push(scraping(CONTROLLER, "controller", unknown()));
    }
    monitors
}
