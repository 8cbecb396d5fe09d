//! The hand-made twins of the library: pairs of policies in both languages that are meant to be equal.

use std::path::Path;

use kiln_equivalence::{Comparison, DifferenceKind, PolicySide, compare};
use kiln_object::Kinds;
use kiln_testkit::corpus;
use kiln_value::Value;
use kiln_yaml::{ReadOptions, read_bytes};

/// A pair of policies that are meant to be equal.
pub(crate) struct TwinPair {
    /// The file of the one in CEL.
    pub(crate) name: String,
    pub(crate) old: PolicySide,
    pub(crate) new: PolicySide,
    /// Their documents, the old one first.
    pub(crate) documents: [Value; 2],
}

/// All pairs of the library that can be compiled.
pub(crate) fn twins(root: &Path, kinds: &Kinds) -> Vec<TwinPair> {
    let index = std::fs::read_to_string(root.join("index.json")).expect("the index can be read");
    let index = kiln_value::json::parse(&index).expect("the index is JSON");
    let twins = index.get("twins").and_then(Value::as_list).expect("the index has twins");
    let pair = |twin: &Value| {
        let file = |field: &str| twin.str_at([field]).unwrap_or_default().to_owned();
        let (old, new) = (side(root, &file("kyverno"), kinds)?, side(root, &file("cel"), kinds)?);
        let documents = [&old, &new].map(|side| side.documents[0].clone());
        Some(TwinPair { name: file("cel"), old, new, documents })
    };
    twins.iter().filter_map(pair).collect()
}

fn side(root: &Path, file: &str, kinds: &Kinds) -> Option<PolicySide> {
    let bytes = std::fs::read(root.join(file)).ok()?;
    let documents = read_bytes(file, &bytes, ReadOptions::kubernetes()).ok()?;
    let compiled = kiln_dialects::compile(&documents, kinds);
    if compiled.has_errors() || compiled.policies.is_empty() {
        return None;
    }
    let values = documents.iter().map(|document| document.value().clone()).collect();
    Some(PolicySide::new(compiled.policies, compiled.exceptions, values))
}

#[test]
fn twins_are_compared_and_their_differences_are_found() {
    let Some(root) = corpus("policy-library") else { return };
    let kinds = Kinds::builtin();
    let small = std::env::var_os("KILN_CONVERT_REPORT").is_some();
    let (mut compared, mut equal, mut differ) = (0, 0, 0);
    let mut report = String::new();
    for TwinPair { name, old, new, .. } in twins(&root, &kinds) {
        compared += 1;
        let comparison = Comparison {
            old: &old,
            new: &new,
            kinds: &kinds,
            seed: 1,
            inputs: 90,
            given: Vec::new(),
            small,
        };
        let evidence = compare(&comparison);
        let decided: Vec<_> = evidence
            .differences
            .iter()
            .filter(|found| found.kind != DifferenceKind::Report)
            .collect();
        match decided.is_empty() {
            true => equal += 1,
            false => differ += 1,
        }
        for found in decided {
            let object = kiln_value::json::to_string(&found.input.object);
            report += &format!(
                "{}: {:?} {} x{}: {object}\n    old {} {:?}\n    new {} {:?}\n",
                name,
                found.kind,
                found.input.operation.as_str(),
                found.count,
                found.old.word,
                found.old.messages,
                found.new.word,
                found.new.messages
            );
        }
    }
    report += &format!("{compared} pairs: {equal} equal, {differ} different\n");
    if let Some(path) = std::env::var_os("KILN_CONVERT_REPORT") {
        std::fs::write(Path::new(&path).with_extension("twins"), &report)
            .expect("the report can be written");
    }
    // Nearly all pairs differ somewhere, if only on DELETE and ReplicationControllers; what matters is that pairs are
    // compared, and that differences are found at all.
    assert!(compared >= 150, "{report}");
    assert!(differ > 0 && equal > 0, "{report}");
}
