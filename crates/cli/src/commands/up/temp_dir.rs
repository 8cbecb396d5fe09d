//! The directory for temporary files that goes with a sandbox, and those that killed ones left behind.
//!
//! A process that uses a directory holds a lock on it, which ends with the process however that ends. A directory without a lock
//! is swept at the next start. The lock is the only thing that is asked: numbers of processes come back.

use std::fs::{self, File, TryLockError};
#[cfg(unix)]
use std::fs::{OpenOptions, Permissions};
#[cfg(unix)]
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

use kiln_diagnostic::Diagnostic;
#[cfg(unix)]
use nix::fcntl::OFlag;
#[cfg(unix)]
use nix::unistd::Uid;
use tempfile::TempDir;

use crate::input::cannot;

const PREFIX: &str = "kiln-up-";
/// A file that says that a directory is for temporary files: people may name their own directories as they like.
const MARK: &str = ".temporary";
/// How often a directory may be swept away between its making and its lock.
const TRIES: usize = 10;

/// A directory with an unpredictable name that no other user may read, removed when it is dropped.
#[derive(Debug)]
pub(in crate::commands) struct PrivateDir {
    // Removed before the lock ends.
    directory: TempDir,
    _held: File,
}

impl PrivateDir {
    pub(in crate::commands) fn path(&self) -> &Path {
        self.directory.path()
    }
}

/// Makes a directory, and sweeps unused ones.
pub(in crate::commands) fn private_dir() -> Result<PrivateDir, Diagnostic> {
    let parent = std::env::temp_dir();
    #[cfg(unix)]
    sweep(&parent);
    let failed = |error: &std::io::Error| {
        cannot("make a directory in", &parent.display().to_string(), error)
            .hint("set TMPDIR to a writable directory")
    };
    for _ in 0..TRIES {
        let mut builder = tempfile::Builder::new();
        builder.prefix(PREFIX);
        #[cfg(unix)]
        builder.permissions(Permissions::from_mode(0o700));
        let made = builder.tempdir_in(&parent).map_err(|error| failed(&error))?;
        if let Some(held) = hold(made.path()) {
            fs::write(made.path().join(MARK), "").map_err(|error| failed(&error))?;
            return Ok(PrivateDir { directory: made, _held: held });
        }
    }
    Err(failed(&std::io::Error::other("other processes remove it at once")))
}

/// The lock on a directory that was just made; none if it was removed as unused meanwhile.
fn hold(path: &Path) -> Option<File> {
    let file = open(path).ok()?;
    match file.try_lock() {
        Ok(()) => path.exists().then_some(file),
        Err(TryLockError::WouldBlock) => None,
        // No locks there: it cannot be swept either.
        Err(TryLockError::Error(_)) => Some(file),
    }
}

/// Windows cannot open directories: a file in it stands for it. Nothing is swept there.
#[cfg(not(unix))]
fn open(path: &Path) -> std::io::Result<File> {
    File::create(path.join(".lock"))
}

/// Opens a directory, and no link to one.
#[cfg(unix)]
fn open(path: &Path) -> std::io::Result<File> {
    let only = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW;
    OpenOptions::new().read(true).custom_flags(only.bits()).open(path)
}

/// Removes directories of this user for temporary files that no process holds. What cannot be removed stays.
#[cfg(unix)]
fn sweep(parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    for entry in entries.flatten() {
        if !entry.file_name().to_str().is_some_and(|name| name.starts_with(PREFIX)) {
            continue;
        }
        let Ok(file) = open(&entry.path()) else { continue };
        let is_ours = file.metadata().is_ok_and(|found| {
            found.uid() == Uid::effective().as_raw() && found.mode() & 0o777 == 0o700
        }) && entry.path().join(MARK).exists();
        // The lock is held until the directory is gone: a process that is creating it sees that.
        if is_ours && file.try_lock().is_ok() {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn only_what_nobody_holds_is_swept() {
        let parent = tempfile::tempdir().unwrap();
        let make = |name: &str, mode: u32| {
            let path = parent.path().join(name);
            fs::create_dir(&path).unwrap();
            fs::write(path.join("kubeconfig"), "secret").unwrap();
            fs::write(path.join(MARK), "").unwrap();
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            path
        };
        let dead = make("kiln-up-dead", 0o700);
        let alive = make("kiln-up-alive", 0o700);
        let others = [make("kiln-up-of-mine", 0o755), make("something", 0o700)];
        let link = parent.path().join("kiln-up-link");
        std::os::unix::fs::symlink(&others[1], &link).unwrap();
        let data = make("kiln-up-data", 0o700);
        fs::remove_file(data.join(MARK)).unwrap();
        let held = hold(&alive).unwrap();
        assert!(hold(&alive).is_none());
        sweep(parent.path());
        assert!(!dead.exists());
        for path in [&alive, &others[0], &others[1], &link, &data] {
            assert!(path.join("kubeconfig").exists(), "{}", path.display());
        }
        drop(held);
        sweep(parent.path());
        assert!(!alive.exists());
        assert!(hold(&alive).is_none());
    }

    #[test]
    fn directories_are_made_while_others_sweep() {
        let parent = tempfile::tempdir().unwrap();
        let work = || {
            for _ in 0..200 {
                sweep(parent.path());
                let made = tempfile::Builder::new()
                    .prefix(PREFIX)
                    .permissions(Permissions::from_mode(0o700))
                    .tempdir_in(parent.path())
                    .unwrap();
                fs::write(made.path().join(MARK), "").unwrap_or_default();
                if let Some(_held) = hold(made.path()) {
                    std::thread::yield_now();
                    assert!(made.path().exists());
                }
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(work);
            }
        });
    }
}
