//! The policies, exceptions and configuration that are stored, compiled, for everybody.

use std::sync::Arc;

use kiln_engine::RuleSet;
use kiln_object::{Gvk, Kinds, ObjectId};
use kiln_rules::{Exception, Policy};
use kiln_value::{Value, json};
use kiln_yaml::{ReadOptions, read_bytes};

/// What is stored that decides what the process does. It never changes: a new one takes its place.
#[derive(Debug, Default)]
pub struct Registry {
    /// The policies.
    pub policies: Vec<StoredPolicy>,
    /// The exceptions.
    pub exceptions: Vec<Arc<Exception>>,
    /// The rules of all policies that are in order, with their exceptions.
    pub rules: RuleSet,
    /// The configuration's ConfigMap, if there is one.
    pub config: Option<Value>,
    /// Everything was read at least once.
    pub complete: bool,
}

/// One stored policy.
#[derive(Clone, Debug)]
pub struct StoredPolicy {
    /// Which one.
    pub id: ObjectId,
    /// The object.
    pub object: Value,
    /// Its rules, or what is wrong with it.
    pub compiled: Result<Arc<Policy>, String>,
}

/// The kinds of policies that are followed.
pub fn policy_kinds() -> Vec<Gvk> {
    ["ClusterPolicy", "Policy"].map(|kind| Gvk::new("kyverno.io/v1", kind)).into()
}

/// Compiles a stored policy.
///
/// # Errors
/// What is wrong with it.
pub fn compile(policy: &Value, kinds: &Kinds) -> Result<Arc<Policy>, String> {
    let text = json::to_string(policy);
    let documents = read_bytes("policy", text.as_bytes(), ReadOptions::kubernetes())
        .map_err(|error| error.to_string())?;
    let compiled = kiln_dialects::compile(&documents, kinds);
    let problems = || {
        let errors = compiled.diagnostics.iter();
        let errors = errors.filter(|found| found.severity == kiln_diagnostic::Severity::Error);
        errors.map(|found| found.message.clone()).collect::<Vec<_>>().join("; ")
    };
    compiled.policies.first().cloned().ok_or_else(problems)
}
