//! The tests there are, and what is known of them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::must;

/// The lists in the directory `conformance`. A line is a test's path, and `: reason` where one is due.
pub(super) struct Lists {
    /// Tests that fail, and why.
    pub(super) known_failures: BTreeMap<String, String>,
    /// Tests that need running pods, and what for.
    pub(super) needs_nodes: BTreeMap<String, String>,
    /// Tests that pass without an engine, and so prove nothing.
    pub(super) without_engine: BTreeSet<String>,
    /// Tests that `cargo xtask test` runs.
    pub(super) quick: BTreeSet<String>,
}

impl Lists {
    pub(super) fn read(directory: &Path) -> Result<Self> {
        Ok(Lists {
            known_failures: with_reasons(&directory.join("known-failures.txt"))?,
            needs_nodes: with_reasons(&directory.join("needs-nodes.txt"))?,
            without_engine: names(&directory.join("passes-without-engine.txt"))?,
            quick: names(&directory.join("quick.txt"))?,
        })
    }

    /// Counts what fails on the sandbox alone among the known failures.
    pub(super) fn add_sandbox_differences(&mut self, directory: &Path) -> Result<()> {
        self.known_failures.extend(with_reasons(&directory.join("sandbox-differences.txt"))?);
        Ok(())
    }
}

fn lines(path: &Path) -> Result<Vec<String>> {
    let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let lines =
        text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    Ok(lines.map(str::to_owned).collect())
}

fn names(path: &Path) -> Result<BTreeSet<String>> {
    Ok(lines(path)?.into_iter().collect())
}

fn with_reasons(path: &Path) -> Result<BTreeMap<String, String>> {
    let split = |line: String| match line.split_once(": ") {
        Some((test, reason)) => Ok((test.to_owned(), reason.to_owned())),
        None => bail!("{}: {line:?} has no reason (PATH: REASON)", path.display()),
    };
    lines(path)?.into_iter().map(split).collect()
}

/// The suite that a test belongs to: the first directory of its path.
pub(super) fn suite_of(test: &str) -> &str {
    test.split('/').next().unwrap_or(test)
}

/// The paths of all tests, in order. Directories with a dot in front are switched off.
pub(super) fn discover(directory: &Path) -> Result<Vec<String>> {
    let mut tests = Vec::new();
    collect(directory, "", &mut tests)?;
    tests.sort();
    Ok(tests)
}

fn collect(directory: &Path, path: &str, tests: &mut Vec<String>) -> Result<()> {
    for entry in fs::read_dir(directory).with_context(|| directory.display().to_string())? {
        let entry = entry?;
        let Ok(name) = entry.file_name().into_string() else { continue };
        if name == "chainsaw-test.yaml" && !path.is_empty() {
            tests.push(path.to_owned());
        } else if !name.starts_with('.') && entry.path().is_dir() {
            let below = if path.is_empty() { name } else { format!("{path}/{name}") };
            collect(&entry.path(), &below, tests)?;
        }
    }
    Ok(())
}

/// A copy that tests may write into.
pub(super) fn copy(source: &Path) -> Result<tempfile::TempDir> {
    let directory = tempfile::Builder::new().prefix("kiln-suites-").tempdir()?;
    must(Command::new("cp").arg("-r").arg(source.join(".")).arg(directory.path()))?;
    must(Command::new("chmod").args(["-R", "u+w"]).arg(directory.path()))?;
    Ok(directory)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_tests_but_not_those_switched_off() {
        let directory = tempfile::tempdir().unwrap();
        for path in ["one/b/c", "one/a", "one/.off", "_step-templates"] {
            fs::create_dir_all(directory.path().join(path)).unwrap();
        }
        for path in ["one/b/c", "one/a", "one/.off"] {
            fs::write(directory.path().join(path).join("chainsaw-test.yaml"), "").unwrap();
        }
        assert_eq!(discover(directory.path()).unwrap(), ["one/a", "one/b/c"]);
        assert_eq!(suite_of("one/b/c"), "one");
    }

    #[test]
    fn a_known_failure_without_a_reason_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("list.txt");
        fs::write(&path, "# comment\n\none/a: it is hard\n").unwrap();
        assert_eq!(with_reasons(&path).unwrap()["one/a"], "it is hard");
        fs::write(&path, "one/a\n").unwrap();
        assert!(with_reasons(&path).is_err());
    }

    #[test]
    fn the_lists_can_be_read_and_do_not_contradict_each_other() {
        let directory = crate::root().join("conformance");
        let mut lists = Lists::read(&directory).unwrap();
        lists.add_sandbox_differences(&directory).unwrap();
        for test in &lists.quick {
            assert!(!lists.known_failures.contains_key(test), "{test}");
            assert!(!lists.needs_nodes.contains_key(test), "{test}");
            assert!(!lists.without_engine.contains(test), "{test} proves nothing");
        }
    }
}
