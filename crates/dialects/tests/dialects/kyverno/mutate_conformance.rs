//! The mutate tests of Kyverno's conformance suite, step by step over a map of objects.
//!
//! Steps that need a shell or a real API server end a test early; what was asserted until then counts.

use std::path::{Path, PathBuf};

use crate::support::{Fixed, Objects};
use kiln_dialects::{compile, is_exception, is_policy};
use kiln_engine::{Effect, EvalEnv, Event, PatchTarget, RuleSet};
use kiln_object::{Kinds, ObjectId};
use kiln_testkit::{Tally, corpus};
use kiln_value::{Value, value};
use kiln_yaml::{Document, ReadOptions, read_bytes};

#[derive(Default)]
struct Cluster {
    kinds: Kinds,
    objects: Objects,
    policies: Vec<Document>,
}

impl Cluster {
    fn rules(&self) -> Result<RuleSet, String> {
        let compiled = compile(&self.policies, &self.kinds);
        match compiled.has_errors() {
            true => Err(crate::support::messages(&compiled).join("; ")),
            false => Ok(RuleSet::new(compiled.policies).with_exceptions(compiled.exceptions)),
        }
    }

    fn position(&self, id: &ObjectId) -> Option<usize> {
        self.objects.0.iter().position(|o| ObjectId::of(o).is_ok_and(|other| other.same_object(id)))
    }

    fn store(&mut self, object: Value) {
        let Ok(id) = ObjectId::of(&object) else { return };
        match self.position(&id) {
            Some(at) => self.objects.0[at] = object,
            None => self.objects.0.push(object),
        }
    }

    fn apply(&mut self, document: Document) -> Result<(), String> {
        if is_policy(&document) || is_exception(&document) {
            let new = ObjectId::of(document.value()).map_err(|e| e.to_string())?;
            self.policies.retain(|old| ObjectId::of(old.value()).is_ok_and(|old| old != new));
            let before = self.policies.clone();
            self.policies.push(document.clone());
            if let Err(refused) = self.rules() {
                self.policies = before;
                return Err(refused);
            }
            // A policy may ask to run for existing objects.
            let rules = RuleSet::new(compile([&document], &self.kinds).policies);
            if rules.rules().any(|rule| rule.lifecycle.existing) {
                for object in self.objects.0.clone() {
                    self.react(&rules, &Event::existing(object), true)?;
                }
            }
            return Ok(());
        }
        let object = document.into_value();
        if object.str_at(["kind"]) == Some("CustomResourceDefinition") {
            self.kinds = self.kinds.clone().with_crd(&object).map_err(|e| e.to_string())?;
        }
        let mut object = self.with_namespace(object);
        if object.str_at(["kind"]) == Some("Pod") {
            mount_token(&mut object);
        }
        let id = ObjectId::of(&object).map_err(|e| e.to_string())?;
        let event = match self.position(&id) {
            Some(at) => Event::updated(self.objects.0[at].clone(), object),
            None => Event::created(object),
        };
        self.admit(event)
    }

    fn admit(&mut self, mut event: Event) -> Result<(), String> {
        let rules = self.rules()?;
        let sources = Fixed(std::cell::Cell::new(0));
        let eval_env = EvalEnv { sources: &sources, ..EvalEnv::of(&self.objects, &self.kinds) };
        let run = rules.mutate(&event, &eval_env);
        for outcome in &run.outcomes {
            let policy = rules.policies().iter().find(|policy| policy.id == outcome.rule.policy);
            let ignores = policy.is_some_and(|policy| {
                let spec = policy.origin.document().value().get("spec");
                spec.and_then(|spec| spec.str_at(["failurePolicy"])) == Some("Ignore")
            });
            if let Some(failure) = outcome.failures.first().filter(|_| !ignores) {
                return Err(failure.to_string());
            }
        }
        self.store(run.object.clone());
        event.object = Some(run.object);
        self.react(&rules, &event, false)
    }

    fn react(&mut self, rules: &RuleSet, event: &Event, existing: bool) -> Result<(), String> {
        let sources = Fixed(std::cell::Cell::new(0));
        let eval_env = EvalEnv { sources: &sources, ..EvalEnv::of(&self.objects, &self.kinds) };
        let outcomes = rules.evaluate(event, &eval_env);
        for outcome in outcomes {
            let runs = rules.rule(&outcome.rule).is_some_and(|rule| rule.lifecycle.existing);
            for effect in outcome.effects {
                if let Effect::Patch(patch) = effect
                    && matches!(patch.target, PatchTarget::Stored { .. })
                    && (runs || !existing)
                {
                    self.store(patch.after);
                }
            }
        }
        Ok(())
    }

    fn delete(&mut self, id: &ObjectId) -> Result<(), String> {
        let Some(at) = self.position(id) else { return Ok(()) };
        let gone = self.objects.0.remove(at);
        let rules = self.rules()?;
        self.react(&rules, &Event::deleted(gone), false)
    }

    fn with_namespace(&self, mut object: Value) -> Value {
        let namespaced =
            ObjectId::of(&object).is_ok_and(|id| self.kinds.is_namespaced(&id.gvk) == Some(true));
        if namespaced && object.get_path(["metadata", "namespace"]).is_none() {
            let _ = object.set(["metadata", "namespace"], "default");
        }
        object
    }

    /// Whether some object of the kind holds everything that is wanted.
    fn holds(&self, wanted: &Value) -> bool {
        self.objects.0.iter().any(|object| subset(wanted, object))
    }
}

/// What the API server does to a Pod before any other webhook: the token of its service account.
fn mount_token(pod: &mut Value) {
    let volumes = pod.get_path(["spec", "volumes"]).and_then(Value::as_list);
    let mut volumes = volumes.map(|list| list.to_vec()).unwrap_or_default();
    let token = value!({"name": "kube-api-access", "projected": {}});
    if !volumes.contains(&token) {
        volumes.push(token);
        let _ = pod.set(["spec", "volumes"], Value::from(volumes));
    }
}

fn subset(wanted: &Value, found: &Value) -> bool {
    match (wanted, found) {
        (Value::Map(wanted), Value::Map(found)) => wanted.iter().all(|(key, wanted)| {
            found.get(key).map_or_else(|| wanted.is_null(), |found| subset(wanted, found))
        }),
        (Value::List(wanted), Value::List(found)) => {
            wanted.len() == found.len()
                && wanted.iter().zip(found.iter()).all(|(w, f)| subset(w, f))
        }
        _ => wanted == found,
    }
}

fn read(folder: &Path, step: &Value) -> Result<Vec<Document>, String> {
    match step.str_at(["file"]) {
        Some(file) => {
            let path = folder.join(file);
            let text = std::fs::read(&path).map_err(|e| format!("{}: {e}", path.display()))?;
            read_bytes(file, &text, ReadOptions::kubernetes()).map_err(|e| e.to_string())
        }
        None => {
            let text = kiln_yaml::emit(step.get("resource").unwrap_or(&Value::Null));
            read_bytes("step", text.as_bytes(), ReadOptions::kubernetes())
                .map_err(|e| e.to_string())
        }
    }
}

/// How many assertions were met, or the first that was not.
fn run(folder: &Path, test: &Value) -> Result<usize, String> {
    let mut cluster = Cluster::default();
    cluster
        .store(value!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}}));
    let mut asserted = 0;
    let steps = test.get_path(["spec", "steps"]).and_then(Value::as_list);
    let empty = |value: Option<&Value>| -> Vec<Value> {
        value.and_then(Value::as_list).map(|list| list.to_vec()).unwrap_or_default()
    };
    for step in steps.into_iter().flatten() {
        // A step from a template makes a policy, or waits for it.
        if let Some(made) = step.get_path(["use", "with", "bindings"]) {
            for binding in empty(Some(made)) {
                if binding.str_at(["name"]) == Some("file") {
                    let file = Value::Map(kiln_value::Map::from_iter([(
                        "file",
                        binding.get("value").cloned().unwrap_or(Value::Null),
                    )]));
                    for document in read(folder, &file)? {
                        cluster.apply(document)?;
                    }
                }
            }
        }
        for action in empty(step.get("try")) {
            let Some((word, body)) = action.as_map().and_then(|map| map.iter().next()) else {
                continue;
            };
            match word.as_str() {
                "apply" | "create" | "update" => {
                    let refused = !empty(body.get("expect")).is_empty();
                    for document in read(folder, body)? {
                        match (cluster.apply(document), refused) {
                            (Ok(()), false) => {}
                            (Err(_), true) => asserted += 1,
                            (Ok(()), true) => return Err("not refused".into()),
                            (Err(error), false) => return Err(error),
                        }
                    }
                }
                "assert" => {
                    for document in read(folder, body)? {
                        if is_policy(&document) {
                            continue;
                        }
                        if !cluster.holds(document.value()) {
                            let kind = document.value().str_at(["kind"]);
                            let found: Vec<_> = cluster
                                .objects
                                .0
                                .iter()
                                .filter(|o| o.str_at(["kind"]) == kind)
                                .map(kiln_yaml::emit)
                                .collect();
                            return Err(format!(
                                "wanted\n{}found\n{}",
                                kiln_yaml::emit(document.value()),
                                found.join("---\n")
                            ));
                        }
                        asserted += 1;
                    }
                }
                "error" => {
                    for document in read(folder, body)? {
                        if cluster.holds(document.value()) {
                            return Err(format!("there is\n{}", kiln_yaml::emit(document.value())));
                        }
                        asserted += 1;
                    }
                }
                "delete" => {
                    let named = body.get("ref").cloned().unwrap_or(Value::Null);
                    let text = |key: &str| named.str_at([key]).unwrap_or_default().to_owned();
                    let gvk = kiln_object::Gvk::new(&text("apiVersion"), &text("kind"));
                    cluster.delete(&ObjectId::new(gvk, &text("namespace"), &text("name")))?;
                }
                "sleep" => {}
                // A shell acts on a real cluster.
                _ => return Ok(asserted),
            }
        }
    }
    Ok(asserted)
}

fn tests_below(folder: &Path, found: &mut Vec<PathBuf>) {
    let mut entries: Vec<_> =
        std::fs::read_dir(folder).into_iter().flatten().flatten().map(|e| e.path()).collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            tests_below(&path, found);
        } else if path.file_name().is_some_and(|name| name == "chainsaw-test.yaml") {
            found.push(path);
        }
    }
}

#[test]
fn conformance_tests_pass() {
    let Some(root) = corpus("chainsaw/mutate") else { return };
    let mut tally = Tally::new("conformance, mutate");
    let existing = "clusterpolicy/standard/existing";
    for auth in [
        "cpol-namespace-variable(deprecated)",
        "cpol-standard-auth-check",
        "cpol-standard-auth-check(deprecated)",
    ] {
        let case = format!("{existing}/validation/auth-check/{auth}");
        tally.known_failure(case, "a host asks the API server whether it may change the targets");
    }
    tally.known_failure(
        format!("{existing}/mutate-pod-on-binding-request"),
        "a scheduler sends the request",
    );
    let mut found = Vec::new();
    tests_below(&root, &mut found);
    for path in found {
        let folder = path.parent().unwrap_or(&root);
        let case = folder.strip_prefix(&root).unwrap_or(folder).display().to_string();
        let text = std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let test = read_bytes("chainsaw-test.yaml", &text, ReadOptions::kubernetes()).unwrap();
        match run(folder, test[0].value()) {
            Ok(0) => tally.leave_out(),
            other => tally.case(&case, || other.map(drop)),
        }
    }
    tally.finish();
}
