//! Kinds that are probably misspelt, or that nobody knows.
//!
//! A kind that is not known may belong to a definition that was not given, so nothing is refused; but one
//! that is a slip away from a known kind is worth a warning. Where everything that there is was given, so is one that
//! is like none.

use std::sync::Arc;

use kiln_diagnostic::{Diagnostic, did_you_mean};
use kiln_object::Kinds;
use kiln_rules::{Policy, Program};
use kiln_value::Str;

/// Warnings about kinds that rules are for, without their group, and that are neither known nor like a known one.
pub fn unknown_kinds(
    policies: &[Arc<Policy>],
    kinds: &Kinds,
    is_given: impl Fn(&str) -> bool,
) -> Vec<Diagnostic> {
    let mut warnings = Vec::new();
    for rule in policies.iter().flat_map(|policy| &policy.rules) {
        let matched = rule.trigger.include.filters().iter().flat_map(|filter| &filter.kinds);
        let mut named: Vec<&str> = matched
            .filter(|pattern| pattern.names_one_kind() && pattern.group.contains('*'))
            .map(|pattern| pattern.kind.as_str())
            .filter(|kind| kinds.by_kind(kind).is_empty() && nearest(kind, kinds).is_none())
            .filter(|kind| !is_given(kind))
            .collect();
        named.sort_unstable();
        named.dedup();
        warnings.extend(named.into_iter().map(|kind| {
            Diagnostic::warning(format!("rule {}: no kind {kind:?} is known", rule.id.rule))
                .at(rule.origin.place())
                .hint("give its CustomResourceDefinition along, or write its group: group/version/Kind")
        }));
    }
    warnings
}

fn nearest<'k>(kind: &str, kinds: &'k Kinds) -> Option<&'k str> {
    did_you_mean(kind, kinds.iter().map(kiln_object::Kind::kind))
}

/// Warnings about kinds that rules of a policy name.
pub(crate) fn misspelt_kinds(policy: &Policy, kinds: &Kinds) -> Vec<Diagnostic> {
    let mut warnings = Vec::new();
    for rule in &policy.rules {
        let matched = rule.trigger.include.filters().iter().flat_map(|filter| &filter.kinds);
        let mut named: Vec<Str> =
            matched.filter(|kind| kind.names_one_kind()).map(|kind| kind.kind.clone()).collect();
        if let Program::Generate(generate) = &rule.program {
            let emitters = generate.blocks.iter().flat_map(|block| &block.emitters);
            named.extend(emitters.flat_map(kiln_rules::Emitter::target_kinds).map(|gvk| gvk.kind));
        }
        named.sort();
        named.dedup();
        for kind in named.iter().filter(|kind| kinds.by_kind(kind).is_empty()) {
            if let Some(meant) = nearest(kind, kinds) {
                warnings.push(
                    Diagnostic::warning(format!(
                        "rule {}: no kind {kind:?} is known",
                        rule.id.rule
                    ))
                    .at(rule.origin.place())
                    .hint(format!("did you mean {meant:?}? if not, give its definition along")),
                );
            }
        }
    }
    warnings
}
