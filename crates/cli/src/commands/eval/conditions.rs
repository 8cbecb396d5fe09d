//! `kiln eval conditions`

use std::io::Write;

use kiln_diagnostic::Diagnostic;
use kiln_jmespath::{JmesPathEnvironment, JmesPathLimits};
use kiln_value::{Map, Value};
use kiln_variables::conditions::{ConditionCheck, ConditionsOutcome, Effort};
use kiln_variables::{Conditions, ContextScope, Substitution};
use kiln_yaml::Document;

use super::{jmespath, only_document, print_result, read_documents, read_one};
use crate::args::{Global, OutputFormat};
use crate::exit::{CommandOutcome, CommandResult};
use crate::system_env::SystemEnv;
use crate::ui::Ui;

/// Evaluate Kyverno conditions: any/all blocks, or a list
///
/// Prints for each condition what was compared, by which rule, and the result. Exits with code 1 if the conditions do
/// not hold, or if a variable in them cannot be resolved.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// File with the conditions
    #[arg(required_unless_present = "functions")]
    file: Option<String>,

    /// JSON or YAML file in which variables are resolved [default: standard input]
    #[arg(long, short, value_name = "FILE")]
    input: Option<String>,

    /// List the functions that variables in conditions may call
    #[arg(long, visible_alias = "list")]
    functions: bool,
}

pub(crate) fn run(ui: &Ui, global: &Global, args: &Args) -> CommandResult {
    if args.functions {
        return jmespath::list_functions(ui, &[]);
    }
    let file = args.file.as_deref().unwrap_or_default();
    let document = only_document(read_documents(file, global)?, file)?
        .ok_or_else(|| Diagnostic::error(format!("{file} holds no conditions")))?;
    if document
        .value()
        .as_map()
        .is_some_and(|map| !map.contains_key("any") && !map.contains_key("all"))
    {
        return Err(Diagnostic::error("there are no conditions here")
            .at(document.place())
            .hint("conditions stand below any and all, or in a list")
            .into());
    }
    let conditions = parse(&document)?;
    for path in conditions.unknown_fields() {
        let warning = Diagnostic::warning(format!("{path} means nothing here and is ignored"));
        ui.problem(&warning.at(document.locate_key(path)));
    }
    let context = read_one(args.input.as_deref(), global)?;
    let environment =
        JmesPathEnvironment { sources: &SystemEnv, limits: JmesPathLimits::default() };
    let scope = ContextScope::new(&context, environment);
    match conditions.evaluate(&mut Substitution::new(&scope), &mut Effort::default()) {
        Ok(verdict) => {
            print(ui, &verdict)?;
            Ok(if verdict.holds { CommandOutcome::Done } else { CommandOutcome::Negative })
        }
        Err(error) => {
            let place = document.locate(error.path());
            ui.problem(&Diagnostic::error(error.to_string()).at(place).maybe_hint(error.hint()));
            Ok(CommandOutcome::Negative)
        }
    }
}

fn parse(document: &Document) -> Result<Conditions, Diagnostic> {
    Conditions::parse(document.value()).map_err(|error| {
        let place = document.locate(&error.path);
        Diagnostic::error(error.to_string()).at(place).maybe_hint(error.hint)
    })
}

fn print(ui: &Ui, verdict: &ConditionsOutcome) -> std::io::Result<()> {
    if matches!(ui.format(), OutputFormat::Json | OutputFormat::Yaml) {
        let checks: Value = verdict.checks.iter().map(check_as_value).collect();
        let result: Map =
            [("holds", Value::from(verdict.holds)), ("checks", checks)].into_iter().collect();
        return print_result(ui, &result.into());
    }
    let mut out = ui.data();
    for check in &verdict.checks {
        writeln!(out, "{check}")?;
    }
    let said = if verdict.holds { "the conditions hold" } else { "the conditions do not hold" };
    match verdict.message.as_str() {
        "" => writeln!(out, "{said}")?,
        message => writeln!(out, "{said}: {message}")?,
    }
    out.flush()
}

fn check_as_value(check: &ConditionCheck) -> Value {
    let fields: Map = [
        ("condition", Value::from(check.path.to_string())),
        ("key", check.key.clone()),
        ("operator", Value::from(check.operator.name())),
        ("value", check.value.clone()),
        ("rule", Value::from(check.rule.as_str())),
        ("holds", Value::from(check.holds)),
    ]
    .into_iter()
    .collect();
    fields.into()
}
