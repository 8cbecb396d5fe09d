//! Recorded cases: the suites of Kyverno's command line.

use std::path::Path;

use kiln_diagnostic::Diagnostic;
use kiln_jmespath::NoSources;
use kiln_suites::{Files, Options, Report, Selector, Verdict, run};
use kiln_testkit::{Tally, corpus, corpus_json};
use kiln_value::Value;
use kiln_yaml::ReadOptions;

struct Disk;

impl Files for Disk {
    fn read(&self, path: &str) -> Result<Vec<u8>, Diagnostic> {
        std::fs::read(path).map_err(|error| Diagnostic::error(format!("{path}: {error}")))
    }

    fn below(&self, folder: &str) -> Option<Vec<String>> {
        let entries = std::fs::read_dir(folder).ok()?;
        let mut files: Vec<String> =
            entries.flatten().map(|entry| entry.path().display().to_string()).collect();
        files.retain(|file| Path::new(file).is_file());
        files.sort();
        Some(files)
    }
}

/// Suites with these kinds of policies, by folder; what each result comes to is a case.
fn suites(name: &str, wanted: fn(&[&str]) -> bool) -> Option<Report> {
    let root = corpus("kyverno-cli/cases")?;
    let index = corpus_json("kyverno-cli/index.json")?;
    let mut tally = Tally::new(name);
    let options = Options {
        definitions: &[],
        services: &kiln_engine::NoExternalData,
        sources: &NoSources,
        selector: Selector::default(),
        read: ReadOptions::kubernetes(),
    };
    let mut report = Report::default();
    for entry in index.as_list().expect("a list of suites") {
        let kinds = entry.get("kinds").and_then(Value::as_list).expect("kinds");
        let kinds: Vec<&str> = kinds.iter().filter_map(Value::as_str).collect();
        let folder = entry.str_at(["dir"]).expect("a folder");
        if !wanted(&kinds) || entry.get("missing").is_some() {
            continue;
        }
        let path = root.join(folder).join("kyverno-test.yaml").display().to_string();
        let suite = run(&path, &Disk, &options);
        if suite.is_broken() {
            let said: Vec<_> = suite.problems.iter().map(ToString::to_string).collect();
            tally.case(folder, || Err(said.join("; ")));
        }
        for (at, row) in suite.rows.iter().enumerate() {
            match row.verdict {
                Verdict::NotRun => tally.leave_out(),
                verdict => tally.case(&format!("{folder} {at}"), || match verdict {
                    Verdict::Failed => {
                        let diffs: Vec<_> =
                            row.differences.iter().map(|d| d.diff.as_str()).collect();
                        Err(format!("{}\n{}", row.reason, diffs.join("\n")))
                    }
                    _ => Ok(()),
                }),
            }
        }
        report.suites.push(suite);
    }
    tally.finish();
    Some(report)
}

#[test]
fn suites_of_generate_and_mutate_rules_pass() {
    let rules = |kinds: &[&str]| kinds.iter().all(|kind| ["generate", "mutate"].contains(kind));
    let Some(report) = suites("suites of generate and mutate rules", rules) else { return };
    let counts = report.counts();
    // 41 results in 24 suites: one has two targets, three are about validate rules.
    assert_eq!(report.suites.len(), 24);
    assert_eq!((counts.passed, counts.excluded, counts.not_run), (39, 0, 3));
    // Not counted: one that expects a failure because its file has no such object, and those without files.
    assert_eq!(counts.compared, 36);
}

#[test]
fn suites_of_policies_in_cel_pass() {
    let in_cel = |kinds: &[&str]| !kinds.iter().any(|kind| ["generate", "mutate"].contains(kind));
    let Some(report) = suites("suites of policies in CEL", in_cel) else { return };
    let counts = report.counts();
    assert_eq!((report.suites.len(), counts.not_run, counts.excluded), (29, 0, 0));
    assert_eq!((counts.passed, counts.compared), (36, 46));
}
