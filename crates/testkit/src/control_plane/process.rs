//! Processes that end with us, however we end.

use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};

/// Runs the program in a group of its own and kills the group when the program has ended or when standard
/// input closes, which happens when the process with the other end ends.
const WATCHER: &str = r#"{ "$@" </dev/null; kill -9 0; } & cat >/dev/null; kill -9 0"#;

/// Removes a directory when standard input closes; again while a dying server still writes into it.
const REMOVER: &str = r#"cat >/dev/null; until rm -rf "$1"; do sleep 0.2; done"#;

/// A directory that goes when this value is dropped or our own process ends.
#[derive(Debug)]
pub(super) struct Removed(Child);

impl Removed {
    pub(super) fn spawn(directory: &Path) -> io::Result<Self> {
        let mut remover = Command::new("sh");
        remover.arg("-c").arg(REMOVER).arg("remover").arg(directory);
        remover.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        remover.spawn().map(Removed)
    }
}

impl Drop for Removed {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

/// A process, and all that it starts, that ends when this value is dropped or our own process ends.
#[derive(Debug)]
pub struct Watched {
    watcher: Mutex<Child>,
}

impl Watched {
    /// Starts a program; both its output streams go to a file. Arguments, directory and environment are taken from the command.
    pub fn spawn(command: &Command, log: &Path) -> io::Result<Self> {
        let log = File::create(log)?;
        let mut watcher = Command::new("sh");
        watcher.arg("-c").arg(WATCHER).arg("watcher").arg(command.get_program());
        watcher.args(command.get_args());
        if let Some(directory) = command.get_current_dir() {
            watcher.current_dir(directory);
        }
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => watcher.env(name, value),
                None => watcher.env_remove(name),
            };
        }
        watcher.stdin(Stdio::piped()).stdout(log.try_clone()?).stderr(log).process_group(0);
        Ok(Watched { watcher: Mutex::new(watcher.spawn()?) })
    }

    /// Whether the program has ended by itself.
    pub fn has_ended(&self) -> bool {
        let mut watcher = self.watcher.lock().unwrap_or_else(PoisonError::into_inner);
        !matches!(watcher.try_wait(), Ok(None))
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let watcher = self.watcher.get_mut().unwrap_or_else(PoisonError::into_inner);
        drop(watcher.stdin.take());
        let _ = watcher.wait();
    }
}
