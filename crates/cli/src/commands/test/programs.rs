//! Runs scripts and commands of tests, for users who allow it.

use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use kiln_suites::chainsaw::{ProgramOutput, TestProgram};

/// The name of the kubeconfig in the private directory of a test.
pub(super) const KUBECONFIG: &str = "kubeconfig";
/// How often it is looked whether a program has ended.
const LOOK: Duration = Duration::from_millis(5);
/// The longest output that is kept.
const LONGEST: u64 = 16 << 20;

/// Runs a program with the kubeconfig of a directory.
pub(super) fn run(program: &TestProgram, private: &Path) -> ProgramOutput {
    let mut command = match (&program.script, program.command.split_first()) {
        (Some(script), _) => {
            let mut shell = Command::new("sh");
            shell.args(["-c", script]);
            shell
        }
        (None, Some((entrypoint, args))) => {
            let mut command = Command::new(entrypoint);
            command.args(args);
            command
        }
        (None, None) => return failed("it names neither a script nor a program".to_owned()),
    };
    command
        .current_dir(&program.directory)
        .env("KUBECONFIG", private.join(KUBECONFIG))
        .envs(program.environment.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    match command.spawn() {
        Ok(child) => finish(child, program.timeout),
        Err(error) => failed(format!("cannot be started: {error}")),
    }
}

fn failed(error: String) -> ProgramOutput {
    ProgramOutput { error: Some(error), ..ProgramOutput::default() }
}

/// Waits for a program to end, and ends it when its time is over.
fn finish(mut child: Child, timeout: Duration) -> ProgramOutput {
    let stdout = collect(child.stdout.take());
    let stderr = collect(child.stderr.take());
    let began = Instant::now();
    let ended = loop {
        match child.try_wait() {
            Ok(Some(status)) => break Ok(status),
            Ok(None) if began.elapsed() < timeout => thread::sleep(LOOK),
            Ok(None) => {
                let _ = child.kill();
                let _ = child.wait();
                break Err(format!("it took longer than {timeout:?}"));
            }
            Err(error) => break Err(error.to_string()),
        }
    };
    let error = match ended {
        Ok(status) if status.success() => None,
        Ok(status) => Some(status.to_string()),
        Err(why) => Some(why),
    };
    let text = |output: thread::JoinHandle<String>| output.join().unwrap_or_default();
    ProgramOutput { stdout: text(stdout), stderr: text(stderr), error }
}

/// Reads what a program prints, on a thread of its own, so that it never waits for us.
fn collect(from: Option<impl Read + Send + 'static>) -> thread::JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(from) = from {
            let _ = from.take(LONGEST).read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}
