//! Starting cargo so that every command of `cargo xtask` and a plain `cargo test` share one build.

use std::process::Command;

use crate::root;

/// Clippy's driver in the compiler's place.
pub(crate) const LINTS: (&str, &str) = ("RUSTC_WORKSPACE_WRAPPER", "clippy-driver");

pub(crate) fn cargo() -> Command {
    let mut command = Command::new("cargo");
    command.current_dir(root());
    // `cargo run` describes xtask in these variables, and build scripts of dependencies look at them: they and all
    // above them would be compiled once for us, and again for the next `cargo test`.
    for (name, _) in std::env::vars_os() {
        let described = ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_", "CARGO_CRATE_"];
        if name.to_str().is_some_and(|name| described.iter().any(|begin| name.starts_with(begin))) {
            command.env_remove(name);
        }
    }
    // A checkout that is built once has nothing from what is kept for the next build.
    if std::env::var_os("CI").is_some() {
        command.env("CARGO_INCREMENTAL", "0");
    }
    command
}

/// The same compiler everywhere: another one would compile everything anew.
pub(crate) fn cargo_with_lints() -> Command {
    let mut command = cargo();
    if answers(LINTS.1) {
        command.env(LINTS.0, LINTS.1);
    }
    command
}

/// Whether a program of the toolchain is installed: rustup has a stand-in for each that only fails.
pub(crate) fn answers(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success())
}
