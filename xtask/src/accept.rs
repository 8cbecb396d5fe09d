//! `cargo xtask accept`: what the command line prints now is what it is expected to print.

use anyhow::{Result, bail};

use crate::cargo::cargo_with_lints;
use crate::process::stream;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only the tests whose name contains this text, as transcripts::doctor
    #[arg(value_name = "NAME", default_value = "")]
    name: String,
}

/// Whether everything that the command line shows could be written anew: transcripts, the examples, the documentation and the
/// generated parts of the Helm chart.
pub(crate) fn run(args: &Args) -> Result<bool> {
    let mut command = cargo_with_lints();
    command.args(["test", "--workspace", "--test", "cli", "--test", "chart", "--"]);
    match args.name.as_str() {
        "" => command.args(["transcripts::", "examples::", "documentation::", "current"]),
        name => command.arg(name),
    };
    command.env("KILN_ACCEPT", "1");
    let finished = stream(&mut command)?;
    if finished
        .lines
        .iter()
        .filter(|line| line.starts_with("running "))
        .all(|line| line == "running 0 tests")
    {
        bail!("no test has {:?} in its name", args.name);
    }
    Ok(finished.success)
}
