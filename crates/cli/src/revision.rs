//! The files of another revision of a git repository, beside those of the work tree.

use std::path::{Path, PathBuf};
use std::process::Command;

use kiln_diagnostic::Diagnostic;
use kiln_kustomize::local::OF_ANOTHER_REPOSITORY;
use tempfile::TempDir;

use crate::input;

/// Where the files are in the temporary directory.
const TREE: &str = "tree";

/// A revision in a temporary directory. The repository itself, its index and its work tree are left alone.
pub(crate) struct Revision {
    /// The top of the work tree, without links.
    top: PathBuf,
    files: TempDir,
}

impl Revision {
    /// Checks out a revision of the repository that a directory is in.
    pub(crate) fn check_out(directory: &str, revision: &str) -> Result<Self, Diagnostic> {
        if revision.starts_with('-') {
            return Err(Diagnostic::error(format!("{revision} is not a revision")));
        }
        let directory = Path::new(directory);
        if !directory.is_dir() {
            return Err(Diagnostic::error(format!(
                "there is no directory {}",
                directory.display()
            ))
            .hint("name a directory with a kustomization file"));
        }
        let top = git(directory, &["rev-parse", "--show-toplevel"])
            .map_err(|error| error.hint("--base needs a directory in a git repository, and git"))?;
        let top = PathBuf::from(top);
        let wanted = format!("{revision}^{{commit}}");
        let commit = git(&top, &["rev-parse", "--verify", "--quiet", &wanted]).map_err(|_| {
            Diagnostic::error(format!("the repository has no revision {revision}"))
                .hint("name a branch, tag or commit that was fetched")
        })?;
        let files = tempfile::tempdir()
            .map_err(|error| input::cannot("make", "a temporary directory", &error))?;
        // Not a clone: pipelines fetch few commits, and what is cloned from them lacks those of other branches.
        let index = files.path().join("index");
        let copy = format!("--prefix={}/", files.path().join(TREE).display());
        git_with_index(&top, &["read-tree", &commit], Some(&index))?;
        git_with_index(&top, &["checkout-index", "--quiet", "--all", &copy], Some(&index))?;
        let top = top.canonicalize().unwrap_or(top);
        Ok(Revision { top, files })
    }

    /// Whether a revision is that of the first commit, which is still to be made.
    pub(crate) fn is_unborn(directory: &str, revision: &str) -> bool {
        let directory = Path::new(directory);
        revision == "HEAD"
            && git(directory, &["rev-parse", "--is-inside-work-tree"]).is_ok()
            && git(directory, &["rev-parse", "--verify", "--quiet", "HEAD"]).is_err()
    }

    /// Where a path of the work tree is in the revision: none if the path is elsewhere on this machine.
    pub(crate) fn path(&self, path: &str) -> Option<PathBuf> {
        let absolute = Path::new(path).canonicalize().ok()?;
        let below = absolute.strip_prefix(&self.top).ok()?;
        Some(self.files.path().join(TREE).join(below))
    }
}

fn git(directory: &Path, words: &[&str]) -> Result<String, Diagnostic> {
    git_with_index(directory, words, None)
}

/// Runs git, with an index other than that of the repository.
fn git_with_index(
    directory: &Path,
    words: &[&str],
    index: Option<&Path>,
) -> Result<String, Diagnostic> {
    let mut command = Command::new("git");
    command.args(words).current_dir(directory).env("GIT_TERMINAL_PROMPT", "0");
    for variable in OF_ANOTHER_REPOSITORY {
        command.env_remove(variable);
    }
    if let Some(index) = index {
        command.env("GIT_INDEX_FILE", index);
    }
    let failed = |why: String| Diagnostic::error(format!("git {} failed: {why}", words.join(" ")));
    let output = command.output().map_err(|error| failed(error.to_string()))?;
    if !output.status.success() {
        return Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
}
