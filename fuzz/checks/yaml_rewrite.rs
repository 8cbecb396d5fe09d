//! Gives a text the value of another one: it says that value afterwards, or is refused.

use std::sync::Arc;

use kiln_diagnostic::Source;
use kiln_yaml::{ReadOptions, read, read_bytes, rewrite};

pub(crate) fn check(bytes: &[u8]) {
    let cut = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
    let (text, other) = bytes.split_at(cut);
    let options = ReadOptions::kustomization();
    let Ok(text) = std::str::from_utf8(text) else { return };
    let Ok(wanted) = read_bytes("to", other.get(1..).unwrap_or_default(), options) else { return };
    let Some(wanted) = wanted.first() else { return };
    let source = Arc::new(Source::new("from", text));
    if let Ok(new) = rewrite(&source, options, wanted.value()) {
        let new = Arc::new(Source::new("new", new.as_str()));
        let read = read(&new, options).expect("what was written can be read");
        assert_eq!(read[0].value(), wanted.value());
    }
}
