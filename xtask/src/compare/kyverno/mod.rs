//! Random policies and resources through `kiln apply` and through Kyverno's own command line.
//!
//! Both are given many cases at once: each has a policy that matches its own resource by name, so that cases do not meet. What is
//! compared is every object afterwards, changed and made. Cases are of what both run: mutate and generate rules with data,
//! without clones and services, which Kyverno's command line does not have.
//!
//! Of a policy with a rule that fails, Kyverno's command line prints nothing; there, both must fail. Policies that it does not
//! take are counted and not compared, and what docs/reference/differences/kyverno.md says of its command line is left out.

mod cases;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use kiln_value::{Value, json};
use kiln_yaml::{Document, ReadOptions, emit, read_bytes};

use cases::Case;

use crate::bench::kyverno;

/// So many cases are given to both at once.
const BATCH: u64 = 60;

/// The objects of a case by kind and name, as they are afterwards.
type Objects = BTreeMap<String, Value>;

#[expect(clippy::print_stdout, reason = "the differences are this command's output")]
pub(crate) fn run(binary: Option<PathBuf>, cases: u64, seed: u64, show: usize) -> Result<bool> {
    let both = Both {
        kiln: binary.map_or_else(super::kiln, Ok)?,
        kyverno: kyverno::program("cli/kubectl-kyverno")?,
        directory: tempfile::tempdir()?,
    };
    let mut different = Vec::new();
    let (mut changed, mut failed, mut not_taken) = (0, 0, 0);
    let end = seed + cases;
    let mut first = seed;
    while first < end {
        let batch: Vec<Case> = (first..end.min(first + BATCH)).map(Case::of).collect();
        let results = both.apply(&batch)?;
        for (case, (ours, theirs)) in batch.into_iter().zip(results) {
            changed += u64::from(theirs.objects != case.given());
            failed += u64::from(theirs.fails);
            not_taken += u64::from(theirs.not_taken);
            // Kyverno's command line does not say that a generate rule fails, and stops there.
            let in_silence = ours.fails && !theirs.fails && case.generates();
            if ours.differs(&theirs) && !in_silence {
                if different.len() < show {
                    let small = smallest(case.clone(), &both)?;
                    print(&small, &both)?;
                }
                different.push(case.number);
            }
        }
        first += BATCH;
        eprint!("\r{} cases, {} differences ", first.min(end) - seed, different.len());
    }
    eprintln!();
    println!(
        "{cases} cases from seed {seed}: {changed} changed or made something, {failed} fail, {not_taken} are not taken by \
         Kyverno; {} differences{}",
        different.len(),
        if different.is_empty() { String::new() } else { format!(", seeds {different:?}") }
    );
    Ok(different.is_empty())
}

struct Both {
    kiln: PathBuf,
    kyverno: PathBuf,
    directory: tempfile::TempDir,
}

/// What one of them makes of a case.
#[derive(Default)]
struct KyvernoOutcome {
    objects: Objects,
    /// A rule fails.
    fails: bool,
    /// The policy is not taken.
    not_taken: bool,
}

impl KyvernoOutcome {
    fn differs(&self, theirs: &KyvernoOutcome) -> bool {
        let is_same = theirs.not_taken || self.fails && theirs.fails;
        !is_same && self.objects != theirs.objects
    }
}

/// What one of them says of all cases.
struct Said {
    objects: Objects,
    failed: BTreeSet<String>,
    not_taken: BTreeSet<String>,
}

impl Said {
    /// What Kiln prints as JSON.
    fn ours(text: &str) -> Result<Said> {
        let report = json::parse(text)?;
        let list =
            |field: &str| report.get(field).and_then(Value::as_list).cloned().unwrap_or_default();
        let results = list("results");
        let failed = results.iter().filter(|one| one.str_at(["result"]) == Some("error"));
        let failed = failed.filter_map(|result| result.str_at(["policy"]).map(str::to_owned));
        Ok(Said {
            objects: list("objects").iter().map(|object| keyed(object.clone())).collect(),
            failed: failed.collect(),
            not_taken: BTreeSet::new(),
        })
    }

    /// What Kyverno prints.
    fn theirs(text: &str) -> Said {
        let policy =
            |line: &str| Some(line.split_once("policy ")?.1.split_once(" ->")?.0.to_owned());
        let failed = text.lines().filter(|line| line.starts_with("error while applying "));
        let failed: BTreeSet<String> = failed.filter_map(policy).collect();
        let skipped = text.split_once("Policies Skipped:").map_or("", |(_, skipped)| skipped);
        let skipped = skipped.split("----").next().unwrap_or_default().lines();
        let named = |line: &str| Some(line.split_once(". ")?.1.split_once(": ")?.0.to_owned());
        Said { objects: objects(text), failed, not_taken: skipped.filter_map(named).collect() }
    }

    fn of(&self, case: &Case) -> KyvernoOutcome {
        let policy = format!("{}policy", case.name());
        KyvernoOutcome {
            objects: case.own(&self.objects),
            fails: self.failed.contains(&policy),
            not_taken: self.not_taken.contains(&policy),
        }
    }
}

impl Both {
    /// What both make of cases: ours, then theirs.
    fn apply(&self, cases: &[Case]) -> Result<Vec<(KyvernoOutcome, KyvernoOutcome)>> {
        let write = |name: &str, texts: Vec<String>| -> Result<PathBuf> {
            let path = self.directory.path().join(name);
            std::fs::write(&path, texts.join("---\n"))?;
            Ok(path)
        };
        let policies = write("policies.yaml", cases.iter().map(Case::policy).collect())?;
        let resources = write("resources.yaml", cases.iter().map(Case::resource).collect())?;
        let said = |program: &Path, more: &[&str]| -> Result<String> {
            let mut command = Command::new(program);
            command.arg("apply").arg(&policies).arg("--resource").arg(&resources).args(more);
            let output = command.output().with_context(|| format!("cannot start {command:?}"))?;
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            ensure!(
                !text.trim().is_empty(),
                "{command:?} prints nothing: {}",
                String::from_utf8_lossy(&output.stderr)
            );
            Ok(text)
        };
        let ours = Said::ours(&said(&self.kiln, &["--format", "json"])?)?;
        let theirs = Said::theirs(&said(&self.kyverno, &["--continue-on-fail"])?);
        Ok(cases.iter().map(|case| (ours.of(case), theirs.of(case))).collect())
    }
}

/// The objects in what a program prints. Of one that is printed several times, the last counts.
fn objects(said: &str) -> Objects {
    let mut found = Objects::new();
    let mut block = String::new();
    for line in said.lines().chain([""]) {
        let begins = line.starts_with("apiVersion: ");
        let inside = !block.is_empty() && !line.is_empty() && !line.starts_with("---") && !begins;
        if inside {
            let _ = writeln!(block, "{line}");
            continue;
        }
        if let Ok(documents) = read_bytes("object", block.as_bytes(), ReadOptions::kubernetes()) {
            found.extend(documents.into_iter().map(Document::into_value).map(keyed));
        }
        block.clear();
        if begins {
            let _ = writeln!(block, "{line}");
        }
    }
    found
}

/// An object by its kind and name.
fn keyed(object: Value) -> (String, Value) {
    let kind = object.str_at(["kind"]).unwrap_or_default();
    let name = object.str_at(["metadata", "name"]).unwrap_or_default();
    (format!("{kind}/{name}"), without_marks(object))
}

/// An object without what engines write down about who made it. Labels and annotations are text, which Kyverno's command
/// line leaves to the API server.
fn without_marks(mut object: Value) -> Value {
    let labels = object.get_path(["metadata", "labels"]).and_then(Value::as_map).cloned();
    for (key, _) in labels.iter().flat_map(kiln_value::Map::iter) {
        if key.starts_with("generate.kyverno.io/") || key.as_str() == "app.kubernetes.io/managed-by"
        {
            object.remove(["metadata", "labels", key.as_str()]);
        }
    }
    let empty = |object: &Value, field: &str| {
        let found = object.get_path(["metadata", field]).and_then(Value::as_map);
        found.is_some_and(kiln_value::Map::is_empty)
    };
    for field in ["labels", "annotations"] {
        let pairs = object.get_path(["metadata", field]).and_then(Value::as_map).cloned();
        for (key, value) in pairs.iter().flat_map(kiln_value::Map::iter) {
            if matches!(value, Value::Number(_) | Value::Bool(_)) {
                let _ = object.set(["metadata", field, key.as_str()], json::to_string(value));
            }
        }
        if empty(&object, field) {
            object.remove(["metadata", field]);
        }
    }
    object
}

/// The smallest case without one of whose parts both agree.
fn smallest(mut case: Case, both: &Both) -> Result<Case> {
    'again: loop {
        for smaller in case.smaller() {
            let (ours, theirs) = both.apply(std::slice::from_ref(&smaller))?.remove(0);
            if ours.differs(&theirs) {
                case = smaller;
                continue 'again;
            }
        }
        return Ok(case);
    }
}

#[expect(clippy::print_stdout, reason = "the differences are this command's output")]
fn print(case: &Case, both: &Both) -> Result<()> {
    let (ours, theirs) = both.apply(std::slice::from_ref(case))?.remove(0);
    println!("== seed {}\n{}---\n{}", case.number, case.policy(), case.resource());
    println!("fails: Kyverno {}, Kiln {}", theirs.fails, ours.fails);
    let (ours, theirs) = (ours.objects, theirs.objects);
    for name in ours.keys().chain(theirs.keys().filter(|name| !ours.contains_key(*name))) {
        let text = |objects: &Objects| objects.get(name).map(emit).unwrap_or_default();
        if let Some(difference) = kiln_testkit::difference(&text(&theirs), &text(&ours)) {
            println!(">> {name}: Kyverno, then Kiln:\n{difference}");
        }
    }
    println!();
    Ok(())
}
