//! A cluster as the application shows it: read, and changed only where it is a sandbox of this process.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use kiln_diagnostic::Diagnostic;
use kiln_engine::Ownership;
use kiln_object::{Gvk, ObjectId};
use kiln_runtime::LiveReader;
use kiln_studio::{
    Lineage, LinkState, hide_secret_values, is_listed, lineage_as_value, listing_as_value,
    named_object,
};
use kiln_value::{Map, Value};
use kiln_yaml::{ReadOptions, emit};

use super::health;
use super::server::ShownCluster;
use crate::cluster::connection::Connection;
use crate::commands::{doctor, explain};
use crate::exit::CommandFailure;
use crate::ui::Ui;

/// How long what was read of a cluster is shown without reading it again. A sandbox is beside us; a real cluster is not asked
/// for all its objects every second.
const FRESH_SANDBOX: Duration = Duration::from_millis(700);
const FRESH_LIVE: Duration = Duration::from_secs(15);
/// How long the kinds that are served are known.
const FRESH_KINDS: Duration = Duration::from_secs(30);
/// The most objects that are listed.
const MAX_OBJECTS: usize = 5_000;
/// The most objects whose state is found out by evaluating their rules.
const MAX_STATES: usize = 200;

/// A change of a sandbox.
pub(in crate::commands) enum ClusterWrite {
    Apply(Value),
    Delete(ObjectId),
}

/// Carries out a change; what the server says against it.
pub(in crate::commands) type ClusterWriter =
    Arc<dyn Fn(ClusterWrite) -> Result<(), String> + Send + Sync>;

/// A cluster behind a kubeconfig.
pub(in crate::commands) struct ServedCluster {
    name: String,
    connection: Connection,
    engine_namespace: String,
    /// None for real clusters: there is no way from here to their objects.
    writer: Option<ClusterWriter>,
    /// For problems of stored policies.
    ui: Ui,
    reader: Mutex<Option<(Instant, Arc<LiveReader>)>>,
    read: Mutex<Option<(Instant, Arc<Listing>)>>,
}

/// What was read of a cluster.
struct Listing {
    objects: Vec<Value>,
    total: usize,
    not_read: Vec<String>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is kept there is only ever replaced as a whole.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ServedCluster {
    /// A real cluster, read only.
    pub(in crate::commands) fn live(connection: Connection, engine_namespace: &str) -> Self {
        ServedCluster {
            name: connection.shown_name(),
            connection,
            engine_namespace: engine_namespace.to_owned(),
            writer: None,
            ui: Ui::silent(),
            reader: Mutex::default(),
            read: Mutex::default(),
        }
    }

    /// A sandbox of this process.
    pub(in crate::commands) fn sandbox(connection: Connection, writer: ClusterWriter) -> Self {
        let name = "the sandbox".to_owned();
        ServedCluster { name, writer: Some(writer), ..Self::live(connection, "kyverno") }
    }

    /// Connects, if that was not done lately.
    pub(super) fn connect(&self) -> Result<Arc<LiveReader>, Diagnostic> {
        let mut kept = lock(&self.reader);
        match &*kept {
            Some((when, reader)) if when.elapsed() < FRESH_KINDS => Ok(Arc::clone(reader)),
            _ => {
                let reader = Arc::new(self.connection.reader()?);
                *kept = Some((Instant::now(), Arc::clone(&reader)));
                Ok(reader)
            }
        }
    }

    fn listing(&self) -> Result<Arc<Listing>, Diagnostic> {
        let fresh = if self.writer.is_some() { FRESH_SANDBOX } else { FRESH_LIVE };
        // Others that ask meanwhile wait for the same answer.
        let mut kept = lock(&self.read);
        if let Some((when, listing)) = &*kept
            && when.elapsed() < fresh
        {
            return Ok(Arc::clone(listing));
        }
        let reader = self.connect()?;
        let listing = Arc::new(list(&reader));
        *kept = Some((Instant::now(), Arc::clone(&listing)));
        Ok(listing)
    }

    fn list(&self) -> Result<Value, Diagnostic> {
        let listing = self.listing()?;
        Ok(listing_as_value(&listing.objects, listing.total, &listing.not_read))
    }

    fn get(&self, request: &Value) -> Result<Value, Diagnostic> {
        let reader = self.connect()?;
        let id = named_object(request)?;
        let found = reader
            .object(&id)
            .map_err(|error| Diagnostic::error(format!("cannot read {id}: {error}")))?;
        let explained = match &found {
            Some(object) => {
                let text =
                    explain::explained(&self.ui, &reader, self.installation(), (&id, object));
                text.unwrap_or_else(|problem| format!("cannot be explained: {}", told(&problem)))
            }
            None => String::new(),
        };
        let exists = found.is_some();
        let yaml = found.map(|mut object| {
            object.remove(["metadata", "managedFields"]);
            // What is edited in a sandbox is stored again.
            if self.writer.is_none() {
                hide_secret_values(&id, Some(&mut object), None);
            }
            emit(&object)
        });
        Ok(Value::from(Map::from_iter([
            ("yaml", Value::from(yaml.unwrap_or_default())),
            ("explain", Value::from(explained)),
            ("exists", Value::from(exists)),
        ])))
    }

    fn lineage(&self, request: &Value) -> Result<Value, Diagnostic> {
        let listing = self.listing()?;
        let reader = self.connect()?;
        let made: Vec<&Value> =
            listing.objects.iter().filter(|object| Ownership::read(object).is_some()).collect();
        let states = match made.len() <= MAX_STATES {
            true => {
                let found = explain::states(&self.ui, &reader, self.installation(), &made);
                found.unwrap_or_default()
            }
            false => Vec::new(),
        };
        let all = Lineage::of_objects(made, |id, _| {
            let known = states.iter().find(|(known, ..)| known == id);
            known.map_or((LinkState::InStep, None), |(_, state, why)| (*state, Some(why.clone())))
        });
        Ok(lineage_as_value(&all, request))
    }

    /// What happened, as the Events of the cluster tell it.
    fn timeline(&self) -> Result<Value, Diagnostic> {
        let events = self.connect()?.all(&Gvk::new("v1", "Event"), "");
        let events =
            events.map_err(|error| Diagnostic::error(format!("cannot list Events: {error}")))?;
        Ok(health::timeline(&events))
    }

    /// Which installation is meant.
    fn installation(&self) -> (&Connection, &str) {
        (&self.connection, &self.engine_namespace)
    }

    fn change(&self, write: ClusterWrite) -> Result<(), Diagnostic> {
        let Some(writer) = &self.writer else {
            return Err(Diagnostic::error("this cluster is shown read only")
                .hint("change it with kubectl; `kiln up --ui` has a sandbox that can be changed"));
        };
        writer(write).map_err(Diagnostic::error)?;
        *lock(&self.read) = None;
        Ok(())
    }

    fn apply(&self, request: &Value) -> Result<Value, Diagnostic> {
        let text = request.str_at(["yaml"]).unwrap_or_default();
        let documents =
            kiln_yaml::read_bytes("applied", text.as_bytes(), ReadOptions::kubernetes())?;
        let objects =
            kiln_offline::objects_of(documents).map_err(|mut problems| problems.swap_remove(0))?;
        if objects.is_empty() {
            return Err(Diagnostic::error("there is nothing to apply"));
        }
        let count = objects.len();
        for object in objects {
            let id = ObjectId::of(&object).map_or_else(|_| String::new(), |id| id.to_string());
            self.change(ClusterWrite::Apply(object))
                .map_err(|problem| Diagnostic::error(format!("{id}: {problem}")))?;
        }
        Ok(message(&format!("applied {}", crate::ui::counted(count, "object", "objects"))))
    }
}

fn message(text: &str) -> Value {
    Value::from(Map::from_iter([("message", text)]))
}

/// A failure in one line.
fn told(failure: &CommandFailure) -> String {
    match failure {
        CommandFailure::BadInput(problems) => {
            problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
        }
        CommandFailure::BrokenPipe => "the output is closed".to_owned(),
    }
}

/// Every object of every kind that can be listed, in its preferred version.
fn list(reader: &LiveReader) -> Listing {
    let kinds = reader.kinds();
    let mut served: Vec<Gvk> = kinds
        .iter()
        .filter(|kind| kind.is_served() && kind.verbs().contains(&"list"))
        .filter_map(|kind| kinds.preferred(kind.group(), kind.kind()))
        .map(kiln_object::Kind::gvk)
        .filter(is_listed)
        .collect();
    served.sort();
    served.dedup();
    let (mut objects, mut total, mut not_read) = (Vec::new(), 0, Vec::new());
    for gvk in served {
        match reader.all(&gvk, "") {
            Ok(found) => {
                total += found.len();
                let room = MAX_OBJECTS - objects.len().min(MAX_OBJECTS);
                objects.extend(found.into_iter().take(room));
            }
            Err(error) => not_read.push(format!("{} cannot be listed: {error}", gvk.kind)),
        }
    }
    objects.sort_by_cached_key(|object| {
        ObjectId::of(object).ok().map(|id| (id.namespace, id.gvk.kind, id.name))
    });
    Listing { objects, total, not_read }
}

impl ShownCluster for ServedCluster {
    fn about(&self) -> (String, bool) {
        (self.name.clone(), self.writer.is_some())
    }

    fn call(&self, method: &str, request: &Value) -> Result<Value, Diagnostic> {
        match method {
            "cluster.list" => self.list(),
            "cluster.get" => self.get(request),
            "cluster.lineage" => self.lineage(request),
            "cluster.apply" => self.apply(request),
            "cluster.delete" => {
                let id = named_object(request)?;
                self.change(ClusterWrite::Delete(id.clone()))?;
                Ok(message(&format!("deleted {id}")))
            }
            "cluster.timeline" => self.timeline(),
            "health" => {
                let reader = self.connect()?;
                let listing = self.listing()?;
                let service = self.connection.names().service();
                let found = doctor::findings_as_value(&reader, &service, &self.engine_namespace);
                let found = found.map_err(|failure| Diagnostic::error(told(&failure)))?;
                Ok(health::health(found, &listing.objects, &listing.not_read))
            }
            method => Err(Diagnostic::error(format!("there is no method {method:?}"))),
        }
    }
}
