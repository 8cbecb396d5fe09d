//! `kustomize_build [--reorder none] [--enable-alpha-plugins] [--enable-exec] DIR`: a build from disk.
//!
//! The smallest host there is; the command `kiln build` is the real one.

use std::process::ExitCode;

use kiln_kustomize::fs::Disk;
use kiln_kustomize::local::Local;
use kiln_kustomize::{Build, BuildOptions, LoadRestrictions, Reorder};

#[allow(clippy::print_stdout, reason = "the result of the build")]
fn main() -> ExitCode {
    let mut options = BuildOptions::default();
    let mut directory = ".".to_owned();
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--reorder" => {
                options.reorder = match words.next().as_deref() {
                    Some("none") => Reorder::None,
                    _ => Reorder::Legacy,
                }
            }
            "--load-restrictor" => {
                if words.next().as_deref() == Some("LoadRestrictionsNone") {
                    options.load_restrictions = LoadRestrictions::None;
                }
            }
            "--enable-alpha-plugins" => options.enable_plugins = true,
            "--enable-exec" => options.enable_exec = true,
            _ => directory = word,
        }
    }
    let here = std::env::current_dir().unwrap_or_default().display().to_string();
    if !directory.starts_with('/') {
        directory = format!("{here}/{directory}");
    }
    options.working_directory = here;
    let programs =
        Local { plugin_home: std::env::var("KUSTOMIZE_PLUGIN_HOME").ok(), ..Local::default() };
    match Build::new(&Disk, &options).programs(&programs).run(&directory) {
        Ok(output) => {
            for warning in &output.warnings {
                eprintln!("warning: {warning}");
            }
            print!("{}", output.yaml);
            ExitCode::SUCCESS
        }
        Err(failed) => {
            eprintln!("Error: {}", failed.error);
            ExitCode::FAILURE
        }
    }
}
