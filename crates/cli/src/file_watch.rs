//! Running again when files change.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

use kiln_kustomize::fs::{DirectoryEntry, FileError, FileSystem, Resolved};

use crate::exit::{CommandFailure, CommandResult};
use crate::input;
use crate::ui::Ui;

/// How often files are looked at. People do not notice less, and a thousand files cost next to nothing.
const PAUSE: Duration = Duration::from_millis(300);

/// When each file was written last, and its size.
type Seen = BTreeMap<String, Option<(SystemTime, u64)>>;

/// Runs, and again whenever a file at or below the paths appears, changes or goes. It ends when the reader of
/// the output goes away, or by being interrupted.
pub(crate) fn run(
    ui: &Ui,
    paths: &[String],
    mut once: impl FnMut() -> CommandResult,
) -> CommandResult {
    loop {
        let before = look(paths);
        show(ui, once())?;
        while look(paths) == before {
            std::thread::sleep(PAUSE);
        }
    }
}

/// Runs, and again whenever something changes that the last run asked its file system for.
pub(crate) fn run_recorded(
    ui: &Ui,
    files: &RecordedFiles<'_>,
    mut once: impl FnMut() -> CommandResult,
) -> CommandResult {
    loop {
        files.asked.borrow_mut().clear();
        show(ui, once())?;
        // As each file was when it was asked for: what changed during the run counts.
        let before = files.asked.borrow().clone();
        while before.iter().all(|(path, then)| written(path) == *then) {
            std::thread::sleep(PAUSE);
        }
    }
}

/// Shows what kept a run from its work, and that there will be another one.
fn show(ui: &Ui, result: CommandResult) -> Result<(), CommandFailure> {
    match result {
        Err(CommandFailure::BrokenPipe) => return Err(CommandFailure::BrokenPipe),
        Err(CommandFailure::BadInput(problems)) => {
            problems.iter().for_each(|problem| ui.problem(problem));
        }
        Ok(_) => {}
    }
    ui.status("waiting for changes; press Ctrl-C to end");
    Ok(())
}

fn written(path: &str) -> Option<(SystemTime, u64)> {
    let metadata = fs::metadata(path).ok()?;
    // A directory is asked for only to be found: what is written into it is no change of it.
    let length = if metadata.is_dir() { 0 } else { metadata.len() };
    let time = if metadata.is_dir() { SystemTime::UNIX_EPOCH } else { metadata.modified().ok()? };
    Some((time, length))
}

/// A file system that remembers what it was asked for.
pub(crate) struct RecordedFiles<'f> {
    files: &'f dyn FileSystem,
    asked: RefCell<Seen>,
}

impl<'f> RecordedFiles<'f> {
    pub(crate) fn over(files: &'f dyn FileSystem) -> Self {
        RecordedFiles { files, asked: RefCell::default() }
    }

    fn note(&self, path: &str) {
        let mut asked = self.asked.borrow_mut();
        asked.entry(path.to_owned()).or_insert_with(|| written(path));
    }
}

impl FileSystem for RecordedFiles<'_> {
    fn resolve(&self, path: &str) -> Result<Resolved, FileError> {
        self.note(path);
        self.files.resolve(path)
    }

    fn read(&self, path: &str, limit: usize) -> Result<Vec<u8>, FileError> {
        self.note(path);
        self.files.read(path, limit)
    }

    fn read_resolved(&self, path: &str, limit: usize) -> Result<Vec<u8>, FileError> {
        self.note(path);
        self.files.read_resolved(path, limit)
    }

    fn is_executable(&self, path: &str) -> Option<bool> {
        self.note(path);
        self.files.is_executable(path)
    }

    fn list(&self, path: &str) -> Result<Vec<DirectoryEntry>, FileError> {
        self.note(path);
        self.files.list(path)
    }

    fn links_below(&self, path: &str) -> Result<Vec<String>, FileError> {
        self.files.links_below(path)
    }
}

fn look(paths: &[String]) -> Seen {
    let mut seen = Seen::new();
    for path in paths {
        // A suite's files lie beside it.
        let directory = match Path::new(path) {
            path if path.is_dir() => path,
            path => {
                path.parent().filter(|parent| *parent != Path::new("")).unwrap_or(Path::new("."))
            }
        };
        let files = input::files_below(&directory.display().to_string()).unwrap_or_default();
        for file in files {
            let written = written(&file);
            seen.insert(file, written);
        }
    }
    seen
}
