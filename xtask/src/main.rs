//! Developer commands. `cargo xtask test` is the one that must pass.

mod accept;
mod bench;
mod beside_kyverno;
mod cargo;
mod chart;
mod cluster;
mod compare;
mod conformance;
mod dist;
mod docs;
mod faults;
mod fuzz;
mod git;
mod kubernetes;
mod measure;
mod process;
mod readme;
mod record;
mod test;
mod upgrade;
mod web;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};
use kiln_testkit::control_plane::{Binaries, chainsaw};

#[derive(Parser)]
#[command(
    name = "cargo xtask",
    about = "Everything a developer runs",
    disable_help_subcommand = true
)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Check formatting, lints and all tests, and run the README's main command
    Test(test::Args),
    /// Measure Kiln side by side with its peers and write BENCHMARKS.md
    Bench(bench::Args),
    /// Run the fuzz targets for a bounded time (needs a nightly toolchain)
    Fuzz(fuzz::Args),
    /// Start or stop a real Kubernetes control plane on loopback
    Cluster(cluster::Args),
    /// Install, upgrade, roll back and uninstall the Helm chart with the real Helm, and validate it
    Chart(chart::Args),
    /// Run the peers' conformance suites against Kiln, on a real control plane or on the sandbox
    Conformance(conformance::Args),
    /// Give random input to Kiln and to an original, and show where they differ
    Compare(compare::Args),
    /// Build the documentation site with mdBook, and check its links
    Docs(docs::Args),
    /// Build what is released: static binaries, archives, images, bills of materials, checksums
    Dist(dist::Args),
    /// Fill the tables of cases with what the originals make of them
    Record(record::Args),
    /// Write the tables of kinds and types, one for each version of Kubernetes
    Kubernetes(kubernetes::Args),
    /// Do to a running engine what networks, servers and people do, in the long form
    Faults(faults::Args),
    /// Build Kiln Studio, the web application; run its stories in a browser
    Web(web::Args),
    /// Run Kyverno's own controllers beside Kiln in a cluster that refuses Kyverno's old kinds
    BesideKyverno,
    /// Upgrade from an earlier version on a real control plane, with downstreams and requests
    Upgrade(upgrade::Args),
    /// Build the servers that live tests run on, if they are not there yet
    #[command(hide = true)]
    Servers,
    /// Build the runner of the conformance suites, if it is not there yet
    #[command(hide = true)]
    SuiteRunner,
    /// Let what the command line prints now be what transcripts, examples and documentation show
    Accept(accept::Args),
    /// Run one command and print what it used, as JSON
    #[command(hide = true)]
    Measure(measure::Args),
}

fn main() -> ExitCode {
    let outcome = match Args::parse().command {
        Command::Test(args) => test::run(&args),
        Command::Bench(args) => bench::run(&args).map(|()| true),
        Command::BesideKyverno => beside_kyverno::run(),
        Command::Fuzz(args) => fuzz::run(&args),
        Command::Cluster(args) => cluster::run(&args).map(|()| true),
        Command::Chart(args) => chart::run(&args),
        Command::Conformance(args) => conformance::run(&args),
        Command::Compare(args) => compare::run(&args),
        Command::Dist(args) => dist::run(&args),
        Command::Docs(args) => docs::run(&args),
        Command::Faults(args) => faults::run(&args),
        Command::Kubernetes(args) => kubernetes::run(&args),
        Command::Record(args) => record::run(&args).map(|()| true),
        Command::Upgrade(args) => upgrade::run(&args),
        Command::Web(args) => web::run(&args),
        Command::Servers => cluster::built("servers", Binaries::find().map(|_| ())),
        Command::SuiteRunner => cluster::built("runner of the suites", chainsaw().map(|_| ())),
        Command::Accept(args) => accept::run(&args),
        Command::Measure(args) => measure::run(&args).map(|()| true),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The directory for programs that are built once, for developers.
fn cache() -> Result<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    set("XDG_CACHE_HOME")
        .or_else(|| set("HOME").map(|home| home.join(".cache")))
        .map(|cache| cache.join("kiln"))
        .context("neither XDG_CACHE_HOME nor HOME says where a cache may be")
}

/// The directory of the project.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the project").to_owned()
}
