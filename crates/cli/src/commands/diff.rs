//! `kiln diff`

use kiln_dialects::{PolicyHost, is_exception, is_policy};
use kiln_equivalence::{Comparison, DifferenceKind, Evidence, PolicySide, compare};
use kiln_object::Kinds;
use kiln_yaml::Document;
use serde_json::json;
use std::io::Write;

use super::convert::{found_in_words, found_json};
use crate::args::{Global, OutputFormat};
use crate::exit::{CommandFailure, CommandOutcome, CommandResult};
use crate::policy_files::{compile_rules, kinds_of, read_all, require_policy};
use crate::ui::{Ui, counted};

/// Compare two policies by running them
///
/// Runs both on generated requests, whatever languages they are written in: kinds and fields that they name, the constants
/// in them and their boundaries, missing fields, empty lists, updates, deletions and users. Prints the smallest request of
/// each kind that they treat differently. Exits with code 1 if they decide a request differently or leave other objects;
/// with --strict, also if only the results in reports differ. Exits with code 1, too, if no generated request reaches a rule.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// File or directory with the first policy, or several that are taken together
    #[arg(value_name = "OLD")]
    old: String,

    /// File or directory with the second policy
    #[arg(value_name = "NEW")]
    new: String,

    /// Number of generated requests, at most
    #[arg(long, value_name = "COUNT", default_value_t = 600)]
    inputs: usize,

    /// Seed of the generated requests
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,

    /// Exit with code 1 also if only the results in reports differ
    #[arg(long)]
    strict: bool,
}

pub(crate) fn run(ui: &Ui, global: &Global, args: &Args) -> CommandResult {
    ui.has_formats_of("diff")?;
    let old = read_all(std::slice::from_ref(&args.old), global)?;
    let new = read_all(std::slice::from_ref(&args.new), global)?;
    let kinds = kinds_of(old.iter().chain(&new))?;
    let (old, new) = (side(ui, &args.old, &old, &kinds)?, side(ui, &args.new, &new, &kinds)?);
    let comparison = Comparison {
        old: &old,
        new: &new,
        kinds: &kinds,
        seed: args.seed,
        inputs: args.inputs,
        given: Vec::new(),
        small: true,
    };
    let evidence = compare(&comparison);
    show(ui, &evidence)?;
    let counts = |kind: DifferenceKind| args.strict || kind != DifferenceKind::Report;
    let differs = evidence.differences.iter().any(|found| counts(found.kind));
    // What was not compared is not equal.
    Ok(if differs || evidence.reached == 0 {
        CommandOutcome::Negative
    } else {
        CommandOutcome::Done
    })
}

fn side(
    ui: &Ui,
    path: &str,
    documents: &[Document],
    kinds: &Kinds,
) -> Result<PolicySide, CommandFailure> {
    require_policy(documents, path)?;
    let compiled = compile_rules(ui, PolicyHost::Files, documents, &[], kinds);
    if compiled.has_errors() {
        // What is wrong has been shown already.
        return Err(CommandFailure::BadInput(Vec::new()));
    }
    let read = documents.iter().filter(|document| is_policy(document) || is_exception(document));
    let values = read.map(|document| document.value().clone()).collect();
    Ok(PolicySide::new(compiled.policies, compiled.exceptions, values))
}

fn show(ui: &Ui, evidence: &Evidence) -> Result<(), CommandFailure> {
    if ui.format() != OutputFormat::Text {
        ui.document(&json!({
            "equal": evidence.is_equal(),
            "inputs": evidence.inputs,
            "reached": evidence.reached,
            "branches": evidence.covered,
            "unreached": evidence.one_sided,
            "differences": evidence.differences.iter().map(found_json).collect::<Vec<_>>(),
        }))?;
        return Ok(());
    }
    let mut out = ui.stdout();
    for found in &evidence.differences {
        writeln!(out, "{}", found_in_words(found))?;
    }
    let tried = counted(evidence.inputs, "request", "requests");
    let branches = counted(evidence.covered, "branch", "branches");
    let verdict = match evidence.differences.len() {
        0 if evidence.reached == 0 => "not compared, no request reaches a rule".to_owned(),
        0 => "equal".to_owned(),
        count => counted(count, "difference", "differences"),
    };
    writeln!(out, "{verdict}: {tried}, {branches} both ways")?;
    out.flush()?;
    Ok(())
}
