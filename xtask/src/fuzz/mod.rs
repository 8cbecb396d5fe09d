//! `cargo xtask fuzz`: every fuzz target, for a bounded time.

mod run;
mod seeds;

use std::collections::VecDeque;
use std::process::Command;
use std::sync::Mutex;
use std::thread;

use anyhow::{Context, Result, bail};

use crate::root;

/// No address sanitizer: no crate here has unsafe code, and without it targets try twice as much in
/// the same time and use the stack as the shipped binary does.
const SANITIZER: &str = "--sanitizer=none";

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Run only this target
    target: Option<String>,
    /// How long each target runs
    #[arg(long, default_value_t = 30)]
    seconds: u32,
    /// How many targets run side by side
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    jobs: u32,
    /// Only build the targets
    #[arg(long)]
    build: bool,
}

/// Whether no target found anything.
#[expect(clippy::print_stdout, reason = "the table is this command's output")]
pub(crate) fn run(args: &Args) -> Result<bool> {
    let available = Command::new("cargo").args(["+nightly", "fuzz", "--version"]).output();
    if !available.is_ok_and(|output| output.status.success()) {
        bail!(
            "fuzzing needs a nightly toolchain and cargo-fuzz: rustup toolchain install nightly && cargo install cargo-fuzz"
        );
    }
    let mut targets = all_targets()?;
    if let Some(wanted) = &args.target {
        if !targets.contains(wanted) {
            bail!("no fuzz target is named {wanted:?}; there are {}", targets.join(", "));
        }
        targets.retain(|target| target == wanted);
    }
    // All of them before the first one runs: a target that runs beside a build is slower, and its time is counted.
    let built = Command::new("cargo")
        .current_dir(root())
        .args(["+nightly", "fuzz", "build", SANITIZER])
        .args(&args.target)
        .status()
        .context("cannot start cargo fuzz")?;
    if !built.success() {
        bail!("the fuzz targets do not build");
    }
    if args.build {
        return Ok(true);
    }
    let results = run_all(&targets, args)?;
    print!("{}", run::table(&results));
    Ok(results.iter().all(run::FuzzOutcome::clean))
}

fn run_all(targets: &[String], args: &Args) -> Result<Vec<run::FuzzOutcome>> {
    let waiting: Mutex<VecDeque<(usize, &String)>> =
        Mutex::new(targets.iter().enumerate().collect());
    let mut results = thread::scope(|scope| {
        let workers: Vec<_> = (0..args.jobs)
            .map(|_| {
                scope.spawn(|| {
                    let mut done = Vec::new();
                    while let Some((place, target)) =
                        waiting.lock().ok().and_then(|mut queue| queue.pop_front())
                    {
                        let planted = seeds::plant(target)?;
                        if planted > 0 {
                            eprintln!("== {target}: {planted} seeds");
                        }
                        eprintln!("== {target}: runs for {} s", args.seconds);
                        let outcome = run::run(target, args.seconds)?;
                        eprintln!("== {target}: {}", outcome.status);
                        done.push((place, outcome));
                    }
                    Ok(done)
                })
            })
            .collect();
        let mut all = Vec::new();
        for worker in workers {
            let done: Result<Vec<_>> =
                worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            all.extend(done?);
        }
        anyhow::Ok(all)
    })?;
    results.sort_by_key(|(place, _)| *place);
    Ok(results.into_iter().map(|(_, outcome)| outcome).collect())
}

fn all_targets() -> Result<Vec<String>> {
    let directory = root().join("fuzz/fuzz_targets");
    let mut targets: Vec<String> = std::fs::read_dir(&directory)
        .with_context(|| directory.display().to_string())?
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter_map(|name| name.strip_suffix(".rs").map(str::to_owned))
        .collect();
    targets.sort();
    Ok(targets)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A finding is guarded by the tests of a crate only if one of them replays the target's inputs.
    #[test]
    fn every_target_is_built_and_replayed() {
        let read = |path: &std::path::Path| std::fs::read_to_string(path).unwrap_or_default();
        let manifest = read(&root().join("fuzz/Cargo.toml"));
        let replays: String = std::fs::read_dir(root().join("crates"))
            .expect("the crates")
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .flat_map(|name| {
                let tests = root().join(format!("crates/{name}/tests/{name}"));
                ["", "hostile"].map(|group| read(&tests.join(group).join("fuzz_regressions.rs")))
            })
            .collect();
        let targets = all_targets().expect("the targets");
        for target in &targets {
            assert!(
                manifest.contains(&format!("name = \"{target}\"")),
                "fuzz/Cargo.toml lacks {target}"
            );
            let call = format!("replay(\"{target}\", {target}::check)");
            assert!(replays.contains(&call), "no crate's fuzz_regressions.rs has {call}");
        }
        for directory in std::fs::read_dir(root().join("fuzz/regressions")).into_iter().flatten() {
            let name = directory.expect("the directory can be read").file_name();
            let name = name.to_string_lossy().into_owned();
            assert!(targets.contains(&name), "fuzz/regressions/{name} belongs to no target");
        }
    }
}
