//! Ranges such as `10-20`, `1Gi-2Gi` or `1h-2h`.

use std::cmp::Ordering;

use kiln_text::duration::Duration;
use kiln_text::quantity::Quantity;
use kiln_text::range;

use super::compare::ComparisonRule;

/// A range with both ends inside.
pub(super) struct Range<'t> {
    text: &'t str,
    from: &'t str,
    to: &'t str,
}

impl<'t> Range<'t> {
    pub(super) const RULE: ComparisonRule = ComparisonRule::Range;

    /// Reads a range: two numbers, each with a sign and letters behind it or without, and a minus between.
    pub(super) fn parse(text: &'t str) -> Option<Self> {
        let (from, to) = range::ends(text, "-")?;
        Some(Range { text, from, to })
    }

    /// Whether a text lies in the range, as a duration or as a quantity.
    pub(super) fn contains(&self, key: &str) -> bool {
        key == self.text
            || (compare(key, self.from).is_some_and(Ordering::is_ge)
                && compare(key, self.to).is_some_and(Ordering::is_le))
    }

    /// Whether a text lies outside; a text that cannot be compared does not.
    pub(super) fn excludes(&self, key: &str) -> bool {
        compare(key, self.from).is_some_and(Ordering::is_lt)
            || compare(key, self.to).is_some_and(Ordering::is_gt)
    }
}

/// Compares as durations if both are, else as quantities if both are.
fn compare(key: &str, end: &str) -> Option<Ordering> {
    if let (Ok(key), Ok(end)) = (Duration::parse(key), Duration::parse(end)) {
        return Some(key.cmp(&end));
    }
    Some(Quantity::parse(key).ok()?.cmp(&Quantity::parse(end).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_compared_is_neither_inside_nor_outside() {
        let range = Range::parse("1Gi-2Gi").unwrap();
        assert!(range.contains("1500Mi") && range.contains("1Gi") && range.contains("2Gi"));
        assert!(range.excludes("3Gi") && range.excludes("1"));
        assert!(!range.contains("abc") && !range.excludes("abc"));
        let range = Range::parse("1h-2h").unwrap();
        assert!(range.contains("90m") && range.excludes("3h"));
    }
}
