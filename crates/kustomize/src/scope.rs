//! Which kinds belong to a namespace, asked often and so remembered.

use std::cell::RefCell;

use kiln_schema::{Schema, Scope, Version};
use kiln_value::{Str, Value};
use rustc_hash::FxHashMap;

use crate::error::{Error, Result};

/// The schema of a build: merge keys and scopes.
///
/// The first kustomization that names a schema of its own decides for the whole build.
pub(crate) struct Scopes {
    schema: RefCell<Schema>,
    chosen: std::cell::Cell<bool>,
    known: RefCell<FxHashMap<(Str, Str), bool>>,
}

impl Default for Scopes {
    fn default() -> Self {
        Scopes {
            schema: RefCell::new(Schema::builtin(Version::V1_21)),
            chosen: std::cell::Cell::new(false),
            known: RefCell::default(),
        }
    }
}

impl Scopes {
    /// Whether a kind surely belongs to the cluster.
    pub(crate) fn is_cluster_scoped(&self, api_version: &Str, kind: &Str) -> bool {
        let key = (api_version.clone(), kind.clone());
        if let Some(known) = self.known.borrow().get(&key) {
            return *known;
        }
        let answer = self.schema.borrow().scope(api_version, kind) == Some(Scope::Cluster);
        self.known.borrow_mut().insert(key, answer);
        answer
    }

    /// The schema for merging.
    pub(crate) fn schema(&self) -> Schema {
        self.schema.borrow().clone()
    }

    /// Whether a kustomization has chosen a schema already.
    pub(crate) fn is_chosen(&self) -> bool {
        self.chosen.get()
    }

    /// Uses the built-in schema of this version from here on.
    pub(crate) fn choose_builtin(&self, version: &str) -> Result<()> {
        if version != "v1.21.2" {
            return Err(Error::new("the specified OpenAPI version is not built in")
                .hint("the version that is built in is v1.21.2"));
        }
        self.chosen.set(true);
        Ok(())
    }

    /// Uses an OpenAPI document in place of the built-in schema.
    pub(crate) fn choose_document(&self, document: &Value) -> Result<()> {
        let schema = Schema::builtin_scopes(Version::V1_21)
            .with_openapi(document)
            .map_err(|error| Error::new(error.to_string()))?;
        *self.schema.borrow_mut() = schema;
        self.known.borrow_mut().clear();
        self.chosen.set(true);
        Ok(())
    }
}
