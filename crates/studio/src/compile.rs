//! Policies of files, compiled with everything that is odd about them.

use std::cell::LazyCell;
use std::sync::Arc;

use kiln_dialects::{
    Compiled, PolicyHost, compile_for, is_exception, is_policy, misplaced_kind, unknown_kinds,
};
use kiln_engine::RuleSet;
use kiln_object::{Kinds, list};
use kiln_yaml::Document;

/// Compiles the policies among documents. What is not known and is in none of the files is remarked.
pub fn compile_given(
    host: PolicyHost,
    documents: &[Document],
    resources: &[Document],
    kinds: &Kinds,
) -> Compiled {
    let mut compiled = compile_policies(host, documents, kinds);
    let own = LazyCell::new(kiln_install::definitions);
    let is_given = |kind: &str| {
        own.iter().any(|definition| definition.str_at(["spec", "names", "kind"]) == Some(kind))
            || documents.iter().chain(resources).any(|document| {
                let objects = list::flatten(document.value().clone());
                objects.iter().any(|object| object.str_at(["kind"]) == Some(kind))
            })
    };
    compiled.diagnostics.extend(unknown_kinds(&compiled.policies, kinds, is_given));
    compiled
}

/// Compiles the policies and exceptions among documents.
pub fn compile_policies(host: PolicyHost, documents: &[Document], kinds: &Kinds) -> Compiled {
    let policies = documents.iter().filter(|found| is_policy(found) || is_exception(found));
    let mut compiled = compile_for(host, policies, kinds);
    compiled.diagnostics.extend(documents.iter().filter_map(misplaced_kind));
    compiled
}

/// The policies and their exceptions, ready to be run.
pub fn rule_set(compiled: &Compiled) -> RuleSet {
    RuleSet::new(compiled.policies.iter().map(Arc::clone))
        .with_exceptions(compiled.exceptions.iter().map(Arc::clone))
}
