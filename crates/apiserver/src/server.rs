//! The server: its state, and the way of a request through it.

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use kiln_object::{Gvk, Kinds};
use kiln_schema::{KubernetesVersion, Schema};
use kiln_text::Time;
use kiln_value::{Value, value};

use crate::access::access_reviews;
use crate::access::authorization::{self, Authorization, User};
use crate::access::tokens;
use crate::admission::Admission;
use crate::controllers::bootstrap;
use crate::crd::{Customs, names};
use crate::discovery::openapi;
use crate::read::watch;
use crate::read::watch::Watch;
use crate::request::media;
use crate::request::paths::{self, RequestTarget, Route};
use crate::request::{ApiRequest, Parameters, Response};
use crate::status::RequestFailure;
use crate::storage::{Record, Store, TableKey};
use crate::{controllers, discovery, read, write};

/// What the server needs from the world.
pub trait ServerHost: Send + Sync {
    /// Seconds and nanoseconds since 1970.
    fn now(&self) -> (i64, u32);

    /// A number that does not come again soon, for UIDs and made-up names.
    fn random(&self) -> u64;

    /// Calls a webhook; its answer, or why there is none.
    ///
    /// # Errors
    /// In words for the user.
    fn call(&self, call: &WebhookCall) -> Result<Vec<u8>, String> {
        Err(format!("webhooks cannot be called here ({})", call.url))
    }

    /// Where a Service is answered that no pod is behind, as `host:port`; none if nothing answers.
    fn service(&self, namespace: &str, name: &str, port: i64) -> Option<String> {
        let _ = (namespace, name, port);
        None
    }

    /// Something was written.
    fn changed(&self, revision: u64) {
        let _ = revision;
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct WebhookCall {
    pub url: String,
    /// Where to connect, as `host:port`, if that is not what the URL says: its certificate is for the name in the URL.
    pub connect_to: Option<String>,
    /// The certificates that it may show, in PEM; empty for those of the system.
    pub ca_bundle: Vec<u8>,
    /// The review, as JSON.
    pub body: Vec<u8>,
    /// How long to wait.
    pub timeout_seconds: u32,
}

/// What a user decides about a server.
#[derive(Clone, Debug)]
pub struct Settings {
    pub authorization: Authorization,
    /// The token of the administrator. With none, a client without a token is the administrator: for tests in
    /// one process.
    pub admin_token: Option<String>,
    /// The key that signs tokens of ServiceAccounts.
    pub signing_key: Vec<u8>,
    /// The address that discovery tells, such as `127.0.0.1:6443`.
    pub address: String,
    /// Whether pods get the account of their namespace, and its token.
    pub accounts: bool,
    /// Whether Deployments, ReplicaSets and Jobs make what they ask for.
    pub workloads: bool,
    /// How many pods there may be before workloads get no more.
    pub pods: usize,
    /// The certificates of the server, in PEM, for `kube-root-ca.crt`.
    pub ca: String,
}

/// How many pods workloads make: one number in an object must not fill the memory.
const MOST_PODS: usize = 5_000;

impl Default for Settings {
    fn default() -> Self {
        Settings {
            authorization: Authorization::AlwaysAllow,
            admin_token: None,
            signing_key: b"kiln".to_vec(),
            address: "127.0.0.1:6443".to_owned(),
            accounts: true,
            workloads: true,
            pods: MOST_PODS,
            ca: String::new(),
        }
    }
}

/// What a request comes to.
#[derive(Debug)]
pub enum ResponseOrWatch {
    Response(Response),
    /// Events follow until the client ends it.
    Watch(Box<Watch>),
}

impl ResponseOrWatch {
    pub fn response(self) -> Option<Response> {
        match self {
            ResponseOrWatch::Response(response) => Some(response),
            ResponseOrWatch::Watch(_) => None,
        }
    }
}

/// Everything that changes.
pub(crate) struct ServerState {
    pub(crate) store: Store,
    pub(crate) kinds: Kinds,
    pub(crate) customs: Customs,
    /// For strategic merges.
    pub(crate) schema: Schema,
    /// Counts changes of what is served.
    pub(crate) served: u64,
}

/// An API server.
pub struct Server {
    state: RwLock<ServerState>,
    pub(crate) host: Box<dyn ServerHost>,
    pub(crate) settings: Settings,
    pub(crate) admission: Admission,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("revision", &self.revision()).finish_non_exhaustive()
    }
}

/// A request that is understood so far.
pub(crate) struct ServerCall<'r> {
    pub(crate) request: &'r ApiRequest,
    pub(crate) parameters: Parameters,
    pub(crate) user: User,
    pub(crate) target: RequestTarget,
    /// What the client is to be warned of.
    pub(crate) warnings: Vec<String>,
}

impl Server {
    /// A server with what every cluster begins with.
    pub fn new(settings: Settings, host: Box<dyn ServerHost>) -> Self {
        Server::with_records(settings, host, Vec::new())
    }

    /// A server that goes on where another one left off.
    pub fn with_records(
        settings: Settings,
        host: Box<dyn ServerHost>,
        records: Vec<Record>,
    ) -> Self {
        let state = ServerState {
            store: Store::default(),
            kinds: Kinds::builtin(),
            customs: Customs::default(),
            schema: Schema::builtin(KubernetesVersion::V1_36),
            served: 1,
        };
        let server =
            Server { state: RwLock::new(state), host, settings, admission: Admission::default() };
        {
            let mut state = server.write();
            for record in records {
                state.store.restore(record);
            }
            state.define_all();
        }
        bootstrap::seed(&server);
        server
    }

    pub(crate) fn read(&self) -> RwLockReadGuard<'_, ServerState> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn write(&self) -> RwLockWriteGuard<'_, ServerState> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// The revision of the last write.
    pub fn revision(&self) -> u64 {
        self.read().store.revision()
    }

    /// Keeps what is written, for [`Server::take_records`].
    pub fn keep_records(&self) {
        let mut state = self.write();
        state.store.journal.get_or_insert_with(Vec::new);
    }

    /// What was written since it was last asked.
    pub fn take_records(&self) -> Vec<Record> {
        let mut state = self.write();
        state.store.journal.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Everything that is stored, as records: a snapshot.
    pub fn snapshot(&self) -> Vec<Record> {
        let state = self.read();
        let revision = state.store.revision();
        let mut records = Vec::new();
        for (key, table) in state.store.tables() {
            for ((namespace, name), object) in table.range("", None) {
                records.push(Record {
                    group: key.group.clone(),
                    plural: key.plural.clone(),
                    namespace: namespace.clone(),
                    name: name.clone(),
                    object: Some(object.clone()),
                    revision,
                });
            }
        }
        records
    }

    /// Forgets what happened up to a revision, as a server does after a while: older watches must list again.
    pub fn compact(&self, upto: u64) {
        self.write().store.compact(upto);
    }

    /// Does what controllers do on their own, until nothing is left to do: ends namespaces, collects what
    /// lost its owner, makes pods of workloads. Call it after writes.
    pub fn settle(&self) {
        controllers::settle(self);
    }

    /// Now, in RFC 3339.
    pub(crate) fn timestamp(&self) -> String {
        let (seconds, _) = self.host.now();
        Time::from_unix(seconds, 0).map_or_else(String::new, |time| time.rfc3339())
    }

    /// An answer to a request.
    pub fn handle(&self, request: &ApiRequest) -> ResponseOrWatch {
        match self.answer(request) {
            Ok(answer) => answer,
            Err(failure) => ResponseOrWatch::Response(failure.response()),
        }
    }

    /// Whether the body of a request counts, told from its head alone: the server need not hold what strangers send, or what
    /// is not looked at.
    ///
    /// # Errors
    /// With the refusal, when the client is not authenticated.
    pub fn wants_body(&self, head: &ApiRequest) -> Result<bool, Response> {
        tokens::authenticate(self, head).map_err(|failure| failure.response())?;
        Ok(!matches!(head.method.as_str(), "GET" | "HEAD") && !tokens::is_stranger(self, head))
    }

    /// What is served, in one answer each: for programs in the same process.
    pub fn call(&self, request: &ApiRequest) -> Response {
        match self.handle(request) {
            ResponseOrWatch::Response(response) => response,
            ResponseOrWatch::Watch(_) => {
                RequestFailure::bad_request("a watch has no single answer").response()
            }
        }
    }

    fn answer(&self, request: &ApiRequest) -> Result<ResponseOrWatch, RequestFailure> {
        let kinds = self.read().kinds.clone();
        let user = tokens::authenticate(self, request)?;
        match paths::route(&request.path, &kinds)? {
            Route::UnknownGroup => {
                self.may_see_path(&user, request)?;
                Ok(ResponseOrWatch::Response(Response::text(404, "404 page not found\n")))
            }
            Route::Other(parts) => {
                self.may_see_path(&user, request)?;
                self.other(request, &parts).map(ResponseOrWatch::Response)
            }
            Route::Resource(target) => self.resource(request, user, *target),
        }
    }

    fn may_see_path(&self, user: &User, request: &ApiRequest) -> Result<(), RequestFailure> {
        let verb = request.method.to_lowercase();
        if authorization::may_see(self, user, &verb, &request.path) {
            return Ok(());
        }
        let (name, path) = (&user.name, &request.path);
        let message = format!("forbidden: User {name:?} cannot {verb} path {path:?}");
        Err(RequestFailure::new(403, "Forbidden", message).with_details(value!({})))
    }

    fn other(&self, request: &ApiRequest, parts: &[String]) -> Result<Response, RequestFailure> {
        if !matches!(request.method.as_str(), "GET" | "HEAD") {
            return Err(RequestFailure::method());
        }
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        match parts.as_slice() {
            ["healthz" | "livez" | "readyz", ..] => Ok(health(request, &parts)),
            ["version"] => Ok(Response::json(200, &discovery::version())),
            ["api" | "apis", ..] => discovery::answer(self, request, &parts),
            ["openapi", ..] => openapi::answer(self, request, &parts),
            [] => Ok(Response::json(200, &discovery::root(self))),
            _ => Ok(Response::text(404, "404 page not found\n")),
        }
    }

    fn resource(
        &self,
        request: &ApiRequest,
        user: User,
        target: RequestTarget,
    ) -> Result<ResponseOrWatch, RequestFailure> {
        let parameters = request.parameters();
        let is_watch = target.watch || parameters.is_on("watch");
        let verb = match (request.method.as_str(), target.name.is_empty()) {
            ("GET" | "HEAD", _) if is_watch && target.subresource.is_empty() => "watch",
            ("GET" | "HEAD", true) => "list",
            ("GET" | "HEAD", false) => "get",
            ("POST", true) => "create",
            ("POST", false) if !target.subresource.is_empty() => "create",
            ("PUT", false) => "update",
            ("PATCH", false) => "patch",
            ("DELETE", true) => "deletecollection",
            ("DELETE", false) => "delete",
            _ => return Err(RequestFailure::method()),
        };
        let verbs = match target.subresource.split('/').next().unwrap_or_default() {
            "" => target.kind.verbs(),
            name => target.kind.subresource(name).map(|sub| sub.verbs).unwrap_or_default(),
        };
        // Kinds name `watch` beside `list`; a watch of one object is a list with a field selector.
        let served = verbs.contains(&verb) || verb == "watch" && verbs.contains(&"list");
        if !served {
            return Err(RequestFailure::method());
        }
        authorization::authorize(self, &user, verb, &target)?;
        let mut call = ServerCall { request, parameters, user, target, warnings: Vec::new() };
        warn_of_deprecation(self, &mut call);
        let answer = match verb {
            "watch" => {
                return watch::begin(self, &call)
                    .map(|watch| ResponseOrWatch::Watch(Box::new(watch)));
            }
            "list" => read::list(self, &call),
            "get" => read::get(self, &call),
            "create"
                if call.target.kind.group() == "authorization.k8s.io"
                    || call.target.kind.group() == "authentication.k8s.io" =>
            {
                access_reviews::create(self, &mut call)
            }
            "create" if call.target.name.is_empty() => write::create(self, &mut call),
            "create" => write::create_subresource(self, &mut call),
            "update" => write::update(self, &mut call),
            "patch" => write::patch(self, &mut call),
            "deletecollection" => write::delete_collection(self, &mut call),
            _ => write::delete(self, &mut call),
        };
        let (_, yaml) = media::accepted(request).unwrap_or((media::ResponseForm::Object, false));
        let mut response = match answer {
            Ok(response) => response,
            Err(failure) => failure.response(),
        };
        if yaml && response.header("Content-Type") == Some("application/json") {
            let text = kiln_yaml::emit(&response.value());
            response = Response {
                status: response.status,
                headers: response.headers,
                body: text.into_bytes(),
            };
            for (name, value) in &mut response.headers {
                if name.eq_ignore_ascii_case("Content-Type") {
                    *value = "application/yaml".to_owned();
                }
            }
        }
        for warning in warnings(&call.warnings) {
            let text = format!("299 - \"{}\"", warning.replace('\\', "\\\\").replace('"', "\\\""));
            response = response.with_header("Warning", &text);
        }
        Ok(ResponseOrWatch::Response(response))
    }
}

/// What a client is warned of, as much of it as headers may carry.
// Kubernetes: when all are longer than 4,096 characters together, each is cut at 256, and the rest is left out.
fn warnings(all: &[String]) -> Vec<String> {
    const TOGETHER: usize = 4096;
    const EACH: usize = 256;
    if all.iter().map(|text| text.chars().count()).sum::<usize>() <= TOGETHER {
        return all.to_vec();
    }
    let mut left = TOGETHER;
    let cut = all.iter().map(|text| text.chars().take(EACH).collect::<String>());
    cut.take_while(|text| {
        let fits = text.chars().count() <= left;
        left = left.saturating_sub(text.chars().count());
        fits
    })
    .collect()
}

fn warn_of_deprecation(server: &Server, call: &mut ServerCall<'_>) {
    let gvk = call.target.kind.gvk();
    let text = match (gvk.group.as_str(), gvk.kind.as_str()) {
        ("", "Endpoints") => Some(
            "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"
                .to_owned(),
        ),
        ("", "ComponentStatus") => Some("v1 ComponentStatus is deprecated in v1.19+".to_owned()),
        _ => server.read().customs.get(&gvk).and_then(|custom| custom.warning.clone()),
    };
    call.warnings.extend(text);
}

fn health(request: &ApiRequest, parts: &[&str]) -> Response {
    if parts.len() == 1 && request.parameters().get("verbose").is_some() {
        let text = format!("[+]ping ok\n[+]storage ok\n{} check passed\n", parts[0]);
        return Response::text(200, &text);
    }
    Response::text(200, "ok")
}

impl ServerState {
    /// Takes a definition of a custom kind into account, if its names are not those of others.
    pub(crate) fn define(&mut self, definition: &Value) {
        let Some(definition) = names::served(&self.kinds, definition) else { return };
        if let Ok(kinds) = self.kinds.clone().with_crd(&definition) {
            self.undefine(&definition);
            self.kinds = kinds;
            self.customs.set(&definition);
            self.served += 1;
        }
    }

    /// Forgets the custom kind of a definition, if it is served.
    pub(crate) fn undefine(&mut self, definition: &Value) {
        let group = definition.str_at(["spec", "group"]).unwrap_or_default();
        let plural = definition.str_at(["spec", "names", "plural"]).unwrap_or_default();
        let Some(kind) = self.kinds.custom(group, plural).map(|kind| kind.kind().to_owned()) else {
            return;
        };
        self.kinds = self.kinds.clone().without(group, &kind);
        self.customs.remove(group, &kind);
        self.served += 1;
    }

    /// Takes all stored definitions into account, in the order in which their kinds came to be served.
    fn define_all(&mut self) {
        let key = TableKey::new("apiextensions.k8s.io", "customresourcedefinitions");
        let stored = self.store.table(&key).into_iter().flat_map(|table| table.range("", None));
        let mut definitions: Vec<Value> = stored.map(|(_, object)| object.clone()).collect();
        let is_established = |definition: &Value| {
            let list = definition.get_path(["status", "conditions"]).and_then(Value::as_list);
            list.into_iter().flat_map(|list| list.iter()).any(|one| {
                one.str_at(["type"]) == Some("Established")
                    && one.str_at(["status"]) == Some("True")
            })
        };
        let made = |definition: &Value| {
            definition.str_at(["metadata", "creationTimestamp"]).map(str::to_owned)
        };
        definitions.sort_by_key(|definition| (!is_established(definition), made(definition)));
        for definition in definitions.iter().filter(|definition| is_established(definition)) {
            let mut before = definition.clone();
            if let Some(names) = definition.get_path(["status", "acceptedNames"]) {
                let _ = before.set(["spec", "names"], names.clone());
            }
            self.define(&before);
        }
        for definition in &definitions {
            self.define(definition);
        }
    }

    pub(crate) fn key(target: &RequestTarget) -> TableKey {
        TableKey::new(target.kind.group(), target.kind.plural())
    }

    /// Whether objects of a kind are custom ones.
    pub(crate) fn is_custom(&self, gvk: &Gvk) -> bool {
        self.customs.get(gvk).is_some()
    }
}
