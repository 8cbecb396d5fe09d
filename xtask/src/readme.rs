//! The README's two commands for a fresh machine, taken from the README itself so that they cannot
//! go stale.

use anyhow::{Context, Result};

use crate::root;

/// The command that runs Kiln's main job: the first line that starts with `cargo run`.
pub(crate) fn main_command() -> Result<Vec<String>> {
    let path = root().join("README.md");
    let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    text.lines()
        .map(|line| line.trim().trim_start_matches("$ "))
        .find(|line| line.starts_with("cargo run "))
        .map(|line| line.split_whitespace().map(str::to_owned).collect())
        .context("README.md has no line that starts with `cargo run`")
}
