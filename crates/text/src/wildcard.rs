//! Kyverno's wildcards: `*` is any run of characters, also none; `?` is exactly one.
//!
//! Everything else stands for itself: no escapes, no classes, no special `/`. A pattern is matched
//! against the whole text. Time is at most the product of the two lengths, and linear for patterns
//! with one star.

/// Whether `text` contains a wildcard character.
pub fn contains_wildcard(text: &str) -> bool {
    text.contains(['*', '?'])
}

/// Whether the whole of `text` matches `pattern`.
///
/// ```
/// assert!(kiln_text::wildcard::matches("kube-*", "kube-system"));
/// assert!(!kiln_text::wildcard::matches("kube-?", "kube-"));
/// ```
pub fn matches(pattern: &str, text: &str) -> bool {
    let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
    let (mut p, mut t) = (0, 0);
    // After the last star: where the pattern goes on, and where its run ended so far. A later star
    // makes earlier ones irrelevant, so nothing else needs to be tried again.
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        match pattern.get(p) {
            Some(b'*') => {
                p += 1;
                star = Some((p, t));
                continue;
            }
            Some(b'?') => {
                p += 1;
                t += character_length(text[t]);
                continue;
            }
            Some(&byte) if byte == text[t] => {
                p += 1;
                t += 1;
                continue;
            }
            _ => {}
        }
        let Some((after, end)) = star else { return false };
        let end = end + character_length(text[end]);
        star = Some((after, end));
        (p, t) = (after, end);
    }
    pattern[p..].iter().all(|&byte| byte == b'*')
}

/// How many bytes the character has that begins with this byte.
fn character_length(first: u8) -> usize {
    match first {
        0xF0.. => 4,
        0xE0.. => 3,
        0xC0.. => 2,
        _ => 1,
    }
}

/// Whether any of the patterns matches.
pub fn matches_any<'a>(patterns: impl IntoIterator<Item = &'a str>, text: &str) -> bool {
    patterns.into_iter().any(|pattern| matches(pattern, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wildcards_stand_for_whole_characters() {
        for (pattern, text, expected) in [
            ("?", "é", true),
            ("??", "é", false),
            ("*é", "aéé", true),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-c-b", false),
            ("*?", "", false),
            ("***", "", true),
            ("[a]", "a", false),
            ("*\u{1F600}?", "x\u{1F600}ñ", true),
        ] {
            assert_eq!(matches(pattern, text), expected, "{pattern} on {text}");
        }
    }

    #[test]
    fn many_stars_do_not_explode() {
        let pattern = "*a".repeat(2_000) + "b";
        assert!(!matches(&pattern, &"a".repeat(20_000)));
    }
}
