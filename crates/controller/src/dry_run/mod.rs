//! What rules would do to a cluster, found out without doing it.
//!
//! A controller works as ever, but on a [`OverlayCluster`]: what it reads is what the cluster holds, what it writes stays
//! here. When it is idle, the overlay says what would be another object by then. Policies that stand in the
//! cluster beside the ones that act do nothing new, and keep what they made.
//!
//! Time is simulated too, for a few seconds: what waits for longer is reported as a problem.

mod overlay_cluster;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use kiln_cluster::{ApiError, Call, KindKey, Reply};
use kiln_engine::{ExternalData, Globals, Ownership};
use kiln_object::{Change, Gvk, Kinds, ObjectId};
use kiln_rules::{Exception, RuleId};
use kiln_value::{Str, Value};

use crate::controller::{Controller, ControllerEvent};
use crate::lookups::{Lookup, LookupResult};
use crate::ownership::signature::ClaimKeys;
use crate::policies::stored_policies::{CompilePolicy, PolicyFeed};
use crate::settings::Settings;
use overlay_cluster::OverlayCluster;

/// So much time is simulated, in milliseconds.
const SIMULATED: u64 = 10_000;
/// So often the controller is asked at the most.
const ROUNDS: usize = 100_000;

/// A cluster that is only asked.
pub trait ClusterReader {
    /// All objects of a kind.
    ///
    /// # Errors
    /// What the server says, or why it says nothing.
    fn all(&self, kind: &Gvk) -> Result<Vec<Value>, ApiError>;

    /// What the cluster would store, if it can be asked without storing it.
    ///
    /// # Errors
    /// What the server has against it.
    fn dry_run(&self, call: &Call) -> Option<Result<Value, ApiError>>;
}

/// A change that rules would make.
#[derive(Clone, Debug, PartialEq)]
pub struct Planned {
    /// Which object.
    pub target: ObjectId,
    /// The rules that do it: the one that makes or made it, as its labels say, and those that change what is stored.
    pub rules: Vec<RuleId>,
    /// The object as it is; none for a new one.
    pub before: Option<Value>,
    /// The object as it would be; none for one that would be deleted.
    pub after: Option<Value>,
}

impl Planned {
    /// What would be done, in a word: `create`, `change` or `delete`.
    pub fn action(&self) -> &'static str {
        match (&self.before, &self.after) {
            (None, _) => "create",
            (Some(_), Some(_)) => "change",
            (Some(_), None) => "delete",
        }
    }
}

/// Something that would not be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotApplied {
    /// The rule or the policy.
    pub what: String,
    pub why: String,
}

/// An object that a user would apply in vain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denied {
    pub target: ObjectId,
    /// The rules that deny it; none if the server does.
    pub rules: Vec<RuleId>,
    pub why: String,
}

/// What a dry run showed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DryRunResult {
    /// What would change, in the order of kinds, namespaces and names.
    pub changes: Vec<Planned>,
    /// The objects of the user that would not be stored.
    pub denied: Vec<Denied>,
    /// What would not be done.
    pub undone: Vec<NotApplied>,
}

/// What rules at admission make of a write: what was there, and what is to be there. Otherwise why they refuse it.
pub type Admit<'r> = dyn Fn(Option<&Value>, Value) -> Result<Value, String> + 'r;

/// What is reconciled without writing, and in which cluster.
pub struct DryRun<'r> {
    pub cluster: &'r dyn ClusterReader,
    pub kinds: &'r Kinds,
    /// What a host decides.
    pub settings: &'r Settings,
    /// The only policies that act, whether the cluster has them, has others by their names, or has none; without, the
    /// policies of the cluster do.
    pub policies: Option<Vec<Value>>,
    /// The kinds of policies.
    pub policy_kinds: &'r [Gvk],
    /// What compiles them.
    pub compile: &'r CompilePolicy<'r>,
    /// What rules leave alone.
    pub exceptions: Vec<Arc<Exception>>,
    /// The global context.
    pub globals: Arc<Globals>,
    /// Whom rules may ask besides the cluster.
    pub services: &'r dyn ExternalData,
    /// What happens to writes before they are stored.
    pub admit: &'r Admit<'r>,
    /// What a user applies when the rules have nothing left to do.
    pub applied: Applied<'r>,
}

/// Objects that a user applies, in order, each with all that it would have.
pub struct Applied<'r> {
    pub objects: Vec<Value>,
    /// What happens to them before they are stored.
    pub admit: &'r Admit<'r>,
}

impl Applied<'_> {
    /// Nothing is applied.
    pub fn nothing() -> Self {
        Applied { objects: Vec::new(), admit: &|_, object| Ok(object) }
    }
}

impl fmt::Debug for DryRun<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DryRun").field("settings", &self.settings).finish_non_exhaustive()
    }
}

/// Finds out what rules would do to a cluster.
pub fn run(dry_run: DryRun<'_>, now: u64) -> DryRunResult {
    let DryRun {
        cluster, kinds, settings, policies, policy_kinds, compile, services, applied, ..
    } = dry_run;
    let has_own_policies = policies.is_none();
    let mut overlay = OverlayCluster::new(cluster, dry_run.admit, &settings.namespace, now);
    if let Some(policies) = policies {
        let standing = overlay.only_policies(policy_kinds, policies);
        let standing = standing.iter().filter_map(|policy| compile(policy).ok());
        let rules = standing.flat_map(|policy| policy.rules.clone());
        overlay.keep_owners(
            rules.filter(|rule| rule.lifecycle.synchronize).map(|rule| rule.id.clone()),
        );
    }
    let believing =
        Settings { follow_rights: false, claim_keys: ClaimKeys::believing(), ..settings.clone() };
    let mut feed = PolicyFeed::new(compile);
    for kind in policy_kinds {
        // Where policies cannot be read, there are none.
        let listed = overlay.carry_out(&Call::list(kind.clone())).map(Reply::listing);
        for policy in listed.ok().flatten().unwrap_or_default().objects {
            feed.note(&policy, Change::Added);
        }
    }
    let mut controller = Controller::new(believing, kinds.clone());
    controller.set_exceptions(dry_run.exceptions);
    controller.set_globals(dry_run.globals);
    controller.set_policies(feed.policies(), now);
    let mut patched = BTreeMap::new();
    let mut run = OverlayRun { controller, overlay, feed, policy_kinds, now };
    let mut undone_anyway = run.until_idle(services, &mut patched);
    let mut denied = Vec::new();
    let mut standing = Vec::new();
    if !applied.objects.is_empty() {
        // What the policies of the cluster have still to do is not what the user asks about.
        if has_own_policies {
            standing.extend(run.overlay.changes(policy_kinds));
        }
        for object in applied.objects {
            let Ok(target) = ObjectId::of(&object) else { continue };
            if let Err(error) = run.overlay.apply(&target, object, applied.admit) {
                denied.push(Denied { target, rules: Vec::new(), why: error.message });
            }
        }
        undone_anyway.extend(run.until_idle(services, &mut patched));
    }
    let OverlayRun { controller, overlay, .. } = run;

    let own: BTreeSet<&RuleId> = controller.rules().collect();
    let changes = overlay.changes(policy_kinds).filter(|change| !standing.contains(change));
    let changes = changes.map(|(target, before, after)| {
        let mut rules: Vec<RuleId> = patched.get(&place(&target)).cloned().unwrap_or_default();
        let claim = after.as_ref().or(before.as_ref()).and_then(Ownership::read);
        let maker =
            claim.and_then(|claim| own.iter().copied().find(|rule| claim.labels.names(rule)));
        rules.extend(maker.filter(|_| rules.is_empty()).cloned());
        Planned { target, rules, before, after }
    });
    let mut result = DryRunResult { changes: changes.collect(), denied, undone: undone_anyway };
    let undone = |what: String, why: &str| NotApplied { what, why: why.to_owned() };
    let broken = controller.broken_policies();
    result.undone.extend(broken.map(|(policy, why)| undone(policy.to_string(), why)));
    let waiting = controller.conditions();
    result.undone.extend(waiting.map(|(key, why)| undone(key.rule.to_string(), &why.message)));
    result.undone.sort_by(|a, b| (&a.what, &a.why).cmp(&(&b.what, &b.why)));
    result.undone.dedup();
    result
}

/// An object by its kind, whatever the version.
type Object = (KindKey, Str, Str);

fn place(id: &ObjectId) -> Object {
    (KindKey::of(&id.gvk), id.namespace.clone(), id.name.clone())
}

/// A controller that works on an overlay, with the policies that the overlay has.
struct OverlayRun<'r> {
    controller: Controller,
    overlay: OverlayCluster<'r>,
    feed: PolicyFeed<'r>,
    policy_kinds: &'r [Gvk],
    now: u64,
}

impl OverlayRun<'_> {
    /// Lets the controller work until it has nothing left to do, and notes which rules changed stored objects.
    fn until_idle(
        &mut self,
        services: &dyn ExternalData,
        patched: &mut BTreeMap<Object, Vec<RuleId>>,
    ) -> Vec<NotApplied> {
        let OverlayRun { controller, overlay, feed, policy_kinds, now } = self;
        let begin = *now;
        for _ in 0..ROUNDS {
            let requests = controller.poll(*now);
            let questions = controller.take_questions();
            let is_quiet = requests.is_empty() && questions.is_empty();
            for question in questions {
                let answer = match &question.asked {
                    Lookup::Service(asked) => {
                        LookupResult::Service(services.exchange(&asked.request()))
                    }
                    // The user of a plan may lack permission to create SubjectAccessReviews.
                    Lookup::Access(_) => LookupResult::Access(Ok(true)),
                };
                controller.answered(question.number, answer, *now);
            }
            for request in requests {
                let answer = overlay.carry_out(&request.call);
                controller.answer(request.ticket, answer, *now);
            }
            for news in controller.take_news() {
                if let ControllerEvent::Changed { rule, target } = news {
                    let rules = patched.entry(place(&target)).or_default();
                    if !rules.contains(&rule) {
                        rules.push(rule);
                    }
                }
            }
            let watched: BTreeSet<Gvk> =
                controller.watches().into_iter().map(|(gvk, _)| gvk).collect();
            let events = overlay.take_events();
            let is_quiet = is_quiet && events.is_empty();
            for (kind, event) in events {
                // Rules may make policies.
                if policy_kinds.iter().any(|policies| KindKey::of(policies) == kind) {
                    feed.note(&event.object, event.change);
                    controller.set_policies(feed.policies(), *now);
                }
                for gvk in watched.iter().filter(|gvk| KindKey::of(gvk) == kind) {
                    controller.watched(gvk, &event, *now);
                }
            }
            if is_quiet && controller.is_idle() {
                match controller.next_time() {
                    Some(next) if next <= begin + SIMULATED => *now = next.max(*now),
                    _ => return Vec::new(),
                }
            }
        }
        let why = format!("it is not stable after {ROUNDS} rounds; rules may trigger each other");
        vec![NotApplied { what: "this plan".to_owned(), why }]
    }
}
