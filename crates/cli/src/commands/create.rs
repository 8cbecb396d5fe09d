//! `kiln create`

mod kyverno_files;

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use kiln_diagnostic::Diagnostic;
use kiln_kustomize::edit::{Create, FILE_NAMES, Labelled, Pairs, create, parse_pairs};

use super::edit::expand_or_directories;
use crate::args::Global;
use crate::exit::{CommandFailure, CommandOutcome, CommandResult};
use crate::input;
use crate::ui::Ui;

/// Create a kustomization file, or a file for tests of policies
///
/// Without a command, writes a kustomization file into the current directory, as kustomize create does. The commands are
/// those of kyverno create.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct KilnArgs {
    #[command(subcommand)]
    file: Option<kyverno_files::KyvernoFile>,
    #[command(flatten)]
    kustomization: Args,
}

pub(crate) fn run_kiln(ui: &Ui, global: &Global, args: &KilnArgs) -> CommandResult {
    match &args.file {
        Some(file) => {
            ui.has_formats_of("create")?;
            kyverno_files::run(ui, file)
        }
        None => run(ui, global, &args.kustomization),
    }
}

/// Create a kustomization file in the current directory
#[derive(Debug, Default, clap::Args)]
pub(crate) struct Args {
    /// Files, directories or repositories, separated by commas
    #[arg(long, value_name = "PATH,PATH", value_delimiter = ',')]
    resources: Vec<String>,

    /// Add the files with Kubernetes objects in this directory
    #[arg(long)]
    autodetect: bool,

    /// With --autodetect, also search subdirectories
    #[arg(long)]
    recursive: bool,

    /// Namespace of all resources
    #[arg(long, default_value = "", hide_default_value = true)]
    namespace: String,

    /// Prefix of all names
    #[arg(long, default_value = "", hide_default_value = true, allow_hyphen_values = true)]
    nameprefix: String,

    /// Suffix of all names
    #[arg(long, default_value = "", hide_default_value = true, allow_hyphen_values = true)]
    namesuffix: String,

    /// Labels of all resources
    #[arg(long, value_name = "KEY:VALUE,…", value_delimiter = ',')]
    labels: Vec<String>,

    /// Annotations of all resources
    #[arg(long, value_name = "KEY:VALUE,…", value_delimiter = ',')]
    annotations: Vec<String>,
}

pub(crate) fn run(ui: &Ui, global: &Global, args: &Args) -> CommandResult {
    ui.has_formats_of("create")?;
    let mut resources = expand_or_directories(&args.resources)?;
    let there = FILE_NAMES.into_iter().find(|name| fs::symlink_metadata(name).is_ok());
    if let Some(name) = there {
        return Err(Diagnostic::error("kustomization file already exists")
            .hint(format!("change {name} with: kiln edit"))
            .into());
    }
    if args.autodetect {
        let mut found = Vec::new();
        detect(Path::new("."), args.recursive, global.max_input_size, 0, &mut found)?;
        for path in found {
            if !resources.contains(&path) {
                resources.push(path);
            }
        }
    }
    let text = create(&Create {
        resources,
        name_prefix: args.nameprefix.clone(),
        name_suffix: args.namesuffix.clone(),
        namespace: args.namespace.clone(),
        labels: pairs(&args.labels, Labelled::Label)?,
        annotations: pairs(&args.annotations, Labelled::Annotation)?,
    });
    let name = FILE_NAMES[0];
    let failed = |error| input::cannot("write", name, &error);
    // Only a new file will do: one that came to be in the meantime is not ours.
    let mut file = File::options().write(true).create_new(true).open(name).map_err(failed)?;
    file.write_all(text.as_bytes()).map_err(failed)?;
    Ok(CommandOutcome::Done)
}

fn pairs(texts: &[String], which: Labelled) -> Result<Pairs, CommandFailure> {
    parse_pairs(texts, which).map_err(|error| CommandFailure::BadInput(vec![error.into()]))
}

/// Directories are not entered deeper than this.
const DEEPEST: usize = 100;

/// The files with objects and the directories with kustomizations, in the order of names.
fn detect(
    directory: &Path,
    recursive: bool,
    limit: u64,
    depth: usize,
    found: &mut Vec<String>,
) -> Result<(), CommandFailure> {
    let shown = directory.display().to_string();
    let failed = |error| input::cannot("read", &shown, &error);
    let mut names: Vec<String> = fs::read_dir(directory)
        .map_err(failed)?
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.sort();
    for name in names {
        let path = if shown == "." { name } else { format!("{shown}/{name}") };
        // Links may lead anywhere, and in circles.
        let Ok(kind) = fs::symlink_metadata(&path).map(|metadata| metadata.file_type()) else {
            continue;
        };
        if kind.is_dir() && recursive && depth < DEEPEST {
            let is_root = FILE_NAMES.iter().any(|name| Path::new(&path).join(name).exists());
            if is_root {
                found.push(path);
            } else {
                detect(Path::new(&path), recursive, limit, depth + 1, found)?;
            }
        } else if kind.is_file() && holds_objects(&path, limit) {
            found.push(path);
        }
    }
    Ok(())
}

fn holds_objects(path: &str, limit: u64) -> bool {
    input::read(path, limit).is_ok_and(|read| kiln_kustomize::are_objects(&read.bytes))
}
