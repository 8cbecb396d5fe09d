//! `cargo xtask test`: everything that must hold before a change lands.
//!
//! ```text
//! formatting ─▶ build and lints ─┬─▶ tests, program by program ─▶ documentation tests
//!                                ├─▶ the README's main command (a release build)
//! servers (Go, beside the build) ┴─▶ live tests ─▶ conformance
//! ```
//!
//! Lints and tests share one build: Clippy's driver compiles the workspace, and what it compiled is then run. Live
//! tests mostly wait for other processes, so they run beside what needs the processors. The closing lines tell the
//! minutes per stage, what was skipped and why, how many recorded cases passed, and the sum over everything.

mod build;
mod programs;
mod sum;

use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Instant;

use anyhow::{Result, bail};

use crate::process::{Finished, collect};
use crate::{readme, root};
use programs::Program;
use sum::Sum;

const FORMATTING: &str = "formatting";
const BUILD: &str = "build and lints";
const SERVERS: &str = "servers for live tests, beside the build";
const TESTS: &str = "unit and integration tests";
const DOCUMENTATION: &str = "documentation tests";
const LIVE: &str = "live tests";
const CONFORMANCE: &str = "conformance, a chosen part";
const MAIN_COMMAND: &str = "the README's main command";
const STAGES: [&str; 8] =
    [FORMATTING, BUILD, SERVERS, TESTS, DOCUMENTATION, LIVE, CONFORMANCE, MAIN_COMMAND];

/// Live tests have deadlines, so they come first; then tests that only compute; then compilers.
const LIVE_PRIORITY: u8 = 0;
const TEST_PRIORITY: u8 = 5;
const COMPILER_PRIORITY: u8 = 10;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Run only the stages whose name contains this text; what they need is built in any case
    #[arg(long)]
    stage: Option<String>,
}

/// Whether every stage succeeded.
pub(crate) fn run(args: &Args) -> Result<bool> {
    let run = Run { only: args.stage.clone(), sum: Mutex::default() };
    if !STAGES.into_iter().any(|stage| run.wants(stage)) {
        bail!("no stage has that in its name; there are: {}", STAGES.join(", "));
    }
    let main_command = readme::main_command()?;
    run.stage(FORMATTING, || build::formatting(&run));
    thread::scope(|scope| -> Result<()> {
        let servers = scope.spawn(|| {
            if [TESTS, LIVE, CONFORMANCE].into_iter().any(|stage| run.wants(stage)) {
                run.stage(SERVERS, || {
                    collect(&mut nice(COMPILER_PRIORITY, &[&xtask()?, "servers"]))
                });
            }
        });
        if [BUILD, TESTS, LIVE, CONFORMANCE, DOCUMENTATION]
            .into_iter()
            .all(|stage| !run.wants(stage))
        {
            run.stage(MAIN_COMMAND, || collect(&mut nice(0, &main_command)));
            return Ok(());
        }
        let built = build::build(&run)?;
        let (live, others): (Vec<Program>, Vec<Program>) =
            built.programs.into_iter().partition(Program::is_live);
        scope.spawn(|| {
            run.stage(MAIN_COMMAND, || collect(&mut nice(COMPILER_PRIORITY, &main_command)));
        });
        let (run, kiln) = (&run, built.kiln);
        scope.spawn(move || {
            let _ = servers.join();
            run.stage(LIVE, || programs::run(LIVE_PRIORITY, &live));
            run.stage(CONFORMANCE, || {
                let arguments = [&xtask()?, "conformance", "--quick", "--kiln", &kiln];
                collect(&mut nice(LIVE_PRIORITY, &arguments))
            });
        });
        run.stage(TESTS, || programs::run(TEST_PRIORITY, &others));
        run.stage(DOCUMENTATION, || collect(&mut build::documentation_tests()));
        Ok(())
    })?;
    Ok(run.sum().report())
}

/// One run of the command: what it was asked for, and what it has counted so far.
struct Run {
    only: Option<String>,
    sum: Mutex<Sum>,
}

impl Run {
    fn wants(&self, stage: &str) -> bool {
        self.only.as_ref().is_none_or(|text| stage.contains(text.as_str()))
    }

    fn sum(&self) -> MutexGuard<'_, Sum> {
        self.sum.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs a stage if it is wanted, and counts what it printed.
    fn stage(&self, stage: &str, run: impl FnOnce() -> Result<Finished>) {
        if !self.wants(stage) {
            return;
        }
        eprintln!("== {stage}: begins");
        let begin = Instant::now();
        let finished = run().unwrap_or_else(|error| Finished::failed(format!("error: {error:#}")));
        self.sum().add(stage, begin.elapsed(), &finished);
        let verdict = if finished.success { "ok" } else { "FAILED" };
        eprintln!("== {stage}: {verdict}");
    }
}

/// This program.
fn xtask() -> Result<String> {
    Ok(std::env::current_exe()?.display().to_string())
}

/// A command in the project's folder that leaves the processors to those before it; 0 is first.
fn nice(priority: u8, command: &[impl AsRef<str>]) -> Command {
    let mut nice = Command::new("nice");
    nice.arg("-n").arg(priority.to_string()).current_dir(root());
    nice.args(command.iter().map(AsRef::as_ref));
    nice
}
