//! Benches of our libraries beside other libraries: the programs under `benches`.
//!
//! A program lists its workloads with `--list` (one JSON object a line: workload, who, version, and
//! whether instructions are to be counted), and `WORKLOAD WHO` runs one and prints one JSON object:
//! `seconds` for the work itself without set-up, `live_bytes` where memory is the question,
//! `check` for a result that every contender must agree on.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::report::Report;
use super::{instructions, repeat};
use crate::root;

/// A bench program.
pub(crate) enum Program {
    /// A directory below `benches` and the name of a binary in it.
    Rust(&'static str, &'static str),
    /// A directory below `benches`, which is also the name of its binary and of the peer in it.
    Go(&'static str),
}

/// What each workload comes to, as the first contender has it.
type Checks = Vec<(String, String)>;

/// Builds the programs, whose contenders compete with each other, and runs all their workloads.
pub(crate) fn measure(programs: &[Program], report: &mut Report, runs: usize) -> Result<()> {
    let mut checks = Checks::new();
    for program in programs {
        match program {
            Program::Rust(directory, name) => {
                compete(&build(directory, name)?, &mut checks, report, runs)?;
            }
            Program::Go(name) => match build_go(name)? {
                Some(binary) => compete(&binary, &mut checks, report, runs)?,
                None => report.note(&format!("Go is not installed: {name} is missing")),
            },
        }
    }
    Ok(())
}

/// Runs all workloads of one program.
fn compete(binary: &Path, checks: &mut Checks, report: &mut Report, runs: usize) -> Result<()> {
    for line in output(Command::new(binary).arg("--list"))?.lines() {
        let entry: Value = serde_json::from_str(line).with_context(|| line.to_owned())?;
        let text = |name: &str| entry[name].as_str().unwrap_or_default().to_owned();
        let (workload, who, version) = (text("workload"), text("who"), text("version"));
        report.contender(&who, &version);
        let mut command = Command::new(binary);
        command.args([&workload, &who]);
        for _ in 0..runs {
            let figures: Value = serde_json::from_str(&output(&mut command)?)?;
            for (field, measure) in [("seconds", "time"), ("live_bytes", "live memory")] {
                if let Some(figure) = figures[field].as_f64() {
                    report.figure(&workload, measure, &who, figure);
                }
            }
            if let Some(check) = figures["check"].as_str() {
                match checks.iter().find(|(of, _)| *of == workload) {
                    Some((_, agreed)) if agreed != check => {
                        bail!("{workload}: {who} comes to another result: {check} and not {agreed}")
                    }
                    Some(_) => {}
                    None => checks.push((workload.clone(), check.to_owned())),
                }
            }
        }
        if entry["peak"].as_bool() == Some(true) {
            for usage in repeat(&command, runs)? {
                report.process(&workload, &who, usage);
            }
        }
        if entry["instructions"].as_bool() == Some(true) {
            match instructions(&command) {
                Some(count) => report.figure(&workload, "instructions", &who, count),
                None => report.note("valgrind is not installed: no instruction counts"),
            }
        }
    }
    Ok(())
}

fn build(directory: &str, program: &str) -> Result<PathBuf> {
    let directory = root().join("benches").join(directory);
    let built = Command::new("cargo")
        .args(["build", "--release", "--quiet", "--bin", program])
        .env_remove("CARGO_TARGET_DIR")
        .current_dir(&directory)
        .status()
        .context("cannot start cargo")?;
    if !built.success() {
        bail!("the bench program {program} does not build");
    }
    Ok(directory.join("target/release").join(program))
}

/// The binary, or nothing where Go is not installed.
fn build_go(program: &str) -> Result<Option<PathBuf>> {
    let directory = root().join("benches").join(program);
    let binary = directory.join("target").join(program);
    let built = Command::new("go")
        .args(["build", "-o"])
        .arg(&binary)
        .arg(".")
        .current_dir(&directory)
        .status();
    match built {
        Ok(status) if status.success() => Ok(Some(binary)),
        Ok(_) => bail!("the bench program {program} does not build"),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).context("cannot start go"),
    }
}

fn output(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("cannot start {command:?}"))?;
    if !output.status.success() {
        bail!("{command:?} failed:\n{}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8(output.stdout)?)
}
