//! One process from its start to its end, within limits.
//!
//! Three threads carry the streams, so that a process may read and write in any order, or not at all. They are
//! not waited for once the process was stopped: a child process that inherited a stream may keep it open for ever.

use std::io::{self, Read, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use super::running::{GRACE, ProcessKind, Running, Started};
use crate::host::Exit;

/// Of what a process writes to standard error, this much is kept.
const MAX_ERRORS: usize = 1 << 20;
/// Waiting for an end is asked for again after at most this long.
const LONGEST_NAP: Duration = Duration::from_millis(10);
/// As good as no limit.
const FAR: Duration = Duration::from_secs(u32::MAX as u64);

/// How a process ended.
pub(super) struct Ended {
    pub(super) exit: Exit,
    pub(super) output: Vec<u8>,
    pub(super) errors: String,
    /// Why it was stopped, if it was.
    pub(super) stopped: Option<String>,
}

/// What a process is given, and what it may use.
pub(super) struct Job<'j> {
    pub(super) kind: ProcessKind,
    /// A name that no other run has.
    pub(super) name: &'j str,
    pub(super) input: &'j [u8],
    pub(super) time: Option<Duration>,
    pub(super) most_output: u64,
}

enum ProcessEvent {
    Output(io::Result<Vec<u8>>),
    Errors(Vec<u8>),
}

/// Runs a process; one that takes longer, or writes more, is stopped with whatever it started.
///
/// # Errors
/// When it cannot be started.
pub(super) fn run(mut command: Command, job: Job<'_>, running: &Running) -> io::Result<Ended> {
    let Job { kind, name, input, time, most_output } = job;
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let (mut child, started) = running.start(&mut command, kind, name)?;
    let deadline = time.and_then(|time| Instant::now().checked_add(time));
    let events = carry(&mut child, input.to_vec(), most_output);
    let mut watched = Watched { child, events, output: None, errors: None };

    let outcome = match started.kind() {
        ProcessKind::Git => watched.until_its_end(deadline),
        ProcessKind::Tool | ProcessKind::Plugin { .. } | ProcessKind::Container { .. } => {
            watched.until(deadline, || started.tell_output_ended())
        }
    };
    let why = match outcome {
        ProcessEnd::Ended(exit) => return watched.finish(exit, None, &started),
        ProcessEnd::TooLong if *started.kind() == ProcessKind::Git => {
            format!("hit {}s timeout", time.unwrap_or_default().as_secs())
        }
        ProcessEnd::TooLong => {
            let time = time.unwrap_or_default();
            format!("it was stopped after {time:?} (--plugin-timeout allows more)")
        }
        ProcessEnd::TooMuch => format!(
            "it was stopped: it wrote more than {most_output} bytes (--plugin-max-output allows more)"
        ),
    };
    started.stop(|until| watched.ended_until(until).is_some());
    // Without groups nothing was sent to it; with them it has ended already.
    let _ = watched.child.kill();
    watched.gather(Instant::now() + GRACE);
    watched.finish(Exit::Code(-1), Some(why), &started)
}

enum ProcessEnd {
    Ended(Exit),
    TooLong,
    TooMuch,
}

struct Watched {
    child: Child,
    events: Receiver<ProcessEvent>,
    output: Option<io::Result<Vec<u8>>>,
    errors: Option<Vec<u8>>,
}

impl Watched {
    /// Waits for both streams to close, which is reported, and for the end.
    fn until(&mut self, deadline: Option<Instant>, output_ended: impl FnOnce()) -> ProcessEnd {
        let far = Instant::now() + FAR;
        let deadline = deadline.unwrap_or(far);
        if !self.gather(deadline) {
            return ProcessEnd::TooLong;
        }
        if self.wrote_too_much() {
            return ProcessEnd::TooMuch;
        }
        output_ended();
        self.ended_until(deadline).map_or(ProcessEnd::TooLong, ProcessEnd::Ended)
    }

    /// Waits for the end alone: helpers that are meant to stay, like a shared connection of ssh, keep the
    /// streams open.
    fn until_its_end(&mut self, deadline: Option<Instant>) -> ProcessEnd {
        let far = Instant::now() + FAR;
        let Some(exit) = self.ended_until(deadline.unwrap_or(far)) else {
            return ProcessEnd::TooLong;
        };
        if !exit.is_success() {
            // What it said about that is there at once.
            self.gather(Instant::now() + GRACE);
        }
        ProcessEnd::Ended(exit)
    }

    fn wrote_too_much(&self) -> bool {
        matches!(&self.output, Some(Err(error)) if error.kind() == io::ErrorKind::FileTooLarge)
    }

    /// Takes in what the streams carried, until they close or one carried too much.
    fn gather(&mut self, deadline: Instant) -> bool {
        while self.output.is_none() || (self.errors.is_none() && !self.wrote_too_much()) {
            match self.events.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(ProcessEvent::Output(output)) => self.output = Some(output),
                Ok(ProcessEvent::Errors(errors)) => self.errors = Some(errors),
                Err(RecvTimeoutError::Timeout) => return false,
                Err(RecvTimeoutError::Disconnected) => return true,
            }
        }
        true
    }

    fn ended_until(&mut self, deadline: Instant) -> Option<Exit> {
        let mut nap = Duration::from_micros(50);
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) => return Some(exit(status)),
                Ok(None) if Instant::now() < deadline => thread::sleep(nap),
                Ok(None) | Err(_) => return None,
            }
            nap = (nap * 2).min(LONGEST_NAP);
        }
    }

    fn finish(self, exit: Exit, stopped: Option<String>, started: &Started) -> io::Result<Ended> {
        // What it left running would outlive the build.
        started.sweep();
        let errors = self.errors.unwrap_or_default();
        let output = match (self.output, &stopped) {
            (Some(output), None) => output?,
            _ => Vec::new(),
        };
        Ok(Ended { exit, output, errors: String::from_utf8_lossy(&errors).into_owned(), stopped })
    }
}

fn exit(status: ExitStatus) -> Exit {
    #[cfg(unix)]
    if let Some(signal) = std::os::unix::process::ExitStatusExt::signal(&status) {
        return Exit::Signal(signal);
    }
    Exit::Code(status.code().unwrap_or(-1))
}

fn carry(child: &mut Child, input: Vec<u8>, most_output: u64) -> Receiver<ProcessEvent> {
    let (to, events) = mpsc::channel();
    if let Some(mut stdin) = child.stdin.take() {
        // A process that does not read its input is not a failure.
        thread::spawn(move || drop(stdin.write_all(&input)));
    }
    if let Some(stdout) = child.stdout.take() {
        let to = to.clone();
        thread::spawn(move || send(&to, ProcessEvent::Output(read_at_most(stdout, most_output))));
    }
    if let Some(stderr) = child.stderr.take() {
        thread::spawn(move || send(&to, ProcessEvent::Errors(keep_the_start(stderr))));
    }
    events
}

fn send(to: &Sender<ProcessEvent>, event: ProcessEvent) {
    // The stream is not read any more once the process was stopped.
    let _ = to.send(event);
}

fn read_at_most(from: impl Read, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok(bytes)
}

/// Reads everything, so that the writer does not block, and forgets what is too much.
fn keep_the_start(mut from: impl Read) -> Vec<u8> {
    let mut kept = Vec::new();
    let mut buffer = [0; 8192];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        let room = MAX_ERRORS - kept.len();
        kept.extend_from_slice(&buffer[..count.min(room)]);
    }
    kept
}
