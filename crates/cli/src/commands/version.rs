//! `kiln version`, and `kustomize version`

use std::io::Write;

use crate::args::OutputFormat;
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
    ui.has_formats_of("version")?;
    let version = env!("CARGO_PKG_VERSION");
    let kustomize = kiln_kustomize::KUSTOMIZE_VERSION;
    let form = match args.output {
        Some(Form::Yaml) => OutputFormat::Yaml,
        Some(Form::Json) => OutputFormat::Json,
        None => ui.format(),
    };
    let mut out = ui.stdout();
    match form {
        OutputFormat::Json => {
            writeln!(out, "{}", serde_json::json!({ "version": version, "kustomize": kustomize }))?;
        }
        OutputFormat::Yaml => writeln!(out, "version: {version}\nkustomize: {kustomize}")?,
        _ if args.short => writeln!(out, "{version}")?,
        _ => writeln!(out, "kiln {version}")?,
    }
    out.flush()?;
    Ok(CommandOutcome::Done)
}

/// Prints the kustomize version
#[derive(Debug, clap::Args)]
pub(crate) struct KustomizeArgs {
    /// One of yaml or json
    #[arg(short, long, value_enum, value_name = "FORM", conflicts_with = "short")]
    output: Option<Form>,

    /// The version and the date of the build, in braces
    #[arg(long, hide = true)]
    short: bool,
}

/// The version as kustomize prints its own. What only a Go program has is unknown, which is kustomize's word for it.
pub(crate) fn run_as_kustomize(ui: &Ui, args: &KustomizeArgs) -> CommandResult {
    let version = kiln_kustomize::KUSTOMIZE_VERSION;
    let system = match std::env::consts::OS {
        "macos" => "darwin",
        other => other,
    };
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    let fields = [
        ("version", version),
        ("gitCommit", "unknown"),
        ("buildDate", "unknown"),
        ("goOs", system),
        ("goArch", architecture),
        ("goVersion", "unknown"),
        ("kiln", env!("CARGO_PKG_VERSION")),
    ];
    let mut out = ui.stdout();
    match args.output {
        Some(Form::Json) => {
            let lines = fields.map(|(key, value)| format!("  \"{key}\": \"{value}\""));
            writeln!(out, "{{\n{}\n}}", lines.join(",\n"))?;
        }
        Some(Form::Yaml) => {
            for (key, value) in fields {
                writeln!(out, "{key}: {value}")?;
            }
            writeln!(out)?;
        }
        None if args.short => {
            ui.status("Flag --short has been deprecated, and will be removed in the future.");
            writeln!(out, "{{{version}  unknown   }}")?;
        }
        None => writeln!(out, "{version}")?,
    }
    out.flush()?;
    Ok(CommandOutcome::Done)
}
