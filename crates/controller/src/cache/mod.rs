//! What the watches have told: the objects of every kind that rules are triggered by, make, or read.
//!
//! It is a copy and may lag behind. Nothing is deleted or replaced on its word alone: each names the version it was
//! decided on, and the cluster refuses it when that is no longer the one.

pub(crate) mod checkpoint_keeper;
pub(crate) mod ignored_changes;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use kiln_cluster::{ApiError, KindKey, Reason};
use kiln_engine::{AccessRequest, ListPage, ListQuery, Ownership, ReadError, User, View};
use kiln_object::{Change, Gvk, Kinds, ObjectId, ObjectMap, metadata, namespaced_name};
use kiln_value::{KeyTable, Str, Value, shared_with};

use crate::few::FewOf;
use crate::lookups::KnownAnswers;

/// The objects that are known.
#[derive(Debug, Default)]
pub(crate) struct ObjectCache {
    pub(crate) kinds: BTreeMap<KindKey, KindMirror>,
    by_uid: HashMap<Str, Arc<ObjectId>>,
    /// Objects that carry a claim, by the UID of their trigger.
    claimed: BTreeMap<Str, FewOf<Arc<ObjectId>>>,
    /// The keys of all objects: each watch event and each answer brings its own.
    keys: KeyTable,
    /// Times at which kinds are listed again after a failure, and how often they could not be listed, in a row.
    relist: BTreeMap<KindKey, (u64, u32)>,
}

/// The objects of one kind.
#[derive(Debug)]
pub(crate) struct KindMirror {
    /// The kind in the version that it is read in.
    pub(crate) gvk: Gvk,
    objects: ObjectMap<CacheEntry>,
    /// The object that came last. What a new one has in common with it is kept once: many objects of a kind come of one
    /// template, and differ in a name.
    last: Option<Value>,
    pub(crate) state: KindState,
    /// Where the watch goes on.
    pub(crate) revision: u64,
}

/// How far a kind is known.
#[derive(Debug)]
pub(crate) enum KindState {
    /// It has to be listed.
    Unlisted,
    /// It is being listed; what came so far.
    Listing(Vec<Value>),
    /// It is known, and followed.
    Synced,
    /// It could not be listed.
    Failed(ApiError),
}

/// One object.
#[derive(Clone, Debug)]
pub(crate) struct CacheEntry {
    pub(crate) object: Value,
    /// The revision at which more than its status changed, as far as that is known.
    pub(crate) touched: u64,
    /// It came by a list, so that `touched` may be only a change of its status.
    pub(crate) listed: bool,
    /// The revision at which the first list of its kind had it: earlier changes were not watched. None when a
    /// watch told of it first.
    pub(crate) found_at: Option<u64>,
}

/// A difference that an object made.
#[derive(Clone, Debug)]
pub(crate) struct Difference {
    pub(crate) id: ObjectId,
    pub(crate) old: Option<Value>,
    pub(crate) new: Option<Value>,
    /// More than the status changed.
    pub(crate) touched: bool,
}

impl ObjectCache {
    /// The kinds that are to be listed now. They count as being listed from then on.
    pub(crate) fn poll(&mut self, now: u64) -> Vec<(KindKey, Gvk)> {
        let mut due = Vec::new();
        for (key, kind) in &mut self.kinds {
            let is_due = match kind.state {
                KindState::Unlisted => true,
                KindState::Failed(_) => self.relist.get(key).is_none_or(|(time, _)| *time <= now),
                KindState::Listing(_) | KindState::Synced => false,
            };
            if is_due {
                kind.state = KindState::Listing(Vec::new());
                due.push((key.clone(), kind.gvk.clone()));
            }
        }
        due
    }

    pub(crate) fn next_deadline(&self) -> Option<u64> {
        let failed = self.relist.iter().filter(|(key, _)| {
            self.kinds.get(*key).is_some_and(|kind| matches!(kind.state, KindState::Failed(_)))
        });
        failed.map(|(_, (time, _))| *time).min()
    }

    /// A kind could not be listed; it is tried again after the pause for so many failures in a row.
    pub(crate) fn list_failed(
        &mut self,
        key: &KindKey,
        error: ApiError,
        now: u64,
        pause: impl FnOnce(u32) -> u64,
    ) {
        let Some(kind) = self.kinds.get_mut(key) else { return };
        let (time, failures) = self.relist.entry(key.clone()).or_default();
        *failures += 1;
        *time = match error.reason {
            Reason::Gone => now,
            // Rights and definitions mostly come soon after the policy that needs them.
            _ => now + pause(*failures + 1),
        };
        kind.state = KindState::Failed(error);
    }

    /// A page of a list; the objects of all pages with the last one, and whether the kind could not be listed before.
    pub(crate) fn listed(
        &mut self,
        key: &KindKey,
        page: Vec<Value>,
        is_last: bool,
    ) -> Option<(Vec<Value>, bool)> {
        let kind = self.kinds.get_mut(key)?;
        let KindState::Listing(known) = &mut kind.state else { return None };
        for mut object in page {
            // What is not kept is let go with its page, and not with the last one.
            object.remove(["metadata", "managedFields"]);
            let like = known.last().or(kind.last.as_ref());
            let object = shared_with(&object, like, &mut self.keys);
            known.push(object);
        }
        if !is_last {
            return None;
        }
        let objects = std::mem::take(known);
        Some((objects, self.relist.remove(key).is_some()))
    }

    /// Whatever could not be listed is listed at once, as if it had not failed before.
    pub(crate) fn retry_lists(&mut self) {
        self.relist.clear();
    }

    /// Kinds that may not be listed are listed at once, as if that had not failed before.
    pub(crate) fn retry_forbidden(&mut self, now: u64) {
        for (key, kind) in &self.kinds {
            if matches!(&kind.state, KindState::Failed(error) if error.reason == Reason::Forbidden)
            {
                self.relist.insert(key.clone(), (now, 0));
            }
        }
    }

    /// Every kind is to be listed again.
    pub(crate) fn resync(&mut self) {
        for kind in self.kinds.values_mut() {
            if matches!(kind.state, KindState::Synced) {
                kind.state = KindState::Unlisted;
            }
        }
    }

    /// Starts to follow a kind; whether it is new.
    pub(crate) fn follow(&mut self, gvk: &Gvk) -> bool {
        let key = KindKey::of(gvk);
        if self.kinds.contains_key(&key) {
            return false;
        }
        let kind = KindMirror {
            gvk: gvk.clone(),
            objects: ObjectMap::default(),
            last: None,
            state: KindState::Unlisted,
            revision: 0,
        };
        self.kinds.insert(key, kind);
        true
    }

    /// Whether a kind was listed once. While it is listed again, what is known stays so.
    pub(crate) fn is_known(&self, key: &KindKey) -> bool {
        self.kinds.get(key).is_some_and(|kind| kind.revision > 0)
    }

    /// Whether what happens to objects of a kind is seen.
    pub(crate) fn is_followed(&self, key: &KindKey) -> bool {
        self.kinds.get(key).is_some_and(|kind| matches!(kind.state, KindState::Synced))
    }

    pub(crate) fn get(&self, id: &ObjectId) -> Option<&Value> {
        self.entry(id).map(|entry| &entry.object)
    }

    pub(crate) fn entry(&self, id: &ObjectId) -> Option<&CacheEntry> {
        let kind = self.kinds.get(&KindKey::of(&id.gvk))?;
        kind.objects.get(&id.namespace, &id.name)
    }

    pub(crate) fn by_uid(&self, uid: &str) -> Option<(&ObjectId, &Value)> {
        let id = self.by_uid.get(uid)?;
        self.get(id).map(|object| (&**id, object))
    }

    pub(crate) fn entries(&self, key: &KindKey) -> impl Iterator<Item = &CacheEntry> + use<'_> {
        self.kinds.get(key).into_iter().flat_map(|kind| kind.objects.values())
    }

    /// Objects whose claim names a trigger.
    pub(crate) fn claimed_by(
        &self,
        trigger_uid: &str,
    ) -> impl Iterator<Item = (&ObjectId, &Value)> {
        let ids = self.claimed.get(trigger_uid).into_iter().flatten();
        ids.filter_map(|id| self.get(id).map(|object| (&**id, object)))
    }

    /// All objects that carry a claim.
    pub(crate) fn claimed(&self) -> impl Iterator<Item = (&ObjectId, &Value)> {
        let ids = self.claimed.values().flatten();
        ids.filter_map(|id| self.get(id).map(|object| (&**id, object)))
    }

    /// Takes note of an object; none when nothing is new.
    pub(crate) fn note(&mut self, object: &Value, change: Change) -> Option<Difference> {
        let mut object = object.clone();
        if object.get_path(["metadata", "managedFields"]).is_some() {
            object.remove(["metadata", "managedFields"]);
        }
        let gvk = Gvk::of(&object)?;
        let kind = self.kinds.get_mut(&KindKey::of(&gvk))?;
        let id = ObjectId::new(
            kind.gvk.clone(),
            metadata::namespace(&object).unwrap_or_default(),
            metadata::name(&object)?,
        );
        let key = id.key();
        let known = kind.objects.get_at(&key);
        let revision = revision_of(&object);
        if change == Change::Deleted {
            let gone = known.filter(|known| {
                metadata::uid(&known.object) == metadata::uid(&object)
                    && revision_of(&known.object) <= revision
            })?;
            let old = gone.object.clone();
            kind.objects.remove(&key);
            self.unindex(&id, &old);
            return Some(Difference { id, old: Some(old), new: None, touched: true });
        }
        // Answers overtake watches, and lists are read while both go on. The revision is the only order there is, and going
        // back in it would undo a decision that was made on the newer object.
        if known.is_some_and(|known| revision_of(&known.object) >= revision) {
            return None;
        }
        let before = known.cloned();
        let like = before.as_ref().map(|before| &before.object).or(kind.last.as_ref());
        let object = shared_with(&object, like, &mut self.keys);
        kind.last = Some(object.clone());
        let renewed = before
            .as_ref()
            .is_some_and(|before| metadata::uid(&before.object) != metadata::uid(&object));
        let touched = before.as_ref().is_none_or(|b| renewed || differs(&b.object, &object));
        let entry = CacheEntry {
            object: object.clone(),
            touched: match &before {
                Some(before) if !touched => before.touched,
                _ => revision,
            },
            listed: before.as_ref().is_some_and(|before| before.listed && !touched),
            found_at: before.as_ref().filter(|_| !renewed).and_then(|before| before.found_at),
        };
        kind.objects.insert(key, entry);
        let old = before.map(|before| before.object);
        if let Some(old) = &old {
            self.unindex(&id, old);
        }
        self.index(&id, &object);
        Some(Difference { id, old, new: Some(object), touched })
    }

    /// Takes note of an object that an answer has. What the watch has passed already and does not hold any
    /// more is gone, although the answer came later.
    pub(crate) fn note_answer(&mut self, object: &Value) -> Option<Difference> {
        let kind = self.kinds.get(&KindKey::of(&Gvk::of(object)?))?;
        let is_known = kind.objects.get_at(&namespaced_name(object)).is_some();
        if !is_known && kind.revision >= revision_of(object) {
            return None;
        }
        self.note(object, Change::Modified)
    }

    /// Takes note of all objects of a kind; what is not among them is gone.
    pub(crate) fn note_all(
        &mut self,
        key: &KindKey,
        objects: &[Value],
        revision: u64,
    ) -> Vec<Difference> {
        let mut differences = Vec::new();
        let Some(kind) = self.kinds.get_mut(key) else { return differences };
        let first =
            matches!(kind.state, KindState::Unlisted | KindState::Listing(_)) && kind.revision == 0;
        kind.state = KindState::Synced;
        // The watch goes on while a kind is listed again, and may have told of more than the list has.
        let watched = kind.revision;
        kind.revision = watched.max(revision);
        let gvk = kind.gvk.clone();
        let present: BTreeSet<(&str, &str)> = objects.iter().filter_map(uids).collect();
        let gone: Vec<Value> = kind
            .objects
            .values()
            .filter(|entry| {
                // What was written after the list was read is not gone.
                revision_of(&entry.object) <= revision
                    && uids(&entry.object).is_some_and(|uid| !present.contains(&uid))
            })
            .map(|entry| entry.object.clone())
            .collect();
        for mut object in gone {
            // Its end came at an unknown revision.
            let _ = object.set(["metadata", "resourceVersion"], revision.to_string());
            differences.extend(self.note(&object, Change::Deleted));
        }
        for object in objects {
            let noted = if revision < watched {
                self.note_answer(object)
            } else {
                self.note(object, Change::Modified)
            };
            let Some(difference) = noted else { continue };
            if first
                && let Some(kind) = self.kinds.get_mut(key)
                && let Some(entry) = kind.objects.get_mut(&difference.id.key())
            {
                entry.listed = true;
                entry.found_at = Some(revision_of(&entry.object));
            }
            differences.push(difference);
        }
        debug_assert!(self.kinds.get(key).is_none_or(|kind| kind.gvk == gvk));
        differences
    }

    fn index(&mut self, id: &ObjectId, object: &Value) {
        let id = Arc::new(id.clone());
        if let Some(Value::String(uid)) = object.get_path(["metadata", "uid"]) {
            self.by_uid.insert(uid.clone(), Arc::clone(&id));
        }
        if let Some(trigger) = Ownership::read(object).and_then(|mark| mark.labels.trigger_uid) {
            self.claimed.entry(trigger).or_default().insert(id);
        }
    }

    fn unindex(&mut self, id: &ObjectId, object: &Value) {
        if let Some(uid) = metadata::uid(object) {
            self.by_uid.remove(uid);
        }
        if let Some(trigger) = Ownership::read(object).and_then(|mark| mark.labels.trigger_uid)
            && let Some(ids) = self.claimed.get_mut(&trigger)
        {
            ids.remove(&Arc::new(id.clone()));
            if ids.is_empty() {
                self.claimed.remove(&trigger);
            }
        }
    }
}

fn uids(object: &Value) -> Option<(&str, &str)> {
    Some((metadata::uid(object)?, metadata::name(object)?))
}

/// The revision of an object. Servers count them up; one that cannot be read is older than all others.
pub(crate) fn revision_of(object: &Value) -> u64 {
    metadata::resource_version(object).and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// Whether more than the status changed.
pub(crate) fn differs(old: &Value, new: &Value) -> bool {
    let rest = |object: &Value| {
        let mut object = object.clone();
        if let Some(root) = object.as_map_mut() {
            root.remove("status");
            if let Some(metadata) = root.get_mut("metadata").and_then(Value::as_map_mut) {
                metadata.remove("resourceVersion");
                metadata.remove("generation");
            }
        }
        object
    };
    rest(old) != rest(new)
}

/// The mirror as evaluations see it. Kinds that are not followed yet are noted.
pub(crate) struct CacheView<'s> {
    pub(crate) cache: &'s ObjectCache,
    pub(crate) kinds: &'s Kinds,
    pub(crate) answers: KnownAnswers<'s>,
    /// Whose rights the reads are held to.
    pub(crate) author: Option<User>,
    pub(crate) missing: RefCell<BTreeSet<Gvk>>,
}

impl CacheView<'_> {
    fn known(&self, gvk: &Gvk) -> Result<&KindMirror, ReadError> {
        let kind = self.cache.kinds.get(&KindKey::of(gvk));
        match kind.map(|kind| (&kind.state, kind)) {
            Some((KindState::Synced, kind)) => Ok(kind),
            // A kind that could be listed once is still known after a failure to list it again.
            Some((KindState::Listing(_) | KindState::Failed(_), kind)) if kind.revision > 0 => {
                Ok(kind)
            }
            Some((KindState::Failed(error), _)) => Err(match error.reason {
                Reason::UnknownKind => ReadError::UnknownKind(gvk.to_string()),
                Reason::Forbidden => ReadError::Forbidden(error.message.clone()),
                _ => ReadError::Unavailable(error.message.clone()),
            }),
            _ => {
                self.missing.borrow_mut().insert(gvk.clone());
                Err(ReadError::Unavailable(format!("{gvk} is not listed yet")))
            }
        }
    }
}

impl View for CacheView<'_> {
    fn get(
        &self,
        kind: &Gvk,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Option<Value>, ReadError> {
        let known = self.known(kind)?;
        let found = known.objects.get(namespace.unwrap_or_default(), name);
        let found = found.map(|entry| kind.in_version(&entry.object));
        // An object that is being deleted counts as gone for rules that would build on it.
        Ok(found.filter(|found| !metadata::is_deleted(found)))
    }

    fn list(&self, query: &ListQuery<'_>) -> Result<ListPage, ReadError> {
        let known = self.known(query.kind)?;
        let objects = known
            .objects
            .range(query.namespace, None)
            .map(|(_, entry)| &entry.object)
            .filter(|object| !metadata::is_deleted(object))
            .filter(|object| query.selector.matches(metadata::labels(object)))
            .map(|object| query.kind.in_version(object))
            .collect();
        Ok(ListPage { objects, resume: None })
    }

    fn permits(&self, access: &AccessRequest<'_>) -> Result<(), ReadError> {
        match &self.author {
            Some(author) => self.answers.permits(author, access),
            None => Ok(()),
        }
    }

    fn kind_of(&self, group: &str, version: &str, plural: &str) -> Option<Gvk> {
        self.kinds.by_resource(group, version, plural).map(kiln_object::Kind::gvk)
    }
}

#[cfg(test)]
mod tests {
    use kiln_value::{json, memory};

    use super::*;

    /// A ConfigMap as a rule makes one for each Namespace, in the bytes that a watch tells it.
    fn downstream(number: usize) -> Value {
        let text = format!(
            r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"settings","namespace":"team-{number}",
            "uid":"00000000-0000-4000-8000-{number:012}","resourceVersion":"{number}","creationTimestamp":"2026-01-01T00:00:00Z",
            "labels":{{"app.kubernetes.io/managed-by":"kyverno","generate.kyverno.io/policy-name":"add-settings",
            "generate.kyverno.io/rule-name":"settings","generate.kyverno.io/trigger-kind":"Namespace",
            "generate.kyverno.io/trigger-uid":"10000000-0000-4000-8000-{number:012}"}},
            "annotations":{{"kiln.dev/slot":"0.0","kiln.dev/operation":"CREATE","example.com/owner":"platform-engineering@example.com"}},
            "managedFields":[{{"manager":"kiln","operation":"Update","apiVersion":"v1","fieldsV1":{{"f:data":{{}}}}}}]}},
            "data":{{"region":"eu-central-1","url":"https://settings.example.com/api/v1/settings","ca":"{ca}"}}}}"#,
            number = number + 1,
            ca = "0123456789abcdef".repeat(40),
        );
        json::parse(&text).unwrap()
    }

    #[test]
    fn an_object_takes_what_it_has_of_its_own() {
        let mut cache = ObjectCache::default();
        let kind = Gvk::new("v1", "ConfigMap");
        cache.follow(&kind);
        const COUNT: usize = 1000;
        for number in 0..COUNT {
            assert!(cache.note(&downstream(number), Change::Added).is_some());
        }
        let kept: Vec<&Value> =
            cache.entries(&KindKey::of(&kind)).map(|entry| &entry.object).collect();
        let bytes = memory(kept.iter().copied()) / COUNT;
        let sent: Vec<Value> = (0..COUNT).map(downstream).collect();
        let before = memory(&sent) / COUNT;
        // As they come they take 4.5 kB each.
        assert!(bytes <= 1000, "{bytes} bytes for each object, {before} as they come");
        assert!(before > 3 * bytes, "{bytes} bytes for each object, {before} as they come");
        // Whatever is shared, each object is what was sent.
        let by_namespace =
            |object: &Value| object.str_at(["metadata", "namespace"]).map(str::to_owned);
        for mut sent in sent {
            sent.remove(["metadata", "managedFields"]);
            let found = kept.iter().find(|kept| by_namespace(kept) == by_namespace(&sent)).unwrap();
            assert_eq!(json::to_string(found), json::to_string(&sent));
        }
        let uid = "10000000-0000-4000-8000-000000000007";
        assert_eq!(cache.claimed_by(uid).count(), 1);
        let gone = downstream(6);
        assert!(cache.note(&gone, Change::Deleted).is_some());
        assert_eq!(
            (cache.claimed_by(uid).count(), cache.by_uid("00000000-0000-4000-8000-000000000007")),
            (0, None)
        );
    }

    #[test]
    fn a_kind_is_listed_page_by_page_and_again_after_a_failure() {
        let mut cache = ObjectCache::default();
        let kind = Gvk::new("v1", "ConfigMap");
        let key = KindKey::of(&kind);
        assert!(cache.follow(&kind) && !cache.follow(&kind));
        assert_eq!(cache.poll(0), [(key.clone(), kind.clone())]);
        assert!(cache.poll(0).is_empty(), "it is being listed");
        let forbidden = ApiError::new(Reason::Forbidden, "no");
        cache.list_failed(&key, forbidden, 10, |failures| u64::from(failures) * 100);
        assert_eq!(cache.next_deadline(), Some(210));
        assert!(cache.poll(209).is_empty() && !cache.is_known(&key));
        cache.retry_forbidden(50);
        assert_eq!(cache.poll(50).len(), 1);
        let object = |name: &str| {
            kiln_value::value!({
                "apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": name, "namespace": "a", "uid": name, "resourceVersion": "7"},
            })
        };
        assert_eq!(cache.listed(&key, vec![object("x")], false), None);
        let (all, was_away) = cache.listed(&key, vec![object("y")], true).unwrap();
        assert_eq!((all.len(), was_away), (2, true));
        assert_eq!(cache.note_all(&key, &all, 9).len(), 2);
        assert!(cache.is_known(&key) && cache.is_followed(&key));
        assert_eq!(cache.next_deadline(), None);
        cache.resync();
        assert!(cache.is_known(&key) && !cache.is_followed(&key), "it is known while it is listed");
    }
}
