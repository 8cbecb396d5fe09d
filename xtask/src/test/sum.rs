//! What all stages together have counted.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::process::Finished;

pub(super) struct Sum {
    begin: Instant,
    passed: usize,
    failed: usize,
    skipped: usize,
    /// What is missing, and what is skipped for it.
    skips: BTreeMap<String, Vec<String>>,
    corpora: Vec<String>,
    stages: Vec<(String, Duration, bool)>,
}

impl Default for Sum {
    fn default() -> Self {
        Sum {
            begin: Instant::now(),
            passed: 0,
            failed: 0,
            skipped: 0,
            skips: BTreeMap::new(),
            corpora: Vec::new(),
            stages: Vec::new(),
        }
    }
}

impl Sum {
    pub(super) fn add(&mut self, stage: &str, took: Duration, finished: &Finished) {
        let (mut passed, mut failed, mut returned_early) = (0, 0, 0);
        for line in &finished.lines {
            if let Some(counts) = line.strip_prefix("test result: ") {
                passed += count_before(counts, " passed");
                failed += count_before(counts, " failed");
                self.skipped += count_before(counts, " ignored");
            } else if let Some(skip) = line.strip_prefix("skipped: ") {
                returned_early += 1;
                self.skip(skip);
            } else if let Some(corpus) = line.strip_prefix("corpus: ") {
                self.corpora.push(corpus.to_owned());
            }
        }
        // The harness counts a test that returned early as passed.
        passed -= returned_early.min(passed);
        // A stage without tests of its own (formatting, say) is one check.
        if passed + failed + returned_early == 0 || (!finished.success && failed == 0) {
            *(if finished.success { &mut passed } else { &mut failed }) += 1;
        }
        self.passed += passed;
        self.failed += failed;
        self.stages.push((stage.to_owned(), took, finished.success));
    }

    /// Counts a stage that cannot run because a program is missing; a failure where nothing may be.
    pub(super) fn skip_stage(&mut self, stage: &str, missing: &str, how: &str) -> Result<Finished> {
        ensure!(
            std::env::var_os("KILN_REQUIRE_ALL").is_none(),
            "{missing}, and KILN_REQUIRE_ALL is set; to get it: {how}"
        );
        let line = format!("skipped: {stage}: {missing}; to get it: {how}");
        Ok(Finished { success: true, lines: vec![line] })
    }

    /// Counts what was skipped, from `NAME: WHAT IS MISSING`.
    pub(super) fn skip(&mut self, skip: &str) {
        let (name, missing) = skip.split_once(": ").unwrap_or(("something", skip));
        self.skipped += 1;
        self.skips.entry(missing.to_owned()).or_default().push(name.to_owned());
    }

    /// Says it all; whether every stage succeeded.
    pub(super) fn report(&mut self) -> bool {
        eprintln!("\n== summary");
        self.corpora.sort();
        for corpus in &self.corpora {
            eprintln!("recorded cases: {corpus}");
        }
        for (missing, names) in &self.skips {
            let tests = if names.len() == 1 { "test" } else { "tests" };
            eprintln!("SKIPPED {} {tests}: {missing}", names.len());
            eprintln!("        {}", names.join(", "));
        }
        for (stage, took, success) in &self.stages {
            let verdict = if *success { "ok" } else { "FAILED" };
            eprintln!("{:>6.1} min  {stage}: {verdict}", took.as_secs_f64() / 60.0);
        }
        eprintln!("{:>6.1} min  in all", self.begin.elapsed().as_secs_f64() / 60.0);
        say_sum(self.passed, self.failed, self.skipped);
        !self.stages.is_empty() && self.stages.iter().all(|(_, _, success)| *success)
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
        assert_eq!(sum.skips["the corpus yaml is not there"], ["emit_cases"]);
        assert!(!sum.report());
    }

    #[test]
    fn a_stage_that_fails_without_a_failing_test_counts_as_one() {
        let mut sum = Sum::default();
        sum.add("lints", Duration::ZERO, &finished(false, &["error: unused"]));
        assert_eq!((sum.passed, sum.failed), (0, 1));
    }
}
