//! Finding comments. Values have none; who rewrites a file wants to know what would be lost.

use std::sync::Arc;

use kiln_diagnostic::{Source, SourceLocation};

use crate::events::event::YamlEvent;
use crate::events::parse::Events;

/// The first comment of a source that can be read, if it has one.
pub fn first_comment(source: &Arc<Source>) -> Option<SourceLocation> {
    let text = source.text();
    memchr::memchr(b'#', text.as_bytes())?;
    let mut events = Events::new(text, 0);
    loop {
        let event = events.next();
        if let Some(comment) = events.first_comment() {
            return Some(SourceLocation::new(Arc::clone(source), comment));
        }
        if matches!(event, Ok((YamlEvent::StreamEnd, _)) | Err(_)) {
            return None;
        }
    }
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
