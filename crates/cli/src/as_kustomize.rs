//! The binary under the name of kustomize: Argo CD, scripts and people who call `kustomize` get its commands and no
//! others, its version, messages that begin as its own do, and 1 as the exit code of every error.

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, FromArgMatches, Parser};

use crate::args::{Global, help_first, plain_switches, with_shared_options};
use crate::commands::plugin_sandbox::NAME as PLUGIN_SANDBOX;
use crate::commands::{
    build, cfg, completion, create, edit, functions, localize, openapi, version,
};
use crate::exit::{CommandFailure, CommandOutcome, CommandResult};
use crate::ui::Ui;

const NAME: &str = "kustomize";

/// Manages declarative configuration of Kubernetes: Kiln under the name of kustomize.
#[derive(Debug, Parser)]
#[command(
    name = NAME,
    disable_help_subcommand = true,
    args_override_self = true,
    max_term_width = 100
)]
struct Args {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Build(Box<build::Args>),
    Cfg(cfg::Args),
    Completion(completion::Args),
    Create(create::Args),
    Edit(edit::Args),
    #[command(name = "fn")]
    Functions(Box<functions::Args>),
    Localize(localize::Args),
    #[command(hide = true)]
    Openapi(openapi::Args),
    Version(version::KustomizeArgs),
}

/// Whether these words are typed for kustomize: the program is called `kustomize`, or `kustomize_5_8_1` as those who
/// keep several versions call it.
pub(crate) fn is_meant(typed: &[OsString]) -> bool {
    // A build that runs plugins starts this binary again, whatever its name.
    if typed.get(1).is_some_and(|word| word == PLUGIN_SANDBOX) {
        return false;
    }
    let program = typed.first().and_then(|path| Path::new(path).file_name());
    program.and_then(OsStr::to_str).is_some_and(is_its_name)
}

fn is_its_name(program: &str) -> bool {
    let rest = program.strip_prefix(NAME);
    rest.is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_alphabetic()))
}

pub(crate) fn run(typed: Vec<OsString>) -> ExitCode {
    let mut definition = with_shared_options(Args::command());
    let words = plain_switches(cfg::plain_format(help_first(typed)), &definition);
    let matches = definition.try_get_matches_from_mut(words);
    let args = match matches.and_then(|matches| Args::from_arg_matches(&matches)) {
        Ok(args) => args,
        Err(error) => return not_understood(&error.format(&mut definition)),
    };
    let ui = Ui::new(&args.global).in_words_of_kustomize();
    let result = dispatch(&ui, &args.global, &args.command);
    if let Err(CommandFailure::BadInput(problems)) = &result {
        for problem in problems {
            ui.problem(problem);
        }
    }
    match result {
        Ok(CommandOutcome::Done) | Err(CommandFailure::BrokenPipe) => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

fn dispatch(ui: &Ui, global: &Global, command: &Command) -> CommandResult {
    match command {
        Command::Build(args) => build::run(ui, global, args),
        Command::Cfg(args) => cfg::run(ui, global, args),
        Command::Completion(args) => {
            completion::print(ui, args, with_shared_options(Args::command()), NAME)
        }
        Command::Create(args) => create::run(ui, global, args),
        Command::Edit(args) => edit::run(ui, global, args),
        Command::Functions(args) => functions::run(ui, global, args),
        Command::Localize(args) => localize::run(ui, global, args),
        Command::Openapi(args) => openapi::run(ui, args),
        Command::Version(args) => version::run_as_kustomize(ui, args),
    }
}

/// Words that make no command: help for those who asked for it or typed no command, an error for the others.
fn not_understood(error: &clap::Error) -> ExitCode {
    if matches!(
        error.kind(),
        ErrorKind::DisplayHelp | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
    ) {
        // A reader that has gone away needs no help.
        let _ = write!(std::io::stdout(), "{error}");
        return ExitCode::SUCCESS;
    }
    let _ = writeln!(std::io::stderr(), "Error: {}", in_its_words(error).trim_end());
    ExitCode::FAILURE
}

/// What is wrong with the words, as kustomize says the commonest mistakes.
fn in_its_words(error: &clap::Error) -> String {
    let context = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    let option = context(ContextKind::InvalidArg);
    match (error.kind(), option) {
        (ErrorKind::UnknownArgument, Some(word)) if word.starts_with("--") => {
            format!("unknown flag: {word}")
        }
        (ErrorKind::UnknownArgument, Some(word)) if word.starts_with('-') => {
            let letter = word.chars().nth(1).unwrap_or_default();
            format!("unknown shorthand flag: '{letter}' in {word}")
        }
        (ErrorKind::InvalidSubcommand, _) => {
            let word = context(ContextKind::InvalidSubcommand).unwrap_or_default();
            format!("unknown command {word:?} for {NAME:?}\nRun '{NAME} --help' for usage.")
        }
        (ErrorKind::InvalidValue, Some(option))
            if context(ContextKind::InvalidValue).is_none_or(str::is_empty) =>
        {
            let name = option.split([' ', '=']).next().unwrap_or(option);
            format!("flag needs an argument: {name}")
        }
        (ErrorKind::InvalidValue, Some(option)) => {
            let name = option.split([' ', '=']).next().unwrap_or(option);
            let value = context(ContextKind::InvalidValue).unwrap_or_default();
            let legal = match error.get(ContextKind::ValidValue) {
                Some(ContextValue::Strings(legal)) => legal.join(" "),
                _ => String::new(),
            };
            format!("illegal flag value {name} {value}; legal values: [{legal}]")
        }
        _ => {
            let text = error.render().to_string();
            text.strip_prefix("error: ").map_or(text.clone(), str::to_owned)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_is_sound() {
        with_shared_options(Args::command()).debug_assert();
    }

    #[test]
    fn the_name_of_the_program_decides() {
        let is_meant = |words: &[&str]| {
            let words: Vec<OsString> = words.iter().map(OsString::from).collect();
            is_meant(&words)
        };
        for program in
            ["kustomize", "/usr/local/bin/kustomize", "./kustomize_5_8_1", "kustomize-v5.8.1"]
        {
            assert!(is_meant(&[program, "build"]), "{program}");
        }
        for program in ["kiln", "kubectl-kiln", "kustomizer", "kustomize/kiln", ""] {
            assert!(!is_meant(&[program, "build"]), "{program}");
        }
        assert!(!is_meant(&["kustomize", PLUGIN_SANDBOX]));
        assert!(!is_meant(&[]));
    }
}
