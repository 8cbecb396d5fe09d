//! What an object is called.

use std::fmt;

use kiln_value::{Str, Value};

use crate::gvk::Gvk;
use crate::metadata;
use crate::object_map::NamespacedName;

/// Kind, namespace and name of an object; prints as `apps/v1/Deployment/default/web`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectId {
    pub gvk: Gvk,
    /// Where it is; empty for objects of the cluster, and where nothing was said.
    pub namespace: Str,
    /// What it is called.
    pub name: Str,
}

/// A field without which an object has no identity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{object} has no {field}; give it one")]
pub struct MissingField {
    /// The field, as `metadata.name`.
    pub field: &'static str,
    /// What is known of the object.
    pub object: String,
}

impl ObjectId {
    /// A new identity; the namespace may be empty.
    pub fn new(gvk: Gvk, namespace: &str, name: &str) -> Self {
        ObjectId { gvk, namespace: Str::new(namespace), name: Str::new(name) }
    }

    /// The identity of an object.
    ///
    /// # Errors
    /// When `apiVersion`, `kind` or `metadata.name` is missing or empty.
    pub fn of(object: &Value) -> Result<Self, MissingField> {
        let missing = |field| MissingField { field, object: describe(object) };
        let text =
            |field| object.get(field).and_then(Value::as_str).filter(|text| !text.is_empty());
        let api_version = text("apiVersion").ok_or_else(|| missing("apiVersion"))?;
        let kind = text("kind").ok_or_else(|| missing("kind"))?;
        let name = metadata::name(object).ok_or_else(|| missing("metadata.name"))?;
        let namespace = metadata::namespace(object).unwrap_or("");
        Ok(ObjectId::new(Gvk::new(api_version, kind), namespace, name))
    }

    /// Where it is among the objects of its kind.
    pub fn key(&self) -> NamespacedName {
        (self.namespace.clone(), self.name.clone())
    }

    /// Whether both mean one object, in whatever version of its group.
    pub fn same_object(&self, other: &ObjectId) -> bool {
        self.gvk.group == other.gvk.group
            && self.gvk.kind == other.gvk.kind
            && self.namespace == other.namespace
            && self.name == other.name
    }
}

/// Whatever can be said of an object in a message, complete or not: `v1/ConfigMap/default/web`.
pub fn describe(object: &Value) -> String {
    let text = |field| object.get(field).and_then(Value::as_str).filter(|text| !text.is_empty());
    let parts = [
        text("apiVersion"),
        text("kind"),
        metadata::namespace(object),
        metadata::name(object).or_else(|| metadata::generate_name(object)),
    ];
    match parts.into_iter().flatten().collect::<Vec<_>>() {
        parts if parts.is_empty() => "the object".to_owned(),
        parts => parts.join("/"),
    }
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/", self.gvk)?;
        if !self.namespace.is_empty() {
            write!(f, "{}/", self.namespace)?;
        }
        f.write_str(&self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_value::value;

    #[test]
    fn identities_print_with_their_namespace() {
        let object = value!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "web", "namespace": "prod"}
        });
        assert_eq!(ObjectId::of(&object).unwrap().to_string(), "v1/ConfigMap/prod/web");
        let object = value!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": "admin"}
        });
        let id = ObjectId::of(&object).unwrap();
        assert_eq!(id.to_string(), "rbac.authorization.k8s.io/v1/ClusterRole/admin");
    }

    #[test]
    fn missing_fields_are_named() {
        for (object, error) in [
            (value!({}), "the object has no apiVersion; give it one"),
            (value!({"apiVersion": "v1"}), "v1 has no kind; give it one"),
            (
                value!({"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "web-"}}),
                "v1/Pod/web- has no metadata.name; give it one",
            ),
        ] {
            assert_eq!(ObjectId::of(&object).unwrap_err().to_string(), error);
        }
    }

    #[test]
    fn versions_do_not_make_another_object() {
        let id =
            |api_version| ObjectId::new(Gvk::new(api_version, "HorizontalPodAutoscaler"), "a", "b");
        assert!(id("autoscaling/v1").same_object(&id("autoscaling/v2")));
        assert!(!id("autoscaling/v1").same_object(&id("other/v1")));
    }
}
