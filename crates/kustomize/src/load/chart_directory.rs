//! A directory with a chart, as a file system has it.

use kiln_chart::{ChartFiles, FileEntry};

use crate::load::fs::FileSystem;
use crate::load::paths;

/// The files of a chart in a directory. Links are followed, as Helm does, but not out of `within`.
#[derive(Clone, Copy)]
pub struct ChartDirectory<'f> {
    /// Where the directory is.
    pub files: &'f dyn FileSystem,
    /// Its path, absolute.
    pub path: &'f str,
    /// The directory that no link may lead out of; anything goes without one.
    pub within: Option<&'f str>,
}

impl std::fmt::Debug for ChartDirectory<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ChartDirectory").field("path", &self.path).finish_non_exhaustive()
    }
}

impl ChartDirectory<'_> {
    /// Where a path of the chart leads.
    fn resolved(&self, path: &str) -> Result<String, String> {
        let resolved = self.files.resolve(path).map_err(|error| error.to_string())?.path;
        match self.within {
            Some(root) if !paths::is_within(&resolved, root) => {
                Err(format!("security; file '{path}' is not in or below '{root}'"))
            }
            _ => Ok(resolved),
        }
    }

    fn absolute(&self, path: &str) -> String {
        if path.is_empty() { self.path.to_owned() } else { paths::join(self.path, path) }
    }
}

impl ChartFiles for ChartDirectory<'_> {
    fn list(&self, directory: &str) -> Result<Vec<FileEntry>, String> {
        let path = self.resolved(&self.absolute(directory))?;
        let listed = self.files.list(&path).map_err(|error| error.to_string())?;
        let mut entries: Vec<FileEntry> = listed
            .into_iter()
            .map(|entry| FileEntry { name: entry.name, is_directory: entry.is_directory })
            .collect();
        for link in self.files.links_below(&path).map_err(|error| error.to_string())? {
            if paths::parent(&link) == path {
                let target = self.files.resolve(&link).map_err(|error| error.to_string())?;
                let name = paths::base(&link).to_owned();
                entries.push(FileEntry { name, is_directory: target.is_directory });
            }
        }
        Ok(entries)
    }

    fn read(&self, path: &str, limit: usize) -> Result<Vec<u8>, String> {
        let path = self.resolved(&self.absolute(path))?;
        self.files.read_resolved(&path, limit).map_err(|error| error.to_string())
    }
}
