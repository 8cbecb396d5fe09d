//! The test programs that a build made: which there are, and running them.

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::Value;

use super::nice;
use crate::process::{Finished, collect};

/// A test program. The order is the one they run in.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Program {
    /// Programs that wait for servers come last: these may still be being built.
    needs_servers: bool,
    package: String,
    target: String,
    executable: String,
    directory: PathBuf,
}

/// Packages with tests on a real control plane.
const WITH_SERVERS: [&str; 4] = ["kiln", "kiln-install", "kiln-sandbox", "kiln-testkit"];

impl Program {
    /// The program of a message of cargo's, if it is about a test program.
    pub(super) fn from_message(message: &Value) -> Option<Self> {
        let text = |pointer: &str| message.pointer(pointer).and_then(Value::as_str);
        if text("/reason") != Some("compiler-artifact")
            || message.pointer("/profile/test").and_then(Value::as_bool) != Some(true)
        {
            return None;
        }
        let directory = PathBuf::from(text("/manifest_path")?).parent()?.to_owned();
        // path+file:///…/crates/cli#kiln@0.1.0, or …/crates/xtask#0.1.0 where directory and package have one name.
        let id = text("/package_id")?.rsplit('#').next()?;
        let package = match id.split_once('@') {
            Some((name, _)) => name.to_owned(),
            None => directory.file_name()?.to_string_lossy().into_owned(),
        };
        Some(Program {
            needs_servers: WITH_SERVERS.contains(&package.as_str()),
            package,
            target: text("/target/name")?.to_owned(),
            executable: text("/executable")?.to_owned(),
            directory,
        })
    }

    /// Whether its tests do little but wait for a control plane.
    pub(super) fn is_live(&self) -> bool {
        self.package == "kiln" && self.target == "live"
    }

    fn command(&self, priority: u8) -> Command {
        let mut command = nice(priority, &[&self.executable]);
        // As cargo runs them.
        command.current_dir(&self.directory).env("CARGO_MANIFEST_DIR", &self.directory);
        if std::env::var_os(PROPERTY_SEED.0).is_none() {
            command.env(PROPERTY_SEED.0, PROPERTY_SEED.1);
        }
        if self.is_live() {
            // They wait, whatever the number of processors, on as many control planes.
            command.arg("--test-threads=3");
        }
        command
    }
}

/// Property tests try the same values in every run: a change is judged by what it changes. `cargo test` draws others.
const PROPERTY_SEED: (&str, &str) = ("PROPTEST_RNG_SEED", "20261118");

/// Programs that took longer are shown with their seconds: the place to begin for a shorter run.
const WORTH_TELLING: Duration = Duration::from_secs(10);

/// Runs programs one after another; every failing test of theirs is shown.
pub(super) fn run(priority: u8, programs: &[Program]) -> Result<Finished> {
    let mut all = Finished::nothing();
    for program in programs {
        let name = format!("the tests `{}` of {}", program.target, program.package);
        // Said before it runs, so that one that does not end is known.
        eprintln!("-- {name}");
        let begin = Instant::now();
        let finished = collect(&mut program.command(priority))
            .unwrap_or_else(|error| Finished::failed(format!("error: {name}: {error:#}")));
        if !finished.success {
            eprintln!("FAILED: {name}");
        }
        if begin.elapsed() > WORTH_TELLING {
            eprintln!("-- {name}: {:.0} s", begin.elapsed().as_secs_f64());
        }
        all.success &= finished.success;
        all.lines.extend(finished.lines);
    }
    Ok(all)
}
