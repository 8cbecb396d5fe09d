//! `kiln jp`, with the words of `kyverno jp`: `query`, `parse` and `function`.

use kiln_value::Value;

use super::{jmespath, read_one};
use crate::args::Global;
use crate::exit::{CommandOutcome, CommandResult};
use crate::ui::Ui;

/// Evaluate JMESPath expressions, as `kyverno jp` does
///
/// `kiln jp EXPRESSION` and `kiln jp query EXPRESSION…` evaluate, `kiln jp parse EXPRESSION…` prints the parsed
/// expression, `kiln jp function [NAME…]` lists functions.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Expressions, after query, parse or function
    #[arg(value_name = "WORDS", required_unless_present = "functions")]
    words: Vec<String>,

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
    let (command, rest) = match args.words.split_first() {
        Some((word, rest)) if word == "function" => return jmespath::list_functions(ui, rest),
        // A field may have such a name: alone, it is an expression.
        Some((word, rest)) if !rest.is_empty() && (word == "query" || word == "parse") => {
            (word.as_str(), rest)
        }
        _ => ("query", args.words.as_slice()),
    };
    if args.functions {
        return jmespath::list_functions(ui, rest);
    }
    let parse = args.parse || command == "parse";
    let mut outcome = CommandOutcome::Done;
    // Standard input can be read once.
    let mut known = None;
    for expression in rest {
        let data = || match &known {
            Some(data) => Ok(Value::clone(data)),
            None => read_one(args.input.as_deref(), global).inspect(|data| {
                known = Some(data.clone());
            }),
        };
        if let CommandOutcome::Negative = jmespath::evaluate(ui, expression, parse, data)? {
            outcome = CommandOutcome::Negative;
        }
    }
    Ok(outcome)
}
