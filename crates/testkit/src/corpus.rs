//! Finding recorded cases.

use std::path::{Path, PathBuf};

use kiln_value::Value;

use crate::skip;

/// The directory of the project.
pub fn project_root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .expect("this crate lies two directories below the project")
        .to_owned()
}

/// What is missing where the recorded cases are, and how to get it.
pub const RECORDED_CASES: (&str, &str) = (
    "the recorded cases of the originals are not beside the project",
    "they are not published; if you have them, set KILN_CORPUS to their directory",
);

/// The directory of all corpora, whether it is there or not.
pub fn corpus_directory() -> PathBuf {
    std::env::var_os("KILN_CORPUS")
        .map_or_else(|| project_root().join("../shared/corpus"), PathBuf::from)
}

/// The directory or file of a corpus, or `None` after saying loudly that the test is skipped.
pub fn corpus(name: &str) -> Option<PathBuf> {
    let path = corpus_directory().join(name);
    if path.exists() {
        return Some(path);
    }
    skip(RECORDED_CASES.0, RECORDED_CASES.1);
    None
}

/// A JSON file of a corpus, or `None` after saying loudly that the test is skipped.
///
/// # Panics
/// When the file is there but is not JSON.
pub fn corpus_json(name: &str) -> Option<Value> {
    let path = corpus(name)?;
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    Some(kiln_value::json::parse(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display())))
}
