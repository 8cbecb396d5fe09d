//! Archives whose bytes depend on nothing but names, modes and contents: entries are sorted, belong to root, and have
//! the time of the commit.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;

use anyhow::{Context, Result};
use flate2::{Compression, GzBuilder};
use tar::{EntryType, Header};

/// Files to put into an archive, by path.
#[derive(Default)]
pub(super) struct Tree {
    files: BTreeMap<String, (u32, Vec<u8>)>,
    /// Directories that have another mode than usual.
    directories: BTreeMap<String, u32>,
}

impl Tree {
    pub(super) fn file(&mut self, path: &str, bytes: impl Into<Vec<u8>>) {
        self.files.insert(path.to_owned(), (0o644, bytes.into()));
    }

    pub(super) fn executable(&mut self, path: &str, bytes: impl Into<Vec<u8>>) {
        self.files.insert(path.to_owned(), (0o755, bytes.into()));
    }

    pub(super) fn directory(&mut self, path: &str, mode: u32) {
        self.directories.insert(path.to_owned(), mode);
    }

    /// The archive, not compressed. Directories stand before what is in them.
    pub(super) fn tar(&self, time: u64) -> Result<Vec<u8>> {
        let mut directories: BTreeSet<&str> = self.directories.keys().map(String::as_str).collect();
        for path in self.files.keys().chain(self.directories.keys()) {
            directories.extend(path.match_indices('/').map(|(at, _)| &path[..at]));
        }
        let mut archive = tar::Builder::new(Vec::new());
        for directory in directories {
            let mode = self.directories.get(directory).copied().unwrap_or(0o755);
            let mut header = header(EntryType::Directory, mode, 0, time);
            archive.append_data(&mut header, format!("{directory}/"), std::io::empty())?;
        }
        for (path, (mode, bytes)) in &self.files {
            let mut header = header(EntryType::Regular, *mode, bytes.len() as u64, time);
            archive
                .append_data(&mut header, path, bytes.as_slice())
                .with_context(|| path.clone())?;
        }
        Ok(archive.into_inner()?)
    }
}

fn header(kind: EntryType, mode: u32, size: u64, time: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(size);
    header.set_mtime(time);
    header.set_uid(0);
    header.set_gid(0);
    header
}

/// Compressed, without a name or a time in the header.
pub(super) fn gzip(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut encoder = GzBuilder::new().mtime(0).write(Vec::new(), Compression::best());
    encoder.write_all(bytes)?;
    Ok(encoder.finish()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Path, kind, mode, owner and time of each entry.
    fn entries(tar: &[u8]) -> Vec<(String, EntryType, u32, u64, u64)> {
        let mut archive = tar::Archive::new(tar);
        let entries = archive.entries().unwrap().map(|entry| {
            let entry = entry.unwrap();
            let header = entry.header();
            let path = entry.path().unwrap().to_str().unwrap().to_owned();
            let owner = header.uid().unwrap() + header.gid().unwrap();
            let kind = header.entry_type();
            (path, kind, header.mode().unwrap(), owner, header.mtime().unwrap())
        });
        entries.collect()
    }

    #[test]
    fn the_order_in_which_files_are_added_leaves_no_trace() {
        let mut one = Tree::default();
        one.executable("kiln/kiln", "program");
        one.file("kiln/man/man1/kiln.1", "page");
        one.directory("kiln/tmp", 0o1777);
        let mut other = Tree::default();
        other.directory("kiln/tmp", 0o1777);
        other.file("kiln/man/man1/kiln.1", "page");
        other.executable("kiln/kiln", "program");
        let tar = one.tar(7).unwrap();
        assert_eq!(tar, other.tar(7).unwrap());
        let (directory, file) = (EntryType::Directory, EntryType::Regular);
        let expected = [
            ("kiln/", directory, 0o755),
            ("kiln/man/", directory, 0o755),
            ("kiln/man/man1/", directory, 0o755),
            ("kiln/tmp/", directory, 0o1777),
            ("kiln/kiln", file, 0o755),
            ("kiln/man/man1/kiln.1", file, 0o644),
        ];
        let expected: Vec<_> =
            expected.map(|(path, kind, mode)| (path.to_owned(), kind, mode, 0, 7)).into();
        assert_eq!(entries(&tar), expected);
        assert_eq!(gzip(&tar).unwrap(), gzip(&tar).unwrap());
        assert_ne!(tar, one.tar(8).unwrap());
    }

    #[test]
    fn long_names_are_kept() {
        let mut tree = Tree::default();
        let name = format!("{}/{}", "a".repeat(90), "b".repeat(120));
        tree.file(&name, "x");
        assert_eq!(entries(&tree.tar(0).unwrap()).pop().unwrap().0, name);
    }
}
