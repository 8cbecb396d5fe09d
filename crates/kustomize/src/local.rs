//! Programs and `git` of the machine itself, for hosts that have one.

use std::cell::RefCell;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command as Process, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::host::{Argument, Command, Fetch, Finished, Programs};
use crate::remote::Repository;

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

/// Clones repositories with `git`, each once, into temporary folders that go away with it.
#[derive(Debug, Default)]
pub struct Git {
    clones: RefCell<Vec<(String, PathBuf)>>,
}

impl Git {
    fn clone_into(repository: &Repository, directory: &Path) -> Result<()> {
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
            run_git(&words, directory, repository.timeout())?;
        }
        Ok(())
    }
}

fn run_git(words: &[&str], directory: &Path, timeout: Duration) -> Result<()> {
    let shown = || format!("git {}", words.join(" "));
    let failed = |error: &io::Error| Error::new(format!("cannot run {}: {error}", shown()));
    let mut child = Process::new("git")
        .args(words)
        .current_dir(directory)
        .env("GIT_TERMINAL_PROMPT", "0")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
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

impl Fetch for Git {
    fn get(&self, url: &str) -> Result<Vec<u8>> {
        // kustomize: an address that is no file may be a repository.
        if Repository::parse(url).is_some() {
            return Err(Error::new("URL is a git repository"));
        }
        Err(Error::http(format!("HTTP Error: Kiln does not fetch files over HTTP: {url}"))
            .hint("download the file and name it as a local resource"))
    }

    fn clone_repository(&self, repository: &Repository) -> Result<String> {
        let key = format!("{}?{}", repository.url(), repository.reference());
        let known = self.clones.borrow().iter().find(|(k, _)| *k == key).map(|(_, d)| d.clone());
        let directory = match known {
            Some(directory) => directory,
            None => {
                let directory = temporary_path();
                std::fs::create_dir(&directory)
                    .map_err(|error| Error::new(format!("cannot make a folder: {error}")))?;
                self.clones.borrow_mut().push((key.clone(), directory.clone()));
                let cloned = Git::clone_into(repository, &directory);
                if let Err(error) = cloned {
                    self.clones.borrow_mut().retain(|(k, _)| *k != key);
                    let _ = std::fs::remove_dir_all(&directory);
                    return Err(error);
                }
                directory
            }
        };
        Ok(directory.display().to_string())
    }
}

impl Drop for Git {
    fn drop(&mut self) {
        for (_, directory) in self.clones.borrow().iter() {
            // Somebody else may have cleaned up.
            let _ = std::fs::remove_dir_all(directory);
        }
    }
}

fn temporary_path() -> PathBuf {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    std::env::temp_dir().join(format!("kiln-{}-{count}", std::process::id()))
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
        loop {
            let path = temporary_path();
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
