//! `kiln edit`

mod add;
mod files;
mod fix;
mod remove;
mod set;

use std::io::Write;

use kiln_diagnostic::Diagnostic;
use kiln_kustomize::edit::KustomizationFile;

use crate::args::Global;
use crate::exit::{CommandFailure, CommandOutcome, CommandResult};
use crate::ui::Ui;

pub(crate) use files::expand_or_directories;

/// Edit the kustomization file of the current directory
///
/// The commands are those of `kustomize edit`. Comments, quotes and the order of fields stay as they are: only the
/// field of the command is written.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Add an entry to a field
    #[command(subcommand)]
    Add(add::Add),
    /// Remove an entry from a field
    #[command(subcommand)]
    Remove(remove::Remove),
    /// Set the value of a field
    #[command(subcommand)]
    Set(set::Set),
    Fix(fix::Args),
    /// List the built-in plugins
    AlphaListBuiltinPlugin,
}

pub(crate) fn run(ui: &Ui, global: &Global, args: &Args) -> CommandResult {
    ui.has_formats_of("edit")?;
    match &args.command {
        Command::Fix(args) => return fix::run(ui, global, args),
        Command::AlphaListBuiltinPlugin => return list_builtin_plugins(ui),
        _ => {}
    }
    let (path, mut file) = files::open(global)?;
    match &args.command {
        Command::Add(add) => add::run(ui, add, &mut file)?,
        Command::Remove(remove) => remove::run(remove, &mut file)?,
        Command::Set(set) => set::run(set, &mut file)?,
        Command::Fix(_) | Command::AlphaListBuiltinPlugin => {}
    }
    for note in file.notes() {
        ui.problem(&Diagnostic::warning(note.as_str()));
    }
    files::save(path, &file)?;
    Ok(CommandOutcome::Done)
}

fn list_builtin_plugins(ui: &Ui) -> CommandResult {
    let mut out = ui.stdout();
    writeln!(out, "Builtin plugins:\n")?;
    for name in kiln_kustomize::BUILTIN_PLUGINS {
        writeln!(out, " * {name}")?;
    }
    out.flush()?;
    Ok(CommandOutcome::Done)
}

/// What a library could not do, as the message for the user.
fn failed(error: kiln_kustomize::Error) -> CommandFailure {
    CommandFailure::BadInput(vec![error.into()])
}

/// Which patch is meant.
#[derive(Debug, clap::Args)]
struct PatchArgs {
    /// File with the patch
    #[arg(long, default_value = "", hide_default_value = true)]
    path: String,
    /// Inline patch
    #[arg(long, default_value = "", hide_default_value = true, allow_hyphen_values = true)]
    patch: String,
    /// API group of the target
    #[arg(long, default_value = "", hide_default_value = true, help_heading = "Target")]
    group: String,
    /// API version of the target
    #[arg(long, default_value = "", hide_default_value = true, help_heading = "Target")]
    version: String,
    /// Kind of the target
    #[arg(long, default_value = "", hide_default_value = true, help_heading = "Target")]
    kind: String,
    /// Name of the target
    #[arg(long, default_value = "", hide_default_value = true, help_heading = "Target")]
    name: String,
    /// Namespace of the target
    #[arg(long, default_value = "", hide_default_value = true, help_heading = "Target")]
    namespace: String,
    /// Annotation selector of the target
    #[arg(long, default_value = "", hide_default_value = true, help_heading = "Target")]
    annotation_selector: String,
    /// Label selector of the target
    #[arg(long, default_value = "", hide_default_value = true, help_heading = "Target")]
    label_selector: String,
}

impl PatchArgs {
    fn entry(&self) -> kiln_kustomize::edit::PatchEntry {
        kiln_kustomize::edit::PatchEntry {
            path: self.path.clone(),
            patch: self.patch.clone(),
            group: self.group.clone(),
            version: self.version.clone(),
            kind: self.kind.clone(),
            name: self.name.clone(),
            namespace: self.namespace.clone(),
            annotation_selector: self.annotation_selector.clone(),
            label_selector: self.label_selector.clone(),
        }
    }
}

/// Words that are separated by commas.
fn words(text: &str) -> Vec<String> {
    text.split(',').map(str::to_owned).collect()
}

/// Tries a ConfigMap or Secret before it is written down.
fn try_generator(
    which: kiln_kustomize::edit::Generator,
    entry: &kiln_value::Value,
    file: &KustomizationFile,
) -> Result<(), CommandFailure> {
    let here = files::here()?;
    kiln_kustomize::edit::generator_problem(
        &kiln_kustomize::fs::Disk,
        &here,
        which,
        entry,
        file.generator_options(),
    )
    .map_err(|error| failed(error.context(format_args!("failed to create {}", which.word()))))
}
