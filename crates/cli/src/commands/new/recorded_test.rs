//! `kiln new test`: what policies do now, as the expectations of a test.

use std::io::Write as _;
use std::path::Path;

use kiln_diagnostic::Diagnostic;
use kiln_dialects::{PolicyHost, is_exception, is_policy};
use kiln_engine::{EvaluationLimits, HostAllowlist};
use kiln_object::ObjectId;
use kiln_offline::{Job, Report, RuleResult, Status, Values, run as run_offline};
use kiln_services::Services;
use kiln_value::{Map, Value, value};
use kiln_yaml::{Document, EmitOptions, KeyOrder, emit_into};

use super::{shown, write_new};
use crate::args::Global;
use crate::exit::{CommandFailure, CommandOutcome, CommandResult};
use crate::input;
use crate::policy_files::{compile_rules, kinds_of, objects_of, read_all, rule_set};
use crate::system_env::SystemEnv;
use crate::ui::{Ui, counted};

const FILE: &str = "kyverno-test.yaml";

const HEAD: &str = "\
# What the policies here do with the resources here, as `kiln new test` found it.
# Read it: it says what happens, not what should. `kiln test` compares.
";

pub(super) fn run(ui: &Ui, global: &Global, directory: &Path) -> CommandResult {
    let place = directory.join(FILE);
    if std::fs::symlink_metadata(&place).is_ok() {
        return Err(Diagnostic::error(format!("{} is there already", shown(&place)))
            .hint(format!("remove it first, or run it with: kiln test {}", shown(directory)))
            .into());
    }
    let (mut policies, mut resources, mut exceptions) = (Vec::new(), Vec::new(), Vec::new());
    let (mut policy_files, mut resource_files) = (Vec::new(), Vec::new());
    let mut exception_files = Vec::new();
    for path in input::files_below(&directory.display().to_string())? {
        let name = relative(&path, directory);
        let documents = read_all(&[path], global)?;
        let is_test = |document: &Document| {
            document.value().str_at(["apiVersion"]).is_some_and(|version| {
                version.starts_with("cli.kyverno.io/") || version.starts_with("chainsaw.")
            })
        };
        let is_object = |document: &Document| ObjectId::of(document.value()).is_ok();
        if documents.iter().any(is_test) || !documents.iter().all(is_object) {
            continue;
        }
        if documents.iter().any(is_policy) {
            policy_files.push(name);
            policies.extend(documents);
        } else if documents.iter().any(is_exception) {
            exception_files.push(name);
            exceptions.extend(documents);
        } else if !documents.is_empty() {
            resource_files.push(name);
            resources.extend(documents);
        }
    }
    if policies.is_empty() || resources.is_empty() {
        let missing = if policies.is_empty() { "policy" } else { "resource" };
        return Err(Diagnostic::error(format!("there is no {missing} below {}", shown(directory)))
            .hint("put policies and resources into the directory, or begin with: kiln new policy NAME")
            .into());
    }
    policies.extend(exceptions);
    let report = apply(ui, &policies, resources)?;
    let results = expectations(&report);
    let count = results.len();
    let name = std::path::absolute(directory).ok();
    let name = name.as_deref().and_then(Path::file_name).and_then(|name| name.to_str());
    let mut fields = Map::from_iter([
        ("apiVersion", Value::from("cli.kyverno.io/v1alpha1")),
        ("kind", Value::from("Test")),
        ("metadata", value!({"name": (name.unwrap_or("test"))})),
        ("policies", Value::from_iter(policy_files)),
        ("resources", Value::from_iter(resource_files)),
    ]);
    if !exception_files.is_empty() {
        fields.insert("exceptions", Value::from_iter(exception_files));
    }
    fields.insert("results", Value::from_iter(results));
    let mut text = HEAD.to_owned();
    emit_into(&mut text, &Value::from(fields), &EmitOptions { key_order: KeyOrder::AsIs });
    write_new(&place, &text)?;
    let mut out = ui.stdout();
    let expected = counted(count, "expected result", "expected results");
    writeln!(out, "wrote {} with {expected}", shown(&place))?;
    writeln!(out, "next: kiln test {}", shown(directory))?;
    out.flush()?;
    Ok(CommandOutcome::Done)
}

fn relative(path: &str, directory: &Path) -> String {
    let below = Path::new(path).strip_prefix(directory).unwrap_or(Path::new(path));
    below.display().to_string().trim_start_matches("./").to_owned()
}

fn apply(
    ui: &Ui,
    policies: &[Document],
    resources: Vec<Document>,
) -> Result<Report, CommandFailure> {
    let kinds = kinds_of(policies.iter().chain(&resources))?;
    let compiled = compile_rules(ui, PolicyHost::Files, policies, &resources, &kinds);
    if compiled.has_errors() {
        // What is wrong has been shown already.
        return Err(CommandFailure::BadInput(Vec::new()));
    }
    let rules = rule_set(&compiled);
    let job = Job {
        rules: &rules,
        kinds: &kinds,
        resources: objects_of(resources)?,
        payloads: Vec::new(),
        others: Vec::new(),
        values: Values::default(),
        user: None,
        limits: EvaluationLimits::default(),
        external_data: &Services::new(HostAllowlist::default()),
        explain: false,
        only_given_kinds: false,
        audit_warns: false,
        // As tests do: each rule is asked on its own.
        follows_denied: true,
        schemas: None,
    };
    Ok(run_offline(&job, &SystemEnv))
}

/// One entry for each rule, kind and result, with all resources that it holds for.
fn expectations(report: &Report) -> Vec<Value> {
    /// What entries are grouped by: policy, rule, kind, result.
    type Group = (String, Option<String>, String, &'static str);
    let mut groups: Vec<(Group, Vec<String>)> = Vec::new();
    for result in report.results.iter().filter(|result| result.given) {
        let Some(word) = word(result) else { continue };
        let rule = result.rule.in_reports().map(without_autogen);
        let group = (result.rule.policy.key(), rule, result.trigger.gvk.kind.to_string(), word);
        let trigger = &result.trigger;
        let resource = match trigger.namespace.as_str() {
            "" => trigger.name.to_string(),
            namespace => format!("{namespace}/{}", trigger.name),
        };
        match groups.iter_mut().find(|(known, _)| *known == group) {
            Some((_, resources)) => resources.push(resource),
            None => groups.push((group, vec![resource])),
        }
    }
    groups
        .into_iter()
        .map(|((policy, rule, kind, word), resources)| {
            let mut fields = Map::from_iter([("policy", Value::from(policy))]);
            if let Some(rule) = rule {
                fields.insert("rule", rule);
            }
            fields.insert("kind", kind);
            fields.insert("resources", Value::from_iter(resources));
            fields.insert("result", word);
            Value::from(fields)
        })
        .collect()
}

fn word(result: &RuleResult) -> Option<&'static str> {
    match result.status {
        Status::Pass => Some("pass"),
        Status::Fail => Some("fail"),
        Status::Skip => Some("skip"),
        Status::Warn => Some("warn"),
        Status::Error => Some("error"),
        Status::NoMatch => None,
    }
}

/// The name that its author gave a rule: those for what makes Pods are called after it.
fn without_autogen(rule: &str) -> String {
    let own = rule.strip_prefix("autogen-cronjob-").or_else(|| rule.strip_prefix("autogen-"));
    own.unwrap_or(rule).to_owned()
}
