//! Where the files of a suite come from.

use std::sync::Arc;

use kiln_diagnostic::{Diagnostic, SourceLocation};
use kiln_text::wildcard;
use kiln_yaml::{Document, Reader};

/// Read access to files, given by a host. Paths have slashes, and are relative to wherever the host is.
pub trait Files {
    /// The bytes of a file.
    ///
    /// # Errors
    /// When there is no such file or it cannot be read.
    fn read(&self, path: &str) -> Result<Vec<u8>, Diagnostic>;

    /// The YAML and JSON files below a directory, sorted; none when it is not a directory.
    fn below(&self, directory: &str) -> Option<Vec<String>>;
}

/// The directory of a suite, from which its files are named.
pub(crate) struct Directory<'f> {
    files: &'f dyn Files,
    path: String,
    reader: Reader,
}

impl<'f> Directory<'f> {
    /// The directory of the suite at this path.
    pub(crate) fn of(suite: &str, files: &'f dyn Files, reader: Reader) -> Self {
        let path = suite.rsplit_once('/').map_or("", |(directory, _)| directory);
        Directory { files, path: path.to_owned(), reader }
    }

    /// The documents of the suite itself.
    pub(crate) fn read_suite(&mut self, path: &str) -> Result<Vec<Document>, Diagnostic> {
        let bytes = self.files.read(path)?;
        self.reader.read_bytes(path, &bytes)
    }

    /// The first document of the nearest file of a name, in the directory of the suite or above it.
    pub(crate) fn nearest(&mut self, name: &str) -> Option<Document> {
        let mut directory = self.path.as_str();
        loop {
            let path =
                if directory.is_empty() { name.to_owned() } else { format!("{directory}/{name}") };
            if let Ok(bytes) = self.files.read(&path) {
                return self.reader.read_bytes(&path, &bytes).ok()?.into_iter().next();
            }
            if directory.is_empty() {
                return None;
            }
            directory = directory.rsplit_once('/').map_or("", |(above, _)| above);
        }
    }

    /// The documents of what a suite names: a file, every file below a directory, or those that a pattern
    /// means. A problem with the name itself is shown where the suite has it.
    pub(crate) fn read(
        &mut self,
        name: &str,
        place: &SourceLocation,
    ) -> Result<Vec<Document>, Diagnostic> {
        let mut documents = Vec::new();
        for path in self.expand(name, place)? {
            let bytes = self.files.read(&path).map_err(|problem| problem.at(place.clone()))?;
            documents.extend(self.reader.read_bytes(&path, &bytes)?);
        }
        Ok(documents)
    }

    fn expand(&self, name: &str, place: &SourceLocation) -> Result<Vec<String>, Diagnostic> {
        if name.contains("://") {
            return Err(Diagnostic::error(format!("{name} is not on this machine"))
                .at(place.clone())
                .hint("nothing is fetched for a test: keep a copy beside the suite"));
        }
        let path = self.path_of(name);
        if let Some(files) = self.files.below(&path) {
            return Ok(files);
        }
        if !wildcard::contains_wildcard(name) {
            return Ok(vec![path]);
        }
        let (directory, _) = path.split_at(path.find(['*', '?']).unwrap_or(path.len()));
        let directory = directory.rsplit_once('/').map_or(".", |(directory, _)| directory);
        let depth = path.split('/').count();
        let mut found = self.files.below(directory).unwrap_or_default();
        // A star stays within its directory.
        found.retain(|file| file.split('/').count() == depth && wildcard::matches(&path, file));
        if found.is_empty() {
            return Err(Diagnostic::error(format!("{name} means no file")).at(place.clone()));
        }
        Ok(found)
    }

    /// A name as the host knows it.
    fn path_of(&self, name: &str) -> String {
        if name.starts_with('/') {
            return name.to_owned();
        }
        let mut parts: Vec<&str> = self.path.split('/').filter(|part| *part != ".").collect();
        if self.path.is_empty() {
            parts.clear();
        }
        for part in name.split('/') {
            match part {
                "" | "." => {}
                ".." if parts.last().is_some_and(|last| !last.is_empty() && *last != "..") => {
                    parts.pop();
                }
                part => parts.push(part),
            }
        }
        match parts.is_empty() {
            true => ".".to_owned(),
            false => parts.join("/"),
        }
    }
}

/// A place of its own for what has none: the beginning of a text.
pub(crate) fn beginning(document: &Document) -> SourceLocation {
    SourceLocation::new(Arc::clone(document.source()), 0..0)
}

#[cfg(test)]
mod tests {
    use kiln_yaml::ReadOptions;

    use super::*;

    struct Nothing;

    impl Files for Nothing {
        fn read(&self, path: &str) -> Result<Vec<u8>, Diagnostic> {
            Err(Diagnostic::error(path))
        }

        fn below(&self, _: &str) -> Option<Vec<String>> {
            None
        }
    }

    #[test]
    fn names_are_relative_to_the_suite() {
        for (suite, name, path) in [
            ("kyverno-test.yaml", "policy.yaml", "policy.yaml"),
            ("a/b/kyverno-test.yaml", "./policy.yaml", "a/b/policy.yaml"),
            ("a/b/kyverno-test.yaml", "../../../p.yaml", "../p.yaml"),
            ("./kyverno-test.yaml", "x/../p.yaml", "p.yaml"),
            ("../kyverno-test.yaml", "../p.yaml", "../../p.yaml"),
            ("/a/kyverno-test.yaml", "p.yaml", "/a/p.yaml"),
            ("/a/kyverno-test.yaml", "/b/p.yaml", "/b/p.yaml"),
        ] {
            let directory = Directory::of(suite, &Nothing, Reader::new(ReadOptions::kubernetes()));
            assert_eq!(directory.path_of(name), path, "{suite} {name}");
        }
    }
}
