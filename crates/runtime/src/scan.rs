//! Checks the objects that are there: when policies change, when an object changes, and at an interval.
//!
//! Kinds that rules check are listed and watched. What is kept of an object is a hash of what rules may look at, so that
//! a change of its status alone is no reason to check it again. Policies in CEL that change what is sent are checked as
//! well: an object that they would change is not as they want it.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use kiln_admission::{Settings, ValidationResult};
use kiln_cluster::{Call, Reason};
use kiln_controller::AccessCheck;
use kiln_engine::{
    AccessRequest, EvalEnv, ListPage, ListQuery, ReadError, User, View, WithGlobals,
};
use kiln_object::{Change, Gvk, Kinds, ObjectId, metadata};
use kiln_replica::scan::{ScanBasis, ScanRules, ScannedObjects, basis, happened};
use kiln_reports::ReportedObject;
use kiln_rules::PolicyId;
use kiln_services::Services;
use kiln_value::{Str, Value};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::author_access::Rights;
use crate::calls::{carry_out, list_all};
use crate::client::Client;
use crate::kyverno_metrics::{self, ExecutionCause, RanFor};
use crate::policy_store::{News, Registry, follow};
use crate::reporter::{FoundBy, ReportNews};
use crate::serve::Machine;
use crate::state::AppState;
use crate::watch::{Subject, Watcher};

/// How long policies must be unchanged before a scan begins.
const SETTLE: Duration = Duration::from_millis(500);
/// How many objects are evaluated in one turn of a thread.
const BATCH: usize = 200;
/// What its watches are called where health is told.
const PURPOSE: &str = "scan";

/// Scans for as long as it is let.
pub(crate) async fn keep(shared: AppState) {
    shared.health.can_do_without(PURPOSE);
    let (mut registry, mut kinds) = (shared.registry.clone(), shared.kinds.clone());
    loop {
        let stored = registry.borrow_and_update().clone();
        let known = kinds.borrow_and_update().clone();
        if !stored.complete {
            tokio::select! {
                changed = registry.changed() => if changed.is_err() { return },
                changed = kinds.changed() => if changed.is_err() { return },
            }
            continue;
        }
        let basis = basis_of(&shared, &stored, &known);
        let interval = Duration::from_secs(basis.reporting.interval);
        let scanning = pass(&shared, Arc::clone(&stored), known, basis.kinds.clone());
        let next = tokio::time::Instant::now() + interval;
        let differs = async {
            loop {
                tokio::select! {
                    changed = registry.changed() => if changed.is_err() { return false },
                    changed = kinds.changed() => if changed.is_err() { return false },
                    () = tokio::time::sleep_until(next) => return true,
                }
                tokio::time::sleep(SETTLE).await;
                let (stored, known) = (registry.borrow().clone(), kinds.borrow().clone());
                if stored.complete && basis_of(&shared, &stored, &known) != basis {
                    return true;
                }
            }
        };
        tokio::select! {
            () = scanning => {}
            goes_on = differs => if !goes_on { return },
        }
    }
}

fn basis_of(shared: &AppState, stored: &Registry, kinds: &Kinds) -> ScanBasis {
    basis(&shared.options.settings(), &shared.options.report_form(), stored, kinds)
}

/// Checks all objects once, and then those that change.
async fn pass(shared: &AppState, registry: Arc<Registry>, kinds: Kinds, scanned: Vec<Gvk>) {
    for kind in shared.options.report_form().kinds() {
        let reports = list_all(&shared.clients.controller, &kinds, &kind, "", "").await;
        for report in reports.map(|listing| listing.objects).unwrap_or_default() {
            let _ = shared.news.findings.send(ReportNews::Stored(report)).await;
        }
    }
    let settings = shared.options.settings().read(registry.config.as_ref()).0;
    let scanner = Arc::new(ObjectScanner {
        rules: ScanRules::of(&shared.options.settings(), &settings, &registry),
        authors: registry.authors(settings.authors),
        services: Services::new(shared.options.services.clone().and(&settings.services)),
        settings,
        kinds,
        shared: shared.clone(),
    });
    let watcher = Watcher {
        client: shared.clients.controller.clone(),
        kinds: shared.kinds.clone(),
        stale_after: shared.options.stale_after,
        health: Arc::clone(&shared.health),
        purpose: PURPOSE.into(),
        metrics: Arc::clone(&shared.metrics),
    };
    let (news, mut told) = mpsc::channel(256);
    let mut tasks = JoinSet::new();
    for (number, gvk) in scanned.into_iter().enumerate() {
        tasks.spawn(follow(watcher.clone(), number, Subject::all(gvk), news.clone()));
    }
    drop(news);
    let mut seen = ScannedObjects::default();
    while let Some(news) = told.recv().await {
        let mut changed: Vec<Value> = match news {
            News::All(_, objects) => objects,
            News::One(_, event) if event.change == Change::Deleted => {
                let uid: Str = metadata::uid(&event.object).unwrap_or_default().into();
                seen.forget(&uid);
                let _ = shared.news.findings.send(ReportNews::Gone(uid)).await;
                continue;
            }
            News::One(_, event) => vec![event.object],
            News::Unserved(_) | News::Unreadable(_) => continue,
        };
        changed.retain(|object| seen.is_new(object));
        show_progress(shared, seen.len(), changed.len());
        while !changed.is_empty() {
            let batch: Vec<Value> = changed.drain(..changed.len().min(BATCH)).collect();
            let scanner = Arc::clone(&scanner);
            let evaluated = tokio::task::spawn_blocking(move || scanner.evaluate(batch)).await;
            for found in evaluated.unwrap_or_default() {
                tell(shared, found).await;
            }
            show_progress(shared, seen.len(), changed.len());
        }
    }
    // No kind is to be scanned.
    std::future::pending::<()>().await;
}

/// Tells how many objects the scan knows, and how many of them are still to be checked.
#[allow(clippy::cast_precision_loss, reason = "a count for people")]
fn show_progress(shared: &AppState, known: usize, waiting: usize) {
    let set = |state: &str, number: usize| {
        shared.metrics.set("kiln_scan_objects", &[("state", state)], number as f64);
    };
    set("checked", known.saturating_sub(waiting));
    set("waiting", waiting);
}

async fn tell(shared: &AppState, (object, results): (ReportedObject, Vec<ValidationResult>)) {
    let about = RanFor {
        kind: &object.id.gvk.kind,
        operation: "create",
        cause: ExecutionCause::Background,
        dry_run: false,
    };
    kyverno_metrics::count_results(shared, &results, about);
    kyverno_metrics::count_reconcile(&shared.metrics, "background-scan-controller");
    for result in &results {
        let policy = result.rule.policy.key();
        let labels = [
            ("policy", policy.as_str()),
            ("rule", &result.rule.rule),
            ("result", result.status.as_str()),
        ];
        shared.metrics.count("kiln_scan_results_total", &labels);
    }
    if let Some(happened) = happened(&object, &results) {
        // Events are for people: when there are too many of them, some are left out.
        let _ = shared.news.happened.try_send(happened);
    }
    // A full channel slows the scan down, and loses nothing.
    let _ =
        shared.news.findings.send(ReportNews::Found { object, results, by: FoundBy::Scan }).await;
}

/// What objects are checked with.
struct ObjectScanner {
    rules: ScanRules,
    /// Whose permissions the reads of which policies are held to.
    authors: HashMap<PolicyId, User>,
    services: Services,
    settings: Settings,
    kinds: Kinds,
    shared: AppState,
}

impl ObjectScanner {
    /// What rules find out about objects; on a thread that may wait for answers.
    fn evaluate(&self, objects: Vec<Value>) -> Vec<(ReportedObject, Vec<ValidationResult>)> {
        let view = ScanView {
            client: &self.shared.clients.controller,
            kinds: &self.kinds,
            runtime: Handle::current(),
            namespaces: RefCell::default(),
            authors: &self.authors,
            rights: &self.shared.rights,
        };
        let globals = self.shared.globals.borrow().clone();
        let external_data = WithGlobals { external_data: &self.services, globals: &globals };
        let eval_env = EvalEnv {
            view: &view,
            kinds: &self.kinds,
            sources: &Machine,
            external_data: &external_data,
            limits: self.settings.limits,
            protected_namespaces: &self.settings.protected_namespaces,
            home: &self.settings.namespace,
        };
        self.rules.check(objects, &self.settings, &eval_env)
    }
}

/// Reads from the API server; Namespaces are asked for once in a batch.
struct ScanView<'s> {
    client: &'s Client,
    kinds: &'s Kinds,
    runtime: Handle,
    namespaces: RefCell<HashMap<Str, Option<Value>>>,
    authors: &'s HashMap<PolicyId, User>,
    rights: &'s Rights,
}

impl View for ScanView<'_> {
    fn get(
        &self,
        kind: &Gvk,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Option<Value>, ReadError> {
        let is_namespace = kind.group.is_empty() && kind.kind == "Namespace";
        if is_namespace && let Some(known) = self.namespaces.borrow().get(name) {
            return Ok(known.clone());
        }
        let id = ObjectId::new(kind.clone(), namespace.unwrap_or_default(), name);
        let read = self.runtime.block_on(carry_out(self.client, self.kinds, &Call::Get(id)));
        let read = match read {
            Ok(reply) => Ok(reply.object()),
            Err(error) if error.reason == Reason::NotFound => Ok(None),
            Err(error) => Err(ReadError::Unavailable(error.message)),
        }?;
        if is_namespace {
            self.namespaces.borrow_mut().insert(name.into(), read.clone());
        }
        Ok(read)
    }

    fn list(&self, query: &ListQuery<'_>) -> Result<ListPage, ReadError> {
        let call = Call::List {
            kind: query.kind.clone(),
            namespace: query.namespace.map(Str::from),
            selector: query.selector.clone(),
            limit: Some(query.limit),
            resume: query.resume.map(str::to_owned),
        };
        let listed = self.runtime.block_on(carry_out(self.client, self.kinds, &call));
        let listing = listed.map_err(|error| ReadError::Unavailable(error.message))?.listing();
        let listing = listing.unwrap_or_default();
        Ok(ListPage { objects: listing.objects, resume: listing.resume })
    }

    fn permits(&self, wish: &AccessRequest<'_>) -> Result<(), ReadError> {
        let Some(author) = self.authors.get(wish.policy) else { return Ok(()) };
        let right = AccessCheck::of(author, wish);
        let asking = self.rights.may_read(self.client, self.kinds, &right);
        right.verdict(self.runtime.block_on(asking))
    }

    fn kind_of(&self, group: &str, version: &str, plural: &str) -> Option<Gvk> {
        self.kinds.by_resource(group, version, plural).map(kiln_object::Kind::gvk)
    }
}
