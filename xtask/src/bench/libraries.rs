//! Benches of our libraries beside other crates: the programs under `benches/libraries`.
//!
//! A program lists its workloads with `--list` (one JSON object a line: workload, who, version, and
//! whether instructions are to be counted), and `WORKLOAD WHO` runs one and prints one JSON object:
//! `seconds` for the work itself without set-up, `live_bytes` where memory is the question,
//! `check` for a result that every contender must agree on.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::report::Report;
use super::{instructions, repeat};
use crate::root;

/// Builds the program of this name and runs all its workloads.
pub(crate) fn measure(program: &str, report: &mut Report, runs: usize) -> Result<()> {
    let binary = build(program)?;
    let mut checks: Vec<(String, String)> = Vec::new();
    for line in output(Command::new(&binary).arg("--list"))?.lines() {
        let entry: Value = serde_json::from_str(line).with_context(|| line.to_owned())?;
        let text = |name: &str| entry[name].as_str().unwrap_or_default().to_owned();
        let (workload, who, version) = (text("workload"), text("who"), text("version"));
        report.contender(&who, &version);
        let mut command = Command::new(&binary);
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

fn build(program: &str) -> Result<PathBuf> {
    let folder = root().join("benches/libraries");
    let built = Command::new("cargo")
        .args(["build", "--release", "--quiet", "--bin", program])
        .env_remove("CARGO_TARGET_DIR")
        .current_dir(&folder)
        .status()
        .context("cannot start cargo")?;
    if !built.success() {
        bail!("the bench program {program} does not build");
    }
    Ok(folder.join("target/release").join(program))
}

fn output(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("cannot start {command:?}"))?;
    if !output.status.success() {
        bail!("{command:?} failed:\n{}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8(output.stdout)?)
}
