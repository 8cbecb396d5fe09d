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
mod findings;
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
    if commands::krm::is_called_as_function(&typed) {
        let words = vec![typed[0].clone(), "krm".into()];
        if let Some(code) = commands::run_as_function(&args::parse(words)) {
            return code;
        }
    }
    commands::run(args::parse(typed))
}
