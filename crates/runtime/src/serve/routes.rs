//! What is answered at which path.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Method, Response, StatusCode};
use http_body_util::Full;
use kiln_admission::authors::{AUTHOR_PATH, sign};
use kiln_admission::policies::PolicyCheck;
use kiln_admission::webhooks::{POLICY_PATH, TTL_PATH, is_served};
use kiln_admission::{BadReview, ReviewRequest, Reviewed};
use kiln_cluster::{Call, Reason};
use kiln_engine::Status;
use kiln_object::{Kinds, ObjectId};
use kiln_replica::policy_review::permitted;
use kiln_replica::ttl_review::ttl_response;
use kiln_value::Value;
use tokio::sync::Semaphore;

use super::AdmissionState;
use super::audits::{self, Evaluator};
use super::body_budget::BudgetedBody;
use super::review_pool::{ReviewPermit, ReviewPool};
use super::update_request_limiter::{Carriers, NotStored};
use crate::calls::carry_out;
use crate::discovery::Discovery;
use crate::events::Happened;
use crate::kyverno_metrics;
use crate::process_metrics;
use crate::state::AppState;
use crate::supervisor;

/// A review may take so long by default.
const PATIENCE: Duration = Duration::from_secs(10);

/// An answer of the server.
pub(crate) type ServedResponse = Response<Full<Bytes>>;

/// A request.
pub(crate) struct Asked {
    pub(crate) method: Method,
    pub(crate) path: String,
    /// When the answer has to be there. The asker should hear from us before they give up.
    pub(crate) deadline: Instant,
}

impl Asked {
    pub(crate) fn new(method: Method, uri: &http::Uri) -> Self {
        let patience = patience(uri.query().unwrap_or_default()).unwrap_or(PATIENCE);
        let deadline = Instant::now() + patience.mul_f32(0.95);
        Asked { method, path: uri.path().to_owned(), deadline }
    }

    /// Whether there is something to be read before the answer.
    pub(crate) fn is_review(&self) -> bool {
        self.method == Method::POST && is_served(&self.path)
    }

    /// The path as far as it is one of few, for counting.
    pub(crate) fn counted(&self) -> &str {
        let mut parts = self.path.split('/').skip(1);
        match (parts.next(), parts.next()) {
            (Some("mutate"), Some("fail")) => "/mutate/fail",
            (Some("mutate"), _) => "/mutate/ignore",
            (Some("validate"), Some("fail")) => "/validate/fail",
            (Some("validate"), _) => "/validate/ignore",
            (Some("gpol"), _) => "/gpol",
            (Some("ngpol"), _) => "/ngpol",
            (Some("mpol" | "mpol-existing"), _) => "/mpol",
            (Some("nmpol" | "nmpol-existing"), _) => "/nmpol",
            (Some("vpol"), _) => "/vpol",
            (Some("nvpol"), _) => "/nvpol",
            (Some("dragnet-webhook"), _) => "/dragnet-webhook",
            (Some("policymutate"), _) => AUTHOR_PATH,
            (Some("verifyttl"), _) => TTL_PATH,
            _ => POLICY_PATH,
        }
    }
}

/// `timeout=10s`, as API servers write it behind paths.
fn patience(query: &str) -> Option<Duration> {
    let text = query.split('&').find_map(|pair| pair.strip_prefix("timeout="))?;
    let seconds: u64 = text.strip_suffix('s')?.parse().ok()?;
    Some(Duration::from_secs(seconds.clamp(1, 30)))
}

/// Answers what is not a review.
pub(crate) fn plain(shared: &AppState, asked: &Asked) -> ServedResponse {
    let is_get = matches!(asked.method, Method::GET | Method::HEAD);
    match asked.path.as_str() {
        "/health/liveness" | "/livez" | "/healthz" if is_get => {
            let stopped = shared.health.not_running();
            if stopped.is_empty() {
                return text(StatusCode::OK, "ok\n");
            }
            text(StatusCode::INTERNAL_SERVER_ERROR, &format!("{}\n", stopped.join("\n")))
        }
        "/health/readiness" | "/readyz" if is_get => {
            let problems = shared.health.keeps_from_answering();
            if problems.is_empty() {
                return text(StatusCode::OK, "ok\n");
            }
            text(StatusCode::SERVICE_UNAVAILABLE, &format!("{}\n", problems.join("\n")))
        }
        "/health" if is_get => {
            let problems = shared.health.problems();
            let words = if problems.is_empty() { "ok".to_owned() } else { problems.join("\n") };
            text(StatusCode::OK, &format!("{words}\n"))
        }
        "/metrics" if is_get => {
            process_metrics::refresh(shared);
            let mut answer = text(StatusCode::OK, &shared.metrics.text());
            let form = http::HeaderValue::from_static("text/plain; version=0.0.4");
            answer.headers_mut().insert(http::header::CONTENT_TYPE, form);
            answer
        }
        "/health/liveness" | "/livez" | "/healthz" | "/health/readiness" | "/readyz"
        | "/health" | "/metrics" => text(StatusCode::METHOD_NOT_ALLOWED, "use GET\n"),
        path if is_served(path) => {
            text(StatusCode::METHOD_NOT_ALLOWED, "send an AdmissionReview by POST\n")
        }
        _ => text(StatusCode::NOT_FOUND, "not found\n"),
    }
}

pub(crate) fn text(status: StatusCode, words: &str) -> ServedResponse {
    let mut answer = Response::new(Full::new(Bytes::copy_from_slice(words.as_bytes())));
    *answer.status_mut() = status;
    answer
}

/// The answer to a request that panicked.
pub(crate) fn broken() -> ServedResponse {
    let words = "internal error; see the Kiln log\n";
    text(StatusCode::INTERNAL_SERVER_ERROR, words)
}

fn json(body: Vec<u8>) -> ServedResponse {
    let mut answer = Response::new(Full::new(Bytes::from(body)));
    let form = http::HeaderValue::from_static("application/json");
    answer.headers_mut().insert(http::header::CONTENT_TYPE, form);
    answer
}

/// The receivers of reviews.
pub(crate) struct Told {
    pub(crate) shared: AppState,
    pub(crate) carriers: Carriers,
    /// How many reviews there may be at once.
    pub(crate) reviews: Arc<Semaphore>,
    pub(crate) turns: ReviewPool,
    /// How many requests may wait to be evaluated after their answers.
    pub(crate) audits: Arc<Semaphore>,
}

/// Answers a review within the asker's patience.
pub(crate) async fn review(
    told: Told,
    desk: Arc<AdmissionState>,
    asked: Asked,
    body: BudgetedBody,
) -> ServedResponse {
    let shared = &told.shared;
    let began = Instant::now();
    let deadline = asked.deadline;
    let path = asked.counted().to_owned();
    let answering = answer(&told, desk, asked, body);
    let answered = tokio::time::timeout_at(deadline.into(), answering).await;
    let (answer, operation, outcome) = match answered {
        Ok(answered) => answered,
        Err(_) => {
            let late = text(StatusCode::GATEWAY_TIMEOUT, "the review took too long\n");
            (late, String::new(), "late")
        }
    };
    let labels = [("path", path.as_str()), ("operation", &operation), ("answer", outcome)];
    shared.metrics.count("kiln_admission_requests_total", &labels);
    let seconds = began.elapsed().as_secs_f64();
    shared.metrics.observe("kiln_admission_seconds", &[("path", &path)], seconds);
    kyverno_metrics::count_http(&shared.metrics, &path, began.elapsed());
    answer
}

type Answered = (ServedResponse, String, &'static str);

async fn answer(
    told: &Told,
    desk: Arc<AdmissionState>,
    asked: Asked,
    body: BudgetedBody,
) -> Answered {
    let began = Instant::now();
    let Told { shared, carriers, reviews, turns, .. } = told;
    let Ok(permit) = Arc::clone(reviews).acquire_owned().await else {
        let ends = text(StatusCode::SERVICE_UNAVAILABLE, "shutting down\n");
        return (ends, String::new(), "late");
    };
    let kinds = shared.kinds.borrow().clone();
    let policies = asked.path == POLICY_PATH;
    let counted = asked.counted().to_owned();
    let settings = desk.settings.clone();
    let audited = Arc::clone(&desk);
    let evaluator = Evaluator::new(shared, kinds.clone(), Arc::clone(&desk));
    let (path, deadline) = (asked.path.clone(), asked.deadline);
    // Reading and evaluating keep a processor busy: other connections go on meanwhile.
    let review =
        move |turn: &ReviewPermit<'_>| -> Result<(ReviewRequest, Option<Reviewed>), BadReview> {
            let request = ReviewRequest::read(&body.bytes, desk.settings.review_bytes, &kinds)?;
            drop(body);
            if policies {
                return Ok((request, None));
            }
            if asked.path == TTL_PATH {
                let response = ttl_response(request.event.object.as_ref());
                return Ok((request, Some(Reviewed { response, ..Reviewed::default() })));
            }
            if asked.path == AUTHOR_PATH {
                let response = sign(&request.event, desk.settings.authors);
                return Ok((request, Some(Reviewed { response, ..Reviewed::default() })));
            }
            let reviewed = evaluator.with_env(turn, deadline, |eval_env| {
                desk.hooks.review(&asked.path, &request, eval_env, &desk.settings)
            });
            Ok((request, Some(reviewed)))
        };
    // A client that gives up leaves a review that goes on: it counts until it is over.
    let taken = turns.take(move |turn| (review(turn), permit)).await;
    let (reviewed, _permit) = taken.unzip();
    let (request, reviewed) = match reviewed {
        None => {
            supervisor::count(&shared.metrics, "review", 1);
            return (broken(), String::new(), "broken");
        }
        Some(Ok(done)) => done,
        Some(Err(bad)) => {
            let status = StatusCode::from_u16(bad.status()).unwrap_or(StatusCode::BAD_REQUEST);
            return (text(status, &format!("{bad}\n")), String::new(), "unreadable");
        }
    };
    let operation = request.event.operation.map(|operation| operation.to_string());
    let operation = operation.unwrap_or_default();
    let (response, outcome) = match reviewed {
        None => {
            let response = policy(shared, &request, &settings).await;
            let outcome = if response.is_allowed() { "allowed" } else { "refused" };
            (response, outcome)
        }
        Some(mut reviewed) => {
            tell(shared, &reviewed, &request);
            keep_for_controller(shared, carriers, &mut reviewed, &request.uid).await;
            let is_real = !request.event.request.dry_run;
            if reviewed.shadowed && is_real {
                audits::compare_shadows(told, Arc::clone(&audited), path.clone(), request.clone());
            }
            if reviewed.audits && reviewed.response.is_allowed() && is_real {
                audits::after_answer(told, audited, path, request.clone());
            }
            let outcome = outcome(&reviewed);
            if ![AUTHOR_PATH, TTL_PATH].contains(&counted.as_str()) {
                let (allowed, took) = (reviewed.response.is_allowed(), began.elapsed());
                kyverno_metrics::count_request(&shared.metrics, &request, allowed, &counted, took);
            }
            (reviewed.response, outcome)
        }
    };
    log_refusal(&request, &response);
    (json(response.to_bytes(&request.uid)), operation, outcome)
}

fn log_refusal(request: &ReviewRequest, response: &kiln_admission::Response) {
    if let Some(refusal) = &response.refusal {
        tracing::info!(
            kind = %request.event.kind, name = %request.event.name,
            namespace = request.event.namespace.as_deref().unwrap_or_default(),
            why = %refusal.message, "denied an admission request"
        );
    }
}

fn outcome(reviewed: &Reviewed) -> &'static str {
    match &reviewed.response {
        _ if reviewed.panicked => "broken",
        _ if reviewed.passed_over => "passed over",
        response if !response.is_allowed() => "refused",
        response if response.patch.is_some() => "patched",
        _ => "allowed",
    }
}

/// Passes to the leader what only the request knows. Where rules cannot do without it and it cannot be stored, the request
/// is refused if their policies say so.
async fn keep_for_controller(
    shared: &AppState,
    carriers: &Carriers,
    reviewed: &mut Reviewed,
    identity: &str,
) {
    let stored = tell_controller(shared, carriers, reviewed, identity).await;
    if let Err(why) = stored
        && reviewed.strict
    {
        let why = format!("cannot store the admission request as an UpdateRequest: {why}");
        reviewed.response = kiln_admission::Response::failed(why);
    }
}

/// Passes to the leader what only the request knows. What rules cannot do without is stored first, because
/// that may be another process, or a later one.
async fn tell_controller(
    shared: &AppState,
    carriers: &Carriers,
    reviewed: &mut Reviewed,
    identity: &str,
) -> Result<(), NotStored> {
    let Some(hint) = reviewed.hint.take() else { return Ok(()) };
    let mut written = Ok(());
    if !reviewed.needed_by.is_empty() {
        let namespace = &shared.options.namespace;
        let kind = shared.options.names.update_request();
        let request = hint.to_request(&kind, namespace, &reviewed.needed_by, identity);
        written = match carriers.admit(shared, &request) {
            Ok(()) => write_down(shared, request).await,
            Err(held_back) => Err(held_back),
        };
        let outcome = written.as_ref().map_or_else(NotStored::outcome, |()| "written");
        shared.metrics.count("kiln_requests_written_total", &[("outcome", outcome)]);
        match &written {
            Ok(()) => return written,
            Err(error) => {
                tracing::warn!(%error, "cannot store an admission request; only this replica knows it");
            }
        }
    }
    // A busy controller is not waited for: it goes without, and finds out by its watches.
    if shared.news.hints.try_send(hint).is_err() {
        tracing::debug!("the controller takes no observed requests now");
    }
    written
}

/// Stores a request for the leader.
async fn write_down(shared: &AppState, request: Value) -> Result<(), NotStored> {
    let kinds = shared.kinds.borrow().clone();
    match carry_out(&shared.clients.admission, &kinds, &Call::create(request)).await {
        Ok(_) => Ok(()),
        // The same was written down a moment ago.
        Err(error) if error.reason == Reason::AlreadyExists => Ok(()),
        Err(error) => Err(NotStored::Failed(error)),
    }
}

fn tell(shared: &AppState, reviewed: &Reviewed, request: &ReviewRequest) {
    let about = || {
        let event = &request.event;
        let namespace = event.namespace.as_deref().unwrap_or_default();
        ObjectId::new(event.kind.clone(), namespace, &event.name)
    };
    for ran in &reviewed.ran {
        let changed = ran.status == Status::Pass && reviewed.response.patch.is_some();
        if changed && !request.event.request.dry_run {
            // Events are for people: when there are too many of them, some are left out.
            let mutated = Happened::Mutated { rule: ran.rule.clone(), object: about() };
            let _ = shared.news.happened.try_send(mutated);
        }
    }
    let blocked = !reviewed.response.is_allowed();
    audits::tell_changes(shared, request, &reviewed.ran, blocked);
    audits::tell(shared, request, &reviewed.results, blocked);
    if reviewed.panicked {
        supervisor::count(&shared.metrics, "review", 1);
        tracing::error!("a rule panicked during a request");
    }
}

/// Checks a policy, and asks for the rights that it needs.
async fn policy(
    shared: &AppState,
    request: &ReviewRequest,
    settings: &kiln_admission::Settings,
) -> kiln_admission::Response {
    let check = |kinds: &Kinds| {
        let registry = shared.registry.borrow().clone();
        let others = registry.rules.rules().map(AsRef::as_ref);
        PolicyCheck::of(&request.event, others, kinds)
            .held_to_author(&request.event, settings.authors)
    };
    let mut checked = check(&shared.kinds.borrow().clone());
    if checked.may_be_new_kind()
        && let Ok(Some(kinds)) = Discovery::default().refresh(&shared.clients.admission).await
    {
        // Kyverno: a kind that was just created counts.
        checked = check(&kinds);
        shared.rumours.spread();
    }
    let kinds = shared.kinds.borrow().clone();
    permitted(&shared.clients.admission, &kinds, checked, settings).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn askers_say_how_long_they_wait() {
        for (query, seconds) in [
            ("timeout=10s", Some(10)),
            ("a=b&timeout=3s", Some(3)),
            ("timeout=900s", Some(30)),
            ("timeout=0s", Some(1)),
            ("timeout=10", None),
            ("", None),
        ] {
            assert_eq!(patience(query).map(|patience| patience.as_secs()), seconds, "{query}");
        }
    }

    #[test]
    fn what_is_counted_is_bounded() {
        let counted = |path: &str| {
            let uri: http::Uri = path.parse().unwrap();
            Asked::new(Method::POST, &uri).counted().to_owned()
        };
        assert_eq!(counted("/mutate/fail/finegrained/x?timeout=1s"), "/mutate/fail");
        assert_eq!(counted("/gpol/a/b/c"), "/gpol");
        assert_eq!(counted("/policyvalidate"), "/policyvalidate");
        assert_eq!(counted("/verifyttl?timeout=1s"), "/verifyttl");
    }
}
