//! The `kiln` binary.

use std::process::ExitCode;

mod args;
mod commands;
mod exit;
mod fetch;
mod input;
mod ui;

fn main() -> ExitCode {
    commands::run(args::parse())
}
