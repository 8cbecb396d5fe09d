//! The one build that lints and tests share.

use std::process::Command;

use anyhow::{Result, bail};
use serde_json::Value;

use super::programs::Program;
use super::{BUILD, Run};
use crate::process::{Finished, collect, each_line};
use crate::root;

/// Clippy's driver is the compiler for the workspace, so that its lints cost no second compilation.
const WRAPPER: (&str, &str) = ("RUSTC_WORKSPACE_WRAPPER", "clippy-driver");

pub(super) fn formatting(run: &Run) -> Result<Finished> {
    if !answers("rustfmt") {
        run.sum().skip("formatting: rustfmt is not there: rustup component add rustfmt");
        return Ok(Finished::nothing());
    }
    collect(cargo().args(["fmt", "--all", "--check"]))
}

/// What a build made.
pub(super) struct Built {
    /// The command `kiln`.
    pub(super) kiln: String,
    pub(super) programs: Vec<Program>,
}

/// Builds everything with all lints. A warning of the workspace is a failure.
pub(super) fn build(run: &Run) -> Result<Built> {
    let mut built = Built { kiln: String::new(), programs: Vec::new() };
    let mut compiled = true;
    let mut build = || {
        let mut command = cargo_with_lints();
        command.args(["test", "--workspace", "--all-targets", "--no-run"]);
        command.arg("--message-format=json-render-diagnostics");
        if !answers(WRAPPER.1) {
            run.sum().skip("lints: Clippy is not there: rustup component add clippy");
        }
        let mut warnings = 0;
        let finished = each_line(&mut command, |line| {
            // Cargo tells of programs in JSON on standard output, and people of the rest on standard error.
            let Ok(message) = serde_json::from_str::<Value>(line) else {
                warnings +=
                    usize::from(line.starts_with("warning: ") && !line.contains(" generated "));
                return true;
            };
            built.programs.extend(Program::from_message(&message));
            if let Some(kiln) = kiln(&message) {
                built.kiln = kiln;
            }
            false
        })?;
        compiled = finished.success;
        Ok(Finished { success: finished.success && warnings == 0, ..finished })
    };
    // Whatever is wanted, tests need it.
    if run.wants(BUILD) {
        run.stage(BUILD, build);
    } else {
        drop(build()?);
    }
    if !compiled {
        bail!("the workspace does not compile");
    }
    built.programs.sort();
    Ok(built)
}

/// The path of the command `kiln`, if a message of cargo's is about it.
fn kiln(message: &Value) -> Option<String> {
    let is_command = message.pointer("/target/name")? == "kiln"
        && message.pointer("/target/kind/0")? == "bin"
        && message.pointer("/profile/test")? == false;
    is_command.then(|| message.get("executable")?.as_str().map(str::to_owned)).flatten()
}

pub(super) fn documentation_tests() -> Command {
    let mut command = cargo_with_lints();
    command.args(["test", "--workspace", "--doc", "--no-fail-fast"]);
    command
}

/// The same compiler everywhere: another one would compile everything anew.
fn cargo_with_lints() -> Command {
    let mut command = cargo();
    if answers(WRAPPER.1) {
        command.env(WRAPPER.0, WRAPPER.1);
    }
    command
}

fn cargo() -> Command {
    let mut command = Command::new("cargo");
    command.current_dir(root());
    // A checkout that is built once has nothing from what is kept for the next build.
    if std::env::var_os("CI").is_some() {
        command.env("CARGO_INCREMENTAL", "0");
    }
    command
}

/// Whether a program of the toolchain is installed: rustup has a stand-in for each that only fails.
fn answers(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success())
}
