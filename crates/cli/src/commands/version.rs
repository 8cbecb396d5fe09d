//! `kiln version`

use std::io::Write;

use crate::args::Format;
use crate::exit::{CommandResult, Outcome};
use crate::ui::Ui;

/// Print the version
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

pub(crate) fn run(ui: &Ui, _args: &Args) -> CommandResult {
    ui.has_forms(&[Format::Text, Format::Yaml, Format::Json])?;
    let version = env!("CARGO_PKG_VERSION");
    let mut out = ui.stdout();
    match ui.format() {
        Format::Json => writeln!(out, "{}", serde_json::json!({ "version": version }))?,
        Format::Yaml => writeln!(out, "version: {version}")?,
        _ => writeln!(out, "kiln {version}")?,
    }
    out.flush()?;
    Ok(Outcome::Done)
}
