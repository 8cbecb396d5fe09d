//! What a build asks of its host: repositories, files from the web, programs to run.
//!
//! A build without plugins, charts and remote roots needs none of it.

use std::fmt;

use crate::error::{Error, Result};
use crate::load::remote::Repository;

/// Brings in what lies elsewhere.
pub trait Fetch {
    /// The content behind an `http` or `https` address.
    ///
    /// # Errors
    /// When it cannot be had; [`Error::http`] when the server said no.
    fn get(&self, url: &str) -> Result<Vec<u8>>;

    /// A packaged chart from a repository or a registry.
    ///
    /// # Errors
    /// When it cannot be had, or is not what its digest says.
    fn chart(&self, chart: &ChartSource<'_>) -> Result<Vec<u8>> {
        Err(Error::new(format!(
            "cannot fetch the chart {} from {}: this build fetches no charts",
            chart.name, chart.repository
        )))
    }

    /// Clones a repository and returns the absolute path of the clone.
    ///
    /// # Errors
    /// When it cannot be had.
    fn clone_repository(&self, repository: &Repository) -> Result<String>;
}

/// A chart that lies in a repository or a registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChartSource<'c> {
    /// The address of the repository, or of the directory in a registry (`oci://`).
    pub repository: &'c str,
    pub name: &'c str,
    /// The version or a range of versions; empty for the newest.
    pub version: &'c str,
    /// Whether versions under development count.
    pub devel: bool,
}

/// A program to run.
#[derive(Clone, Debug, Default)]
pub struct Command {
    /// The file to run, or a name to look up in `PATH`.
    pub program: String,
    pub arguments: Vec<Argument>,
    /// Variables to add to the environment.
    pub environment: Vec<(String, String)>,
    /// Where to run it; nothing stands for a temporary directory of its own.
    pub directory: String,
    /// What it reads from standard input.
    pub input: Vec<u8>,
    /// The content of a temporary file to write first; [`Argument::File`] stands for its path.
    pub file: Option<Vec<u8>>,
    /// What it may touch.
    pub trust: Trust,
}

/// How far a program is trusted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Trust {
    /// A tool of the user's own choice, like `helm`.
    #[default]
    Tool,
    /// What runs a function in a container: it must end in time.
    Container,
    /// A plugin that the user installed: it must end in time, and it needs the files of the kustomization and those that
    /// lie beside it, here named.
    Plugin(Vec<String>),
    /// A program that the kustomization itself names: likewise, but its author need not be the user.
    Function {
        /// Where it really lies, if that is not in the directory of the kustomization, and it may.
        elsewhere: Option<String>,
    },
}

/// An argument of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Argument {
    Text(String),
    /// The path of the temporary file.
    File,
    /// A name that no other run has: what [`Trust::Container`] starts is stopped by it.
    Name,
}

impl<T: Into<String>> From<T> for Argument {
    fn from(text: T) -> Self {
        Argument::Text(text.into())
    }
}

/// What a program left behind when it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// It ended by itself.
    Code(i32),
    /// A signal ended it.
    Signal(i32),
}

impl Exit {
    /// Whether it ended as it should.
    pub fn is_success(self) -> bool {
        self == Exit::Code(0)
    }
}

impl Default for Exit {
    fn default() -> Self {
        Exit::Code(0)
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Exit::Code(code) => write!(f, "exit status {code}"),
            Exit::Signal(number) => match signal_name(*number) {
                Some(name) => write!(f, "ended by the signal {name}"),
                None => write!(f, "ended by the signal {number}"),
            },
        }
    }
}

#[cfg(unix)]
fn signal_name(number: i32) -> Option<&'static str> {
    nix::sys::signal::Signal::try_from(number).ok().map(nix::sys::signal::Signal::as_str)
}

#[cfg(not(unix))]
fn signal_name(_: i32) -> Option<&'static str> {
    None
}

/// How a program ended.
#[derive(Clone, Debug, Default)]
pub struct Finished {
    /// Its exit code, or the signal that ended it.
    pub exit: Exit,
    /// What it wrote to standard output.
    pub output: Vec<u8>,
    /// What it wrote to standard error.
    pub errors: String,
    /// Where the temporary file was, if there was one.
    pub file: String,
    /// Why the host did not let it end by itself, if it did not.
    pub stopped: Option<String>,
}

/// Runs programs and knows where plugins are kept.
pub trait Programs {
    /// Runs a program to its end.
    ///
    /// # Errors
    /// When it cannot be started.
    fn run(&self, command: &Command) -> Result<Finished>;

    /// Runs programs that know nothing of each other; the answers come in the order of the commands.
    fn run_all(&self, commands: &[Command]) -> Vec<Result<Finished>> {
        commands.iter().map(|command| self.run(command)).collect()
    }

    /// The directory with exec plugins, if there is one.
    fn plugin_home(&self) -> Option<String>;

    /// The directories that would be taken before it if they were there.
    fn absent_plugin_homes(&self) -> Vec<String> {
        Vec::new()
    }

    /// The directories in which executables named after an API group may lie.
    fn group_plugin_homes(&self) -> Vec<String> {
        Vec::new()
    }

    /// The program that runs containers as `docker run` does, if there is one.
    fn container_runtime(&self) -> Option<String> {
        Some("docker".to_owned())
    }

    /// Who runs this build, as `docker run --user` takes it.
    fn user(&self) -> Option<String> {
        None
    }

    /// From what the host cannot keep plugins, though it would rather: sentences for the user.
    fn not_held(&self) -> Vec<String> {
        Vec::new()
    }
}

/// A host that fetches nothing and runs nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Nothing;

impl Fetch for Nothing {
    fn get(&self, url: &str) -> Result<Vec<u8>> {
        Err(Error::http(format!("cannot fetch {url}: this build is offline")))
    }

    fn clone_repository(&self, repository: &Repository) -> Result<String> {
        Err(Error::new(format!("cannot clone {}: this build is offline", repository.url())))
    }
}

impl Programs for Nothing {
    fn run(&self, command: &Command) -> Result<Finished> {
        Err(Error::new(format!("cannot run {}: this build runs no programs", command.program)))
    }

    fn plugin_home(&self) -> Option<String> {
        None
    }
}
