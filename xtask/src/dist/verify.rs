//! Whether a second build of the same commit gives the same bytes.

use std::collections::BTreeSet;

use anyhow::Result;

use super::{Plan, digest, make};
use crate::git;

/// Builds the commit in another directory, from what git has of it, and compares all files.
#[expect(clippy::print_stdout, reason = "the comparison is this command's output")]
pub(super) fn verify(plan: &Plan<'_>) -> Result<bool> {
    // Not below the build's own directory: other names of other lengths show what gets into programs.
    let elsewhere = tempfile::Builder::new().prefix("kiln-second-build-").tempdir()?;
    let tree = elsewhere.path().join("checkout");
    git::unpack(plan.tree, &plan.source.commit, &tree)?;
    let second = Plan {
        tree: &tree,
        build: elsewhere.path().join("build"),
        into: elsewhere.path().join("files"),
        ..*plan
    };
    make(&second)?;
    let (one, other) = (digest::files(&plan.into)?, digest::files(&second.into)?);
    let names: BTreeSet<&String> = one.keys().chain(other.keys()).collect();
    let mut same = true;
    for name in names {
        let (first, second) = (one.get(name), other.get(name));
        let word = if first == second { "same" } else { "DIFFERENT" };
        same &= first == second;
        let missing = "missing".to_owned();
        println!("{word}  {}  {}  {name}", first.unwrap_or(&missing), second.unwrap_or(&missing));
    }
    Ok(same)
}
