//! What is counted, and how Prometheus reads it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Mutex, PoisonError};

pub use crate::kyverno_metrics::{KYVERNO_BUCKETS, KYVERNO_FAMILIES};

/// Counters and gauges. Names and help are those of [`FAMILIES`], and of [`KYVERNO_FAMILIES`] if these are wanted; others
/// are not shown.
#[derive(Debug, Default)]
pub struct Metrics {
    samples: Mutex<BTreeMap<(&'static str, String), Sample>>,
    /// Numbers are also kept under Kyverno's names.
    kyverno_names: bool,
}

/// The upper ends of the buckets that durations are counted in, in seconds.
const BUCKETS: [f64; 12] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0];

#[derive(Clone, Copy, Debug, Default)]
struct Sample {
    value: f64,
    count: u64,
    /// How many observations were at most as large as the bucket's end, and larger than the one before.
    buckets: [u64; KYVERNO_BUCKETS.len()],
}

/// The upper ends of the buckets of a family.
fn buckets(name: &str) -> &'static [f64] {
    if name.starts_with("kyverno_") { &KYVERNO_BUCKETS } else { &BUCKETS }
}

/// What kind of number a family is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// It only grows.
    Counter,
    /// It goes up and down.
    Gauge,
    /// Observations, counted by how large they were.
    Histogram,
}

/// A number that is counted: its name, and what is known of it.
#[derive(Clone, Copy, Debug)]
pub struct Family {
    /// The name that Prometheus knows it by.
    pub name: &'static str,
    /// What kind of number it is.
    pub form: Form,
    /// What its samples differ by.
    pub labels: &'static [&'static str],
    /// What it says.
    pub help: &'static str,
}

pub(crate) const fn family(
    name: &'static str,
    form: Form,
    labels: &'static [&'static str],
    help: &'static str,
) -> Family {
    Family { name, form, labels, help }
}

/// The labels that Kyverno has for what policies delete, and for the TTL label.
const CLEANED: &[&str] = &[
    "policy_type",
    "policy_namespace",
    "policy_name",
    "resource_kind",
    "resource_namespace",
    "deletion_propagation",
];
const CLEANED_IN_CEL: &[&str] = &[
    "policy_type",
    "policy_namespace",
    "policy_name",
    "resource",
    "resource_namespace",
    "deletion_propagation",
];
const EXPIRED: &[&str] =
    &["resource_namespace", "resource_group", "resource_version", "resource_resource"];

/// Every number there is.
pub const FAMILIES: [Family; 34] = [
    family(
        "kiln_api_calls_total",
        Form::Counter,
        &["verb", "kind", "outcome"],
        "Calls to the API server, by verb, kind and outcome.",
    ),
    family(
        "kiln_api_call_seconds",
        Form::Histogram,
        &["verb"],
        "How long calls to the API server took, by verb.",
    ),
    family(
        "kiln_watch_restarts_total",
        Form::Counter,
        &["kind", "reason"],
        "Restarted watches, by kind and reason.",
    ),
    family("kiln_watch_events_total", Form::Counter, &["kind"], "Watch events, by kind."),
    family(
        "kiln_rule_results_total",
        Form::Counter,
        &["policy", "rule", "result"],
        "Results of rules, by policy, rule and result.",
    ),
    family("kiln_policies", Form::Gauge, &["state"], "Policies, by state."),
    family(
        "kiln_rules_not_run",
        Form::Gauge,
        &["operation"],
        "Rules of stored policies that are not run, by what they would do.",
    ),
    family(
        "kiln_keys",
        Form::Gauge,
        &[],
        "Pairs of a rule and a trigger in the work queue or reconciled.",
    ),
    family(
        "kiln_conditions",
        Form::Gauge,
        &["reason"],
        "Pairs of a rule and a trigger that are not reconciled yet, by reason.",
    ),
    family(
        "kiln_observed_requests_total",
        Form::Counter,
        &[],
        "Admission requests that were passed to the controller of the same process.",
    ),
    family(
        "kiln_requests_written_total",
        Form::Counter,
        &["outcome"],
        "Admission requests that were stored for the leader, by outcome.",
    ),
    family(
        "kiln_admission_requests_total",
        Form::Counter,
        &["path", "operation", "answer"],
        "Admission requests, by path, operation and answer.",
    ),
    family(
        "kiln_admission_seconds",
        Form::Histogram,
        &["path"],
        "How long admission requests took, by path.",
    ),
    family(
        "kiln_scan_results_total",
        Form::Counter,
        &["policy", "rule", "result"],
        "Results of rules for objects that were there, by policy, rule and result.",
    ),
    family(
        "kiln_scan_objects",
        Form::Gauge,
        &["state"],
        "Objects of the background scan, by state: checked or waiting.",
    ),
    family(
        "kiln_reports_waiting",
        Form::Gauge,
        &[],
        "Reports that wait to be compared and written.",
    ),
    family(
        "kiln_audits_dropped_total",
        Form::Counter,
        &[],
        "Admission requests whose auditing rules were not evaluated, because too many were waiting.",
    ),
    family(
        "kiln_shadow_requests_total",
        Form::Counter,
        &["policy", "shadow", "result"],
        "Admission requests that were evaluated with a policy and with its shadow, by how both differ.",
    ),
    family("kiln_leader", Form::Gauge, &[], "1 in the leader, 0 in standby replicas."),
    family("kiln_problems", Form::Gauge, &["part"], "Unhealthy parts of the process, by part."),
    family("kiln_panics_total", Form::Counter, &["part"], "Recovered panics, by part."),
    family(
        "kiln_certificate_end_seconds",
        Form::Gauge,
        &[],
        "Expiry of the serving certificate, in seconds since 1970.",
    ),
    family("kiln_build_info", Form::Gauge, &["version"], "The running version; always 1."),
    family(
        "kyverno_cleanup_controller_deletedobjects_total",
        Form::Counter,
        CLEANED,
        "Objects that CleanupPolicies deleted.",
    ),
    family(
        "kyverno_cleanup_controller_errors_total",
        Form::Counter,
        CLEANED,
        "Objects that CleanupPolicies could not judge or delete.",
    ),
    family(
        "kyverno_deleting_controller_deletedobjects_total",
        Form::Counter,
        CLEANED_IN_CEL,
        "Objects that DeletingPolicies deleted.",
    ),
    family(
        "kyverno_deleting_controller_errors_total",
        Form::Counter,
        CLEANED_IN_CEL,
        "Objects that DeletingPolicies could not judge or delete.",
    ),
    family(
        "kyverno_ttl_controller_deletedobjects_total",
        Form::Counter,
        EXPIRED,
        "Objects that were deleted because of the TTL label.",
    ),
    family(
        "kyverno_ttl_controller_errors_total",
        Form::Counter,
        EXPIRED,
        "Objects with the TTL label that could not be deleted.",
    ),
    family(
        "kyverno_ttl_controller_info",
        Form::Gauge,
        &["resource_group", "resource_version", "resource_resource"],
        "Kinds that are followed for the TTL label; always 1.",
    ),
    family(
        "process_start_time_seconds",
        Form::Gauge,
        &[],
        "Start time of the process, in seconds since 1970.",
    ),
    family("process_resident_memory_bytes", Form::Gauge, &[], "Resident memory of the process."),
    family("process_cpu_seconds_total", Form::Counter, &[], "CPU time of the process."),
    family("process_open_fds", Form::Gauge, &[], "Open file descriptors of the process."),
];

/// Old names of families, which are shown beside the new ones until 0.3.0: (new, old).
pub const DEPRECATED_NAMES: [(&str, &str); 2] =
    [("kiln_observed_requests_total", "kiln_hints_total"), ("kiln_leader", "kiln_acting")];

impl Metrics {
    /// Numbers that are also kept under Kyverno's names.
    pub fn with_kyverno_names(kyverno_names: bool) -> Self {
        Metrics { kyverno_names, ..Metrics::default() }
    }

    /// Whether numbers are also kept under Kyverno's names.
    pub(crate) fn has_kyverno_names(&self) -> bool {
        self.kyverno_names
    }

    /// Counts something that happened.
    pub fn count(&self, name: &'static str, labels: &[(&str, &str)]) {
        self.change(name, labels, |sample| sample.value += 1.0);
    }

    /// Says how much of something there is.
    pub fn set(&self, name: &'static str, labels: &[(&str, &str)], value: f64) {
        self.change(name, labels, |sample| sample.value = value);
    }

    /// Adds an observation to a histogram.
    pub fn observe(&self, name: &'static str, labels: &[(&str, &str)], value: f64) {
        self.change(name, labels, |sample| {
            sample.value += value;
            sample.count += 1;
            if let Some(at) = buckets(name).iter().position(|end| value <= *end) {
                sample.buckets[at] += 1;
            }
        });
    }

    /// Forgets the samples of a family, before it is set anew.
    pub fn clear(&self, name: &'static str) {
        self.samples
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .retain(|(known, _), _| *known != name);
    }

    /// Everything in the text form of Prometheus.
    pub fn text(&self) -> String {
        let samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        let mut out = String::new();
        let kyverno = KYVERNO_FAMILIES.iter().filter(|_| self.kyverno_names);
        for Family { name, form, help, .. } in FAMILIES.iter().chain(kyverno).copied() {
            let word = match form {
                Form::Counter => "counter",
                Form::Gauge => "gauge",
                Form::Histogram => "histogram",
            };
            let mut write = |shown: &str, help: &str| {
                // Writing to a string does not fail.
                let _ = writeln!(out, "# HELP {shown} {help}\n# TYPE {shown} {word}");
                let range = samples.range((name, String::new())..);
                for ((_, labels), sample) in range.take_while(|((known, _), _)| *known == name) {
                    match form {
                        Form::Histogram => write_histogram(&mut out, shown, labels, sample),
                        _ => drop(writeln!(out, "{shown}{labels} {}", sample.value)),
                    }
                }
            };
            write(name, help);
            for (_, old) in DEPRECATED_NAMES.iter().filter(|(new, _)| *new == name) {
                write(old, &format!("Deprecated: use {name}."));
            }
        }
        out
    }

    fn change(
        &self,
        name: &'static str,
        labels: &[(&str, &str)],
        change: impl FnOnce(&mut Sample),
    ) {
        debug_assert!(
            FAMILIES.iter().chain(&KYVERNO_FAMILIES).any(|family| family.name == name
                && family.labels.iter().eq(labels.iter().map(|(label, _)| label))),
            "{name} with {labels:?} is not a known family"
        );
        let key = (name, labels_text(labels));
        let mut samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        change(samples.entry(key).or_default());
    }
}

fn write_histogram(out: &mut String, name: &str, labels: &str, sample: &Sample) {
    let inside = labels.trim_start_matches('{').trim_end_matches('}');
    let comma = if inside.is_empty() { "" } else { "," };
    let mut below = 0;
    for (end, count) in buckets(name).iter().zip(sample.buckets) {
        below += count;
        let _ = writeln!(out, "{name}_bucket{{{inside}{comma}le=\"{end}\"}} {below}");
    }
    let Sample { value, count, .. } = sample;
    let _ = writeln!(out, "{name}_bucket{{{inside}{comma}le=\"+Inf\"}} {count}");
    let _ = writeln!(out, "{name}_sum{labels} {value}\n{name}_count{labels} {count}");
}

fn labels_text(labels: &[(&str, &str)]) -> String {
    if labels.is_empty() {
        return String::new();
    }
    let quoted = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    let pairs: Vec<String> =
        labels.iter().map(|(name, value)| format!("{name}=\"{}\"", quoted(value))).collect();
    format!("{{{}}}", pairs.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_shown_under_their_family() {
        let metrics = Metrics::default();
        metrics.count("kiln_observed_requests_total", &[]);
        metrics.count("kiln_observed_requests_total", &[]);
        metrics.set("kiln_policies", &[("state", "a\"b")], 3.0);
        for seconds in [0.25, 0.003, 60.0] {
            metrics.observe("kiln_admission_seconds", &[("path", "/mutate")], seconds);
        }
        metrics.observe("kiln_api_call_seconds", &[("verb", "get")], 0.001);
        let text = metrics.text();
        for line in [
            "kiln_observed_requests_total 2",
            "kiln_hints_total 2",
            "# TYPE kiln_hints_total counter",
            "# HELP kiln_hints_total Deprecated: use kiln_observed_requests_total.",
            "kiln_policies{state=\"a\\\"b\"} 3",
            "# TYPE kiln_admission_seconds histogram",
            "kiln_admission_seconds_bucket{path=\"/mutate\",le=\"0.0025\"} 0",
            "kiln_admission_seconds_bucket{path=\"/mutate\",le=\"0.005\"} 1",
            "kiln_admission_seconds_bucket{path=\"/mutate\",le=\"0.25\"} 2",
            "kiln_admission_seconds_bucket{path=\"/mutate\",le=\"10\"} 2",
            "kiln_admission_seconds_bucket{path=\"/mutate\",le=\"+Inf\"} 3",
            "kiln_admission_seconds_sum{path=\"/mutate\"} 60.253",
            "kiln_admission_seconds_count{path=\"/mutate\"} 3",
            "kiln_api_call_seconds_bucket{verb=\"get\",le=\"0.001\"} 1",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in {text}");
        }
        metrics.clear("kiln_policies");
        assert!(!metrics.text().contains("a\\\"b"));
    }

    #[test]
    fn every_family_is_named_once() {
        let all = || FAMILIES.iter().chain(&KYVERNO_FAMILIES);
        let mut names: Vec<_> = all().map(|family| family.name).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), all().count());
    }
}
