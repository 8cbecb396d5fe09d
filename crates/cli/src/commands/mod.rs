//! One file per command: its arguments, whose comments are the user's help, and one function that
//! runs it.

mod adopt;
mod apply;
pub(crate) mod build;
pub(crate) mod cfg;
mod check;
pub(crate) mod completion;
mod convert;
pub(crate) mod create;
mod diff;
mod doctor;
pub(crate) mod edit;
mod eval;
mod explain;
mod fmt;
pub(crate) mod functions;
mod init;
mod install;
pub(crate) mod krm;
pub(crate) mod localize;
mod lsp;
mod man;
mod new;
pub(crate) mod openapi;
mod plan;
pub(crate) mod plugin_sandbox;
mod run;
mod schema;
mod storm;
mod test;
mod ui;
mod uninstall;
mod up;
pub(crate) mod version;

use std::process::ExitCode;

use crate::args::{Args, OutputFormat};
use crate::exit::{self, CommandFailure, CommandResult};
use crate::ui::Ui;

/// The commands.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    // It has more options than all others.
    Apply(Box<apply::Args>),
    Build(build::Args),
    Init(init::Args),
    Create(create::KilnArgs),
    New(new::Args),
    Edit(edit::Args),
    Localize(localize::Args),
    Cfg(cfg::Args),
    #[command(name = "fn")]
    Functions(Box<functions::Args>),
    Check(check::Args),
    Schema(schema::Args),
    Lsp(lsp::Args),
    Krm(krm::Args),
    Test(test::Args),
    Storm(storm::Args),
    Fmt(fmt::Args),
    Convert(convert::Args),
    Diff(diff::Args),
    Eval(eval::Args),
    /// Evaluate a JMESPath expression: short for kiln eval jmespath
    #[command(hide = true)]
    Jp(eval::JpArgs),
    Explain(explain::Args),
    Plan(plan::Args),
    Adopt(adopt::Args),
    Doctor(doctor::Args),
    Install(install::Args),
    Run(run::Args),
    Uninstall(uninstall::Args),
    Up(up::Args),
    Ui(ui::Args),
    #[command(hide = true)]
    Openapi(openapi::Args),
    Version(version::Args),
    Completion(completion::Args),
    Man(man::Args),
    #[command(hide = true)]
    PluginSandbox(plugin_sandbox::Args),
    #[command(hide = true)]
    InSandbox(up::command::Args),
}

/// The definition of one command by its name. All of them together are some 600 options, and a command line that is right
/// needs those of its own command: the definition of all takes more instructions than building a small kustomization.
pub(crate) fn definition_of(name: &str) -> Option<clap::Command> {
    fn of<A: clap::Args>(name: &'static str) -> clap::Command {
        A::augment_args(clap::Command::new(name))
    }
    Some(match name {
        "apply" => of::<apply::Args>("apply"),
        "build" => of::<build::Args>("build"),
        "init" => of::<init::Args>("init"),
        "create" => of::<create::KilnArgs>("create"),
        "new" => of::<new::Args>("new"),
        "edit" => of::<edit::Args>("edit"),
        "localize" => of::<localize::Args>("localize"),
        "cfg" => of::<cfg::Args>("cfg"),
        "fn" => of::<functions::Args>("fn"),
        "check" => of::<check::Args>("check"),
        "schema" => of::<schema::Args>("schema"),
        "lsp" => of::<lsp::Args>("lsp"),
        "krm" => of::<krm::Args>("krm"),
        "test" => of::<test::Args>("test"),
        "storm" => of::<storm::Args>("storm"),
        "fmt" => of::<fmt::Args>("fmt"),
        "convert" => of::<convert::Args>("convert"),
        "diff" => of::<diff::Args>("diff"),
        "eval" => of::<eval::Args>("eval"),
        "jp" => of::<eval::JpArgs>("jp"),
        "explain" => of::<explain::Args>("explain"),
        "plan" => of::<plan::Args>("plan"),
        "adopt" => of::<adopt::Args>("adopt"),
        "doctor" => of::<doctor::Args>("doctor"),
        "install" => of::<install::Args>("install"),
        "run" => of::<run::Args>("run"),
        "uninstall" => of::<uninstall::Args>("uninstall"),
        "up" => of::<up::Args>("up"),
        "ui" => of::<ui::Args>("ui"),
        "openapi" => of::<openapi::Args>("openapi"),
        "version" => of::<version::Args>("version"),
        "completion" => of::<completion::Args>("completion"),
        "man" => of::<man::Args>("man"),
        "plugin-sandbox" => of::<plugin_sandbox::Args>("plugin-sandbox"),
        "in-sandbox" => of::<up::command::Args>("in-sandbox"),
        _ => return None,
    })
}

/// What the options that all commands accept mean to one of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SharedOptions {
    /// The values of `--format`.
    pub(crate) formats: &'static [OutputFormat],
    /// Whether it reads files, so that `--max-input-size` has an effect.
    pub(crate) reads_files: bool,
}

/// What the options that all commands accept mean to the command of a name: the one place that says which output formats a
/// command has. Help is made from it, and commands check with [`Ui::has_formats_of`].
pub(crate) fn shared_options(command: &str) -> SharedOptions {
    use OutputFormat::{Azure, Github, Gitlab, Html, Json, Markdown, Sarif, Table, Text, Yaml};
    let (formats, reads_files): (&[OutputFormat], bool) = match command {
        "apply" => (&apply::FORMS, true),
        "test" => (&test::FORMS, true),
        "eval" | "jp" => (&eval::FORMS, true),
        "build" | "check" => (&[Text, Yaml, Json, Sarif, Github, Gitlab, Azure], true),
        "fmt" | "convert" | "diff" | "storm" => (&[Text, Yaml, Json], true),
        "create" | "edit" | "localize" => (&[Text, Json], true),
        "cfg" | "fn" | "krm" | "new" | "up" | "ui" => (&[Text], true),
        "plan" => (&[Text, Table, Yaml, Json, Markdown, Html], true),
        "adopt" | "doctor" | "explain" | "install" | "openapi" | "version" => {
            (&[Text, Yaml, Json], false)
        }
        "run" => (&[Text, Json], false),
        _ => (&[Text], false),
    };
    SharedOptions { formats, reads_files }
}

/// Runs as a KRM function if standard input holds what functions get: container runtimes start the binary without
/// words.
pub(crate) fn run_as_function(args: &Args) -> Option<ExitCode> {
    let ui = Ui::new(&args.global);
    let result = krm::run_if_given(&ui, &args.global)?;
    Some(ended(&ui, &result))
}

/// Runs the command that was typed.
pub(crate) fn run(args: Args) -> ExitCode {
    let ui = Ui::new(&args.global);
    let result = match args.command {
        Command::Apply(command) => apply::run(&ui, &args.global, &command),
        Command::Build(command) => build::run(&ui, &args.global, &command),
        Command::Init(command) => init::run(&ui, &args.global, &command),
        Command::Create(command) => create::run_kiln(&ui, &args.global, &command),
        Command::New(command) => new::run(&ui, &args.global, &command),
        Command::Edit(command) => edit::run(&ui, &args.global, &command),
        Command::Localize(command) => localize::run(&ui, &args.global, &command),
        Command::Cfg(command) => cfg::run(&ui, &args.global, &command),
        Command::Functions(command) => functions::run(&ui, &args.global, &command),
        Command::Openapi(command) => openapi::run(&ui, &command),
        Command::Schema(command) => schema::run(&ui, &command),
        Command::Lsp(command) => lsp::run(&ui, &command),
        Command::Krm(command) => krm::run(&ui, &args.global, &command),
        Command::Check(command) => check::run(&ui, &args.global, &command),
        Command::Test(command) => test::run(&ui, &args.global, &command),
        Command::Storm(command) => storm::run(&ui, &args.global, &command),
        Command::Fmt(command) => fmt::run(&ui, &args.global, &command),
        Command::Convert(command) => convert::run(&ui, &args.global, &command),
        Command::Diff(command) => diff::run(&ui, &args.global, &command),
        Command::Eval(command) => eval::run(&ui, &args.global, &command),
        Command::Jp(command) => eval::run_jp(&ui, &args.global, &command),
        Command::Explain(command) => explain::run(&ui, &command),
        Command::Adopt(command) => adopt::run(&ui, &command),
        Command::Doctor(command) => doctor::run(&ui, &command),
        Command::Plan(command) => plan::run(&ui, &args.global, &command),
        Command::Install(command) => install::run(&ui, &command),
        Command::Run(command) => run::run(&ui, &command),
        Command::Uninstall(command) => uninstall::run(&ui, &command),
        Command::Up(command) => up::run(&ui, &args.global, &command),
        Command::Ui(command) => ui::run(&ui, &args.global, &command),
        Command::Version(command) => version::run(&ui, &command),
        Command::Completion(command) => completion::run(&ui, &command),
        Command::Man(command) => man::run(&ui, &command),
        Command::PluginSandbox(command) => plugin_sandbox::run(&ui, &command),
        Command::InSandbox(command) => up::command::become_command(&ui, &command),
    };
    ended(&ui, &result)
}

/// Shows what kept a command from its work, and gives the exit code.
fn ended(ui: &Ui, result: &CommandResult) -> ExitCode {
    if let Err(CommandFailure::BadInput(problems)) = result {
        for problem in problems {
            ui.problem(problem);
        }
    }
    exit::code(result)
}
