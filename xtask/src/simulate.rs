//! `cargo xtask simulate`: stories with faults, by seed, on worlds and on the small cluster of the controller's tests.

use std::process::Command;

use anyhow::Result;

use crate::process::stream;
use crate::root;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// How many seeds to run
    #[arg(long, value_name = "NUMBER", default_value_t = 200)]
    seeds: u64,

    /// Run one seed and tell its story
    #[arg(long, value_name = "NUMBER", conflicts_with = "seeds")]
    seed: Option<u64>,
}

/// The tests that tell stories: the whole process on a world, the controller alone on a small cluster.
const STORIES: [(&str, &str); 2] = [("world", "simulation::"), ("controller", "convergence::")];

/// Whether every story ended well.
pub(crate) fn run(args: &Args) -> Result<bool> {
    let mut good = true;
    for (test, name) in STORIES {
        let mut command = Command::new("cargo");
        command.args(["test", "--workspace", "--test", test, "--", name, "--nocapture"]);
        match args.seed {
            Some(seed) => command.env("KILN_SEED", seed.to_string()),
            None => command.env("KILN_SEEDS", args.seeds.to_string()),
        };
        command.current_dir(root());
        good &= stream(&mut command)?.success;
    }
    Ok(good)
}
