//! The figures of `kiln convert` over the policy library: verdicts, coverage, seeded faults, suites and hand-made twins, and
//! converted policies run by Kyverno's own command line. A test of `crates/convert` prints them.

use anyhow::Result;

use super::Args;
use crate::bench::kyverno;
use crate::cargo::cargo_with_lints;
use crate::process::stream;

pub(super) fn run(args: &Args) -> Result<bool> {
    let mut command = cargo_with_lints();
    command.args(["test", "--workspace", "--test", "convert", "--"]);
    command.args(["--ignored", "--nocapture", "figures"]);
    command.env("KILN_KYVERNO_CLI", kyverno::program("cli/kubectl-kyverno")?);
    command.env("KILN_CASES", args.cases.to_string());
    Ok(stream(&mut command)?.success)
}
