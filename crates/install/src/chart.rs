//! The templates of the Helm chart that hold more data than choices: definitions, accounts and roles, alerts and dashboard.
//!
//! They are [`crate::manifests`] itself, printed with marks where a value of the chart stands, and templates in the place
//! of the marks. `cargo xtask accept` writes them below `charts/kiln/templates`; tests hold them, and what the other
//! templates render, equal to what `kiln install` prints.

use kiln_value::{Map, Value, json};
use kiln_yaml::emit_documents;

use crate::definitions::{self, definitions, is_of_kyverno, is_of_reports, own_definitions};
use crate::{Grant, InstallOptions, Monitoring, access, marked, monitoring};

const NAMESPACE: &str = "mark-namespace";
const ACCOUNT: &str = "mark-pod";
const NAME: &str = "mark-name";
const LABELS: &str = "mark-labels";
const MONITORING_LABELS: &str = "mark-monitoring-labels";
const ANNOTATIONS: &str = "mark-annotations";
const ACCOUNT_ANNOTATIONS: &str = "mark-account-annotations";
const RUNBOOK: &str = "mark-runbook";

/// What CRDs say to Helm: to delete them would delete all policies, and what they generated.
const KEEP: &str = "helm.sh/resource-policy";

/// The generated templates: the name of each file and its text.
pub fn templates() -> Vec<(&'static str, String)> {
    let options = marks();
    let kept = |definitions: Vec<Value>| -> String {
        let definitions = definitions.into_iter().map(|definition| {
            let mut definition = marked(&options, definition);
            let _ = definition.set(["metadata", "annotations", KEEP], "keep");
            definition
        });
        template(&definitions.collect::<Vec<_>>())
    };
    let (shared, others): (Vec<_>, Vec<_>) = definitions().into_iter().partition(is_of_kyverno);
    let (reports, shared): (Vec<_>, Vec<_>) = shared.into_iter().partition(is_of_reports);
    let stands_for_kyverno = r#"eq .Values.name "kyverno""#;
    let reported = r#"or .Values.crds.reports (eq .Values.name "kyverno")"#;
    let own = r#"or .Values.crds.ownGroup (ne .Values.name "kyverno")"#;
    let open = definitions::open_reports();
    let crds = [
        (".Values.crds.install", kept(others)),
        (&*format!("and .Values.crds.install ({stands_for_kyverno})"), kept(shared)),
        (&*format!("and .Values.crds.install ({reported})"), kept(reports)),
        (&*format!("and .Values.crds.install ({own})"), kept(own_definitions())),
        ("and .Values.crds.install .Values.openReports", kept(open)),
    ]
    .map(|(condition, text)| format!("{{{{- if {condition} }}}}\n---\n{text}{{{{- end }}}}\n"));
    let [rule, dashboard] = [
        Monitoring { prometheus_rule: true, ..options.monitoring.clone() },
        Monitoring { dashboard: true, ..options.monitoring.clone() },
    ]
    .map(|monitoring| monitoring::objects(&InstallOptions { monitoring, ..options.clone() }));
    vec![
        ("crds.yaml", written(&crds.concat())),
        ("permissions.yaml", written(&permissions(&options))),
        ("prometheus-rule.yaml", when(".Values.monitoring.prometheusRule", &template(&rule))),
        ("dashboard.yaml", when(".Values.monitoring.dashboard", &template(&dashboard))),
    ]
}

/// Options with a mark wherever a value of the chart stands.
fn marks() -> InstallOptions {
    let mark = |name: &str| {
        let mut map = Map::new();
        map.insert(name, "");
        map
    };
    let mut options = InstallOptions {
        namespace: NAMESPACE.to_owned(),
        name: NAME.to_owned(),
        labels: mark(LABELS),
        annotations: mark(ANNOTATIONS),
        ..InstallOptions::default()
    };
    options.service_account.name = ACCOUNT.to_owned();
    options.service_account.annotations = mark(ACCOUNT_ANNOTATIONS);
    options.monitoring.labels = mark(MONITORING_LABELS);
    options.monitoring.runbook_url = RUNBOOK.to_owned();
    options.permissions.grant = Grant::Standard;
    options.permissions.admission = vec![Value::map()];
    options.permissions.controller = vec![Value::map()];
    options
}

/// Accounts and roles, some of them only with some values.
fn permissions(options: &InstallOptions) -> String {
    let mut text = String::new();
    for object in access::objects(options) {
        let name = object.str_at(["metadata", "name"]).unwrap_or_default().to_owned();
        let one = template(&[object]);
        let one = if name.ends_with(":standard") {
            let condition = r#"eq .Values.permissions.grant "standard""#;
            format!("{{{{- if {condition} }}}}\n---\n{one}{{{{- end }}}}\n")
        } else if name.ends_with(":additional") {
            let side = if name.contains("admission") { "admission" } else { "controller" };
            let one = one.replace("rules:\n- {}\n", "rules: {{ toRawJson . }}\n");
            // Inside of it the dot is the list.
            let one = one.replace("\" . }}", "\" $ }}");
            format!("{{{{- with .Values.permissions.{side} }}}}\n---\n{one}{{{{- end }}}}\n")
        } else {
            format!("---\n{one}")
        };
        text.push_str(&one);
    }
    text
}

/// A file that is empty unless something is true.
fn when(condition: &str, text: &str) -> String {
    written(&format!("{{{{- if {condition} }}}}\n{text}{{{{- end }}}}\n"))
}

fn written(text: &str) -> String {
    format!("{{{{- /* Written by `cargo xtask accept` from crates/install. */}}}}\n{text}")
}

/// Objects with templates in the place of marks.
fn template(objects: &[Value]) -> String {
    let printed = emit_documents(objects).replace("{{", "{{ \"{{\" }}");
    let mut text = String::new();
    let mut lines = printed.lines().peekable();
    let is_mark = |line: &str, mark: &str| line.trim() == format!("{mark}: \"\"");
    while let Some(line) = lines.next() {
        if line == "  annotations:" {
            let mut own = Vec::new();
            while let Some(next) = lines.next_if(|next| next.starts_with("    ")) {
                own.push(next);
            }
            let is_account = own.iter().any(|line| is_mark(line, ACCOUNT_ANNOTATIONS));
            own.retain(|line| {
                ![ANNOTATIONS, ACCOUNT_ANNOTATIONS].iter().any(|mark| is_mark(line, mark))
            });
            let called = match (is_account, own.is_empty()) {
                (true, _) => "account-annotations",
                // Annotations that are nothing but marks are there only if there are any.
                (false, true) => "annotations",
                (false, false) => {
                    text.push_str(&format!("{line}\n{}\n", own.join("\n")));
                    "annotation-lines"
                }
            };
            text.push_str(&format!("{{{{- template \"kiln.{called}\" . }}}}\n"));
        } else if is_mark(line, MONITORING_LABELS) {
            text.push_str("{{- template \"kiln.monitoring-label-lines\" . }}\n");
        } else if is_mark(line, LABELS) {
            // Labels for monitoring bring the others along.
            if !printed.contains(MONITORING_LABELS) {
                text.push_str("{{- template \"kiln.label-lines\" . }}\n");
            }
        } else if let Some((before, anchor)) = line.split_once(RUNBOOK) {
            text.push_str("{{- with $.Values.monitoring.runbookUrl }}\n");
            text.push_str(&format!("{before}{{{{ . }}}}{anchor}\n{{{{- end }}}}\n"));
        } else {
            let line = line.replace(NAMESPACE, "{{ .Release.Namespace }}");
            let line = line.replace(NAME, "{{ $.Values.name }}");
            let line = line.replace("rbac.kiln.dev/", "rbac.{{ template \"kiln.domain\" $ }}/");
            text.push_str(&line.replace(ACCOUNT, "{{ .Values.serviceAccount.name }}"));
            text.push('\n');
        }
    }
    text
}

/// The page about values: a table of what the schema says of each, with its default.
pub fn reference(schema: &str, defaults: &Value) -> String {
    let mut page = String::from(PAGE);
    if let Ok(schema) = json::parse(schema) {
        rows(&schema, defaults, "", &mut page);
    }
    page
}

const PAGE: &str = "# Helm values

<!-- Written by `cargo xtask accept` from charts/kiln/values.schema.json and values.yaml. -->

Values of the chart `charts/kiln`, and of `kiln install --values FILE`. The schema is strict: a value that is not in
this table is an error. [Production install](../guides/production.md) shows the common ones.

| value | default | meaning |
|---|---|---|
";

fn rows(schema: &Value, defaults: &Value, at: &str, page: &mut String) {
    let properties = schema.get("properties").and_then(Value::as_map);
    for (key, part) in properties.into_iter().flat_map(Map::iter) {
        // What a parent chart shares is not a value of this one.
        let Some(default) = defaults.get(key.as_str()) else { continue };
        let path = format!("{at}{key}");
        if part.get("properties").is_some() && default.as_map().is_some_and(|map| !map.is_empty()) {
            rows(part, default, &format!("{path}."), page);
            continue;
        }
        let meaning = part.str_at(["description"]).unwrap_or_default();
        let choices = part.get("enum").and_then(Value::as_list);
        let choices: Vec<String> = choices
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .filter(|choice| !choice.is_empty() && !meaning.contains(&format!("`{choice}`")))
            .map(|choice| format!("`{choice}`"))
            .collect();
        let choices = match choices.is_empty() {
            true => String::new(),
            false => format!(" One of {}.", choices.join(", ")),
        };
        let default = json::to_string(default);
        // The filters alone are longer than a line.
        let default = match default.len() {
            0..=60 => format!("`{default}`"),
            _ => "see `values.yaml`".to_owned(),
        };
        page.push_str(&format!("| `{path}` | {default} | {meaning}{choices} |\n"));
    }
}
