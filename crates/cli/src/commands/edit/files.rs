//! The kustomization file of the current directory, and patterns of the files beside it.

use std::fs;
use std::path::Path;

use kiln_diagnostic::Diagnostic;
use kiln_kustomize::Repository;
use kiln_kustomize::edit::{FILE_NAMES, KustomizationFile, glob};

use crate::args::Global;
use crate::exit::CommandFailure;
use crate::input::{self, Replacement};

use super::failed;

/// The directory in which the command runs.
pub(crate) fn here() -> Result<String, CommandFailure> {
    let here = std::env::current_dir().map_err(|error| {
        Diagnostic::error(format!("cannot find the current directory: {error}"))
    })?;
    Ok(here.display().to_string())
}

/// The name of the kustomization file of the current directory.
pub(crate) fn find() -> Result<&'static str, Diagnostic> {
    let found: Vec<&'static str> =
        FILE_NAMES.into_iter().filter(|name| fs::symlink_metadata(name).is_ok()).collect();
    match found.as_slice() {
        [] => Err(Diagnostic::error("Missing kustomization file 'kustomization.yaml'.")
            .hint("create one with: kiln create")),
        [one] => Ok(one),
        several => Err(Diagnostic::error(format!(
            "Found multiple kustomization files: {}",
            several.join(", ")
        ))
        .hint("keep one of them")),
    }
}

/// Reads the kustomization file of the current directory.
pub(super) fn open(global: &Global) -> Result<(&'static str, KustomizationFile), CommandFailure> {
    let path = find()?;
    refuse_foreign(Path::new(path))?;
    if Path::new(path).is_dir() {
        return Err(Diagnostic::error(format!("{path} should be a file")).into());
    }
    let read = input::read(path, global.max_input_size)?;
    let file = KustomizationFile::read(path, &read.bytes).map_err(failed)?;
    Ok((path, file))
}

/// Writes the file if it was changed.
pub(super) fn save(path: &str, file: &KustomizationFile) -> Result<(), CommandFailure> {
    if file.is_changed() {
        Replacement::prepare(path, &file.text()?)?.put()?;
    }
    Ok(())
}

/// A link in the directory must not lead a change to a file elsewhere.
pub(super) fn refuse_foreign(path: &Path) -> Result<(), Diagnostic> {
    let shown = path.display();
    let failed = |error| input::cannot("read", &shown.to_string(), &error);
    let target = fs::canonicalize(path).map_err(failed)?;
    let here = fs::canonicalize(".").map_err(failed)?;
    if target.starts_with(here) {
        return Ok(());
    }
    Err(Diagnostic::error(format!("{shown} is a link to {}", target.display()))
        .hint("change the file it points to in its own directory"))
}

/// The files that match patterns, each pattern's in the order of names. Patterns that match nothing are
/// told by `none`.
pub(super) fn expand(
    patterns: &[String],
    mut none: impl FnMut(&str) -> Result<Option<String>, CommandFailure>,
) -> Result<Vec<String>, CommandFailure> {
    let mut all = Vec::new();
    for pattern in patterns {
        let found = matching(pattern)?;
        if found.is_empty() {
            all.extend(none(pattern)?);
        }
        all.extend(found);
    }
    Ok(all)
}

/// The same for resources: what matches nothing must be the address of a repository.
pub(crate) fn expand_or_directories(patterns: &[String]) -> Result<Vec<String>, CommandFailure> {
    expand(patterns, |pattern| {
        if Repository::parse(pattern).is_some() {
            return Ok(Some(pattern.to_owned()));
        }
        Err(Diagnostic::error(format!("{pattern} has no match: no such file or directory"))
            .hint("create the file first")
            .into())
    })
}

/// The paths that a pattern stands for, part by part.
fn matching(pattern: &str) -> Result<Vec<String>, CommandFailure> {
    // A malformed pattern is an error even where nothing is.
    glob::matches(pattern, "").map_err(failed)?;
    if !glob::is_pattern(pattern) {
        let there = fs::symlink_metadata(pattern).is_ok();
        return Ok(if there { vec![pattern.to_owned()] } else { Vec::new() });
    }
    let (start, rest) = match pattern.strip_prefix('/') {
        Some(rest) => ("/", rest),
        None => ("", pattern),
    };
    let mut found = vec![start.to_owned()];
    for part in rest.split('/') {
        let mut next = Vec::new();
        for base in &found {
            let join = |name: &str| match base.as_str() {
                "" => name.to_owned(),
                base if base.ends_with('/') => format!("{base}{name}"),
                base => format!("{base}/{name}"),
            };
            if !glob::is_pattern(part) {
                let path = join(part);
                if fs::symlink_metadata(&path).is_ok() {
                    next.push(path);
                }
                continue;
            }
            let directory = if base.is_empty() { "." } else { base };
            let Ok(entries) = fs::read_dir(directory) else { continue };
            for name in entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()) {
                if glob::matches(part, &name).map_err(failed)? {
                    next.push(join(&name));
                }
            }
        }
        next.sort();
        found = next;
    }
    Ok(found)
}
