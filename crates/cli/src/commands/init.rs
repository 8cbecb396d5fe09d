//! `kiln init`

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use kiln_diagnostic::Diagnostic;

use super::create;
use crate::args::Global;
use crate::exit::{CommandFailure, CommandOutcome, CommandResult};
use crate::input;
use crate::ui::{Ui, plain};

/// Create an example policy with resources to try it on
///
/// Writes rules.yaml and resources.yaml, and prints the commands to run next. Existing files are kept. With
/// --kustomization, writes a kustomization file into the current directory instead, as `kiln create` does.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Directory; it is created if it does not exist
    #[arg(value_name = "DIR", default_value = ".")]
    directory: PathBuf,

    /// Kind of rule to write
    #[arg(long, value_enum, default_value_t = Scaffold::Generate)]
    rule: Scaffold,

    /// Write a kustomization file instead
    #[arg(long, conflicts_with_all = ["directory", "rule"])]
    kustomization: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Scaffold {
    /// Creates a NetworkPolicy in every new Namespace, and keeps it synchronized
    Generate,
    /// Clones a Secret into every new Namespace, and keeps the clones synchronized
    Clone,
    /// Adds a label to every Deployment
    Mutate,
    /// Rejects Pods that use the tag latest, as a ModRule
    Reject,
}

impl Scaffold {
    fn rules(self) -> &'static str {
        match self {
            Scaffold::Generate => include_str!("init/generate.yaml"),
            Scaffold::Clone => include_str!("init/clone.yaml"),
            Scaffold::Mutate => include_str!("init/mutate.yaml"),
            Scaffold::Reject => include_str!("init/reject.yaml"),
        }
    }

    fn resources(self) -> &'static str {
        match self {
            Scaffold::Generate => include_str!("init/generate-resources.yaml"),
            Scaffold::Clone => include_str!("init/clone-resources.yaml"),
            Scaffold::Mutate => include_str!("init/mutate-resources.yaml"),
            Scaffold::Reject => include_str!("init/reject-resources.yaml"),
        }
    }
}

pub(crate) fn run(ui: &Ui, global: &Global, args: &Args) -> CommandResult {
    ui.has_formats_of("init")?;
    let mut out = ui.stdout();
    if args.kustomization {
        create::run(ui, global, &create::Args::default())?;
        writeln!(out, "wrote kustomization.yaml")?;
        out.flush()?;
        return Ok(CommandOutcome::Done);
    }
    let shown = |path: &Path| plain(&path.display().to_string());
    fs::create_dir_all(&args.directory)
        .map_err(|error| input::cannot("make", &shown(&args.directory), &error))?;
    let paths = ["rules.yaml", "resources.yaml"].map(|name| match args.directory.as_path() {
        here if here == Path::new(".") => PathBuf::from(name),
        directory => directory.join(name),
    });
    // All or nothing: half a scaffold beside the user's own file is a puzzle.
    if let Some(there) = paths.iter().find(|path| fs::symlink_metadata(path).is_ok()) {
        return Err(Diagnostic::error(format!("{} is there already", shown(there)))
            .hint("give another directory: kiln init DIR")
            .into());
    }
    let texts = [args.rule.rules(), args.rule.resources()];
    for (path, text) in paths.iter().zip(texts) {
        write_new(path, text)?;
        writeln!(out, "wrote {}", shown(path))?;
    }
    let [rules, resources] = paths.each_ref().map(|path| shown(path));
    writeln!(out, "next: kiln apply {rules} --resource {resources}")?;
    out.flush()?;
    Ok(CommandOutcome::Done)
}

fn write_new(path: &Path, text: &str) -> Result<(), CommandFailure> {
    let failed = |error| input::cannot("write", &path.display().to_string(), &error);
    let mut file = File::options().write(true).create_new(true).open(path).map_err(failed)?;
    Ok(file.write_all(text.as_bytes()).map_err(failed)?)
}
