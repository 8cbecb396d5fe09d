//! Programs and `git` of the machine itself, for hosts that have one.

mod confinement;
mod process;
mod processes;
mod programs;
mod running;

use std::cell::RefCell;
use std::io::{self, Read};
use std::path::Path;
use std::process::{Command as Process, Stdio};
use std::thread;
use std::time::{Duration, Instant};

pub use confinement::Confinement;
pub use programs::{Limits, Local};
pub use running::Running;
use running::{Kind, TemporaryFolder, new_name};

use crate::error::{Error, Result};
use crate::host::Fetch;
use crate::remote::Repository;

/// Of what `git` says, this much is kept.
const MAX_MESSAGES: u64 = 1 << 20;

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
        let url = repository.url();
        let reference = match repository.reference() {
            "" => "HEAD",
            reference => reference,
        };
        // git would take such a word for an option, and some options run programs.
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
        for words in steps {
            self.run(&words, directory, repository.timeout())?;
        }
        Ok(())
    }

    fn run(&self, words: &[&str], directory: &Path, timeout: Duration) -> Result<()> {
        let shown = || format!("git {}", words.join(" "));
        let failed = |error: &io::Error| {
            Error::new(format!("cannot run {}: {error}", shown()))
                .hint("install git, or copy the resource beside the kustomization")
        };
        let mut command = Process::new("git");
        command
            .args(words)
            .current_dir(directory)
            .env("GIT_TERMINAL_PROMPT", "0")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let (mut child, _started) = self
            .running
            .start(&mut command, Kind::Tool, &new_name())
            .map_err(|error| failed(&error))?;
        let errors = child.stderr.take();
        thread::scope(|scope| {
            let errors = scope.spawn(|| drain(errors));
            let start = Instant::now();
            let status = loop {
                match child.try_wait().map_err(|error| failed(&error))? {
                    Some(status) => break status,
                    None if start.elapsed() > timeout => {
                        // It may have ended by itself in this moment.
                        let _ = child.kill();
                        let _ = child.wait();
                        return Err(Error::new(format!(
                            "hit {}s timeout running '{}'",
                            timeout.as_secs(),
                            shown()
                        )));
                    }
                    None => thread::sleep(Duration::from_millis(10)),
                }
            };
            if status.success() {
                return Ok(());
            }
            let said = errors.join().ok().and_then(io::Result::ok).unwrap_or_default();
            Err(Error::new(format!(
                "failed to run '{}': {}",
                shown(),
                String::from_utf8_lossy(&said).trim_end()
            )))
        })
    }
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

fn drain(from: Option<impl Read>) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if let Some(from) = from {
        from.take(MAX_MESSAGES).read_to_end(&mut bytes)?;
    }
    Ok(bytes)
}
