//! `kiln adopt`

mod differences;
mod moves;
mod values;

use std::collections::BTreeMap;
use std::io::{self, Write};

use kiln_admission::Settings;
use kiln_diagnostic::{Diagnostic, Severity};
use kiln_dialects::{PolicyHost, compile_for, is_exception, is_policy};
use kiln_engine::{ANNOTATION_PREFIX, HostAllowlist, Ownership};
use kiln_object::Gvk;
use kiln_object::identity::describe;
use kiln_rules::Program;
use kiln_runtime::{Applied, DryRunResult, LiveReader, PlanInput, Planned, RuleEnvironment};
use kiln_value::{Map, Value};
use kiln_yaml::Document;
use serde_json::json;

use super::plan::{by, rule};
use crate::args::OutputFormat;
use crate::cluster::admission_simulation::AdmissionSimulation;
use crate::cluster::competing_engines::{KEEPING, KYVERNO, answering_engine, other_engine};
use crate::cluster::connection::{Connection, around, stored_policies};
use crate::cluster::orphaned_webhooks::{self, OrphanedWebhook};
use crate::exit::{CommandFailure, CommandOutcome, CommandResult};
use crate::policy_files::rule_set;
use crate::ui::{Ui, counted, plain};

/// Preview a migration from Kyverno or KubeMod
///
/// Reads the policies of the cluster and the objects that they generated. Prints for each policy whether it runs
/// unchanged, in part or not at all, and why; how many generated objects stay as they are, and which would be changed
/// or deleted, by which rule and in which fields; which engines to stop first, and which webhook configurations to
/// remove then; which policies a newer Kyverno gives up. Changes nothing: `kiln run` does the migration.
///
/// Exits with code 0 if all policies run unchanged and no generated object changes, whatever is to be stopped or
/// removed; with 1 otherwise.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only preview; required, because `kiln run` does the migration
    #[arg(long, required_unless_present_any = ["values", "move_policies"])]
    plan: bool,

    /// Print the policies of kyverno.io, whose kinds Kyverno has deprecated, under Kiln's own API group
    #[arg(long = "move", conflicts_with_all = ["plan", "values"])]
    move_policies: bool,

    /// Print the values of a Kyverno release as values of Kiln's Helm chart, and name those without a counterpart
    ///
    /// The file is what `helm get values RELEASE --output yaml` prints; - for standard input. Exits with code 0 if every
    /// value has a counterpart, with 1 otherwise.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["plan", "kubeconfig", "context"])]
    values: Option<String>,

    /// Namespace of the Kiln installation
    #[arg(long, value_name = "NAME", default_value = "kyverno", env = "KILN_NAMESPACE")]
    engine_namespace: String,

    #[command(flatten)]
    connection: Connection,
}

/// What becomes of a policy.
#[derive(Debug)]
struct Fate {
    policy: String,
    runs: Runs,
    /// What differs.
    why: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Runs {
    Unchanged,
    InPart,
    NotAtAll,
}

impl Runs {
    fn word(self) -> &'static str {
        match self {
            Runs::Unchanged => "unchanged",
            Runs::InPart => "differs",
            Runs::NotAtAll => "not run",
        }
    }
}

struct Adoption {
    fates: Vec<Fate>,
    made: Made,
    now: DryRunResult,
    /// Rules that Kiln does not run, by what they do.
    not_run: BTreeMap<&'static str, usize>,
    /// Deployments to stop first.
    engines: Vec<Stopped>,
    /// Webhook configurations to remove then.
    webhooks: Vec<OrphanedWebhook>,
    /// Policies of kinds that Kyverno gives up.
    moves: Vec<String>,
}

/// A Deployment to stop before Kiln acts.
struct Stopped {
    deployment: String,
    engine: &'static str,
    /// It answers requests, and so enforces what Kiln does not run.
    enforces: bool,
}

impl Stopped {
    fn of(deployment: &Value) -> Option<Self> {
        let (name, engine) = other_engine(deployment)?;
        let enforces = engine == KYVERNO && answering_engine(deployment).is_some();
        Some(Stopped { deployment: name, engine, enforces })
    }
}

/// Objects that carry the labels of a rule.
#[derive(Debug, Default)]
struct Made {
    all: usize,
    /// Those whose labels have no UID of a trigger, as older versions of Kyverno left them.
    without_trigger: usize,
}

impl Adoption {
    /// What would happen to objects that rules made. Others may be targets of mutate rules.
    fn touched(&self) -> impl Iterator<Item = &Planned> {
        let is_made = |object: &Value| Ownership::read(object).is_some();
        self.now.changes.iter().filter(move |planned| planned.before.as_ref().is_some_and(is_made))
    }

    /// What is not enforced any more when Kyverno's admission controller is stopped: `2 validate, 1 verifyImages`.
    fn unenforced(&self) -> Option<String> {
        let words: Vec<String> =
            self.not_run.iter().map(|(what, many)| format!("{many} {what}")).collect();
        (!words.is_empty()).then(|| words.join(", "))
    }

    fn is_smooth(&self) -> bool {
        self.fates.iter().all(|fate| fate.runs == Runs::Unchanged)
            && self.now.changes.is_empty()
            && self.now.undone.is_empty()
            && self.made.without_trigger == 0
    }
}

pub(crate) fn run(ui: &Ui, args: &Args) -> CommandResult {
    ui.has_formats_of("adopt")?;
    if let Some(path) = &args.values {
        return values::run(ui, path);
    }
    let reader = args.connection.reader()?;
    if args.move_policies {
        return moves::print(ui, &reader);
    }
    let documents = stored_policies(&reader)?;
    let wanted = documents.iter().filter(|found| is_policy(found) || is_exception(found));
    let mut compiled = compile_for(PolicyHost::Cluster, wanted, reader.kinds());
    let around = around(&reader, &args.engine_namespace, &HostAllowlist::default())?;
    let passed_over = differences::of_exceptions(&compiled.exceptions, &around.settings);
    compiled.exceptions = around.settings.in_force(&compiled.exceptions);
    let rules = rule_set(&compiled);
    let mut not_run = BTreeMap::new();
    for rule in &compiled.not_run {
        *not_run.entry(rule.operation()).or_default() += 1;
    }
    let admission = AdmissionSimulation::new(&compiled, &reader, reader.kinds(), &around);
    let play = PlanInput {
        kinds: reader.kinds(),
        policies: None,
        exceptions: compiled.exceptions,
        all: false,
        namespace: &args.engine_namespace,
        around: &around,
        admit: &|old, object| admission.admit(old, object),
        applied: Applied::nothing(),
    };
    let now = kiln_runtime::plan(&reader, play);
    let deployments = all(&reader, &Gvk::new("apps/v1", "Deployment"))?;
    let mut webhooks = Vec::new();
    for kind in orphaned_webhooks::KINDS {
        let found = all(&reader, &Gvk::new("admissionregistration.k8s.io/v1", kind))?;
        webhooks.extend(found.iter().filter_map(|it| {
            OrphanedWebhook::of(it, &args.engine_namespace, &args.connection.names())
        }));
    }
    let mut fates = fates(&documents, &reader, &around)?;
    fates.extend(passed_over);
    let adoption = Adoption {
        fates,
        made: made(&reader, &rules)?,
        now,
        not_run,
        engines: deployments.iter().filter_map(Stopped::of).collect(),
        webhooks,
        moves: moves::names(&moves::stored(&reader)?),
    };
    show(ui, &adoption)?;
    Ok(if adoption.is_smooth() { CommandOutcome::Done } else { CommandOutcome::Negative })
}

fn all(reader: &LiveReader, gvk: &Gvk) -> Result<Vec<Value>, CommandFailure> {
    reader.all(gvk, "").map_err(|error| {
        CommandFailure::from(Diagnostic::error(format!("cannot list {}: {error}", gvk.kind)))
    })
}

/// What becomes of each policy, and of entries of the global context that are not kept.
fn fates(
    documents: &[Document],
    reader: &LiveReader,
    around: &RuleEnvironment,
) -> Result<Vec<Fate>, CommandFailure> {
    let policies = documents.iter().filter(|document| !is_exception(document));
    let mut fates: Vec<Fate> =
        policies.map(|document| fate(document, reader, &around.settings)).collect();
    let globals = reader.kinds().preferred("kyverno.io", "GlobalContextEntry");
    let entries = globals.map(|kind| all(reader, &kind.gvk())).transpose()?;
    fates.extend(entries.into_iter().flatten().filter_map(|entry| {
        let why = vec![differences::of_global(&entry)?];
        Some(Fate { policy: describe(&entry), runs: Runs::NotAtAll, why })
    }));
    Ok(fates)
}

/// What becomes of one policy.
fn fate(document: &Document, reader: &LiveReader, settings: &Settings) -> Fate {
    let policy = describe(document.value());
    if !is_policy(document) {
        let kind = document.value().str_at(["kind"]).unwrap_or_default();
        let why = vec![format!("Kiln has no rules of kind {kind}: they stay with their engine")];
        return Fate { policy, runs: Runs::NotAtAll, why };
    }
    let compiled = compile_for(PolicyHost::Cluster, [document], reader.kinds());
    let mut why: Vec<String> = compiled.not_run.iter().map(ToString::to_string).collect();
    why.extend(
        compiled
            .diagnostics
            .iter()
            .filter(|problem| problem.severity >= Severity::Warning)
            .map(|problem| problem.message.clone()),
    );
    why.extend(differences::of(document.value(), &settings.services));
    why.dedup();
    let acts = compiled.policies.iter().any(|policy| !policy.rules.is_empty());
    let runs = match (acts, why.is_empty()) {
        (false, _) => Runs::NotAtAll,
        (true, true) => Runs::Unchanged,
        (true, false) => Runs::InPart,
    };
    why.extend(differences::remark(document.value(), settings.authors).map(str::to_owned));
    Fate { policy, runs, why }
}

/// How many objects of the kinds that rules make carry the labels of a rule.
fn made(reader: &LiveReader, rules: &kiln_engine::RuleSet) -> Result<Made, CommandFailure> {
    let mut kinds: Vec<Gvk> = rules
        .rules()
        .filter_map(|rule| match &rule.program {
            Program::Generate(generate) => Some(generate),
            Program::Mutate(_) | Program::Modify(_) | Program::Validate(_) | Program::Delete(_) => {
                None
            }
        })
        .flat_map(|generate| generate.emitters().flat_map(|(_, _, emitter)| emitter.target_kinds()))
        .filter_map(|gvk| reader.kinds().preferred(&gvk.group, &gvk.kind))
        .map(kiln_object::Kind::gvk)
        .collect();
    kinds.sort();
    kinds.dedup();
    let mut made = Made::default();
    for gvk in kinds {
        for claim in all(reader, &gvk)?.iter().filter_map(Ownership::read) {
            made.all += 1;
            made.without_trigger += usize::from(claim.labels.trigger_uid.is_none());
        }
    }
    Ok(made)
}

fn show(ui: &Ui, adoption: &Adoption) -> io::Result<()> {
    if ui.format() != OutputFormat::Text {
        return ui.document(&as_json(adoption));
    }
    let mut out = ui.stdout();
    text(&mut out, adoption)?;
    out.flush()
}

fn text(out: &mut impl Write, adoption: &Adoption) -> io::Result<()> {
    for fate in &adoption.fates {
        writeln!(out, "{:<9} {}", fate.runs.word(), plain(&fate.policy))?;
        for why in &fate.why {
            writeln!(out, "          {}", plain(why))?;
        }
    }
    for planned in &adoption.now.changes {
        let (by, fields) = (by(&planned.rules), first_fields(&fields(planned)));
        let separator = if fields.is_empty() { "" } else { ": " };
        let target = plain(&planned.target.to_string());
        writeln!(out, "{:<9} {target}{by}{separator}{}", planned.action(), plain(&fields))?;
    }
    for undone in &adoption.now.undone {
        writeln!(out, "not done  {}: {}", plain(&undone.what), plain(&undone.why))?;
    }
    for Stopped { deployment, engine, enforces } in &adoption.engines {
        writeln!(out, "stop      Deployment {deployment} ({engine}), before `kiln run` starts")?;
        if let Some(rules) = adoption.unenforced().filter(|_| *enforces) {
            writeln!(
                out,
                "          stopped, it no longer enforces what Kiln does not run ({rules}), and nothing else does\n          \
                 to keep it for that, let it run and start `kiln run --only controller` instead (docs/guides/from-kyverno.md, \"{KEEPING}\")"
            )?;
        }
    }
    for left in &adoption.webhooks {
        writeln!(
            out,
            "remove    {}, which stays when its engine is stopped and then {}\n          {}",
            left.describe(),
            left.effect(),
            left.removal()
        )?;
    }
    if let Some(words) = moves::words(&adoption.moves) {
        writeln!(out, "{words}")?;
    }
    if adoption.made.without_trigger > 0 {
        let many = counted(adoption.made.without_trigger, "object carries", "objects carry");
        writeln!(
            out,
            "differs   {many} labels without the UID of a trigger, as older versions of Kyverno write them\n          \
             they are labelled anew when the rule next runs for the trigger, and stay when it goes before"
        )?;
    }
    let count = |runs: Runs| adoption.fates.iter().filter(|fate| fate.runs == runs).count();
    let stay = adoption.made.all.saturating_sub(adoption.touched().count());
    writeln!(
        out,
        "{}: {} unchanged, {} in part, {} not run; {}",
        counted(adoption.fates.len(), "policy", "policies"),
        count(Runs::Unchanged),
        count(Runs::InPart),
        count(Runs::NotAtAll),
        counted(
            stay,
            "object that rules made stays as it is",
            "objects that rules made stay as they are"
        ),
    )
}

/// So many fields of an object are named on its line.
const MOST_FIELDS: usize = 8;

/// The fields in which an object would be another; none for one that comes or goes.
fn fields(planned: &Planned) -> Vec<String> {
    let mut fields = Vec::new();
    if let (Some(before), Some(after)) = (&planned.before, &planned.after) {
        differing(before, after, "", &mut fields);
    }
    fields
}

/// Some of them, for a line.
fn first_fields(fields: &[String]) -> String {
    let mut text = fields[..fields.len().min(MOST_FIELDS)].join(", ");
    if fields.len() > MOST_FIELDS {
        text.push_str(&format!(", {} more", fields.len() - MOST_FIELDS));
    }
    text
}

/// Adds the paths at which two values differ. Marks of the engine are written along with other changes.
fn differing(before: &Value, after: &Value, path: &str, fields: &mut Vec<String>) {
    let (Value::Map(old), Value::Map(new)) = (before, after) else {
        if before != after {
            fields.push(path.to_owned());
        }
        return;
    };
    let is_mark = |key: &str| key.starts_with(ANNOTATION_PREFIX);
    let keys = old.keys().chain(new.keys().filter(|key| !old.contains_key(key)));
    for key in keys.filter(|key| !is_mark(key)) {
        let path = if path.is_empty() { key.to_string() } else { format!("{path}.{key}") };
        let part = |map: &Map| map.get(key).cloned().unwrap_or(Value::Null);
        match (part(old), part(new)) {
            // A map that holds nothing but marks is one that is not there.
            (Value::Null, Value::Map(map)) | (Value::Map(map), Value::Null)
                if map.keys().all(|key| is_mark(key)) => {}
            (old, new) => differing(&old, &new, &path, fields),
        }
    }
}

fn as_json(adoption: &Adoption) -> serde_json::Value {
    let policies: Vec<_> = adoption
        .fates
        .iter()
        .map(|fate| json!({"policy": fate.policy, "runs": fate.runs.word(), "why": fate.why}))
        .collect();
    let changes = adoption.now.changes.iter().map(|planned| {
        let rules: Vec<_> = planned.rules.iter().map(rule).collect();
        json!({
            "action": planned.action(), "object": planned.target.to_string(),
            "by": rules, "fields": fields(planned),
        })
    });
    let undone = adoption.now.undone.iter();
    let undone = undone.map(|undone| json!({"what": undone.what, "why": undone.why}));
    let engines = adoption.engines.iter();
    let engines = engines.map(|Stopped { deployment, engine, enforces }| {
        let rules = adoption.unenforced().filter(|_| *enforces);
        json!({"deployment": deployment, "engine": engine, "enforces": rules})
    });
    let webhooks = adoption.webhooks.iter();
    let webhooks = webhooks.map(|left| json!({"what": left.describe(), "do": left.removal()}));
    json!({
        "policies": policies,
        "made": adoption.made.all,
        "withoutTrigger": adoption.made.without_trigger,
        "changes": changes.collect::<Vec<_>>(),
        "notDone": undone.collect::<Vec<_>>(),
        "stopFirst": engines.collect::<Vec<_>>(),
        "removeThen": webhooks.collect::<Vec<_>>(),
        "moves": adoption.moves,
    })
}

#[cfg(test)]
mod tests {
    use kiln_object::ObjectId;
    use kiln_runtime::NotApplied;
    use kiln_value::value;

    use super::*;

    fn adoption(now: DryRunResult) -> Adoption {
        Adoption {
            fates: Vec::new(),
            made: Made { all: 2, without_trigger: 0 },
            now,
            not_run: BTreeMap::new(),
            engines: Vec::new(),
            webhooks: Vec::new(),
            moves: Vec::new(),
        }
    }

    fn said(adoption: &Adoption) -> String {
        let mut out = Vec::new();
        text(&mut out, adoption).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn what_policies_say_stays_on_its_line_and_is_not_obeyed() {
        let hostile = || "a\u{1b}[2J\nunchanged everything".to_owned();
        let undone = NotApplied { what: hostile(), why: hostile() };
        let mut adoption =
            adoption(DryRunResult { undone: vec![undone], ..DryRunResult::default() });
        let why = vec![hostile()];
        adoption.fates.push(Fate { policy: hostile(), runs: Runs::InPart, why });
        let said = said(&adoption);
        assert!(!said.contains('\u{1b}') && !said.contains("\nunchanged"), "{said:?}");
        assert_eq!(said.matches("a\u{fffd}[2J unchanged everything").count(), 4, "{said}");
    }

    #[test]
    fn nobody_is_told_to_stop_what_enforces_rules_without_hearing_of_it() {
        let stopped = |deployment: &str, enforces: bool| Stopped {
            deployment: deployment.to_owned(),
            engine: KYVERNO,
            enforces,
        };
        let mut adoption = adoption(DryRunResult::default());
        adoption.engines = vec![stopped("kyverno/admission", true), stopped("kyverno/bg", false)];
        assert!(!said(&adoption).contains("enforces"));
        adoption.not_run.extend([("validate", 2), ("verifyImages", 1)]);
        let said = said(&adoption);
        let wanted = "stop      Deployment kyverno/admission (Kyverno), before `kiln run` starts\n          \
                      stopped, it no longer enforces what Kiln does not run (2 validate, 1 verifyImages), and nothing else does\n          \
                      to keep it for that, let it run and start `kiln run --only controller` instead";
        assert!(said.contains(wanted), "{said}");
        assert_eq!(said.matches("enforces").count(), 1, "{said}");
    }

    #[test]
    fn targets_of_mutate_rules_are_not_among_what_rules_made() {
        let target = value!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
        let planned = Planned {
            target: ObjectId::of(&target).unwrap(),
            rules: Vec::new(),
            before: Some(target.clone()),
            after: Some(target.clone()),
        };
        let said =
            said(&adoption(DryRunResult { changes: vec![planned], ..DryRunResult::default() }));
        assert!(said.ends_with("; 2 objects that rules made stay as they are\n"), "{said}");
    }
}
