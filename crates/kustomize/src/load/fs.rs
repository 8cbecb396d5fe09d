//! Where files come from: a file system seen through four questions.
//!
//! The build never touches a disk itself. [`Memory`] holds a tree in memory (tests, the browser),
//! [`Disk`] is the machine's own, [`Layered`] puts files over another one.

mod opened;

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use crate::load::paths;

/// A file or directory that is not there, or cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileError {
    /// What was tried: `lstat`, `open`, `read`.
    pub operation: &'static str,
    pub path: String,
    /// Why it failed.
    pub reason: String,
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.operation, self.path, self.reason)
    }
}

impl std::error::Error for FileError {}

/// A path without links, and what kind of file it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolved {
    /// Absolute, clean, without symbolic links.
    pub path: String,
    pub is_directory: bool,
}

/// What a build needs of a file system. Paths are absolute and use `/`.
pub trait FileSystem {
    /// Follows all links of a path that must exist.
    ///
    /// # Errors
    /// When a part of it does not exist; the error names that part.
    fn resolve(&self, path: &str) -> Result<Resolved, FileError>;

    /// Reads a whole file.
    ///
    /// # Errors
    /// When it is not there, is not a regular file, or is larger than `limit` bytes.
    fn read(&self, path: &str, limit: usize) -> Result<Vec<u8>, FileError>;

    /// Reads a whole file at a path that [`resolve`](FileSystem::resolve) gave, and no other: putting a link on
    /// the way since then leads nowhere.
    ///
    /// # Errors
    /// Likewise, and when there is a link on the way.
    fn read_resolved(&self, path: &str, limit: usize) -> Result<Vec<u8>, FileError> {
        self.read(path, limit)
    }

    /// Whether a file is there and may be run.
    fn is_executable(&self, path: &str) -> Option<bool>;

    /// The files and directories in a directory, in the order of their names; links are left out.
    ///
    /// # Errors
    /// When it is not there, is not a directory, or when this file system cannot tell.
    fn list(&self, path: &str) -> Result<Vec<DirectoryEntry>, FileError> {
        let reason = "this file system does not list directories".to_owned();
        Err(FileError { operation: "open", path: path.to_owned(), reason })
    }

    /// The symbolic links in and below a directory; none is followed.
    ///
    /// # Errors
    /// When one of the directories cannot be read, or when this file system cannot tell.
    fn links_below(&self, path: &str) -> Result<Vec<String>, FileError> {
        let reason = "this file system does not tell links".to_owned();
        Err(FileError { operation: "open", path: path.to_owned(), reason })
    }
}

/// What is in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectoryEntry {
    pub name: String,
    pub is_directory: bool,
}

/// A tree in memory.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    files: BTreeMap<String, Vec<u8>>,
    directories: std::collections::BTreeSet<String>,
}

impl Memory {
    /// An empty tree.
    pub fn new() -> Self {
        Self::default()
    }

    /// Puts a file there, and the directories above it.
    pub fn write(&mut self, path: &str, contents: impl Into<Vec<u8>>) {
        let path = paths::clean(&format!("/{path}"));
        let mut directory = paths::parent(&path);
        while self.directories.insert(directory.to_owned()) && directory != "/" {
            directory = paths::parent(directory);
        }
        self.files.insert(path, contents.into());
    }

    /// The same, for writing a tree as one expression.
    #[must_use]
    pub fn with(mut self, path: &str, contents: impl Into<Vec<u8>>) -> Self {
        self.write(path, contents);
        self
    }
}

const MISSING: &str = "no such file or directory";

impl FileSystem for Memory {
    fn resolve(&self, path: &str) -> Result<Resolved, FileError> {
        let path = paths::clean(path);
        if self.directories.contains(&path) || path == "/" {
            return Ok(Resolved { path, is_directory: true });
        }
        if self.files.contains_key(&path) {
            return Ok(Resolved { path, is_directory: false });
        }
        let mut missing = path.as_str();
        while !self.directories.contains(paths::parent(missing)) && paths::parent(missing) != "/" {
            missing = paths::parent(missing);
        }
        let error = |path: &str, reason: &str| FileError {
            operation: "lstat",
            path: path.to_owned(),
            reason: reason.to_owned(),
        };
        if self.files.contains_key(paths::parent(missing)) {
            return Err(error(missing, "not a directory"));
        }
        Err(error(missing, MISSING))
    }

    fn read(&self, path: &str, limit: usize) -> Result<Vec<u8>, FileError> {
        let path = paths::clean(path);
        let error = |operation, reason: &str| FileError {
            operation,
            path: path.clone(),
            reason: reason.to_owned(),
        };
        match self.files.get(&path) {
            Some(contents) if contents.len() > limit => Err(error("read", &too_large(limit))),
            Some(contents) => Ok(contents.clone()),
            None if self.directories.contains(&path) => Err(error("read", "is a directory")),
            None => Err(error("open", MISSING)),
        }
    }

    fn is_executable(&self, path: &str) -> Option<bool> {
        self.files.contains_key(&paths::clean(path)).then_some(false)
    }

    fn list(&self, path: &str) -> Result<Vec<DirectoryEntry>, FileError> {
        let path = self.resolve(path)?.path;
        let entry = |all: &String, is_directory| {
            let name = (paths::parent(all) == path && *all != path).then(|| paths::base(all))?;
            Some(DirectoryEntry { name: name.to_owned(), is_directory })
        };
        let files = self.files.keys().filter_map(|file| entry(file, false));
        let mut entries: Vec<DirectoryEntry> = files
            .chain(self.directories.iter().filter_map(|directory| entry(directory, true)))
            .collect();
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }

    fn links_below(&self, _: &str) -> Result<Vec<String>, FileError> {
        Ok(Vec::new())
    }
}

/// Another file system, with some files put in its place or out of sight.
pub struct Layered<'f> {
    below: &'f dyn FileSystem,
    files: BTreeMap<String, Option<Vec<u8>>>,
}

impl<'f> Layered<'f> {
    /// A file system as it is.
    pub fn over(below: &'f dyn FileSystem) -> Self {
        Layered { below, files: BTreeMap::new() }
    }

    /// Puts a file at an absolute path, whether there is one or not.
    #[must_use]
    pub fn with(mut self, path: &str, contents: impl Into<Vec<u8>>) -> Self {
        self.files.insert(paths::clean(path), Some(contents.into()));
        self
    }

    /// Hides the file at an absolute path.
    #[must_use]
    pub fn without(mut self, path: &str) -> Self {
        self.files.insert(paths::clean(path), None);
        self
    }
}

impl FileSystem for Layered<'_> {
    fn resolve(&self, path: &str) -> Result<Resolved, FileError> {
        let clean = paths::clean(path);
        match self.files.get(&clean) {
            Some(Some(_)) => Ok(Resolved { path: clean, is_directory: false }),
            Some(None) => {
                Err(FileError { operation: "lstat", path: clean, reason: MISSING.to_owned() })
            }
            None => self.below.resolve(path),
        }
    }

    fn read(&self, path: &str, limit: usize) -> Result<Vec<u8>, FileError> {
        let clean = paths::clean(path);
        let error = |operation, reason| FileError { operation, path: clean.clone(), reason };
        match self.files.get(&clean) {
            Some(Some(contents)) if contents.len() > limit => Err(error("read", too_large(limit))),
            Some(Some(contents)) => Ok(contents.clone()),
            Some(None) => Err(error("open", MISSING.to_owned())),
            None => self.below.read(path, limit),
        }
    }

    fn read_resolved(&self, path: &str, limit: usize) -> Result<Vec<u8>, FileError> {
        match self.files.get(&paths::clean(path)) {
            Some(_) => self.read(path, limit),
            None => self.below.read_resolved(path, limit),
        }
    }

    fn is_executable(&self, path: &str) -> Option<bool> {
        match self.files.get(&paths::clean(path)) {
            Some(contents) => contents.as_ref().map(|_| false),
            None => self.below.is_executable(path),
        }
    }

    fn list(&self, path: &str) -> Result<Vec<DirectoryEntry>, FileError> {
        let mut entries = self.below.list(path)?;
        let directory = paths::clean(path);
        for (file, contents) in &self.files {
            if paths::parent(file) == directory {
                entries.retain(|entry| entry.name != paths::base(file));
                if contents.is_some() {
                    let name = paths::base(file).to_owned();
                    entries.push(DirectoryEntry { name, is_directory: false });
                }
            }
        }
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }

    fn links_below(&self, path: &str) -> Result<Vec<String>, FileError> {
        self.below.links_below(path)
    }
}

/// The machine's own files.
#[derive(Clone, Copy, Debug, Default)]
pub struct Disk;

impl FileSystem for Disk {
    fn resolve(&self, path: &str) -> Result<Resolved, FileError> {
        let resolved = std::fs::canonicalize(path).map_err(|error| {
            let mut at = first_missing(path);
            if at.is_empty() {
                at = path.to_owned();
            }
            FileError { operation: "lstat", path: at, reason: reason(&error) }
        })?;
        let text = resolved.to_str().ok_or_else(|| FileError {
            operation: "lstat",
            path: path.to_owned(),
            reason: "the path is not valid UTF-8".to_owned(),
        })?;
        Ok(Resolved { is_directory: resolved.is_dir(), path: text.to_owned() })
    }

    fn read(&self, path: &str, limit: usize) -> Result<Vec<u8>, FileError> {
        read_opened(opened::through_links(path), path, limit)
    }

    fn read_resolved(&self, path: &str, limit: usize) -> Result<Vec<u8>, FileError> {
        read_opened(opened::without_links(path), path, limit)
    }

    fn is_executable(&self, path: &str) -> Option<bool> {
        let found = std::fs::metadata(path).ok()?;
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            Some(found.is_file() && found.permissions().mode() & 0o111 != 0)
        }
        #[cfg(not(unix))]
        Some(found.is_file())
    }

    fn list(&self, path: &str) -> Result<Vec<DirectoryEntry>, FileError> {
        let error = |reason: String| FileError { operation: "open", path: path.to_owned(), reason };
        let mut entries = Vec::new();
        for entry in std::fs::read_dir(path).map_err(|e| error(reason(&e)))? {
            let entry = entry.map_err(|e| error(reason(&e)))?;
            let kind = entry.file_type().map_err(|e| error(reason(&e)))?;
            let name = entry.file_name().into_string();
            let name = name.map_err(|_| error("a name is not valid UTF-8".to_owned()))?;
            if kind.is_dir() || kind.is_file() {
                entries.push(DirectoryEntry { name, is_directory: kind.is_dir() });
            }
        }
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }

    fn links_below(&self, path: &str) -> Result<Vec<String>, FileError> {
        let mut links = Vec::new();
        let mut directories = vec![path.to_owned()];
        while let Some(directory) = directories.pop() {
            let error = |reason| FileError { operation: "open", path: directory.clone(), reason };
            for entry in std::fs::read_dir(&directory).map_err(|e| error(reason(&e)))? {
                let entry = entry.map_err(|e| error(reason(&e)))?;
                let kind = entry.file_type().map_err(|e| error(reason(&e)))?;
                if !kind.is_dir() && !kind.is_symlink() {
                    continue;
                }
                let name = entry.file_name().into_string();
                let name = name.map_err(|_| error("a name is not valid UTF-8".to_owned()))?;
                let place = paths::join(&directory, &name);
                if kind.is_dir() { directories.push(place) } else { links.push(place) }
            }
        }
        links.sort();
        Ok(links)
    }
}

/// Reads what was opened: the path may lead to another file by now.
fn read_opened(file: io::Result<File>, path: &str, limit: usize) -> Result<Vec<u8>, FileError> {
    let error = |operation, reason: String| FileError { operation, path: path.to_owned(), reason };
    let file = file.map_err(|e| error("open", reason(&e)))?;
    let found = file.metadata().map_err(|e| error("open", reason(&e)))?;
    if found.is_dir() {
        return Err(error("read", "is a directory".to_owned()));
    }
    // A pipe or a device would block or never end.
    if !found.is_file() {
        return Err(error("read", "not a regular file".to_owned()));
    }
    let mut contents = Vec::with_capacity(found.len().min(limit as u64) as usize);
    file.take(limit as u64 + 1)
        .read_to_end(&mut contents)
        .map_err(|e| error("read", reason(&e)))?;
    if contents.len() > limit {
        return Err(error("read", too_large(limit)));
    }
    Ok(contents)
}

fn too_large(limit: usize) -> String {
    format!("larger than {limit} bytes")
}

/// The reason in the words of Go, without Rust's `(os error 2)`.
fn reason(error: &io::Error) -> String {
    if error.kind() == io::ErrorKind::NotFound {
        return MISSING.to_owned();
    }
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or(&text);
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_lowercase().chain(letters).collect())
}

/// The first part of a path that is not there.
fn first_missing(path: &str) -> String {
    let mut so_far = String::new();
    for part in path.split('/').filter(|part| !part.is_empty()) {
        so_far.push('/');
        so_far.push_str(part);
        if Path::new(&so_far).symlink_metadata().is_err() {
            return so_far;
        }
    }
    String::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_names_the_first_part_that_is_missing() {
        let tree = Memory::new().with("/a/b.yaml", "x");
        assert!(tree.resolve("/a").unwrap().is_directory);
        assert!(!tree.resolve("/a/../a/b.yaml").unwrap().is_directory);
        let error = tree.resolve("/a/x/y").unwrap_err();
        assert_eq!(error.to_string(), "lstat /a/x: no such file or directory");
        assert!(tree.resolve("/a/b.yaml/c").is_err());
        assert_eq!(tree.read("/a", 10).unwrap_err().to_string(), "read /a: is a directory");
        assert!(tree.read("/a/b.yaml", 0).is_err());
    }
}
