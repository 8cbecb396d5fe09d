//! `kiln version`

use std::io::Write;

use crate::args::Format;
use crate::exit::{CommandOutcome, CommandResult};
use crate::ui::Ui;

/// Print the version
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Output format, like --format
    #[arg(short, long, value_enum, value_name = "FORM", conflicts_with = "short")]
    output: Option<Form>,

    /// Print only the version number
    #[arg(long)]
    short: bool,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Form {
    Yaml,
    Json,
}

pub(crate) fn run(ui: &Ui, args: &Args) -> CommandResult {
    ui.has_forms(&[Format::Text, Format::Yaml, Format::Json])?;
    let version = env!("CARGO_PKG_VERSION");
    let kustomize = kiln_kustomize::KUSTOMIZE_VERSION;
    let form = match args.output {
        Some(Form::Yaml) => Format::Yaml,
        Some(Form::Json) => Format::Json,
        None => ui.format(),
    };
    let mut out = ui.stdout();
    match form {
        Format::Json => {
            writeln!(out, "{}", serde_json::json!({ "version": version, "kustomize": kustomize }))?;
        }
        Format::Yaml => writeln!(out, "version: {version}\nkustomize: {kustomize}")?,
        _ if args.short => writeln!(out, "{version}")?,
        _ => writeln!(out, "kiln {version}")?,
    }
    out.flush()?;
    Ok(CommandOutcome::Done)
}
