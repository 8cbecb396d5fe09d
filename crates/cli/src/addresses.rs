//! Policies and resources that lie elsewhere: a file behind an address, a directory of a git repository. A user who types an
//! address allows it.

use std::path::Path;

use kiln_diagnostic::Diagnostic;
use kiln_kustomize::local::Running;
use kiln_kustomize::{Fetch, Repository};
use tempfile::TempDir;

use crate::fetch::{self, Remote};
use crate::input;
use crate::interrupt;

/// What was fetched, for as long as it is needed.
#[derive(Default)]
pub(crate) struct Fetched {
    directory: Option<TempDir>,
    git: Option<Remote>,
    files: usize,
}

/// Whether a path is an address.
pub(crate) fn is_address(path: &str) -> bool {
    ["http://", "https://", "ssh://", "file://", "git@"].iter().any(|start| path.starts_with(start))
}

impl Fetched {
    /// The paths, each address among them brought to this machine. `branch` is that of repositories whose address names
    /// none.
    pub(crate) fn bring(
        &mut self,
        paths: &[String],
        branch: Option<&str>,
        most_bytes: u64,
    ) -> Result<Vec<String>, Diagnostic> {
        paths
            .iter()
            .map(|path| match is_address(path) {
                true => self.one(path, branch, most_bytes),
                false => Ok(path.clone()),
            })
            .collect()
    }

    fn one(
        &mut self,
        address: &str,
        branch: Option<&str>,
        most_bytes: u64,
    ) -> Result<String, Diagnostic> {
        let failed = |error: kiln_kustomize::Error| {
            let problem = Diagnostic::from(error);
            // Some failures say so themselves.
            let message = match problem.message.starts_with("cannot fetch ") {
                true => problem.message.clone(),
                false => format!("cannot fetch {address}: {}", problem.message),
            };
            Diagnostic { message, ..problem }
        };
        let bare = address.split(['?', '#']).next().unwrap_or(address);
        let ending = Path::new(bare).extension().and_then(|ending| ending.to_str());
        let is_file =
            address.starts_with("http") && matches!(ending, Some("yaml" | "yml" | "json"));
        if is_file {
            let bytes = fetch::get(address, most_bytes).map_err(failed)?;
            let directory =
                match &self.directory {
                    Some(directory) => directory,
                    None => self.directory.insert(tempfile::tempdir().map_err(|error| {
                        input::cannot("write", "a temporary directory", &error)
                    })?),
                };
            self.files += 1;
            let name = bare.rsplit('/').next().unwrap_or("fetched.yaml");
            let path = directory.path().join(format!("{}-{name}", self.files));
            input::write_file(&path, &String::from_utf8_lossy(&bytes))?;
            return Ok(path.display().to_string());
        }
        let repository = repository(address, branch).ok_or_else(|| {
            Diagnostic::error(format!("{address} is neither a YAML file nor a git repository"))
                .hint("write https://HOST/OWNER/REPOSITORY/DIRECTORY with --git-branch, or git's own form with ?ref=")
        })?;
        if self.git.is_none() {
            let running = Running::default();
            let to_end = running.clone();
            let listening = interrupt::before_ending(move || to_end.end());
            listening.map_err(|error| Diagnostic::error(format!("cannot start: {error}")))?;
            self.git = Some(Remote::new(false, most_bytes, running));
        }
        let Some(git) = &self.git else { return Ok(address.to_owned()) };
        let directory = git.clone_repository(&repository).map_err(failed)?;
        Ok(match repository.path() {
            "" => directory,
            path => format!("{directory}/{path}"),
        })
    }
}

/// Kyverno: without a branch, what follows owner and repository is the branch; with one, it is a directory.
fn repository(address: &str, branch: Option<&str>) -> Option<Repository> {
    let is_of_git = address.contains("?ref=")
        || address.contains(".git")
        || address.starts_with("git@")
        || address
            .split_once("://")
            .is_some_and(|(_, rest)| rest.trim_start_matches('/').contains("//"));
    if is_of_git {
        return match branch {
            Some(branch) if !address.contains("?ref=") => {
                Repository::parse(&format!("{address}?ref={branch}"))
            }
            _ => Repository::parse(address),
        };
    }
    let (scheme, rest) = address.split_once("://")?;
    let mut parts = rest.trim_end_matches('/').splitn(4, '/');
    let (host, owner, name) = (parts.next()?, parts.next()?, parts.next()?);
    let rest = parts.next().unwrap_or_default();
    let text = match branch {
        Some(branch) => format!("{scheme}://{host}/{owner}/{name}.git//{rest}?ref={branch}"),
        None if rest.is_empty() => format!("{scheme}://{host}/{owner}/{name}.git"),
        None => format!("{scheme}://{host}/{owner}/{name}.git?ref={rest}"),
    };
    Repository::parse(&text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_kyverno_does() {
        for (address, branch, url, path, reference) in [
            ("https://h.example/o/r", None, "https://h.example/o/r.git", "", ""),
            ("https://h.example/o/r/main", None, "https://h.example/o/r.git", "", "main"),
            ("https://h.example/o/r/a/b/", Some("dev"), "https://h.example/o/r.git", "a/b", "dev"),
            ("https://h.example/o/r.git//a?ref=v1", None, "https://h.example/o/r.git", "a", "v1"),
            ("file:///tmp/r.git//a", Some("x"), "file:///tmp/r.git", "a", "x"),
        ] {
            let found = repository(address, branch).expect(address);
            assert_eq!(
                (found.url().as_str(), found.path(), found.reference()),
                (url, path, reference),
                "{address}"
            );
        }
        assert!(repository("https://h.example/o", None).is_none());
    }
}
