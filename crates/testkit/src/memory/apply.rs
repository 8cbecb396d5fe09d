//! Server-side apply: each manager owns the fields that it applied.
//!
//! Maps are joined entry by entry; a list is one value. Fields that a manager applied before and leaves
//! out now go, unless another manager applies them too.

use std::collections::BTreeSet;

use kiln_cluster::{ApiError, KindKey, Reason};
use kiln_object::ObjectId;
use kiln_value::{Str, Value};

use super::Memory;

type FieldPaths = BTreeSet<Vec<Str>>;

impl Memory {
    /// Applies an object as a manager.
    ///
    /// # Errors
    /// [`Reason::Conflict`] when another manager applied another value to a field, unless forced;
    /// otherwise as the API server would.
    pub fn apply(
        &mut self,
        mut object: Value,
        manager: &str,
        force: bool,
    ) -> Result<Value, ApiError> {
        let gvk = self.gvk_of(&object)?;
        let namespace = self.namespace_for(&gvk, &mut object)?;
        let name = object.str_at(["metadata", "name"]).unwrap_or_default();
        let id = ObjectId::new(gvk.clone(), &namespace, name);
        let mut fields = FieldPaths::new();
        leaves(&object, &mut Vec::new(), &mut fields);
        // Identity fields have no owner.
        let identity = |path: &[Str]| match path {
            [one] => matches!(one.as_str(), "apiVersion" | "kind"),
            [metadata, field] => {
                metadata == "metadata"
                    && matches!(
                        field.as_str(),
                        "name" | "namespace" | "uid" | "resourceVersion" | "creationTimestamp"
                    )
            }
            _ => false,
        };
        fields.retain(|path| !identity(path));

        let table = self.tables.entry(KindKey::of(&gvk)).or_default();
        let place = (id.namespace.clone(), id.name.clone());
        let Some(live) = table.get(&id.namespace, &id.name).cloned() else {
            let stored = self.create(object)?;
            self.own(&id, manager, fields);
            return Ok(stored);
        };
        let owners = table.applied(place);
        if !force {
            let contested =
                owners.iter().filter(|(other, _)| *other != manager).find_map(|(other, theirs)| {
                    let path = theirs
                        .intersection(&fields)
                        .find(|path| at(&live, path) != at(&object, path))?;
                    Some((other.clone(), path.join(".")))
                });
            if let Some((other, path)) = contested {
                let message = format!("conflict with {other:?} over {path} of {id}");
                return Err(ApiError::new(Reason::Conflict, message));
            }
        }
        let before = owners.get(manager).cloned().unwrap_or_default();
        let others: FieldPaths = owners
            .iter()
            .filter(|(other, _)| *other != manager)
            .flat_map(|(_, theirs)| theirs.iter().cloned())
            .collect();
        let mut merged = live;
        for path in before.difference(&fields).filter(|path| !others.contains(*path)) {
            merged.remove(path.iter().map(Str::as_str));
        }
        join(&mut merged, &object);
        let stored = self.update(merged)?;
        self.own(&id, manager, fields);
        Ok(stored)
    }

    fn own(&mut self, id: &ObjectId, manager: &str, fields: FieldPaths) {
        if let Some(table) = self.tables.get_mut(&KindKey::of(&id.gvk)) {
            let owners = table.applied((id.namespace.clone(), id.name.clone()));
            owners.insert(manager.into(), fields);
        }
    }
}

fn leaves(value: &Value, path: &mut Vec<Str>, found: &mut FieldPaths) {
    match value {
        Value::Map(map) if !map.is_empty() => {
            for (key, value) in map.iter() {
                path.push(key.as_str().into());
                leaves(value, path, found);
                path.pop();
            }
        }
        _ => drop(found.insert(path.clone())),
    }
}

fn at<'v>(value: &'v Value, path: &[Str]) -> Option<&'v Value> {
    value.get_path(path.iter().map(Str::as_str))
}

fn join(into: &mut Value, from: &Value) {
    match (into, from) {
        (Value::Map(into), Value::Map(from)) => {
            for (key, value) in from.iter() {
                join(into.get_or_insert_with(key, || Value::Null), value);
            }
        }
        (into, from) => {
            if into != from {
                *into = from.clone();
            }
        }
    }
}
