//! The results as the kinds of reports that clusters have.

use std::time::{SystemTime, UNIX_EPOCH};

use kiln_engine::RuleSet;
use kiln_object::metadata;
use kiln_offline::{RuleResult, Status};
use kiln_rules::Payload;
use kiln_value::{Map, Value};

use super::ReportGroup;
use super::show::message;

const CATEGORY: &str = "policies.kyverno.io/category";
const SEVERITY: &str = "policies.kyverno.io/severity";
const SCORED: &str = "policies.kyverno.io/scored";
const SEVERITIES: [&str; 5] = ["critical", "high", "medium", "low", "info"];

/// What a policy says about itself to those who read reports and findings.
pub(super) struct PolicyFacts<'p> {
    document: Option<&'p Value>,
}

impl<'p> PolicyFacts<'p> {
    pub(super) fn of(rules: &'p RuleSet, result: &RuleResult) -> Self {
        PolicyFacts {
            document: rules.rule(&result.rule).map(|rule| rule.origin.document().value()),
        }
    }

    pub(super) fn annotation(&self, key: &str) -> Option<&'p str> {
        metadata::annotation(self.document?, key)
    }

    pub(super) fn category(&self) -> Option<&'p str> {
        self.annotation(CATEGORY).filter(|category| !category.is_empty())
    }

    /// One of Kyverno's five words; others mean nothing.
    pub(super) fn severity(&self) -> Option<&'p str> {
        self.annotation(SEVERITY).filter(|severity| SEVERITIES.contains(severity))
    }

    /// Whether the policy is also run over what is stored already.
    fn in_background(&self) -> bool {
        let Some(spec) = self.document.and_then(|document| document.get("spec")) else {
            return true;
        };
        let flag = |path: &[&str]| spec.get_path(path.iter().copied()).and_then(Value::as_bool);
        flag(&["background"]).or(flag(&["evaluation", "background", "enabled"])).unwrap_or(true)
    }
}

/// One report for all policies of the cluster, one for each namespaced policy.
pub(super) fn policy_reports(
    group: ReportGroup,
    rules: &RuleSet,
    results: &[&RuleResult],
) -> Vec<Value> {
    let of_cluster = |result: &&RuleResult| result.rule.policy.namespace.is_none();
    // Reports know no rules that do not match.
    let matched = results.iter().copied().filter(|result| result.status != Status::NoMatch);
    let (clustered, others): (Vec<&RuleResult>, Vec<&RuleResult>) = matched.partition(of_cluster);
    let mut namespaced: Vec<(String, Vec<&RuleResult>)> = Vec::new();
    for result in others {
        let key = result.rule.policy.key();
        match namespaced.iter_mut().find(|(known, _)| *known == key) {
            Some((_, results)) => results.push(result),
            None => namespaced.push((key, vec![result])),
        }
    }
    let (version, of_cluster, of_namespace) = match group {
        ReportGroup::Openreports => ("openreports.io/v1alpha1", "ClusterReport", "Report"),
        ReportGroup::Wgpolicy => ("wgpolicyk8s.io/v1alpha2", "ClusterPolicyReport", "PolicyReport"),
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let write = |kind: &str, metadata: Map, results: &[&RuleResult]| {
        let count = |word: &str| results.iter().filter(|one| one.report_word() == word).count();
        let summary = [Status::Pass, Status::Fail, Status::Warn, Status::Error, Status::Skip]
            .map(Status::as_str)
            .map(|word| (word, Value::from(count(word))));
        Value::from(Map::from_iter([
            ("apiVersion", Value::from(version)),
            ("kind", Value::from(kind)),
            ("metadata", Value::from(metadata)),
            ("results", results.iter().map(|result| as_result(rules, result, now)).collect()),
            ("summary", Value::from(Map::from_iter(summary))),
        ]))
    };
    let mut reports = Vec::new();
    if !clustered.is_empty() || namespaced.is_empty() {
        reports.push(write(of_cluster, Map::from_iter([("name", "merged")]), &clustered));
    }
    for (key, results) in namespaced {
        let (namespace, name) = key.split_once('/').unwrap_or(("", &key));
        let metadata = Map::from_iter([("name", name), ("namespace", namespace)]);
        reports.push(write(of_namespace, metadata, &results));
    }
    reports
}

fn as_result(rules: &RuleSet, result: &RuleResult, now: u64) -> Value {
    let id = &result.trigger;
    let mut resource = Map::from_iter([
        ("apiVersion", Value::from(id.gvk.api_version())),
        ("kind", Value::from(id.gvk.kind.clone())),
        ("name", Value::from(id.name.clone())),
    ]);
    if !id.namespace.is_empty() {
        resource.insert("namespace", id.namespace.clone());
    }
    let facts = PolicyFacts::of(rules, result);
    let policy = &result.rule.policy;
    let mut fields = Map::from_iter([
        ("source", Value::from(policy.dialect.report_source())),
        ("policy", Value::from(policy.key())),
    ]);
    let is_excepted = !result.exceptions.is_empty();
    // Kyverno: data and resources are judged by policies, requests to other servers by their rules.
    let payload = rules.rule(&result.rule).map(|rule| rule.trigger.payload);
    let own = matches!(payload, Some(Payload::Http | Payload::Envoy));
    let own = own.then_some(result.rule.rule.as_str());
    match result.rule.in_reports().or(own) {
        Some(rule) => drop(fields.insert("rule", rule)),
        // Kyverno: the only results of such policies that name a rule.
        None if is_excepted => drop(fields.insert("rule", "exception")),
        None => {}
    }
    let mut properties: Map =
        result.properties.iter().map(|(key, value)| (key.as_str(), value.clone())).collect();
    let said = [result.report_word(), ""].into_iter().find_map(|status| {
        let key = if status.is_empty() { "message".to_owned() } else { format!("{status}Message") };
        properties.get(&key).and_then(Value::as_str).map(str::to_owned)
    });
    let said = said.unwrap_or_else(|| message(result));
    if !said.is_empty() {
        fields.insert("message", said);
    }
    fields.insert("result", result.report_word());
    fields.insert("scored", facts.annotation(SCORED) != Some("false"));
    for (key, value) in [("category", facts.category()), ("severity", facts.severity())] {
        if let Some(value) = value {
            fields.insert(key, value);
        }
    }
    let process = if facts.in_background() { "background scan" } else { "admission review" };
    properties.insert("process", process);
    if is_excepted {
        properties.insert("exceptions", result.exceptions.join(","));
    }
    if let Some((key, binding)) = result.rule.binding() {
        properties.insert(key, binding);
    }
    fields.insert("properties", properties);
    fields.insert("timestamp", Map::from_iter([("seconds", now), ("nanos", 0)]));
    fields.insert("resources", Value::from_iter([resource]));
    Value::from(fields)
}
