//! `kiln localize`

use std::fs;
use std::path::Path;

use clap::builder::FalseyValueParser;
use kiln_diagnostic::Diagnostic;
use kiln_kustomize::fs::Disk;
use kiln_kustomize::local::Running;
use kiln_kustomize::{Build, BuildOptions, Localized, Repository};

use crate::args::Global;
use crate::exit::{CommandFailure, CommandOutcome, CommandResult};
use crate::fetch::Remote;
use crate::input;
use crate::ui::{self, Ui};

/// Copy a kustomization with all files and repositories it references
///
/// Remote files and repositories are fetched into the copy, which references them there, so that it builds without
/// network access. Comments of kustomization files are kept. Both are built and compared at the end.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Directory with a kustomization file, or URL of a repository with ?ref=
    #[arg(default_value = ".")]
    target: String,

    /// Directory to create [default: localized-NAME in the current directory]
    destination: Option<String>,

    /// Directory around TARGET that may hold its bases [default: TARGET]
    #[arg(long, value_name = "DIR")]
    scope: Option<String>,

    /// Skip the comparison of the two builds
    #[arg(long)]
    no_verify: bool,

    /// Deny network access
    #[arg(long, env = "KILN_OFFLINE", value_parser = FalseyValueParser::new())]
    offline: bool,
}

pub(crate) fn run(ui: &Ui, global: &Global, args: &Args) -> CommandResult {
    ui.has_formats_of("localize")?;
    let here = std::env::current_dir()?.display().to_string();
    let absolute = |path: &str| match path.starts_with('/') || Repository::parse(path).is_some() {
        true => path.to_owned(),
        false => format!("{here}/{path}"),
    };
    let options = BuildOptions {
        max_file_size: usize::try_from(global.max_input_size).unwrap_or(usize::MAX),
        working_directory: here.clone(),
        ..BuildOptions::default()
    };
    let remote = Remote::new(args.offline, global.max_input_size, Running::default());
    let build = Build::new(&Disk, &options).fetch(&remote);
    let target = absolute(&args.target);
    let scope = args.scope.as_deref().map(absolute);
    let copy = build.localize(&target, scope.as_deref()).map_err(|failed| failure(*failed))?;
    let destination = args.destination.as_deref().unwrap_or(&copy.name);
    write(Path::new(destination), &copy)?;
    ui.status(&format!("{} is copied to {}", ui::plain(&args.target), ui::plain(destination)));
    if args.no_verify {
        return Ok(CommandOutcome::Done);
    }
    let built = |directory: &str| {
        build.run(directory).map(|output| output.yaml).map_err(|failed| {
            let CommandFailure::BadInput(problems) = failure(*failed) else {
                return CommandFailure::BrokenPipe;
            };
            let hint =
                "the copy is made; build both with the options that they need, and use --no-verify";
            CommandFailure::BadInput(
                problems.into_iter().map(|problem| problem.hint(hint)).collect(),
            )
        })
    };
    let copied = format!("{}/{}", absolute(destination), copy.root);
    if built(&target)? != built(&copied)? {
        ui.problem(
            &Diagnostic::error(format!(
                "{} and {destination} do not build to the same",
                args.target
            ))
            .hint(format!(
                "compare them: diff <(kiln build {}) <(kiln build {copied})",
                args.target
            )),
        );
        return Ok(CommandOutcome::Negative);
    }
    ui.status("both build to the same");
    Ok(CommandOutcome::Done)
}

fn failure(failed: kiln_kustomize::Failed) -> CommandFailure {
    CommandFailure::BadInput(vec![failed.error.into()])
}

/// Writes the copy into a new directory, or nothing.
fn write(destination: &Path, copy: &Localized) -> Result<(), CommandFailure> {
    let shown = destination.display().to_string();
    fs::create_dir(destination).map_err(|error| {
        input::cannot("make", &shown, &error).hint("give a new directory in an existing one")
    })?;
    for (path, contents) in &copy.files {
        let file = destination.join(path);
        let written = file
            .parent()
            .map_or(Ok(()), fs::create_dir_all)
            .and_then(|()| fs::write(&file, contents));
        if let Err(error) = written {
            // It was made just now, and holds nothing else.
            let _ = fs::remove_dir_all(destination);
            return Err(input::cannot("write", &file.display().to_string(), &error).into());
        }
    }
    Ok(())
}
