//! The stack of layers.

use std::sync::Arc;

use kiln_value::Value;

use crate::openapi::{self, SchemaError};
use crate::table::Table;
use crate::{SchemaNode, builtin};

/// Which built-in table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KubernetesVersion {
    /// Kubernetes 1.21.2, which kustomize and Kyverno's strategic merge carry inside.
    V1_21,
    /// Kubernetes 1.36: what the sandbox is, and what Kiln goes by without a cluster.
    V1_36,
    /// Kubernetes 1.37.
    V1_37,
}

impl KubernetesVersion {
    /// The newest one. Versions only add to what merges how, so that it serves clusters of the others too.
    pub const NEWEST: Self = KubernetesVersion::V1_37;
}

/// Whether objects of a kind belong to a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KindScope {
    Namespaced,
    /// They belong to the cluster.
    Cluster,
}

/// What is known about the kinds of Kubernetes. Cloning copies pointers.
#[derive(Clone, Debug, Default)]
pub struct Schema {
    layers: Vec<Layer>,
}

#[derive(Clone, Debug)]
enum Layer {
    Builtin(&'static Table),
    /// Only the scopes of a built-in table.
    Scopes(&'static Table),
    Document(Arc<Table>),
}

impl Layer {
    fn table(&self) -> &Table {
        match self {
            Layer::Builtin(table) | Layer::Scopes(table) => table,
            Layer::Document(table) => table,
        }
    }

    fn types(&self) -> Option<&Table> {
        (!matches!(self, Layer::Scopes(_))).then(|| self.table())
    }
}

impl Schema {
    /// Knows nothing: every list is one value.
    pub fn empty() -> Self {
        Self::default()
    }

    /// Knows the kinds that Kubernetes itself has.
    pub fn builtin(version: KubernetesVersion) -> Self {
        Schema { layers: vec![Layer::Builtin(builtin::table(version))] }
    }

    /// Knows only which kinds of Kubernetes belong to a namespace.
    ///
    /// kustomize: a custom OpenAPI document replaces the built-in types, but not the scopes.
    pub fn builtin_scopes(version: KubernetesVersion) -> Self {
        Schema { layers: vec![Layer::Scopes(builtin::table(version))] }
    }

    /// Adds an OpenAPI document: version 2 (`definitions`) or 3 (`components.schemas`), the kinds named
    /// by `x-kubernetes-group-version-kind`, their scopes taken from `paths`.
    ///
    /// # Errors
    /// When it has neither of the two, or they are not maps.
    pub fn with_openapi(mut self, document: &Value) -> Result<Self, SchemaError> {
        self.layers.push(Layer::Document(Arc::new(openapi::read_document(document)?)));
        Ok(self)
    }

    /// Adds the kinds of a CustomResourceDefinition, all its versions.
    ///
    /// # Errors
    /// When the group, the kind or a version's name is missing.
    pub fn with_crd(mut self, crd: &Value) -> Result<Self, SchemaError> {
        self.layers.push(Layer::Document(Arc::new(openapi::read_crd(crd)?)));
        Ok(self)
    }

    /// The node of a kind; `api_version` as objects write it (`apps/v1`, `v1`).
    pub fn root(&self, api_version: &str, kind: &str) -> Option<SchemaNode<'_>> {
        self.layers.iter().rev().filter_map(Layer::types).find_map(|table| {
            let shape = table.shape(table.kind(api_version, kind)?.shape?)?;
            Some(SchemaNode::new(table, shape))
        })
    }

    /// The node of the kind that an object says it is.
    pub fn root_of(&self, object: &Value) -> Option<SchemaNode<'_>> {
        self.root(object.get("apiVersion")?.as_str()?, object.get("kind")?.as_str()?)
    }

    /// Whether objects of a kind belong to a namespace, if that is known. Lower layers go first: a
    /// document cannot move a kind of Kubernetes.
    pub fn scope(&self, api_version: &str, kind: &str) -> Option<KindScope> {
        self.layers.iter().find_map(|layer| layer.table().kind(api_version, kind)?.scope)
    }

    /// The kinds that some layer knows, with their scopes where known: apiVersion and kind, sorted
    /// within each layer, the lowest layer first.
    pub fn kinds(&self) -> impl Iterator<Item = (&str, &str, Option<KindScope>)> {
        let kinds = self.layers.iter().flat_map(|layer| layer.table().kinds.iter());
        kinds.map(|entry| (&*entry.api_version, &*entry.kind, entry.scope))
    }

    pub(crate) fn top(&self) -> Option<&Table> {
        self.layers.last().map(Layer::table)
    }
}
