//! The systems that Kiln is built for, and what building for them needs.

use anyhow::{Context, Result};

/// A system.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target {
    /// As Rust names it.
    pub(super) triple: &'static str,
    /// As Go and image registries name the system and the processor.
    pub(super) os: &'static str,
    pub(super) arch: &'static str,
    pub(super) compiler: Compiler,
}

/// What compiles C, and links.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Compiler {
    /// Zig compiles, for the system that it knows by this name; Rust's own linker links with Rust's own musl.
    Zig(&'static str),
    /// The GNU compiler for Windows with this prefix does both.
    Gnu(&'static str),
    /// The one of this machine: the target must be this machine's.
    Native,
}

const TARGETS: [Target; 5] = [
    Target {
        triple: "x86_64-unknown-linux-musl",
        os: "linux",
        arch: "amd64",
        compiler: Compiler::Zig("x86_64-linux-musl"),
    },
    Target {
        triple: "aarch64-unknown-linux-musl",
        os: "linux",
        arch: "arm64",
        compiler: Compiler::Zig("aarch64-linux-musl"),
    },
    Target {
        triple: "x86_64-pc-windows-gnu",
        os: "windows",
        arch: "amd64",
        compiler: Compiler::Gnu("x86_64-w64-mingw32"),
    },
    // Apple's SDK may not be passed on, so these are built on a Mac.
    Target {
        triple: "aarch64-apple-darwin",
        os: "darwin",
        arch: "arm64",
        compiler: Compiler::Native,
    },
    Target {
        triple: "x86_64-apple-darwin",
        os: "darwin",
        arch: "amd64",
        compiler: Compiler::Native,
    },
];

impl Target {
    pub(super) fn find(triple: &str) -> Result<Self> {
        TARGETS.into_iter().find(|target| target.triple == triple).with_context(|| {
            let known = TARGETS.map(|target| target.triple).join(", ");
            format!("{triple:?} is not a target that Kiln is built for; there are {known}")
        })
    }

    /// The system and the processor, as in the names of archives.
    pub(super) fn name(&self) -> String {
        format!("{}-{}", self.os, self.arch)
    }

    /// The name of the program.
    pub(super) fn binary(&self) -> &'static str {
        if self.os == "windows" { "kiln.exe" } else { "kiln" }
    }

    /// Whether this machine can run it, without another program.
    pub(super) fn runs_here(&self) -> bool {
        let os = if self.os == "darwin" { "macos" } else { self.os };
        std::env::consts::OS == os && self.triple.starts_with(std::env::consts::ARCH)
    }

    /// The name in variables of the environment, such as `CC_…`.
    pub(super) fn in_variables(&self) -> String {
        self.triple.replace('-', "_")
    }
}
