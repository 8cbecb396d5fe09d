//! `kiln eval cel`

use std::io::Write;
use std::ops::Range;
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use clap::ValueEnum;
use kiln_cel::{
    Budget, CompileError, Env, EvalError, Host, HostError, HostResult, PolicyScope, Session, Span,
    Timestamp, Type,
};
use kiln_diagnostic::{Diagnostic, Source, SourceLocation, did_you_mean};
use kiln_jmespath::AmbientSources;
use kiln_value::Value;
use kiln_yaml::{ReadOptions, read_bytes};

use super::{print_result, read_one};
use crate::args::Global;
use crate::exit::{CommandFailure, CommandOutcome, CommandResult};
use crate::system_env::SystemEnv;
use crate::ui::Ui;

/// Evaluate a CEL expression with Kubernetes' type checks and budgets
///
/// The keys of the input are the variables. Bytes are printed as base64, timestamps as RFC 3339, types by their name,
/// an optional as its value or null. With --format yaml the result is YAML instead of JSON.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// CEL expression to evaluate
    #[arg(required_unless_present = "functions")]
    expression: Option<String>,

    /// JSON or YAML file with a map of variables [default: standard input]
    #[arg(long, short, value_name = "FILE")]
    input: Option<String>,

    /// Another variable, from a JSON or YAML file; repeatable
    #[arg(long = "var", value_name = "NAME=FILE")]
    variables: Vec<String>,

    /// Print the type of the result, without evaluating
    #[arg(long = "type")]
    only_type: bool,

    /// Function library
    #[arg(long, value_enum, default_value_t = CelEnvironment::Policies)]
    environment: CelEnvironment,

    /// List the functions and macros
    #[arg(long, visible_alias = "list")]
    functions: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum CelEnvironment {
    /// Those of policies: Kubernetes' and Kyverno's libraries too
    Policies,
    /// Those of the language's conformance suite
    Suite,
}

pub(crate) fn run(ui: &Ui, global: &Global, args: &Args) -> CommandResult {
    let base = match args.environment {
        CelEnvironment::Policies => Env::policies(PolicyScope::Cluster),
        CelEnvironment::Suite => Env::suite(),
    };
    let Some(expression) = args.expression.as_deref() else {
        return list_functions(ui, &base);
    };
    let variables = variables(global, args)?;
    let mut builder = base.extend();
    for (name, _) in &variables {
        builder = builder.variable(name, Type::Dyn);
    }
    let env = builder.build();
    let source = Arc::new(Source::new("<expression>", expression));
    if args.only_type {
        return match env.check(expression) {
            Ok(report) => {
                let mut out = ui.data();
                writeln!(out, "{}", report.result)?;
                out.flush()?;
                Ok(CommandOutcome::Done)
            }
            Err(error) => Ok(refuse(ui, &source, &error, &variables)),
        };
    }
    let program = match env.compile(expression) {
        Ok(program) => program,
        Err(error) => return Ok(refuse(ui, &source, &error, &variables)),
    };
    let mut host = SystemEnv;
    let mut session = Session::with_budget(&env, &mut host, Budget::default());
    for (name, value) in variables {
        session.set(&name, value);
    }
    match session.eval_json(&program) {
        Ok(result) => {
            print_result(ui, &result)?;
            Ok(CommandOutcome::Done)
        }
        Err(error) => {
            ui.problem(&failure(&source, error));
            Ok(CommandOutcome::Negative)
        }
    }
}

fn list_functions(ui: &Ui, env: &Env) -> CommandResult {
    let mut out = ui.data();
    for function in env.functions() {
        writeln!(out, "{function}")?;
    }
    out.flush()?;
    Ok(CommandOutcome::Done)
}

/// The variables: the keys of the input, then those given one by one, which count more.
fn variables(global: &Global, args: &Args) -> Result<Vec<(String, Value)>, CommandFailure> {
    let mut variables: Vec<(String, Value)> = Vec::new();
    // With variables given one by one, standard input is not read.
    let input = match (&args.input, args.variables.is_empty() && !args.only_type) {
        (None, false) => Value::Null,
        (input, _) => read_one(input.as_deref(), global)?,
    };
    match input {
        Value::Null => {}
        Value::Map(map) => {
            variables.extend(map.iter().map(|(key, value)| (key.to_string(), value.clone())));
        }
        other => {
            let found = other.type_name();
            return Err(Diagnostic::error(format!(
                "the input is a {found}, not a map of variables"
            ))
            .hint("give it a name with --var NAME=FILE")
            .into());
        }
    }
    for pair in &args.variables {
        let Some((name, path)) = pair.split_once('=') else {
            return Err(Diagnostic::error(format!("--var {pair} names no file"))
                .hint("write --var NAME=FILE")
                .into());
        };
        let value = read_one(Some(path), global)?;
        variables.retain(|(known, _)| known != name);
        variables.push((name.to_owned(), value));
    }
    Ok(variables)
}

fn refuse(
    ui: &Ui,
    source: &Arc<Source>,
    error: &CompileError,
    variables: &[(String, Value)],
) -> CommandOutcome {
    for issue in &error.issues {
        let hint = issue.message.starts_with("undeclared reference to ").then(|| {
            let name = source.text().get(bytes(issue.span)).unwrap_or_default();
            meant(name, variables)
        });
        let place = SourceLocation::new(Arc::clone(source), bytes(issue.span));
        ui.problem(&Diagnostic::error(&issue.message).at(place).maybe_hint(hint));
    }
    CommandOutcome::Negative
}

/// What to write instead of a name that is not known.
fn meant(name: &str, variables: &[(String, Value)]) -> String {
    let known = || variables.iter().map(|(known, _)| known.as_str());
    match did_you_mean(name, known()) {
        Some(near) => format!("did you mean {near:?}?"),
        None if variables.is_empty() => {
            "variables come from the keys of --input, and from --var NAME=FILE".to_owned()
        }
        None => format!("the variables are {}", known().collect::<Vec<_>>().join(", ")),
    }
}

fn failure(source: &Arc<Source>, error: EvalError) -> Diagnostic {
    let problem = Diagnostic::error(error.message).maybe_hint(error.hint);
    match error.span {
        Some(span) => problem.at(SourceLocation::new(Arc::clone(source), bytes(span))),
        None => problem,
    }
}

fn bytes(span: Span) -> Range<usize> {
    span.start as usize..span.end as usize
}

/// Time, chance and YAML; no cluster and no network.
impl Host for SystemEnv {
    fn now(&mut self) -> HostResult<Timestamp> {
        AmbientSources::now(self)
            .and_then(|now| now.duration_since(UNIX_EPOCH).ok())
            .and_then(|since| {
                Timestamp::new(i64::try_from(since.as_secs()).ok()?, since.subsec_nanos())
            })
            .ok_or_else(|| HostError::new("the clock shows no time that CEL can name"))
    }

    fn random(&mut self) -> HostResult<u64> {
        AmbientSources::random(self).ok_or_else(|| HostError::new("there is no randomness here"))
    }

    fn parse_yaml(&mut self, text: &str) -> HostResult<Value> {
        let documents = read_bytes("<yaml>", text.as_bytes(), ReadOptions::kubernetes())
            .map_err(|problem| HostError::new(problem.to_string()))?;
        Ok(documents.into_iter().next().map_or(Value::Null, kiln_yaml::Document::into_value))
    }
}
