//! Places inside a scalar: where a part of its text stands in the source.

use std::ops::Range;

use kiln_diagnostic::SourceLocation;

/// The place of a part of a text that was written as a scalar.
///
/// Quotes, escapes, indentation and folded lines make what is written differ from what is meant, but only
/// in white space and escapes: so places are found by counting everything else.
pub fn part_of(place: &SourceLocation, text: &str, part: Range<usize>) -> SourceLocation {
    let span = place.span();
    let Some(written) = place.source().text().get(span.clone()) else { return place.clone() };
    let start = offset_in(written, text, part.start);
    let end = match part.end > part.start {
        true => offset_in(written, text, part.end - 1) + 1,
        false => start,
    };
    SourceLocation::new(place.source().clone(), span.start + start..span.start + end.max(start))
}

/// Where a byte of the text stands in what is written.
fn offset_in(written: &str, text: &str, offset: usize) -> usize {
    let offset = (0..=offset.min(text.len())).rev().find(|at| text.is_char_boundary(*at));
    let before = &text[..offset.unwrap_or(0)];
    let count = before.chars().filter(|c| !c.is_whitespace()).count();
    let mut marks = Marks::new(written);
    marks.nth(count).unwrap_or(written.len())
}

/// The characters of a written scalar that are not white space, by their bytes.
struct Marks<'w> {
    written: &'w str,
    at: usize,
    style: Style,
}

#[derive(PartialEq)]
enum Style {
    Plain,
    Single,
    Double,
}

impl<'w> Marks<'w> {
    fn new(written: &'w str) -> Self {
        let (style, at) = match written.as_bytes().first() {
            Some(b'|' | b'>') => (Style::Plain, written.find('\n').map_or(0, |at| at + 1)),
            Some(b'\'') => (Style::Single, 1),
            Some(b'"') => (Style::Double, 1),
            _ => (Style::Plain, 0),
        };
        Marks { written, at, style }
    }
}

impl Iterator for Marks<'_> {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        loop {
            let at = self.at;
            let rest = &self.written[at..];
            let first = rest.chars().next()?;
            self.at += first.len_utf8();
            if self.style == Style::Single && rest.starts_with("''") {
                self.at += 1;
            }
            if self.style == Style::Double && first == '\\' {
                let escaped = rest[1..].chars().next()?;
                let digits = match escaped {
                    'x' => 2,
                    'u' => 4,
                    'U' => 8,
                    _ => 0,
                };
                self.at = (self.at + escaped.len_utf8() + digits).min(self.written.len());
                if !self.written.is_char_boundary(self.at) {
                    return None;
                }
                if !matches!(escaped, 'n' | 't' | 'r' | ' ' | '\n' | '\t') {
                    return Some(at);
                }
                continue;
            }
            if !first.is_whitespace() {
                return Some(at);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use kiln_value::{Path, Value};

    use crate::{ReadOptions, read_bytes};

    use super::*;

    #[test]
    fn parts_are_found_in_every_style() {
        for written in [
            "a: one + missing",
            "a: 'one + missing'",
            "a: 'it''s one + missing'",
            "a: \"q \\\" \\u0041 one + missing\"",
            "a: |\n  one +\n    missing\n",
            "a: >-\n  one +\n  missing\n",
            "a: one +\n  missing",
        ] {
            let documents = read_bytes("f", written.as_bytes(), ReadOptions::kubernetes()).unwrap();
            let path = Path::from_iter(["a"]);
            let text = documents[0].value().get("a").and_then(Value::as_str).unwrap();
            let at = text.find("missing").unwrap();
            let place = part_of(&documents[0].locate(&path), text, at..at + 7);
            assert_eq!(&written[place.span()], "missing", "{written}");
        }
    }
}
