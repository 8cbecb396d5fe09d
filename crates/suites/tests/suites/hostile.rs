//! Odd and hostile suites: each runs to its end, and says what is wrong.

use std::collections::BTreeMap;

use kiln_diagnostic::Diagnostic;
use kiln_jmespath::NoAmbientSources;
use kiln_suites::{Files, Report, Selector, Suite, SuiteOptions, Verdict, junit, run};
use kiln_yaml::ReadOptions;

/// Files in memory.
#[derive(Default)]
struct Memory(BTreeMap<String, String>);

impl Memory {
    fn with(files: &[(&str, &str)]) -> Self {
        let own = |(name, text): &(&str, &str)| ((*name).to_owned(), (*text).to_owned());
        Memory(files.iter().map(own).collect())
    }
}

impl Files for Memory {
    fn read(&self, path: &str) -> Result<Vec<u8>, Diagnostic> {
        let found = self.0.get(path).map(|text| text.clone().into_bytes());
        found.ok_or_else(|| Diagnostic::error(format!("there is no {path}")))
    }

    fn below(&self, folder: &str) -> Option<Vec<String>> {
        let prefix = format!("{folder}/");
        let below: Vec<String> =
            self.0.keys().filter(|path| path.starts_with(&prefix)).cloned().collect();
        (!below.is_empty()).then_some(below)
    }
}

const POLICY: &str = "
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: p}
spec:
  rules:
  - name: r
    match: {any: [{resources: {kinds: [ConfigMap]}}]}
    mutate: {patchStrategicMerge: {metadata: {labels: {a: b}}}}
";

const RESOURCE: &str =
    "{apiVersion: v1, kind: ConfigMap, metadata: {name: c, namespace: shop}, data: {}}";

fn suite(text: &str) -> Suite {
    let files = Memory::with(&[
        ("t/s.yaml", text),
        ("t/p.yaml", POLICY),
        ("t/r.yaml", RESOURCE),
        ("t/bare.yaml", "{apiVersion: v1, kind: Pod, metadata: {name: c}}"),
    ]);
    let options = SuiteOptions {
        definitions: &[],
        services: &kiln_engine::NoExternalData,
        sources: &NoAmbientSources,
        selector: Selector::default(),
        read: ReadOptions::kubernetes(),
    };
    let suite = run("t/s.yaml", &files, &options);
    let report = Report { suites: vec![suite.clone()] };
    let _ = (junit(&report), report.as_value());
    suite
}

#[test]
fn documents_that_are_no_suites_say_so() {
    let mut wrong = Vec::new();
    for (text, said) in [
        ("", "is empty"),
        ("# nothing", "is empty"),
        ("[]", "map"),
        ("just text", "map"),
        ("a: 1\n---\nb: 2\n", "unknown field \"b\""),
        ("{kind: Test}", "names no policies"),
        ("policies: {a: b}", "policies"),
        ("policies: [p.yaml]\nresults: [1]", "results[0]"),
        ("policies: [p.yaml]\nresults: [{rule: r}]", "policy"),
        ("policies: [r.yaml]", "no policy in the files"),
        ("policies: [p.yaml]\nvariables: p.yaml", "unknown field"),
        ("policies: [p.yaml]\ncontext: r.yaml", "unknown field"),
        ("policies: [p.yaml]\ncontext: bare.yaml", "this is a Pod"),
        (
            "policies: [p.yaml]\nresults: [{policy: p, result: pass, rejectMessage: not here}]",
            "only a resource that is refused has a message",
        ),
        ("policies: [\"https://example.com/p.yaml\"]", "not on this machine"),
        ("policies: [../../../../etc/passwd]", "there is no ../../../etc/passwd"),
        ("policies: [p.yaml]\nglobalContextEntries: [{name: g}]", "neither data nor resources"),
        (
            "policies: [p.yaml]\nglobalContextEntries: [{name: g, data: {}, fieldPath: \"[\"}]",
            "fieldPath",
        ),
    ] {
        let found = suite(text);
        let all: Vec<_> = found.problems.iter().map(ToString::to_string).collect();
        if !found.is_broken() || !all.iter().any(|problem| problem.contains(said)) {
            wrong.push(format!("{text:?}: {all:?}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn names_may_hold_anything() {
    let odd = "policies: [p.yaml]\nresources: [r.yaml]\nresults:\n\
               - {policy: \"\\e]0;x\\a\", rule: \"\", resources: [\"a/b/c\", \"\", \"/\"], result: pass}\n\
               - {policy: p, rule: r, resources: [\"shop/c\"], result: pass}\n";
    let found = suite(odd);
    assert!(found.is_broken());
    // What makes no sense is said; the rest runs all the same.
    assert_eq!(found.rows.len(), 1, "{:?}", found.problems);
    assert_eq!(found.rows[0].verdict, Verdict::Passed);
}

#[test]
fn many_results_for_many_resources_take_one_run() {
    let mut resources = String::new();
    let mut results = String::from("policies: [p.yaml]\nresources: [many.yaml]\nresults:\n");
    for number in 0..300 {
        resources.push_str(&format!(
            "---\n{}\n",
            RESOURCE.replace("name: c", &format!("name: c{number}"))
        ));
        results
            .push_str(&format!("- {{policy: p, rule: r, resources: [c{number}], result: pass}}\n"));
    }
    let files =
        Memory::with(&[("s.yaml", &results), ("p.yaml", POLICY), ("many.yaml", &resources)]);
    let options = SuiteOptions {
        definitions: &[],
        services: &kiln_engine::NoExternalData,
        sources: &NoAmbientSources,
        selector: Selector::default(),
        read: ReadOptions::kubernetes(),
    };
    let found = run("s.yaml", &files, &options);
    assert!(!found.is_broken());
    assert_eq!(found.rows.iter().filter(|row| row.verdict == Verdict::Passed).count(), 300);
}
