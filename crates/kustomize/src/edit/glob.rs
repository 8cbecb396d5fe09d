//! Patterns of paths, as Go's `path/filepath` has them: `*` and `?` stop at slashes, `[a-z]`, `\x`.

use crate::error::{Error, Result};

/// Whether a path matches a pattern.
///
/// # Errors
/// When the pattern is malformed.
pub fn matches(pattern: &str, path: &str) -> Result<bool> {
    let tokens = tokens(pattern)?;
    let path: Vec<char> = path.chars().collect();
    // Positions in the pattern and the path to go on from when a star has to take one more.
    let mut retry: Option<(usize, usize)> = None;
    let (mut token, mut at) = (0, 0);
    loop {
        let fits = match (tokens.get(token), path.get(at)) {
            (Some(GlobToken::Star), _) => {
                retry = Some((token, at));
                token += 1;
                continue;
            }
            (Some(GlobToken::Any), Some(c)) => *c != '/',
            (Some(GlobToken::Is(wanted)), Some(c)) => wanted == c,
            (Some(GlobToken::OneOf(negated, ranges)), Some(c)) => {
                *c != '/' && ranges.iter().any(|(low, high)| (low..=high).contains(&c)) != *negated
            }
            (None, None) => return Ok(true),
            _ => false,
        };
        if fits {
            (token, at) = (token + 1, at + 1);
            continue;
        }
        match retry {
            Some((star, from)) if path.get(from).is_some_and(|c| *c != '/') => {
                retry = Some((star, from + 1));
                (token, at) = (star + 1, from + 1);
            }
            _ => return Ok(false),
        }
    }
}

/// Whether a text has anything that makes it more than a path.
pub fn is_pattern(text: &str) -> bool {
    text.contains(['*', '?', '[', '\\'])
}

enum GlobToken {
    Star,
    Any,
    Is(char),
    OneOf(bool, Vec<(char, char)>),
}

fn tokens(pattern: &str) -> Result<Vec<GlobToken>> {
    let bad = || Error::new("syntax error in pattern").context(format_args!("{pattern:?}"));
    let mut tokens = Vec::new();
    let mut rest = pattern.chars().peekable();
    while let Some(c) = rest.next() {
        tokens.push(match c {
            '*' => GlobToken::Star,
            '?' => GlobToken::Any,
            '\\' => GlobToken::Is(rest.next().ok_or_else(bad)?),
            '[' => {
                let negated = rest.next_if_eq(&'^').is_some();
                let mut ranges = Vec::new();
                loop {
                    let mut one = || match rest.next() {
                        Some('\\') => rest.next().ok_or_else(bad),
                        Some(c) => Ok(c),
                        None => Err(bad()),
                    };
                    let low = one()?;
                    if low == ']' && !ranges.is_empty() {
                        break;
                    }
                    if low == ']' || low == '-' {
                        return Err(bad());
                    }
                    let high = if rest.next_if_eq(&'-').is_some() {
                        match rest.next() {
                            Some('\\') => rest.next().ok_or_else(bad)?,
                            Some(c) if c != ']' => c,
                            _ => return Err(bad()),
                        }
                    } else {
                        low
                    };
                    ranges.push((low, high));
                }
                GlobToken::OneOf(negated, ranges)
            }
            c => GlobToken::Is(c),
        });
    }
    Ok(tokens)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_in_go() {
        for (pattern, path, wanted) in [
            ("a.yaml", "a.yaml", true),
            ("*.yaml", "a.yaml", true),
            ("*.yaml", "d/a.yaml", false),
            ("d/*.yaml", "d/a.yaml", true),
            ("*", "", true),
            ("a*b*c", "axxbyyc", true),
            ("a*b*c", "axxbyy", false),
            ("a?c", "abc", true),
            ("a?c", "a/c", false),
            ("[a-c]x", "bx", true),
            ("[^a-c]x", "bx", false),
            ("[^a-c]x", "dx", true),
            ("a\\*", "a*", true),
            ("a\\*", "ab", false),
            ("**", "a/b", false),
        ] {
            assert_eq!(matches(pattern, path).unwrap(), wanted, "{pattern} {path}");
        }
        for pattern in ["[", "[a", "[]", "a\\", "[a-]", "[-a]"] {
            assert!(matches(pattern, "a").is_err(), "{pattern}");
        }
        // No pattern takes more than steps in proportion to both lengths.
        let long = "a".repeat(10_000);
        assert!(!matches(&format!("{}b", "*a".repeat(20)), &long).unwrap());
    }
}
