//! What git knows of the project.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// What a command of git prints.
pub(crate) fn output(repository: &Path, args: &[&str]) -> Result<String> {
    let mut command = Command::new("git");
    let output = command.current_dir(repository).args(args).output().context("git is needed")?;
    if !output.status.success() {
        bail!("git {}: {}", args.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

/// Writes the files of a commit into a directory.
pub(crate) fn unpack(repository: &Path, commit: &str, into: &Path) -> Result<()> {
    fs::create_dir_all(into)?;
    let mut git = Command::new("git")
        .current_dir(repository)
        .args(["archive", "--format=tar", commit])
        .stdout(Stdio::piped())
        .spawn()
        .context("git is needed")?;
    let stream = git.stdout.take().context("git writes an archive")?;
    tar::Archive::new(stream).unpack(into)?;
    if !git.wait()?.success() {
        bail!("git archive {commit} failed");
    }
    Ok(())
}
