//! `snakecase`, `kebabcase` and `camelcase`: where one word ends and the next begins.

use kiln_text::case::{to_lower, to_upper};

/// What a run of characters is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Word {
    Nothing,
    Number,
    /// Begins with a capital.
    Upper,
    Lower,
    Connector,
    Punctuation,
    Other,
}

pub(crate) fn upper(c: char) -> char {
    to_upper(c.encode_utf8(&mut [0; 4])).chars().next().unwrap_or(c)
}

/// A capital at the start of a word: only the first letter of those that are two in one.
pub(crate) fn title(c: char) -> char {
    match c {
        'Ǆ'..='ǆ' => 'ǅ',
        'Ǉ'..='ǉ' => 'ǈ',
        'Ǌ'..='ǌ' => 'ǋ',
        'Ǳ'..='ǳ' => 'ǲ',
        // Georgian has no capitals at the start of words.
        'ა'..='ჺ' | 'ჽ'..='ჿ' => c,
        _ => upper(c),
    }
}

pub(crate) fn lower(c: char) -> char {
    to_lower(c.encode_utf8(&mut [0; 4])).chars().next().unwrap_or(c)
}

fn is_connector(c: char) -> bool {
    c == '-' || c == '_' || c.is_whitespace()
}

/// Letters that have words of several; not those of Chinese, Japanese and Korean.
fn is_letter(c: char) -> bool {
    c.is_alphabetic() && c < '\u{3400}'
}

fn is_number(c: char) -> bool {
    c.is_ascii_digit() || !c.is_ascii() && c.is_numeric()
}

fn is_punctuation(c: char) -> bool {
    c.is_ascii_punctuation() && !matches!(c, '$' | '+' | '<' | '=' | '>' | '^' | '`' | '|' | '~')
}

/// The first word of a text, and the rest.
fn next_word(text: &str) -> (Word, &str, &str) {
    let Some(first) = text.chars().next() else { return (Word::Nothing, "", "") };
    let run = |wanted: fn(char) -> bool| text.find(|c| !wanted(c)).unwrap_or(text.len());
    let lower_letter = |c: char| is_letter(c) && !c.is_uppercase();
    let (word, end) = match first {
        c if is_connector(c) => (Word::Connector, run(is_connector)),
        c if is_punctuation(c) => (Word::Punctuation, run(is_punctuation)),
        c if c.is_uppercase() => (Word::Upper, upper_end(text, first)),
        c if is_letter(c) => (Word::Lower, text.find(|c| !lower_letter(c)).unwrap_or(text.len())),
        c if is_number(c) => (Word::Number, run(is_number)),
        _ => {
            let other =
                |c: char| !is_connector(c) && !is_letter(c) && !is_number(c) && !is_punctuation(c);
            (Word::Other, text.find(|c| !other(c)).unwrap_or(text.len()))
        }
    };
    let (word_text, rest) = text.split_at(end);
    (word, word_text, rest)
}

/// Where a word with a capital ends: `HTTP` of `HTTPStatus`, `Status` of `StatusCode`.
fn upper_end(text: &str, first: char) -> usize {
    let rest = &text[first.len_utf8()..];
    match rest.chars().next() {
        Some(second) if second.is_uppercase() => {
            let end = text.find(|c: char| !c.is_uppercase()).unwrap_or(text.len());
            match (text[end..].chars().next(), text[..end].chars().next_back()) {
                // The last capital belongs to the next word.
                (Some(after), Some(last)) if is_letter(after) => end - last.len_utf8(),
                _ => end,
            }
        }
        Some(second) if is_letter(second) => {
            let end = rest.find(|c: char| !is_letter(c) || c.is_uppercase());
            first.len_utf8() + end.unwrap_or(rest.len())
        }
        _ => first.len_utf8(),
    }
}

fn push(out: &mut String, word: Word, text: &str, connector: char) {
    match word {
        Word::Upper | Word::Connector => {
            out.extend(text.chars().map(|c| if is_connector(c) { connector } else { lower(c) }));
        }
        _ => out.push_str(text),
    }
}

/// Words in lower case with a connector between.
pub(crate) fn separated(text: &str, connector: char) -> String {
    let mut out = String::with_capacity(text.len() + 8);
    let (mut kind, mut word, mut rest) = next_word(text);
    while !rest.is_empty() {
        if kind != Word::Connector {
            push(&mut out, kind, word, connector);
        }
        let (before, before_word) = (kind, word);
        (kind, word, rest) = next_word(rest);
        match before {
            Word::Number => {
                while matches!(kind, Word::Lower | Word::Number) {
                    push(&mut out, kind, word, connector);
                    (kind, word, rest) = next_word(rest);
                }
                if !matches!(kind, Word::Nothing | Word::Punctuation | Word::Connector) {
                    out.push(connector);
                }
            }
            Word::Connector => push(&mut out, before, before_word, connector),
            Word::Punctuation => {}
            _ if kind != Word::Number => {
                if !matches!(kind, Word::Connector | Word::Punctuation) {
                    out.push(connector);
                }
            }
            _ if rest.is_empty() => {}
            _ => {
                let number = word;
                (kind, word, rest) = next_word(rest);
                if kind != Word::Lower {
                    // The number belongs to the word before it: "Bld4Floor" is "bld4_floor".
                    push(&mut out, Word::Number, number, connector);
                    if !matches!(kind, Word::Connector | Word::Punctuation) {
                        out.push(connector);
                    }
                } else {
                    // The number begins a word: "HTTP2xx" is "http_2xx".
                    out.push(connector);
                    push(&mut out, Word::Number, number, connector);
                    while matches!(kind, Word::Lower | Word::Number) {
                        push(&mut out, kind, word, connector);
                        (kind, word, rest) = next_word(rest);
                    }
                    if !matches!(kind, Word::Nothing | Word::Connector | Word::Punctuation) {
                        out.push(connector);
                    }
                }
            }
        }
    }
    push(&mut out, kind, word, connector);
    out
}

/// Words with a capital and nothing between; connectors before the first word stay.
pub(crate) fn camel(text: &str) -> String {
    let begin = text.find(|c| !is_connector(c)).unwrap_or(text.len());
    let mut out = text[..begin].to_owned();
    let mut chars = text[begin..].chars();
    let Some(first) = chars.next() else { return out };
    let mut before = upper(first);
    for c in chars {
        if is_connector(c) && is_connector(before) {
            out.push(before);
            before = c;
        } else if is_connector(before) {
            before = upper(c);
        } else {
            out.push(before);
            before = lower(c);
        }
    }
    out.push(before);
    out
}
