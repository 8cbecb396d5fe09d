//! `kiln completion`

use std::io::Write;

use clap_complete::Shell;

use crate::args;
use crate::exit::{CommandOutcome, CommandResult};
use crate::ui::Ui;

/// Print a completion script for a shell
///
/// For bash: `source <(kiln completion bash)`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Name of the shell
    shell: Shell,
}

pub(crate) fn run(ui: &Ui, args: &Args) -> CommandResult {
    print(ui, args, args::definition(), "kiln")
}

/// Prints the script for a program with these commands.
pub(crate) fn print(
    ui: &Ui,
    args: &Args,
    mut definition: clap::Command,
    program: &str,
) -> CommandResult {
    ui.has_formats_of("completion")?;
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut definition, program, &mut script);
    let mut out = ui.data();
    out.write_all(&script)?;
    out.flush()?;
    Ok(CommandOutcome::Done)
}
