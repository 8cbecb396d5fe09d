//! Kinds that are probably misspelt.
//!
//! A kind that is not known may belong to a definition that was not given, so nothing is refused; but one
//! that is a slip away from a known kind is worth a warning.

use kiln_diagnostic::{Diagnostic, did_you_mean};
use kiln_object::Kinds;
use kiln_rules::{Policy, Program};
use kiln_value::Str;

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
            if let Some(meant) = did_you_mean(kind, kinds.iter().map(kiln_object::Kind::kind)) {
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
