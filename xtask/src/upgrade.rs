//! `cargo xtask upgrade`: from an earlier version to this one, with downstreams in the cluster and requests all the time.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::process::stream;
use crate::{git, root};

/// The test that is also run from this version to itself.
const TEST: &str = "replicas::an_upgrade_denies_no_request";

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The earlier version: a `kiln` binary, or a commit or tag to build it from
    #[arg(long, value_name = "BINARY|COMMIT")]
    from: String,
}

/// Whether nothing was lost, and no request was rejected.
pub(crate) fn run(args: &Args) -> Result<bool> {
    let earlier = match Path::new(&args.from) {
        binary if binary.is_file() => std::path::absolute(binary)?,
        _ => built(&args.from)?,
    };
    let mut command = Command::new("cargo");
    command
        .args(["test", "--workspace", "--test", "live", "--", TEST, "--nocapture"])
        .env("KILN_UPGRADE_FROM", earlier)
        .current_dir(root());
    Ok(stream(&mut command)?.success)
}

/// Builds a commit; the path of its program.
fn built(name: &str) -> Result<PathBuf> {
    let commit = git::output(&root(), &["rev-parse", "--verify", &format!("{name}^{{commit}}")])?;
    let directory = root().join("target/upgrade");
    let (tree, build) = (directory.join(&commit), directory.join("build"));
    if !tree.is_dir() {
        git::unpack(&root(), &commit, &tree)?;
    }
    let status = Command::new("cargo")
        .current_dir(&tree)
        .args(["build", "--locked", "--release", "--package", "kiln"])
        .env("CARGO_TARGET_DIR", &build)
        .env_remove("RUSTC_WORKSPACE_WRAPPER")
        .status()
        .context("cannot start cargo")?;
    if !status.success() {
        bail!("{name} cannot be built: see above");
    }
    Ok(build.join("release/kiln"))
}
