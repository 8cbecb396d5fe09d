//! What is counted, and how Prometheus reads it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Mutex, PoisonError};

/// Counters and gauges. Names and help are those of [`FAMILIES`]; others are not shown.
#[derive(Debug, Default)]
pub struct Metrics {
    samples: Mutex<BTreeMap<(&'static str, String), Sample>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Sample {
    value: f64,
    count: u64,
}

/// What kind of number a family is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// It only grows.
    Counter,
    /// It goes up and down.
    Gauge,
    /// A sum of observations and how many there were.
    Summary,
}

/// Every number there is: its name, form, and what it says.
pub const FAMILIES: [(&str, Form, &str); 10] = [
    ("kiln_api_calls_total", Form::Counter, "Calls to the API server, by verb, kind and outcome."),
    (
        "kiln_watch_restarts_total",
        Form::Counter,
        "Watches that were begun again, by kind and reason.",
    ),
    ("kiln_watch_events_total", Form::Counter, "What watches told, by kind."),
    ("kiln_rule_results_total", Form::Counter, "What came of rules, by policy, rule and result."),
    ("kiln_policies", Form::Gauge, "Policies, by state."),
    ("kiln_keys", Form::Gauge, "Pairs of a rule and a trigger that are looked after."),
    (
        "kiln_conditions",
        Form::Gauge,
        "Pairs of a rule and a trigger whose work is not done, by reason.",
    ),
    (
        "kiln_hints_total",
        Form::Counter,
        "Requests that the admission side told the controller about.",
    ),
    (
        "kiln_admission_requests_total",
        Form::Counter,
        "Admission requests, by path, operation and answer.",
    ),
    ("kiln_admission_seconds", Form::Summary, "How long admission requests took, by path."),
];

impl Metrics {
    /// Counts something that happened.
    pub fn count(&self, name: &'static str, labels: &[(&str, &str)]) {
        self.change(name, labels, |sample| sample.value += 1.0);
    }

    /// Says how much of something there is.
    pub fn set(&self, name: &'static str, labels: &[(&str, &str)], value: f64) {
        self.change(name, labels, |sample| sample.value = value);
    }

    /// Adds an observation to a summary.
    pub fn observe(&self, name: &'static str, labels: &[(&str, &str)], value: f64) {
        self.change(name, labels, |sample| {
            sample.value += value;
            sample.count += 1;
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
        for (name, form, help) in FAMILIES {
            let word = match form {
                Form::Counter => "counter",
                Form::Gauge => "gauge",
                Form::Summary => "summary",
            };
            // Writing to a string does not fail.
            let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {word}");
            let range = samples.range((name, String::new())..);
            for ((_, labels), sample) in range.take_while(|((known, _), _)| *known == name) {
                let _ = match form {
                    Form::Summary => writeln!(
                        out,
                        "{name}_sum{labels} {}\n{name}_count{labels} {}",
                        sample.value, sample.count
                    ),
                    _ => writeln!(out, "{name}{labels} {}", sample.value),
                };
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
        let key = (name, labels_text(labels));
        let mut samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        change(samples.entry(key).or_default());
    }
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
        metrics.count("kiln_hints_total", &[]);
        metrics.count("kiln_hints_total", &[]);
        metrics.set("kiln_policies", &[("state", "a\"b")], 3.0);
        metrics.observe("kiln_admission_seconds", &[("path", "/mutate")], 0.25);
        let text = metrics.text();
        for line in [
            "kiln_hints_total 2",
            "kiln_policies{state=\"a\\\"b\"} 3",
            "kiln_admission_seconds_sum{path=\"/mutate\"} 0.25",
            "kiln_admission_seconds_count{path=\"/mutate\"} 1",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in {text}");
        }
        metrics.clear("kiln_policies");
        assert!(!metrics.text().contains("a\\\"b"));
    }

    #[test]
    fn every_family_is_named_once() {
        let mut names: Vec<_> = FAMILIES.iter().map(|(name, _, _)| name).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), FAMILIES.len());
    }
}
