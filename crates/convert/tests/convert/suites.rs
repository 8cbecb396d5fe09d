//! The resources of the library's own suites: the converted policy treats each as the old one does.

use std::path::Path;

use kiln_convert::{Target, convert};
use kiln_equivalence::{Input, PolicySide, outcome};
use kiln_object::{Gvk, Kinds, list};
use kiln_offline::with_namespace;
use kiln_rules::Operation;
use kiln_testkit::corpus;
use kiln_value::{Str, Value};
use kiln_yaml::{Document, ReadOptions, read_bytes};

use crate::library::policies;

/// The resources that the suite beside a policy names.
fn resources(root: &Path, file: &str, kinds: &Kinds) -> Vec<Value> {
    let directory =
        root.join(file).parent().map(|parent| parent.join(".kyverno-test")).unwrap_or_default();
    let Ok(bytes) = std::fs::read(directory.join("kyverno-test.yaml")) else { return Vec::new() };
    let Ok(suite) = read_bytes("suite", &bytes, ReadOptions::kubernetes()) else {
        return Vec::new();
    };
    let named =
        suite.iter().filter_map(|document| document.value().get("resources")?.as_list().cloned());
    let named: Vec<Value> = named.flat_map(kiln_value::List::into_vec).collect();
    let mut found = Vec::new();
    for name in named.iter().filter_map(Value::as_str) {
        let Ok(bytes) = std::fs::read(directory.join(name)) else { continue };
        let Ok(documents) = read_bytes(name, &bytes, ReadOptions::kubernetes()) else { continue };
        let objects =
            documents.into_iter().flat_map(|document| list::flatten(document.into_value()));
        found.extend(objects.map(|object| with_namespace(object, kinds)));
    }
    found
}

/// How many resources of suites converted policies treat as the old ones do.
#[derive(Debug, Default)]
pub(crate) struct SuiteTally {
    pub(crate) tried: usize,
    pub(crate) alike: usize,
    pub(crate) report: String,
}

pub(crate) fn tally(root: &Path, kinds: &Kinds) -> SuiteTally {
    let SuiteTally { mut tried, mut alike, mut report } = SuiteTally::default();
    for policy in policies(root) {
        let resources = resources(root, &policy.file, kinds);
        let Ok(conversion) = convert(&policy.document, Target::Cel, kinds) else { continue };
        let compiled = kiln_dialects::compile([&policy.document], kinds);
        let Some(old) = compiled.policies.first() else { continue };
        for (number, converted) in conversion.documents.iter().enumerate() {
            let names: Vec<&str> = conversion
                .rules
                .iter()
                .filter(|rule| rule.documents.contains(&number))
                .map(|rule| rule.rule.as_str())
                .collect();
            let old = PolicySide::of_rules(old, &names, policy.document.value().clone());
            let read =
                Document::from_value("new", converted.value.clone(), ReadOptions::kubernetes());
            let new =
                PolicySide::new(kiln_dialects::compile([&read], kinds).policies, [], Vec::new());
            for object in &resources {
                let Some(kind) = Gvk::of(object) else { continue };
                let input = Input {
                    operation: Operation::Create,
                    kind,
                    subresource: Str::default(),
                    object: object.clone(),
                    old_object: None,
                    user: None,
                    others: resources.clone(),
                };
                let (was, is) = (outcome(&old, &input, kinds), outcome(&new, &input, kinds));
                tried += 1;
                if was.refuses() == is.refuses() && (was.refuses() || was.object == is.object) {
                    alike += 1;
                } else {
                    let name = object.str_at(["metadata", "name"]).unwrap_or_default();
                    report += &format!(
                        "{} {names:?} {name}: old {} {:?}, new {} {:?}\n",
                        policy.file, was.word, was.messages, is.word, is.messages
                    );
                }
            }
        }
    }
    SuiteTally { tried, alike, report }
}

#[test]
fn converted_policies_treat_the_resources_of_suites_alike() {
    let Some(root) = corpus("policy-library") else { return };
    let SuiteTally { tried, alike, report } = tally(&root, &Kinds::builtin());
    if let Some(path) = std::env::var_os("KILN_CONVERT_REPORT") {
        std::fs::write(Path::new(&path).with_extension("suites"), &report)
            .expect("the report can be written");
    }
    assert!(tried > 1000, "only {tried} resources");
    // A floor that only rises.
    assert!(alike * 100 >= tried * 98, "{alike} of {tried} resources are treated alike\n{report}");
}
