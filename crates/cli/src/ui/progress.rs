//! Saying that a long command is still at work: only on a terminal, and only after a while.

use std::cell::Cell;
use std::io::{self, IsTerminal, Write};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::args::OutputFormat;

/// Who is faster than this says nothing.
const PATIENCE: Duration = Duration::from_secs(2);
const STEP: Duration = Duration::from_millis(500);

/// A line on the terminal that goes away with this.
pub(crate) struct Progress(Option<(Sender<()>, JoinHandle<()>)>);

impl Progress {
    /// Shows what is being done, if standard error is a terminal.
    pub(crate) fn start(what: &str, format: OutputFormat) -> Self {
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
                    // A closed standard error is not a failure.
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

/// How many of several things are done: a line on the terminal that goes away with this.
pub(crate) struct Counter {
    of: usize,
    done: Cell<usize>,
    is_wanted: bool,
    start: Instant,
}

impl Counter {
    /// Counts up to so many, if standard error is a terminal.
    pub(crate) fn start(of: usize, format: OutputFormat) -> Self {
        let is_wanted = is_wanted(io::stderr().is_terminal(), format);
        Counter { of, done: Cell::new(0), is_wanted, start: Instant::now() }
    }

    /// Makes room for a message.
    pub(crate) fn hide(&self) {
        if self.is_wanted {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }

    /// One more is done.
    pub(crate) fn done(&self) {
        self.done.set(self.done.get() + 1);
        if self.is_wanted && self.done.get() < self.of {
            let line = format!("{} of {} suites", self.done.get(), self.of);
            let _ = write!(io::stderr(), "\r{line} … {} s\x1b[K", self.start.elapsed().as_secs());
        }
    }
}

impl Drop for Counter {
    fn drop(&mut self) {
        self.hide();
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
fn is_wanted(is_terminal: bool, format: OutputFormat) -> bool {
    is_terminal && format != OutputFormat::Json
}

fn line(what: &str, elapsed: Duration) -> Option<String> {
    (elapsed >= PATIENCE).then(|| format!("{what} … {} s", elapsed.as_secs()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_people_who_wait_see_progress() {
        assert!(is_wanted(true, OutputFormat::Text));
        assert!(!is_wanted(true, OutputFormat::Json));
        assert!(!is_wanted(false, OutputFormat::Text));
        assert_eq!(line("building x", Duration::from_millis(1999)), None);
        assert_eq!(line("building x", Duration::from_secs(3)).as_deref(), Some("building x … 3 s"));
    }
}
