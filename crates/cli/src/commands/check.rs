//! `kiln check`

use std::io::Write;

use kiln_diagnostic::{Diagnostic, Severity};
use kiln_dialects::is_policy;

use super::rules::{compile_rules, kinds_of, read_all};
use crate::args::{Format, Global};
use crate::exit::{CommandResult, Failure, Outcome};
use crate::ui::{Ui, counted};

/// Check rules without running them
///
/// Looks at fields, types, expressions, variables and scopes, and says with places what is wrong or suspicious.
/// Definitions of custom resources among the files tell which kinds exist. Exit code 2 when a policy is not valid.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Files, folders (every .yaml, .yml and .json file below), or - for standard input
    #[arg(required = true, value_name = "FILES")]
    files: Vec<String>,
}

pub(crate) fn run(ui: &Ui, global: &Global, args: &Args) -> CommandResult {
    ui.has_forms(&[Format::Text, Format::Json])?;
    let documents = read_all(&args.files, global)?;
    if !documents.iter().any(is_policy) {
        return Err(Diagnostic::error("there is no policy in these files")
            .hint(
                "Kiln reads ClusterPolicy and Policy, GeneratingPolicy, MutatingPolicy, MutatingAdmissionPolicy and ModRule",
            )
            .into());
    }
    let kinds = kinds_of(&documents)?;
    let compiled = compile_rules(ui, &documents, &[], &kinds);
    if ui.format() == Format::Text {
        let rules: usize = compiled.policies.iter().map(|policy| policy.rules.len()).sum();
        let serious = |d: &&Diagnostic| d.severity > Severity::Note;
        let problems = compiled.diagnostics.iter().filter(serious).count();
        let mut out = ui.stdout();
        writeln!(
            out,
            "{} with {}: {}, {} not run by Kiln",
            counted(compiled.policies.len(), "policy", "policies"),
            counted(rules, "rule", "rules"),
            counted(problems, "problem", "problems"),
            compiled.not_run.len()
        )?;
        out.flush()?;
    }
    if compiled.has_errors() {
        // What is wrong has been shown already.
        return Err(Failure::BadInput(Vec::new()));
    }
    Ok(Outcome::Done)
}
