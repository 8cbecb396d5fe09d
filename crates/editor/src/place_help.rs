//! The answers about one place for editors that do not speak the protocol, such as one in a page.

use kiln_kustomize::fs::FileSystem;
use serde_json::{Value as Json, json};

use crate::completion::completion;
use crate::hover::hover;
use crate::text_document::{TextDocument, uri_of};

/// What may be written at a place of a text, and what is known of what stands there. The place is counted in UTF-16 units
/// from the beginning. `items` are those of the protocol; `hover` has Markdown and its place.
pub fn place_help(
    path: &str,
    text: &str,
    utf16_offset: usize,
    files: Option<&dyn FileSystem>,
) -> Json {
    let document = TextDocument::new(&uri_of(path), text);
    if document.is_too_large() {
        return json!({"items": []});
    }
    let at = document.offset_of_units(utf16_offset);
    let mut help = json!({"items": completion(&document, at, files)});
    if let Some((about, span)) = hover(&document, at) {
        let units = |at: usize| text[..at].chars().map(char::len_utf16).sum::<usize>();
        help["hover"] = json!({"text": about, "from": units(span.start), "to": units(span.end)});
    }
    help
}
