//! The admission side of a replica: what answers the webhooks of the server, in the middle of its writes.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use kiln_admission::authors::{AUTHOR_PATH, sign};
use kiln_admission::policies::PolicyCheck;
use kiln_admission::webhooks::{POLICY_PATH, TTL_PATH};
use kiln_admission::{Hooks, Response, ReviewRequest, Reviewed, Settings, ValidationResult};
use kiln_cluster::{Call, Reason};
use kiln_engine::{Globals, ObservedRequest, Status, User};
use kiln_object::{Kinds, ObjectId};
use kiln_replica::api::at_once;
use kiln_replica::author_access::Rights;
use kiln_replica::events::{CheckedObject, Happened};
use kiln_replica::policy_review::permitted;
use kiln_replica::policy_store::Registry;
use kiln_replica::report_results::{ReportNews, admitted};
use kiln_replica::ttl_review::ttl_response;
use kiln_rules::PolicyId;

use crate::clock::locked;
use crate::connection::Connection;
use crate::core::Core;
use crate::discovery::discover;
use crate::timeline::TimelineEvent;
use crate::view::ApiView;

/// What answers reviews: rules and settings that belong together.
#[derive(Debug)]
pub(crate) struct DeskState {
    pub(crate) hooks: Hooks,
    pub(crate) settings: Settings,
    pub(crate) authors: HashMap<PolicyId, User>,
    pub(crate) registry: Arc<Registry>,
    pub(crate) kinds: Kinds,
    pub(crate) globals: Arc<Globals>,
}

/// What reviews leave for the other parts of the replica.
#[derive(Debug, Default)]
pub(crate) struct DeskOutput {
    pub(crate) hints: VecDeque<ObservedRequest>,
    pub(crate) happened: VecDeque<Happened>,
    pub(crate) findings: VecDeque<ReportNews>,
    /// Requests that some rules check after the answer, and the path of their webhook.
    pub(crate) audits: VecDeque<(String, ReviewRequest)>,
}

/// The admission side of a replica.
#[derive(Debug)]
pub(crate) struct Desk {
    replica: usize,
    connection: Connection,
    state: RwLock<Arc<DeskState>>,
    pub(crate) rights: Rights,
    pub(crate) output: Mutex<DeskOutput>,
    up: AtomicBool,
}

impl Desk {
    pub(crate) fn new(replica: usize, connection: Connection, state: DeskState) -> Self {
        Desk {
            replica,
            connection,
            state: RwLock::new(Arc::new(state)),
            rights: Rights::default(),
            output: Mutex::default(),
            up: AtomicBool::new(true),
        }
    }

    pub(crate) fn state(&self) -> Arc<DeskState> {
        Arc::clone(&self.state.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn set(&self, state: DeskState) {
        *self.state.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(state);
    }

    /// Whether requests are answered: the process lives.
    pub(crate) fn is_up(&self) -> bool {
        self.up.load(Ordering::Relaxed) && !self.connection.link.is_crashed()
    }

    pub(crate) fn close(&self) {
        self.up.store(false, Ordering::Relaxed);
    }

    fn view<'v>(&'v self, state: &'v DeskState) -> ApiView<'v> {
        ApiView {
            connection: &self.connection,
            kinds: &state.kinds,
            authors: &state.authors,
            rights: &self.rights,
        }
    }

    /// Answers a webhook.
    pub(crate) fn review(&self, core: &Core, path: &str, body: &[u8]) -> Result<Vec<u8>, String> {
        let state = self.state();
        let request = ReviewRequest::read(body, state.settings.review_bytes, &state.kinds)
            .map_err(|bad| format!("the webhook answered with status {}: {bad}", bad.status()))?;
        if path == POLICY_PATH {
            let response = self.policy(core, &state, &request);
            let outcome = if response.is_allowed() { "allowed" } else { "denied" };
            self.note(core, path, &request, outcome, &[], &response);
            return Ok(response.to_bytes(&request.uid));
        }
        if path == TTL_PATH {
            return Ok(ttl_response(request.event.object.as_ref()).to_bytes(&request.uid));
        }
        if path == AUTHOR_PATH {
            let response = sign(&request.event, state.settings.authors);
            return Ok(response.to_bytes(&request.uid));
        }
        let mut reviewed = self.view(&state).with_env(&state.settings, &state.globals, |env| {
            state.hooks.review(path, &request, env, &state.settings)
        });
        self.tell(&state, &reviewed, &request);
        let stored = self.tell_controller(&state, &mut reviewed, &request.uid);
        if let Err(why) = stored
            && reviewed.strict
        {
            let why = format!("cannot store the admission request as an UpdateRequest: {why}");
            reviewed.response = Response::failed(why);
        }
        if reviewed.audits && reviewed.response.is_allowed() && !request.event.request.dry_run {
            locked(&self.output).audits.push_back((path.to_owned(), request.clone()));
        }
        self.note(core, path, &request, outcome(&reviewed), &ran(&reviewed), &reviewed.response);
        Ok(reviewed.response.to_bytes(&request.uid))
    }

    /// Checks a policy, and asks for the permissions that it needs.
    fn policy(&self, core: &Core, state: &DeskState, request: &ReviewRequest) -> Response {
        let check = |kinds: &Kinds| {
            let others = state.registry.rules.rules().map(AsRef::as_ref);
            PolicyCheck::of(&request.event, others, kinds)
                .held_to_author(&request.event, state.settings.authors)
        };
        let mut checked = check(&state.kinds);
        if checked.may_be_new_kind() {
            // Kyverno: a kind that was just created counts.
            checked = check(&discover(core));
        }
        let answer = at_once(permitted(&self.connection, &state.kinds, checked, &state.settings));
        answer.unwrap_or_else(|| Response::failed("an answer of the world is missing"))
    }

    /// Evaluates the rules that the answers to requests did not wait for; whether there were some.
    pub(crate) fn audit(&self) -> bool {
        let waiting = std::mem::take(&mut locked(&self.output).audits);
        let state = self.state();
        for (path, request) in &waiting {
            let results = self.view(&state).with_env(&state.settings, &state.globals, |env| {
                state.hooks.audit(path, request, env, &state.settings)
            });
            self.tell_results(&state, request, &results, false);
        }
        !waiting.is_empty()
    }

    fn tell(&self, state: &DeskState, reviewed: &Reviewed, request: &ReviewRequest) {
        let event = &request.event;
        for ran in &reviewed.ran {
            let changed = ran.status == Status::Pass && reviewed.response.patch.is_some();
            if changed && !event.request.dry_run {
                let namespace = event.namespace.as_deref().unwrap_or_default();
                let object = ObjectId::new(event.kind.clone(), namespace, &event.name);
                let mutated = Happened::Mutated { rule: ran.rule.clone(), object };
                locked(&self.output).happened.push_back(mutated);
            }
        }
        let blocked = !reviewed.response.is_allowed();
        if !event.request.dry_run && !reviewed.ran.is_empty() {
            let object = CheckedObject::of(request, &state.kinds);
            let found = admitted(request, &object, &reviewed.ran, blocked);
            locked(&self.output).findings.extend(found);
        }
        self.tell_results(state, request, &reviewed.results, blocked);
    }

    fn tell_results(
        &self,
        state: &DeskState,
        request: &ReviewRequest,
        results: &[ValidationResult],
        blocked: bool,
    ) {
        if request.event.request.dry_run || results.is_empty() {
            return;
        }
        let object = CheckedObject::of(request, &state.kinds);
        let mut output = locked(&self.output);
        output.findings.extend(admitted(request, &object, results, blocked));
        let checked =
            Happened::Checked { object, results: results.into(), blocked, scanned: false };
        output.happened.push_back(checked);
    }

    /// Passes to the leader what only the request knows. What rules cannot do without is stored first, because that may be
    /// another process, or a later one.
    fn tell_controller(
        &self,
        state: &DeskState,
        reviewed: &mut Reviewed,
        identity: &str,
    ) -> Result<(), String> {
        let Some(hint) = reviewed.hint.take() else { return Ok(()) };
        let mut written = Ok(());
        if !reviewed.needed_by.is_empty() {
            let settings = &state.settings;
            let kind = settings.names.update_request();
            let request =
                hint.to_request(&kind, &settings.namespace, &reviewed.needed_by, identity);
            written = match self.connection.call(&state.kinds, &Call::create(request)) {
                // The same was written down a moment ago.
                Err(error) if error.reason != Reason::AlreadyExists => Err(error.to_string()),
                _ => return Ok(()),
            };
        }
        locked(&self.output).hints.push_back(hint);
        written
    }

    fn note(
        &self,
        core: &Core,
        path: &str,
        request: &ReviewRequest,
        outcome: &'static str,
        rules: &[String],
        response: &Response,
    ) {
        let event = &request.event;
        let namespace = event.namespace.as_deref().unwrap_or_default();
        core.tell(TimelineEvent::Review {
            replica: self.replica,
            webhook: path.to_owned(),
            operation: event.operation.map(|one| one.to_string()).unwrap_or_default(),
            object: ObjectId::new(event.kind.clone(), namespace, &event.name),
            outcome,
            rules: rules.to_vec(),
            message: response.refusal.as_ref().map(|why| why.message.clone()).unwrap_or_default(),
        });
    }
}

fn outcome(reviewed: &Reviewed) -> &'static str {
    match &reviewed.response {
        _ if reviewed.panicked => "broken",
        _ if reviewed.passed_over => "skipped",
        response if !response.is_allowed() => "denied",
        response if response.patch.is_some() => "patched",
        _ => "allowed",
    }
}

fn ran(reviewed: &Reviewed) -> Vec<String> {
    let results = reviewed.ran.iter().chain(&reviewed.results);
    let in_words = |result: &ValidationResult| {
        let ended = format!("{}: {}", result.rule, result.status.as_str());
        match result.status {
            Status::Error => format!("{ended}: {}", result.message),
            _ => ended,
        }
    };
    results.map(in_words).collect()
}
