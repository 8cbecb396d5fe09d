//! One run of one target, and what libFuzzer said of it.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

use super::SANITIZER;
use crate::root;

/// How long one input may take before it counts as a finding, in seconds.
const INPUT_SECONDS: u32 = 10;
/// How much memory a target may hold before that counts as a finding.
const MEMORY_MB: u32 = 2048;
/// How much of what a failed target said is shown; the rest is in its log.
const SHOWN_LINES: usize = 30;

/// What a run of one target came to.
pub(super) struct FuzzOutcome {
    target: String,
    executions: u64,
    /// Edges covered by the corpus alone, and by everything that was tried.
    coverage: (u64, u64),
    new_units: u64,
    /// The inputs that failed, from the directory of the project.
    findings: Vec<String>,
    pub(super) status: String,
    success: bool,
}

impl FuzzOutcome {
    pub(super) fn clean(&self) -> bool {
        self.success && self.findings.is_empty()
    }
}

/// Runs a target for so many seconds. What it says goes to `fuzz/target/<target>.log`.
pub(super) fn run(target: &str, seconds: u32) -> Result<FuzzOutcome> {
    let finished = Command::new("cargo")
        .current_dir(root())
        .args(["+nightly", "fuzz", "run", SANITIZER, target, "--"])
        .arg(format!("-max_total_time={seconds}"))
        .arg(format!("-timeout={INPUT_SECONDS}"))
        .arg(format!("-rss_limit_mb={MEMORY_MB}"))
        .arg("-print_final_stats=1")
        .output()
        .context("cannot start cargo fuzz")?;
    let log = root().join(format!("fuzz/target/{target}.log"));
    std::fs::write(&log, &finished.stderr).with_context(|| log.display().to_string())?;
    let said = String::from_utf8_lossy(&finished.stderr);
    let outcome = read(target, &said, finished.status.success(), &finished.status.to_string());
    if !outcome.clean() {
        eprintln!("{}", cause(&said));
        eprintln!("== {target}: all of it in {}", log.display());
    }
    Ok(outcome)
}

/// What a failed target said from its failure on; where none is seen, its last lines.
fn cause(said: &str) -> String {
    let lines: Vec<&str> = said.lines().collect();
    let failure = |line: &&str| {
        line.contains("panicked at") || line.contains("ERROR: ") || line.starts_with("error: ")
    };
    let start =
        lines.iter().position(failure).unwrap_or_else(|| lines.len().saturating_sub(SHOWN_LINES));
    lines.into_iter().skip(start).take(SHOWN_LINES).collect::<Vec<_>>().join("\n")
}

/// Reads libFuzzer's lines: `#1024 INITED cov: 7 ft: 9 …`, `stat::new_units_added: 3`,
/// `…Test unit written to /…/artifacts/t/crash-0a1b`.
fn read(target: &str, said: &str, success: bool, exit: &str) -> FuzzOutcome {
    let mut outcome = FuzzOutcome {
        target: target.to_owned(),
        executions: 0,
        coverage: (0, 0),
        new_units: 0,
        findings: Vec::new(),
        status: String::new(),
        success,
    };
    for line in said.lines() {
        if let Some(runs) = line.strip_prefix('#').and_then(first_number) {
            outcome.executions = runs;
        }
        if let Some((_, rest)) = line.split_once(" cov: ") {
            outcome.coverage.1 = first_number(rest).unwrap_or(outcome.coverage.1);
            if line.contains("INITED") {
                outcome.coverage.0 = outcome.coverage.1;
            }
        } else if let Some(runs) = line.strip_prefix("stat::number_of_executed_units:") {
            outcome.executions = first_number(runs).unwrap_or(outcome.executions);
        } else if let Some(units) = line.strip_prefix("stat::new_units_added:") {
            outcome.new_units = first_number(units).unwrap_or_default();
        } else if let Some((_, path)) = line.split_once("Test unit written to ") {
            let path = PathBuf::from(path.trim());
            let path = path.strip_prefix(root()).unwrap_or(&path);
            outcome.findings.push(path.display().to_string());
        }
    }
    // libFuzzer keeps a slow input beside the findings without ending over it.
    if success {
        outcome.findings.retain(|path| !path.contains("/slow-unit-"));
    }
    outcome.status = match outcome.findings.last().map(|path| path.rsplit('/').next()) {
        Some(Some(name)) if name.starts_with("timeout-") => "took too long".to_owned(),
        Some(Some(name)) if name.starts_with("oom-") => "out of memory".to_owned(),
        Some(Some(name)) if name.starts_with("leak-") => "leaked".to_owned(),
        Some(_) => "crashed".to_owned(),
        None if success => "ok".to_owned(),
        None => format!("failed ({exit})"),
    };
    outcome
}

fn first_number(text: &str) -> Option<u64> {
    let text = text.trim_start();
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text[..end].parse().ok()
}

/// One row per target, columns aligned.
pub(super) fn table(outcomes: &[FuzzOutcome]) -> String {
    let header = ["target", "executions", "coverage", "new units", "status", "findings"];
    let mut rows = vec![header.map(str::to_owned)];
    rows.extend(outcomes.iter().map(|outcome| {
        [
            outcome.target.clone(),
            outcome.executions.to_string(),
            format!("{} -> {}", outcome.coverage.0, outcome.coverage.1),
            outcome.new_units.to_string(),
            outcome.status.clone(),
            outcome.findings.join(" "),
        ]
    }));
    let widths: [usize; 6] =
        std::array::from_fn(|column| rows.iter().map(|row| row[column].len()).max().unwrap_or(0));
    let mut text = String::new();
    for row in rows {
        let cells: Vec<String> =
            row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        text.push_str(cells.join("  ").trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quiet_run_is_read() {
        let said = "#12\tINITED cov: 300 ft: 400 corp: 10/1Kb exec/s: 0 rss: 40Mb\n\
                    #99\tNEW    cov: 310 ft: 420 corp: 11/1Kb lim: 4 exec/s: 0 rss: 40Mb\n\
                    #200\tDONE   cov: 310 ft: 420 corp: 11/1Kb exec/s: 9 rss: 41Mb\n\
                    stat::number_of_executed_units: 200\nstat::new_units_added:          1\n";
        let outcome = read("yaml_read", said, true, "exit status: 0");
        assert!(outcome.clean());
        let row = "yaml_read  200         300 -> 310  1          ok\n";
        assert!(table(&[outcome]).ends_with(row));
    }

    #[test]
    fn a_crash_names_its_input() {
        let said = "#12\tINITED cov: 300 ft: 400 corp: 10/1Kb exec/s: 0 rss: 40Mb\n\
                    artifact_prefix='./'; Test unit written to fuzz/artifacts/cel/timeout-1f\n";
        let outcome = read("cel", said, false, "exit status: 1");
        assert!(!outcome.clean());
        assert_eq!(outcome.findings, ["fuzz/artifacts/cel/timeout-1f"]);
        assert_eq!(outcome.status, "took too long");
    }

    #[test]
    fn a_target_that_ends_early_is_no_success() {
        let outcome = read("cel", "error: no such toolchain\n", false, "exit status: 101");
        assert!(!outcome.clean());
        assert_eq!(outcome.status, "failed (exit status: 101)");
    }

    #[test]
    fn a_failure_is_shown_from_where_it_begins() {
        let said = "INFO: seed\n#1 NEW\nthread panicked at a.rs:1\nMS: 1\n";
        assert_eq!(cause(said), "thread panicked at a.rs:1\nMS: 1");
        assert_eq!(cause("one\ntwo\n"), "one\ntwo");
    }
}
