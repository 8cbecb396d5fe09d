//! `cargo xtask faults`: the long form of what is done to a running engine on a real control plane.

use std::process::Command;

use anyhow::Result;

use crate::process::stream;
use crate::root;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only tests whose name contains this text
    #[arg(value_name = "NAME", default_value = "")]
    name: String,
}

/// Whether every scene ended well.
pub(crate) fn run(args: &Args) -> Result<bool> {
    let mut command = Command::new("cargo");
    command.args(["test", "-p", "kiln", "--test", "live", "--"]);
    match args.name.as_str() {
        "" => command.args(["faults::", "certificates::", "replicas::"]),
        name => command.arg(name),
    };
    command
        .args(["--nocapture", "--test-threads=1"])
        .env("KILN_FAULTS", "long")
        .current_dir(root());
    Ok(stream(&mut command)?.success)
}
