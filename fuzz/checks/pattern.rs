//! The first line is a pattern or patch, the rest an object; matching and resolving end within limits,
//! and resolve the same way twice.

use kiln_pattern::{PatternLimits, matches, resolve_anchors, value_matches};
use kiln_value::json;

pub(crate) fn check(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    let (first, rest) = text.split_once('\n').unwrap_or((text, "null"));
    let _ = value_matches(&first.into(), &rest.into());
    if let (Ok(pattern), Ok(object)) = (json::parse(first), json::parse(rest)) {
        let limits = PatternLimits { steps: 100_000 };
        let _ = (value_matches(&pattern, &object), matches(&pattern, &object, &limits));
        let resolved = resolve_anchors(&pattern, &object, &limits);
        assert_eq!(resolved, resolve_anchors(&pattern, &object, &limits));
    }
}
