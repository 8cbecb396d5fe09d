//! `cargo xtask faults`: the long form of what is done to a running engine on a real control plane.

use anyhow::Result;

use crate::cargo::cargo_with_lints;
use crate::process::stream;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only tests whose name contains this text
    #[arg(value_name = "NAME", default_value = "")]
    name: String,
}

/// Whether every scene ended well.
pub(crate) fn run(args: &Args) -> Result<bool> {
    let mut command = cargo_with_lints();
    command.args(["test", "--workspace", "--test", "live", "--"]);
    match args.name.as_str() {
        "" => command.args(["faults::", "certificates::", "replicas::"]),
        name => command.arg(name),
    };
    command.args(["--nocapture", "--test-threads=1"]).env("KILN_FAULTS", "long");
    Ok(stream(&mut command)?.success)
}
