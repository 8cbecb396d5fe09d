//! The real binary: whole commands, whole output, exit codes.

mod clusters;
mod doors;
mod fmt;
mod general;
mod harness;
mod kustomizations;
mod pages;
#[cfg(target_os = "linux")]
mod plugins;
mod policies;
mod studio;
mod up;
