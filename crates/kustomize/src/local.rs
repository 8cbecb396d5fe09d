//! Programs of the machine itself, for hosts that have one.

use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command as Process, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use crate::error::{Error, Result};
use crate::host::{Argument, Command, Finished, Programs};

/// Runs programs with the environment of this process.
#[derive(Clone, Debug, Default)]
pub struct Local {
    /// The folder with exec plugins.
    pub plugin_home: Option<String>,
    /// The folders with executables named after API groups.
    pub group_plugin_homes: Vec<String>,
}

/// A program that writes more than this is stopped.
const MAX_OUTPUT: u64 = 256 << 20;

impl Programs for Local {
    fn run(&self, command: &Command) -> Result<Finished> {
        let failed = |what: &str, error: &io::Error| {
            Error::new(format!("{what} {}: {error}", command.program))
        };
        let file = command
            .file
            .as_deref()
            .map(TemporaryFile::new)
            .transpose()
            .map_err(|error| failed("cannot write the configuration of", &error))?;
        let path = file.as_ref().map(|file| file.path.display().to_string()).unwrap_or_default();
        let mut process = Process::new(&command.program);
        process
            .args(command.arguments.iter().map(|argument| match argument {
                Argument::Text(text) => text.as_str(),
                Argument::File => path.as_str(),
            }))
            .envs(command.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        if Path::new(&command.directory).is_dir() {
            process.current_dir(&command.directory);
        }
        let mut child = process.spawn().map_err(|error| failed("cannot start", &error))?;
        let (input, output, errors) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (output, errors) = thread::scope(|scope| {
            // A program may write before it has read everything.
            let feeding =
                scope.spawn(|| input.map_or(Ok(()), |mut to| to.write_all(&command.input)));
            let errors = scope.spawn(|| drain(errors));
            let output = drain(output);
            // A program that does not read its input is no failure.
            let _ = feeding.join();
            (output, errors.join().unwrap_or_else(|_| Ok(Vec::new())))
        });
        let status = child.wait().map_err(|error| failed("cannot wait for", &error))?;
        Ok(Finished {
            code: status.code().unwrap_or(-1),
            output: output.map_err(|error| failed("cannot read from", &error))?,
            errors: String::from_utf8_lossy(
                &errors.map_err(|error| failed("cannot read from", &error))?,
            )
            .into_owned(),
            file: path,
        })
    }

    fn plugin_home(&self) -> Option<String> {
        self.plugin_home.clone()
    }

    fn group_plugin_homes(&self) -> Vec<String> {
        self.group_plugin_homes.clone()
    }
}

fn drain(from: Option<impl Read>) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if let Some(from) = from {
        from.take(MAX_OUTPUT).read_to_end(&mut bytes)?;
    }
    Ok(bytes)
}

/// A file that goes away with its owner.
struct TemporaryFile {
    path: PathBuf,
}

impl TemporaryFile {
    fn new(contents: &[u8]) -> io::Result<Self> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        loop {
            let name = format!(
                "kiln-plugin-{}-{}",
                std::process::id(),
                COUNT.fetch_add(1, Ordering::Relaxed)
            );
            let path = std::env::temp_dir().join(name);
            match std::fs::File::create_new(&path) {
                Ok(mut file) => {
                    let file_made = TemporaryFile { path };
                    file.write_all(contents)?;
                    return Ok(file_made);
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        // Somebody else may have cleaned up.
        let _ = std::fs::remove_file(&self.path);
    }
}
