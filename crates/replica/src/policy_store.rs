//! The policies, exceptions and configuration that are stored, compiled, for all parts.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use kiln_admission::authors::Authors;
use kiln_cluster::{KindKey, WatchEvent};
use kiln_controller::PolicySnapshot;
use kiln_diagnostic::{Source, SourceLocation};
use kiln_dialects::{Compiled, NotRun, PolicyHost, SHADOW_OF, SHADOW_OF_RULES, not_run_in_words};
use kiln_engine::author::author_of;
use kiln_engine::{RuleSet, User};
use kiln_object::policy_kinds::{OWN_GROUP, PolicyRole, kinds_for, twin};
use kiln_object::{Change, Gvk, Kinds, ObjectId, metadata};
use kiln_rules::{Exception, Policy, PolicyId, Program, Rule};
use kiln_value::Value;
use kiln_yaml::{Document, ReadOptions};

use crate::watch_news::Subject;

/// What is stored that decides what the process does. It never changes: a new one takes its place.
#[derive(Debug, Default)]
pub struct Registry {
    pub policies: Vec<StoredPolicy>,
    pub exceptions: Vec<Arc<Exception>>,
    /// The rules of all policies that are in order, with their exceptions.
    pub rules: RuleSet,
    /// Those that delete objects on a schedule, apart from all others: no request and no change makes them run.
    pub cleanup: RuleSet,
    /// The entries of the global context.
    pub globals: Vec<Value>,
    /// The configuration's ConfigMap, if there is one.
    pub config: Option<Value>,
    /// Everything was read at least once.
    pub complete: bool,
    /// The kinds of policies that the cluster does not serve right now.
    pub unserved: BTreeSet<KindKey>,
    /// Policies that were deleted of late, in their last version.
    pub ended: Vec<StoredPolicy>,
    /// How many policies were compiled so far.
    pub compilations: u64,
}

impl Registry {
    /// The policies whose rules do something after objects are stored, for the controller.
    pub fn for_controller(&self) -> PolicySnapshot {
        let kinds: Vec<KindKey> = controller_kinds(true).iter().map(KindKey::of).collect();
        let given = |policies: &[StoredPolicy]| {
            let acting = policies.iter();
            let acting = acting.filter(|policy| kinds.contains(&KindKey::of(&policy.id.gvk)));
            let given = acting.map(|policy| kiln_controller::StoredPolicy {
                id: policy.id.clone(),
                object: policy.object.clone(),
                compiled: policy.reconciled.clone().map_err(|problem| problem.to_string()),
            });
            given.collect()
        };
        PolicySnapshot {
            stored: given(&self.policies),
            ended: given(&self.ended),
            unserved: self.unserved.clone(),
        }
    }

    /// The authors that policies are held to.
    pub fn authors(&self, hold: Authors) -> HashMap<PolicyId, User> {
        let held = self.policies.iter().filter(|policy| hold.hold(&policy.object));
        held.filter_map(|policy| {
            let id = policy.compiled.as_ref().ok()?.id.clone();
            Some((id, author_of(&policy.object)?))
        })
        .collect()
    }
}

#[derive(Clone, Debug)]
pub struct StoredPolicy {
    pub id: ObjectId,
    pub object: Value,
    /// Its rules; or why there are none: what is wrong with it, or that nothing of its kind is run.
    pub compiled: Result<Arc<Policy>, PolicyProblem>,
    /// The same for the controller, which has nothing to do with rules that check objects. It is the same one until the
    /// policy is compiled again, by which the controller knows that nothing changed.
    pub reconciled: Result<Arc<Policy>, PolicyProblem>,
    /// Those of its rules that Kiln does not run.
    pub not_run: Arc<[NotRun]>,
}

impl StoredPolicy {
    /// Whether something is wrong with it. A policy of which nothing is run is not broken.
    pub fn is_broken(&self) -> bool {
        self.compiled.as_ref().is_err_and(|problem| !matches!(problem, PolicyProblem::NotRun(_)))
    }

    /// Whether some of its rules act.
    pub fn acts(&self) -> bool {
        self.compiled.as_ref().is_ok_and(|policy| !policy.rules.is_empty())
    }

    /// Says that none of its rules is run, and what they would do; none if some are.
    pub fn runs_nothing(&self) -> Option<String> {
        let what = not_run_in_words(&self.not_run).filter(|_| !self.acts())?;
        Some(runs_nothing(&what))
    }
}

/// Why a policy of Kyverno's groups is not run that has a twin.
const DISPLACED: &str = "the policy of this name in kiln.dev/v1 is run instead";

fn runs_nothing(what: &str) -> String {
    PolicyProblem::NotRun(what.to_owned()).to_string()
}

/// Why a stored policy has no rules that act.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyProblem {
    /// It is wrong: the messages of its compiler.
    #[error("{0}")]
    Broken(String),
    /// Nothing is wrong with it, but Kiln runs nothing of its kind: what its rules would do.
    #[error("Kiln runs none of its rules: {0}")]
    NotRun(String),
    /// Kiln failed on it.
    #[error("internal error; see the Kiln log")]
    Internal,
}

/// The kinds of policies whose rules do something after objects are stored; those of Kyverno's groups too, if these are
/// run.
pub fn controller_kinds(kyverno: bool) -> Vec<Gvk> {
    kinds_for(&[PolicyRole::Acts], kyverno)
}

/// The kinds of policies that delete objects on a schedule.
pub fn cleanup_kinds(kyverno: bool) -> Vec<Gvk> {
    kinds_for(&[PolicyRole::Deletes], kyverno)
}

/// The kinds of policies that are run because something happens to objects.
pub fn policy_kinds(kyverno: bool) -> Vec<Gvk> {
    // All that ModRules do is done at admission, and policies that check objects make none.
    let at_admission = [Gvk::new("api.kubemod.io/v1beta1", "ModRule")];
    let checking = kinds_for(&[PolicyRole::Checks], kyverno);
    controller_kinds(kyverno).into_iter().chain(at_admission).chain(checking).collect()
}

/// The kinds of policies of which nothing is run. They are followed all the same: their status says so.
fn not_run_kinds(kyverno: bool) -> Vec<Gvk> {
    kinds_for(&[PolicyRole::NotRun], kyverno)
}

/// The kinds of policies that are followed.
fn followed_kinds(kyverno: bool) -> Vec<Gvk> {
    let (others, aside) = (cleanup_kinds(kyverno), not_run_kinds(kyverno));
    policy_kinds(kyverno).into_iter().chain(others).chain(aside).collect()
}

fn exception_kinds(kyverno: bool) -> Vec<Gvk> {
    kinds_for(&[PolicyRole::Exempts], kyverno)
}

pub fn global_kinds(kyverno: bool) -> Vec<Gvk> {
    kinds_for(&[PolicyRole::Data], kyverno)
}

/// Compiles a stored policy.
///
/// # Errors
/// What is wrong with it.
pub fn compile(policy: &Value, kinds: &Kinds) -> Result<Arc<Policy>, PolicyProblem> {
    compile_whole(policy, kinds).0
}

/// A policy as the controller has it, which has nothing to do with rules that check objects, nor with those of shadows.
pub fn reconciled(policy: Arc<Policy>) -> Arc<Policy> {
    let is_shadow = policy.delivery.shadow_of.is_some();
    let checks = |rule: &Rule| is_shadow || matches!(rule.program, Program::Validate(_));
    if !policy.rules.iter().any(|rule| checks(rule)) {
        return policy;
    }
    let rules = policy.rules.iter().filter(|rule| !checks(rule)).cloned().collect();
    Arc::new(Policy { rules, ..Policy::clone(&policy) })
}

/// What came of a stored policy: its rules, or what is wrong with it, and what is not run.
type Whole = (Result<Arc<Policy>, PolicyProblem>, Arc<[NotRun]>);

/// Compiles a stored policy, and says what of it is not run.
pub fn compile_whole(policy: &Value, kinds: &Kinds) -> Whole {
    let compiled = match compile_document(&document(policy), kinds) {
        Ok(compiled) => compiled,
        Err(why) => return (Err(why), Arc::default()),
    };
    let problems = || {
        let errors = compiled.diagnostics.iter();
        let errors = errors.filter(|found| found.severity == kiln_diagnostic::Severity::Error);
        errors.map(|found| found.message.clone()).collect::<Vec<_>>().join("; ")
    };
    let policy = compiled.policies.first().cloned();
    let policy = policy.ok_or_else(|| match not_run_in_words(&compiled.not_run) {
        Some(what) if !compiled.has_errors() => PolicyProblem::NotRun(what),
        _ => PolicyProblem::Broken(problems()),
    });
    // A policy with a mistake is broken, also if other rules of it would not be run.
    let not_run = if policy.is_err() && compiled.has_errors() {
        Arc::default()
    } else {
        compiled.not_run.into()
    };
    (policy, not_run)
}

/// Compiles a document. A policy on which Kiln fails is one that is broken: it keeps no other from its work.
fn compile_document(document: &Document, kinds: &Kinds) -> Result<Compiled, PolicyProblem> {
    catch_unwind(AssertUnwindSafe(|| {
        kiln_dialects::compile_for(PolicyHost::Cluster, [document], kinds)
    }))
    .map_err(|_| PolicyProblem::Internal)
}

/// The document of a stored object, in which compilers find their way.
pub fn document(object: &Value) -> Document {
    Document::from_value("policy", object.clone(), ReadOptions::kubernetes())
}

/// Something that was read: everything there is of a subject, or what happened to one object of it.
#[derive(Clone, Debug)]
pub enum News {
    All(usize, Vec<Value>),
    One(usize, WatchEvent),
    /// The cluster does not serve its kind, so that there is none.
    Unserved(usize),
    /// Nothing: it cannot be listed, and why.
    Unreadable(String),
}

impl News {
    /// Makes objects what they are by this.
    pub fn take_into(self, objects: &mut BTreeMap<Place, Value>) {
        match self {
            News::Unserved(number) => objects.retain(|(known, _, _), _| *known != number),
            News::All(number, all) => {
                objects.retain(|(known, _, _), _| *known != number);
                objects.extend(all.into_iter().map(|object| (place(number, &object), object)));
            }
            News::One(number, event) if event.change == Change::Deleted => {
                objects.remove(&place(number, &event.object));
            }
            News::One(number, event) => {
                objects.insert(place(number, &event.object), event.object);
            }
            News::Unreadable(_) => {}
        }
    }
}

/// The number of a subject, and the namespace and name of one of its objects.
// One map of all kinds and no `ObjectMap` for each: a registry is made of all of them in one walk, kind by kind.
pub type Place = (usize, String, String);

/// Everything that decides what a process does: what is followed, and which of it.
#[derive(Clone, Debug)]
pub struct FollowedPolicies {
    /// What is followed, by number.
    pub subjects: Vec<Subject>,
    /// Without these nothing is decided. Nothing waits for policies that are not run: rights of before they were followed
    /// are good enough.
    pub needed: BTreeSet<usize>,
}

impl FollowedPolicies {
    /// What an engine in a namespace follows; policies of Kyverno's groups too, if these are run.
    pub fn of(namespace: &str, config_map: &str, kyverno: bool) -> Self {
        let mut subjects: Vec<Subject> =
            followed_kinds(kyverno).into_iter().map(Subject::all).collect();
        subjects.extend(exception_kinds(kyverno).into_iter().map(Subject::all));
        subjects.extend(global_kinds(kyverno).into_iter().map(Subject::all));
        subjects.push(Subject {
            namespace: namespace.to_owned(),
            fields: format!("metadata.name={config_map}"),
            ..Subject::all(Gvk::new("v1", "ConfigMap"))
        });
        let aside = not_run_kinds(kyverno);
        let needed = |number: &usize| !aside.contains(&subjects[*number].gvk);
        let needed = (0..subjects.len()).filter(needed).collect();
        FollowedPolicies { subjects, needed }
    }
}

/// Of a policy that both groups have, the one of Kiln's own is run.
fn displace_twins(policies: &mut [StoredPolicy]) {
    let own = policies.iter().filter(|policy| policy.compiled.is_ok());
    let own = own.filter(|policy| policy.id.gvk.group == OWN_GROUP);
    let displaced: BTreeSet<ObjectId> = own.filter_map(|policy| twin(&policy.id)).collect();
    for policy in policies.iter_mut().filter(|policy| displaced.contains(&policy.id)) {
        let name = metadata::name(&policy.object).unwrap_or_default().to_owned();
        let place = SourceLocation::new(Arc::new(Source::new("policy", "")), 0..0);
        let not_run = NotRun { policy: name, rule: None, what: DISPLACED, place };
        policy.compiled = Err(PolicyProblem::NotRun(DISPLACED.to_owned()));
        policy.not_run = [not_run].into();
    }
}

/// Everything that is stored, as it came.
#[derive(Debug, Default)]
pub struct PolicyCache {
    /// Policies of Kyverno's groups are run, too.
    kyverno: bool,
    objects: BTreeMap<Place, Value>,
    known: BTreeSet<usize>,
    unserved: BTreeSet<usize>,
    compiled: BTreeMap<ObjectId, CompiledPolicy>,
    exceptions: BTreeMap<Place, CompiledExceptions>,
    /// The policies that were deleted last. A reader that is busy sees several changes at once.
    ended: VecDeque<EndedPolicy>,
    /// How many policies were compiled.
    compilations: u64,
}

/// How many deleted policies are remembered.
const MOST_ENDED: usize = 64;

/// A policy that was deleted, in its last version, and what came of that when it is known.
#[derive(Debug)]
struct EndedPolicy {
    object: Value,
    compiled: Option<CompiledPolicy>,
}

/// What came of a stored policy.
#[derive(Clone, Debug)]
struct CompiledPolicy {
    /// Its life and generation.
    life: String,
    policy: Result<Arc<Policy>, PolicyProblem>,
    reconciled: Result<Arc<Policy>, PolicyProblem>,
    not_run: Arc<[NotRun]>,
}

impl CompiledPolicy {
    fn of(object: &Value, kinds: &Kinds) -> Self {
        let (policy, not_run) = compile_whole(object, kinds);
        let reconciled = policy.clone().map(reconciled);
        CompiledPolicy { life: life(object), policy, reconciled, not_run }
    }
}

/// Which version of its rules a stored policy is. The status changes much more often than the rules.
fn life(object: &Value) -> String {
    let generation = object.get_path(["metadata", "generation"]);
    // Annotations change no generation, and these decide whether a policy is in force.
    let shadow = [SHADOW_OF, SHADOW_OF_RULES]
        .map(|key| object.str_at(["metadata", "annotations", key]).unwrap_or_default());
    format!("{} {generation:?} {shadow:?}", metadata::uid(object).unwrap_or_default())
}

fn stored_policy(object: &Value, compiled: CompiledPolicy) -> Option<StoredPolicy> {
    let id = ObjectId::of(object).ok()?;
    let CompiledPolicy { policy: compiled, reconciled, not_run, .. } = compiled;
    Some(StoredPolicy { id, object: object.clone(), compiled, reconciled, not_run })
}

/// The version of a stored exception, and what came of it.
type CompiledExceptions = (String, Vec<Arc<Exception>>);

fn place(number: usize, object: &Value) -> Place {
    let namespace = metadata::namespace(object).unwrap_or_default().to_owned();
    (number, namespace, metadata::name(object).unwrap_or_default().to_owned())
}

impl PolicyCache {
    /// Nothing is known yet; policies of Kyverno's groups are followed too, if these are run.
    pub fn new(kyverno: bool) -> Self {
        PolicyCache { kyverno, ..PolicyCache::default() }
    }

    /// Whether all of these subjects were read.
    pub fn knows(&self, needed: &BTreeSet<usize>) -> bool {
        needed.is_subset(&self.known)
    }

    pub fn take(&mut self, news: News) {
        match &news {
            News::All(number, _) => {
                self.known.insert(*number);
                self.unserved.remove(number);
            }
            News::Unserved(number) => {
                self.known.insert(*number);
                self.unserved.insert(*number);
            }
            News::One(number, event) if event.change == Change::Deleted => {
                if *number < followed_kinds(self.kyverno).len() {
                    self.ends(&event.object);
                }
            }
            News::One(..) | News::Unreadable(_) => {}
        }
        news.take_into(&mut self.objects);
    }

    fn ends(&mut self, object: &Value) {
        let known = ObjectId::of(object).ok().and_then(|id| self.compiled.get(&id));
        let compiled = known.filter(|compiled| compiled.life == life(object)).cloned();
        self.ended.push_back(EndedPolicy { object: object.clone(), compiled });
        if self.ended.len() > MOST_ENDED {
            self.ended.pop_front();
        }
    }

    /// The policies that were deleted last, compiled as they were last.
    fn ended(&mut self, kinds: &Kinds) -> Vec<StoredPolicy> {
        let compilations = &mut self.compilations;
        let ended = self.ended.iter_mut().filter_map(|ended| {
            let compiled = ended.compiled.get_or_insert_with(|| {
                *compilations += 1;
                CompiledPolicy::of(&ended.object, kinds)
            });
            stored_policy(&ended.object, compiled.clone())
        });
        ended.collect()
    }

    /// All of it, compiled; what was compiled before is, unless kinds are others now.
    pub fn registry(&mut self, kinds: &Kinds, recompile: bool, complete: bool) -> Registry {
        let policy_kinds = followed_kinds(self.kyverno);
        let first_global = policy_kinds.len() + exception_kinds(self.kyverno).len();
        let first_other = first_global + global_kinds(self.kyverno).len();
        let unserved = self.unserved.iter().filter_map(|number| policy_kinds.get(*number));
        let unserved = unserved.map(KindKey::of).collect();
        let mut registry = Registry { complete, unserved, ..Registry::default() };
        let mut before = std::mem::take(&mut self.compiled);
        let mut exceptions = std::mem::take(&mut self.exceptions);
        for ((number, namespace, name), object) in &self.objects {
            if (policy_kinds.len()..first_global).contains(number) {
                let place = (*number, namespace.clone(), name.clone());
                let version = metadata::resource_version(object).unwrap_or_default().to_owned();
                let compiled = match exceptions.remove(&place) {
                    Some((known, compiled)) if known == version => compiled,
                    _ => {
                        let compiled = compile_document(&document(object), kinds);
                        compiled.map(|compiled| compiled.exceptions).unwrap_or_default()
                    }
                };
                registry.exceptions.extend(compiled.iter().cloned());
                self.exceptions.insert(place, (version, compiled));
            } else if (first_global..first_other).contains(number) {
                registry.globals.push(object.clone());
            } else if *number >= first_other {
                registry.config = Some(object.clone());
            }
            let (Some(_), Ok(id)) = (policy_kinds.get(*number), ObjectId::of(object)) else {
                continue;
            };
            let compiled = match before.remove(&id) {
                Some(compiled) if compiled.life == life(object) && !recompile => compiled,
                _ => {
                    self.compilations += 1;
                    CompiledPolicy::of(object, kinds)
                }
            };
            self.compiled.insert(id, compiled.clone());
            registry.policies.extend(stored_policy(object, compiled));
        }
        displace_twins(&mut registry.policies);
        registry.ended = self.ended(kinds);
        registry.compilations = self.compilations;
        let sound = registry.policies.iter().filter_map(|policy| policy.compiled.clone().ok());
        let sound = sound.filter(|policy| policy.delivery.shadow_of.is_none());
        let (cleanup, others): (Vec<_>, Vec<_>) = sound.partition(|policy| policy.is_scheduled());
        let exceptions = || registry.exceptions.iter().cloned();
        let rules = RuleSet::new(others).with_exceptions(exceptions());
        let cleanup = RuleSet::new(cleanup).with_exceptions(exceptions());
        (registry.rules, registry.cleanup) = (rules, cleanup);
        registry
    }
}
