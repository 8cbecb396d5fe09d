//! Rules that check objects: how their results are reported, and those that are evaluated after the answer because they
//! can neither refuse nor warn.

use std::sync::Arc;
use std::time::{Duration, Instant};

use kiln_admission::{DifferenceKind, ReviewRequest, ValidationResult};
use kiln_engine::{EvalEnv, Globals, WithGlobals};
use kiln_object::Kinds;

use super::AdmissionState;
use super::review_pool::{ReviewPermit, YieldingServices};
use super::routes::Told;
use super::view::{LiveView, Machine};
use crate::author_access::Rights;
use crate::client::Client;
use crate::events::{CheckedObject, Happened};
use crate::kyverno_metrics::{self, ExecutionCause, RanFor};
use crate::reporter;
use crate::state::AppState;

/// How long the evaluation of one request may take when no client waits for it.
const PATIENCE: Duration = Duration::from_secs(30);
/// How many requests may wait to be evaluated after their answers. What is left out then, a scan of objects finds.
pub(crate) const MOST_WAITING: usize = 512;

/// What rules see while they are evaluated for a request.
pub(crate) struct Evaluator {
    client: Client,
    kinds: Kinds,
    globals: Arc<Globals>,
    rights: Arc<Rights>,
    desk: Arc<AdmissionState>,
}

impl Evaluator {
    pub(crate) fn new(shared: &AppState, kinds: Kinds, desk: Arc<AdmissionState>) -> Self {
        Evaluator {
            client: shared.clients.admission.clone(),
            kinds,
            globals: shared.globals.borrow().clone(),
            rights: Arc::clone(&shared.rights),
            desk,
        }
    }

    /// Evaluates something in its turn, which is to end before the deadline.
    pub(crate) fn with_env<T>(
        &self,
        turn: &ReviewPermit<'_>,
        deadline: Instant,
        evaluate: impl FnOnce(&EvalEnv<'_>) -> T,
    ) -> T {
        let settings = &self.desk.settings;
        let view = LiveView {
            client: self.client.clone(),
            kinds: self.kinds.clone(),
            turn,
            deadline,
            authors: Arc::clone(&self.desk.authors),
            rights: Arc::clone(&self.rights),
        };
        let services = YieldingServices {
            turn,
            services: &self.desk.services,
            deadline,
            api_server: Some(&self.client),
        };
        let external_data = WithGlobals { external_data: &services, globals: &self.globals };
        evaluate(&EvalEnv {
            view: &view,
            kinds: &self.kinds,
            sources: &Machine,
            external_data: &external_data,
            limits: settings.limits,
            protected_namespaces: &settings.protected_namespaces,
            home: &settings.namespace,
        })
    }
}

/// Evaluates the rules that the answer to a request does not wait for.
pub(crate) fn after_answer(
    told: &Told,
    desk: Arc<AdmissionState>,
    path: String,
    request: ReviewRequest,
) {
    let shared = told.shared.clone();
    let Ok(permit) = Arc::clone(&told.audits).try_acquire_owned() else {
        shared.metrics.count("kiln_audits_dropped_total", &[]);
        return;
    };
    let turns = told.turns.clone();
    tokio::spawn(async move {
        let kinds = shared.kinds.borrow().clone();
        let evaluator = Evaluator::new(&shared, kinds, Arc::clone(&desk));
        let deadline = Instant::now() + PATIENCE;
        let audited = turns.take(move |turn| {
            let results = evaluator.with_env(turn, deadline, |eval_env| {
                desk.hooks.audit(&path, &request, eval_env, &desk.settings)
            });
            (request, results)
        });
        if let Some((request, results)) = audited.await {
            tell(&shared, &request, &results, false);
        }
        drop(permit);
    });
}

/// Compares the rules that a request reached with their shadows, when it is answered.
pub(crate) fn compare_shadows(
    told: &Told,
    desk: Arc<AdmissionState>,
    path: String,
    request: ReviewRequest,
) {
    let shared = told.shared.clone();
    let Ok(permit) = Arc::clone(&told.audits).try_acquire_owned() else {
        shared.metrics.count("kiln_audits_dropped_total", &[]);
        return;
    };
    let turns = told.turns.clone();
    tokio::spawn(async move {
        let kinds = shared.kinds.borrow().clone();
        let evaluator = Evaluator::new(&shared, kinds, Arc::clone(&desk));
        let deadline = Instant::now() + PATIENCE;
        let compared = turns.take(move |turn| {
            let results = evaluator.with_env(turn, deadline, |eval_env| {
                desk.hooks.shadows(&path, &request, eval_env, &desk.settings)
            });
            (request, results)
        });
        let (request, results) = compared.await.unzip();
        for result in results.into_iter().flatten() {
            let [policy, shadow] = &result.names;
            let word = result.difference.map_or("same", DifferenceKind::as_str);
            let labels =
                [("policy", policy.as_str()), ("shadow", shadow.as_str()), ("result", word)];
            shared.metrics.count("kiln_shadow_requests_total", &labels);
            if let Some(request) = request.as_ref().filter(|_| result.difference.is_some()) {
                let object = CheckedObject::of(request, &shared.kinds.borrow());
                // Events are for people: when there are too many of them, some are left out.
                let _ = shared.news.happened.try_send(Happened::ShadowDiffers { object, result });
            }
        }
        drop(permit);
    });
}

/// Counts results of rules that change objects, and passes them on to reports.
pub(crate) fn tell_changes(
    shared: &AppState,
    request: &ReviewRequest,
    results: &[ValidationResult],
    blocked: bool,
) {
    count(shared, request, results);
    if !request.event.request.dry_run && !results.is_empty() {
        reporter::admitted(shared, request, &object_of(shared, request), results, blocked);
    }
}

fn count(shared: &AppState, request: &ReviewRequest, results: &[ValidationResult]) {
    let event = &request.event;
    let operation = kyverno_metrics::operation_of(event);
    let about = RanFor {
        kind: &event.kind.kind,
        operation: &operation,
        cause: ExecutionCause::Request,
        dry_run: event.request.dry_run,
    };
    kyverno_metrics::count_results(shared, results, about);
    for result in results {
        let policy = result.rule.policy.key();
        let labels = [
            ("policy", policy.as_str()),
            ("rule", &result.rule.rule),
            ("result", result.status.as_str()),
        ];
        shared.metrics.count("kiln_rule_results_total", &labels);
    }
}

/// The object of a request.
fn object_of(shared: &AppState, request: &ReviewRequest) -> CheckedObject {
    CheckedObject::of(request, &shared.kinds.borrow())
}

/// Counts results, and passes them on to where users read of them.
pub(crate) fn tell(
    shared: &AppState,
    request: &ReviewRequest,
    results: &[ValidationResult],
    blocked: bool,
) {
    count(shared, request, results);
    if request.event.request.dry_run || results.is_empty() {
        return;
    }
    let object = object_of(shared, request);
    reporter::admitted(shared, request, &object, results, blocked);
    let checked = Happened::Checked { object, results: results.into(), blocked, scanned: false };
    // Events are for people: when there are too many of them, some are left out.
    let _ = shared.news.happened.try_send(checked);
}
