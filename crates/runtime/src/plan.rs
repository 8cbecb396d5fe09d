//! What rules would do to a cluster: a dry run of the controller on a cluster that is only read.

use std::fmt;
use std::sync::Arc;

use kiln_cluster::{ApiError, Call, Reply};
use kiln_controller::Settings;
use kiln_controller::dry_run::{
    self, Admit, Applied, ClusterReader, DryRun, DryRunResult, NotApplied,
};
use kiln_diagnostic::Severity;
use kiln_engine::{Globals, HostAllowlist, WithGlobals};
use kiln_object::identity::describe;
use kiln_object::{Gvk, Kinds, ObjectId};
use kiln_rules::{Exception, Policy};
use kiln_services::Services;
use kiln_value::Value;

use crate::calls::carry_out;
use crate::controller_loop::{configure, now};
use crate::globals;
use crate::policy_store;
use crate::reader::LiveReader;

/// What is planned.
pub struct PlanInput<'p> {
    /// The kinds that the cluster serves.
    pub kinds: &'p Kinds,
    /// The only policies that act; none for those of the cluster.
    pub policies: Option<Vec<Value>>,
    /// What rules leave alone.
    pub exceptions: Vec<Arc<Exception>>,
    /// Rules that act on new objects only act on all.
    pub all: bool,
    /// The namespace that the engine lives in.
    pub namespace: &'p str,
    /// What is around the rules.
    pub around: &'p RuleEnvironment,
    /// What rules at admission make of writes.
    pub admit: &'p Admit<'p>,
    /// What a user applies besides.
    pub applied: Applied<'p>,
}

impl fmt::Debug for PlanInput<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Play").field("policies", &self.policies).finish_non_exhaustive()
    }
}

/// What rules have besides objects, as a running engine would give it to them, read once.
#[derive(Debug)]
pub struct RuleEnvironment {
    /// What the ConfigMap says.
    pub settings: kiln_admission::Settings,
    /// The global context.
    pub globals: Arc<Globals>,
    /// Whom they may ask.
    pub services: Services,
}

impl RuleEnvironment {
    /// What rules may ask besides objects.
    pub fn external_data(&self) -> WithGlobals<'_, Services> {
        WithGlobals { external_data: &self.services, globals: &self.globals }
    }
}

impl LiveReader {
    /// What rules have besides objects: as the ConfigMap of the engine says, and with these services.
    ///
    /// # Errors
    /// When the settings or the entries of the global context cannot be read.
    pub fn around(
        &self,
        namespace: &str,
        services: &HostAllowlist,
    ) -> Result<RuleEnvironment, ApiError> {
        let config =
            ObjectId::new(Gvk::new("v1", "ConfigMap"), namespace, &self.names.config_map());
        let config = self.object(&config)?;
        let (settings, _) =
            kiln_admission::Settings::named(namespace, &self.names).read(config.as_ref());
        let globals = self.runtime.block_on(globals::read_once(
            &self.client,
            &self.kinds,
            self.names.stands_for_kyverno(),
        ))?;
        let services = Services::new(services.clone().and(&settings.services));
        Ok(RuleEnvironment { settings, globals: Arc::new(globals), services })
    }
}

/// Takes away the policies that may not take the place of the stored ones: the cluster would refuse them. Each is given
/// with why.
pub fn take_refused(reader: &LiveReader, policies: &mut Vec<Value>) -> Vec<(ObjectId, NotApplied)> {
    let mut refused = Vec::new();
    policies.retain(|policy| {
        let why = || refused_update(&stored(reader, policy)?, policy);
        let (Ok(id), Some(why)) = (ObjectId::of(policy), why()) else { return true };
        refused.push((id, NotApplied { what: describe(policy), why }));
        false
    });
    refused
}

/// Finds out what rules would do, and does none of it.
pub fn plan(reader: &LiveReader, input: PlanInput<'_>) -> DryRunResult {
    let PlanInput { kinds, policies, exceptions, all, namespace, around, admit, applied } = input;
    let mut settings = Settings { namespace: namespace.into(), ..Settings::default() };
    settings.requests.kind = reader.names.update_request();
    configure(&mut settings, &around.settings);
    // There is no sender here whom the settings could exclude.
    settings.requests.patience = 0;
    settings.rules.services = !around.services.are_off();
    let input = DryRun {
        cluster: reader,
        kinds,
        settings: &settings,
        policies,
        policy_kinds: &policy_store::policy_kinds(reader.names.stands_for_kyverno()),
        compile: &|policy| compiled(policy, kinds, all),
        exceptions,
        globals: Arc::clone(&around.globals),
        services: &around.services,
        admit,
        applied,
    };
    dry_run::run(input, now())
}

/// The policy that the cluster has by the name of one.
fn stored(reader: &LiveReader, policy: &Value) -> Option<Value> {
    reader.object(&ObjectId::of(policy).ok()?).ok()?
}

/// Why a policy cannot take the place of another.
fn refused_update(old: &Value, new: &Value) -> Option<String> {
    if old.get("spec") == new.get("spec") {
        return None;
    }
    let (old, new) = (policy_store::document(old), policy_store::document(new));
    let found = kiln_dialects::kyverno::check_update(&old, &new);
    let refused = found.into_iter().find(|found| found.severity == Severity::Error)?;
    let hint = refused.hint.map(|hint| format!(" ({hint})")).unwrap_or_default();
    Some(format!("the update is denied: {}{hint}", refused.message))
}

impl ClusterReader for LiveReader {
    fn all(&self, kind: &Gvk) -> Result<Vec<Value>, ApiError> {
        LiveReader::all(self, kind, "")
    }

    fn dry_run(&self, call: &Call) -> Option<Result<Value, ApiError>> {
        match self.ask(call) {
            Ok(Reply::Object(object)) => Some(Ok(object)),
            Ok(_) => None,
            Err(error) => Some(Err(error)),
        }
    }
}

impl LiveReader {
    /// Carries out a call that changes nothing.
    fn ask(&self, call: &Call) -> Result<Reply, ApiError> {
        if call.changes() {
            let message = "a read-only connection changes nothing";
            return Err(ApiError::new(kiln_cluster::Reason::Forbidden, message));
        }
        self.runtime.block_on(carry_out(&self.client, &self.kinds, call))
    }
}

/// Compiles a policy as it is stored; its rules also run for what is there already, if all of them are to.
fn compiled(policy: &Value, kinds: &Kinds, all: bool) -> Result<Arc<Policy>, String> {
    let policy = policy_store::compile(policy, kinds).map_err(|problem| problem.to_string())?;
    let mut policy = policy_store::reconciled(policy);
    if all {
        for rule in &mut Arc::make_mut(&mut policy).rules {
            Arc::make_mut(rule).lifecycle.existing = true;
        }
    }
    Ok(policy)
}
