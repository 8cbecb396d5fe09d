//! Running again when files change.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

use crate::exit::{CommandResult, Failure};
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
        match once() {
            Err(Failure::BrokenPipe) => return Err(Failure::BrokenPipe),
            Err(Failure::BadInput(problems)) => {
                problems.iter().for_each(|problem| ui.problem(problem));
            }
            Ok(_) => {}
        }
        ui.status("waiting for changes; press Ctrl-C to end");
        while look(paths) == before {
            std::thread::sleep(PAUSE);
        }
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
            let metadata = fs::metadata(&file).ok();
            let written = metadata.and_then(|m| Some((m.modified().ok()?, m.len())));
            seen.insert(file, written);
        }
    }
    seen
}
