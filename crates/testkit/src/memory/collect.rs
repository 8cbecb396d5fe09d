//! What the controllers of a cluster do on their own: ending namespaces, and what lost its owner.

use std::collections::BTreeSet;

use kiln_cluster::KindKey;
use kiln_object::{ObjectId, metadata, owner};
use kiln_value::{Str, Value};

use super::{Memory, Table};

impl Memory {
    /// Does what is to be done, until nothing is left to do. Objects that finalizers hold stay.
    pub fn collect(&mut self) {
        while self.collect_once() {}
    }

    /// One round; whether something changed.
    pub fn collect_once(&mut self) -> bool {
        let ending = self.empty_namespaces();
        let orphans = self.collect_orphans();
        ending || orphans
    }

    fn empty_namespaces(&mut self) -> bool {
        let namespaces = KindKey::new("", "Namespace");
        let ending: BTreeSet<Str> = self
            .tables
            .get(&namespaces)
            .into_iter()
            .flat_map(Table::objects)
            .filter(|namespace| metadata::is_deleted(namespace))
            .filter_map(|namespace| metadata::name(namespace).map(Str::from))
            .collect();
        let mut changed = false;
        for name in ending {
            let inside: Vec<Value> = self
                .tables
                .values()
                .flat_map(|table| table.map().range(Some(&name), None))
                .map(|(_, object)| object.clone())
                .collect();
            for object in &inside {
                if let Ok(id) = ObjectId::of(object)
                    && !metadata::is_deleted(object)
                {
                    changed |= self.delete(&id).is_ok();
                }
            }
            if inside.is_empty()
                && let Some(namespace) = self.stored(&namespaces, "", &name).cloned()
                && let Ok(id) = ObjectId::of(&namespace)
            {
                self.end(&id, namespace);
                changed = true;
            }
        }
        changed
    }

    /// Deletes objects all of whose owners are gone.
    fn collect_orphans(&mut self) -> bool {
        let owned: Vec<(ObjectId, Vec<kiln_object::OwnerReference>)> = self
            .tables
            .values()
            .flat_map(Table::objects)
            .filter(|object| object.get_path(["metadata", "ownerReferences"]).is_some())
            .filter(|object| !metadata::is_deleted(object))
            .filter_map(|object| Some((ObjectId::of(object).ok()?, owner::owners(object))))
            .filter(|(_, owners)| !owners.is_empty())
            .collect();
        let mut changed = false;
        for (id, owners) in owned {
            let lives = |owner: &kiln_object::OwnerReference| {
                let kind = KindKey::of(&owner.gvk());
                ["", id.namespace.as_str()].iter().any(|namespace| {
                    self.stored(&kind, namespace, &owner.name)
                        .is_some_and(|found| metadata::uid(found) == Some(owner.uid.as_str()))
                })
            };
            if !owners.iter().any(lives) {
                changed |= self.delete(&id).is_ok();
            }
        }
        changed
    }
}
