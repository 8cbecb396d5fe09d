//! Ranges such as `10-20`, `1Gi-2Gi` or `1h-2h`.

use std::cmp::Ordering;

use kiln_text::duration::Duration;
use kiln_text::quantity::Quantity;

use super::compare::Rule;

/// A range with both ends inside.
pub(super) struct Range<'t> {
    text: &'t str,
    from: &'t str,
    to: &'t str,
}

impl<'t> Range<'t> {
    pub(super) const RULE: Rule = Rule::Range;

    /// Reads a range: two numbers, each with a sign and letters behind it or without, and a minus between.
    pub(super) fn parse(text: &'t str) -> Option<Self> {
        let end = end_of(text)?;
        let (from, rest) = text.split_at(end);
        let to = rest.strip_prefix('-')?;
        (end_of(to)? == to.len()).then_some(Range { text, from, to })
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

/// Where a number with its sign and letters ends.
fn end_of(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let skip = |from: usize, wanted: fn(&u8) -> bool| {
        from + bytes[from..].iter().take_while(|b| wanted(b)).count()
    };
    let start = usize::from(text.starts_with(['-', '+']));
    let whole = skip(start, u8::is_ascii_digit);
    if whole == start {
        return None;
    }
    let mut end = whole;
    if bytes.get(whole) == Some(&b'.') {
        let fraction = skip(whole + 1, u8::is_ascii_digit);
        if fraction > whole + 1 {
            end = fraction;
        }
    }
    Some(skip(end, u8::is_ascii_alphabetic))
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
    fn ranges_have_two_ends() {
        let ends = |text| Range::parse(text).map(|range| (range.from, range.to));
        assert_eq!(ends("10-20"), Some(("10", "20")));
        assert_eq!(ends("-5--1.5Gi"), Some(("-5", "-1.5Gi")));
        assert_eq!(ends("+1h-2h"), Some(("+1h", "2h")));
        for text in ["", "-", "10", "10-", "-20", "10!-20", "a-b", "1-2-3", "1.-2", "1-2 ", ">1-2"]
        {
            assert_eq!(ends(text), None, "{text}");
        }
    }

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
