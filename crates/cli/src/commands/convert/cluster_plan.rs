//! The order in which converted policies take the place of those that a cluster has.

use kiln_convert::ConvertedDocument;
use kiln_value::Value;

use super::Converted;
use crate::ui::{Ui, counted};

/// Says on standard error which steps move a cluster to the new policies. Nothing is done.
pub(super) fn show(ui: &Ui, all: &[Converted], exceptions: &[ConvertedDocument]) {
    for (number, step) in steps(all, exceptions).into_iter().enumerate() {
        ui.status(&format!("step {}: {step}", number + 1));
    }
}

/// The steps in their order: first what only checks or changes requests, then what generates, then what is left.
fn steps(all: &[Converted], exceptions: &[ConvertedDocument]) -> Vec<String> {
    let name = |one: &Converted| {
        one.source.value().str_at(["metadata", "name"]).unwrap_or_default().to_owned()
    };
    let kind = |one: &Converted| one.source.value().str_at(["kind"]).unwrap_or_default().to_owned();
    let is_whole =
        |one: &&Converted| one.verdicts.iter().all(|found| found.rule.obstacle.is_none());
    let generates = |one: &&Converted| one.conversion.documents.iter().any(is_generating);
    let mut steps = Vec::new();
    if !exceptions.is_empty() {
        let count = counted(exceptions.len(), "exception", "exceptions");
        steps.push(format!(
            "store {count} for the new policies, which do nothing before those are there"
        ));
    }
    for one in all.iter().filter(is_whole).filter(|one| !generates(one)) {
        let names: Vec<String> = one.conversion.documents.iter().map(described).collect();
        steps.push(format!("store {}, then delete {} {}", names.join(", "), kind(one), name(one)));
    }
    for one in all.iter().filter(is_whole).filter(generates) {
        let names: Vec<String> = one.conversion.documents.iter().map(described).collect();
        let (kind, old) = (kind(one), name(one));
        if is_synchronized(one.source.value()) {
            steps.push(format!(
                "set orphanDownstreamOnPolicyDelete: true in the generate rules of {kind} {old}, so that its downstreams stay"
            ));
        }
        steps.push(format!(
            "delete {kind} {old}, then store {} with evaluation.generateExisting: the downstreams stay with their UIDs, as the old policy left them",
            names.join(", ")
        ));
    }
    for one in all.iter().filter(|one| !is_whole(one)) {
        steps.push(format!(
            "keep {} {}, of which some rules are not convertible",
            kind(one),
            name(one)
        ));
    }
    steps
}

fn described(document: &ConvertedDocument) -> String {
    let text = |path: &[&str]| document.value.str_at(path.iter().copied()).unwrap_or_default();
    format!("{} {}", text(&["kind"]), text(&["metadata", "name"]))
}

fn is_generating(document: &ConvertedDocument) -> bool {
    document.value.str_at(["kind"]).is_some_and(|kind| kind.ends_with("GeneratingPolicy"))
}

fn is_synchronized(policy: &Value) -> bool {
    let rules = policy.get_path(["spec", "rules"]).and_then(Value::as_list);
    let synchronize = |rule: &Value| {
        rule.get_path(["generate", "synchronize"]).and_then(Value::as_bool) == Some(true)
    };
    rules.is_some_and(|rules| rules.iter().any(synchronize))
}
