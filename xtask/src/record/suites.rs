//! What Kyverno's command line says of test suites: one run of `kyverno test` for each case.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::bench::kyverno;

/// The version of Kyverno, and for each case the rows of its table, or why there is none.
pub(super) fn record(cases: &[Value]) -> Result<(String, Vec<Value>)> {
    let program = kyverno::program("cli/kubectl-kyverno")?;
    let mut results = Vec::new();
    for case in cases {
        let name = case["name"].as_str().unwrap_or_default();
        results.push(result(&program, case).with_context(|| format!("case {name:?}"))?);
    }
    Ok((format!("Kyverno {}, kyverno test", kyverno::version()?), results))
}

fn result(program: &Path, case: &Value) -> Result<Value> {
    let directory = tempfile::tempdir()?;
    let files = case["files"].as_object().context("`files` must be a map of paths to texts")?;
    for (path, text) in files {
        let path = directory.path().join(path);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::write(path, text.as_str().context("a file must be text")?)?;
    }
    let said = Command::new(program)
        .args(["test", ".", "--output-format", "json", "--remove-color"])
        .current_dir(directory.path())
        .output()
        .context("cannot start Kyverno's command line")?;
    let (out, err) = (String::from_utf8(said.stdout)?, String::from_utf8(said.stderr)?);
    if let Some(rows) = rows(&out)? {
        return Ok(json!({"output": rows}));
    }
    let of_directory = directory.path().display().to_string();
    match failure(&out, &err) {
        Some(failure) => Ok(json!({"error": failure.replace(&of_directory, ".")})),
        None => bail!("neither a table nor an error: {out}{err}"),
    }
}

/// The rows of the table, which stands between lines of text. Kyverno walks over maps, so their order is sorted here.
fn rows(out: &str) -> Result<Option<Vec<Value>>> {
    let mut before = 0;
    let table = out.split_inclusive('\n').find_map(|line| {
        let start = before;
        before += line.len();
        line.starts_with('[').then_some(&out[start..])
    });
    let Some(table) = table else { return Ok(None) };
    let table = serde_json::Deserializer::from_str(table).into_iter::<Vec<Value>>().next();
    let Some(table) = table.transpose()? else { return Ok(None) };
    let text = |row: &Value, column: &str| row[column].as_str().unwrap_or_default().to_owned();
    let mut rows: Vec<[String; 5]> = table
        .iter()
        .map(|row| ["POLICY", "RULE", "RESOURCE", "RESULT", "REASON"].map(|name| text(row, name)))
        .collect();
    rows.sort();
    let rows = rows.into_iter().map(|[policy, rule, resource, result, reason]| {
        json!({"policy": policy, "rule": rule, "resource": resource, "result": result, "reason": reason})
    });
    Ok(Some(rows.collect()))
}

/// Why a suite cannot be used, in Kyverno's words.
fn failure(out: &str, err: &str) -> Option<String> {
    let lines = || out.lines().chain(err.lines()).map(str::trim);
    let crash = lines().find(|line| line.starts_with("panic: "));
    let error = || lines().find_map(|line| line.strip_prefix("Error: "));
    crash.or_else(error).map(str::to_owned)
}
