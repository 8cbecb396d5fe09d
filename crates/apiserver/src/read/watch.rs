//! Watches: what happens to objects of a kind, for as long as a client listens.
//!
//! A watch holds no queue: it remembers how far it came, and reads the log from there whenever it is
//! asked. A client that is too slow for the log gets an error to list again.

use kiln_object::Change;
use kiln_value::{Map, Value, json, value};

use crate::read::table;
use crate::read::{self, Filter, metadata_only};
use crate::request::media::{self, ResponseForm};
use crate::request::paths::RequestTarget;
use crate::server::{Server, ServerCall, ServerState};
use crate::status::RequestFailure;
use crate::storage::{StorageEvent, text_of};
use crate::types::convert::from_storage;
use crate::types::{decode, types};

/// How many events are written at once.
const BATCH: usize = 500;
/// How long a watch lasts by default.
const USUAL_SECONDS: u64 = 1800;
/// The longest that one may ask for: a year, which no clock overflows at.
const MOST_SECONDS: u64 = 365 * 24 * 3600;
/// How often a listener hears how far things are, if it wants to.
const BOOKMARK_SECONDS: i64 = 60;

/// A watch that was asked for.
#[derive(Debug)]
pub struct Watch {
    target: RequestTarget,
    filter: Filter,
    form: ResponseForm,
    include: String,
    /// How far it came.
    revision: u64,
    /// What is written before anything happens.
    first: Vec<u8>,
    bookmarks: bool,
    last_bookmark: i64,
    headed: bool,
    ended: bool,
    /// How long it lasts.
    pub timeout_seconds: u64,
}

/// Begins a watch.
pub(crate) fn begin(server: &Server, call: &ServerCall<'_>) -> Result<Watch, RequestFailure> {
    let (form, _) = media::accepted(call.request)?;
    read::check_options(&call.parameters, true)?;
    let asked = read::revision(&call.parameters)?;
    let state = server.read();
    let filter = Filter::read(&state, &call.target, &call.parameters)?;
    let now = state.store.revision();
    let parameters = &call.parameters;
    let streams = parameters.is_on("sendInitialEvents");
    let timeout = parameters.number("timeoutSeconds")?;
    let timeout = timeout.and_then(|seconds| u64::try_from(seconds).ok());
    let mut watch = Watch {
        target: call.target.clone(),
        filter,
        form,
        include: parameters.get("includeObject").unwrap_or_default().to_owned(),
        revision: asked.filter(|_| !streams).unwrap_or(0),
        first: Vec::new(),
        bookmarks: parameters.is_on("allowWatchBookmarks"),
        last_bookmark: server.host.now().0,
        headed: false,
        ended: false,
        timeout_seconds: timeout
            .filter(|seconds| *seconds > 0)
            .map_or(USUAL_SECONDS, |seconds| seconds.min(MOST_SECONDS)),
    };
    let seconds = server.host.now().0;
    if streams
        || asked.is_none_or(|asked| asked == 0)
            && parameters.get("sendInitialEvents") != Some("false")
    {
        let key = ServerState::key(&watch.target);
        let objects: Vec<Value> = state
            .store
            .table(&key)
            .into_iter()
            .flat_map(|table| table.range(&watch.target.namespace, None))
            .map(|(_, object)| from_storage(object, &watch.target.kind))
            .filter(|object| watch.filter.matches(object))
            .collect();
        for object in &objects {
            watch.event(&state, "ADDED", object, seconds);
        }
        watch.revision = now;
        if streams && watch.bookmarks {
            watch.bookmark(&state, now, true);
        }
    } else if parameters.get("sendInitialEvents") == Some("false")
        && asked.is_none_or(|asked| asked == 0)
    {
        watch.revision = now;
    }
    Ok(watch)
}

impl Watch {
    /// The media type of what is written.
    pub fn content_type(&self) -> &'static str {
        "application/json"
    }

    /// Whether there will be nothing more.
    pub fn is_over(&self) -> bool {
        self.ended
    }

    /// What happened since it was last asked; empty when nothing did.
    pub fn next(&mut self, server: &Server) -> Vec<u8> {
        if self.ended {
            return Vec::new();
        }
        let state = server.read();
        let key = ServerState::key(&self.target);
        let seconds = server.host.now().0;
        loop {
            let events = match state.store.table(&key) {
                None => Vec::new(),
                Some(table) => match table.since(self.revision, BATCH) {
                    Some(events) => events,
                    None => {
                        let oldest = state.store.oldest(&key);
                        let message =
                            format!("too old resource version: {} ({oldest})", self.revision);
                        let failure = RequestFailure::new(410, "Expired", message);
                        let line = value!({"type": "ERROR", "object": null});
                        self.line(line, &failure.to_value());
                        self.ended = true;
                        return std::mem::take(&mut self.first);
                    }
                },
            };
            for event in &events {
                self.revision = event.revision;
                self.tell(&state, event, seconds);
            }
            if events.is_empty() {
                break;
            }
            // Ready events are sent first; a watch without any looks further.
            if !self.first.is_empty() {
                return std::mem::take(&mut self.first);
            }
        }
        if self.bookmarks && seconds - self.last_bookmark >= BOOKMARK_SECONDS {
            self.revision = self.revision.max(state.store.revision());
            self.bookmark(&state, self.revision, false);
            self.last_bookmark = seconds;
        }
        std::mem::take(&mut self.first)
    }

    /// The last words of a watch that ends in time: how far things are.
    pub fn finish(&mut self, server: &Server) -> Vec<u8> {
        let mut last = Vec::new();
        loop {
            let some = self.next(server);
            if some.is_empty() {
                break;
            }
            last.extend(some);
        }
        // kube-apiserver: a watch that lasts two seconds or less has no last bookmark.
        if self.bookmarks && !self.ended && self.timeout_seconds > 2 {
            let state = server.read();
            self.bookmark(&state, self.revision, false);
            last.append(&mut self.first);
        }
        self.ended = true;
        last
    }

    fn tell(&mut self, state: &ServerState, event: &StorageEvent, seconds: i64) {
        if !self.target.namespace.is_empty() && event.place.0 != self.target.namespace {
            return;
        }
        // Every watch of whole objects without a filter gets the same text.
        let stored_version =
            event.object.str_at(["apiVersion"]) == Some(self.target.api_version().as_str());
        if self.filter.is_everything() && self.form == ResponseForm::Object && stored_version {
            let text = text_of(&event.text, &event.object);
            let change = event.change.as_str();
            for part in ["{\"type\":\"", change, "\",\"object\":", text, "}\n"] {
                self.first.extend_from_slice(part.as_bytes());
            }
            return;
        }
        let object = from_storage(&event.object, &self.target.kind);
        let old = event.old.as_ref().map(|old| from_storage(old, &self.target.kind));
        let was = old.as_ref().is_some_and(|old| self.filter.matches(old));
        let is = event.change != Change::Deleted && self.filter.matches(&object);
        match (was, is) {
            (false, true) => self.event(state, "ADDED", &object, seconds),
            (true, true) => self.event(state, "MODIFIED", &object, seconds),
            (true, false) if event.change == Change::Deleted => {
                self.event(state, "DELETED", &object, seconds);
            }
            (true, false) => {
                // The state that still matched, with the version of the change.
                let mut gone = old.unwrap_or(object);
                let _ = gone.set(["metadata", "resourceVersion"], event.revision.to_string());
                self.event(state, "DELETED", &gone, seconds);
            }
            (false, false) => {}
        }
    }

    fn event(&mut self, state: &ServerState, kind: &str, object: &Value, seconds: i64) {
        let object = match self.form {
            ResponseForm::Object => object.clone(),
            ResponseForm::Metadata => metadata_only(object),
            ResponseForm::Table => self.as_table(state, object, seconds),
        };
        self.line(value!({"type": kind, "object": null}), &object);
    }

    fn as_table(&mut self, state: &ServerState, object: &Value, seconds: i64) -> Value {
        let mut metadata = Map::new();
        if let Some(version) = object.str_at(["metadata", "resourceVersion"]) {
            metadata.insert("resourceVersion", version);
        }
        let objects = std::slice::from_ref(object);
        let mut table =
            table::table(state, &self.target, objects, metadata, &self.include, seconds);
        // Only the first event says what the columns are.
        if std::mem::replace(&mut self.headed, true) {
            let _ = table.set(["columnDefinitions"], Value::Null);
        }
        table
    }

    fn bookmark(&mut self, state: &ServerState, revision: u64, is_initial_end: bool) {
        let gvk = self.target.kind.gvk();
        let mut metadata = Map::new();
        metadata.insert("resourceVersion", revision.to_string());
        if is_initial_end {
            metadata.insert("annotations", value!({"k8s.io/initial-events-end": "true"}));
        }
        let mut object = Map::new();
        object.insert("kind", gvk.kind.clone());
        object.insert("apiVersion", gvk.api_version());
        object.insert("metadata", Value::Map(metadata));
        let mut object = Value::Map(object);
        match self.form {
            ResponseForm::Object => {
                // Kubernetes: a typed object of which nothing else is set.
                if let Some(id) = types().kind(&gvk.api_version(), &gvk.kind)
                    && let Ok(decoded) = decode(&object, id)
                {
                    object = decoded.object;
                }
            }
            ResponseForm::Metadata => object = metadata_only(&object),
            ResponseForm::Table => object = self.as_table(state, &object, 0),
        }
        self.line(value!({"type": "BOOKMARK", "object": null}), &object);
    }

    fn line(&mut self, mut line: Value, object: &Value) {
        let _ = line.set(["object"], object.clone());
        self.first.extend_from_slice(json::to_string(&line).as_bytes());
        self.first.push(b'\n');
    }
}
