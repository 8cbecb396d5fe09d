//! The one build that lints and tests share.

use std::process::Command;

use anyhow::{Result, ensure};
use serde_json::Value;

use super::programs::Program;
use super::{BUILD, Run};
use crate::cargo::{LINTS, answers, cargo, cargo_with_lints};
use crate::process::{Finished, collect, each_line};

pub(super) fn formatting(run: &Run) -> Result<Finished> {
    if !answers("rustfmt") {
        return run.sum().skip_stage(
            "formatting",
            "rustfmt is not there",
            "rustup component add rustfmt",
        );
    }
    collect(cargo().args(["fmt", "--all", "--check"]))
}

/// What a build made.
pub(super) struct Built {
    /// The command `kiln`.
    pub(super) kiln: String,
    pub(super) programs: Vec<Program>,
}

/// Builds everything with all lints; none if it does not compile. A warning of the workspace is a failure.
pub(super) fn build(run: &Run) -> Option<Built> {
    let mut built = None;
    run.always(BUILD, || {
        let mut command = cargo_with_lints();
        // Programs as they run and as their tests need them; `cargo test` would build the latter only.
        command.args(["build", "--workspace", "--all-targets"]);
        let mut lints = Finished::nothing();
        if !answers(LINTS.1) {
            lints = run.sum().skip_stage(
                "lints",
                "Clippy is not there",
                "rustup component add clippy",
            )?;
        }
        let made = messages(&mut command)?;
        ensure!(made.compiled, "the workspace does not compile");
        ensure!(!made.kiln.is_empty(), "cargo does not say where the command kiln is");
        ensure!(made.programs.iter().any(Program::is_live), "there are no live tests");
        let warnings = made.warnings;
        if warnings > 0 {
            eprintln!("{warnings} warnings, and there may be none");
        }
        built = Some(Built { kiln: made.kiln, programs: made.programs });
        Ok(Finished { success: warnings == 0 && lints.success, lines: lints.lines })
    });
    built
}

/// What cargo said while it compiled.
#[derive(Default)]
struct Messages {
    compiled: bool,
    warnings: usize,
    kiln: String,
    programs: Vec<Program>,
}

/// Runs a command of cargo's, shows what it says to people and keeps what it says to programs.
fn messages(command: &mut Command) -> Result<Messages> {
    command.arg("--message-format=json");
    let mut messages = Messages::default();
    let finished = each_line(command, |line| {
        let Ok(message) = serde_json::from_str::<Value>(line) else { return true };
        messages.programs.extend(Program::from_message(&message));
        if let Some(kiln) = kiln(&message) {
            messages.kiln = kiln;
        }
        if let Some(rendered) = message.pointer("/message/rendered").and_then(Value::as_str) {
            eprint!("{rendered}");
            let level = message.pointer("/message/level").and_then(Value::as_str);
            messages.warnings += usize::from(level == Some("warning"));
        }
        false
    })?;
    messages.compiled = finished.success;
    messages.programs.sort();
    Ok(messages)
}

/// The path of the command `kiln`, if a message of cargo's is about it.
fn kiln(message: &Value) -> Option<String> {
    let is_command = message.pointer("/target/name")? == "kiln"
        && message.pointer("/target/kind/0")? == "bin"
        && message.pointer("/profile/test")? == false;
    is_command.then(|| message.get("executable")?.as_str().map(str::to_owned)).flatten()
}

pub(super) fn documentation_tests() -> Result<Finished> {
    collect(cargo_with_lints().args(["test", "--workspace", "--doc", "--no-fail-fast"]))
}
