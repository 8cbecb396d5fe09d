//! Suites of the repository's own, with what Kyverno's command line says of them.

use std::collections::BTreeMap;

use kiln_diagnostic::{Diagnostic, Severity};
use kiln_jmespath::NoAmbientSources;
use kiln_suites::{Files, Row, Selector, Suite, SuiteOptions, Verdict, run};
use kiln_testkit::{Case, Expected, cases, difference};
use kiln_value::Value;
use kiln_yaml::ReadOptions;

/// Cases that fail, with the reason.
const KNOWN: &[(&str, &str)] = &[(
    "mutate.yaml: null among annotations",
    "Kyverno refuses a policy whose patch has a label or annotation that is no text; Kiln deletes it",
)];

#[test]
fn suites_end_as_kyverno_says() {
    cases("suites", concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cases"), KNOWN, check);
}

fn check(case: &Case) -> Result<(), String> {
    let suite = suite(case);
    let said: Vec<String> = suite
        .problems
        .iter()
        .filter(|problem| problem.severity == Severity::Error)
        .map(ToString::to_string)
        .collect();
    match case.expected() {
        Expected::Error(error) if said.is_empty() => {
            Err(format!("it should fail, as in: {error}\n{}", rows(&suite).join("\n")))
        }
        // The words are Kiln's own; where it deliberately differs, they are part of the case.
        Expected::Error(error) if case.differs() && !said.iter().any(|s| s.contains(error)) => {
            Err(format!("it should say {error:?}, and says\n{}", said.join("\n")))
        }
        Expected::Error(_) => Ok(()),
        Expected::Output(_) if !said.is_empty() => Err(said.join("\n")),
        Expected::Output(wanted) => {
            let wanted = wanted.as_list().ok_or("`output` must be a list of rows")?;
            let mut wanted: Vec<String> = wanted.iter().map(wanted_row).collect();
            wanted.sort();
            let told = |row: &Row| format!("{}: {}", row.resource, row.reason);
            let told: Vec<String> = suite.rows.iter().map(told).collect();
            match difference(&wanted.join("\n"), &rows(&suite).join("\n")) {
                Some(difference) => Err(format!("{difference}\n{}", told.join("\n"))),
                None => Ok(()),
            }
        }
    }
}

/// A row as Kyverno has it: `apps/v1/Deployment/shop/web`, or only the name of an object that a rule made.
fn wanted_row(row: &Value) -> String {
    let text = |column: &str| row.str_at([column]).unwrap_or_default();
    let mut parts = text("resource").rsplit('/');
    let (name, namespace, kind) = (parts.next(), parts.next(), parts.next());
    let namespace = namespace.filter(|namespace| !namespace.is_empty());
    let resource = match (kind, namespace, name.unwrap_or_default()) {
        (Some(kind), Some(namespace), name) => format!("{kind} {namespace}/{name}"),
        (Some(kind), None, name) => format!("{kind} {name}"),
        (None, _, name) => name.to_owned(),
    };
    line(text("policy"), text("rule"), &resource, text("result"), text("reason"))
}

/// A row without what each names in its own way: rules of policies that have only one, and the default namespace.
fn line(policy: &str, rule: &str, resource: &str, result: &str, reason: &str) -> String {
    let own = policy.rsplit('/').next().unwrap_or(policy);
    let unnamed = rule == own
        || rule.strip_prefix("autogen-") == Some(own)
        || ["exception", "evaluation"].contains(&rule);
    let rule = if unnamed { "" } else { rule };
    let resource = resource.replace(" default/", " ");
    format!("{policy} | {rule} | {resource} | {result} | {reason}")
}

/// The rows as Kyverno would have them. It has one for each object that a rule made, by its name alone.
fn rows(suite: &Suite) -> Vec<String> {
    let mut rows = Vec::new();
    for row in &suite.rows {
        // Kyverno passes in silence over what its file does not have.
        if row.verdict == Verdict::Passed && row.reason.starts_with("no expected object") {
            continue;
        }
        let (result, reason) = in_kyvernos_words(row);
        let made: Vec<&str> = row.message.split(", ").filter_map(made).collect();
        if made.is_empty() || row.got.is_none() {
            rows.push(line(&row.policy, &row.rule, &row.resource, result, &reason));
        }
        for made in made {
            // Of several objects only those that differ have failed.
            let differs = |name: &str| row.differences.iter().any(|d| d.object.name == name);
            let name = made.rsplit('/').next().unwrap_or(made);
            let (result, reason) = match reason.as_str() {
                "Resource diff" if !differs(name) => ("Pass", "Ok"),
                _ => (result, reason.as_str()),
            };
            rows.push(line(&row.policy, &row.rule, name, result, reason));
        }
    }
    rows.sort();
    rows
}

/// The object that a message says a rule made: not one that it changed.
fn made(part: &str) -> Option<&str> {
    let words = ["created ", "updated ", "unchanged ", "left alone "];
    words.iter().find_map(|word| part.strip_prefix(word))
}

fn in_kyvernos_words(row: &Row) -> (&'static str, String) {
    let reason = match row.verdict {
        Verdict::Passed => "Ok".to_owned(),
        Verdict::Excluded => "Excluded".to_owned(),
        Verdict::NotRun => "not run".to_owned(),
        Verdict::Failed if !row.differences.is_empty() => "Resource diff".to_owned(),
        Verdict::Failed if row.reason.starts_with("no expected object") => {
            "Resource error".to_owned()
        }
        Verdict::Failed => match row.got {
            Some(got) => format!("Want {}, got {got}", row.wanted),
            None => row.reason.clone(),
        },
    };
    let met = matches!(row.verdict, Verdict::Passed | Verdict::Excluded);
    (if met { "Pass" } else { "Fail" }, reason)
}

/// The files of a case.
struct Texts(BTreeMap<String, String>);

impl Files for Texts {
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

fn suite(case: &Case) -> Suite {
    let files = case.get("files").and_then(Value::as_map).expect("`files` must be a map");
    let texts = files.iter().map(|(path, text)| {
        let text = text.as_str().expect("a file must be text");
        (path.as_str().to_owned(), text.to_owned())
    });
    let options = SuiteOptions {
        definitions: &[],
        services: &kiln_engine::NoExternalData,
        sources: &NoAmbientSources,
        selector: Selector::default(),
        read: ReadOptions::kubernetes(),
    };
    run("kyverno-test.yaml", &Texts(texts.collect()), &options)
}
