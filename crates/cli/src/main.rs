//! The `kiln` binary.

use std::process::ExitCode;

mod addresses;
mod args;
mod cluster;
mod commands;
mod exit;
mod fetch;
mod file_watch;
mod input;
mod interrupt;
mod logging;
mod plugin_options;
mod policy_files;
mod system_env;
mod ui;

/// Objects are many small pieces of memory: profiles showed a quarter of the time in the system's allocator.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    commands::run(args::parse())
}
