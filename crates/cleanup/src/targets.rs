//! The kinds that a policy lists.

use kiln_object::{Gvk, Kind, Kinds};
use kiln_rules::{KindPattern, Rule};

/// The kinds whose objects a rule may delete, each in one version: served, listable, deletable, and in a namespace if the
/// policy is.
pub fn target_kinds(rule: &Rule, kinds: &Kinds) -> Vec<Gvk> {
    let patterns = rule.trigger.include.filters().iter().flat_map(|filter| &filter.kinds);
    let patterns: Vec<&KindPattern> = patterns.filter(|pattern| is_whole(pattern)).collect();
    let is_meant = |kind: &&Kind| {
        let has = |verb: &str| kind.verbs().contains(&verb);
        (has("list") && has("delete"))
            && (rule.scope.namespace().is_none() || kind.is_namespaced())
            && patterns
                .iter()
                .any(|pattern| pattern.matches(kind.group(), kind.version(), kind.kind(), ""))
    };
    let mut found: Vec<Gvk> = Vec::new();
    for kind in kinds.iter().filter(is_meant) {
        let same = |known: &&mut Gvk| known.group == kind.group() && known.kind == kind.kind();
        match found.iter_mut().find(same) {
            // Of several versions that match, the one that the server prefers.
            Some(known) => {
                let preferred = kinds.preferred(kind.group(), kind.kind());
                if preferred.is_some_and(|preferred| preferred.version() == kind.version()) {
                    *known = kind.gvk();
                }
            }
            None => found.push(kind.gvk()),
        }
    }
    found.sort();
    found
}

/// Objects are deleted, and not parts of them.
fn is_whole(pattern: &KindPattern) -> bool {
    pattern.subresource.is_empty() || &*pattern.subresource == "*"
}
