//! `cargo xtask test`: everything that must hold before a change lands.
//!
//! ```text
//! formatting ─▶ build and lints ─┬─▶ the README's main command (a release build)
//!                                ├─▶ tests, program by program ─▶ documentation tests
//!                                ├─▶ stories in a browser
//! servers (Go, beside the build) ┴─▶ live tests ─▶ conformance
//!   └─▶ runner of the suites (Go) ───────────────────┘
//! ```
//!
//! Lints and tests share one build: Clippy's driver compiles the workspace, and what it compiled is then run. Live
//! tests and conformance mostly wait for other processes, so they run beside what needs the processors. The closing lines tell the
//! minutes per stage, what was skipped and why, how many recorded cases passed, and the sum over everything.

mod build;
mod programs;
mod sum;

use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError, mpsc};
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
const SUITE_RUNNER: &str = "runner of the suites, beside the tests";
const CONFORMANCE: &str = "conformance, a chosen part";
const STORIES: &str = "stories in a browser";
const MAIN_COMMAND: &str = "the README's main command";
const STAGES: [&str; 10] = [
    FORMATTING,
    BUILD,
    SERVERS,
    SUITE_RUNNER,
    TESTS,
    DOCUMENTATION,
    LIVE,
    CONFORMANCE,
    STORIES,
    MAIN_COMMAND,
];

/// Live tests have deadlines, so they come first; then what others wait for; last the others.
const LIVE_PRIORITY: u8 = 0;
const TEST_PRIORITY: u8 = 5;
const SERVERS_PRIORITY: u8 = 5;
const SUITE_RUNNER_PRIORITY: u8 = 15;
const MAIN_COMMAND_PRIORITY: u8 = 15;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Run only the stages whose name contains this text; what they need is built in any case
    #[arg(long)]
    stage: Option<String>,
}

/// Whether every stage succeeded.
pub(crate) fn run(args: &Args) -> Result<bool> {
    let run = Run { only: args.stage.clone(), sum: Mutex::default(), xtask: xtask()? };
    if !STAGES.into_iter().any(|stage| run.wants(stage)) {
        bail!("no stage has that in its name; there are: {}", STAGES.join(", "));
    }
    let main_command = readme::main_command()?;
    run.stage(FORMATTING, || build::formatting(&run));
    thread::scope(|scope| {
        // Nothing is sent: what waits at the receiving end goes on when the sending end is dropped.
        let (built, servers) = mpsc::channel::<()>();
        let (runner_built, runner) = mpsc::channel::<()>();
        let run = &run;
        scope.spawn(move || {
            let need_them = [SERVERS, TESTS, LIVE, CONFORMANCE];
            if need_them.into_iter().any(|stage| run.wants(stage)) {
                run.always(SERVERS, || run.xtask(SERVERS_PRIORITY, &["servers"]));
            }
            drop(built);
            if run.wants(SUITE_RUNNER) || run.wants(CONFORMANCE) {
                run.always(SUITE_RUNNER, || run.xtask(SUITE_RUNNER_PRIORITY, &["suite-runner"]));
            }
            drop(runner_built);
        });
        let need_it = [BUILD, TESTS, LIVE, CONFORMANCE, DOCUMENTATION, STORIES];
        if need_it.into_iter().any(|stage| run.wants(stage)) {
            match build::build(run) {
                // Nothing can run: the sum tells of the build.
                None => return,
                Some(built) => {
                    let (live, others): (Vec<Program>, Vec<Program>) =
                        built.programs.into_iter().partition(Program::is_live);
                    let kiln = built.kiln;
                    let shown = kiln.clone();
                    scope.spawn(move || {
                        let stories = ["web", "--stories", "--kiln", &shown];
                        run.stage(STORIES, || run.xtask(TEST_PRIORITY, &stories));
                    });
                    scope.spawn(move || {
                        let _ = servers.recv();
                        run.stage(LIVE, || programs::run(LIVE_PRIORITY, &live));
                        let _ = runner.recv();
                        run.stage(CONFORMANCE, || {
                            run.xtask(LIVE_PRIORITY, &["conformance", "--quick", "--kiln", &kiln])
                        });
                    });
                    scope.spawn(move || {
                        run.stage(TESTS, || programs::run(TEST_PRIORITY, &others));
                        run.stage(DOCUMENTATION, build::documentation_tests);
                    });
                }
            }
        }
        run.stage(MAIN_COMMAND, || collect(&mut nice(MAIN_COMMAND_PRIORITY, &main_command)));
    });
    Ok(run.sum().report())
}

/// One run of the command: what it was asked for, and what it has counted so far.
struct Run {
    only: Option<String>,
    sum: Mutex<Sum>,
    /// This program; asked for at the beginning, because the build replaces its file.
    xtask: String,
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
        if self.wants(stage) {
            self.always(stage, run);
        }
    }

    /// Runs a stage, wanted or needed by another, and counts what it printed.
    fn always(&self, stage: &str, run: impl FnOnce() -> Result<Finished>) {
        eprintln!("== {stage}: begins");
        let begin = Instant::now();
        let finished = run().unwrap_or_else(|error| Finished::failed(format!("error: {error:#}")));
        self.sum().add(stage, begin.elapsed(), &finished);
        let verdict = if finished.success { "ok" } else { "FAILED" };
        eprintln!("== {stage}: {verdict}");
    }

    /// Another command of this program.
    fn xtask(&self, priority: u8, arguments: &[&str]) -> Result<Finished> {
        collect(&mut nice(priority, &[&[self.xtask.as_str()], arguments].concat()))
    }
}

/// This program.
fn xtask() -> Result<String> {
    Ok(std::env::current_exe()?.display().to_string())
}

/// A command in the project's directory that leaves the processors to those before it; 0 is first.
fn nice(priority: u8, command: &[impl AsRef<str>]) -> Command {
    let mut nice = Command::new("nice");
    nice.arg("-n").arg(priority.to_string()).current_dir(root());
    nice.args(command.iter().map(AsRef::as_ref));
    nice
}
