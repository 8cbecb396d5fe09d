//! Running a command while showing and keeping what it prints.

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;

use anyhow::{Context, Result};

/// What a command printed (both streams, in the order the lines came) and whether it succeeded.
pub(crate) struct Finished {
    pub(crate) success: bool,
    pub(crate) lines: Vec<String>,
}

impl Finished {
    /// Nothing was to be done.
    pub(crate) fn nothing() -> Self {
        Finished { success: true, lines: Vec::new() }
    }

    /// It failed before it could print anything.
    pub(crate) fn failed(why: String) -> Self {
        eprintln!("{why}");
        Finished { success: false, lines: vec![why] }
    }
}

/// Runs a command, passing every line on as it comes.
pub(crate) fn stream(command: &mut Command) -> Result<Finished> {
    each_line(command, |_| true)
}

/// Runs a command to its end and shows what it printed then, in one piece: others may be running beside it.
pub(crate) fn collect(command: &mut Command) -> Result<Finished> {
    let finished = each_line(command, |_| false)?;
    let mut shown = finished.lines.join("\n");
    if !shown.is_empty() {
        shown.push('\n');
    }
    eprint!("{shown}");
    Ok(finished)
}

/// Runs a command, and passes on every line that the function wants shown, as it comes.
pub(crate) fn each_line(
    command: &mut Command,
    mut show: impl FnMut(&str) -> bool,
) -> Result<Finished> {
    let shown = format!("{command:?}");
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start {shown}"))?;
    let (send, receive) = mpsc::channel();
    let streams: [Option<Box<dyn Read + Send>>; 2] = [
        child.stdout.take().map(|s| Box::new(s) as Box<dyn Read + Send>),
        child.stderr.take().map(|s| Box::new(s) as Box<dyn Read + Send>),
    ];
    for stream in streams.into_iter().flatten() {
        let send = send.clone();
        thread::spawn(move || {
            let mut reader = BufReader::new(stream);
            let mut line = Vec::new();
            while reader.read_until(b'\n', &mut line).is_ok_and(|n| n > 0) {
                let text = String::from_utf8_lossy(&line).trim_end_matches('\n').to_owned();
                if send.send(text).is_err() {
                    return;
                }
                line.clear();
            }
        });
    }
    drop(send);
    let mut lines = Vec::new();
    for line in receive {
        if show(&line) {
            eprintln!("{line}");
        }
        lines.push(line);
    }
    let status = child.wait().with_context(|| format!("cannot wait for {shown}"))?;
    Ok(Finished { success: status.success(), lines })
}
