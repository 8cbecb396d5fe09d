//! Looks like a cluster, and keeps what is written to itself.

use std::collections::{BTreeMap, BTreeSet};

use kiln_cluster::{ApiError, Call, KindKey, Listing, ObjectPatch, Reason, Reply, WatchEvent};
use kiln_engine::Ownership;
use kiln_object::{
    Change, Gvk, NamespacedName, ObjectId, ObjectMap, fold_string_data, metadata, namespaced_name,
};
use kiln_rules::RuleId;
use kiln_text::time::Time;
use kiln_value::{Map, Str, Value};

use super::{Admit, ClusterReader};
use crate::policies::record::Record;
use crate::reconcile::compare::{content_only, live_form, wanted_form};

/// What happens here happens after everything that happened in the cluster.
const FIRST_REVISION: u64 = 1 << 53;

/// The objects of a kind: as the cluster has them, and as they are here.
#[derive(Default)]
struct OverlayKind {
    before: ObjectMap,
    now: ObjectMap,
}

pub(super) struct OverlayCluster<'c> {
    cluster: &'c dyn ClusterReader,
    admit: &'c Admit<'c>,
    /// Where the engine keeps its books.
    namespace: Str,
    kinds: BTreeMap<KindKey, Result<OverlayKind, ApiError>>,
    /// The kinds in the version that they were first asked for in.
    versions: BTreeMap<KindKey, Gvk>,
    /// The only policies that act.
    policies: Option<BTreeSet<(KindKey, NamespacedName)>>,
    /// Rules of other policies that keep what they made in step.
    owners: Vec<RuleId>,
    events: Vec<(KindKey, WatchEvent)>,
    revision: u64,
    time: String,
}

fn refused(why: String) -> ApiError {
    ApiError::new(Reason::Forbidden, why)
}

fn not_found(id: &ObjectId) -> ApiError {
    ApiError::new(Reason::NotFound, format!("{id} does not exist"))
}

impl<'c> OverlayCluster<'c> {
    pub(super) fn new(
        cluster: &'c dyn ClusterReader,
        admit: &'c Admit<'c>,
        namespace: &str,
        now: u64,
    ) -> Self {
        let seconds = i64::try_from(now / 1000).unwrap_or_default();
        OverlayCluster {
            cluster,
            admit,
            namespace: namespace.into(),
            kinds: BTreeMap::new(),
            versions: BTreeMap::new(),
            policies: None,
            owners: Vec::new(),
            events: Vec::new(),
            revision: FIRST_REVISION,
            time: Time::from_unix(seconds, 0).map_or_else(String::new, |time| time.rfc3339()),
        }
    }

    /// Puts these policies in the place of all that the cluster has, and gives back the others.
    pub(super) fn only_policies(&mut self, kinds: &[Gvk], policies: Vec<Value>) -> Vec<Value> {
        let (mut only, mut others) = (BTreeSet::new(), Vec::new());
        let mut by_kind: BTreeMap<KindKey, Vec<Value>> = BTreeMap::new();
        for policy in policies {
            let Some(gvk) = Gvk::of(&policy) else { continue };
            by_kind.entry(KindKey::of(&gvk)).or_default().push(policy);
        }
        for gvk in kinds {
            let key = KindKey::of(gvk);
            self.load(gvk);
            // Where policies cannot be read there are none to keep.
            let mut stored = match self.kinds.remove(&key) {
                Some(Ok(kind)) => kind.now,
                _ => ObjectMap::default(),
            };
            let mut kind = OverlayKind::default();
            for mut policy in by_kind.remove(&key).unwrap_or_default() {
                let place = namespaced_name(&policy);
                policy = match stored.remove(&place) {
                    Some(known) if known.get("spec") == policy.get("spec") => known,
                    known => self.stamped(policy, known.as_ref()),
                };
                only.insert((key.clone(), place.clone()));
                kind.now.insert(place, policy);
            }
            self.kinds.insert(key, Ok(kind));
            others.extend(stored.into_values());
        }
        self.policies = Some(only);
        others
    }

    /// Lets rules keep what they made.
    pub(super) fn keep_owners(&mut self, owners: impl Iterator<Item = RuleId>) {
        self.owners.extend(owners);
    }

    /// What differs from the cluster: before and after, without policies and the engine's own books.
    pub(super) fn changes(
        &self,
        policy_kinds: &[Gvk],
    ) -> impl Iterator<Item = (ObjectId, Option<Value>, Option<Value>)> {
        let policies: BTreeSet<KindKey> = policy_kinds.iter().map(KindKey::of).collect();
        let mut changes = Vec::new();
        for (key, kind) in &self.kinds {
            let (Ok(kind), Some(gvk)) = (kind, self.versions.get(key)) else { continue };
            if policies.contains(key) {
                continue;
            }
            let places: BTreeSet<&NamespacedName> =
                kind.before.keys().chain(kind.now.keys()).collect();
            for place in places {
                let id = ObjectId::new(gvk.clone(), &place.0, &place.1);
                let (before, after) = (kind.before.get_at(place), kind.now.get_at(place));
                if before == after || self.is_own(&id) {
                    continue;
                }
                let (before, after) = (before.map(shown), after.map(shown));
                if before != after {
                    changes.push((id, before, after));
                }
            }
        }
        changes.into_iter()
    }

    pub(super) fn take_events(&mut self) -> Vec<(KindKey, WatchEvent)> {
        std::mem::take(&mut self.events)
    }

    /// Whether this is one of the engine's books.
    fn is_own(&self, id: &ObjectId) -> bool {
        id.namespace == self.namespace
            && (id.gvk.kind == "UpdateRequest" || id.name.starts_with("kiln-"))
    }

    fn load(&mut self, gvk: &Gvk) -> &mut Result<OverlayKind, ApiError> {
        let key = KindKey::of(gvk);
        self.versions.entry(key.clone()).or_insert_with(|| gvk.clone());
        let cluster = self.cluster;
        self.kinds.entry(key).or_insert_with(|| {
            let objects = cluster.all(gvk)?;
            let before: ObjectMap =
                objects.into_iter().map(|object| (namespaced_name(&object), object)).collect();
            Ok(OverlayKind { now: before.clone(), before })
        })
    }

    fn objects(&mut self, gvk: &Gvk) -> Result<&mut ObjectMap, ApiError> {
        self.load(gvk).as_mut().map(|kind| &mut kind.now).map_err(|error| error.clone())
    }

    pub(super) fn carry_out(&mut self, call: &Call) -> Result<Reply, ApiError> {
        let id = call.about();
        if let Some(kept) = self.kept(call)? {
            return Ok(Reply::Object(kept));
        }
        let call = &self.admitted(call)?;
        match call {
            Call::Get(_) => self.get(&id).map(Reply::Object),
            Call::List { kind, namespace, selector, .. } => {
                let (own, only) = (self.namespace.clone(), self.policies.clone());
                let revision = self.revision;
                let is_meant = |object: &&Value| {
                    let place = metadata::namespace(object).unwrap_or_default();
                    namespace.as_ref().is_none_or(|namespace| namespace.as_str() == place)
                        && selector.matches(metadata::labels(object))
                        && (place != own || only.as_ref().is_none_or(|only| is_among(object, only)))
                };
                let objects = self.objects(kind)?.values().filter(is_meant).cloned().collect();
                Ok(Reply::List(Listing { objects, revision, resume: None }))
            }
            Call::Create { object, dry_run } => {
                if self.get(&id).is_ok() {
                    let message = format!("{id} already exists");
                    return Err(ApiError::new(Reason::AlreadyExists, message));
                }
                self.check_namespace(&id)?;
                let object = self.would_be(call, object.clone(), None)?;
                self.put(&id, object, *dry_run).map(Reply::Object)
            }
            Call::Update { object, subresource, dry_run } => {
                let live = self.get(&id)?;
                let version = metadata::resource_version(object);
                if version.is_some() && version != metadata::resource_version(&live) {
                    let message = format!("{id} was replaced by another object");
                    return Err(ApiError::new(Reason::Conflict, message));
                }
                if *dry_run && self.is_as_before(&id) {
                    // Further fields are defaults of the server, unless it says otherwise.
                    let answer = self.asked(call);
                    return answer.unwrap_or(Ok(live)).map(Reply::Object);
                }
                let object = match subresource.as_str() {
                    "" => self.would_be(call, object.clone(), Some(&live))?,
                    part => with_part(&live, object, part),
                };
                self.put(&id, object, *dry_run).map(Reply::Object)
            }
            Call::Patch { patch, .. } => {
                let mut object = self.get(&id)?;
                // Only the engine's own books are patched.
                if let ObjectPatch::Merge(patch) = patch {
                    join(&mut object, patch);
                }
                self.put(&id, object, false).map(Reply::Object)
            }
            Call::Apply { object, .. } => {
                self.check_namespace(&id)?;
                let live = self.get(&id).ok();
                let mut applied = live.clone().unwrap_or(Value::Map(Map::new()));
                join(&mut applied, object);
                let applied = (self.admit)(live.as_ref(), applied).map_err(refused)?;
                self.put(&id, applied, false).map(Reply::Object)
            }
            Call::Delete { .. } => self.delete(&id),
        }
    }

    /// Stores an object as a user does: past the rules at admission, and with what the server makes of it.
    pub(super) fn apply(
        &mut self,
        id: &ObjectId,
        object: Value,
        admit: &Admit<'_>,
    ) -> Result<(), ApiError> {
        self.check_namespace(id)?;
        let live = self.get(id).ok();
        let object = admit(live.as_ref(), object).map_err(refused)?;
        let call = match &live {
            None => Call::create(object.clone()),
            Some(_) => Call::update(object.clone()),
        };
        let object = self.would_be(&call, object, live.as_ref())?;
        if live.is_some_and(|live| shown(&live) == shown(&object)) {
            return Ok(());
        }
        self.put(id, object, false).map(drop)
    }

    /// What stays of an object that belongs to a policy beside those that act; none when no policy keeps it.
    fn kept(&mut self, call: &Call) -> Result<Option<Value>, ApiError> {
        let (Call::Update { object, .. } | Call::Apply { object, .. }) = call else {
            return Ok(None);
        };
        let Some(wanted) = Ownership::read(object).filter(|_| !self.owners.is_empty()) else {
            return Ok(None);
        };
        let id = call.about();
        let Ok(live) = self.get(&id) else { return Ok(None) };
        let Some(claim) = Ownership::read(&live) else { return Ok(None) };
        let mut owners = self.owners.iter();
        let Some(owner) =
            owners.find(|rule| claim.labels.names(rule) && !wanted.labels.names(rule))
        else {
            return Ok(None);
        };
        let content = |form: &Value| content_only(&live_form(form, object));
        if content(&wanted_form(object)) == content(&live) {
            return Ok(Some(live));
        }
        let message = format!(
            "it is also generated by policy {}, rule {}, with other content, and stays as it is",
            owner.policy.key(),
            owner.rule
        );
        Err(ApiError::new(Reason::Forbidden, message))
    }

    /// A call after the rules at admission.
    fn admitted(&mut self, call: &Call) -> Result<Call, ApiError> {
        let id = call.about();
        let (mut call, live) = (call.clone(), self.get(&id).ok());
        match &mut call {
            Call::Create { object, .. } if !self.is_own(&id) => {
                *object = (self.admit)(None, object.clone()).map_err(refused)?;
            }
            Call::Update { object, subresource, .. }
                if subresource.is_empty() && !self.is_own(&id) =>
            {
                *object = (self.admit)(live.as_ref(), object.clone()).map_err(refused)?;
            }
            _ => {}
        }
        Ok(call)
    }

    fn get(&mut self, id: &ObjectId) -> Result<Value, ApiError> {
        let found = self.objects(&id.gvk)?.get(&id.namespace, &id.name);
        found.cloned().ok_or_else(|| not_found(id))
    }

    /// Whether the cluster has the object as it is here.
    fn is_as_before(&self, id: &ObjectId) -> bool {
        let kind = self.kinds.get(&KindKey::of(&id.gvk)).and_then(|kind| kind.as_ref().ok());
        let of = |objects: &ObjectMap| objects.get(&id.namespace, &id.name).cloned();
        kind.is_some_and(|kind| of(&kind.before) == of(&kind.now))
    }

    /// What the cluster says would come of a write; nothing if it cannot tell.
    fn asked(&self, call: &Call) -> Option<Result<Value, ApiError>> {
        let call = match call {
            Call::Create { object, .. } => Call::Create { object: object.clone(), dry_run: true },
            Call::Update { object, subresource, .. } => Call::Update {
                object: object.clone(),
                subresource: subresource.clone(),
                dry_run: true,
            },
            _ => return None,
        };
        match self.cluster.dry_run(&call)? {
            // Here more may be there than in the cluster, and reading needs less rights than writing.
            Err(error) if error.reason != Reason::Invalid => None,
            answer => Some(answer),
        }
    }

    fn would_be(
        &self,
        call: &Call,
        mut object: Value,
        live: Option<&Value>,
    ) -> Result<Value, ApiError> {
        let id = call.about();
        if !self.is_own(&id)
            && self.is_as_before(&id)
            && let Some(answer) = self.asked(call)
        {
            return answer;
        }
        fold_string_data(&mut object);
        if let (Some(status), Some(root)) =
            (live.and_then(|live| live.get("status")), object.as_map_mut())
        {
            root.insert("status", status.clone());
        }
        Ok(object)
    }

    fn check_namespace(&mut self, id: &ObjectId) -> Result<(), ApiError> {
        if id.namespace.is_empty() || self.is_own(id) {
            return Ok(());
        }
        let namespace = ObjectId::new(Gvk::new("v1", "Namespace"), "", &id.namespace);
        match self.get(&namespace) {
            // Who may not read namespaces may still write into them.
            Err(error) if error.reason == Reason::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// The object with what a server writes into its metadata.
    fn stamped(&mut self, mut object: Value, live: Option<&Value>) -> Value {
        self.revision += 1;
        let known = |field: &str| live.and_then(|live| live.get_path(["metadata", field])).cloned();
        let uid = known("uid").unwrap_or_else(|| format!("planned-{}", self.revision).into());
        let born = known("creationTimestamp").unwrap_or_else(|| self.time.as_str().into());
        for (field, value) in [
            ("uid", uid),
            ("creationTimestamp", born),
            ("resourceVersion", self.revision.to_string().into()),
        ] {
            // What rules and users name has metadata.
            let _ = object.set(["metadata", field], value);
        }
        object
    }

    fn put(&mut self, id: &ObjectId, object: Value, dry_run: bool) -> Result<Value, ApiError> {
        let live = self.get(id).ok();
        let object = self.stamped(object, live.as_ref());
        if dry_run {
            return Ok(object);
        }
        self.objects(&id.gvk)?.insert(id.key(), object.clone());
        let change = if live.is_some() { Change::Modified } else { Change::Added };
        self.tell(&id.gvk, change, object.clone());
        Ok(object)
    }

    fn delete(&mut self, id: &ObjectId) -> Result<Reply, ApiError> {
        let gone = self.objects(&id.gvk)?.remove(&id.key()).ok_or_else(|| not_found(id))?;
        let gone = self.stamped(gone.clone(), Some(&gone));
        self.tell(&id.gvk, Change::Deleted, gone);
        Ok(Reply::Deleted)
    }

    fn tell(&mut self, gvk: &Gvk, change: Change, object: Value) {
        let event = WatchEvent { change, object, revision: self.revision };
        self.events.push((KindKey::of(gvk), event));
    }
}

/// Whether one of the engine's books is about one of these policies, or about none.
fn is_among(object: &Value, policies: &BTreeSet<(KindKey, NamespacedName)>) -> bool {
    Record::read(object).is_none_or(|record| {
        let id = record.object;
        policies.contains(&(KindKey::of(&id.gvk), id.key()))
    })
}

/// An object with one of its parts in the place of the old one.
fn with_part(live: &Value, written: &Value, part: &str) -> Value {
    let mut object = live.clone();
    if let (Some(new), Some(root)) = (written.get(part), object.as_map_mut()) {
        root.insert(part, new.clone());
    }
    object
}

fn join(object: &mut Value, with: &Value) {
    match (object, with) {
        (Value::Map(object), Value::Map(with)) => {
            for (key, value) in with.iter() {
                match object.get_mut(key) {
                    Some(old) => join(old, value),
                    None => drop(object.insert(key.clone(), value.clone())),
                }
            }
        }
        (object, with) => *object = with.clone(),
    }
}

/// An object without what is another at every write.
fn shown(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_map_mut) {
        for field in ["managedFields", "resourceVersion", "generation"] {
            metadata.remove(field);
        }
        let is_planned = |uid: &Value| uid.as_str().is_some_and(|uid| uid.starts_with("planned-"));
        if metadata.get("uid").is_some_and(is_planned) {
            metadata.remove("uid");
            metadata.remove("creationTimestamp");
        }
    }
    object
}
