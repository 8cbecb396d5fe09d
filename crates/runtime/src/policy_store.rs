//! The policies, exceptions and configuration that are stored, compiled, for all parts.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use kiln_admission::authors::Authors;
use kiln_cluster::{ApiError, Change, Listing, Reason, WatchEvent};
use kiln_controller::author::author_of;
use kiln_dialects::{Compiled, Host, NotRun, not_run_in_words};
use kiln_engine::{RuleSet, User};
use kiln_object::{Gvk, Kinds, ObjectId, metadata};
use kiln_rules::{Exception, Policy, PolicyId, Program, Rule};
use kiln_value::{Value, json};
use kiln_yaml::{Document, ReadOptions, read_bytes};
use tokio::sync::{mpsc, watch};

use crate::calls::list_all;
use crate::supervisor::pass_on;
use crate::watch::{Subject, WatchNews, Watcher};

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
}

impl Registry {
    /// The authors that policies are held to.
    pub(crate) fn authors(&self, hold: Authors) -> HashMap<PolicyId, User> {
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
    pub compiled: Result<Arc<Policy>, String>,
    /// Those of its rules that Kiln does not run.
    pub not_run: Arc<[NotRun]>,
}

impl StoredPolicy {
    /// Whether something is wrong with it. A policy of which nothing is run is not broken.
    pub fn is_broken(&self) -> bool {
        self.compiled.is_err() && self.not_run.is_empty()
    }

    /// Whether some of its rules act.
    pub(crate) fn acts(&self) -> bool {
        self.compiled.as_ref().is_ok_and(|policy| !policy.rules.is_empty())
    }

    /// Says that none of its rules is run, and what they would do; none if some are.
    pub(crate) fn runs_nothing(&self) -> Option<String> {
        let what = not_run_in_words(&self.not_run).filter(|_| !self.acts())?;
        Some(runs_nothing(&what))
    }
}

fn runs_nothing(what: &str) -> String {
    format!("Kiln runs none of its rules: {what}")
}

/// The kinds of policies whose rules do something after objects are stored.
pub fn controller_kinds() -> Vec<Gvk> {
    let rules = ["ClusterPolicy", "Policy"].map(|kind| Gvk::new("kyverno.io/v1", kind));
    let scripts = [
        "GeneratingPolicy",
        "NamespacedGeneratingPolicy",
        "MutatingPolicy",
        "NamespacedMutatingPolicy",
    ]
    .map(|kind| Gvk::new("policies.kyverno.io/v1", kind));
    rules.into_iter().chain(scripts).collect()
}

/// The kinds of policies that delete objects on a schedule.
pub fn cleanup_kinds() -> Vec<Gvk> {
    let rules = ["ClusterCleanupPolicy", "CleanupPolicy"];
    let rules = rules.map(|kind| Gvk::new("kyverno.io/v2", kind));
    let scripts = ["DeletingPolicy", "NamespacedDeletingPolicy"];
    let scripts = scripts.map(|kind| Gvk::new("policies.kyverno.io/v1", kind));
    rules.into_iter().chain(scripts).collect()
}

/// The kinds of policies that are run because something happens to objects.
pub fn policy_kinds() -> Vec<Gvk> {
    // All that ModRules do is done at admission, and policies that check objects make none.
    let at_admission = [Gvk::new("api.kubemod.io/v1beta1", "ModRule")];
    let checking = ["ValidatingPolicy", "NamespacedValidatingPolicy"]
        .map(|kind| Gvk::new("policies.kyverno.io/v1", kind));
    controller_kinds().into_iter().chain(at_admission).chain(checking).collect()
}

/// The kinds of policies of which nothing is run. They are followed all the same: their status says so.
fn not_run_kinds() -> Vec<Gvk> {
    ["ImageValidatingPolicy", "NamespacedImageValidatingPolicy"]
        .map(|kind| Gvk::new("policies.kyverno.io/v1", kind))
        .into()
}

/// The kinds of policies that are followed.
fn followed_kinds() -> Vec<Gvk> {
    policy_kinds().into_iter().chain(cleanup_kinds()).chain(not_run_kinds()).collect()
}

fn exception_kinds() -> [Gvk; 2] {
    ["kyverno.io/v2", "policies.kyverno.io/v1"].map(|version| Gvk::new(version, "PolicyException"))
}

pub(crate) fn global_kind() -> Gvk {
    Gvk::new("kyverno.io/v2", "GlobalContextEntry")
}

/// Compiles a stored policy.
///
/// # Errors
/// What is wrong with it.
pub fn compile(policy: &Value, kinds: &Kinds) -> Result<Arc<Policy>, String> {
    compile_whole(policy, kinds).0
}

/// Compiles a stored policy for the controller, which has nothing to do with rules that check objects.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn compile_for_controller(policy: &Value, kinds: &Kinds) -> Result<Arc<Policy>, String> {
    let policy = compile(policy, kinds)?;
    let checks = |rule: &Rule| matches!(rule.program, Program::Validate(_));
    if !policy.rules.iter().any(|rule| checks(rule)) {
        return Ok(policy);
    }
    let rules = policy.rules.iter().filter(|rule| !checks(rule)).cloned().collect();
    Ok(Arc::new(Policy { rules, ..Policy::clone(&policy) }))
}

/// What came of a stored policy: its rules, or what is wrong with it, and what is not run.
type Whole = (Result<Arc<Policy>, String>, Arc<[NotRun]>);

/// Compiles a stored policy, and says what of it is not run.
pub(crate) fn compile_whole(policy: &Value, kinds: &Kinds) -> Whole {
    let compiled = documents(policy).and_then(|documents| compile_documents(&documents, kinds));
    let compiled = match compiled {
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
        Some(what) if !compiled.has_errors() => runs_nothing(&what),
        _ => problems(),
    });
    // A policy with a mistake is broken, also if other rules of it would not be run.
    let not_run = if policy.is_err() && compiled.has_errors() {
        Arc::default()
    } else {
        compiled.not_run.into()
    };
    (policy, not_run)
}

/// Compiles documents. A policy on which Kiln fails is one that is broken: it keeps no other from its work.
fn compile_documents(documents: &[Document], kinds: &Kinds) -> Result<Compiled, String> {
    catch_unwind(AssertUnwindSafe(|| kiln_dialects::compile_for(Host::Cluster, documents, kinds)))
        .map_err(|_| "internal error; see the Kiln log".to_owned())
}

pub(crate) fn documents(object: &Value) -> Result<Vec<Document>, String> {
    let text = json::to_string(object);
    read_bytes("policy", text.as_bytes(), ReadOptions::kubernetes())
        .map_err(|error| error.to_string())
}

/// Something that was read: everything there is of a subject, or what happened to one object of it.
pub(crate) enum News {
    All(usize, Vec<Value>),
    One(usize, WatchEvent),
    /// Nothing: it cannot be listed, and why.
    Unreadable(String),
}

impl News {
    /// Makes objects what they are by this.
    pub(crate) fn take_into(self, objects: &mut BTreeMap<Place, Value>) {
        match self {
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

/// What the watches of policies that are not run are called.
const ASIDE: &str = "not run";

/// The number of a subject, and the namespace and name of one of its objects.
type Place = (usize, String, String);

/// Keeps the registry as the cluster has it, for as long as there is a listener.
pub async fn keep(
    watcher: Watcher,
    namespace: String,
    config_map: String,
    registry: watch::Sender<Arc<Registry>>,
) {
    let mut subjects: Vec<Subject> = followed_kinds().into_iter().map(Subject::all).collect();
    subjects.extend(exception_kinds().into_iter().map(Subject::all));
    subjects.push(Subject::all(global_kind()));
    subjects.push(Subject {
        namespace,
        fields: format!("metadata.name={config_map}"),
        ..Subject::all(Gvk::new("v1", "ConfigMap"))
    });
    let (news, mut told) = mpsc::channel(256);
    let mut tasks = tokio::task::JoinSet::new();
    // Nothing waits for policies that are not run: rights of before they were followed are good enough.
    let aside = not_run_kinds();
    let is_needed = |subject: &Subject| !aside.contains(&subject.gvk);
    watcher.health.can_do_without(ASIDE);
    for (number, subject) in subjects.iter().cloned().enumerate() {
        let mut watcher = watcher.clone();
        if !is_needed(&subject) {
            watcher.purpose = ASIDE.into();
        }
        tasks.spawn(follow(watcher, number, subject, news.clone()));
    }
    let needed: BTreeSet<usize> =
        (0..subjects.len()).filter(|number| is_needed(&subjects[*number])).collect();
    let mut kinds = watcher.kinds.clone();
    let mut shelf = PolicyCache::default();
    loop {
        let recompile = tokio::select! {
            news = told.recv() => {
                let Some(news) = news else { return };
                shelf.take(news);
                while let Ok(more) = told.try_recv() {
                    shelf.take(more);
                }
                false
            }
            changed = kinds.changed() => {
                if changed.is_err() {
                    return;
                }
                true
            }
            Some(ended) = tasks.join_next() => {
                let _ = pass_on(ended);
                continue;
            }
            () = registry.closed() => return,
        };
        let complete = needed.is_subset(&shelf.known);
        if complete {
            // Whatever cannot be read from now on, the rules that were read go on to count.
            watcher.health.can_do_without("rules");
        }
        let known = kinds.borrow_and_update().clone();
        // A restarted watch knows less at first than the cluster has.
        if !complete && registry.borrow().complete {
            continue;
        }
        registry.send_replace(Arc::new(shelf.registry(&known, recompile, complete)));
    }
}

/// Lists and watches one subject, again and again.
pub(crate) async fn follow(
    watcher: Watcher,
    number: usize,
    subject: Subject,
    news: mpsc::Sender<News>,
) {
    let mut pause = Duration::from_millis(500);
    let standing = watcher.standing(&subject);
    while !news.is_closed() {
        let kinds = watcher.kinds.borrow().clone();
        let listed: Result<Listing, ApiError> =
            list_all(&watcher.client, &kinds, &subject.gvk, &subject.namespace, &subject.fields)
                .await;
        let listing = match listed {
            Ok(listing) => listing,
            Err(error) => {
                let absent = error.reason == Reason::UnknownKind;
                if absent {
                    standing.rests();
                    // Kinds that are not installed have no objects either.
                    let _ = news.send(News::All(number, Vec::new())).await;
                } else {
                    tracing::warn!(what = %subject, %error, "cannot be listed");
                    standing.bad(error.to_string());
                    let _ = news.send(News::Unreadable(error.to_string())).await;
                }
                // A kind that is defined later is listed at once.
                let mut known = watcher.kinds.clone();
                let is_new = kinds.get(&subject.gvk).is_none();
                let comes = known.wait_for(|known| is_new && known.get(&subject.gvk).is_some());
                tokio::select! {
                    come = comes => if come.is_err() { return },
                    () = news.closed() => return,
                    () = tokio::time::sleep(pause), if !(absent && is_new) => {}
                }
                pause = (pause * 2).min(Duration::from_secs(if absent { 2 } else { 20 }));
                continue;
            }
        };
        pause = Duration::from_millis(500);
        standing.rests();
        if news.send(News::All(number, listing.objects)).await.is_err() {
            return;
        }
        let (sender, mut told) = mpsc::channel(256);
        let watching = watcher.follow(&subject, listing.revision, &sender, &standing);
        let passing = async {
            while let Some((_, told)) = told.recv().await {
                let WatchNews::Event(event) = told else { continue };
                if news.send(News::One(number, event)).await.is_err() {
                    return;
                }
            }
        };
        tokio::select! { () = watching => {}, () = passing => {} }
    }
}

/// Everything that is stored, as it came.
#[derive(Default)]
struct PolicyCache {
    objects: BTreeMap<Place, Value>,
    known: BTreeSet<usize>,
    compiled: BTreeMap<ObjectId, (String, Whole)>,
    exceptions: BTreeMap<Place, CompiledExceptions>,
}

/// The version of a stored exception, and what came of it.
type CompiledExceptions = (String, Vec<Arc<Exception>>);

fn place(number: usize, object: &Value) -> Place {
    let namespace = metadata::namespace(object).unwrap_or_default().to_owned();
    (number, namespace, metadata::name(object).unwrap_or_default().to_owned())
}

impl PolicyCache {
    fn take(&mut self, news: News) {
        if let News::All(number, _) = &news {
            self.known.insert(*number);
        }
        news.take_into(&mut self.objects);
    }

    fn registry(&mut self, kinds: &Kinds, recompile: bool, complete: bool) -> Registry {
        let policy_kinds = followed_kinds();
        let first_other = policy_kinds.len() + exception_kinds().len();
        let mut registry = Registry { complete, ..Registry::default() };
        let mut before = std::mem::take(&mut self.compiled);
        let mut exceptions = std::mem::take(&mut self.exceptions);
        for ((number, namespace, name), object) in &self.objects {
            if (policy_kinds.len()..first_other).contains(number) {
                let place = (*number, namespace.clone(), name.clone());
                let version = metadata::resource_version(object).unwrap_or_default().to_owned();
                let compiled = match exceptions.remove(&place) {
                    Some((known, compiled)) if known == version => compiled,
                    _ => {
                        let found = documents(object).unwrap_or_default();
                        let compiled = compile_documents(&found, kinds);
                        compiled.map(|compiled| compiled.exceptions).unwrap_or_default()
                    }
                };
                registry.exceptions.extend(compiled.iter().cloned());
                self.exceptions.insert(place, (version, compiled));
            } else if *number == first_other {
                registry.globals.push(object.clone());
            } else if *number > first_other {
                registry.config = Some(object.clone());
            }
            let (Some(_), Ok(id)) = (policy_kinds.get(*number), ObjectId::of(object)) else {
                continue;
            };
            // The status changes much more often than the rules.
            let life = format!(
                "{} {:?}",
                metadata::uid(object).unwrap_or_default(),
                object.get_path(["metadata", "generation"])
            );
            let compiled = match before.remove(&id) {
                Some((known, compiled)) if known == life && !recompile => compiled,
                _ => compile_whole(object, kinds),
            };
            self.compiled.insert(id.clone(), (life, compiled.clone()));
            let (compiled, not_run) = compiled;
            registry.policies.push(StoredPolicy { id, object: object.clone(), compiled, not_run });
        }
        let sound = registry.policies.iter().filter_map(|policy| policy.compiled.clone().ok());
        let (cleanup, others): (Vec<_>, Vec<_>) = sound.partition(|policy| policy.is_scheduled());
        let exceptions = || registry.exceptions.iter().cloned();
        let rules = RuleSet::new(others).with_exceptions(exceptions());
        let cleanup = RuleSet::new(cleanup).with_exceptions(exceptions());
        (registry.rules, registry.cleanup) = (rules, cleanup);
        registry
    }
}
