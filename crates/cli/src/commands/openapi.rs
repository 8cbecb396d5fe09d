//! `kiln openapi`

use std::io::Write;

use kiln_diagnostic::Diagnostic;

use crate::args::OutputFormat;
use crate::cluster::connection::ClusterAddress;
use crate::exit::{CommandOutcome, CommandResult};
use crate::ui::Ui;

/// Show the schema that builds use, or fetch that of a cluster
///
/// What `fetch` prints can be named in a kustomization: openapi: {path: schema.json}.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Print which schema is built in
    Info,
    /// Print the schema of a cluster as JSON, or with --format yaml
    Fetch(ClusterAddress),
}

pub(crate) fn run(ui: &Ui, args: &Args) -> CommandResult {
    ui.has_formats_of("openapi")?;
    let mut out = ui.data();
    match &args.command {
        Command::Info => writeln!(out, "{}", kiln_kustomize::OPENAPI_INFO)?,
        Command::Fetch(cluster) => {
            let schema = cluster.reader()?.schema().map_err(|error| {
                Diagnostic::error(format!("cannot fetch the schema: {error}"))
                    .hint("check that the cluster is up and the credentials are valid")
            })?;
            match ui.format() {
                OutputFormat::Yaml => out.write_all(kiln_yaml::emit(&schema).as_bytes())?,
                _ => writeln!(out, "{}", kiln_value::json::to_go_string_pretty(&schema))?,
            }
        }
    }
    out.flush()?;
    Ok(CommandOutcome::Done)
}
