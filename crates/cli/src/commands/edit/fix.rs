//! `kiln edit fix`

use std::path::Path;

use kiln_diagnostic::Diagnostic;
use kiln_kustomize::edit::convert_vars;
use kiln_kustomize::fs::Disk;
use kiln_kustomize::{Build, BuildOptions};

use super::{failed, files};
use crate::args::Global;
use crate::exit::{CommandOutcome, CommandResult};
use crate::input::Replacement;
use crate::ui::Ui;

/// Replace deprecated fields
///
/// bases, imageTags, patchesJson6902, patchesStrategicMerge, commonLabels and helmChartInflationGenerator
/// get their new form. The directory is built before and after; a difference is reported.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Also convert vars to replacements, which changes the files that use them
    #[arg(long)]
    vars: bool,
}

pub(super) fn run(ui: &Ui, global: &Global, args: &Args) -> CommandResult {
    let (path, mut file) = files::open(global)?;
    let here = files::here()?;
    let before = build(&here);
    let mut fixed = file
        .fix(&|path| Path::new(path).is_file())
        .map_err(failed)?
        .into_iter()
        .map(|fixed| format!("{} -> {}", fixed.from, fixed.to))
        .collect::<Vec<_>>();
    let mut replacements = Vec::new();
    if args.vars {
        let converted = convert_vars(&mut file, &Disk, &here).map_err(failed)?;
        if !converted.is_empty() {
            fixed.push("vars -> replacements".to_owned());
        }
        for other in converted {
            replacements.push(Replacement::prepare(&other.path, &other.text)?);
            fixed.push(format!("$(…) -> …_PLACEHOLDER in {}", shown(&other.path, &here)));
        }
    }
    if file.is_changed() {
        replacements.push(Replacement::prepare(path, &file.text()?)?);
    }
    // Everything is written beside its place before anything is put there.
    for replacement in replacements {
        replacement.put()?;
    }
    for line in &fixed {
        ui.status(&format!("fixed {line}"));
    }
    tell_difference(ui, &before, &build(&here));
    Ok(CommandOutcome::Done)
}

fn shown<'p>(path: &'p str, here: &str) -> &'p str {
    path.strip_prefix(here).map_or(path, |path| path.trim_start_matches('/'))
}

fn build(directory: &str) -> Result<String, String> {
    let options =
        BuildOptions { working_directory: directory.to_owned(), ..BuildOptions::default() };
    Build::new(&Disk, &options)
        .run(directory)
        .map(|output| output.yaml)
        .map_err(|failed| failed.error.to_string())
}

fn tell_difference(ui: &Ui, before: &Result<String, String>, after: &Result<String, String>) {
    match (before, after) {
        (Ok(before), Ok(after)) if before != after => {
            ui.problem(
                &Diagnostic::warning("the fixed kustomization gives another output than before")
                    .hint("compare with: kiln build"),
            );
        }
        (Ok(_), Err(error)) => {
            ui.problem(&Diagnostic::warning(format!(
                "the fixed kustomization cannot be built: {error}"
            )));
        }
        // What could not be built before needs no comparison.
        _ => {}
    }
}
