//! A whole cluster as a data structure.
//!
//! It keeps objects of any kind in one ordered map per kind, counts one revision for all of them, and
//! remembers what changed so that watches can follow. It has no threads and no clock: the time is
//! [set](Memory::set_time), and what controllers of a real cluster do on their own (ending namespaces,
//! collecting what lost its owner) happens when [`Memory::collect`] is called.
//!
//! ```text
//! Call ─▶ faults ─▶ access ─▶ read / write / apply ─▶ kinds' tables ─▶ log ─▶ watches
//! ```
//!
//! | module | holds |
//! |---|---|
//! | `table` | the objects of one kind and the log of their changes |
//! | `write`, `apply`, `validate` | how objects come, change and go |
//! | `collect` | the end of namespaces, and of what lost its owner |
//! | `access` | who may do what |
//! | `faults` | calls that fail on purpose |
//! | `counts` | what was read and written |

mod access;
mod apply;
mod collect;
mod counts;
mod faults;
mod table;
mod validate;
mod write;

use std::collections::BTreeMap;
use std::fmt;

use kiln_cluster::{ApiError, Call, KindKey, Listing, Reason, Reply, Verb, WatchEvent};
use kiln_object::object_map::read_resume;
use kiln_object::{Gvk, Kinds, ObjectId, Selector, metadata};
use kiln_schema::{KubernetesVersion, Schema};
use kiln_value::{Value, value};

pub use access::{Access, Decision};
pub use counts::{Counts, Tally};
pub use faults::{CallFault, Faults, WatchFault};

use table::Table;

/// Changes an object before it is stored, as an admission webhook does, or refuses it.
pub type Admission = Box<dyn Fn(&mut Value, Option<&Value>) -> Result<(), ApiError> + Send + Sync>;

/// A cluster in memory.
pub struct Memory {
    kinds: Kinds,
    schema: Schema,
    tables: BTreeMap<KindKey, Table>,
    revision: u64,
    made: u64,
    /// Seconds since 1970.
    now: i64,
    admission: Option<Admission>,
    pub access: Access,
    /// Calls that fail on purpose.
    pub faults: Faults,
    /// What was read and written.
    pub counts: Counts,
}

impl Default for Memory {
    fn default() -> Self {
        Memory::new()
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let objects: usize = self.tables.values().map(Table::len).sum();
        f.debug_struct("Memory")
            .field("revision", &self.revision)
            .field("objects", &objects)
            .finish_non_exhaustive()
    }
}

/// What a bare cluster begins with.
const NAMESPACES: [&str; 4] = ["default", "kube-system", "kube-public", "kube-node-lease"];

impl Memory {
    /// A cluster with the namespaces that every cluster has.
    pub fn new() -> Self {
        let mut memory = Memory {
            kinds: Kinds::builtin(),
            schema: Schema::builtin(KubernetesVersion::V1_36),
            tables: BTreeMap::new(),
            revision: 0,
            made: 0,
            now: 0,
            admission: None,
            access: Access::default(),
            faults: Faults::default(),
            counts: Counts::default(),
        };
        for name in NAMESPACES {
            let namespace =
                value!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
            // A fresh cluster refuses nothing.
            let _ = memory.create(namespace);
        }
        memory.counts = Counts::default();
        memory
    }

    /// The time in seconds since 1970, from which objects get their timestamps.
    pub fn now(&self) -> i64 {
        self.now
    }

    /// Sets the time, in seconds since 1970.
    pub fn set_time(&mut self, now: i64) {
        self.now = now;
    }

    /// The kinds that the cluster serves, those of stored CRDs included.
    pub fn kinds(&self) -> &Kinds {
        &self.kinds
    }

    /// What the cluster knows about the shapes of objects.
    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    /// The revision of the last change.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Lets every object pass through this before it is stored.
    pub fn set_admission(&mut self, admission: Admission) {
        self.admission = Some(admission);
    }

    /// Carries out a call of a user: with faults, access, and counts.
    ///
    /// # Errors
    /// As the API server would.
    pub fn call(&mut self, user: &str, call: &Call) -> Result<Reply, ApiError> {
        let (verb, about) = (call.verb(), call.about());
        self.counts.count(verb, &about, call.changes());
        let fault = self.faults.take(verb, &about);
        match &fault {
            Some(CallFault::LostAnswer) | None => {}
            Some(fault) => return Err(fault.error(&about)),
        }
        if self.access.decide(user, verb, &about.gvk, &about.namespace) == Decision::Deny {
            return Err(access::forbidden(user, verb, &about));
        }
        let answer = self.carry_out(call);
        match fault {
            Some(fault) => Err(fault.error(&about)),
            None => answer,
        }
    }

    fn carry_out(&mut self, call: &Call) -> Result<Reply, ApiError> {
        match call {
            Call::Get(id) => self.get(id).map(Reply::Object),
            Call::List { kind, namespace, selector, limit, resume } => self
                .list(kind, namespace.as_deref(), selector, *limit, resume.as_deref())
                .map(Reply::List),
            Call::Create { object, dry_run } => {
                self.create_with(object.clone(), *dry_run).map(Reply::Object)
            }
            Call::Update { object, subresource, dry_run } => {
                self.update_with(object.clone(), subresource, *dry_run).map(Reply::Object)
            }
            Call::Patch { target, patch, subresource } => {
                self.patch(target, patch, subresource).map(Reply::Object)
            }
            Call::Apply { object, manager, force } => {
                self.apply(object.clone(), manager, *force).map(Reply::Object)
            }
            Call::Delete { target, preconditions } => {
                self.delete_with(target, preconditions).map(|()| Reply::Deleted)
            }
        }
    }

    /// One object.
    ///
    /// # Errors
    /// When there is no such object or kind.
    pub fn get(&self, id: &ObjectId) -> Result<Value, ApiError> {
        let kind = self.known(&id.gvk)?;
        self.stored(&kind, &id.namespace, &id.name)
            .map(|object| id.gvk.in_version(object))
            .ok_or_else(|| not_found(id))
    }

    /// Whether there is such an object.
    pub fn has(&self, id: &ObjectId) -> bool {
        self.stored(&KindKey::of(&id.gvk), &id.namespace, &id.name).is_some()
    }

    fn stored(&self, kind: &KindKey, namespace: &str, name: &str) -> Option<&Value> {
        self.tables.get(kind)?.get(namespace, name)
    }

    /// Objects of a kind, by namespace and name.
    ///
    /// # Errors
    /// When there is no such kind, or the place to go on at is none.
    pub fn list(
        &self,
        gvk: &Gvk,
        namespace: Option<&str>,
        selector: &Selector,
        limit: Option<usize>,
        resume: Option<&str>,
    ) -> Result<Listing, ApiError> {
        let kind = self.known(gvk)?;
        let mut listing = Listing { revision: self.revision, ..Listing::default() };
        let Some(table) = self.tables.get(&kind) else { return Ok(listing) };
        let after = resume.map(read_resume);
        let limit = limit.map_or(usize::MAX, |limit| limit.max(1));
        let page = table.map().page(namespace, after.as_ref(), limit, |object| {
            selector.matches(metadata::labels(object))
        });
        listing.resume = page.resume_text();
        listing.objects.extend(page.objects.into_iter().map(|object| gvk.in_version(object)));
        Ok(listing)
    }

    /// What happened to objects of a kind after a revision, oldest first, at most `limit` of it.
    ///
    /// # Errors
    /// [`Reason::Gone`] when some of it is no longer known: list, and go on from there.
    pub fn changes(
        &self,
        gvk: &Gvk,
        after: u64,
        limit: usize,
    ) -> Result<Vec<WatchEvent>, ApiError> {
        let kind = self.known(gvk)?;
        let Some(table) = self.tables.get(&kind) else { return Ok(Vec::new()) };
        let events = table.changes(after, limit).ok_or_else(|| {
            ApiError::new(Reason::Gone, format!("too old resource version: {after}"))
        })?;
        Ok(events
            .map(|event| WatchEvent { object: gvk.in_version(&event.object), ..event.clone() })
            .collect())
    }

    /// What a watch of a user gets after a revision: with faults, access, and counts. The revision to go
    /// on from comes with it, since events may have been dropped.
    ///
    /// # Errors
    /// As [`Memory::changes`], and when the user may not watch.
    pub fn watch(
        &mut self,
        user: &str,
        gvk: &Gvk,
        after: u64,
        limit: usize,
    ) -> Result<(Vec<WatchEvent>, u64), ApiError> {
        let about = ObjectId::new(gvk.clone(), "", "");
        if self.access.decide(user, Verb::Watch, gvk, "") == Decision::Deny {
            return Err(access::forbidden(user, Verb::Watch, &about));
        }
        let events = self.changes(gvk, after, limit)?;
        let upto = events.last().map_or(after, |event| event.revision);
        let mut told = Vec::with_capacity(events.len());
        for event in events {
            match self.faults.take_watch(&KindKey::of(gvk)) {
                Some(WatchFault::Drop) => {}
                Some(WatchFault::Repeat) => told.extend([event.clone(), event]),
                None => told.push(event),
            }
        }
        Ok((told, upto))
    }

    /// Forgets what happened up to a revision, as a server does after a while.
    pub fn compact(&mut self, upto: u64) {
        for table in self.tables.values_mut() {
            table.compact(upto);
        }
    }

    fn known(&self, gvk: &Gvk) -> Result<KindKey, ApiError> {
        match self.kinds.get(gvk) {
            Some(_) => Ok(KindKey::of(gvk)),
            None => Err(ApiError::new(
                Reason::UnknownKind,
                format!("the server does not know the kind {gvk}"),
            )),
        }
    }
}

fn not_found(id: &ObjectId) -> ApiError {
    ApiError::new(Reason::NotFound, format!("{id} not found"))
}
