//! Test suites of a workspace: run, and written from what rules did.

use kiln_diagnostic::Diagnostic;
use kiln_engine::NoExternalData;
use kiln_jmespath::AmbientSources;
use kiln_suites::{Report as SuitesReport, Selector, SuiteOptions};
use kiln_value::{Map, Value};
use kiln_yaml::{ReadOptions, emit};

use super::workspace::{FileRole, Workspace};

/// What came of the suites; none where there are none.
pub(super) fn run_tests(
    workspace: &Workspace,
    sources: &dyn AmbientSources,
    problems: &mut Vec<Diagnostic>,
) -> Option<Value> {
    let mut suites = Vec::new();
    for file in workspace.of(FileRole::Tests).filter(|file| !file.text.trim().is_empty()) {
        let options = SuiteOptions {
            sources,
            selector: Selector::parse("").ok()?,
            read: ReadOptions::kubernetes(),
            services: &NoExternalData,
            definitions: &[],
        };
        let suite = kiln_suites::run(&file.path, workspace, &options);
        // Those of policies and resources have been found already.
        let own = suite.problems.iter().filter(|problem| {
            problem.place.as_ref().is_none_or(|place| place.source().name() == file.path)
        });
        problems.extend(own.cloned());
        suites.push(suite);
    }
    (!suites.is_empty()).then(|| SuitesReport { suites }.as_value())
}

/// A suite that expects what rules did, in the format of `kiln test`. `results` are those of an evaluation.
pub(super) fn suite_of(workspace: &Workspace, results: &Value) -> String {
    let paths = |role: FileRole| -> Value {
        workspace.of(role).map(|file| Value::from(file.path.as_str())).collect()
    };
    let mut rows: Vec<Map> = Vec::new();
    for result in results.as_list().into_iter().flatten() {
        let text = |key: &str| result.str_at([key]).unwrap_or_default();
        let resource: Vec<&str> = text("resource").rsplit('/').collect();
        let (name, kind) = match resource.as_slice() {
            [name, namespace, kind, _, ..] if !namespace.is_empty() && !is_kind(namespace) => {
                (format!("{namespace}/{name}"), *kind)
            }
            [name, kind, ..] => ((*name).to_owned(), *kind),
            _ => continue,
        };
        let same = rows.iter_mut().find(|row| {
            let is = |key: &str, value: &str| row.get(key).and_then(Value::as_str) == Some(value);
            is("policy", text("policy"))
                && is("rule", text("rule"))
                && is("kind", kind)
                && is("result", text("result"))
        });
        match same.and_then(|row| row.get_mut("resources")?.as_list_mut()) {
            Some(resources) => resources.push(Value::from(name)),
            None => rows.push(Map::from_iter([
                ("policy", Value::from(text("policy"))),
                ("rule", Value::from(text("rule"))),
                ("kind", Value::from(kind)),
                ("resources", Value::from(vec![name])),
                ("result", Value::from(text("result"))),
            ])),
        }
    }
    let mut fields = Map::from_iter([
        ("apiVersion", Value::from("cli.kyverno.io/v1alpha1")),
        ("kind", Value::from("Test")),
        ("metadata", Value::from(Map::from_iter([("name", "playground")]))),
        ("policies", paths(FileRole::Policies)),
        ("resources", paths(FileRole::Resources)),
    ]);
    let targets = paths(FileRole::Cluster);
    if targets.as_list().is_some_and(|list| !list.is_empty()) {
        fields.insert("targetResources", targets);
    }
    if let Some(values) = workspace.of(FileRole::Values).next() {
        fields.insert("variables", values.path.as_str());
    }
    fields.insert("results", rows.into_iter().map(Value::from).collect::<Value>());
    emit(&Value::from(fields))
}

/// Kinds begin with a capital, which names of namespaces cannot.
fn is_kind(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_uppercase())
}
