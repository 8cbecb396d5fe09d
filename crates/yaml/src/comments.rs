//! Finding comments. Values have none; who rewrites a file wants to know what would be lost.

use std::sync::Arc;

use kiln_diagnostic::{Place, Source};

use crate::event::{Event, Events};

/// The first comment of a source that can be read, if it has one.
///
/// Between the nodes of a document stand only indicators, white space and comments, so the first `#`
/// there begins one; and one may follow the `|` or `>` of a block of text.
pub fn first_comment(source: &Arc<Source>) -> Option<Place> {
    let text = source.text();
    memchr::memchr(b'#', text.as_bytes())?;
    let base = if text.starts_with('\u{feff}') { '\u{feff}'.len_utf8() } else { 0 };
    let mut events = Events::new(text, base);
    let mut seen = base;
    while let Ok((event, span)) = events.next() {
        let found = comment_in(text, seen..span.start).or_else(|| match &event {
            Event::Scalar(scalar) if !scalar.plain => {
                let written = &text[span.clone()];
                let head = written.find('\n').map_or(written, |end| &written[..end]);
                let block = head.trim_start().starts_with(['|', '>']);
                block.then(|| comment_in(text, span.start..span.start + head.len())).flatten()
            }
            _ => None,
        });
        if let Some(at) = found {
            let end = text[at..].find(['\n', '\r']).map_or(text.len(), |length| at + length);
            return Some(Place::new(Arc::clone(source), at..end));
        }
        seen = seen.max(span.end);
        if matches!(event, Event::StreamEnd) {
            break;
        }
    }
    comment_in(text, seen..text.len()).map(|at| Place::new(Arc::clone(source), at..text.len()))
}

fn comment_in(text: &str, gap: std::ops::Range<usize>) -> Option<usize> {
    let from = gap.start;
    text.get(gap)?.find('#').map(|at| from + at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_comments_and_nothing_else() {
        for (text, place) in [
            ("a: 1\n# note\nb: 2\n", Some("2:1")),
            ("a: 1 # note\n", Some("1:6")),
            ("# note\n", Some("1:1")),
            ("a: |  # note\n  text\n", Some("1:7")),
            ("a: 1\n---\n# note\nb: 2\n", Some("3:1")),
            ("- [1, # note\n  2]\n", Some("1:7")),
            ("a: 1\n# note", Some("2:1")),
            ("a: x#y\nb: '# no'\nc: \"# no\"\n", None),
            ("a: |\n  # text\n  b # text\nc: >-\n  # text\n", None),
            ("{\"a\": \"#\"}", None),
            ("", None),
        ] {
            let source = Arc::new(Source::new("f", text));
            let found = first_comment(&source).map(|place| place.position().to_string());
            assert_eq!(found.as_deref(), place, "{text:?}");
        }
    }
}
