//! Counting the cases of a corpus.

use std::collections::BTreeMap;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};

use similar::TextDiff;

/// Counts the cases of one corpus, and fails at the end with every failure it saw.
#[derive(Debug)]
pub struct Tally {
    name: String,
    passed: usize,
    left_out: usize,
    failures: Vec<String>,
    known: BTreeMap<String, String>,
}

impl Tally {
    /// A tally; the name is what the closing line says.
    pub fn new(name: impl Into<String>) -> Self {
        Tally {
            name: name.into(),
            passed: 0,
            left_out: 0,
            failures: Vec::new(),
            known: BTreeMap::new(),
        }
    }

    /// Declares a case that fails for a reason. A known failure that passes fails the test, so that
    /// the list only shrinks.
    pub fn known_failure(&mut self, case: impl Into<String>, reason: impl Into<String>) {
        self.known.insert(case.into(), reason.into());
    }

    /// Runs a case; a panic in it is a failure like any other.
    pub fn case(&mut self, case: &str, run: impl FnOnce() -> Result<(), String>) {
        let known = self.known.remove(case);
        let outcome = match catch_unwind(AssertUnwindSafe(run)) {
            Ok(outcome) => outcome,
            Err(panic) => {
                let said = panic.downcast_ref::<String>().map(String::as_str);
                let said = said.or_else(|| panic.downcast_ref::<&str>().copied());
                // No reason makes up for a panic, so a known failure does not cover it.
                let said = said.unwrap_or("without a message");
                self.failures.push(format!("{case}: panicked: {said}"));
                return;
            }
        };
        match (outcome, known) {
            (Ok(()), None) => self.passed += 1,
            (Ok(()), Some(reason)) => self
                .failures
                .push(format!("{case}: passes, but is listed as a known failure ({reason})")),
            (Err(_), Some(_)) => self.left_out += 1,
            (Err(problem), None) => self.failures.push(format!("{case}: {problem}")),
        }
    }

    /// Counts a case for which there is no expectation.
    pub fn leave_out(&mut self) {
        self.left_out += 1;
    }

    /// Says how many cases passed.
    ///
    /// # Panics
    /// When one failed, or when there was none at all.
    pub fn finish(self) {
        let total = self.passed + self.failures.len();
        // The tests of this very file are about tallies that fail; they are not corpora.
        if !cfg!(test) {
            let _ = writeln!(
                std::io::stderr(),
                "corpus: {}: {} of {total} cases pass, {} left out",
                self.name,
                self.passed,
                self.left_out
            );
        }
        assert!(total > 0, "{}: no case ran", self.name);
        let unused: Vec<_> = self.known.keys().collect();
        assert!(unused.is_empty(), "{}: known failures that do not exist: {unused:?}", self.name);
        if !self.failures.is_empty() {
            let shown = self.failures.iter().take(25).cloned().collect::<Vec<_>>().join("\n");
            panic!("{}: {} of {total} cases fail:\n{shown}", self.name, self.failures.len());
        }
    }
}

/// How two texts differ, line by line, or `None` when they are equal.
pub fn difference(wanted: &str, got: &str) -> Option<String> {
    (wanted != got).then(|| {
        TextDiff::from_lines(wanted, got).unified_diff().header("wanted", "got").to_string()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "2 of 3 cases fail")]
    fn failures_and_panics_are_counted_and_shown() {
        let mut tally = Tally::new("sample");
        tally.case("good", || Ok(()));
        tally.case("bad", || Err("no".into()));
        tally.case("worse", || panic!("boom"));
        tally.finish();
    }

    #[test]
    #[should_panic(expected = "panicked: boom")]
    fn a_known_failure_may_not_panic() {
        let mut tally = Tally::new("sample");
        tally.known_failure("worse", "is broken");
        tally.case("worse", || panic!("boom"));
        tally.finish();
    }

    #[test]
    #[should_panic(expected = "listed as a known failure")]
    fn a_known_failure_that_passes_is_a_failure() {
        let mut tally = Tally::new("sample");
        tally.known_failure("mended", "was broken");
        tally.case("mended", || Ok(()));
        tally.finish();
    }
}
