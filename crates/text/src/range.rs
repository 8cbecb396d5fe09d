//! Two ends in one text: `10-20`, `1Gi-2Gi`, `1h!-2h`.

/// The ends of a range: two numbers, each with a sign and letters behind it or without, and a mark
/// between them.
///
/// ```
/// assert_eq!(kiln_text::range::ends("-5-1.5Gi", "-"), Some(("-5", "1.5Gi")));
/// assert_eq!(kiln_text::range::ends("a-b", "-"), None);
/// ```
pub fn ends<'t>(text: &'t str, between: &str) -> Option<(&'t str, &'t str)> {
    let (from, rest) = text.split_at(end_of_number(text)?);
    let to = rest.strip_prefix(between)?;
    (end_of_number(to)? == to.len()).then_some((from, to))
}

/// Where a number with its sign and letters ends.
fn end_of_number(text: &str) -> Option<usize> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_have_two_ends() {
        assert_eq!(ends("10-20", "-"), Some(("10", "20")));
        assert_eq!(ends("10!-20", "!-"), Some(("10", "20")));
        assert_eq!(ends("-5--1.5Gi", "-"), Some(("-5", "-1.5Gi")));
        assert_eq!(ends("+1h-2h", "-"), Some(("+1h", "2h")));
        for text in ["", "-", "10", "10-", "-20", "10!-20", "a-b", "1-2-3", "1.-2", "1-2 ", ">1-2"]
        {
            assert_eq!(ends(text, "-"), None, "{text}");
        }
    }
}
