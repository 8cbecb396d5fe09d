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
pub use programs::{Limits, Local};
pub use running::Running;
use running::{Kind, TemporaryFolder, new_name};

use crate::error::{Error, Result};
use crate::host::Fetch;
use crate::remote::Repository;

/// `git` has little to say: what it fetches goes to files.
const MAX_OUTPUT: u64 = 64 << 20;

/// Clones repositories with `git`, each once, into temporary folders that go away with it.
#[derive(Debug, Default)]
pub struct Git {
    clones: RefCell<Vec<(String, TemporaryFolder)>>,
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
        // Others than these are programs that an address names.
        if std::env::var_os("GIT_ALLOW_PROTOCOL").is_none() {
            command.env("GIT_ALLOW_PROTOCOL", "file:git:http:https:ssh");
        }
        let job = Job {
            kind: Kind::Git,
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
        return Err(Error::new(format!("{url}?ref={reference} is no address of a repository"))
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
        // kustomize: an address that is no file may be a repository.
        if Repository::parse(url).is_some() {
            return Err(Error::new("URL is a git repository"));
        }
        Err(Error::http(format!("cannot fetch {url}: git fetches repositories only"))
            .hint("download the file and name it as a local resource"))
    }

    fn clone_repository(&self, repository: &Repository) -> Result<String> {
        let key = format!("{}?{}", repository.url(), repository.reference());
        let shown = |folder: &TemporaryFolder| folder.path().display().to_string();
        let known = self.clones.borrow().iter().find(|(k, _)| *k == key).map(|(_, f)| shown(f));
        if let Some(directory) = known {
            return Ok(directory);
        }
        let folder = self
            .running
            .folder()
            .map_err(|error| Error::new(format!("cannot make a folder: {error}")))?;
        self.clone_into(repository, folder.path())?;
        let directory = shown(&folder);
        self.clones.borrow_mut().push((key, folder));
        Ok(directory)
    }
}
