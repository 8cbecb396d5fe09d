//! Policies of kinds that Kyverno gives up, under Kiln's own API group.

use std::io::Write as _;

use kiln_object::identity::describe;
use kiln_object::policy_kinds::{OWN_VERSION, POLICY_KINDS, PolicyFamily, PolicyRole};
use kiln_runtime::LiveReader;
use kiln_value::{Map, Value};
use kiln_yaml::emit_documents;

use crate::exit::{CommandFailure, CommandOutcome, CommandResult};
use crate::ui::Ui;

/// What kubectl and the engine write into annotations: it is about the stored object.
const OF_THE_OBJECT: [&str; 2] =
    ["kubectl.kubernetes.io/last-applied-configuration", "kiln.dev/author"];

/// What is stored of the kinds that Kyverno has deprecated: those of `kyverno.io`, from ClusterPolicy to PolicyException.
pub(super) fn stored(reader: &LiveReader) -> Result<Vec<Value>, CommandFailure> {
    let rows = POLICY_KINDS.iter().filter(|row| {
        row.own && row.family == PolicyFamily::Rules && row.role != PolicyRole::Request
    });
    let mut found = Vec::new();
    for row in rows {
        let served = reader.kinds().preferred(row.kyverno_group(), row.kind);
        if let Some(kind) = served {
            found.extend(super::all(reader, &kind.gvk())?);
        }
    }
    Ok(found)
}

/// Prints policies as they are to be stored in Kiln's own group.
pub(super) fn print(ui: &Ui, reader: &LiveReader) -> CommandResult {
    let moved: Vec<Value> = stored(reader)?.iter().map(moved).collect();
    let mut out = ui.stdout();
    out.write_all(emit_documents(&moved).as_bytes())?;
    out.flush()?;
    Ok(CommandOutcome::Done)
}

/// What is said of the policies that Kyverno gives up, if there are any.
pub(super) fn words(moves: &[String]) -> Option<String> {
    let first = moves.first()?;
    let (them, others) = match moves.len() {
        1 => ("it", String::new()),
        2 => ("them", " and 1 more".to_owned()),
        many => ("them", format!(" and {} more", many - 1)),
    };
    Some(format!(
        "moves     {first}{others}: Kyverno has deprecated the kinds of kyverno.io; its 1.20 is planned to refuse {them} and to stop \
         running {them}\n          to keep {them}: kiln adopt --move | kubectl apply -f -, which stores {them} as \
         {OWN_VERSION}; then delete {them} in kyverno.io"
    ))
}

/// What the policies are called.
pub(super) fn names(policies: &[Value]) -> Vec<String> {
    policies.iter().map(describe).collect()
}

fn moved(policy: &Value) -> Value {
    let about = |key: &str| policy.get_path(["metadata", key]).cloned();
    let mut metadata = Map::new();
    for key in ["name", "namespace", "labels", "annotations"] {
        let Some(mut value) = about(key) else { continue };
        if let Some(annotations) = value.as_map_mut().filter(|_| key == "annotations") {
            annotations.retain(|key, _| !OF_THE_OBJECT.contains(&key.as_str()));
        }
        if value.as_map().is_none_or(|map| !map.is_empty()) {
            metadata.insert(key, value);
        }
    }
    let mut object = Map::new();
    object.insert("apiVersion", OWN_VERSION);
    object.insert("kind", policy.get("kind").cloned().unwrap_or_default());
    object.insert("metadata", metadata);
    object.insert("spec", policy.get("spec").cloned().unwrap_or_default());
    Value::Map(object)
}

#[cfg(test)]
mod tests {
    use kiln_value::value;

    use super::*;

    #[test]
    fn a_moved_policy_is_what_the_user_wrote() {
        let stored = value!({
            "apiVersion": "kyverno.io/v1", "kind": "Policy",
            "metadata": {
                "name": "p", "namespace": "shop", "uid": "u", "resourceVersion": "7",
                "labels": {"team": "shop"},
                "annotations": {
                    "kubectl.kubernetes.io/last-applied-configuration": "{}", "kiln.dev/author": "jane",
                },
            },
            "spec": {"rules": []}, "status": {"ready": true},
        });
        let wanted = value!({
            "apiVersion": "kiln.dev/v1", "kind": "Policy",
            "metadata": {"name": "p", "namespace": "shop", "labels": {"team": "shop"}},
            "spec": {"rules": []},
        });
        assert_eq!(moved(&stored), wanted);
    }

    #[test]
    fn one_policy_and_several_are_named() {
        let names = |many: usize| vec!["kyverno.io/v1/ClusterPolicy/p".to_owned(); many];
        assert_eq!(words(&[]), None);
        let one = words(&names(1)).unwrap();
        assert!(one.starts_with("moves     kyverno.io/v1/ClusterPolicy/p: Kyverno has"), "{one}");
        assert!(words(&names(3)).unwrap().contains("p and 2 more:"));
    }
}
