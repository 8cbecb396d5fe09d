//! Saying that a long command is still at work: only on a terminal, and only after a while.

use std::io::{self, IsTerminal, Write};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::args::Format;

/// Who is faster than this says nothing.
const PATIENCE: Duration = Duration::from_secs(2);
const STEP: Duration = Duration::from_millis(500);

/// A line on the terminal that goes away with this.
pub(crate) struct Progress(Option<(Sender<()>, JoinHandle<()>)>);

impl Progress {
    /// Shows what is being done, if anybody can see it.
    pub(crate) fn start(what: &str, format: Format) -> Self {
        if !is_wanted(io::stderr().is_terminal(), format) {
            return Progress(None);
        }
        let what = what.to_owned();
        let (done, ended) = channel::<()>();
        let start = Instant::now();
        let shower = thread::spawn(move || {
            let mut shown = false;
            while ended.recv_timeout(STEP) == Err(RecvTimeoutError::Timeout) {
                if let Some(line) = line(&what, start.elapsed()) {
                    shown = true;
                    // Nobody there to read it is no reason to fail.
                    let _ = write!(io::stderr(), "\r{line}\x1b[K");
                }
            }
            if shown {
                let _ = write!(io::stderr(), "\r\x1b[K");
            }
        });
        Progress(Some((done, shower)))
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some((done, shower)) = self.0.take() {
            drop(done);
            // It has nothing to tell.
            let _ = shower.join();
        }
    }
}

/// Messages as JSON are for programs.
fn is_wanted(is_terminal: bool, format: Format) -> bool {
    is_terminal && format != Format::Json
}

fn line(what: &str, elapsed: Duration) -> Option<String> {
    (elapsed >= PATIENCE).then(|| format!("{what} … {} s", elapsed.as_secs()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_people_who_wait_see_progress() {
        assert!(is_wanted(true, Format::Text));
        assert!(!is_wanted(true, Format::Json));
        assert!(!is_wanted(false, Format::Text));
        assert_eq!(line("building x", Duration::from_millis(1999)), None);
        assert_eq!(line("building x", Duration::from_secs(3)).as_deref(), Some("building x … 3 s"));
    }
}
