//! `cargo xtask beside-kyverno`: Kyverno's own controllers and Kiln in one cluster that refuses the old kinds.

use anyhow::Result;

use crate::cargo::cargo_with_lints;
use crate::process::stream;

/// The live test that other runs leave out, because it builds Kyverno.
const TEST: &str = "beside_kyverno::policies_leave_a_kyverno_that_refuses_the_old_kinds";

/// Whether policies moved from one engine to the other, and both go on.
pub(crate) fn run() -> Result<bool> {
    let mut command = cargo_with_lints();
    command.args(["test", "--workspace", "--test", "live", "--"]);
    command.args([TEST, "--exact", "--ignored", "--nocapture"]);
    Ok(stream(&mut command)?.success)
}
