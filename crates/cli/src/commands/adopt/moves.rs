//! Policies of kinds that Kyverno gives up, under Kiln's own API group.

use std::io::Write as _;

use kiln_diagnostic::Diagnostic;
use kiln_dialects::{NotRun, PolicyHost, compile_for, not_run_in_words};
use kiln_object::Kinds;
use kiln_object::identity::describe;
use kiln_object::metadata::LAST_APPLIED;
use kiln_object::policy_kinds::{OWN_VERSION, POLICY_KINDS, PolicyFamily, PolicyRole};
use kiln_runtime::LiveReader;
use kiln_value::{Map, Value};
use kiln_yaml::{Document, ReadOptions, emit_documents};

use crate::exit::{CommandFailure, CommandOutcome, CommandResult};
use crate::ui::Ui;

/// What kubectl and the engine write into annotations: it is about the stored object.
const OF_THE_OBJECT: [&str; 2] = [LAST_APPLIED, "kiln.dev/author"];

/// A policy of a kind that Kyverno has deprecated.
pub(super) struct DeprecatedPolicy {
    object: Value,
    /// What of it Kiln does not run: it would have no effect in Kiln's own group.
    not_run: Vec<NotRun>,
}

impl DeprecatedPolicy {
    fn of(object: Value, kinds: &Kinds) -> Self {
        let document = Document::from_value("policy", object.clone(), ReadOptions::kubernetes());
        let not_run = compile_for(PolicyHost::Cluster, [&document], kinds).not_run;
        DeprecatedPolicy { object, not_run }
    }

    /// The policy for Kiln's own group, without the rules that are not run; none if it has no others.
    fn moved(&self) -> Option<Value> {
        let mut policy = moved(&self.object);
        if self.not_run.is_empty() {
            return Some(policy);
        }
        let not_run: Vec<&str> = self.not_run.iter().filter_map(|it| it.rule.as_deref()).collect();
        let rules = policy.get_mut("spec")?.get_mut("rules")?.as_list_mut()?;
        rules.retain(|rule| rule.str_at(["name"]).is_none_or(|name| !not_run.contains(&name)));
        (!rules.is_empty()).then_some(policy)
    }

    /// Says what stays, and what to do about it.
    fn stays(&self) -> Option<Diagnostic> {
        let words = not_run_in_words(&self.not_run)?;
        let name = describe(&self.object);
        Some(match self.moved() {
            None => Diagnostic::warning(format!("{name} is not moved: Kiln does not run {words}"))
                .hint("do not delete it: Kyverno runs it"),
            Some(_) => Diagnostic::warning(format!("{name} is moved without {words}"))
                .hint("keep these rules in kyverno.io, and delete the others there"),
        })
    }
}

/// What is stored of the kinds that Kyverno has deprecated: those of `kyverno.io`, from ClusterPolicy to PolicyException.
pub(super) fn stored(reader: &LiveReader) -> Result<Vec<DeprecatedPolicy>, CommandFailure> {
    let rows = POLICY_KINDS.iter().filter(|row| {
        row.own && row.family == PolicyFamily::Rules && row.role != PolicyRole::Request
    });
    let mut found = Vec::new();
    for row in rows {
        let served = reader.kinds().preferred(row.kyverno_group(), row.kind);
        if let Some(kind) = served {
            let objects = super::all(reader, &kind.gvk())?.into_iter();
            found.extend(objects.map(|object| DeprecatedPolicy::of(object, reader.kinds())));
        }
    }
    Ok(found)
}

/// Prints policies as they are to be stored in Kiln's own group.
pub(super) fn print(ui: &Ui, reader: &LiveReader) -> CommandResult {
    let stored = stored(reader)?;
    for policy in &stored {
        if let Some(stays) = policy.stays() {
            ui.problem(&stays);
        }
    }
    let moved: Vec<Value> = stored.iter().filter_map(DeprecatedPolicy::moved).collect();
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

/// What the policies are called that can be moved.
pub(super) fn names(policies: &[DeprecatedPolicy]) -> Vec<String> {
    let movable = policies.iter().filter(|policy| policy.moved().is_some());
    movable.map(|policy| describe(&policy.object)).collect()
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
    fn rules_that_are_not_run_stay_with_kyverno() {
        let rule = |name: &str, body: (&str, Value)| {
            let mut rule =
                value!({"name": (name), "match": {"any": [{"resources": {"kinds": ["Pod"]}}]}});
            rule.set([body.0], body.1).unwrap();
            rule
        };
        let images = rule(
            "images",
            (
                "verifyImages",
                value!([{"imageReferences": ["*"], "attestors": [{"entries": [{"keys": {"publicKeys": "k"}}]}]}]),
            ),
        );
        let labels = rule(
            "labels",
            ("mutate", value!({"patchStrategicMerge": {"metadata": {"labels": {"a": "b"}}}})),
        );
        let policy = |rules: Vec<Value>| {
            let object = value!({"apiVersion": "kyverno.io/v1", "kind": "ClusterPolicy", "metadata": {"name": "p"}, "spec": {"rules": (rules)}});
            DeprecatedPolicy::of(object, &Kinds::builtin())
        };
        let whole = policy(vec![labels.clone()]);
        assert!(whole.moved().is_some() && whole.stays().is_none());
        let mixed = policy(vec![images.clone(), labels.clone()]);
        assert_eq!(
            mixed.moved().unwrap().get_path(["spec", "rules"]),
            Some(&Value::from(vec![labels]))
        );
        let said = mixed.stays().unwrap().to_string();
        assert!(said.contains("is moved without rule images (verifyImages)"), "{said}");
        let only = policy(vec![images]);
        assert!(only.moved().is_none());
        let said = only.stays().unwrap().to_string();
        assert!(
            said.contains("is not moved: Kiln does not run rule images (verifyImages)"),
            "{said}"
        );
        assert_eq!(names(&[only, whole, mixed]).len(), 2);
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
