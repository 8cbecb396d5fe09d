//! Files and standard input in, files out; every error names the path.

use std::fs::{self, File};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use kiln_diagnostic::Diagnostic;

use crate::ui;

/// What a user gave us to read: its name as the user knows it, and its bytes.
pub(crate) struct Input {
    pub(crate) name: String,
    pub(crate) bytes: Vec<u8>,
}

/// Whether standard input was read: the second time there is nothing left.
static STDIN_IS_READ: AtomicBool = AtomicBool::new(false);

/// Reads a file, or standard input for `-`, but never more than the limit.
pub(crate) fn read(path: &str, limit: u64) -> Result<Input, Diagnostic> {
    if path == "-" {
        if STDIN_IS_READ.swap(true, Ordering::Relaxed) {
            return Err(Diagnostic::error("standard input can be read only once")
                .hint("use - for one thing, and files for the others"));
        }
        return read_limited(io::stdin().lock(), "<stdin>", limit);
    }
    let file = File::open(path).map_err(|error| {
        let problem = cannot("read", path, &error);
        match path.starts_with("http://") || path.starts_with("https://") {
            true => problem.hint(format!(
                "only kiln build fetches; others read what you fetch: curl -fsSL {path} | kiln … -"
            )),
            false => problem,
        }
    })?;
    if file.metadata().is_ok_and(|metadata| metadata.is_dir()) {
        return Err(Diagnostic::error(format!("{path} is a directory"))
            .hint("name the files in it, or use a command that takes directories"));
    }
    read_limited(file, path, limit)
}

fn read_limited(stream: impl Read, name: &str, limit: u64) -> Result<Input, Diagnostic> {
    let mut bytes = Vec::new();
    // One byte more than allowed tells that there is more, without reading the rest.
    stream
        .take(limit.saturating_add(1))
        .read_to_end(&mut bytes)
        .map_err(|error| cannot("read", name, &error))?;
    if bytes.len() as u64 > limit {
        return Err(Diagnostic::error(format!("{name} is larger than {limit} bytes"))
            .hint("raise the limit with --max-input-size"));
    }
    Ok(Input { name: name.to_owned(), bytes })
}

/// What becomes of links among the files of a directory. One that a user names is always followed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Links {
    /// They are read like the files that they lead to.
    Follow,
    /// They are left alone.
    PassOver,
}

/// The YAML and JSON files behind a path: itself, or everything below a directory in the order of names. What is passed
/// over is said.
pub(crate) fn expand(path: &str, links: Links) -> Result<Vec<String>, Diagnostic> {
    if path == "-" || !Path::new(path).is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut files = entries_below(path)?;
    files.retain(|file| {
        let why = match Path::new(file) {
            file if links == Links::PassOver && file.is_symlink() => "a link",
            file if is_special(file) => "not a regular file",
            _ => return true,
        };
        ui::status(&format!("{} is skipped: it is {why}", ui::plain(file)));
        false
    });
    if files.is_empty() {
        return Err(Diagnostic::error(format!("there is no YAML or JSON file below {path}")));
    }
    Ok(files)
}

/// The YAML and JSON files below a directory, in the order of names.
pub(crate) fn files_below(path: &str) -> Result<Vec<String>, Diagnostic> {
    let mut files = entries_below(path)?;
    files.retain(|file| !is_special(Path::new(file)));
    Ok(files)
}

/// Whether something is there that is neither file nor directory: reading a pipe would wait for a writer, for ever.
fn is_special(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| !metadata.is_file() && !metadata.is_dir())
}

/// What is named like a YAML or JSON file below a directory, in the order of names.
fn entries_below(path: &str) -> Result<Vec<String>, Diagnostic> {
    let mut files = Vec::new();
    let mut directories = vec![PathBuf::from(path)];
    while let Some(directory) = directories.pop() {
        let shown = directory.display().to_string();
        let entries = fs::read_dir(&directory).map_err(|error| cannot("read", &shown, &error))?;
        for entry in entries {
            let entry = entry.map_err(|error| cannot("read", &shown, &error))?.path();
            let ending = entry.extension().and_then(|ending| ending.to_str());
            if entry.is_symlink() && entry.is_dir() {
                // A link to a directory above would never end.
                continue;
            } else if entry.is_dir() {
                directories.push(entry);
            } else if matches!(ending, Some("yaml" | "yml" | "json")) {
                files.push(entry.display().to_string());
            }
        }
    }
    files.sort();
    Ok(files)
}

/// Writes a file that rules made.
pub(crate) fn write_file(path: &Path, text: &str) -> Result<(), Diagnostic> {
    fs::write(path, text).map_err(|error| cannot("write", &path.display().to_string(), &error))
}

/// A file that was not there before, for this user alone until the caller changes it.
fn new_private(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

/// The new text of a file, written beside it and not yet in its place.
///
/// Once it is put in place, a crash leaves the old text or the new one, never half of it. Dropped before
/// that, it leaves nothing behind.
pub(crate) struct Replacement {
    temporary: PathBuf,
    target: PathBuf,
    shown: String,
}

impl Replacement {
    /// Writes the new text beside the file.
    pub(crate) fn prepare(path: &str, text: &str) -> Result<Self, Diagnostic> {
        let failed = |error: io::Error| cannot("write", path, &error);
        // A link stays a link: what it points at is replaced.
        let target = fs::canonicalize(path).map_err(failed)?;
        let temporary =
            target.with_file_name(format!(".kiln-{:016x}", RandomState::new().hash_one(path)));
        // Only a new file will do: one that is there already could be a link to anywhere.
        let mut file = new_private(&temporary).map_err(failed)?;
        let replacement = Replacement { temporary, target, shown: path.to_owned() };
        file.write_all(text.as_bytes())
            .and_then(|()| file.set_permissions(fs::metadata(&replacement.target)?.permissions()))
            .and_then(|()| file.sync_all())
            .map_err(failed)?;
        Ok(replacement)
    }

    /// Puts the new text in the file's place.
    pub(crate) fn put(self) -> Result<(), Diagnostic> {
        fs::rename(&self.temporary, &self.target)
            .map_err(|error| cannot("write", &self.shown, &error))
    }
}

impl Drop for Replacement {
    fn drop(&mut self) {
        // After it was put in place there is nothing of that name any more.
        let _ = fs::remove_file(&self.temporary);
    }
}

pub(crate) fn cannot(verb: &str, path: &str, error: &io::Error) -> Diagnostic {
    let problem = match error.kind() {
        io::ErrorKind::NotFound => "no such file or directory".to_owned(),
        io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        _ => error.to_string(),
    };
    Diagnostic::error(format!("cannot {verb} {path}: {problem}"))
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn new_text_is_private_until_it_has_the_mode_of_the_old() {
        let directory = tempfile::tempdir().unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let path = directory.path().join("new");
        drop(new_private(&path).unwrap());
        assert_eq!(mode(&path), 0o600);
        assert!(new_private(&path).is_err(), "an existing file is not opened");
        let old = directory.path().join("old.yaml");
        fs::write(&old, "a").unwrap();
        fs::set_permissions(&old, fs::Permissions::from_mode(0o640)).unwrap();
        Replacement::prepare(&old.display().to_string(), "b").unwrap().put().unwrap();
        assert_eq!((mode(&old), fs::read_to_string(&old).unwrap().as_str()), (0o640, "b"));
    }
}
