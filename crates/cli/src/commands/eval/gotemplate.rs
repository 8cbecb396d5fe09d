//! `kiln eval gotemplate`

use std::io::Write;

use clap::ValueEnum;
use kiln_diagnostic::Diagnostic;
use kiln_gotemplate::{
    FunctionSet, MissingKey, Numbers, Template, TemplateEnvironment, TemplateLimits,
    TemplateOptions, functions,
};

use super::read_one;
use crate::args::Global;
use crate::exit::{CommandFailure, CommandOutcome, CommandResult};
use crate::system_env::SystemEnv;
use crate::ui::Ui;

/// Render a Go template, with sprig's functions
///
/// The input is `.` to the template. Its numbers are float64, as for KubeMod: 1000000 prints as 1e+06.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Go template to render
    #[arg(required_unless_present_any = ["list", "functions"])]
    template: Option<String>,

    /// JSON or YAML file with the data of the template [default: standard input]
    #[arg(long, short, value_name = "FILE")]
    input: Option<String>,

    /// List the functions; with a template, the functions that it may use
    #[arg(long, value_enum, value_name = "SET", num_args = 0..=1, default_value_t = Set::Sprig,
          default_missing_value = "list")]
    functions: Set,

    /// Option of the template: missingkey=default, missingkey=zero or missingkey=error
    #[arg(long = "option", value_name = "NAME=VALUE")]
    options: Vec<String>,

    /// Keep whole numbers of the input as integers
    #[arg(long)]
    integers: bool,

    /// Same as --functions without a value
    #[arg(long)]
    list: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Set {
    /// The functions of the language
    Builtin,
    /// Also sprig's
    Sprig,
    #[value(hide = true)]
    List,
}

pub(crate) fn run(ui: &Ui, global: &Global, args: &Args) -> CommandResult {
    let set = match args.functions {
        Set::Builtin => FunctionSet::Builtin,
        Set::Sprig | Set::List => FunctionSet::Sprig,
    };
    let lists = args.list || args.functions == Set::List;
    let Some(source) = args.template.as_deref().filter(|_| !lists) else {
        return list_functions(ui, set);
    };
    let options = TemplateOptions {
        functions: set,
        missing_key: missing_key(&args.options)?,
        numbers: if args.integers { Numbers::Integers } else { Numbers::Floats },
    };
    let template = match Template::parse("template", source, &options) {
        Ok(template) => template,
        Err(error) => {
            ui.problem(&error.diagnose("<template>", source));
            return Ok(CommandOutcome::Negative);
        }
    };
    let data = read_one(args.input.as_deref(), global)?;
    let environment =
        TemplateEnvironment { sources: &SystemEnv, limits: TemplateLimits::default() };
    match template.render(&data, &environment) {
        Ok(text) => {
            let mut out = ui.data();
            out.write_all(text.as_bytes())?;
            // A prompt or the next command should not stick to the text.
            if !text.ends_with('\n') {
                writeln!(out)?;
            }
            out.flush()?;
            Ok(CommandOutcome::Done)
        }
        Err(error) => {
            ui.problem(&error.diagnose("<template>", source));
            Ok(CommandOutcome::Negative)
        }
    }
}

fn missing_key(options: &[String]) -> Result<MissingKey, CommandFailure> {
    let mut chosen = MissingKey::Default;
    for option in options {
        chosen = match option.as_str() {
            "missingkey=default" | "missingkey=invalid" => MissingKey::Default,
            "missingkey=zero" => MissingKey::Zero,
            "missingkey=error" => MissingKey::Error,
            _ => {
                return Err(Diagnostic::error(format!("there is no option {option:?}"))
                    .hint("write missingkey=default, missingkey=zero or missingkey=error")
                    .into());
            }
        };
    }
    Ok(chosen)
}

fn list_functions(ui: &Ui, set: FunctionSet) -> CommandResult {
    let mut out = ui.data();
    for function in functions::functions(set) {
        let call = format!("{} {}", function.name(), function.parameters().join(" "));
        writeln!(out, "{call:<72} {}", function.about())?;
    }
    out.flush()?;
    Ok(CommandOutcome::Done)
}
