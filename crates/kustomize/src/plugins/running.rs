//! Asking programs: side by side where they know nothing of each other, twice where they are checked.

use kiln_diagnostic::{Diagnostic, Severity};

use crate::build::session::Session;
use crate::error::{Error, Result};
use crate::host::{Command, Exit, Finished, Trust};

/// The signal that cannot be ignored.
const KILLED: i32 = 9;

/// How programs say that the sandbox kept them from something.
const REFUSED: [&str; 5] = [
    "ermission denied",
    "not permitted",
    "ead-only file system",
    "name resolution",
    "not resolve host",
];

/// Runs programs that know nothing of each other; the answers come in the order of the commands.
pub(super) fn ask(commands: Vec<Command>, session: &Session<'_>) -> Vec<Result<Finished>> {
    if commands
        .iter()
        .any(|command| matches!(command.trust, Trust::Plugin(_) | Trust::Function { .. }))
    {
        session.warn_if_unconfined();
    }
    if !session.options.check_plugins {
        return session.programs.run_all(&commands);
    }
    let twice: Vec<Command> = commands.into_iter().flat_map(|c| [c.clone(), c]).collect();
    let answers = session.programs.run_all(&twice);
    let mut answers = answers.into_iter();
    let mut checked = Vec::new();
    let mut commands = twice.iter().step_by(2);
    while let (Some(first), Some(second), Some(command)) =
        (answers.next(), answers.next(), commands.next())
    {
        checked.push(same(first, second, command));
    }
    checked
}

/// Runs one program.
pub(super) fn ask_one(command: Command, session: &Session<'_>) -> Result<Finished> {
    ask(vec![command], session).pop().unwrap_or_else(|| Err(Error::new("the host ran no program")))
}

/// The first of two answers, if the second says the same.
fn same(first: Result<Finished>, second: Result<Finished>, command: &Command) -> Result<Finished> {
    let (first, second) = (first?, second?);
    let differs = if first.stopped.is_some() || second.stopped.is_some() {
        return Ok(if first.stopped.is_some() { first } else { second });
    } else if first.exit != second.exit {
        format!("{} and then {}", first.exit, second.exit)
    } else if first.exit.is_success() && first.output != second.output {
        let line = first
            .output
            .split(|byte| *byte == b'\n')
            .zip(second.output.split(|byte| *byte == b'\n'))
            .position(|(a, b)| a != b);
        match line {
            Some(line) => format!("line {} of its output is another", line + 1),
            None => "one output is longer".to_owned(),
        }
    } else {
        return Ok(first);
    };
    Err(Error::new(format!(
        "plugin {} gives two answers to the same input: {differs}",
        command.program
    ))
    .hint("a plugin must depend on nothing but its input and the files of the kustomization"))
}

/// Shows what a program that succeeded said on standard error.
pub(super) fn forward(name: &str, finished: &Finished, session: &Session<'_>) {
    let said = finished.errors.trim();
    if !said.is_empty() {
        session.warn(Diagnostic::new(Severity::Note, format!("{name} says: {said}")));
    }
}

/// What a program that failed said, to be put behind a message.
pub(super) fn said(finished: &Finished) -> String {
    let said = finished.errors.trim();
    if said.is_empty() { String::new() } else { format!(": {said}") }
}

/// What to do about a program that failed.
pub(super) fn advice(program: &str, finished: &Finished) -> String {
    let mut advice = format!("it is the executable {program}");
    if finished.exit == Exit::Signal(KILLED) && finished.stopped.is_none() {
        advice.push_str("; Kiln did not send that signal, the system may have run out of memory");
    }
    if REFUSED.iter().any(|words| finished.errors.contains(words)) {
        advice.push_str("; --plugin-read and --plugin-write let it touch more files than those of its kustomization, --network lets it use the network");
    }
    advice
}
