//! Where the files of a chart come from.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::error::{ChartError, Result};
use crate::ignore::IgnoreRules;
use crate::options::ChartLimits;

/// What is in a directory of a chart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileEntry {
    pub name: String,
    /// Whether it is a directory itself.
    pub is_directory: bool,
}

/// The files of a chart. Paths are relative to the chart and use `/`; the chart itself is the empty path.
pub trait ChartFiles {
    /// The files and directories in a directory.
    ///
    /// # Errors
    /// When it cannot be read, in words.
    fn list(&self, directory: &str) -> Result<Vec<FileEntry>, String>;

    /// A file of at most `limit` bytes.
    ///
    /// # Errors
    /// When it cannot be read or is larger, in words.
    fn read(&self, path: &str, limit: usize) -> Result<Vec<u8>, String>;
}

/// A file of a chart.
#[derive(Clone, Debug)]
pub(crate) struct ChartFile {
    pub(crate) name: String,
    pub(crate) data: Arc<[u8]>,
}

const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

impl ChartFile {
    pub(crate) fn new(name: String, data: &[u8]) -> Self {
        ChartFile { name, data: data.strip_prefix(BYTE_ORDER_MARK).unwrap_or(data).into() }
    }
}

/// What is left of a limit on files, over all charts in a chart.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FileBudget {
    pub(crate) files: usize,
    pub(crate) bytes: usize,
    pub(crate) limits: ChartLimits,
}

impl FileBudget {
    pub(crate) fn new(limits: &ChartLimits) -> Self {
        FileBudget { files: limits.files, bytes: limits.chart_bytes, limits: *limits }
    }

    /// How large the next file may be.
    pub(crate) fn next(&self) -> usize {
        self.limits.file_bytes.min(self.bytes)
    }

    pub(crate) fn count(&mut self, bytes: usize) -> Result<()> {
        let files = self.files.checked_sub(1).ok_or_else(|| {
            ChartError::new(format!("the chart has more than {} files", self.limits.files))
        })?;
        let left = self.bytes.checked_sub(bytes).ok_or_else(|| {
            let limit = self.limits.chart_bytes;
            ChartError::new(format!(
                "decompressed chart is larger than the maximum file size {limit}"
            ))
        })?;
        (self.files, self.bytes) = (files, left);
        Ok(())
    }
}

/// All files of a directory that `.helmignore` does not name.
pub(crate) fn read_directory(
    files: &dyn ChartFiles,
    budget: &mut FileBudget,
) -> Result<Vec<ChartFile>> {
    let failed = |message: String| ChartError::new(message);
    let top = files.list("").map_err(failed)?;
    let mut rules = IgnoreRules::default();
    if top.iter().any(|entry| entry.name == ".helmignore" && !entry.is_directory) {
        let text = files.read(".helmignore", budget.next()).map_err(failed)?;
        rules.parse(&text)?;
    }
    rules.add_defaults();
    let mut found = Vec::new();
    // Helm walks in the order of names, directories among the files.
    let mut pending: Vec<(String, bool)> = Vec::new();
    let push = |pending: &mut Vec<(String, bool)>, directory: &str, mut entries: Vec<FileEntry>| {
        entries.sort_by(|a, b| b.name.cmp(&a.name));
        pending.extend(entries.into_iter().map(|entry| {
            let path = match directory {
                "" => entry.name,
                directory => format!("{directory}/{}", entry.name),
            };
            (path, entry.is_directory)
        }));
    };
    push(&mut pending, "", top);
    while let Some((path, is_directory)) = pending.pop() {
        if rules.ignores(&path, is_directory) {
            continue;
        }
        if is_directory {
            // Directories cost, too: a tree of nothing else would have no end.
            budget.count(0)?;
            let entries = files.list(&path).map_err(failed)?;
            push(&mut pending, &path, entries);
            continue;
        }
        let data = files.read(&path, budget.next()).map_err(failed)?;
        budget.count(data.len())?;
        found.push(ChartFile::new(path, &data));
    }
    Ok(found)
}

/// Files in memory.
#[derive(Clone, Debug, Default)]
pub struct MemoryFiles(BTreeMap<String, Vec<u8>>);

impl MemoryFiles {
    /// These files, by their paths.
    pub fn new<P: Into<String>, D: Into<Vec<u8>>>(files: impl IntoIterator<Item = (P, D)>) -> Self {
        MemoryFiles(files.into_iter().map(|(path, data)| (path.into(), data.into())).collect())
    }
}

impl ChartFiles for MemoryFiles {
    fn list(&self, directory: &str) -> Result<Vec<FileEntry>, String> {
        let prefix = if directory.is_empty() { String::new() } else { format!("{directory}/") };
        let mut entries: Vec<FileEntry> = Vec::new();
        for path in self.0.keys().filter_map(|path| path.strip_prefix(&prefix)) {
            let (name, is_directory) = match path.split_once('/') {
                Some((name, _)) => (name, true),
                None => (path, false),
            };
            if entries.last().is_none_or(|last| last.name != name) {
                entries.push(FileEntry { name: name.to_owned(), is_directory });
            }
        }
        Ok(entries)
    }

    fn read(&self, path: &str, limit: usize) -> Result<Vec<u8>, String> {
        let data = self.0.get(path).ok_or_else(|| format!("no such file: {path}"))?;
        if data.len() > limit {
            return Err(format!(
                "chart file {path:?} is larger than the maximum file size {limit}"
            ));
        }
        Ok(data.clone())
    }
}
