//! Kyverno's policy library: what becomes of its rules, and whether both sides mean the same.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use kiln_convert::{CheckOptions, RuleVerdict, Target, Verdict, convert, verdicts};
use kiln_object::Kinds;
use kiln_testkit::corpus;
use kiln_value::Value;
use kiln_yaml::{Document, ReadOptions, read_bytes};

/// A policy of the library, with its document.
pub(crate) struct LibraryPolicy {
    pub(crate) file: String,
    pub(crate) document: Document,
}

/// The ClusterPolicies of the library.
pub(crate) fn policies(root: &Path) -> Vec<LibraryPolicy> {
    let index = std::fs::read_to_string(root.join("index.json")).expect("the index can be read");
    let index = kiln_value::json::parse(&index).expect("the index is JSON");
    let listed = index.get("policies").and_then(Value::as_list).expect("the index has policies");
    let mut found = Vec::new();
    for policy in listed.iter().filter(|policy| policy.str_at(["kind"]) == Some("ClusterPolicy")) {
        let file = format!(
            "{}/{}",
            policy.str_at(["dir"]).unwrap_or_default(),
            policy.str_at(["file"]).unwrap_or_default()
        );
        let bytes = std::fs::read(root.join(&file)).expect("the policy can be read");
        let Ok(documents) = read_bytes(&file, &bytes, ReadOptions::kubernetes()) else { continue };
        for document in documents {
            if document.value().str_at(["kind"]) == Some("ClusterPolicy") {
                found.push(LibraryPolicy { file: file.clone(), document });
            }
        }
    }
    found
}

/// How many rules have which verdict, and how many of those that are equal except for some inputs were surprising.
#[derive(Debug, Default)]
struct Shares {
    total: usize,
    by_verdict: BTreeMap<Verdict, usize>,
    surprising: usize,
    mutants: usize,
    noticed: usize,
    report: String,
}

impl Shares {
    fn add(&mut self, file: &str, found: &RuleVerdict) {
        self.total += 1;
        *self.by_verdict.entry(found.verdict).or_default() += 1;
        self.surprising += usize::from(found.is_surprising());
        if let Some(evidence) = &found.evidence {
            self.mutants += evidence.mutants_made;
            self.noticed += evidence.mutants_noticed;
        }
        let rule = &found.rule;
        let _ =
            writeln!(self.report, "{} {} {file} {}", found.verdict.as_str(), rule.form, rule.rule);
        if let Some(obstacle) = &rule.obstacle {
            let _ = writeln!(self.report, "    {obstacle}: {}", obstacle.advice);
        }
        for difference in &found.found {
            let object = kiln_value::json::to_string(&difference.input.object);
            let _ = writeln!(
                self.report,
                "    found {:?} {} old {} new {} x{}: {object}\n        old: {:?}\n        new: {:?}",
                difference.kind,
                difference.input.operation.as_str(),
                difference.old.word,
                difference.new.word,
                difference.count,
                difference.old.messages,
                difference.new.messages,
            );
        }
    }
}

#[test]
fn rules_of_the_library_are_converted_and_mean_the_same() {
    let Some(root) = corpus("policy-library") else { return };
    let kinds = Kinds::builtin();
    let small = std::env::var_os("KILN_CONVERT_REPORT").is_some();
    let options = CheckOptions { seed: 1, inputs: 90, mutants: false, small };
    let mut shares = Shares::default();
    for policy in policies(&root) {
        let Ok(conversion) = convert(&policy.document, Target::Cel, &kinds) else { continue };
        for found in verdicts(&policy.document, &conversion, &kinds, &options) {
            shares.add(&policy.file, &found);
        }
    }
    if let Some(directory) = std::env::var_os("KILN_CONVERT_REPORT") {
        std::fs::write(Path::new(&directory), &shares.report).expect("the report can be written");
    }
    let count = |verdict: Verdict| shares.by_verdict.get(&verdict).copied().unwrap_or_default();
    let (equal, except) = (count(Verdict::Equal), count(Verdict::EqualExcept));
    let summary = format!(
        "{} rules: {equal} equal, {except} equal except ({} of them with a request that is not named), {} not convertible",
        shares.total,
        shares.surprising,
        count(Verdict::NotConvertible)
    );
    // A floor that only rises: 85 of 100 rules.
    assert!((equal + except) * 100 >= shares.total * 85, "{summary}\n{}", shares.report);
    assert!(equal + except >= 375 && equal >= 120, "{summary}");
    // Requests that are decided otherwise and that no conversion names: only fewer.
    assert!(shares.surprising <= 6, "{summary}\n{}", shares.report);
}
