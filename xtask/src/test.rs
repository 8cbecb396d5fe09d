//! `cargo xtask test`: everything that must hold before a change lands.
//!
//! Each stage is a command whose output is shown and counted. The closing lines tell the minutes per
//! stage, what was skipped and why, how many recorded cases passed, and the sum over everything.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::process::{Finished, stream};
use crate::{readme, root};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Run only the stages whose name contains this text
    #[arg(long)]
    stage: Option<String>,
}

#[derive(Default)]
struct Sum {
    passed: usize,
    failed: usize,
    skipped: usize,
    skips: Vec<String>,
    corpora: Vec<String>,
    stages: Vec<(String, Duration, bool)>,
}

/// Whether every stage succeeded.
pub(crate) fn run(args: &Args) -> Result<bool> {
    let mut sum = Sum::default();
    for (name, command) in stages()? {
        if args.stage.as_ref().is_some_and(|wanted| !name.contains(wanted.as_str())) {
            continue;
        }
        eprintln!("\n== {name}");
        let begin = Instant::now();
        let finished = stream(Command::new(&command[0]).args(&command[1..]).current_dir(root()))?;
        sum.add(name, begin.elapsed(), &finished);
    }
    if sum.stages.is_empty() {
        let names: Vec<_> = stages()?.into_iter().map(|(name, _)| name).collect();
        anyhow::bail!("no stage has that in its name; there are: {}", names.join(", "));
    }
    Ok(sum.report())
}

fn stages() -> Result<Vec<(&'static str, Vec<String>)>> {
    let cargo = |args: &str| {
        let mut command = vec!["cargo".to_owned()];
        command.extend(args.split(' ').map(str::to_owned));
        command
    };
    let xtask = std::env::current_exe()?.display().to_string();
    Ok(vec![
        ("formatting", cargo("fmt --all --check")),
        ("lints", cargo("clippy --workspace --all-targets --quiet -- -D warnings")),
        ("unit and integration tests", cargo("test --workspace --all-targets --no-fail-fast")),
        ("documentation tests", cargo("test --workspace --doc --no-fail-fast")),
        ("the README's main command", readme::main_command()?),
        ("conformance, a chosen part", vec![xtask, "conformance".to_owned(), "--quick".to_owned()]),
    ])
}

impl Sum {
    fn add(&mut self, stage: &str, took: Duration, finished: &Finished) {
        let (mut passed, mut failed, mut returned_early) = (0, 0, 0);
        for line in &finished.lines {
            if let Some(counts) = line.strip_prefix("test result: ") {
                passed += count_before(counts, " passed");
                failed += count_before(counts, " failed");
                self.skipped += count_before(counts, " ignored");
            } else if let Some(reason) = line.strip_prefix("skipped: ") {
                returned_early += 1;
                self.skips.push(reason.to_owned());
            } else if let Some(corpus) = line.strip_prefix("corpus: ") {
                self.corpora.push(corpus.to_owned());
            }
        }
        // The harness counts a test that returned early as passed.
        passed -= returned_early.min(passed);
        self.skipped += returned_early;
        // A stage without tests of its own (formatting, say) is one check.
        if passed + failed + returned_early == 0 || (!finished.success && failed == 0) {
            *(if finished.success { &mut passed } else { &mut failed }) += 1;
        }
        self.passed += passed;
        self.failed += failed;
        self.stages.push((stage.to_owned(), took, finished.success));
    }

    fn report(mut self) -> bool {
        eprintln!("\n== summary");
        self.corpora.sort();
        for corpus in &self.corpora {
            eprintln!("recorded cases: {corpus}");
        }
        for skip in &self.skips {
            eprintln!("SKIPPED: {skip}");
        }
        for (stage, took, success) in &self.stages {
            let verdict = if *success { "ok" } else { "FAILED" };
            eprintln!("{:>6.1} min  {stage}: {verdict}", took.as_secs_f64() / 60.0);
        }
        let success = self.stages.iter().all(|(_, _, success)| *success);
        say_sum(self.passed, self.failed, self.skipped);
        success
    }
}

#[expect(clippy::print_stdout, reason = "the sum is this command's output")]
fn say_sum(passed: usize, failed: usize, skipped: usize) {
    println!("{passed} passed, {failed} failed, {skipped} skipped");
}

/// The number right before a word: 12 in `ok. 12 passed; 0 failed` for ` passed`.
fn count_before(text: &str, word: &str) -> usize {
    text.find(word)
        .and_then(|at| text[..at].rsplit(|c: char| !c.is_ascii_digit()).next())
        .and_then(|digits| digits.parse().ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finished(success: bool, lines: &[&str]) -> Finished {
        Finished { success, lines: lines.iter().map(ToString::to_string).collect() }
    }

    #[test]
    fn counts_tests_and_skips() {
        let mut sum = Sum::default();
        sum.add(
            "tests",
            Duration::ZERO,
            &finished(
                false,
                &[
                    "skipped: emit_cases: the corpus yaml is not there",
                    "test result: ok. 12 passed; 0 failed; 3 ignored; 0 measured; 0 filtered out",
                    "test result: FAILED. 4 passed; 2 failed; 0 ignored; 0 measured",
                ],
            ),
        );
        sum.add("formatting", Duration::ZERO, &finished(true, &[]));
        assert_eq!((sum.passed, sum.failed, sum.skipped), (16, 2, 4));
        assert!(!sum.report());
    }

    #[test]
    fn a_stage_that_fails_without_a_failing_test_counts_as_one() {
        let mut sum = Sum::default();
        sum.add("lints", Duration::ZERO, &finished(false, &["error: unused"]));
        assert_eq!((sum.passed, sum.failed), (0, 1));
    }
}
