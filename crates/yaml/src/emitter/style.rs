//! Which style go-yaml v2 gives a string.

use std::borrow::Cow;

use crate::options::ScalarTable;
use crate::resolve::{Typed, plain};

/// How a string is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    Plain,
    SingleQuoted,
    DoubleQuoted,
    Literal,
}

/// What is special about a string.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Analysis {
    pub(crate) style: Style,
    /// Has a line break of any kind, so that it cannot be a key on one line.
    pub(crate) multiline: bool,
}

/// Chooses the style of a string.
pub(crate) fn analyze(text: &str) -> Analysis {
    if is_simple_word(text) {
        return Analysis { style: Style::Plain, multiline: false };
    }
    let shape = ScalarAnalysis::of(text);
    let wanted = if text.contains('\n') {
        Style::Literal
    } else if needs_quotes_to_be_text(text) {
        Style::DoubleQuoted
    } else {
        Style::Plain
    };
    // What cannot be written as wanted falls back to quotes, the simpler ones first.
    let style = match wanted {
        Style::Literal if shape.literal_allowed => Style::Literal,
        Style::Plain if shape.plain_allowed => Style::Plain,
        Style::Plain if shape.single_allowed => Style::SingleQuoted,
        _ => Style::DoubleQuoted,
    };
    Analysis { style, multiline: shape.multiline }
}

/// Most strings of objects: nothing in them has a meaning in YAML, nothing reads as another type.
fn is_simple_word(text: &str) -> bool {
    let bytes = text.as_bytes();
    let Some(first) = bytes.first() else {
        return false;
    };
    let text_from_the_start = match first {
        b'a'..=b'z' | b'A'..=b'Z' => {
            // The words for booleans and null are short and begin with one of these.
            bytes.len() > 5 || !matches!(first | 0x20, b'y' | b'n' | b't' | b'f' | b'o')
        }
        b'/' | b'_' | b'$' => true,
        _ => false,
    };
    text_from_the_start
        && bytes.iter().all(|b| {
            b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.' | b'/' | b'=' | b'+' | b'$')
        })
}

fn needs_quotes_to_be_text(text: &str) -> bool {
    plain(text, ScalarTable::V2) != Typed::Text || is_base_60(text)
}

/// `[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?`: text for go-yaml, but not for every YAML 1.1 reader.
fn is_base_60(text: &str) -> bool {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    if !unsigned.starts_with(|c: char| c.is_ascii_digit()) || !unsigned.contains(':') {
        return false;
    }
    let digit = |b: u8| b.is_ascii_digit() || b == b'_';
    let (whole, fraction) = unsigned.split_once('.').unwrap_or((unsigned, ""));
    let mut parts = whole.split(':');
    parts.next().is_some_and(|first| first.bytes().all(digit))
        && parts.all(|part| matches!(part.as_bytes(), [b'0'..=b'9'] | [b'0'..=b'5', b'0'..=b'9']))
        && fraction.bytes().all(digit)
}

/// What go-yaml's scalar analysis finds.
struct ScalarAnalysis {
    multiline: bool,
    plain_allowed: bool,
    single_allowed: bool,
    literal_allowed: bool,
}

impl ScalarAnalysis {
    fn of(text: &str) -> Self {
        if text.is_empty() {
            return ScalarAnalysis {
                multiline: false,
                plain_allowed: true,
                single_allowed: true,
                literal_allowed: false,
            };
        }
        let mut indicators = text.starts_with("---") || text.starts_with("...");
        let mut line_breaks = false;
        let mut special = false;
        let mut break_space = false;
        let mut space_break = false;
        let mut previous = None;
        let mut characters = text.chars().peekable();
        while let Some(c) = characters.next() {
            let before_blank = characters.peek().is_none_or(|next| matches!(next, ' ' | '\t'));
            let after_blank =
                previous.is_none_or(|p| matches!(p, ' ' | '\t' | '\0') || is_break(p));
            indicators |= match c {
                ',' | '[' | ']' | '{' | '}' | '&' | '*' | '!' | '|' | '>' | '\'' | '"' | '%'
                | '@' | '`' => previous.is_none(),
                '#' => after_blank,
                ':' => before_blank,
                '?' | '-' => previous.is_none() && before_blank,
                _ => false,
            };
            special |= !is_printable(c);
            if c == ' ' {
                break_space |= previous.is_some_and(is_break);
            } else if is_break(c) {
                line_breaks = true;
                space_break |= previous == Some(' ');
            }
            previous = Some(c);
        }
        let edge = |c: char| c == ' ' || is_break(c);
        let edges = text.starts_with(edge) || text.ends_with(edge);
        let quotes_break = space_break || special;
        ScalarAnalysis {
            multiline: line_breaks,
            plain_allowed: !(edges || break_space || quotes_break || line_breaks || indicators),
            single_allowed: !(break_space || quotes_break),
            literal_allowed: !(text.ends_with(' ') || quotes_break),
        }
    }
}

/// The line breaks of YAML 1.1.
pub(crate) fn is_break(c: char) -> bool {
    matches!(c, '\n' | '\r' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

/// What go-yaml v2 writes without an escape: nothing beyond the basic plane, for one.
pub(crate) fn is_printable(c: char) -> bool {
    match c {
        '\n' | ' '..='~' => true,
        '\u{feff}' | '\u{fffe}' | '\u{ffff}' => false,
        '\u{a0}'..='\u{ffff}' => true,
        _ => false,
    }
}

/// What is left of a string after `sigs.k8s.io/yaml` has read it from JSON: YAML 1.1 folds U+0085,
/// which JSON leaves as it is, like any line break in quotes.
pub(crate) fn fold_next_line(text: &str) -> Cow<'_, str> {
    const NEXT_LINE: char = '\u{85}';
    if text.is_ascii() || !text.contains(NEXT_LINE) {
        return Cow::Borrowed(text);
    }
    let mut folded = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(NEXT_LINE) {
        folded.push_str(rest[..at].trim_end_matches(' '));
        let gap = rest[at..].trim_start_matches([' ', NEXT_LINE]);
        let breaks = rest[at..rest.len() - gap.len()].matches(NEXT_LINE).count();
        if breaks == 1 {
            folded.push(' ');
        } else {
            folded.extend(std::iter::repeat_n('\n', breaks - 1));
        }
        rest = gap;
    }
    folded.push_str(rest);
    Cow::Owned(folded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn simple_words_are_plain_by_the_long_way_too() {
        for text in ["a", "Deployment", "apps/v1", "web-1", "yellow", "/x", "_", "$(X)", "a=b"] {
            let shape = ScalarAnalysis::of(text);
            assert!(shape.plain_allowed && !needs_quotes_to_be_text(text), "{text}");
        }
        for text in ["y", "True", "off", "null", "NULL", "1", "", "a b", "a:", "a#"] {
            assert!(!is_simple_word(text), "{text}");
        }
    }

    #[test]
    fn base_60_is_quoted() {
        for (text, wanted) in [
            ("1:30", true),
            ("190:20:30", true),
            ("1:60", false),
            ("-1:05.5", true),
            ("1:", false),
            ("1", false),
            ("a:1", false),
        ] {
            assert_eq!(is_base_60(text), wanted, "{text}");
        }
    }

    #[test]
    fn next_line_folds_like_a_line_break_in_quotes() {
        for (text, wanted) in [
            ("a\u{85}b", "a b"),
            ("a  \u{85}  b", "a b"),
            ("a\u{85}\u{85}b", "a\nb"),
            ("a\u{85} \u{85} \u{85}b", "a\n\nb"),
            ("\u{85}", " "),
            ("é", "é"),
        ] {
            assert_eq!(fold_next_line(text), wanted, "{text:?}");
        }
    }
}
