//! What one command uses: wall time, processor time, peak memory.
//!
//! The kernel keeps these figures per group of children, so each measurement runs in a process of
//! its own: `cargo xtask measure -- COMMAND…`, which the bench harness starts.

use std::ffi::OsStr;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use nix::sys::resource::{UsageWho, getrusage};
use serde_json::json;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Keep what the command prints in this file
    #[arg(long)]
    keep: Option<PathBuf>,
    /// Exit code 1 is an answer too: a check that fails
    #[arg(long)]
    may_be_negative: bool,
    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<String>,
}

/// What a command used.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Usage {
    pub(crate) wall_seconds: f64,
    pub(crate) cpu_seconds: f64,
    pub(crate) peak_bytes: u64,
}

/// Runs the command and prints its usage; its output goes to a file, or nowhere.
pub(crate) fn run(args: &Args) -> Result<()> {
    let begin = Instant::now();
    let status = Command::new(&args.command[0])
        .args(&args.command[1..])
        .stdin(Stdio::null())
        .stdout(match &args.keep {
            None => Stdio::null(),
            Some(path) => File::create(path).with_context(|| path.display().to_string())?.into(),
        })
        .status()
        .with_context(|| format!("cannot start {}", args.command[0]))?;
    let wall = begin.elapsed();
    let is_negative = args.may_be_negative && status.code() == Some(1);
    if !status.success() && !is_negative {
        bail!("{} ended with {status}", args.command.join(" "));
    }
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).context("cannot read resource usage")?;
    let seconds = |t: nix::sys::time::TimeVal| t.tv_sec() as f64 + t.tv_usec() as f64 / 1e6;
    println_json(&json!({
        "wall": wall.as_secs_f64(),
        "cpu": seconds(usage.user_time()) + seconds(usage.system_time()),
        "peak": usage.max_rss() * 1024,
    }));
    Ok(())
}

#[expect(clippy::print_stdout, reason = "the figures are this command's output")]
fn println_json(value: &serde_json::Value) {
    println!("{value}");
}

/// Measures one run of a command in a process of its own.
pub(crate) fn usage_of(command: &Command) -> Result<Usage> {
    usage(command, &[])
}

/// The same for a command whose answer may be no.
pub(crate) fn usage_of_check(command: &Command) -> Result<Usage> {
    usage(command, &["--may-be-negative".as_ref()])
}

/// The same, with what the command prints kept in a file.
pub(crate) fn usage_keeping(command: &Command, keep: Option<&Path>) -> Result<Usage> {
    match keep {
        Some(path) => usage(command, &["--keep".as_ref(), path.as_os_str()]),
        None => usage(command, &[]),
    }
}

fn usage(command: &Command, options: &[&OsStr]) -> Result<Usage> {
    let mut measuring = Command::new(std::env::current_exe().context("cannot find this program")?);
    measuring.arg("measure").args(options);
    measuring.arg("--").arg(command.get_program()).args(command.get_args());
    if let Some(directory) = command.get_current_dir() {
        measuring.current_dir(directory);
    }
    let output = measuring.output().with_context(|| format!("cannot measure {command:?}"))?;
    if !output.status.success() {
        bail!("{command:?} failed:\n{}", String::from_utf8_lossy(&output.stderr));
    }
    let figures: serde_json::Value =
        serde_json::from_slice(&output.stdout).context("unreadable figures")?;
    let figure = |name: &str| figures[name].as_f64().unwrap_or_default();
    Ok(Usage {
        wall_seconds: figure("wall"),
        cpu_seconds: figure("cpu"),
        peak_bytes: figure("peak") as u64,
    })
}
