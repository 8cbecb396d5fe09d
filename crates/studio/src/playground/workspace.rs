//! The files that a user has open.

use kiln_diagnostic::Diagnostic;
use kiln_kustomize::fs::Memory;
use kiln_suites::Files;
use kiln_value::Value;
use kiln_yaml::{Document, ReadOptions, Reader};
use serde::Deserialize;

/// The most bytes of all files together.
const MAX_SIZE: usize = 4 << 20;
/// The most files.
const MAX_FILES: usize = 200;

/// Files, each with what it is for.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Workspace {
    pub files: Vec<WorkspaceFile>,
}

#[derive(Clone, Debug, Deserialize)]
pub struct WorkspaceFile {
    /// Relative, with slashes.
    pub path: String,
    pub role: FileRole,
    pub text: String,
}

/// What a file is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FileRole {
    Policies,
    /// Each object is a trigger.
    Resources,
    /// Objects that rules read.
    Cluster,
    /// Values of the cluster or the request.
    Values,
    /// Who sends the requests.
    User,
    /// A test suite.
    Tests,
    /// A file of a kustomization.
    Tree,
}

impl Workspace {
    /// Reads the files of a request.
    ///
    /// # Errors
    /// When they are too many or too large, or the request is something else.
    pub fn read(value: &Value) -> Result<Self, Diagnostic> {
        let workspace: Workspace = kiln_value::from_value(value)
            .map_err(|error| Diagnostic::error(format!("this is not a workspace: {error}")))?;
        let size: usize = workspace.files.iter().map(|file| file.text.len()).sum();
        if workspace.files.len() > MAX_FILES || size > MAX_SIZE {
            return Err(Diagnostic::error("the workspace is too large")
                .hint("the playground takes 200 files and 4 MiB; use `kiln apply` for more"));
        }
        Ok(workspace)
    }

    pub(super) fn of(&self, role: FileRole) -> impl Iterator<Item = &WorkspaceFile> {
        self.files.iter().filter(move |file| file.role == role)
    }

    /// The files of the kustomization.
    pub(super) fn tree(&self) -> Memory {
        let mut tree = Memory::new();
        for file in self.of(FileRole::Tree) {
            tree.write(&file.path, file.text.as_bytes());
        }
        tree
    }

    /// The documents of all files of a role; what cannot be read is a problem, and the rest is still there.
    pub(super) fn documents(
        &self,
        role: FileRole,
        problems: &mut Vec<Diagnostic>,
    ) -> Vec<Document> {
        let mut reader = Reader::new(ReadOptions::kubernetes());
        let mut documents = Vec::new();
        for file in self.of(role) {
            match reader.read_bytes(&file.path, file.text.as_bytes()) {
                Ok(read) => documents.extend(read),
                Err(problem) => problems.push(problem),
            }
        }
        documents
    }
}

/// Suites name files beside them.
impl Files for Workspace {
    fn read(&self, path: &str) -> Result<Vec<u8>, Diagnostic> {
        let found = self.files.iter().find(|file| file.path == path);
        let found = found.ok_or_else(|| Diagnostic::error(format!("there is no file {path}")));
        Ok(found?.text.clone().into_bytes())
    }

    fn below(&self, directory: &str) -> Option<Vec<String>> {
        let prefix = match directory {
            "." | "" => String::new(),
            directory => format!("{directory}/"),
        };
        let is_file = self.files.iter().any(|file| file.path == directory);
        let mut below: Vec<String> = self
            .files
            .iter()
            .filter(|file| file.path.starts_with(&prefix))
            .map(|file| file.path.clone())
            .collect();
        below.sort();
        (!is_file && !below.is_empty()).then_some(below)
    }
}
