//! `kiln check`

mod tree;

use std::io::{self, Write};

use kiln_diagnostic::{Diagnostic, Severity};
use kiln_dialects::{Compiled, NotRun, circles, is_policy};
use serde_json::json;

use super::rules::{compile_rules, is_clean};
use super::watch;
use crate::args::{Format, Global};
use crate::exit::{CommandResult, Failure, Outcome};
use crate::ui::{Ui, counted};
use tree::Tree;

/// Check rules without running them
///
/// Looks at fields, types, expressions, functions, variables, scopes and circles, and says with places what is wrong or
/// suspicious. Objects that rules make or patch are held against the fields that Kubernetes' kinds have.
/// Definitions of custom resources among the files tell which other kinds exist. In folders, what is hidden, what holds no
/// Kubernetes object and templates of Helm charts are passed over, each with a line.
/// Exit code 2 when a policy is not valid; with --strict, 1 when something is suspicious or is not run by Kiln.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Files, folders (every .yaml, .yml and .json file below), or - for standard input
    #[arg(required = true, value_name = "FILES")]
    files: Vec<String>,

    /// Pass over files and folders of this name or path, with * and ?; may be repeated
    #[arg(long, value_name = "GLOB")]
    exclude: Vec<String>,

    /// Check again whenever a file changes, until interrupted
    #[arg(long)]
    watch: bool,

    /// Exit code 1 when there are warnings, or rules and policies that Kiln does not run
    #[arg(long)]
    strict: bool,
}

pub(crate) fn run(ui: &Ui, global: &Global, args: &Args) -> CommandResult {
    ui.has_forms(&[Format::Text, Format::Json, Format::Yaml])?;
    if args.watch {
        return watch::run(ui, &args.files, || once(ui, global, args));
    }
    once(ui, global, args)
}

fn once(ui: &Ui, global: &Global, args: &Args) -> CommandResult {
    let tree = tree::read(ui, global, &args.files, &args.exclude);
    for problem in &tree.problems {
        ui.problem(problem);
    }
    if !tree.documents.iter().any(is_policy) {
        if !tree.problems.is_empty() {
            return Err(Failure::BadInput(Vec::new()));
        }
        return Err(Diagnostic::error("there is no policy in these files")
            .hint(
                "Kiln reads ClusterPolicy and Policy, GeneratingPolicy, MutatingPolicy, MutatingAdmissionPolicy and ModRule",
            )
            .into());
    }
    let mut compiled = compile_rules(ui, &tree.documents, &[], &tree.kinds);
    let rules = compiled.policies.iter().flat_map(|policy| &policy.rules).map(AsRef::as_ref);
    let circles: Vec<Diagnostic> = circles(rules, [])
        .iter()
        .map(|circle| {
            let place = circle.start.origin.place();
            Diagnostic::warning(circle.message()).at(place).hint(circle.hint())
        })
        .collect();
    circles.iter().for_each(|problem| ui.problem(problem));
    compiled.diagnostics.extend(circles);
    show(ui, &tree, &compiled)?;
    if compiled.has_errors() || !tree.problems.is_empty() {
        // What is wrong has been shown already.
        return Err(Failure::BadInput(Vec::new()));
    }
    Ok(if args.strict && !is_clean(&compiled) { Outcome::No } else { Outcome::Done })
}

/// Says how much was looked at and what was found. For programs, problems are part of it; on standard error they stand
/// for people and in the order in which they were found.
fn show(ui: &Ui, tree: &Tree, compiled: &Compiled) -> io::Result<()> {
    let policies = compiled.policies.len();
    let rules: usize = compiled.policies.iter().map(|policy| policy.rules.len()).sum();
    let serious = |found: &&Diagnostic| found.severity > Severity::Note;
    let problems: Vec<&Diagnostic> =
        tree.problems.iter().chain(compiled.diagnostics.iter().filter(serious)).collect();
    if ui.format() != Format::Text {
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
        write!(out, "; {} passed over", counted(tree.passed_over, "entry", "entries"))?;
    }
    writeln!(out)?;
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
