//! The objects of a build in order, found by id and by name without searching.
//!
//! An object keeps its slot for as long as the list lives: one that is deleted leaves an empty slot.
//! The index maps hashes of ids and names (present and past) to slots. Entries that have become stale
//! stay, because every hit is checked against the object; so renaming one object costs the same in a
//! list of ten and of ten thousand.

use std::hash::{Hash, Hasher};

use kiln_diagnostic::did_you_mean;
use kiln_value::{Map, Str, Value};
use rustc_hash::{FxHashMap, FxHasher};

use crate::error::{Error, Result};
use crate::generators::config_map::base64_lines;
use crate::model::id::ResId;
use crate::model::resource::{Behavior, Resource, scalar_text};
use crate::model::scope::Scopes;
use crate::release::ReleaseBehavior;

/// The place of an object in the list.
pub(crate) type Slot = usize;

/// Objects in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Resources {
    list: Vec<Resource>,
    index: Option<Index>,
}

#[derive(Clone, Debug, Default)]
struct Index {
    ids: FxHashMap<u64, Vec<u32>>,
    names: FxHashMap<u64, Vec<u32>>,
}

impl Index {
    fn add(&mut self, slot: Slot, resource: &Resource) {
        self.add_id(slot, resource.id());
        for previous in resource.previous_ids() {
            self.add_id(slot, &previous);
        }
    }

    fn add_id(&mut self, slot: Slot, id: &ResId) {
        let slot = slot as u32;
        for slots in [
            self.ids.entry(hash_of(&id.key())).or_default(),
            self.names.entry(hash_of(&id.name)).or_default(),
        ] {
            if !slots.contains(&slot) {
                slots.push(slot);
            }
        }
    }
}

fn hash_of(thing: &impl Hash) -> u64 {
    let mut hasher = FxHasher::default();
    thing.hash(&mut hasher);
    hasher.finish()
}

/// The object that a name was most likely meant to be, for a hint.
pub(crate) fn nearest_object(kind: &str, name: &str, resources: &Resources) -> Option<String> {
    let of_kind = || {
        let all = resources.iter().map(|(_, resource)| resource);
        all.filter(|resource| kind.is_empty() || resource.kind() == kind)
    };
    let names: Vec<String> = of_kind().map(|resource| resource.name().to_string()).collect();
    let meant = did_you_mean(name, names.iter().map(String::as_str))?;
    let found = of_kind().find(|resource| resource.name() == meant)?;
    Some(format!("did you mean {}/{meant}?", found.kind()))
}

impl Resources {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// The objects that are left, with their slots.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Slot, &Resource)> {
        self.list.iter().enumerate().filter(|(_, resource)| !resource.is_gone())
    }

    /// The slots of the objects that are left.
    pub(crate) fn slots(&self) -> Vec<Slot> {
        self.iter().map(|(slot, _)| slot).collect()
    }

    pub(crate) fn get(&self, slot: Slot) -> &Resource {
        &self.list[slot]
    }

    /// The objects, for changes that leave ids alone.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Resource> {
        self.list.iter_mut().filter(|resource| !resource.is_gone())
    }

    /// The objects in order.
    pub(crate) fn into_list(self) -> impl Iterator<Item = Resource> {
        self.list.into_iter().filter(|resource| !resource.is_gone())
    }

    /// Changes one object, and finds it by its new id from then on.
    pub(crate) fn update<T>(
        &mut self,
        slot: Slot,
        scopes: &Scopes,
        change: impl FnOnce(&mut Resource) -> T,
    ) -> T {
        let resource = &mut self.list[slot];
        let outcome = change(resource);
        resource.settle_shared();
        resource.refresh_id(scopes);
        if let Some(index) = &mut self.index {
            index.add(slot, resource);
        }
        outcome
    }

    /// Changes every object.
    pub(crate) fn update_all(
        &mut self,
        scopes: &Scopes,
        mut change: impl FnMut(&mut Resource) -> Result<()>,
    ) -> Result<()> {
        self.index = None;
        for resource in self.iter_mut() {
            let outcome = change(resource);
            resource.settle_shared();
            resource.refresh_id(scopes);
            outcome?;
        }
        Ok(())
    }

    fn index(&mut self) -> &Index {
        self.index_mut()
    }

    fn index_mut(&mut self) -> &mut Index {
        self.index.get_or_insert_with(|| {
            let mut index = Index::default();
            for (slot, resource) in self.list.iter().enumerate() {
                if !resource.is_gone() {
                    index.add(slot, resource);
                }
            }
            index
        })
    }

    /// Objects of which some id, present or past, equals this one, in order.
    pub(crate) fn by_any_id(&mut self, id: &ResId) -> Vec<Slot> {
        let hits = self.index().ids.get(&hash_of(&id.key())).cloned().unwrap_or_default();
        self.checked(hits, |resource| resource.has_id(id))
    }

    /// Objects whose present id equals this one, in order.
    pub(crate) fn by_current_id(&mut self, id: &ResId) -> Vec<Slot> {
        let hits = self.index().ids.get(&hash_of(&id.key())).cloned().unwrap_or_default();
        self.checked(hits, |resource| resource.id().equals(id))
    }

    /// Objects that have or had this name, in order.
    pub(crate) fn by_any_name(&mut self, name: &str) -> Vec<Slot> {
        let name = Str::new(name);
        let hits = self.index().names.get(&hash_of(&name)).cloned().unwrap_or_default();
        self.checked(hits, |resource| {
            *resource.name() == name || resource.previous.iter().any(|p| p.name == name)
        })
    }

    fn checked(&self, hits: Vec<u32>, fits: impl Fn(&Resource) -> bool) -> Vec<Slot> {
        let mut slots: Vec<Slot> = hits
            .into_iter()
            .map(|slot| slot as Slot)
            .filter(|slot| !self.list[*slot].is_gone() && fits(&self.list[*slot]))
            .collect();
        slots.sort_unstable();
        slots
    }

    /// Adds an object at the end.
    ///
    /// # Errors
    /// When one with this id is there already.
    pub(crate) fn append(&mut self, resource: Resource) -> Result<()> {
        // Only configurations of plugins can be without a name, and several of a kind can be.
        let is_unnamed = resource.name().is_empty() && !resource.kind().ends_with("List");
        if !is_unnamed && let Some(&first) = self.by_current_id(resource.id()).first() {
            let error = Error::new(format!(
                "may not add resource with an already registered id: {}",
                resource.id()
            ));
            let place = resource.document.as_ref().map(|document| document.place());
            let other = self.list[first].document.as_ref().map(|document| document.place());
            return Err(error.at(place).maybe_hint(
                other.map(|other| format!("the first object with this id is at {other}")),
            ));
        }
        self.push(resource);
        Ok(())
    }

    fn push(&mut self, resource: Resource) {
        let slot = self.list.len();
        if let Some(index) = &mut self.index {
            index.add(slot, &resource);
        }
        self.list.push(resource);
    }

    /// Adds all objects of another list at the end.
    pub(crate) fn append_all(&mut self, other: Resources) -> Result<()> {
        // The usual case of a base without siblings: nothing to compare, and no object is moved.
        if self.list.is_empty() && other.are_distinct() {
            *self = other;
            return Ok(());
        }
        other.into_list().try_for_each(|resource| self.append(resource))
    }

    /// Whether no two objects have the same id; replacements can make them equal.
    fn are_distinct(&self) -> bool {
        let mut seen = rustc_hash::FxHashSet::default();
        self.iter().all(|(_, resource)| seen.insert(hash_of(&resource.id().key())))
    }

    /// Takes in what a generator made: adds, replaces or merges it as its behaviour says.
    ///
    /// # Errors
    /// When the behaviour does not fit the existing objects.
    pub(crate) fn absorb(
        &mut self,
        mut resource: Resource,
        behavior: ReleaseBehavior,
        scopes: &Scopes,
    ) -> Result<()> {
        let id = resource.id().clone();
        // By every name that an object ever had: a generator names what a base made, before prefixes and hashes.
        let matches = self.by_any_id(&id);
        let go_id = |id: &ResId| {
            format!(
                "resid.ResId{{Gvk:resid.Gvk{{Group:{:?}, Version:{:?}, Kind:{:?}, isClusterScoped:{}}}, Name:{:?}, Namespace:{:?}}}",
                id.gvk.group, id.gvk.version, id.gvk.kind, id.cluster_scoped, id.name, id.namespace
            )
        };
        match (matches.as_slice(), resource.behavior) {
            ([], Behavior::Merge | Behavior::Replace) => Err(Error::new(format!(
                "id {} does not exist; cannot merge or replace",
                go_id(&id)
            ))
            .hint("a base must make an object of this kind and name, or use the behavior create")),
            ([], _) => self.append(resource),
            ([slot], Behavior::Merge | Behavior::Replace) => {
                let old = &self.list[*slot];
                resource.take_over_metadata(old);
                if resource.behavior == Behavior::Merge {
                    if behavior.merged_secrets_keep_string_data {
                        encode_string_data(&mut resource, old)?;
                    }
                    for field in ["data", "binaryData"] {
                        merge_texts(&mut resource, old, field);
                    }
                    if old.origin.is_some() {
                        resource.origin = old.origin.clone();
                    }
                }
                // kustomize: the result keeps the behavior of the object that was there.
                resource.behavior = old.behavior;
                self.update(*slot, scopes, |place| *place = resource);
                Ok(())
            }
            ([slot], behavior) => Err(Error::new(format!(
                "id {} exists; can not use behavior: '{}', behavior must be merge or replace",
                go_id(&id),
                behavior.as_str()
            ))
            .maybe_hint(
                self.list[*slot]
                    .document
                    .as_ref()
                    .map(|document| format!("the object is at {}", document.place())),
            )),
            (several, _) => Err(Error::new(format!(
                "found multiple objects {} that could accept merge of {id}",
                several
                    .iter()
                    .map(|slot| self.list[*slot].id().to_string())
                    .collect::<Vec<_>>()
                    .join(" ")
            ))),
        }
    }
}

impl Resource {
    /// Takes name, namespace, history, and the labels and annotations it lacks from another object.
    pub(crate) fn take_over_metadata(&mut self, old: &Resource) {
        for field in ["labels", "annotations"] {
            let mut merged = Map::new();
            for from in [old, self] {
                let texts = from.object().get_path(["metadata", field]).and_then(Value::as_map);
                for (key, value) in texts.into_iter().flatten() {
                    merged.insert(key.clone(), scalar_text(value));
                }
            }
            if merged.is_empty() {
                self.remove_metadata(field);
            } else {
                self.set_metadata(field, merged);
            }
        }
        self.set_metadata("name", old.name().clone());
        if old.namespace().is_empty() {
            self.remove_metadata("namespace");
        } else {
            self.set_metadata("namespace", old.namespace().clone());
        }
        self.previous.clone_from(&old.previous);
        self.prefixes.clone_from(&old.prefixes);
        self.suffixes.clone_from(&old.suffixes);
        self.vars.clone_from(&old.vars);
        self.from_helm = old.from_helm;
        // kustomize: only an object that was marked before and is marked again gets a hash.
        self.needs_hash &= old.needs_hash;
        self.transformations.clone_from(&old.transformations);
        if old.origin.is_some() && self.origin.is_none() {
            self.origin.clone_from(&old.origin);
        }
    }
}

/// Gives a Secret what the Secret below it has in `stringData`, encoded as the API server does: it wins over the `data`
/// there, and what the new Secret has wins over both.
fn encode_string_data(resource: &mut Resource, old: &Resource) -> Result<()> {
    if resource.kind() != "Secret" || resource.object().str_at(["apiVersion"]) != Some("v1") {
        return Ok(());
    }
    let texts = old.object().get("stringData").and_then(Value::as_map);
    let mut encoded = Map::new();
    for (key, value) in texts.into_iter().flatten() {
        if matches!(value, Value::List(_) | Value::Map(_)) {
            return Err(Error::new(format!("stringData value for key {key:?} must be a scalar"))
                .at(old.document.as_ref().map(|document| document.place())));
        }
        encoded.insert(key.clone(), base64_lines(scalar_text(value).as_bytes()));
    }
    if encoded.is_empty() {
        return Ok(());
    }
    if let Some(own) = resource.object().get("data").and_then(Value::as_map) {
        for (key, value) in own {
            encoded.insert(key.clone(), value.clone());
        }
    }
    if let Value::Map(object) = resource.object_mut() {
        object.insert("data", encoded);
    }
    Ok(())
}

/// Merges a map of texts: what the new object has wins.
fn merge_texts(resource: &mut Resource, old: &Resource, field: &str) {
    let mut merged = Map::new();
    for from in [old.object(), resource.object()] {
        let texts = from.get(field).and_then(Value::as_map);
        for (key, value) in texts.into_iter().flatten() {
            merged.insert(key.clone(), scalar_text(value));
        }
    }
    if let Value::Map(object) = resource.object_mut() {
        if merged.is_empty() {
            object.remove(field);
        } else {
            object.insert(field, merged);
        }
    }
}
