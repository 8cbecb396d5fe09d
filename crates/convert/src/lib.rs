//! Converts policies from the languages that end to those that stay: Kyverno's ClusterPolicy and Policy, and KubeMod's
//! ModRule, to policies in CEL; those to Kubernetes' own admission policies; and back.
//!
//! Everything is read from documents and from the parsed expressions in them, with the types of Kubernetes' kinds; nothing
//! is replaced as text. What has no counterpart is said, with its place and what to do ([`Obstacle`]); where a counterpart
//! means something else for some inputs, they are named ([`Difference`]). Whether both sides mean the same is for
//! `kiln_equivalence` to find out: it runs them.
//!
//! | module | holds |
//! |---|---|
//! | `cel`, `cel_printer` | expressions as trees, and as text |
//! | `shape`, `term` | types of values; places that may be missing, optionals and values |
//! | `jmespath_to_cel` | JMESPath, part by part; its functions |
//! | `templates`, `scope`, `context` | `{{ }}` in texts, the names that rules read, context entries |
//! | `conditions_to_cel`, `patterns_to_cel`, `wildcards` | conditions, patterns with anchors, `*` and `?` |
//! | `matching` | match and exclude |
//! | `validate`, `pod_security`, `mutate`, `generate` | rules, by what they do |
//! | `to_cel`, `modrule`, `native`, `to_kyverno` | whole policies, by where they go |
//! | `exceptions` | PolicyExceptions that go with them |
//! | `documents`, `verdict` | what comes of it |
//! | `evidence` | both sides run, and the verdict on each rule |

mod cel;
mod cel_printer;
mod conditions_to_cel;
mod context;
mod documents;
mod evidence;
mod exceptions;
mod generate;
mod jmespath_to_cel;
mod matching;
mod modrule;
mod mutate;
mod native;
mod patterns_to_cel;
mod pod_security;
mod scope;
mod shape;
mod templates;
mod term;
mod to_cel;
mod to_kyverno;
mod validate;
mod verdict;
mod wildcards;

use kiln_diagnostic::Diagnostic;
use kiln_object::Kinds;
use kiln_yaml::{Document, ReadOptions};

pub use documents::ConvertedDocument;
pub use evidence::{CheckOptions, EvidenceSummary, RuleVerdict, Verdict, verdicts};
pub use exceptions::convert_exception;
pub use verdict::{ConvertedRule, CoveredRequests, Difference, Obstacle};

/// What came of a conversion.
#[derive(Clone, Debug, Default)]
pub struct Conversion {
    pub documents: Vec<ConvertedDocument>,
    /// What became of each rule, in the order of the document.
    pub rules: Vec<ConvertedRule>,
}

/// What policies are converted to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// ValidatingPolicy, MutatingPolicy and GeneratingPolicy.
    Cel,
    /// Kubernetes' admission policies, with their bindings.
    Native,
    /// ClusterPolicy.
    Kyverno,
}

/// Converts a policy.
///
/// # Errors
/// When the policy itself is not valid, or is of the target's language already.
pub fn convert(
    document: &Document,
    target: Target,
    kinds: &Kinds,
) -> Result<Conversion, Vec<Diagnostic>> {
    let compiled = kiln_dialects::compile([document], kinds);
    if compiled.has_errors() {
        return Err(compiled.diagnostics);
    }
    let kind = document.value().str_at(["kind"]).unwrap_or_default();
    let is_old = matches!(kind, "ClusterPolicy" | "Policy" | "ModRule");
    let already = || {
        let problem = Diagnostic::error(format!("a {kind} cannot be converted to this language"));
        let hint = "ClusterPolicy, Policy and ModRule become CEL policies; those become native ones, or ClusterPolicies";
        Err(vec![problem.at(document.place()).hint(hint)])
    };
    let policy = compiled.policies.first();
    match target {
        Target::Cel | Target::Native if is_old => {
            let conversion = match (kind, policy) {
                ("ModRule", _) => modrule::convert(document, kinds),
                (_, Some(policy)) => to_cel::convert(document, policy, kinds),
                (_, None) => Conversion::default(),
            };
            let conversion = only_valid(conversion, kinds);
            if target == Target::Cel {
                return Ok(conversion);
            }
            Ok(made_native(&conversion, kinds))
        }
        Target::Native if !kind.contains("AdmissionPolicy") => {
            Ok(valid_pairs(native::convert(document.value()), kinds))
        }
        Target::Kyverno if !is_old && !kind.contains("AdmissionPolicy") => {
            Ok(only_valid(to_kyverno::convert(document.value(), kinds), kinds))
        }
        _ => already(),
    }
}

/// The policies in CEL that came of a conversion, as Kubernetes' own.
fn made_native(conversion: &Conversion, kinds: &Kinds) -> Conversion {
    let mut made = Conversion { documents: Vec::new(), rules: conversion.rules.clone() };
    for rule in &mut made.rules {
        rule.documents.clear();
    }
    for (number, document) in conversion.documents.iter().enumerate() {
        let native = valid_pairs(native::convert(&document.value), kinds);
        let first = made.documents.len();
        let one = native.rules.into_iter().next();
        made.documents.extend(native.documents);
        let added: Vec<usize> = (first..made.documents.len()).collect();
        let held = conversion
            .rules
            .iter()
            .zip(&mut made.rules)
            .filter(|(old, _)| old.documents.contains(&number));
        for (_, rule) in held {
            rule.documents.extend(&added);
            if let Some(one) = &one {
                rule.differences.extend(one.differences.iter().cloned());
                rule.obstacle = rule.obstacle.take().or_else(|| one.obstacle.clone());
            }
        }
    }
    made
}

/// Native policies compile with their bindings, all together.
fn valid_pairs(mut conversion: Conversion, kinds: &Kinds) -> Conversion {
    let read: Vec<Document> = conversion
        .documents
        .iter()
        .map(|converted| {
            Document::from_value("converted", converted.value.clone(), ReadOptions::kubernetes())
        })
        .collect();
    let compiled = kiln_dialects::compile(&read, kinds);
    if !compiled.has_errors() {
        return conversion;
    }
    let why: Vec<&str> =
        compiled.diagnostics.iter().map(|problem| problem.message.as_str()).collect();
    conversion.documents.clear();
    for rule in &mut conversion.rules {
        rule.documents.clear();
        let advice =
            format!("Kubernetes does not know what its expressions use: {}", why.join("; "));
        rule.obstacle = Some(Obstacle::new(format!("the expressions of a {}", rule.form), advice));
    }
    conversion
}

/// The verdicts of a conversion that was not checked: what is known without running it.
pub fn unchecked_verdicts(conversion: &Conversion) -> Vec<RuleVerdict> {
    conversion
        .rules
        .iter()
        .map(|rule| {
            let mut rule = rule.clone();
            rule.differences.append(&mut rule.possible);
            let verdict = match (&rule.obstacle, rule.differences.is_empty()) {
                (Some(_), _) => Verdict::NotConvertible,
                (None, true) => Verdict::Equal,
                (None, false) => Verdict::EqualExcept,
            };
            let examples = vec![None; rule.differences.len()];
            RuleVerdict { rule, verdict, examples, found: Vec::new(), evidence: None }
        })
        .collect()
}

/// The hash of a text, for certificates.
pub fn hash(text: &str) -> String {
    use sha2::Digest;
    let digest = sha2::Sha256::digest(text.as_bytes());
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The conversion without policies that are not valid; their rules say why.
fn only_valid(mut conversion: Conversion, kinds: &Kinds) -> Conversion {
    let mut kept = Vec::new();
    let mut moved: Vec<Option<usize>> = Vec::new();
    for (number, converted) in std::mem::take(&mut conversion.documents).into_iter().enumerate() {
        let read =
            Document::from_value("converted", converted.value.clone(), ReadOptions::kubernetes());
        let compiled = kiln_dialects::compile([&read], kinds);
        if !compiled.has_errors() && !compiled.policies.is_empty() {
            moved.push(Some(kept.len()));
            kept.push(converted);
            continue;
        }
        moved.push(None);
        let why: Vec<&str> =
            compiled.diagnostics.iter().map(|problem| problem.message.as_str()).collect();
        for rule in conversion.rules.iter_mut().filter(|rule| rule.documents.contains(&number)) {
            let advice = format!(
                "write this rule by hand; the types of the conversion do not agree: {}",
                why.join("; ")
            );
            rule.obstacle = Some(Obstacle::new(format!("the types of {}", rule.form), advice));
        }
    }
    for rule in &mut conversion.rules {
        rule.documents = rule
            .documents
            .iter()
            .filter_map(|number| moved.get(*number).copied().flatten())
            .collect();
    }
    conversion.documents = kept;
    conversion
}
