//! `kiln build --diff`: how the output differs from a file, or from what another revision builds.

use std::fs;
use std::io::Write;
use std::path::Path;

use kiln_kustomize::BuildOptions;
use serde_json::json;
use similar::TextDiff;

use super::Args;
use crate::args::{Global, OutputFormat};
use crate::exit::CommandFailure;
use crate::input;
use crate::kustomization::{BuildHost, build};
use crate::revision::Revision;
use crate::ui::{Ui, plain};

/// Prints the difference; whether there is one.
pub(super) fn run(
    ui: &Ui,
    global: &Global,
    args: &Args,
    against: &str,
    options: &BuildOptions,
    host: &BuildHost<'_>,
) -> Result<bool, CommandFailure> {
    let now = build(ui, global, &args.directory, options, host)?.yaml;
    let before = if Path::new(against).is_file() {
        let read = input::read(against, global.max_input_size)?;
        String::from_utf8_lossy(&read.bytes).into_owned()
    } else {
        at_revision(ui, global, args, against, options, host)?
    };
    let label = |text: &str| plain(text);
    let text = TextDiff::from_lines(&before, &now)
        .unified_diff()
        .header(&label(against), &label(&args.directory))
        .to_string();
    let differs = before != now;
    let mut out = ui.stdout();
    match ui.format() {
        OutputFormat::Json | OutputFormat::Yaml => {
            ui.document(&json!({"differs": differs, "diff": text}))?;
        }
        _ if differs => write!(out, "{text}")?,
        _ => {}
    }
    out.flush()?;
    Ok(differs)
}

/// What a revision of the repository builds; nothing where it has no such kustomization.
fn at_revision(
    ui: &Ui,
    global: &Global,
    args: &Args,
    revision: &str,
    options: &BuildOptions,
    host: &BuildHost<'_>,
) -> Result<String, CommandFailure> {
    // A hook before the first commit.
    if Revision::is_unborn(&args.directory, revision) {
        return Ok(String::new());
    }
    let checked_out = Revision::check_out(&args.directory, revision)?;
    let place = checked_out.path(&args.directory).filter(|place| fs::metadata(place).is_ok());
    let Some(place) = place else { return Ok(String::new()) };
    let place = place.display().to_string();
    // Messages about files of another revision begin in its directory.
    let options = BuildOptions { working_directory: place.clone(), ..options.clone() };
    let output = build(ui, global, &place, &options, host).map_err(|failure| match failure {
        CommandFailure::BadInput(problems) => CommandFailure::BadInput(
            problems
                .into_iter()
                .map(|mut problem| {
                    problem.message = format!("at {revision}: {}", problem.message);
                    problem
                })
                .collect(),
        ),
        other => other,
    })?;
    Ok(output.yaml)
}
