//! `cargo xtask record`: fills the tables in `tests/cases` of the crates with what the originals make of their inputs.
//!
//! A table is a YAML file that people write; `output` and `error` of its cases, and `recorded`, are written here. The
//! originals are pinned Go modules. A small program around each takes the cases as JSON, and answers with one result
//! for each. What KubeMod makes of ModRules is not recorded here: its module cannot be had from the module proxy.

mod suites;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, anyhow, bail, ensure};
use kiln_value::{Map, Value, json};
use kiln_yaml::{EmitOptions, KeyOrder, ReadOptions, emit_into, read_bytes};

use crate::root;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Record only this table
    table: Option<String>,
}

/// The cases of one language.
struct Table {
    name: &'static str,
    directory: &'static str,
    original: Original,
}

/// What answers.
enum Original {
    /// A Go program of ours around the original: directory of its module, and package.
    Program(&'static str, &'static str),
    /// Kyverno's command line.
    KyvernoTest,
}

/// The module of the program that answers for Kyverno's languages.
const KYVERNO: &str = "xtask/kyverno";
/// The module of the program that answers for kustomize.
const KUSTOMIZE: &str = "xtask/recorders/kustomize";

const TABLES: [Table; 8] = [
    Table {
        name: "gotemplate",
        directory: "crates/gotemplate/tests/cases",
        original: Original::Program("xtask/recorders/templates", "."),
    },
    Table {
        name: "chart",
        directory: "crates/chart/tests/cases",
        original: Original::Program("xtask/helm", "./record"),
    },
    Table {
        name: "jmespath",
        directory: "crates/jmespath/tests/cases",
        original: Original::Program(KYVERNO, "./record"),
    },
    Table {
        name: "pattern",
        directory: "crates/pattern/tests/cases",
        original: Original::Program(KYVERNO, "./record"),
    },
    Table {
        name: "cel",
        directory: "crates/cel/tests/cases",
        original: Original::Program(KYVERNO, "./record"),
    },
    Table {
        name: "kustomize",
        directory: "crates/kustomize/tests/cases",
        original: Original::Program(KUSTOMIZE, "."),
    },
    Table {
        name: "kustomize-calls",
        directory: "crates/cli/tests/cases/kustomize-calls",
        original: Original::Program(KUSTOMIZE, "."),
    },
    Table {
        name: "suites",
        directory: "crates/suites/tests/cases",
        original: Original::KyvernoTest,
    },
];

/// Keys that are written here; all others are written by people.
const RECORDED: [&str; 2] = ["output", "error"];
/// Keys that come after what is recorded.
const AFTER: [&str; 3] = ["differs", "kiln", "kilnError"];

pub(crate) fn run(args: &Args) -> Result<()> {
    let wanted = |table: &&Table| args.table.as_ref().is_none_or(|name| name == table.name);
    let tables: Vec<&Table> = TABLES.iter().filter(wanted).collect();
    if tables.is_empty() {
        let names: Vec<_> = TABLES.iter().map(|table| table.name).collect();
        bail!("there is no such table; there are: {}", names.join(", "));
    }
    for table in tables {
        table.record().with_context(|| format!("the table {}", table.name))?;
    }
    Ok(())
}

impl Table {
    fn record(&self) -> Result<()> {
        let directory = root().join(self.directory);
        let original: Box<Ask<'_>> = match self.original {
            Original::Program(module, package) => {
                let program = program(module, package)?;
                Box::new(move |cases| ask(&program, self.name, cases))
            }
            Original::KyvernoTest => Box::new(suites::record),
        };
        let mut changed = 0;
        for file in files(&directory)? {
            let text = fs::read_to_string(&file)?;
            let new = recorded(&file, &text, original.as_ref())?;
            if new != text {
                fs::write(&file, new)?;
                eprintln!("{}: changed", file.display());
                changed += 1;
            }
        }
        eprintln!("{}: {changed} files changed", self.name);
        Ok(())
    }
}

/// Asks an original about cases: what it is, and one result for each.
type Ask<'a> = dyn Fn(&[serde_json::Value]) -> Result<(String, Vec<serde_json::Value>)> + 'a;

/// The text of a file with what the original says now.
fn recorded(file: &Path, text: &str, original: &Ask<'_>) -> Result<String> {
    let shown = file.display().to_string();
    let documents = read_bytes(&shown, text.as_bytes(), ReadOptions::kubernetes())
        .map_err(|problem| anyhow!("{shown}: {problem:?}"))?;
    let cases = documents
        .first()
        .and_then(|document| document.value().get("cases"))
        .and_then(Value::as_list)
        .with_context(|| format!("{shown} has no list `cases`"))?;
    let inputs: Vec<serde_json::Value> = cases.iter().map(inputs).collect::<Result<_>>()?;
    let (tool, results) = original(&inputs)?;
    ensure!(results.len() == cases.len(), "{} results for {} cases", results.len(), cases.len());
    let filled = cases.iter().zip(&results).map(|(case, result)| with_result(case, result));
    let filled: Vec<Value> = filled.collect::<Result<_>>()?;
    let table: Map = [("recorded", Value::from(tool)), ("cases", filled.into_iter().collect())]
        .into_iter()
        .collect();
    let mut out = String::new();
    emit_into(&mut out, &Value::Map(table), &EmitOptions { key_order: KeyOrder::AsIs });
    Ok(out)
}

/// The table files of a directory, by name.
fn files(directory: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(directory).with_context(|| directory.display().to_string())?;
    let mut files: Vec<PathBuf> = entries.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    files.retain(|file| file.extension().is_some_and(|ending| ending == "yaml"));
    files.sort();
    Ok(files)
}

/// What people wrote of a case, as JSON.
fn inputs(case: &Value) -> Result<serde_json::Value> {
    let map = case.as_map().context("a case must be a map")?;
    let kept = map
        .iter()
        .filter(|(key, _)| !RECORDED.contains(&key.as_str()) && !AFTER.contains(&key.as_str()));
    let kept: Map = kept.map(|(key, value)| (key.as_str(), value.clone())).collect();
    Ok(serde_json::from_str(&json::to_string(&Value::Map(kept)))?)
}

/// A case with a new result: name and inputs, result, what Kiln does otherwise.
fn with_result(case: &Value, result: &serde_json::Value) -> Result<Value> {
    let map = case.as_map().context("a case must be a map")?;
    let result = json::parse(&result.to_string()).map_err(|problem| anyhow!("{problem}"))?;
    let result = result.as_map().context("a result must be a map")?;
    ensure!(
        result.iter().all(|(key, _)| RECORDED.contains(&key.as_str())) && result.len() == 1,
        "a result has either `output` or `error`"
    );
    let own = |after: bool| {
        map.iter().filter(move |(key, _)| {
            !RECORDED.contains(&key.as_str()) && AFTER.contains(&key.as_str()) == after
        })
    };
    let entries = own(false).chain(result.iter()).chain(own(true));
    Ok(Value::Map(entries.map(|(key, value)| (key.as_str(), value.clone())).collect()))
}

/// Builds a program of a Go module.
fn program(module: &str, package: &str) -> Result<PathBuf> {
    let program = root().join("target/recorders").join(module.replace('/', "-"));
    let status = Command::new("go")
        .args(["build", "-o"])
        .arg(&program)
        .arg(package)
        .current_dir(root().join(module))
        .status()
        .context("cannot start go: recording needs Go 1.26 or newer")?;
    ensure!(status.success(), "{module} does not build");
    Ok(program)
}

/// The program that answers for Kyverno's languages.
pub(crate) fn kyverno() -> Result<PathBuf> {
    program(KYVERNO, "./record")
}

/// The program that answers for kustomize.
pub(crate) fn kustomize() -> Result<PathBuf> {
    program(KUSTOMIZE, ".")
}

/// Sends cases to a program; what it is, and its results.
pub(crate) fn ask(
    program: &Path,
    table: &str,
    cases: &[serde_json::Value],
) -> Result<(String, Vec<serde_json::Value>)> {
    let mut child = Command::new(program)
        .arg(table)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start {}", program.display()))?;
    let stdin = child.stdin.take().context("no standard input")?;
    let question = serde_json::json!({ "cases": cases });
    let writer = std::thread::spawn(move || serde_json::to_writer(stdin, &question));
    let output = child.wait_with_output()?;
    writer.join().expect("writing does not panic")?;
    ensure!(output.status.success(), "{} failed", program.display());
    let mut answer: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    let tool = answer["recorded"].as_str().context("the answer names no tool")?.to_owned();
    match answer["results"].take() {
        serde_json::Value::Array(results) => Ok((tool, results)),
        _ => bail!("the answer has no results"),
    }
}
