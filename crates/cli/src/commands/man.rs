//! `kiln man`

use std::fs;
use std::path::PathBuf;

use crate::args;
use crate::exit::{CommandOutcome, CommandResult};
use crate::input::cannot;
use crate::ui::Ui;

/// Write the manual pages into a directory
///
/// One page per command: kiln.1, kiln-fmt.1 and so on. The directory is created if it does not exist.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Directory for the manual pages
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

pub(crate) fn run(ui: &Ui, args: &Args) -> CommandResult {
    ui.has_formats_of("man")?;
    let shown = args.directory.display().to_string();
    fs::create_dir_all(&args.directory)
        .and_then(|()| clap_mangen::generate_to(args::definition(), &args.directory))
        .map_err(|error| cannot("write", &shown, &error))?;
    Ok(CommandOutcome::Done)
}
