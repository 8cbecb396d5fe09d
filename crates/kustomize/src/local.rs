//! Programs and `git` of the machine itself, for hosts that have one.

mod confinement;
mod process;
mod processes;
mod programs;
mod running;

use std::cell::RefCell;
use std::io;
use std::path::Path;
use std::process::Command as Process;
use std::time::Duration;

pub use confinement::{CARRIED, Confinement, Confiner};
use process::Job;
pub use programs::{Local, ProgramLimits};
pub use running::Running;
use running::{ProcessKind, TemporaryDirectory, new_name};

use crate::error::{Error, Result};
use crate::host::Fetch;
use crate::load::remote::Repository;

/// `git` has little to say: what it fetches goes to files.
const MAX_OUTPUT: u64 = 64 << 20;

/// What git sets for its hooks and aliases: with them, another git works on the repository that it was called from,
/// wherever it runs. What the user gives it as configuration (`GIT_CONFIG_COUNT` and the like) is about every
/// repository and stays.
pub const OF_ANOTHER_REPOSITORY: [&str; 17] = [
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_CEILING_DIRECTORIES",
    "GIT_COMMON_DIR",
    "GIT_CONFIG",
    "GIT_DIR",
    "GIT_GRAFT_FILE",
    "GIT_IMPLICIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_INTERNAL_SUPER_PREFIX",
    "GIT_NAMESPACE",
    "GIT_NO_REPLACE_OBJECTS",
    "GIT_OBJECT_DIRECTORY",
    "GIT_PREFIX",
    "GIT_QUARANTINE_PATH",
    "GIT_REPLACE_REF_BASE",
    "GIT_SHALLOW_FILE",
    "GIT_WORK_TREE",
];

/// How git may reach a repository that the kustomization names. Others than these are programs that an address names.
const TRANSPORTS: &str = "file:git:http:https:ssh";
/// And one that a repository names as its submodule: the files of this machine are not for it to choose.
const TRANSPORTS_OF_SUBMODULES: &str = "git:http:https:ssh";

/// Clones repositories with `git`, each once, into temporary directories that go away with it.
#[derive(Debug, Default)]
pub struct Git {
    clones: RefCell<Vec<(String, TemporaryDirectory)>>,
    running: Running,
}

impl Git {
    /// Clones as part of what is under way.
    pub fn new(running: Running) -> Self {
        Git { clones: RefCell::default(), running }
    }

    fn clone_into(&self, repository: &Repository, directory: &Path) -> Result<()> {
        for words in git_words(repository)? {
            self.run(&words, directory, repository.timeout())?;
        }
        Ok(())
    }

    fn run(&self, words: &[String], directory: &Path, timeout: Duration) -> Result<()> {
        let shown = || format!("git {}", words.join(" "));
        let failed = |error: &io::Error| {
            Error::new(format!("cannot run {}: {error}", shown()))
                .hint("install git, or copy the resource beside the kustomization")
        };
        let mut command = Process::new("git");
        command.args(words).current_dir(directory).env("GIT_TERMINAL_PROMPT", "0");
        for variable in OF_ANOTHER_REPOSITORY {
            command.env_remove(variable);
        }
        if std::env::var_os("GIT_ALLOW_PROTOCOL").is_none() {
            let is_submodule = words.first().is_some_and(|word| word == "submodule");
            let transports = if is_submodule { TRANSPORTS_OF_SUBMODULES } else { TRANSPORTS };
            command.env("GIT_ALLOW_PROTOCOL", transports);
        }
        let job = Job {
            kind: ProcessKind::Git,
            name: &new_name(),
            input: &[],
            time: Some(timeout),
            most_output: MAX_OUTPUT,
        };
        let ended = process::run(command, job, &self.running).map_err(|error| failed(&error))?;
        match ended.stopped {
            Some(why) => Err(Error::new(format!("{why} running '{}'", shown()))
                .hint("see whether the server answers, or allow more time: ?timeout=120s")),
            None if ended.exit.is_success() => Ok(()),
            None => {
                Err(Error::new(format!("failed to run '{}': {}", shown(), ended.errors.trim_end())))
            }
        }
    }
}

/// What `git` is asked, one time after the other, to clone a repository.
///
/// # Errors
/// When it would take a word of the address for an option.
pub(crate) fn git_words(repository: &Repository) -> Result<Vec<Vec<String>>> {
    let url = repository.url();
    let reference = match repository.reference() {
        "" => "HEAD",
        reference => reference,
    };
    // Some options run programs.
    if url.starts_with('-') || reference.starts_with('-') {
        return Err(Error::new(format!("{url}?ref={reference} is not an address of a repository"))
            .hint("neither the address nor the revision may begin with a dash"));
    }
    let mut steps: Vec<Vec<&str>> = vec![
        vec!["init"],
        vec!["remote", "add", "origin", &url],
        vec!["fetch", "--depth=1", &url, reference],
        vec!["checkout", "FETCH_HEAD"],
    ];
    if repository.submodules() {
        steps.push(vec!["submodule", "update", "--init", "--recursive"]);
    }
    Ok(steps.into_iter().map(|words| words.into_iter().map(str::to_owned).collect()).collect())
}

impl Fetch for Git {
    fn get(&self, url: &str) -> Result<Vec<u8>> {
        // kustomize: an address that is not a file may be a repository.
        if Repository::parse(url).is_some() {
            return Err(Error::new("URL is a git repository"));
        }
        Err(Error::http(format!("cannot fetch {url}: git fetches repositories only"))
            .hint("download the file and name it as a local resource"))
    }

    fn clone_repository(&self, repository: &Repository) -> Result<String> {
        let key = format!("{}?{}", repository.url(), repository.reference());
        let shown = |clone: &TemporaryDirectory| clone.path().display().to_string();
        let known = self.clones.borrow().iter().find(|(k, _)| *k == key).map(|(_, f)| shown(f));
        if let Some(directory) = known {
            return Ok(directory);
        }
        let clone = self
            .running
            .directory()
            .map_err(|error| Error::new(format!("cannot make a directory: {error}")))?;
        self.clone_into(repository, clone.path())?;
        let directory = shown(&clone);
        self.clones.borrow_mut().push((key, clone));
        Ok(directory)
    }
}
