//! `kiln eval jsonpath`

use std::io::Write;

use kiln_jsonpath::{Expression, Item, JsonPathLimits, functions};
use kiln_value::{Map, Value};

use super::{print_result, read_one};
use crate::args::{Global, OutputFormat};
use crate::exit::{CommandOutcome, CommandResult};
use crate::ui::Ui;

/// Evaluate a JSONPath expression as KubeMod's ModRules do
///
/// A missing key evaluates to undefined. With --select the expression must be a path, and every selected location is
/// printed with the keys that #0, #1 … stand for.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// JSONPath expression to evaluate
    #[arg(required_unless_present = "functions")]
    expression: Option<String>,

    /// JSON or YAML file to evaluate on [default: standard input]
    #[arg(long, short, value_name = "FILE")]
    input: Option<String>,

    /// Print what a patch would select, and the captured keys
    #[arg(long)]
    select: bool,

    /// List the functions
    #[arg(long, visible_alias = "list")]
    functions: bool,
}

pub(crate) fn run(ui: &Ui, global: &Global, args: &Args) -> CommandResult {
    let Some(source) = args.expression.as_deref() else {
        let mut out = ui.data();
        for (call, about) in functions() {
            writeln!(out, "{call:<20} {about}")?;
        }
        out.flush()?;
        return Ok(CommandOutcome::Done);
    };
    let expression = match Expression::compile(source) {
        Ok(expression) => expression,
        Err(error) => {
            ui.problem(&error.diagnose("<expression>", source));
            return Ok(CommandOutcome::Negative);
        }
    };
    let data = read_one(args.input.as_deref(), global)?;
    let result = match args.select {
        true => expression.select(&data, &JsonPathLimits::default()).map(|selected| {
            let shown = selected.into_iter().map(|selection| {
                Map::from_iter([
                    ("keys", selection.keys.into_iter().collect::<Value>()),
                    ("value", selection.item.to_value()),
                ])
            });
            Item::Value(shown.collect())
        }),
        false => expression.evaluate(&data, &JsonPathLimits::default()),
    };
    match result {
        Ok(Item::Undefined) if ui.format() == OutputFormat::Text => {
            let mut out = ui.data();
            writeln!(out, "undefined")?;
            out.flush()?;
        }
        Ok(item) => print_result(ui, &item.to_value())?,
        Err(error) => {
            ui.problem(&error.diagnose("<expression>", source));
            return Ok(CommandOutcome::Negative);
        }
    }
    Ok(CommandOutcome::Done)
}
