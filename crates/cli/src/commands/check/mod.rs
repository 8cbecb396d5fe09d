//! `kiln check`

mod tree;

use std::io::{self, Write};

use kiln_diagnostic::{Diagnostic, Severity};
use kiln_dialects::{Compiled, NotRun, PolicyHost, is_policy, misplaced_kind, rule_cycles};
use kiln_yaml::Document;
use serde_json::json;

use crate::args::{Global, OutputFormat};
use crate::exit::{CommandFailure, CommandOutcome, CommandResult};
use crate::file_watch;
use crate::findings::{self, Finding, Level};
use crate::policy_files::{compile_rules, is_clean, require_policy};
use crate::ui::{Ui, counted};
use tree::Tree;

/// Validate policies without running them
///
/// Checks fields, types, expressions, functions, variables, scopes and cycles, and prints errors and warnings with
/// file, line and column. Objects that rules generate or patch are checked against the fields of Kubernetes' kinds.
/// CustomResourceDefinitions among the files add kinds. In directories, hidden files, files without Kubernetes objects
/// and templates of Helm charts are skipped, each with a note. Exits with code 2 if a policy is invalid; with
/// --strict, with 1 on warnings and on rules that Kiln does not run.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Files, directories (every .yaml, .yml and .json file below), or - for standard input
    #[arg(required = true, value_name = "FILES")]
    files: Vec<String>,

    /// Skip files and directories with this name or path, with * and ?; repeatable
    #[arg(long, value_name = "GLOB")]
    exclude: Vec<String>,

    /// Succeed if there is no policy among the files, for hooks that get whatever has changed
    #[arg(long)]
    allow_empty: bool,

    /// Check again whenever a file changes, until interrupted
    #[arg(long)]
    watch: bool,

    /// Exit with code 1 on warnings, and on rules and policies that Kiln does not run
    #[arg(long)]
    strict: bool,
}

pub(crate) fn run(ui: &Ui, global: &Global, args: &Args) -> CommandResult {
    ui.has_formats_of("check")?;
    if args.watch {
        return file_watch::run(ui, &args.files, || once(ui, global, args));
    }
    once(ui, global, args)
}

fn once(ui: &Ui, global: &Global, args: &Args) -> CommandResult {
    let tree = tree::read(ui, global, &args.files, &args.exclude, args.allow_empty);
    for problem in &tree.problems {
        ui.problem(problem);
    }
    // One of a kind that does not exist is an error, as if it were compiled.
    let is_checked =
        |document: &Document| is_policy(document) || misplaced_kind(document).is_some();
    if !tree.documents.iter().any(is_checked) {
        if !tree.problems.is_empty() {
            if findings::FORMS.contains(&ui.format()) {
                show_findings(ui, &tree, &Compiled::default())?;
            }
            return Err(CommandFailure::BadInput(Vec::new()));
        }
        if args.allow_empty {
            show(ui, &tree, &Compiled::default())?;
            return Ok(CommandOutcome::Done);
        }
        require_policy(&tree.documents, "these files")?;
    }
    let mut compiled = compile_rules(ui, PolicyHost::Files, &tree.documents, &[], &tree.kinds);
    let rules = compiled.policies.iter().flat_map(|policy| &policy.rules).map(AsRef::as_ref);
    let cycles: Vec<Diagnostic> = rule_cycles(rules, [])
        .iter()
        .map(|cycle| {
            let place = cycle.start.origin.place();
            Diagnostic::warning(cycle.message()).at(place).hint(cycle.hint())
        })
        .collect();
    cycles.iter().for_each(|problem| ui.problem(problem));
    compiled.diagnostics.extend(cycles);
    show(ui, &tree, &compiled)?;
    if compiled.has_errors() || !tree.problems.is_empty() {
        // What is wrong has been shown already.
        return Err(CommandFailure::BadInput(Vec::new()));
    }
    Ok(if args.strict && !is_clean(&compiled) {
        CommandOutcome::Negative
    } else {
        CommandOutcome::Done
    })
}

/// Says how much was looked at and what was found. For programs, problems are part of it; on standard error they stand
/// for people and in the order in which they were found.
fn show(ui: &Ui, tree: &Tree, compiled: &Compiled) -> io::Result<()> {
    let policies = compiled.policies.len();
    let rules: usize = compiled.policies.iter().map(|policy| policy.rules.len()).sum();
    let serious = |found: &&Diagnostic| found.severity > Severity::Note;
    let problems: Vec<&Diagnostic> =
        tree.problems.iter().chain(compiled.diagnostics.iter().filter(serious)).collect();
    if findings::FORMS.contains(&ui.format()) {
        return show_findings(ui, tree, compiled);
    }
    if ui.format() != OutputFormat::Text {
        let not_run: Vec<_> = compiled.not_run.iter().map(not_run).collect();
        return ui.document(&json!({
            "problems": problems,
            "notRun": not_run,
            "summary": {
                "policies": policies,
                "rules": rules,
                "problems": problems.len(),
                "notRun": not_run.len(),
                "passedOver": tree.passed_over,
            },
        }));
    }
    let mut out = ui.stdout();
    write!(
        out,
        "{} with {}: {}, {} not run by Kiln",
        counted(policies, "policy", "policies"),
        counted(rules, "rule", "rules"),
        counted(problems.len(), "problem", "problems"),
        compiled.not_run.len()
    )?;
    if tree.passed_over > 0 {
        write!(out, "; {} skipped", counted(tree.passed_over, "entry", "entries"))?;
    }
    writeln!(out)?;
    out.flush()
}

/// Problems, and rules that are not run, for code scanning and forges.
fn show_findings(ui: &Ui, tree: &Tree, compiled: &Compiled) -> io::Result<()> {
    let serious = |found: &&Diagnostic| found.severity > Severity::Note;
    let problems = tree.problems.iter().chain(compiled.diagnostics.iter().filter(serious));
    let mut found: Vec<Finding> =
        problems.map(|problem| Finding::of_problem("check", problem)).collect();
    found.extend(compiled.not_run.iter().map(|rule| {
        let named = rule.rule.as_ref().map(|name| format!(", rule {name}")).unwrap_or_default();
        let text = format!("Kiln does not run policy {}{named}: {}", rule.policy, rule.operation());
        Finding::new("kiln-check/not-run", Level::Note, text, rule.place.clone())
    }));
    let mut out = ui.data();
    findings::write(&mut out, ui.format(), &found)?;
    out.flush()
}

fn not_run(rule: &NotRun) -> serde_json::Value {
    let position = rule.place.position();
    json!({
        "policy": rule.policy,
        "rule": rule.rule.as_ref().map(kiln_value::Str::as_str),
        "operation": rule.operation(),
        "file": rule.place.source().name(),
        "line": position.line,
        "column": position.column,
    })
}
