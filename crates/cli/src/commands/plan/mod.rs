//! `kiln plan`

mod bookkeeping;
mod cleanup;
mod next_write;
mod secrets;
mod show;

use std::sync::Arc;

use kiln_admission::Settings;
use kiln_diagnostic::{Diagnostic, Severity};
use kiln_dialects::{Host, is_policy};
use kiln_object::{Kinds, ObjectId, list};
use kiln_rules::{Exception, Policy, Program, RuleId};
use kiln_runtime::{DryRunResult, PlanInput, take_refused};
use kiln_services::HostAllowlist;
use kiln_value::Value;
use kiln_yaml::Document;

use crate::args::Global;
use crate::cluster::admission_simulation::AdmissionSimulation;
use crate::cluster::connection::{Connection, around, stored_exceptions, stored_rules};
use crate::exit::{CommandOutcome, CommandResult, Failure};
use crate::policy_files::{compile_rules, more_kinds, read_all, rule_set};
use crate::ui::Ui;
use cleanup::NextRun;
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
/// Exits with code 0 if nothing would change, with 1 if something would, or could not be done.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Policies: files, directories, or - for standard input [default: those of the cluster]
    #[arg(value_name = "RULES")]
    rules: Vec<String>,

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
}

pub(crate) fn run(ui: &Ui, global: &Global, args: &Args) -> CommandResult {
    let services = super::run::all(&args.how.allow_service);
    plan(ui, global, &args.rules, args.how.all, &services, &args.how.plan)
}

/// Makes a plan for these rules, and shows it.
pub(super) fn plan(
    ui: &Ui,
    global: &Global,
    rules: &[String],
    all: bool,
    services: &HostAllowlist,
    args: &PlanArgs,
) -> CommandResult {
    ui.has_formats_of("plan")?;
    let documents = read_all(rules, global)?;
    if !rules.is_empty() && !documents.iter().any(is_policy) {
        return Err(Diagnostic::error(format!("there is no policy in {}", rules.join(", "))).into());
    }
    let reader = args.connection.reader()?;
    let kinds = more_kinds(reader.kinds().clone(), &documents)?;
    let around = around(&reader, &args.engine_namespace, services)?;
    let mut compiled = if rules.is_empty() {
        stored_rules(ui, &reader, &around.settings, Severity::Warning)?
    } else {
        let mut compiled = compile_rules(ui, Host::Cluster, &documents, &[], &kinds);
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
    let play = PlanInput {
        kinds: &kinds,
        policies,
        exceptions: compiled.exceptions.clone(),
        all,
        namespace: &args.engine_namespace,
        around: &around,
        admit: &|old, object| admission.admit(old, object),
    };
    let mut now = kiln_runtime::plan(&reader, play);
    now.undone.splice(0..0, refused.into_iter().map(|(_, undone)| undone));
    let waits = |rule: &kiln_rules::Rule| {
        !all && !rule.lifecycle.existing && matches!(rule.program, Program::Generate(_))
    };
    let mut plan = Plan {
        now,
        next_write: next_write::all(&admission, &set)?,
        next_runs: cleanup::all(&reader, &set, &kinds, &around),
        waiting: set.rules().filter(|rule| waits(rule)).map(|rule| rule.id.clone()).collect(),
    };
    secrets::hide(&mut plan);
    let shown = match (args.brief, args.full) {
        (true, _) => show::Shown::Names,
        (_, true) => show::Shown::All,
        _ => show::Shown::Content,
    };
    show::plan(ui, shown, &plan)?;
    if compiled.has_errors() {
        // What is wrong has been shown already.
        return Err(Failure::BadInput(Vec::new()));
    }
    let is_quiet =
        plan.now.changes.is_empty() && plan.now.undone.is_empty() && plan.next_write.is_empty();
    let is_quiet = is_quiet
        && plan.next_runs.iter().all(|run| run.deletes.is_empty() && run.failed.is_empty());
    Ok(if is_quiet { CommandOutcome::Done } else { CommandOutcome::Negative })
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
