//! `kiln krm`: the binary as a function of the Kubernetes Resource Model, in a container or as a program.

use std::collections::BTreeSet;
use std::io::{IsTerminal, Write};

use kiln_diagnostic::Diagnostic;
use kiln_dialects::{PolicyHost, is_exception, is_policy};
use kiln_engine::{EvaluationLimits, HostAllowlist};
use kiln_object::{list, metadata};
use kiln_offline::{Job, ObjectChange, Report, RuleResult, Status, Values, run as run_offline};
use kiln_services::Services;
use kiln_studio::SchemasOfServer;
use kiln_value::{Map, Value, value};
use kiln_yaml::{Document, ReadOptions, emit, read_bytes};

use super::apply::message;
use crate::args::Global;
use crate::exit::{CommandFailure, CommandOutcome, CommandResult};
use crate::input;
use crate::policy_files::{compile_rules, kinds_of, rule_set};
use crate::system_env::SystemEnv;
use crate::ui::Ui;

/// Run as a KRM function that applies policies to a ResourceList
///
/// Reads the list from standard input and prints it with what changed. Policies come from functionConfig: a policy itself, a ConfigMap whose values are policies, or an object with
/// spec.policies. Policies among the items apply as well and stay in the list. What policies mutate and generate is in
/// the list that is printed, what they reject or fail is in its results, and the exit code is 1 then. The binary
/// without arguments does the same if standard input is a ResourceList, as container runtimes start functions.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

/// The version of ResourceLists that is written; those of v1alpha1 keep theirs.
const VERSION: &str = "config.kubernetes.io/v1";

/// The arguments that run a function, for a call without any: container runtimes call it so, a user at a terminal does not.
pub(crate) fn is_called_as_function(typed: &[std::ffi::OsString]) -> bool {
    typed.len() == 1 && !std::io::stdin().is_terminal()
}

/// Runs the function if standard input is a ResourceList; none if it is something else.
pub(crate) fn run_if_given(ui: &Ui, global: &Global) -> Option<CommandResult> {
    let given = match input::read("-", global.max_input_size) {
        Ok(given) => given.bytes,
        Err(problem) => return Some(Err(problem.into())),
    };
    let is_list = String::from_utf8_lossy(&given).contains("ResourceList");
    is_list.then(|| function(ui, &given, global))
}

pub(crate) fn run(ui: &Ui, global: &Global, _: &Args) -> CommandResult {
    ui.has_formats_of("krm")?;
    let given = input::read("-", global.max_input_size)?.bytes;
    function(ui, &given, global)
}

fn function(ui: &Ui, given: &[u8], global: &Global) -> CommandResult {
    let reading = ReadOptions::kubernetes()
        .max_input_size(usize::try_from(global.max_input_size).unwrap_or(usize::MAX));
    let documents = read_bytes("<stdin>", given, reading)?;
    let [whole] = documents.as_slice() else {
        return Err(not_a_list("there must be one document").into());
    };
    if whole.value().str_at(["kind"]) != Some("ResourceList") {
        return Err(not_a_list("its kind is another").at(whole.place()).into());
    }
    let items = whole.value().get("items").and_then(Value::as_list).into_iter().flatten();
    let items: Vec<Document> =
        items.map(|item| Document::from_value("items", item.clone(), reading)).collect();
    let (mut policies, resources): (Vec<Document>, Vec<Document>) =
        items.into_iter().partition(|item| is_policy(item) || is_exception(item));
    let kept: Vec<Value> = policies.iter().map(|policy| policy.value().clone()).collect();
    policies.extend(configured(whole.value(), reading)?);
    if !policies.iter().any(is_policy) {
        return Err(Diagnostic::error("there is no policy in functionConfig or among the items")
            .at(whole.place())
            .hint("write a policy as functionConfig, or in a ConfigMap there")
            .into());
    }
    let kinds = kinds_of(policies.iter().chain(&resources))?;
    let schemas = SchemasOfServer::given(resources.iter().map(Document::value));
    let compiled = compile_rules(ui, PolicyHost::Files, &policies, &resources, &kinds);
    if compiled.has_errors() {
        return Err(CommandFailure::BadInput(Vec::new()));
    }
    let rules = rule_set(&compiled);
    let originals: Vec<Value> =
        resources.iter().flat_map(|item| list::flatten(item.value().clone())).collect();
    let job = Job {
        rules: &rules,
        kinds: &kinds,
        resources: originals.clone(),
        payloads: Vec::new(),
        others: Vec::new(),
        values: Values::default(),
        user: None,
        limits: EvaluationLimits::default(),
        // A function has no network.
        external_data: &Services::new(HostAllowlist::default()),
        explain: false,
        only_given_kinds: false,
        audit_warns: false,
        follows_denied: false,
        schemas: Some(&schemas),
    };
    let report = run_offline(&job, &SystemEnv);
    print(ui, whole.value(), &originals, kept, &report)
}

fn not_a_list(why: &str) -> Diagnostic {
    Diagnostic::error(format!("standard input is not a ResourceList: {why}")).hint(
        "kiln krm is started by kustomize, kpt or `kiln fn run`; apply policies to files with: kiln apply",
    )
}

/// The policies that the configuration of the function holds.
fn configured(whole: &Value, reading: ReadOptions) -> Result<Vec<Document>, CommandFailure> {
    let Some(config) = whole.get("functionConfig").filter(|config| !config.is_null()) else {
        return Ok(Vec::new());
    };
    let document = Document::from_value("functionConfig", config.clone(), reading);
    if is_policy(&document) {
        return Ok(vec![document]);
    }
    let mut found = Vec::new();
    let inline = config.get_path(["spec", "policies"]).and_then(Value::as_list);
    for policy in inline.into_iter().flatten() {
        found.push(Document::from_value("functionConfig", policy.clone(), reading));
    }
    for (key, text) in config.get("data").and_then(Value::as_map).into_iter().flatten() {
        if let Some(text) = text.as_str() {
            found.extend(read_bytes(
                &format!("functionConfig data.{key}"),
                text.as_bytes(),
                reading,
            )?);
        }
    }
    Ok(found)
}

fn print(
    ui: &Ui,
    whole: &Value,
    originals: &[Value],
    policies: Vec<Value>,
    report: &Report,
) -> CommandResult {
    // What a rule refuses stays as it is: losing it would be worse, and the exit code says that it must not be used.
    let kept: BTreeSet<_> = report.resources.iter().map(key).collect();
    let refused = originals.iter().filter(|item| !kept.contains(&key(item))).cloned();
    let made = report.objects();
    let made = made.iter().filter(|made| made.change == ObjectChange::Created);
    let items: Vec<Value> = report
        .resources
        .iter()
        .cloned()
        .chain(refused)
        .chain(policies)
        .chain(made.map(|made| made.object.clone()))
        .collect();
    let results: Vec<Value> = report.results.iter().filter_map(result).collect();
    let failed =
        report.results.iter().any(|result| matches!(result.status, Status::Fail | Status::Error));
    let version = whole.str_at(["apiVersion"]).unwrap_or(VERSION);
    let mut list = Map::from_iter([
        ("apiVersion", Value::from(version)),
        ("kind", Value::from("ResourceList")),
        ("items", Value::from_iter(items)),
    ]);
    if let Some(config) = whole.get("functionConfig") {
        list.insert("functionConfig", config.clone());
    }
    if !results.is_empty() {
        list.insert("results", Value::from_iter(results));
    }
    let mut out = ui.data();
    out.write_all(emit(&Value::from(list)).as_bytes())?;
    out.flush()?;
    Ok(if failed || !report.refused.is_empty() {
        CommandOutcome::Negative
    } else {
        CommandOutcome::Done
    })
}

/// What an item is known by, as it is written.
fn key(item: &Value) -> [Option<&str>; 4] {
    let text = |key: &str| item.str_at([key]);
    [text("apiVersion"), text("kind"), metadata::namespace(item), metadata::name(item)]
}

/// A result that needs attention, as functions report it.
fn result(result: &RuleResult) -> Option<Value> {
    let severity = match result.status {
        Status::Fail | Status::Error => "error",
        Status::Warn => "warning",
        _ => return None,
    };
    let trigger = &result.trigger;
    let mut reference = Map::from_iter([
        ("apiVersion", Value::from(trigger.gvk.group_version().to_string())),
        ("kind", Value::from(trigger.gvk.kind.as_str())),
        ("name", Value::from(trigger.name.as_str())),
    ]);
    if !trigger.namespace.is_empty() {
        reference.insert("namespace", trigger.namespace.as_str());
    }
    let mut fields = Map::from_iter([
        ("message", Value::from(message(result))),
        ("severity", Value::from(severity)),
        ("resourceRef", Value::from(reference)),
        (
            "tags",
            value!({"policy": (result.rule.policy.key()), "rule": (result.rule.rule.as_str())}),
        ),
    ]);
    let faults = result.violation.iter().flat_map(|violation| &violation.faults);
    if let Some(at) = faults.filter_map(|fault| fault.at.as_ref()).next() {
        fields.insert("field", value!({"path": (at.to_string())}));
    }
    Some(Value::from(fields))
}
