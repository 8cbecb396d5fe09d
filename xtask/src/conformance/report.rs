//! What came of a run: a JSON file that grows with every test, and a table at the end.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::suite::Lists;
use super::trial::TrialOutcome;

/// The outcome of every test so far.
pub(super) struct Report {
    path: PathBuf,
    tests: BTreeMap<String, Entry>,
}

#[derive(Serialize, Deserialize)]
struct Entry {
    passed: bool,
    #[serde(default)]
    switched_off: bool,
    seconds: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    step: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
}

#[derive(Serialize, Deserialize)]
struct File {
    counts: BTreeMap<String, usize>,
    tests: BTreeMap<String, Entry>,
}

impl Report {
    /// A new report, or with `resume` the one that is there.
    pub(super) fn open(path: PathBuf, resume: bool) -> Result<Self> {
        let tests = if resume && path.exists() {
            let text = fs::read_to_string(&path)?;
            serde_json::from_str::<File>(&text)
                .with_context(|| format!("{} cannot be read", path.display()))?
                .tests
        } else {
            BTreeMap::new()
        };
        Ok(Report { path, tests })
    }

    pub(super) fn has(&self, test: &str) -> bool {
        self.tests.contains_key(test)
    }

    /// Takes in an outcome and writes it down.
    pub(super) fn add(&mut self, test: &str, outcome: TrialOutcome, left: usize) -> Result<()> {
        let word = match (outcome.passed, outcome.switched_off) {
            (_, true) => "off ",
            (true, false) => "ok  ",
            (false, false) => "FAIL",
        };
        let why = outcome
            .failure
            .as_ref()
            .map(|(step, message)| format!("  ({step}: {})", first_line(message)))
            .unwrap_or_default();
        eprintln!("{word} {:>5.1} s  {left:>3} left  {test}{why}", outcome.seconds);
        let (step, message) = outcome.failure.unzip();
        let entry = Entry {
            passed: outcome.passed,
            switched_off: outcome.switched_off,
            seconds: outcome.seconds,
            step,
            message,
        };
        self.tests.insert(test.to_owned(), entry);
        self.write(BTreeMap::new())
    }

    fn write(&self, counts: BTreeMap<String, usize>) -> Result<()> {
        #[derive(Serialize)]
        struct Shown<'r> {
            counts: BTreeMap<String, usize>,
            tests: &'r BTreeMap<String, Entry>,
        }
        let text = serde_json::to_string_pretty(&Shown { counts, tests: &self.tests })?;
        fs::write(&self.path, text).with_context(|| self.path.display().to_string())
    }

    /// Writes down which tests prove nothing: they pass with the engine off. What other runs found stays.
    pub(super) fn record_engine_off(
        self,
        directory: &Path,
        lists: &Lists,
        run: &[String],
    ) -> Result<()> {
        let mut passing = lists.without_engine.clone();
        passing.retain(|test| !run.contains(test));
        passing.extend(self.tests.iter().filter(|(_, e)| e.passed).map(|(test, _)| test.clone()));
        let mut text = String::from(
            "# Tests that pass without an engine, so that passing them proves nothing.\n\
             # Written by cargo xtask conformance --engine-off\n",
        );
        for test in passing {
            let _ = writeln!(text, "{test}");
        }
        fs::write(directory.join("passes-without-engine.txt"), text)?;
        Ok(())
    }

    /// Shows the failures and the counts; whether everything was as expected.
    pub(super) fn conclude(self, lists: &Lists, tests: &[String]) -> Result<bool> {
        let mut counts = BTreeMap::new();
        let mut count = |what: &str, by: usize| *counts.entry(what.to_owned()).or_insert(0) += by;
        let mut unexpected = Vec::new();
        let mut table = String::new();
        for (test, entry) in self.tests.iter().filter(|(test, _)| tests.contains(test)) {
            if entry.switched_off {
                count("switched off by the suite", 1);
                continue;
            }
            let known = lists.known_failures.get(test);
            match (entry.passed, known) {
                (true, None) if lists.without_engine.contains(test) => {
                    count("passed, also without an engine", 1);
                }
                (true, None) => count("passed", 1),
                (true, Some(_)) => {
                    count("passed", 1);
                    unexpected.push(format!(
                        "{test}: passes, take it off conformance/known-failures.txt"
                    ));
                }
                (false, Some(reason)) => {
                    count("known failures", 1);
                    let _ = writeln!(table, "  {test}\n      known: {reason}");
                }
                (false, None) => {
                    count("failed", 1);
                    let step = entry.step.as_deref().unwrap_or_default();
                    let message = first_line(entry.message.as_deref().unwrap_or_default());
                    let _ = writeln!(table, "  {test}\n      {step}: {message}");
                    unexpected.push(format!("{test}: fails"));
                }
            }
        }
        count(
            "need nodes",
            tests.iter().filter(|test| lists.needs_nodes.contains_key(*test)).count(),
        );
        eprintln!("\n{table}");
        for line in &unexpected {
            eprintln!("unexpected: {line}");
        }
        let passed: usize =
            counts.iter().filter(|(what, _)| what.starts_with("passed")).map(|(_, n)| n).sum();
        let verdict = if unexpected.is_empty() { "ok" } else { "FAILED" };
        let shown: Vec<String> = counts.iter().map(|(what, n)| format!("{n} {what}")).collect();
        eprintln!("conformance: {}; {}", shown.join(", "), self.path.display());
        eprintln!(
            "test result: {verdict}. {passed} passed; {} failed; 0 ignored",
            unexpected.len()
        );
        self.write(counts)?;
        Ok(unexpected.is_empty())
    }
}

/// The beginning of a message in one line, without the rules that chainsaw draws.
fn first_line(text: &str) -> String {
    let lines = text.lines().map(str::trim).filter(|line| line.contains(char::is_alphanumeric));
    let line = lines.take(3).collect::<Vec<_>>().join(" · ");
    line.chars().take(200).collect()
}
