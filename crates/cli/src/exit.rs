//! How a command ends.
//!
//! The codes are stable: 0 done · 1 it ran and the answer is no (a test failed, an object was
//! rejected, an expression failed, `--check` differs) · 2 bad input or usage.

use std::io;
use std::process::ExitCode;

use kiln_diagnostic::Diagnostic;

/// A command that ran to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CommandOutcome {
    /// Exit code 0.
    Done,
    /// It ran, and the answer is no.
    Negative,
    /// It ran, and the user asked for this code in such a case.
    Code(u8),
}

/// A command that could not do its work.
#[derive(Debug)]
pub(crate) enum CommandFailure {
    /// Bad input or usage.
    BadInput(Vec<Diagnostic>),
    /// The reader of our output has closed the pipe, which is not an error.
    BrokenPipe,
}

/// What commands return.
pub(crate) type CommandResult = Result<CommandOutcome, CommandFailure>;

impl From<Diagnostic> for CommandFailure {
    fn from(problem: Diagnostic) -> Self {
        CommandFailure::BadInput(vec![problem])
    }
}

impl From<Vec<Diagnostic>> for CommandFailure {
    fn from(problems: Vec<Diagnostic>) -> Self {
        CommandFailure::BadInput(problems)
    }
}

/// Errors of writing to standard output. Files are written through [`crate::input`], which names them.
impl From<io::Error> for CommandFailure {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return CommandFailure::BrokenPipe;
        }
        Diagnostic::error(format!("cannot write to standard output: {error}")).into()
    }
}

/// The process's exit code.
pub(crate) fn code(result: &CommandResult) -> ExitCode {
    match result {
        Ok(CommandOutcome::Done) | Err(CommandFailure::BrokenPipe) => ExitCode::SUCCESS,
        Ok(CommandOutcome::Negative) => ExitCode::from(1),
        Ok(CommandOutcome::Code(code)) => ExitCode::from(*code),
        Err(CommandFailure::BadInput(_)) => ExitCode::from(2),
    }
}
