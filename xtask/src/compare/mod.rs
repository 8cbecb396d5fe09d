//! `cargo xtask compare`: random input through Kiln and through an original.
//!
//! Cases are made from a seed, so that a run can be had again. A case for which both do not give the same is made as
//! small as it can be while they still differ, and printed with both results.

mod apiserver;
mod convert;
mod dice;
mod kustomize;
mod kyverno;
mod pattern_errors;
mod patterns;
mod validate;

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;

use crate::root;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// What Kiln is compared with
    original: Original,
    /// How many cases
    #[arg(long, default_value_t = 3000)]
    cases: u64,
    /// The seed of the first case; the others have those after it
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// So many differences are made small and shown; of the others, the seeds
    #[arg(long, default_value_t = 10)]
    show: usize,
    /// The binary to compare with Kyverno's; it is built when left out
    #[arg(long)]
    kiln: Option<PathBuf>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Original {
    /// The sandbox's API server, with a real one
    Apiserver,
    Kustomize,
    /// Mutate and generate rules
    Kyverno,
    /// Patterns of validate rules
    KyvernoPatterns,
    /// Policies that check
    KyvernoValidate,
    /// Converted policies, and the figures of conversions
    Convert,
}

pub(crate) fn run(args: &Args) -> Result<bool> {
    match args.original {
        Original::Apiserver => apiserver::run(args),
        Original::Kustomize => kustomize::run(args),
        Original::Kyverno => kyverno::run(args.kiln.clone(), args.cases, args.seed, args.show),
        Original::KyvernoPatterns => patterns::run(args.cases, args.seed, args.show),
        Original::KyvernoValidate => validate::run(args),
        Original::Convert => convert::run(args),
    }
}

/// The binary, as it is built for tests.
fn kiln() -> Result<PathBuf> {
    let built = Command::new("cargo")
        .args(["build", "--workspace", "--bin", "kiln"])
        .current_dir(root())
        .status()
        .context("cannot start cargo")?;
    ensure!(built.success(), "kiln does not build");
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
    Ok(target.join("debug/kiln"))
}
