//! Alerts, dashboard and documentation speak of numbers that exist.

use std::collections::BTreeSet;
use std::fmt::Debug;

use kiln_cluster::Reason;
use kiln_controller::Waiting;
use kiln_install::{alerts, dashboard};
use kiln_runtime::metrics::{DEPRECATED_NAMES, FAMILIES, Family, Form, KYVERNO_FAMILIES, Metrics};
use kiln_testkit::project_root;
use kiln_value::Value;
use promql_parser::label::MatchOp;
use promql_parser::parser::{Expr, LabelModifier, VectorSelector, parse};

#[test]
fn every_alert_can_fire_and_is_explained() {
    let page = std::fs::read_to_string(project_root().join("docs/reference/alerts.md")).unwrap();
    let alerts = alerts("https://docs.example.com/alerts.html");
    let rules = alerts.get_path(["groups"]).unwrap().index(0).unwrap().get("rules").unwrap();
    let mut names = BTreeSet::new();
    for rule in rules.as_list().unwrap() {
        let text = |path: &[&str]| rule.str_at(path.iter().copied()).unwrap().to_owned();
        let name = text(&["alert"]);
        check(&text(&["expr"]));
        assert!(
            page.contains(&format!("\n### {name}\n")),
            "docs/reference/alerts.md explains no {name}"
        );
        let runbook = format!("https://docs.example.com/alerts.html#{}", name.to_lowercase());
        assert_eq!(text(&["annotations", "runbook_url"]), runbook);
        assert!(["critical", "warning"].contains(&text(&["labels", "severity"]).as_str()));
        assert!(names.insert(name));
    }
    let explained = page.lines().filter_map(|line| line.strip_prefix("### "));
    assert_eq!(explained.map(str::to_owned).collect::<BTreeSet<_>>(), names);
}

#[test]
fn every_picture_shows_numbers_that_exist_and_none_is_left_out() {
    let dashboard = dashboard();
    let panels = dashboard.get("panels").and_then(Value::as_list).unwrap();
    let mut shown = BTreeSet::new();
    let mut ids = BTreeSet::new();
    for panel in panels {
        assert!(ids.insert(panel.get("id").and_then(Value::as_i64)));
        for target in panel.get("targets").and_then(Value::as_list).into_iter().flatten() {
            // Grafana puts an interval there.
            let expression = target.str_at(["expr"]).unwrap().replace("$__rate_interval", "5m");
            shown.extend(check(&expression));
        }
    }
    let all: BTreeSet<&str> = FAMILIES.iter().map(|family| family.name).collect();
    assert_eq!(shown, all);
}

#[test]
fn every_number_is_documented_with_its_labels() {
    let page = std::fs::read_to_string(project_root().join("docs/reference/metrics.md")).unwrap();
    for Family { name, labels, .. } in FAMILIES.iter().chain(&KYVERNO_FAMILIES) {
        let line =
            page.lines().find(|line| line.starts_with('|') && line.contains(&format!("`{name}`")));
        let line =
            line.unwrap_or_else(|| panic!("docs/reference/metrics.md says nothing of {name}"));
        let column = line.split('|').nth(2).unwrap().trim();
        assert_eq!(column, labels.join(", "), "{name}");
    }
    for (new, old) in DEPRECATED_NAMES {
        let line = page.lines().find(|line| line.starts_with(&format!("| `{new}`")));
        assert!(
            line.is_some_and(|line| line.contains(&format!("`{old}`"))),
            "{new}, formerly {old}"
        );
    }
}

#[test]
fn what_dashboards_for_kyverno_ask_for_is_there_on_demand() {
    // As Kyverno's own dashboard asks: names, and the labels that it groups and selects by.
    let asked = [
        "sum(increase(kyverno_policy_results_total{rule_execution_cause=\"background_scan\"}[5m])) by (rule_result)",
        "sum(increase(kyverno_policy_results_total{rule_result=\"fail\", policy_background_mode=\"true\"}[24h]))",
        "sum(kyverno_policy_execution_duration_seconds_sum) by (policy_name, policy_type)",
        "sum(rate(kyverno_policy_execution_duration_seconds_count[5m])) by (rule_type)",
        "count(count(kyverno_policy_rule_info_total{policy_namespace!=\"-\"}==1) by (policy_name, policy_namespace))",
        "count(count(kyverno_policy_rule_info_total{policy_type=\"cluster\"}==1) by (policy_name, policy_validation_mode))",
        "sum(rate(kyverno_admission_review_duration_seconds_sum[5m])) by (resource_request_operation)",
        "sum(increase(kyverno_admission_requests_total[5m])) by (resource_kind)",
        "sum(increase(kyverno_policy_changes_total[5m])) by (policy_change_type)",
        "sum(increase(kyverno_policy_changes_total[5m])) by (policy_type)",
        "sum by (policy_name, result) (increase(kyverno_validating_policy_results_total{execution_cause=\"admission_request\"}[5m]))",
        "sum by (result) (increase(kyverno_mutating_policy_results_total{execution_cause=\"background_scan\"}[5m]))",
        "sum(increase(kyverno_generating_policy_results_total{result=\"fail\"}[5m]))",
        "sum(rate(kyverno_validating_policy_execution_duration_seconds_sum[5m])) by (policy_name)",
        "sum(rate(kyverno_mutating_policy_execution_duration_seconds_count[5m])) by (policy_name)",
        "sum(rate(kyverno_generating_policy_execution_duration_seconds_sum[5m])) by (policy_name)",
    ];
    for expression in asked {
        let parsed = parse(expression).unwrap_or_else(|error| panic!("{expression}: {error}"));
        let (mut found, mut grouped) = (Vec::new(), BTreeSet::new());
        walk(&parsed, &mut found, &mut grouped);
        for selector in found {
            let asked = selector.name.as_deref().unwrap();
            let plain = asked.trim_end_matches("_sum").trim_end_matches("_count");
            let family = KYVERNO_FAMILIES.iter().find(|family| family.name == plain);
            let family = family.unwrap_or_else(|| panic!("{expression}: there is no {asked}"));
            let selected = selector.matchers.matchers.iter().map(|matcher| matcher.name.clone());
            for label in selected.chain(grouped.iter().cloned()) {
                assert!(family.labels.contains(&label.as_str()), "{expression}: {label}");
            }
        }
    }
    let help = "# HELP kyverno_policy_results_total";
    assert!(Metrics::with_kyverno_names(true).text().contains(help));
    assert!(!Metrics::default().text().contains(help));
}

/// Checks an expression: it can be read, and asks for numbers, labels and values that exist. Gives the numbers.
fn check(expression: &str) -> BTreeSet<&'static str> {
    let parsed = parse(expression).unwrap_or_else(|error| panic!("{expression}: {error}"));
    let mut found = Vec::new();
    let mut grouped = BTreeSet::new();
    walk(&parsed, &mut found, &mut grouped);
    assert!(!found.is_empty(), "{expression} asks for nothing");
    let mut names = BTreeSet::new();
    // `instance` is what Prometheus adds.
    let mut labels: BTreeSet<&str> = BTreeSet::from(["instance"]);
    for selector in &found {
        let asked = selector.name.as_deref().unwrap();
        let family = FAMILIES.iter().find(|family| match family.form {
            Form::Histogram => asked == format!("{}_bucket", family.name),
            _ => asked == family.name,
        });
        let family = family.unwrap_or_else(|| panic!("{expression}: there is no {asked}"));
        names.insert(family.name);
        labels.extend(family.labels);
        if family.form == Form::Histogram {
            labels.insert("le");
        }
        for matcher in &selector.matchers.matchers {
            assert!(
                family.labels.contains(&matcher.name.as_str()),
                "{expression}: {}",
                matcher.name
            );
            let known = values(family.name, &matcher.name);
            let asked = match matcher.op {
                MatchOp::Re(_) | MatchOp::NotRe(_) => matcher.value.split('|').collect(),
                _ => vec![matcher.value.as_str()],
            };
            for value in asked {
                assert!(
                    known.iter().any(|known| known == value),
                    "{expression}: {value:?} never comes"
                );
            }
        }
    }
    for label in grouped {
        assert!(
            labels.contains(label.as_str()),
            "{expression}: {label} is not a label of {names:?}"
        );
    }
    names
}

/// What a label can say, as far as alerts and dashboard name it.
fn values(family: &str, label: &str) -> Vec<String> {
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    let debug = |words: &[&dyn Debug]| words.iter().map(|word| format!("{word:?}")).collect();
    match (family, label) {
        ("kiln_conditions", "reason") => debug(&[
            &Waiting::Forbidden,
            &Waiting::Unavailable,
            &Waiting::Missing,
            &Waiting::Failed,
            &Waiting::Contested,
            &Waiting::Loop,
        ]),
        ("kiln_api_calls_total", "outcome") => {
            let failed = [Reason::Forbidden, Reason::Invalid, Reason::Unavailable];
            failed.iter().map(|reason| reason.as_str()).chain(["ok"]).map(str::to_owned).collect()
        }
        ("kiln_scan_objects", "state") => words(&["checked", "waiting"]),
        ("kiln_policies", "state") => words(&["sound", "broken", "not run"]),
        ("kiln_requests_written_total", "outcome") => words(&["written", "failed", "held back"]),
        ("kiln_admission_requests_total", "answer") => {
            words(&["refused", "broken", "late", "too many connections", "too many reviews"])
        }
        ("kiln_shadow_requests_total", "result") => {
            words(&["same", "weaker", "stricter", "object", "generated", "report"])
        }
        ("kiln_scan_results_total", "result") => words(&["pass", "fail", "error"]),
        ("kiln_rule_results_total", "result") => {
            words(&["pass", "fail", "warn", "error", "made", "changed", "failed"])
        }
        _ => panic!("say what {label} of {family} can be"),
    }
}

fn walk<'e>(
    expression: &'e Expr,
    found: &mut Vec<&'e VectorSelector>,
    grouped: &mut BTreeSet<String>,
) {
    match expression {
        Expr::VectorSelector(selector) => found.push(selector),
        Expr::MatrixSelector(matrix) => found.push(&matrix.vs),
        Expr::Aggregate(aggregate) => {
            if let Some(LabelModifier::Include(labels)) = &aggregate.modifier {
                grouped.extend(labels.labels.iter().cloned());
            }
            walk(&aggregate.expr, found, grouped);
        }
        Expr::Binary(binary) => {
            walk(&binary.lhs, found, grouped);
            walk(&binary.rhs, found, grouped);
        }
        Expr::Call(call) => {
            call.args.args.iter().for_each(|argument| walk(argument, found, grouped));
        }
        Expr::Paren(inner) => walk(&inner.expr, found, grouped),
        Expr::Unary(inner) => walk(&inner.expr, found, grouped),
        Expr::Subquery(inner) => walk(&inner.expr, found, grouped),
        Expr::NumberLiteral(_) | Expr::StringLiteral(_) | Expr::Extension(_) => {}
    }
}
