//! What all parts of a world share: the server, the clock, chance, the admission side of the replicas, the timeline.

use std::sync::{Arc, Mutex, OnceLock, Weak};

use kiln_apiserver::{ApiRequest, Response, Server, ServerHost, WebhookCall};
use kiln_object::EngineNames;
use kiln_value::Value;

use crate::admission::Desk;
use crate::clock::{Ambience, locked};
use crate::faults::FaultRates;
use crate::timeline::{Timeline, TimelineEvent};

/// The namespace that the engine lives in.
pub(crate) const NAMESPACE: &str = "kyverno";

/// What all parts share.
pub(crate) struct Core {
    pub(crate) ambience: Ambience,
    server: OnceLock<Weak<Server>>,
    /// The admission side of each replica.
    pub(crate) desks: Mutex<Vec<Arc<Desk>>>,
    pub(crate) timeline: Mutex<Timeline>,
    pub(crate) faults: Mutex<FaultRates>,
}

impl std::fmt::Debug for Core {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Core").field("now", &self.now()).finish_non_exhaustive()
    }
}

impl Core {
    pub(crate) fn new(now: u64, seed: u64) -> Arc<Self> {
        Arc::new(Core {
            ambience: Ambience::new(now, seed),
            server: OnceLock::new(),
            desks: Mutex::default(),
            timeline: Mutex::default(),
            faults: Mutex::default(),
        })
    }

    /// Tells everything where the server is. Only the first call counts.
    pub(crate) fn set_server(&self, server: &Arc<Server>) {
        let _ = self.server.set(Arc::downgrade(server));
    }

    pub(crate) fn server(&self) -> Option<Arc<Server>> {
        self.server.get().and_then(Weak::upgrade)
    }

    pub(crate) fn now(&self) -> u64 {
        self.ambience.now()
    }

    pub(crate) fn tell(&self, what: TimelineEvent) {
        locked(&self.timeline).add(self.now(), what);
    }

    pub(crate) fn rates(&self) -> FaultRates {
        *locked(&self.faults)
    }

    /// Sends a request as a user; none for the administrator. Writes are noted in the timeline.
    pub(crate) fn send(&self, request: ApiRequest, user: Option<&str>) -> Response {
        let Some(server) = self.server() else { return Response::default() };
        let request = match user {
            Some(user) => request.with_header("Impersonate-User", user),
            None => request,
        };
        let response = server.call(&request);
        let reviews = request.path.starts_with("/apis/authorization.k8s.io/")
            || request.path.starts_with("/apis/authentication.k8s.io/");
        if !matches!(request.method.as_str(), "GET" | "HEAD") && !reviews {
            self.tell(TimelineEvent::Write {
                by: user.unwrap_or("admin").to_owned(),
                verb: verb_of(&request),
                path: written_path(&request, &response),
                status: response.status,
                message: failure_of(&response),
                revision: server.revision(),
            });
        }
        response
    }
}

fn verb_of(request: &ApiRequest) -> &'static str {
    match request.method.as_str() {
        "POST" => "create",
        "PUT" => "update",
        "PATCH" if request.header("Content-Type").is_some_and(|kind| kind.contains("apply")) => {
            "apply"
        }
        "PATCH" => "patch",
        _ => "delete",
    }
}

/// The path of what was written: a new object has its name from the answer.
fn written_path(request: &ApiRequest, response: &Response) -> String {
    if request.method != "POST" || response.status >= 300 {
        return request.path.clone();
    }
    let made = response.value();
    let name = made.str_at(["metadata", "name"]).unwrap_or_default();
    format!("{}/{name}", request.path)
}

fn failure_of(response: &Response) -> String {
    if response.status < 400 {
        return String::new();
    }
    response.value().str_at(["message"]).unwrap_or_default().to_owned()
}

/// The host of the server: time, chance and webhooks of the world.
pub(crate) struct WorldHost(pub(crate) Arc<Core>);

impl ServerHost for WorldHost {
    fn now(&self) -> (i64, u32) {
        let now = self.0.now();
        let nanos = u32::try_from(now % 1000).unwrap_or(0) * 1_000_000;
        (i64::try_from(now / 1000).unwrap_or(0), nanos)
    }

    fn random(&self) -> u64 {
        self.0.ambience.draw()
    }

    fn call(&self, call: &WebhookCall) -> Result<Vec<u8>, String> {
        let host = format!("https://{}.{NAMESPACE}.svc", EngineNames::default().service());
        let Some(rest) = call.url.strip_prefix(&host) else {
            return Err(format!("Post {:?}: nothing answers at this address in a world", call.url));
        };
        let path = rest.split('?').next().unwrap_or_default();
        let up: Vec<Arc<Desk>> =
            locked(&self.0.desks).iter().filter(|desk| desk.is_up()).cloned().collect();
        let desk = match up.as_slice() {
            [one] => Some(one),
            several => self.0.ambience.decide(|chance| chance.pick(several)),
        };
        let Some(desk) = desk else {
            return Err(format!("Post {:?}: no replica answers", call.url));
        };
        desk.review(&self.0, path, &call.body)
    }

    fn service(&self, namespace: &str, name: &str, port: i64) -> Option<String> {
        let is_ours = namespace == NAMESPACE && name == EngineNames::default().service();
        is_ours.then(|| format!("{name}.{namespace}.svc:{port}"))
    }
}

/// The objects of a list.
pub(crate) fn items(list: &Value) -> Vec<Value> {
    list.get("items").and_then(Value::as_list).map(|items| items.to_vec()).unwrap_or_default()
}
