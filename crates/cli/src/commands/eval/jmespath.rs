//! `kiln eval jmespath`

use std::io::Write;

use kiln_diagnostic::Diagnostic;
use kiln_jmespath::{Expression, JmesPathEnvironment, JmesPathLimits, functions};
use kiln_value::Value;

use super::{print_result, read_one};
use crate::args::Global;
use crate::exit::{CommandOutcome, CommandResult};
use crate::system_env::SystemEnv;
use crate::ui::Ui;

/// Evaluate a JMESPath expression as Kyverno does
///
/// With --format yaml the result is YAML instead of JSON.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// JMESPath expression to evaluate
    #[arg(required_unless_present = "functions")]
    expression: Option<String>,

    /// JSON or YAML file to evaluate on [default: standard input]
    #[arg(long, short, value_name = "FILE")]
    input: Option<String>,

    /// Print the parsed expression as a tree, without evaluating it
    #[arg(long)]
    parse: bool,

    /// List the functions
    #[arg(long, visible_alias = "list")]
    functions: bool,
}

pub(crate) fn run(ui: &Ui, global: &Global, args: &Args) -> CommandResult {
    let Some(source) = args.expression.as_deref() else {
        return list_functions(ui, &[]);
    };
    evaluate(ui, source, args.parse, || read_one(args.input.as_deref(), global))
}

/// Evaluates an expression on data, which is read only if it is needed; or prints how it is understood.
pub(super) fn evaluate(
    ui: &Ui,
    source: &str,
    parse: bool,
    data: impl FnOnce() -> Result<Value, Diagnostic>,
) -> CommandResult {
    let expression = match Expression::compile(source) {
        Ok(expression) => expression,
        Err(error) => {
            ui.problem(&error.diagnose("<expression>", source));
            return Ok(CommandOutcome::Negative);
        }
    };
    if parse {
        let mut out = ui.data();
        write!(out, "{}", expression.print_tree())?;
        out.flush()?;
        return Ok(CommandOutcome::Done);
    }
    let data = data()?;
    let environment =
        JmesPathEnvironment { sources: &SystemEnv, limits: JmesPathLimits::default() };
    match expression.search(&data, &environment) {
        Ok(result) => {
            print_result(ui, &result)?;
            Ok(CommandOutcome::Done)
        }
        Err(error) => {
            ui.problem(&error.diagnose("<expression>", source));
            Ok(CommandOutcome::Negative)
        }
    }
}

/// Lists the functions with these names; without names, all.
pub(super) fn list_functions(ui: &Ui, names: &[String]) -> CommandResult {
    let mut out = ui.data();
    let wanted = |name: &str| names.is_empty() || names.iter().any(|given| given == name);
    for function in functions::functions().iter().filter(|function| wanted(function.name())) {
        let mut parameters: Vec<&str> = function.parameters().iter().map(|p| p.name).collect();
        if function.is_variadic() {
            parameters.push("…");
        }
        let call = format!("{}({})", function.name(), parameters.join(", "));
        writeln!(out, "{call:<48} {:<10} {}", function.returns(), function.description())?;
    }
    out.flush()?;
    Ok(CommandOutcome::Done)
}
