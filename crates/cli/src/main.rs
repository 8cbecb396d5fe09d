//! The `kiln` binary.

use std::process::ExitCode;

mod addresses;
mod args;
mod as_kustomize;
mod cluster;
mod commands;
mod exit;
mod fetch;
mod file_watch;
mod input;
mod interrupt;
mod kustomization;
mod logging;
mod plugin_options;
mod policy_files;
mod revision;
mod system_env;
mod ui;

/// Objects are many small pieces of memory: profiles showed a quarter of the time in the system's allocator.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let typed: Vec<_> = std::env::args_os().collect();
    if as_kustomize::is_meant(&typed) {
        return as_kustomize::run(typed);
    }
    commands::run(args::parse(typed))
}
