//! Recorded cases: the suites of policies in CEL that check, and of rules that check expressions and Pod Security, from
//! Kyverno's command line and from its policy library.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use kiln_engine::NoExternalData;
use kiln_jmespath::AmbientSources;
use kiln_suites::{Selector, SuiteOptions, Verdict, run};
use kiln_testkit::{Tally, corpus, corpus_json};
use kiln_value::Value;
use kiln_yaml::ReadOptions;

use crate::recorded::Disk;

const KINDS: [&str; 4] =
    ["ValidatingPolicy", "ValidatingAdmissionPolicy", "validate.cel", "validate.podSecurity"];

fn texts<'v>(value: &'v Value, key: &str) -> Vec<&'v str> {
    let list = value.get(key).and_then(Value::as_list);
    list.into_iter().flat_map(|list| list.iter()).filter_map(Value::as_str).collect()
}

/// A day in 2026.
struct Clock;

impl AmbientSources for Clock {
    fn now(&self) -> Option<SystemTime> {
        Some(UNIX_EPOCH + Duration::from_secs(1_790_000_000))
    }
}

/// Each suite is a case: it passes as a whole or not.
fn suite(tally: &mut Tally, folder: &str, path: &str) {
    let options = SuiteOptions {
        definitions: &[],
        services: &NoExternalData,
        sources: &Clock,
        selector: Selector::default(),
        read: ReadOptions::kubernetes(),
    };
    tally.case(folder, || {
        let suite = run(path, &Disk, &options);
        if suite.is_broken() {
            let said: Vec<_> = suite.problems.iter().map(ToString::to_string).collect();
            return Err(said.join("; "));
        }
        let wrong = suite
            .rows
            .iter()
            .filter(|row| matches!(row.verdict, Verdict::Failed | Verdict::NotRun));
        let wrong: Vec<_> = wrong.map(|row| format!("{}: {}", row.resource, row.reason)).collect();
        if wrong.is_empty() { Ok(()) } else { Err(wrong.join("; ")) }
    });
}

#[test]
fn suites_of_the_command_line_pass() {
    let (Some(root), Some(index)) =
        (corpus("kyverno-cli-validate/cases"), corpus_json("kyverno-cli-validate/index.json"))
    else {
        return;
    };
    let mut tally = Tally::new("suites of policies in CEL that check");
    for entry in index.as_list().unwrap() {
        let is_meant = texts(entry, "kinds").iter().any(|kind| KINDS.contains(kind));
        if is_meant && entry.str_at(["kyverno", "outcome"]) == Some("pass") {
            let folder = entry.str_at(["dir"]).unwrap();
            let path = root.join(folder).join("kyverno-test.yaml").display().to_string();
            suite(&mut tally, folder, &path);
        }
    }
    tally.finish();
}

#[test]
fn suites_of_the_policy_library_pass() {
    let (Some(root), Some(index)) =
        (corpus("policy-library"), corpus_json("policy-library/index.json"))
    else {
        return;
    };
    let mut tally = Tally::new("suites of the policy library, in CEL and Pod Security");
    for policy in index.get("policies").and_then(Value::as_list).unwrap() {
        let kind = policy.str_at(["kind"]).unwrap();
        let is_meant =
            KINDS.contains(&kind) || texts(policy, "rules").iter().any(|rule| KINDS.contains(rule));
        let needs_registry = policy.get("registry").and_then(Value::as_bool) == Some(true);
        if !is_meant || needs_registry {
            continue;
        }
        for entry in policy.get("suites").and_then(Value::as_list).into_iter().flatten() {
            if entry.str_at(["kyverno", "outcome"]) == Some("pass") {
                let folder = entry.str_at(["dir"]).unwrap();
                let path = root.join(folder).join("kyverno-test.yaml").display().to_string();
                suite(&mut tally, folder, &path);
            }
        }
    }
    tally.finish();
}
