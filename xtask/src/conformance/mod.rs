//! `cargo xtask conformance`: the peers' own suites, run by their own runner, on a real control plane, or on the
//! sandbox, with Kiln as the engine.
//!
//! ```text
//! suite (tests, lists in conformance/) ─▶ queue ─▶ shard (control plane, engine) ─▶ trial (chainsaw, one test) ─▶ report
//! ```
//!
//! Tests share names of objects, so each shard has a control plane of its own and is cleaned between tests.
//! A test is credited only when it fails with the engine off: what passes without an engine proves nothing.
//! The list of known failures only shrinks: a new failure is an error, and so is an unexpected pass.

mod report;
mod shard;
mod suite;
mod trial;

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use kiln_testkit::{RECORDED_CASES, control_plane};
use regex::Regex;

use crate::root;
use report::Report;
use shard::Shard;
use suite::Lists;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Run only this suite, such as generate
    suite: Option<String>,
    /// Run only tests whose path matches this regular expression
    #[arg(long, value_name = "REGEX")]
    filter: Option<Regex>,
    /// Where the suites are, if not among the recorded cases
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Go on with a run that was interrupted: tests that its report has are not run again
    #[arg(long)]
    resume: bool,
    /// How many tests run at once, each with a control plane and an engine of its own
    #[arg(long, value_name = "NUMBER", default_value_t = 2)]
    shards: usize,
    /// Run without an engine, and record what passes all the same in conformance/passes-without-engine.txt
    #[arg(long)]
    engine_off: bool,
    /// Run only the tests of conformance/quick.txt
    #[arg(long)]
    quick: bool,
    /// What the tests run on
    #[arg(long, value_enum, value_name = "WHAT", default_value_t = On::ControlPlane)]
    on: On,
    /// The engine, if it is not to be built from here
    #[arg(long, value_name = "FILE")]
    kiln: Option<PathBuf>,
    /// How many seconds a test may wait for something to become true
    #[arg(long, value_name = "SECONDS", default_value_t = 90)]
    patience: u64,
    /// What the engine logs
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    log: String,
}

/// What tests run on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum On {
    /// A real control plane
    ControlPlane,
    /// `kiln up`
    Sandbox,
}

/// How tests are run; the same for all of them.
struct Settings {
    on: On,
    chainsaw: PathBuf,
    /// The engine, and the sandbox.
    kiln: PathBuf,
    engine_off: bool,
    patience: Duration,
    log: String,
    /// A copy of the suites, because tests write beside their files.
    suites: tempfile::TempDir,
    /// Where logs of failed tests go.
    results: PathBuf,
}

/// Whether every test did what was expected of it.
pub(crate) fn run(args: &Args) -> Result<bool> {
    let source =
        args.dir.clone().unwrap_or_else(|| kiln_testkit::corpus_directory().join("chainsaw"));
    if !source.is_dir() {
        kiln_testkit::skip_named("conformance suites", RECORDED_CASES.0, RECORDED_CASES.1);
        return Ok(true);
    }
    let (chainsaw, _) = match control_plane::chainsaw()
        .and_then(|chainsaw| Ok((chainsaw, control_plane::Binaries::find()?)))
    {
        Ok(found) => found,
        Err(why) => {
            let missing = format!("there is no control plane: {why}");
            kiln_testkit::skip_named("conformance suites", &missing, control_plane::HOW_TO_GET_IT);
            return Ok(true);
        }
    };
    let mut lists = Lists::read(&root().join("conformance"))?;
    if args.on == On::Sandbox {
        lists.add_sandbox_differences(&root().join("conformance"))?;
    }
    let tests: Vec<String> = suite::discover(&source)?
        .into_iter()
        .filter(|test| args.suite.as_ref().is_none_or(|suite| suite::suite_of(test) == suite))
        .filter(|test| args.filter.as_ref().is_none_or(|filter| filter.is_match(test)))
        .filter(|test| !args.quick || lists.quick.contains(test))
        .collect();
    if tests.is_empty() {
        bail!("no test is left to run in {}", source.display());
    }
    let name = args.suite.clone().unwrap_or_else(|| "all".to_owned());
    let name = if args.quick { "quick".to_owned() } else { name };
    let name = if args.engine_off { format!("{name}-engine-off") } else { name };
    let name = if args.on == On::Sandbox { format!("{name}-sandbox") } else { name };
    let results = root().join("target/conformance");
    std::fs::create_dir_all(&results)?;
    let report = Report::open(results.join(format!("{name}.json")), args.resume)?;
    let waiting: VecDeque<String> = tests
        .iter()
        .filter(|test| !lists.needs_nodes.contains_key(*test) && !report.has(test))
        .cloned()
        .collect();
    let settings = Settings {
        on: args.on,
        chainsaw,
        kiln: args.kiln.clone().map_or_else(build_engine, Ok)?,
        engine_off: args.engine_off,
        patience: Duration::from_secs(if args.engine_off { 3 } else { args.patience }),
        log: args.log.clone(),
        suites: suite::copy(&source)?,
        results: results.join(&name),
    };
    let shards = args.shards.clamp(1, waiting.len().max(1));
    let waiting = Mutex::new(waiting);
    let report = Mutex::new(report);
    std::thread::scope(|scope| -> Result<()> {
        let (settings, waiting, report) = (&settings, &waiting, &report);
        let workers: Vec<_> = (0..shards)
            .map(|number| scope.spawn(move || work(number, settings, waiting, report)))
            .collect();
        workers.into_iter().try_for_each(|worker| worker.join().expect("a shard does not panic"))
    })?;
    let report = report.into_inner().expect("no shard panicked");
    if args.engine_off {
        return report
            .record_engine_off(&root().join("conformance"), &lists, &tests)
            .map(|()| true);
    }
    report.conclude(&lists, &tests)
}

/// Takes tests from the queue until it is empty.
fn work(
    number: usize,
    settings: &Settings,
    waiting: &Mutex<VecDeque<String>>,
    report: &Mutex<Report>,
) -> Result<()> {
    let mut shard = Shard::start(number, settings)?;
    loop {
        let Some(test) = waiting.lock().expect("no shard panics").pop_front() else {
            return Ok(());
        };
        let outcome = shard.try_test(settings, &test)?;
        let left = waiting.lock().expect("no shard panics").len();
        report.lock().expect("no shard panics").add(&test, outcome, left)?;
    }
}

fn build_engine() -> Result<PathBuf> {
    let status = Command::new("cargo")
        .args(["build", "--quiet", "--package", "kiln"])
        .current_dir(root())
        .status()
        .context("cannot start cargo")?;
    if !status.success() {
        bail!("the engine does not build");
    }
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
    Ok(target.join("debug/kiln"))
}

/// Runs a command to its end; the error holds what it printed.
fn must(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("cannot start {command:?}"))?;
    if !output.status.success() {
        bail!("{command:?}: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn join(directory: &Path, test: &str) -> PathBuf {
    directory.join(test.replace('/', "~"))
}
