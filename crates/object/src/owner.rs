//! Owner references: who is responsible for an object, and takes it along when it goes.

use kiln_value::{Map, Value};

use crate::gvk::Gvk;
use crate::metadata;

/// One entry of `metadata.ownerReferences`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnerReference {
    /// The owner's group and version.
    pub api_version: String,
    /// The owner's kind.
    pub kind: String,
    /// The owner's name; it is in the same namespace, or in none.
    pub name: String,
    /// The owner's unique identifier.
    pub uid: String,
    /// Whether this owner manages the object; at most one does.
    pub controller: bool,
    /// Whether the owner must wait for the object when it is deleted in the foreground.
    pub block_owner_deletion: bool,
}

impl OwnerReference {
    /// A plain reference to an object; `None` unless that has a kind, a name and a unique identifier.
    pub fn to_object(owner: &Value) -> Option<Self> {
        let gvk = Gvk::of(owner)?;
        Some(OwnerReference {
            api_version: gvk.api_version(),
            kind: gvk.kind.to_string(),
            name: metadata::name(owner)?.to_owned(),
            uid: metadata::uid(owner)?.to_owned(),
            controller: false,
            block_owner_deletion: false,
        })
    }

    fn read(entry: &Value) -> Self {
        let text = |field| entry.get(field).and_then(Value::as_str).unwrap_or("").to_owned();
        let flag = |field| entry.get(field).and_then(Value::as_bool).unwrap_or(false);
        OwnerReference {
            api_version: text("apiVersion"),
            kind: text("kind"),
            name: text("name"),
            uid: text("uid"),
            controller: flag("controller"),
            block_owner_deletion: flag("blockOwnerDeletion"),
        }
    }

    /// What the owner is.
    pub fn gvk(&self) -> Gvk {
        Gvk::new(&self.api_version, &self.kind)
    }

    /// The entry as an object has it; flags that are not set are left out.
    pub fn to_value(&self) -> Value {
        let mut entry = Map::new();
        entry.insert("apiVersion", self.api_version.as_str());
        entry.insert("kind", self.kind.as_str());
        entry.insert("name", self.name.as_str());
        entry.insert("uid", self.uid.as_str());
        if self.controller {
            entry.insert("controller", true);
        }
        if self.block_owner_deletion {
            entry.insert("blockOwnerDeletion", true);
        }
        Value::Map(entry)
    }
}

/// The owners of an object.
pub fn owners(object: &Value) -> Vec<OwnerReference> {
    let entries = object.get_path(["metadata", "ownerReferences"]).and_then(Value::as_list);
    entries.map(|entries| entries.iter().map(OwnerReference::read).collect()).unwrap_or_default()
}

/// The owner that manages the object.
pub fn controller(object: &Value) -> Option<OwnerReference> {
    owners(object).into_iter().find(|owner| owner.controller)
}

/// Whether the object has the owner with this unique identifier.
pub fn is_owned_by(object: &Value, uid: &str) -> bool {
    !uid.is_empty() && owners(object).iter().any(|owner| owner.uid == uid)
}

/// Replaces the owners of an object; without any the field goes.
pub fn set_owners(object: &mut Value, owners: &[OwnerReference]) {
    let path = ["metadata", "ownerReferences"];
    if owners.is_empty() {
        object.remove(path);
    } else {
        let entries: Vec<Value> = owners.iter().map(OwnerReference::to_value).collect();
        // Only an object whose metadata is not a map refuses, and that has no owners either way.
        let _ = object.set(path, entries);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_value::value;

    #[test]
    fn owners_are_read_and_written() {
        let owner = value!({
            "apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "web", "uid": "1"}
        });
        let reference = OwnerReference::to_object(&owner).unwrap();
        let managed = OwnerReference { controller: true, ..reference };
        let mut pod = value!({"metadata": {"name": "web-x"}});
        set_owners(&mut pod, std::slice::from_ref(&managed));
        assert_eq!(
            pod.get_path(["metadata", "ownerReferences"]),
            Some(&value!([{
                "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "1",
                "controller": true
            }]))
        );
        assert_eq!(owners(&pod).as_slice(), std::slice::from_ref(&managed));
        assert_eq!(controller(&pod), Some(managed));
        assert!(is_owned_by(&pod, "1"));
        assert!(!is_owned_by(&pod, ""));
        set_owners(&mut pod, &[]);
        assert_eq!(pod, value!({"metadata": {"name": "web-x"}}));
        assert_eq!(OwnerReference::to_object(&value!({"kind": "Pod"})), None);
    }
}
