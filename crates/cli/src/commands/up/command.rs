//! A command that works on the sandbox, which ends with it.

use std::ffi::{OsStr, OsString};
use std::io::{self, IsTerminal as _};
use std::path::Path;
use std::process::{Command, ExitStatus};

use kiln_diagnostic::Diagnostic;

use super::signals::{INTERRUPT, Signals};
use crate::exit::{CommandOutcome, CommandResult};
use crate::ui::Ui;

/// The codes of shells for commands that are not there, and for those that cannot be run.
const NOT_FOUND: u8 = 127;
const NOT_RUN: u8 = 126;

/// The name of the command that becomes another one.
const NAME: &str = "in-sandbox";

/// Become a command that ends with a sandbox
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The process of the sandbox
    #[arg(long, value_name = "PID")]
    sandbox: i32,

    /// The command and its arguments
    #[arg(required = true, last = true)]
    command: Vec<OsString>,
}

/// Becomes the command of a sandbox, which gets SIGTERM when the sandbox is killed. `kiln up` starts it; users do not need
/// to type it.
pub(crate) fn become_command(ui: &Ui, args: &Args) -> CommandResult {
    #[cfg(target_os = "linux")]
    {
        use nix::sys::signal::Signal;
        let _ = nix::sys::prctl::set_pdeathsig(Signal::SIGTERM);
        // It may have been killed a moment ago.
        if nix::unistd::getppid().as_raw() != args.sandbox {
            return Ok(CommandOutcome::Code(ended_by(Signal::SIGTERM as i32)));
        }
    }
    let Some((program, words)) = args.command.split_first() else {
        return Ok(CommandOutcome::Done);
    };
    let mut command = Command::new(program);
    command.args(words);
    let error = match replaced_by(&mut command) {
        Ok(status) => return Ok(CommandOutcome::Code(code(status))),
        Err(error) => error,
    };
    Ok(CommandOutcome::Code(not_run(ui, program, &error)))
}

/// Becomes the command; it only returns when that fails.
#[cfg(unix)]
fn replaced_by(command: &mut Command) -> io::Result<ExitStatus> {
    Err(std::os::unix::process::CommandExt::exec(command))
}

/// Runs the command in place of this one.
#[cfg(not(unix))]
fn replaced_by(command: &mut Command) -> io::Result<ExitStatus> {
    command.status()
}

/// Says why a command is not run; the exit code for it.
fn not_run(ui: &Ui, program: &OsStr, error: &io::Error) -> u8 {
    let (problem, code) = match error.kind() {
        io::ErrorKind::NotFound => ("no such command".to_owned(), NOT_FOUND),
        io::ErrorKind::PermissionDenied => ("permission denied".to_owned(), NOT_RUN),
        _ => (error.to_string(), NOT_RUN),
    };
    ui.problem(&Diagnostic::error(format!("cannot run {}: {problem}", program.display())));
    code
}

/// Runs a command with KUBECONFIG set; its exit code is ours.
pub(super) async fn run(
    ui: &Ui,
    words: &[OsString],
    kubeconfig: &Path,
    signals: &mut Signals,
) -> CommandResult {
    let us = std::env::current_exe()
        .map_err(|error| Diagnostic::error(format!("cannot find this program: {error}")))?;
    let mut command = Command::new(&us);
    command.arg(NAME).arg(format!("--sandbox={}", std::process::id())).arg("--").args(words);
    command.env("KUBECONFIG", kubeconfig);
    if let Some(path) = path_with(&us) {
        command.env("PATH", path);
    }
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => return Ok(CommandOutcome::Code(not_run(ui, us.as_os_str(), &error))),
    };
    let pid = child.id();
    let mut waiting = tokio::task::spawn_blocking(move || child.wait());
    loop {
        tokio::select! {
            ended = &mut waiting => {
                let status = ended.map_err(io::Error::other).and_then(|status| status);
                return match status {
                    Ok(status) => Ok(CommandOutcome::Code(code(status))),
                    Err(error) => Err(Diagnostic::error(format!("cannot wait for the command: {error}")).into()),
                };
            }
            signal = signals.next() => {
                // Of Ctrl-C on a terminal the command hears by itself.
                if signal != INTERRUPT || !io::stdin().is_terminal() {
                    pass_on(signal, pid);
                }
            }
        }
    }
}

/// Passes a signal on to the command.
#[cfg(unix)]
fn pass_on(signal: i32, pid: u32) {
    use nix::sys::signal::{Signal, kill};
    if let (Ok(pid), Ok(signal)) = (i32::try_from(pid), Signal::try_from(signal)) {
        let _ = kill(nix::unistd::Pid::from_raw(pid), signal);
    }
}

/// Ctrl-C reaches every process of a console.
#[cfg(not(unix))]
fn pass_on(_signal: i32, _pid: u32) {}

/// The exit code of a command, as shells have it for one that a signal ended.
fn code(status: ExitStatus) -> u8 {
    #[cfg(unix)]
    let signal = std::os::unix::process::ExitStatusExt::signal(&status);
    #[cfg(not(unix))]
    let signal = None;
    let code = status.code().unwrap_or_else(|| ended_by(signal.unwrap_or(0)).into());
    u8::try_from(code).unwrap_or(u8::MAX)
}

/// The exit code of a process that a signal ended.
pub(super) fn ended_by(signal: i32) -> u8 {
    u8::try_from(128 + signal).unwrap_or(u8::MAX)
}

/// PATH with the directory of this program at its end, so that the command finds `kiln` itself.
fn path_with(program: &Path) -> Option<OsString> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let known = std::env::split_paths(&path);
    let ours = program.parent().map(Path::to_path_buf);
    let all = known.filter(|directory| directory.as_os_str() != OsStr::new("")).chain(ours);
    std::env::join_paths(all).ok()
}
