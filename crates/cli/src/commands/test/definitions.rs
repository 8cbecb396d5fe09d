//! Definitions of custom resources for all suites: from files and directories, and of what many clusters have by name.

use std::path::Path;

use kiln_diagnostic::{Diagnostic, did_you_mean};
use kiln_object::kinds::common;
use kiln_value::json;
use kiln_yaml::{Document, ReadOptions, read_bytes};

use crate::args::Global;
use crate::exit::CommandFailure;
use crate::policy_files::read_all;

/// The definitions that are meant by these words. One that names a set means it; `./argo` is a file.
pub(super) fn read(words: &[String], global: &Global) -> Result<Vec<Document>, CommandFailure> {
    let mut definitions = Vec::new();
    let mut problems = Vec::new();
    for word in words {
        match common::definitions(word) {
            Some(set) => {
                for definition in set {
                    let (name, text) = (format!("--crds {word}"), json::to_string(&definition));
                    definitions.extend(read_bytes(
                        &name,
                        text.as_bytes(),
                        ReadOptions::kubernetes(),
                    )?);
                }
            }
            None if word != "-" && !word.contains(['/', '.']) && !Path::new(word).exists() => {
                problems.push(unknown(word));
            }
            None => definitions.extend(read_all(std::slice::from_ref(word), global)?),
        }
    }
    if problems.is_empty() { Ok(definitions) } else { Err(problems.into()) }
}

fn unknown(word: &str) -> Diagnostic {
    let names: Vec<&str> = common::names().collect();
    let close = did_you_mean(word, names.iter().copied());
    let meant = close.map(|close| format!("did you mean {close}? ")).unwrap_or_default();
    Diagnostic::error(format!(
        "--crds {word}: there is no such file, and Kiln knows no definitions of that name"
    ))
    .hint(format!("{meant}the names are {}", names.join(", ")))
}
