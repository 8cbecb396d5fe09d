//! Plans for a kustomization: what becomes of the objects that it builds, in a cluster or against another revision.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use kiln_chart::NoLookup;
use kiln_diagnostic::Diagnostic;
use kiln_dialects::{PolicyHost, is_exception, is_policy};
use kiln_engine::{EvaluationLimits, Event, HostAllowlist, User};
use kiln_object::{Gvk, Kinds, ObjectId, metadata};
use kiln_offline::{Job, ObjectChange, Values, run as run_offline};
use kiln_patch::{client_side_apply, diff};
use kiln_rules::RuleId;
use kiln_runtime::{Denied, DryRunResult, LiveReader, Planned};
use kiln_schema::{KubernetesVersion, Schema};
use kiln_services::Services;
use kiln_value::{Value, json};
use kiln_yaml::Document;

use super::Plan;
use crate::args::Global;
use crate::cluster::admission_simulation::AdmissionSimulation;
use crate::exit::CommandFailure;
use crate::kustomization::{BuildArgs, built_documents};
use crate::policy_files::{compile_rules, kinds_of, objects_of, read_all, rule_set};
use crate::revision::Revision;
use crate::system_env::SystemEnv;
use crate::ui::Ui;
use kiln_studio::SchemasOfServer;

const ANNOTATIONS: [&str; 2] = ["metadata", "annotations"];

/// Which kustomization is planned, and how it is built.
#[derive(Debug, clap::Args)]
pub(in crate::commands) struct KustomizationArgs {
    /// Directory of a kustomization whose objects are applied
    #[arg(long, short = 'k', value_name = "DIR")]
    pub(in crate::commands) kustomize: Option<String>,

    #[command(flatten)]
    pub(in crate::commands) build: BuildArgs,
}

/// What rules at admission did to the objects of a kustomization.
#[derive(Default)]
pub(super) struct AdmissionLog {
    entries: RefCell<BTreeMap<ObjectId, LogEntry>>,
}

#[derive(Clone, Default)]
struct LogEntry {
    rules: Vec<RuleId>,
    /// The fields that they set.
    fields: Vec<String>,
}

impl AdmissionLog {
    /// Simulates the write of an object by a user.
    pub(super) fn admit(
        &self,
        admission: &AdmissionSimulation<'_>,
        user: Option<&User>,
        old: Option<&Value>,
        object: &Value,
    ) -> Result<Value, String> {
        let mut event = match old {
            Some(old) => Event::updated(old.clone(), object.clone()),
            None => Event::created(object.clone()),
        };
        event.user = user.cloned();
        let simulated = admission.simulate(&event);
        if let Ok(id) = ObjectId::of(object) {
            let entry = LogEntry {
                rules: match &simulated.refused {
                    Some(refused) => refused.rules.clone(),
                    None => simulated.rules,
                },
                fields: changed_fields(object, &simulated.object),
            };
            self.entries.borrow_mut().insert(id, entry);
        }
        match simulated.refused {
            Some(refused) => Err(refused.why),
            None => {
                admission.applied(&simulated.object);
                Ok(simulated.object)
            }
        }
    }

    /// Names the rules that change and deny objects in the result of a dry run; the fields that they set, by object.
    pub(super) fn name_rules(self, result: &mut DryRunResult) -> Vec<(ObjectId, Vec<String>)> {
        let entries = self.entries.into_inner();
        for planned in &mut result.changes {
            let Some(entry) = entries.get(&planned.target) else { continue };
            for rule in &entry.rules {
                if !planned.rules.contains(rule) {
                    planned.rules.push(rule.clone());
                }
            }
        }
        for denied in &mut result.denied {
            if let Some(entry) = entries.get(&denied.target) {
                denied.rules.clone_from(&entry.rules);
            }
        }
        let set = entries.into_iter().filter(|(_, entry)| !entry.fields.is_empty());
        set.map(|(id, entry)| (id, entry.fields)).collect()
    }
}

/// The objects of a kustomization as a user would apply them to a cluster: with a namespace, and merged into what is
/// there as kubectl does.
pub(super) fn to_apply(
    ui: &Ui,
    reader: &LiveReader,
    kinds: &Kinds,
    built: Vec<Document>,
) -> Result<Vec<Value>, CommandFailure> {
    let built = without_policies(ui, built);
    let mut objects = objects_of(built)?;
    for object in &mut objects {
        set_namespace(object, kinds, reader.namespace());
        // What has no name yet is new.
        let Ok(id) = ObjectId::of(object) else { continue };
        let live = reader.object(&id).map_err(|error| {
            Diagnostic::error(format!("cannot read {id}: {error}"))
                .hint("a plan needs permission to read the objects of the kustomization")
        })?;
        if let Some(live) = live {
            *object = applied_to(&live, object);
        }
    }
    Ok(objects)
}

/// Leaves out the policies of a kustomization: which ones act, RULES say.
fn without_policies(ui: &Ui, built: Vec<Document>) -> Vec<Document> {
    let (rules, others): (Vec<_>, Vec<_>) =
        built.into_iter().partition(|document| is_policy(document) || is_exception(document));
    if !rules.is_empty() {
        let count = crate::ui::counted(rules.len(), "policy", "policies");
        ui.problem(
            &Diagnostic::warning(format!("left out of the plan: {count} of the kustomization"))
                .hint("give the policies that act as RULES"),
        );
    }
    others
}

fn set_namespace(object: &mut Value, kinds: &Kinds, namespace: &str) {
    let kind =
        Gvk::of(object).and_then(|gvk| kinds.get(&gvk).map(kiln_object::Kind::is_namespaced));
    if kind.unwrap_or(true) && metadata::namespace(object).is_none_or(str::is_empty) {
        // It is an object, so it has metadata.
        let _ = object.set(["metadata", "namespace"], namespace);
    }
}

/// What kubectl makes of a live object when it applies this one. Its own annotation stays as it is: what it holds then
/// is what is applied, in other words.
fn applied_to(live: &Value, object: &Value) -> Value {
    let last = metadata::annotation(live, metadata::LAST_APPLIED);
    let last = last.and_then(|text| json::parse(text).ok());
    let mut now = object.clone();
    if last.is_some() && now.get_path(ANNOTATIONS).is_none() {
        // kubectl adds its annotation to what it applies, so that it never removes all annotations.
        let _ = now.set(ANNOTATIONS, Value::map());
    }
    client_side_apply(live, last.as_ref(), &now, &Schema::builtin(KubernetesVersion::NEWEST))
}

/// The fields in which two objects differ, as paths.
fn changed_fields(before: &Value, after: &Value) -> Vec<String> {
    let schema = Schema::builtin(KubernetesVersion::NEWEST);
    let patch = diff(before, after, &schema).to_value();
    let operations = patch.as_list().into_iter().flatten();
    let fields: BTreeSet<String> = operations
        .filter_map(|operation| operation.str_at(["path"]))
        .map(|path| {
            path.trim_start_matches('/').replace('/', ".").replace("~1", "/").replace("~0", "~")
        })
        .collect();
    fields.into_iter().collect()
}

/// What a revision comes to.
#[derive(Default)]
struct Predicted {
    objects: BTreeMap<ObjectId, PredictedObject>,
    denied: Vec<Denied>,
    has_errors: bool,
}

struct PredictedObject {
    object: Value,
    /// The rules that make or change it.
    rules: Vec<RuleId>,
    /// The fields that they set in an object of the kustomization.
    fields: Vec<String>,
}

/// How a kustomization and policies differ from another revision of them.
pub(super) fn against_revision(
    ui: &Ui,
    global: &Global,
    rules: &[String],
    services: &HostAllowlist,
    kustomization: &KustomizationArgs,
    base: &str,
) -> Result<Plan, CommandFailure> {
    let directory = kustomization.kustomize.as_deref().unwrap_or(".");
    let revision = Revision::check_out(directory, base)?;
    let now = predict(ui, global, directory, rules, services, kustomization)?;
    if now.has_errors {
        // Without the policies that have errors, the plan would delete what they generate.
        return Err(Diagnostic::error("there is no plan for policies with errors").into());
    }
    let place = revision.path(directory).filter(|place| place.is_dir());
    let before = match place {
        // A kustomization that is new there has nothing before.
        None => Predicted::default(),
        Some(place) => {
            let mut old_rules = Vec::new();
            for path in rules {
                match revision.path(path) {
                    Some(old) if old.exists() => old_rules.push(old.display().to_string()),
                    Some(_) => {}
                    None => old_rules.push(path.clone()),
                }
            }
            let place = place.display().to_string();
            predict(ui, global, &place, &old_rules, services, kustomization)
                .map_err(|failure| at_revision(failure, base))?
        }
    };
    Ok(compared(before, now))
}

fn at_revision(failure: CommandFailure, base: &str) -> CommandFailure {
    match failure {
        CommandFailure::BadInput(problems) => CommandFailure::BadInput(
            problems
                .into_iter()
                .map(|mut problem| {
                    problem.message = format!("at {base}: {}", problem.message);
                    problem
                })
                .collect(),
        ),
        other => other,
    }
}

fn compared(mut before: Predicted, now: Predicted) -> Plan {
    let mut changes = Vec::new();
    let mut set_by_rules = Vec::new();
    for (target, predicted) in now.objects {
        let old = before.objects.remove(&target).map(|old| old.object);
        if old.as_ref() == Some(&predicted.object) {
            continue;
        }
        if !predicted.fields.is_empty() {
            set_by_rules.push((target.clone(), predicted.fields));
        }
        let PredictedObject { object, rules, .. } = predicted;
        changes.push(Planned { target, rules, before: old, after: Some(object) });
    }
    let is_denied = |id: &ObjectId| now.denied.iter().any(|denied| denied.target == *id);
    for (target, old) in before.objects.into_iter().filter(|(id, _)| !is_denied(id)) {
        let PredictedObject { object, rules, .. } = old;
        changes.push(Planned { target, rules, before: Some(object), after: None });
    }
    changes.sort_by(|a, b| a.target.cmp(&b.target));
    Plan {
        now: DryRunResult { changes, denied: now.denied, undone: Vec::new() },
        next_write: Vec::new(),
        next_runs: Vec::new(),
        waiting: Vec::new(),
        set_by_rules,
    }
}

/// What a cluster without any other object would store of a kustomization under these policies.
fn predict(
    ui: &Ui,
    global: &Global,
    directory: &str,
    rules: &[String],
    services: &HostAllowlist,
    kustomization: &KustomizationArgs,
) -> Result<Predicted, CommandFailure> {
    let rules = read_all(rules, global)?;
    let built = built_documents(ui, global, directory, &kustomization.build, &NoLookup)?;
    let built = without_policies(ui, built);
    let kinds = kinds_of(rules.iter().chain(&built))?;
    let compiled = compile_rules(ui, PolicyHost::Files, &rules, &built, &kinds);
    let set = rule_set(&compiled);
    let schemas = SchemasOfServer::given(rules.iter().chain(&built).map(Document::value));
    let resources = objects_of(built)?;
    let job = Job {
        rules: &set,
        kinds: &kinds,
        resources: resources.clone(),
        payloads: Vec::new(),
        others: Vec::new(),
        values: Values::default(),
        user: None,
        limits: EvaluationLimits::default(),
        external_data: &Services::new(services.clone()),
        explain: false,
        only_given_kinds: false,
        audit_warns: false,
        follows_denied: false,
        schemas: Some(&schemas),
    };
    let report = run_offline(&job, &SystemEnv);
    for warning in &report.warnings {
        ui.problem(warning);
    }
    let id_of = |object: &Value| {
        let mut object = object.clone();
        set_namespace(&mut object, &kinds, super::NAMESPACE);
        ObjectId::of(&object).ok()
    };
    let mut predicted = Predicted { has_errors: compiled.has_errors(), ..Predicted::default() };
    let mut rules_of: BTreeMap<ObjectId, Vec<RuleId>> = BTreeMap::new();
    for result in &report.results {
        let changed = result.made.iter().filter(|made| {
            matches!(
                made.change,
                ObjectChange::Created | ObjectChange::Updated | ObjectChange::Patched
            )
        });
        for made in changed {
            let rules = rules_of.entry(made.id.clone()).or_default();
            if !rules.contains(&result.rule) {
                rules.push(result.rule.clone());
            }
        }
        if report.refused.contains(&result.trigger)
            && (result.refusal.is_some() || result.violation.is_some())
        {
            let why = result.refusal.clone().or_else(|| result.because()).unwrap_or_default();
            let (target, rules) = (result.trigger.clone(), vec![result.rule.clone()]);
            predicted.denied.push(Denied { target, rules, why });
        }
    }
    let as_built: BTreeMap<ObjectId, &Value> =
        resources.iter().filter_map(|object| Some((id_of(object)?, object))).collect();
    let made = report.objects().into_iter().map(|made| made.object);
    for object in report.resources.iter().cloned().chain(made) {
        let Some(id) = id_of(&object) else { continue };
        if report.refused.contains(&id) || predicted.objects.contains_key(&id) {
            continue;
        }
        let fields = as_built.get(&id).map_or_else(Vec::new, |built| {
            let mut object = object.clone();
            if metadata::namespace(built).is_none() {
                object.remove(["metadata", "namespace"]);
            }
            changed_fields(built, &object)
        });
        let rules = rules_of.remove(&id).unwrap_or_default();
        predicted.objects.insert(id, PredictedObject { object, rules, fields });
    }
    Ok(predicted)
}

#[cfg(test)]
mod tests {
    use kiln_value::value;

    use super::*;

    #[test]
    fn what_was_applied_before_and_is_gone_is_removed_and_the_rest_is_merged() {
        let last =
            r#"{"data":{"a":"1","b":"2"},"spec":{"containers":[{"name":"x"},{"name":"y"}]}}"#;
        let live = value!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "p", "uid": "u", "annotations": {"kubectl.kubernetes.io/last-applied-configuration": last, "other": "kept"}},
            "data": {"a": "1", "b": "2", "c": "of the server"},
            "spec": {"containers": [{"name": "x", "image": "i"}, {"name": "y"}, {"name": "injected"}], "dnsPolicy": "ClusterFirst"},
        });
        let object = value!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "labels": {"new": "label"}},
            "data": {"a": "3"},
            "spec": {"containers": [{"name": "x", "image": "j"}]},
        });
        let merged = applied_to(&live, &object);
        assert_eq!(merged.get("data"), Some(&value!({"a": "3", "c": "of the server"})));
        let containers = merged.get_path(["spec", "containers"]).unwrap().as_list().unwrap();
        let names: Vec<_> = containers.iter().filter_map(|it| it.str_at(["name"])).collect();
        assert_eq!(names, ["x", "injected"]);
        assert_eq!(containers[0].str_at(["image"]), Some("j"));
        assert_eq!(merged.str_at(["metadata", "labels", "new"]), Some("label"));
        assert_eq!(merged.str_at(["metadata", "annotations", "other"]), Some("kept"));
        assert_eq!(merged.str_at(["spec", "dnsPolicy"]), Some("ClusterFirst"));
    }

    #[test]
    fn changed_fields_are_paths() {
        let before = value!({"metadata": {"labels": {"a": "1"}}, "spec": {"replicas": 1}});
        let after = value!({
            "metadata": {"labels": {"a": "1", "example.com/b": "2"}}, "spec": {"replicas": 2}});
        let wanted = ["metadata.labels.example.com/b", "spec.replicas"];
        assert_eq!(changed_fields(&before, &after), wanted);
    }
}
