//! `kiln plan`

mod cleanup;
mod html;
mod kustomization;
mod markdown;
mod next_write;
mod secrets;
mod show;

use std::sync::Arc;

use kiln_admission::Settings;
use kiln_diagnostic::{Diagnostic, Severity};
use kiln_dialects::{Compiled, PolicyHost, is_policy};
use kiln_engine::HostAllowlist;
use kiln_object::{Kinds, ObjectId, list};
use kiln_rules::{Exception, Policy, Program, RuleId};
use kiln_runtime::{Applied, DryRunResult, PlanInput, take_refused};
use kiln_value::Value;
use kiln_yaml::Document;

use crate::args::Global;
use crate::cluster::admission_simulation::AdmissionSimulation;
use crate::cluster::chart_lookup::ChartLookup;
use crate::cluster::connection::{Connection, around, stored_exceptions, stored_rules};
use crate::exit::{CommandFailure, CommandOutcome, CommandResult};
use crate::kustomization::built_documents;
use crate::policy_files::{compile_rules, more_kinds, read_all, require_policy, rule_set};
use crate::ui::Ui;
use cleanup::NextRun;
pub(super) use kustomization::KustomizationArgs;
use kustomization::{AdmissionLog, against_revision, to_apply};
use next_write::NextWrite;
pub(super) use show::{by, rule};

/// Preview what policies would change in a cluster
///
/// Reads the cluster and prints what would be created, changed and deleted if these policies were stored in it now,
/// with differences and counts; which objects would be changed or rejected on their next write; and which ones the next
/// run of each cleanup policy would delete. Without RULES,
/// uses the policies of the cluster. Writes are tried as server-side dry runs where permitted, so that defaults of the
/// server are not shown as differences. Changes nothing.
///
/// With --kustomize, prints what would change if the objects of the kustomization were applied: what it builds, what
/// rules set in its objects, what they generate, and what would be denied. With --base it is compared with another
/// revision of the repository, without a cluster.
///
/// Exits with code 0 if nothing would change, with 1 if something would, or could not be done.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Policies: files, directories, or - for standard input [default: those of the cluster]
    #[arg(value_name = "RULES")]
    rules: Vec<String>,

    #[command(flatten)]
    kustomization: KustomizationArgs,

    /// Revision of the git repository to compare with, instead of a cluster
    #[arg(long, value_name = "REV", requires = "kustomize", conflicts_with = "all")]
    base: Option<String>,

    #[command(flatten)]
    how: How,
}

/// How a plan is made and shown.
#[derive(Debug, clap::Args)]
pub(super) struct PlanArgs {
    /// List the objects without their differences
    #[arg(long)]
    pub(super) brief: bool,

    /// Also show Kiln's own labels and annotations in differences
    #[arg(long, conflicts_with = "brief")]
    pub(super) full: bool,

    /// Namespace of the Kiln installation
    #[arg(long, value_name = "NAME", default_value = "kyverno", env = "KILN_NAMESPACE")]
    pub(super) engine_namespace: String,

    #[command(flatten)]
    pub(super) connection: Connection,
}

#[derive(Debug, clap::Args)]
struct How {
    /// Also run rules on existing objects, as with `generateExisting`
    #[arg(long)]
    all: bool,

    /// Host that rules may call, such as prices.shop.svc:8080 or *.example.com; in addition to those of the ConfigMap
    #[arg(long, value_name = "HOST", value_parser = HostAllowlist::read)]
    allow_service: Vec<HostAllowlist>,

    #[command(flatten)]
    plan: PlanArgs,
}

/// Where clients store what says no namespace.
const NAMESPACE: &str = "default";

/// What would happen.
struct Plan {
    now: DryRunResult,
    next_write: Vec<NextWrite>,
    next_runs: Vec<NextRun>,
    /// Rules that act on new objects only.
    waiting: Vec<RuleId>,
    /// The fields that rules set in objects of a kustomization.
    set_by_rules: Vec<(ObjectId, Vec<String>)>,
}

impl Plan {
    /// The fields that rules set in an object of a kustomization.
    fn set_by(&self, id: &ObjectId) -> Option<&[String]> {
        let found = self.set_by_rules.iter().find(|(known, _)| known == id);
        found.map(|(_, fields)| fields.as_slice())
    }
}

pub(crate) fn run(ui: &Ui, global: &Global, args: &Args) -> CommandResult {
    let services = super::run::all(&args.how.allow_service);
    if let Some(base) = &args.base {
        ui.has_formats_of("plan")?;
        let kustomization = &args.kustomization;
        let plan = against_revision(ui, global, &args.rules, &services, kustomization, base)?;
        return finish(ui, plan, &args.how.plan, false);
    }
    let task = PlanTask {
        rules: &args.rules,
        all: args.how.all,
        services: &services,
        kustomization: Some(&args.kustomization).filter(|it| it.kustomize.is_some()),
    };
    plan(ui, global, &task, &args.how.plan)
}

/// What is planned.
pub(super) struct PlanTask<'t> {
    pub(super) rules: &'t [String],
    /// Rules act on existing objects, too.
    pub(super) all: bool,
    pub(super) services: &'t HostAllowlist,
    /// What is applied besides.
    pub(super) kustomization: Option<&'t KustomizationArgs>,
}

/// Makes a plan for these rules, and shows it.
pub(super) fn plan(
    ui: &Ui,
    global: &Global,
    task: &PlanTask<'_>,
    args: &PlanArgs,
) -> CommandResult {
    let PlanTask { rules, all, services, kustomization } = *task;
    ui.has_formats_of("plan")?;
    let documents = read_all(rules, global)?;
    if !rules.is_empty() {
        require_policy(&documents, &rules.join(", "))?;
    }
    let reader = args.connection.reader().map_err(|problem| match kustomization {
        Some(_) => problem.hint("--base compares with a revision of the repository instead"),
        None => problem,
    })?;
    let built = match kustomization {
        Some(KustomizationArgs { kustomize: Some(directory), build }) => {
            built_documents(ui, global, directory, build, &ChartLookup(&reader))?
        }
        _ => Vec::new(),
    };
    let kinds = more_kinds(reader.kinds().clone(), documents.iter().chain(&built))?;
    let around = around(&reader, &args.engine_namespace, services)?;
    let mut compiled = if rules.is_empty() {
        let stored = stored_rules(ui, &reader, &around.settings, Severity::Warning)?;
        remark_not_run(ui, &stored);
        stored
    } else {
        let mut compiled = compile_rules(ui, PolicyHost::Cluster, &documents, &[], &kinds);
        for exception in compiled.exceptions.iter_mut().filter(|it| !it.name.contains('/')) {
            let name = format!("{NAMESPACE}/{}", exception.name);
            Arc::make_mut(exception).name = name.into();
        }
        remark_exceptions(ui, &compiled.exceptions, &around.settings);
        // A running engine would leave alone what they name.
        compiled.exceptions.extend(stored_exceptions(ui, &reader, &documents)?);
        compiled.exceptions = around.settings.in_force(&compiled.exceptions);
        compiled
    };
    let mut policies = (!rules.is_empty()).then(|| policies(&documents, &kinds));
    let refused: Vec<_> =
        policies.as_mut().map(|given| take_refused(&reader, given)).unwrap_or_default();
    compiled.policies.retain(|policy| !refused.iter().any(|(id, _)| is_named(policy, id)));
    let set = rule_set(&compiled);
    let admission = AdmissionSimulation::new(&compiled, &reader, &kinds, &around);
    let log = AdmissionLog::default();
    let user = if built.is_empty() { None } else { reader.user() };
    let objects = to_apply(ui, &reader, &kinds, built)?;
    let input = PlanInput {
        kinds: &kinds,
        policies,
        exceptions: compiled.exceptions.clone(),
        all,
        namespace: &args.engine_namespace,
        around: &around,
        admit: &|old, object| admission.admit(old, object),
        applied: Applied {
            objects,
            admit: &|old, object| log.admit(&admission, user.as_ref(), old, &object),
        },
    };
    let mut now = kiln_runtime::plan(&reader, input);
    let set_by_rules = log.name_rules(&mut now);
    now.undone.splice(0..0, refused.into_iter().map(|(_, undone)| undone));
    let waits = |rule: &kiln_rules::Rule| {
        !all && !rule.lifecycle.existing && matches!(rule.program, Program::Generate(_))
    };
    // Of a kustomization, users want to know what becomes of its objects.
    let whole = kustomization.is_none();
    let waiting = set.rules().filter(|rule| whole && waits(rule)).map(|rule| rule.id.clone());
    let plan = Plan {
        now,
        next_write: if whole { next_write::all(&admission, &set)? } else { Vec::new() },
        next_runs: match whole {
            true => cleanup::all(&reader, &set, &kinds, &around),
            false => Vec::new(),
        },
        waiting: waiting.collect(),
        set_by_rules,
    };
    finish(ui, plan, args, compiled.has_errors())
}

/// Shows a plan.
fn finish(ui: &Ui, mut plan: Plan, args: &PlanArgs, has_errors: bool) -> CommandResult {
    secrets::hide(&mut plan);
    let shown = match (args.brief, args.full) {
        (true, _) => show::Shown::Names,
        (_, true) => show::Shown::All,
        _ => show::Shown::Content,
    };
    show::plan(ui, shown, &plan)?;
    if has_errors {
        // What is wrong has been shown already.
        return Err(CommandFailure::BadInput(Vec::new()));
    }
    let is_quiet = plan.now.changes.is_empty()
        && plan.now.undone.is_empty()
        && plan.now.denied.is_empty()
        && plan.next_write.is_empty();
    let is_quiet = is_quiet
        && plan.next_runs.iter().all(|run| run.deletes.is_empty() && run.failed.is_empty());
    Ok(if is_quiet { CommandOutcome::Done } else { CommandOutcome::Negative })
}

/// Says in one line which rules of stored policies are not run, so that a plan without them is not taken for all of it.
fn remark_not_run(ui: &Ui, stored: &Compiled) {
    const SHOWN: usize = 5;
    let words: Vec<String> = stored
        .not_run
        .iter()
        .map(|not_run| match &not_run.rule {
            Some(rule) => format!("{}/{rule} ({})", not_run.policy, not_run.operation()),
            None => format!("{} ({})", not_run.policy, not_run.operation()),
        })
        .collect();
    if words.is_empty() {
        return;
    }
    let more = match words.len().saturating_sub(SHOWN) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let shown = words.iter().take(SHOWN).map(String::as_str).collect::<Vec<_>>().join(", ");
    let said = format!("not run by Kiln, and not part of this plan: {shown}{more}");
    ui.problem(&Diagnostic::new(Severity::Note, said).hint("`kiln doctor` says what to do"));
}

/// Says which of the given exceptions would not hold in the cluster.
fn remark_exceptions(ui: &Ui, given: &[Arc<Exception>], settings: &Settings) {
    for exception in given.iter().filter(|exception| !settings.holds(exception)) {
        let what = format!(
            "the PolicyException {} would not apply: it is for policies outside its namespace",
            exception.name
        );
        ui.problem(&Diagnostic::warning(what).hint(
            "store it in a namespace of kiln.exceptionNamespaces, or add its namespace there",
        ));
    }
}

/// Whether a policy would be stored as this object.
fn is_named(policy: &Policy, id: &ObjectId) -> bool {
    let own = ObjectId::of(policy.origin.document().value());
    own.is_ok_and(|own| {
        // One of the cluster has no namespace either way.
        let stored = if own.namespace.is_empty() { NAMESPACE } else { &own.namespace };
        let same_namespace = own.namespace == id.namespace || stored == id.namespace;
        own.gvk.kind == id.gvk.kind && own.name == id.name && same_namespace
    })
}

/// The policies among documents, as a cluster would store them.
fn policies(documents: &[Document], kinds: &Kinds) -> Vec<Value> {
    let mut policies = Vec::new();
    for document in documents.iter().filter(|document| is_policy(document)) {
        for mut policy in list::flatten(document.value().clone()) {
            let gvk = kiln_object::Gvk::of(&policy).unwrap_or_default();
            let known = kinds.preferred(&gvk.group, &gvk.kind);
            let is_namespaced = known
                .map_or(gvk.kind == "Policy", kiln_object::Kind::is_namespaced)
                || gvk.kind.starts_with("Namespaced");
            if is_namespaced && policy.str_at(["metadata", "namespace"]).is_none() {
                // A policy has metadata.
                let _ = policy.set(["metadata", "namespace"], NAMESPACE);
            }
            policies.push(policy);
        }
    }
    policies
}
