//! Kyverno's programs, built from its Go module in the version that `xtask/kyverno` pins.

use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::root;

pub(super) const PEER: &str = "kyverno";
const MODULE: &str = "github.com/kyverno/kyverno";

/// One of its programs, by its package below `cmd`; built as go.mod says, which takes minutes the first time.
pub(crate) fn program(package: &str) -> Result<PathBuf> {
    let binary = directory().join("target").join(package.replace('/', "-"));
    let built = Command::new("go")
        .args(["build", "-p", "1", "-o"])
        .arg(&binary)
        .arg(format!("{MODULE}/cmd/{package}"))
        .current_dir(directory())
        .status();
    match built {
        Ok(status) if status.success() => Ok(binary),
        Ok(_) => bail!("it does not build here"),
        Err(error) if error.kind() == ErrorKind::NotFound => bail!("Go is not installed"),
        Err(error) => Err(error).context("cannot start go"),
    }
}

/// The version that the module file names.
pub(crate) fn version() -> Result<String> {
    let path = directory().join("go.mod");
    let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let line = text.lines().find(|line| line.contains(&format!("{MODULE} v")));
    let version = line.and_then(|line| line.split_whitespace().find(|word| word.starts_with('v')));
    Ok(version.context("go.mod names no version")?.trim_start_matches('v').to_owned())
}

fn directory() -> PathBuf {
    root().join("xtask/kyverno")
}
