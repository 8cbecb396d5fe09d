//! Runs the programs that a build asks for.

use std::path::Path;
use std::process::Command as Process;
use std::thread;
use std::time::Duration;

use super::confinement::Confinement;
use super::process::{self, Ended, Job};
use super::running::{ProcessKind, Running, new_name};
use crate::error::{Error, Result};
use crate::host::{Argument, Command, Finished, Programs, Trust};

/// Runs programs with the environment of this process.
#[derive(Clone, Debug, Default)]
pub struct Local {
    /// The directory with exec plugins.
    pub plugin_home: Option<String>,
    /// The directories that would be taken before it if they were there.
    pub absent_plugin_homes: Vec<String>,
    /// The directories with executables named after API groups.
    pub group_plugin_homes: Vec<String>,
    /// How long and how much.
    pub limits: ProgramLimits,
    /// Which files plugins may touch.
    pub confinement: Confinement,
    /// What is under way.
    pub running: Running,
}

/// What a program may use before it is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProgramLimits {
    /// How long a plugin may run.
    pub time: Duration,
    /// How many bytes a program may write to standard output.
    pub output: u64,
}

impl Default for ProgramLimits {
    fn default() -> Self {
        ProgramLimits { time: Duration::from_secs(60), output: 64 << 20 }
    }
}

/// The programs that run containers, by preference.
const CONTAINER_RUNTIMES: [&str; 3] = ["docker", "podman", "nerdctl"];

/// So many programs run side by side.
const SIDE_BY_SIDE: usize = 8;

impl Programs for Local {
    fn run(&self, command: &Command) -> Result<Finished> {
        let failed = |what: &str, error: &std::io::Error| {
            Error::new(format!("{what} {}: {error}", command.program))
        };
        let temporary = self
            .running
            .directory()
            .map_err(|error| failed("cannot make a temporary directory for", &error))?;
        let path = match &command.file {
            Some(contents) => {
                let path = temporary.path().join("config.yaml");
                std::fs::write(&path, contents)
                    .map_err(|error| failed("cannot write the configuration of", &error))?;
                path.display().to_string()
            }
            None => String::new(),
        };
        let name = new_name();
        let arguments = command.arguments.iter().map(|argument| match argument {
            Argument::Text(text) => text.as_str(),
            Argument::File => path.as_str(),
            Argument::Name => name.as_str(),
        });
        let mut process = match &command.trust {
            Trust::Plugin(_) | Trust::Function { .. } => {
                self.confinement.process(command, temporary.path(), arguments.collect())
            }
            Trust::Tool | Trust::Container => {
                let mut process = Process::new(program(&command.program));
                process.args(arguments).envs(command.environment.iter().cloned());
                process
            }
        };
        if command.directory.is_empty() {
            process.current_dir(temporary.path());
        } else if Path::new(&command.directory).is_dir() {
            process.current_dir(&command.directory);
        }
        let (kind, time) = match command.trust {
            Trust::Tool => (ProcessKind::Tool, None),
            Trust::Plugin(_) | Trust::Function { .. } => {
                let leads_session = matches!(self.confinement, Confinement::Through(_));
                (ProcessKind::Plugin { leads_session }, Some(self.limits.time))
            }
            Trust::Container => (
                ProcessKind::Container { runtime: command.program.clone() },
                Some(self.limits.time),
            ),
        };
        let most_output = self.limits.output;
        let job = Job { kind, name: &name, input: &command.input, time, most_output };
        let ended = process::run(process, job, &self.running)
            .map_err(|error| failed("cannot start", &error))?;
        let Ended { exit, output, errors, stopped } = ended;
        Ok(Finished { exit, output, errors, file: path, stopped })
    }

    fn run_all(&self, commands: &[Command]) -> Vec<Result<Finished>> {
        let mut answers = Vec::with_capacity(commands.len());
        for some in commands.chunks(SIDE_BY_SIDE) {
            let [single] = some else {
                thread::scope(|scope| {
                    let running: Vec<_> =
                        some.iter().map(|command| scope.spawn(|| self.run(command))).collect();
                    answers.extend(running.into_iter().map(|thread| {
                        thread.join().unwrap_or_else(|_| Err(Error::new("running it failed")))
                    }));
                });
                continue;
            };
            answers.push(self.run(single));
        }
        answers
    }

    fn plugin_home(&self) -> Option<String> {
        self.plugin_home.clone()
    }

    fn absent_plugin_homes(&self) -> Vec<String> {
        self.absent_plugin_homes.clone()
    }

    fn group_plugin_homes(&self) -> Vec<String> {
        self.group_plugin_homes.clone()
    }

    fn container_runtime(&self) -> Option<String> {
        CONTAINER_RUNTIMES.into_iter().find(|name| in_path(name).is_some()).map(str::to_owned)
    }

    #[cfg(unix)]
    fn user(&self) -> Option<String> {
        Some(format!("{}:{}", nix::unistd::getuid(), nix::unistd::getgid()))
    }

    fn not_held(&self) -> Vec<String> {
        match &self.confinement {
            Confinement::Open => Vec::new(),
            Confinement::Missing(why) => vec![why.clone()],
            Confinement::Through(confiner) => confiner.not_held.clone(),
        }
    }
}

/// A program as the user names it: a path is meant from where they are, not from where it runs.
fn program(named: &str) -> std::path::PathBuf {
    match std::path::absolute(named) {
        Ok(path) if named.contains(std::path::is_separator) => path,
        _ => named.into(),
    }
}

/// Where a program is that is called by its name alone.
pub(super) fn in_path(name: &str) -> Option<std::path::PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|directory| directory.join(name))
        .find(|file| is_executable(file))
}

fn is_executable(file: &Path) -> bool {
    use crate::load::fs::FileSystem;
    file.to_str().and_then(|path| crate::load::fs::Disk.is_executable(path)) == Some(true)
}
