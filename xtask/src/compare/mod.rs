//! `cargo xtask compare`: random input through Kiln and through an original.
//!
//! Cases are made from a seed, so that a run can be had again. A case for which both do not give the same is made as
//! small as it can be while they still differ, and printed with both results.

mod kustomize;
mod kyverno;

use std::path::PathBuf;

use anyhow::Result;
use clap::ValueEnum;

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
    Kustomize,
    Kyverno,
}

pub(crate) fn run(args: &Args) -> Result<bool> {
    match args.original {
        Original::Kustomize => kustomize::run(args),
        Original::Kyverno => kyverno::run(args.kiln.clone(), args.cases, args.seed, args.show),
    }
}
