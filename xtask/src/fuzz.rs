//! `cargo xtask fuzz`: every fuzz target, for a bounded time.

use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::root;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Run only this target
    target: Option<String>,
    /// How long each target runs
    #[arg(long, default_value_t = 30)]
    seconds: u32,
    /// Only build the targets
    #[arg(long)]
    build: bool,
}

/// Whether no target found anything.
pub(crate) fn run(args: &Args) -> Result<bool> {
    let available = Command::new("cargo").args(["+nightly", "fuzz", "--version"]).output();
    if !available.is_ok_and(|output| output.status.success()) {
        bail!(
            "fuzzing needs a nightly toolchain and cargo-fuzz: rustup toolchain install nightly && cargo install cargo-fuzz"
        );
    }
    let targets = match &args.target {
        Some(target) => vec![target.clone()],
        None => all_targets()?,
    };
    let mut clean = true;
    for target in targets {
        let mut fuzz = Command::new("cargo");
        fuzz.current_dir(root()).args(["+nightly", "fuzz"]);
        if args.build {
            fuzz.args(["build", &target]);
        } else {
            let limit = format!("-max_total_time={}", args.seconds);
            fuzz.args(["run", &target, "--", &limit, "-rss_limit_mb=2048", "-timeout=10"]);
        }
        eprintln!("== fuzz {target}");
        clean &= fuzz.status().context("cannot start cargo fuzz")?.success();
    }
    Ok(clean)
}

fn all_targets() -> Result<Vec<String>> {
    let folder = root().join("fuzz/fuzz_targets");
    let mut targets: Vec<String> = std::fs::read_dir(&folder)
        .with_context(|| folder.display().to_string())?
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter_map(|name| name.strip_suffix(".rs").map(str::to_owned))
        .collect();
    targets.sort();
    Ok(targets)
}
