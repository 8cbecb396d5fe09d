//! The input languages, each compiled to rules.
//!
//! A language has a directory: it reads documents leniently, reports every mistake with its place and what to do
//! next, and gives [`Policy`](kiln_rules::Policy)s. One bad policy keeps no other from compiling. Languages do
//! not know each other; they meet in the model.
//!
//! ```
//! use kiln_object::Kinds;
//! use kiln_yaml::{ReadOptions, read_bytes};
//! let text = b"apiVersion: kyverno.io/v1\nkind: ClusterPolicy\nmetadata: {name: p}\nspec: {ruls: []}\n";
//! let documents = read_bytes("p.yaml", text, ReadOptions::kubernetes()).unwrap();
//! let compiled = kiln_dialects::compile(&documents, &Kinds::builtin());
//! assert_eq!(
//!     compiled.diagnostics[0].to_string(),
//!     "p.yaml:4:8: unknown field spec.ruls (did you mean \"rules\"?)"
//! );
//! ```

mod cel_policies;
mod cycles;
mod delivery;
mod document_reader;
mod generated_object_fields;
mod host;
mod kubemod;
pub mod kyverno;
mod policy_kinds;
mod schedule;
mod spelling;

pub use cel_policies::pod_controllers;
pub use cycles::{RuleCycle, rule_cycles};
pub use delivery::{SHADOW_OF, SHADOW_OF_RULES};
pub use host::PolicyHost;
pub use policy_kinds::{POLICY_KINDS, PolicyKind, PolicyRuns};
pub use spelling::{misplaced_kind, unknown_kinds};

use std::fmt;
use std::sync::Arc;

use kiln_diagnostic::{Diagnostic, Severity, SourceLocation};
use kiln_object::policy_kinds::{OWN_GROUP, OWN_VERSION, policy_kind};
use kiln_object::{Gvk, Kinds};
use kiln_rules::{Dialect, Exception, LabelOwner, Policy};
use kiln_value::{Path, Str};
use kiln_yaml::Document;

/// What came of compiling documents.
#[derive(Debug, Default)]
pub struct Compiled {
    /// The policies without errors, in the order of the documents.
    pub policies: Vec<Arc<Policy>>,
    /// The exceptions without errors, in the order of the documents.
    pub exceptions: Vec<Arc<Exception>>,
    /// Errors, warnings and notes, in the order of the documents.
    pub diagnostics: Vec<Diagnostic>,
    /// What is left to others.
    pub not_run: Vec<NotRun>,
}

impl Compiled {
    /// Whether some policy has an error.
    pub fn has_errors(&self) -> bool {
        self.diagnostics.iter().any(|found| found.severity == Severity::Error)
    }
}

/// A rule, or a whole policy, that Kiln does not run.
#[derive(Clone, Debug)]
pub struct NotRun {
    /// The policy, as `name` or `namespace/name`.
    pub policy: String,
    /// The rule; none for a whole policy.
    pub rule: Option<Str>,
    /// What it would do, in the word that users write.
    pub what: &'static str,
    /// Where it was written.
    pub place: SourceLocation,
}

impl NotRun {
    /// The operation, in one word: the words of kinds may say more.
    pub fn operation(&self) -> &'static str {
        self.what.split(';').next().unwrap_or(self.what)
    }
}

/// What of one policy is not run, in the words of its status, for example `rule a (validate), rule b (verifyImages)`; none
/// when everything is.
pub fn not_run_in_words(not_run: &[NotRun]) -> Option<String> {
    let words = not_run.iter().map(|not_run| match &not_run.rule {
        Some(rule) => format!("rule {rule} ({})", not_run.operation()),
        None => not_run.operation().to_owned(),
    });
    let words: Vec<String> = words.collect();
    (!words.is_empty()).then(|| words.join(", "))
}

impl fmt::Display for NotRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.rule {
            Some(rule) => write!(f, "rule {:?} of policy {:?}", rule.as_str(), self.policy)?,
            None => write!(f, "policy {:?}", self.policy)?,
        }
        write!(f, " is not run by Kiln: {}", self.what)
    }
}

/// What a document is to this crate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Language {
    /// A policy of a language.
    Policy(Dialect),
    /// A policy of a kind that Kiln does not run.
    NotRun(&'static str),
    /// Objects that Kyverno's rules leave alone.
    KyvernoException,
    /// Objects that policies in CEL leave alone.
    PolicyException,
    /// Where a policy of Kubernetes' admission applies.
    MutatingBinding,
    ValidatingBinding,
}

fn language(document: &Document) -> Option<Language> {
    let gvk = Gvk::of(document.value())?;
    let is_own = gvk.group == OWN_GROUP;
    let Gvk { mut group, kind, .. } = gvk.clone();
    if is_own {
        // The same kinds are there as in Kyverno's groups, and one for both forms of exceptions.
        group = policy_kind(&gvk)?.kyverno_group().into();
    }
    match (group.as_str(), kind.as_str()) {
        ("kyverno.io", "PolicyException")
            if is_own && document.value().get_path(["spec", "policyRefs"]).is_some() =>
        {
            return Some(Language::PolicyException);
        }
        ("kyverno.io", "PolicyException") => return Some(Language::KyvernoException),
        ("policies.kyverno.io", "PolicyException") => return Some(Language::PolicyException),
        ("admissionregistration.k8s.io", "MutatingAdmissionPolicyBinding") => {
            return Some(Language::MutatingBinding);
        }
        ("admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding") => {
            return Some(Language::ValidatingBinding);
        }
        _ => {}
    }
    let found = PolicyKind::find(&group, &kind)?;
    match found.runs {
        PolicyRuns::Never(what) => Some(Language::NotRun(what)),
        _ => found.dialect.map(Language::Policy),
    }
}

/// Whether Kiln's own group has the version of a document, or the document is of another group.
fn is_served_version(document: &Document) -> bool {
    let api_version = document.value().str_at(["apiVersion"]).unwrap_or_default();
    !api_version.starts_with("kiln.dev/") || api_version == OWN_VERSION
}

/// Gives the objects of policies of Kiln's own group labels of its own.
fn label_as_own(policies: &mut [Arc<Policy>]) {
    for policy in policies {
        for rule in &mut Arc::make_mut(policy).rules {
            Arc::make_mut(rule).lifecycle.labels.owner = LabelOwner::Kiln;
        }
    }
}

/// Whether a document is a policy of some language, run by Kiln or not.
pub fn is_policy(document: &Document) -> bool {
    language(document).is_some() && !is_exception(document)
}

/// Whether a document is a policy of a kind that Kiln does not run in clusters.
pub fn is_not_run(document: &Document) -> bool {
    matches!(
        language(document),
        Some(Language::NotRun(_) | Language::Policy(Dialect::ValidatingAdmissionPolicy))
    )
}

/// Whether a document says which objects rules leave alone.
pub fn is_exception(document: &Document) -> bool {
    matches!(language(document), Some(Language::KyvernoException | Language::PolicyException))
}

/// Compiles the policies and exceptions among documents, to be run on files; all others are skipped.
pub fn compile<'d>(documents: impl IntoIterator<Item = &'d Document>, kinds: &Kinds) -> Compiled {
    compile_for(PolicyHost::Files, documents, kinds)
}

/// Compiles the policies and exceptions among documents, as a host runs them; all others are skipped. Rules that the
/// host does not run are checked like all others, and named in [`Compiled::not_run`].
pub fn compile_for<'d>(
    host: PolicyHost,
    documents: impl IntoIterator<Item = &'d Document>,
    kinds: &Kinds,
) -> Compiled {
    let mut compiled = Compiled::default();
    let (mut admission, mut bindings) = (Vec::new(), Vec::new());
    let (mut validating, mut validating_bindings) = (Vec::new(), Vec::new());
    for document in documents {
        let before = (compiled.policies.len(), compiled.not_run.len());
        if !is_served_version(document) {
            let path = Path::from_iter(["apiVersion"]);
            let found = Diagnostic::error("Kiln's own API group has no such version");
            let found = found.at(document.locate(&path)).hint(format!("use {OWN_VERSION}"));
            compiled.diagnostics.push(found);
            continue;
        }
        match language(document) {
            Some(Language::Policy(Dialect::Kyverno)) => {
                kyverno::compile(document, kinds, &mut compiled);
            }
            Some(Language::Policy(Dialect::CleanupPolicy)) => {
                kyverno::compile_cleanup(document, kinds, &mut compiled);
            }
            Some(Language::Policy(Dialect::DeletingPolicy)) => {
                cel_policies::compile_deleting(document, kinds, &mut compiled);
            }
            Some(Language::KyvernoException) => {
                kyverno::compile_exception(document, &mut compiled);
            }
            Some(Language::Policy(Dialect::GeneratingPolicy)) => {
                cel_policies::compile_generating(document, kinds, &mut compiled);
            }
            Some(Language::Policy(Dialect::MutatingPolicy)) => {
                cel_policies::compile_mutating(document, kinds, &mut compiled);
            }
            Some(Language::Policy(Dialect::MutatingAdmissionPolicy)) => admission.push(document),
            Some(Language::MutatingBinding) => bindings.push(document),
            Some(Language::Policy(Dialect::ValidatingPolicy)) => {
                cel_policies::compile_validating(document, kinds, &mut compiled);
            }
            Some(Language::Policy(Dialect::ValidatingAdmissionPolicy)) => validating.push(document),
            Some(Language::ValidatingBinding) => validating_bindings.push(document),
            Some(Language::PolicyException) => {
                cel_policies::compile_exception(document, &mut compiled);
            }
            Some(Language::Policy(Dialect::ModRule)) => kubemod::compile(document, &mut compiled),
            Some(Language::NotRun(what)) => {
                let name = document.value().str_at(["metadata", "name"]).unwrap_or_default();
                let namespace = document.value().str_at(["metadata", "namespace"]);
                let policy = namespace.map_or_else(|| name.to_owned(), |ns| format!("{ns}/{name}"));
                compiled.not_run.push(NotRun { policy, rule: None, what, place: document.place() });
            }
            None => {}
        }
        if Gvk::of(document.value()).is_some_and(|gvk| gvk.group == OWN_GROUP) {
            label_as_own(&mut compiled.policies[before.0..]);
        }
        host.leave_out(&mut compiled, before);
    }
    cel_policies::compile_admission(&admission, &bindings, kinds, &mut compiled);
    let before = (compiled.policies.len(), compiled.not_run.len());
    cel_policies::compile_validating_admission(
        &validating,
        &validating_bindings,
        kinds,
        &mut compiled,
    );
    host.leave_out(&mut compiled, before);
    for policy in &compiled.policies {
        compiled.diagnostics.extend(spelling::misspelt_kinds(policy, kinds));
        compiled.diagnostics.extend(spelling::retired_versions(policy, kinds));
    }
    let modrules = compiled.policies.iter().map(|policy| &**policy);
    compiled.diagnostics.extend(kubemod::overlaps(modrules));
    let notes = compiled.not_run.iter().map(|not_run| {
        Diagnostic::new(Severity::Note, not_run.to_string()).at(not_run.place.clone())
    });
    compiled.diagnostics.extend(notes);
    compiled
}
