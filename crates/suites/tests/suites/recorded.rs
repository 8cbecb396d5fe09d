//! Recorded cases: the suites of Kyverno's command line.

use std::path::Path;

use kiln_diagnostic::Diagnostic;
use kiln_jmespath::NoAmbientSources;
use kiln_suites::{Files, Report, Selector, SuiteOptions, Verdict, run};
use kiln_testkit::{Tally, corpus, corpus_json};
use kiln_value::Value;
use kiln_yaml::ReadOptions;

pub(crate) struct Disk;

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
    suites_of("kyverno-cli", name, &[], |entry| {
        let kinds = entry.get("kinds").and_then(Value::as_list).expect("kinds");
        let kinds: Vec<&str> = kinds.iter().filter_map(Value::as_str).collect();
        wanted(&kinds) && entry.get("missing").is_none()
    })
}

/// The suites of a corpus that are wanted, by folder; what each result comes to is a case. Those that fail for a reason are
/// listed with it.
fn suites_of(
    corpus_name: &str,
    name: &str,
    known: &[(&str, &str)],
    wanted: impl Fn(&Value) -> bool,
) -> Option<Report> {
    let root = corpus(&format!("{corpus_name}/cases"))?;
    let index = corpus_json(&format!("{corpus_name}/index.json"))?;
    let mut tally = Tally::new(name);
    let options = SuiteOptions {
        definitions: &[],
        services: &kiln_engine::NoExternalData,
        sources: &NoAmbientSources,
        selector: Selector::default(),
        read: ReadOptions::kubernetes(),
    };
    for (case, why) in known {
        tally.known_failure(*case, *why);
    }
    let mut report = Report::default();
    for entry in index.as_list().expect("a list of suites").iter().filter(|entry| wanted(entry)) {
        let folder = entry.str_at(["dir"]).expect("a folder");
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
    // 41 results in 24 suites: one has two targets.
    assert_eq!(report.suites.len(), 24);
    assert_eq!((counts.passed, counts.excluded, counts.not_run), (42, 0, 0));
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

/// Whether Kyverno itself passes a suite.
fn passes(entry: &Value) -> bool {
    entry.str_at(["kyverno", "outcome"]) == Some("pass")
}

#[test]
fn suites_of_validate_rules_pass() {
    let Some(report) =
        suites_of("kyverno-cli-validate", "suites of validate rules", &[], |entry| {
            let kinds = entry.get("kinds").and_then(Value::as_list).expect("kinds");
            let of_rules =
                |kind: &Value| kind.as_str().is_some_and(|kind| kind.starts_with("validate."));
            kinds.iter().any(of_rules) && passes(entry) && entry.get("mustFail").is_none()
        })
    else {
        return;
    };
    assert_eq!(report.counts().broken, 0);
}

#[test]
fn suites_of_deleting_policies_pass() {
    let name = "suites of deleting policies";
    let Some(report) = suites_of("kyverno-cli-validate", name, &[], |entry| {
        let kinds = entry.get("kinds").and_then(Value::as_list).expect("kinds");
        kinds.iter().any(|kind| kind.as_str() == Some("DeletingPolicy")) && passes(entry)
    }) else {
        return;
    };
    let counts = report.counts();
    assert_eq!((report.suites.len(), counts.broken, counts.failed), (7, 0, 0));
    assert_eq!((counts.passed, counts.excluded, counts.not_run), (13, 0, 0));
}

/// Kyverno's own workflow wants its command line to fail on these.
#[test]
fn suites_that_must_fail_are_not_green() {
    let (Some(root), Some(index)) =
        (corpus("kyverno-cli-validate/cases"), corpus_json("kyverno-cli-validate/index.json"))
    else {
        return;
    };
    let options = SuiteOptions {
        definitions: &[],
        services: &kiln_engine::NoExternalData,
        sources: &NoAmbientSources,
        selector: Selector::default(),
        read: ReadOptions::kubernetes(),
    };
    let mut count = 0;
    for entry in index.as_list().unwrap().iter().filter(|entry| entry.get("mustFail").is_some()) {
        let folder = entry.str_at(["dir"]).unwrap();
        let path = root.join(folder).join("kyverno-test.yaml").display().to_string();
        let ran = run(&path, &Disk, &options);
        let failed = ran.rows.iter().any(|row| row.verdict == Verdict::Failed);
        assert!(failed || ran.is_broken(), "{folder} is green");
        count += 1;
    }
    assert!(count > 0, "no suite must fail");
}

#[test]
fn suites_of_the_policy_library_pass() {
    let Some(root) = corpus("policy-library") else { return };
    let Some(index) = corpus_json("policy-library/index.json") else { return };
    let policies = index.get("policies").and_then(Value::as_list).expect("policies");
    let mut tally = Tally::new("suites of the policy library");
    tally.known_failure("other/block-stale-images/.kyverno-test", "its rule needs a clock");
    let options = SuiteOptions {
        definitions: &[],
        services: &kiln_engine::NoExternalData,
        sources: &NoAmbientSources,
        selector: Selector::default(),
        read: ReadOptions::kubernetes(),
    };
    let of_rules =
        policies.iter().filter(|policy| policy.str_at(["kind"]) == Some("ClusterPolicy"));
    for suite in of_rules.filter_map(|policy| policy.get("suites")?.as_list()).flatten() {
        let folder = suite.str_at(["dir"]).expect("a folder");
        if !passes(suite) {
            tally.leave_out();
            continue;
        }
        let path = root.join(folder).join("kyverno-test.yaml").display().to_string();
        let ran = run(&path, &Disk, &options);
        if ran.rows.iter().any(|row| row.verdict == Verdict::NotRun) {
            tally.leave_out();
            continue;
        }
        tally.case(folder, || {
            let failed = ran.rows.iter().filter(|row| row.verdict == Verdict::Failed);
            let reasons: Vec<String> =
                failed.map(|row| format!("{}: {}", row.resource, row.reason)).collect();
            match ran.is_broken() || !reasons.is_empty() {
                true => Err(format!("{reasons:?} {:?}", ran.problems)),
                false => Ok(()),
            }
        });
    }
    tally.finish();
}
