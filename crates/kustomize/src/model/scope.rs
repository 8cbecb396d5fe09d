//! Which kinds belong to a namespace, asked often and so remembered.

use std::cell::{Cell, RefCell};

use kiln_schema::{KindScope, KubernetesVersion, Schema};
use kiln_value::{Str, Value};
use rustc_hash::FxHashMap;

use crate::error::{Error, Result};

/// The schema of a build: merge keys and scopes.
///
/// The first kustomization that names a schema of its own decides for the whole build.
pub(crate) struct Scopes {
    schema: RefCell<Schema>,
    chosen: Cell<bool>,
    /// Whether kustomize would have loaded its built-in schema by now.
    builtin_used: Cell<bool>,
    known: RefCell<FxHashMap<(Str, Str), bool>>,
    knows_admission_policies: bool,
}

impl Default for Scopes {
    fn default() -> Self {
        Scopes::new(true)
    }
}

impl Scopes {
    /// The built-in schema; whether admission policies, which it lacks, belong to the cluster.
    pub(crate) fn new(knows_admission_policies: bool) -> Self {
        Scopes {
            schema: RefCell::new(Schema::builtin(KubernetesVersion::V1_21)),
            chosen: Cell::new(false),
            builtin_used: Cell::new(false),
            known: RefCell::default(),
            knows_admission_policies,
        }
    }

    /// Whether a kind surely belongs to the cluster.
    pub(crate) fn is_cluster_scoped(&self, api_version: &Str, kind: &Str) -> bool {
        if self.knows_admission_policies && is_admission_policy(api_version, kind) {
            return true;
        }
        let key = (api_version.clone(), kind.clone());
        if let Some(known) = self.known.borrow().get(&key) {
            return *known;
        }
        let scope = self.schema.borrow().scope(api_version, kind);
        if scope.is_none() {
            self.builtin_used.set(true);
        }
        let answer = scope == Some(KindScope::Cluster);
        self.known.borrow_mut().insert(key, answer);
        answer
    }

    /// The schema for merging.
    pub(crate) fn schema(&self) -> Schema {
        self.builtin_used.set(true);
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
    ///
    /// kustomize: a built-in schema that was needed before (to merge, or to find the scope of a kind
    /// that is not built in) stays below it.
    pub(crate) fn choose_document(&self, document: &Value) -> Result<()> {
        let below = if self.builtin_used.get() {
            Schema::builtin(KubernetesVersion::V1_21)
        } else {
            Schema::builtin_scopes(KubernetesVersion::V1_21)
        };
        let schema = below.with_openapi(document).map_err(|error| Error::new(error.to_string()))?;
        *self.schema.borrow_mut() = schema;
        self.known.borrow_mut().clear();
        self.chosen.set(true);
        Ok(())
    }
}

/// kustomize: kinds that its built-in schema is too old for, and that it knows besides it.
fn is_admission_policy(api_version: &str, kind: &str) -> bool {
    api_version == "admissionregistration.k8s.io/v1"
        && matches!(kind, "ValidatingAdmissionPolicy" | "ValidatingAdmissionPolicyBinding")
}
