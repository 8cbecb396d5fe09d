//! Plugins of `kiln build` beside those of kustomize: the same programs, the same bytes.
//!
//! Kiln keeps plugins from other files, which kustomize does not; what that costs is measured too.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::kustomize::{self, PATIENCE_SECONDS, PEER, VERSION};
use super::report::Report;
use crate::{measure, root};

const RESOURCES: usize = 500;
const PLUGINS: usize = 20;

/// A program that needs next to no time itself: what is measured is the way to it and back.
const PROGRAM: &str = "#!/bin/sh\nexec sed 's/: text$/: text-x/'\n";
const FUNCTION: &str = "  annotations:\n    config.kubernetes.io/function: |\n      exec:\n        path: ./function.sh\n";

pub(super) fn measure(report: &mut Report, runs: usize) -> Result<()> {
    let kiln = kustomize::kiln()?;
    report.contender("kiln", env!("CARGO_PKG_VERSION"));
    let peer = kustomize::peer();
    match &peer {
        Ok(_) => report.contender(PEER, VERSION),
        Err(error) => report.note(&format!("{PEER} is missing: {error:#}")),
    }
    let directory = root().join("target/bench-plugins");
    let trees = [
        ("20 exec transformers, 500 resources", exec_tree(&directory.join("exec"))?),
        ("20 functions, 500 resources", function_tree(&directory.join("functions"))?),
    ];
    for (name, tree) in trees {
        eprintln!("   {name}");
        let ours = [
            (name.to_owned(), tree.build(&kiln, &[])),
            (format!("{name}, unconfined"), tree.build(&kiln, &["--no-plugin-sandbox"])),
        ];
        if let Ok(peer) = &peer {
            let theirs = output(tree.build(peer, &[]))?;
            for (workload, command) in &ours {
                if output(clone(command))? != theirs {
                    bail!("{workload}: the outputs differ");
                }
            }
        }
        for _ in 0..runs {
            for (workload, command) in &ours {
                report.process(workload, "kiln", measure::usage_of(command)?);
            }
        }
        let Ok(peer) = &peer else { continue };
        for _ in 0..runs {
            let usage = measure::usage_of(&tree.build(peer, &[]))?;
            for (workload, _) in &ours {
                report.process(workload, PEER, usage);
            }
            if usage.cpu_seconds > PATIENCE_SECONDS {
                report.note(&format!("{PEER} ran once where it takes more than 5 s"));
                break;
            }
        }
    }
    Ok(())
}

struct Tree {
    root: PathBuf,
    home: PathBuf,
}

impl Tree {
    fn build(&self, program: &Path, flags: &[&str]) -> Command {
        // The measuring process hands its environment on, so the home of plugins goes through `env`.
        let mut command = Command::new("env");
        command
            .arg(format!("KUSTOMIZE_PLUGIN_HOME={}", self.home.display()))
            .arg(program)
            .arg("build")
            .arg(&self.root)
            .args(["--enable-alpha-plugins", "--enable-exec"])
            .args(flags);
        command
    }
}

fn exec_tree(directory: &Path) -> Result<Tree> {
    let tree = Tree { root: directory.join("root"), home: directory.join("home") };
    executable(&tree.home.join("bench.example.com/v1/marker/Marker"), PROGRAM)?;
    write_root(&tree.root, "")?;
    Ok(tree)
}

fn function_tree(directory: &Path) -> Result<Tree> {
    let tree = Tree { root: directory.join("root"), home: directory.join("home") };
    fs::create_dir_all(&tree.home)?;
    executable(&tree.root.join("function.sh"), PROGRAM)?;
    write_root(&tree.root, FUNCTION)?;
    Ok(tree)
}

/// A kustomization with many resources and transformers; `metadata` is added to each of the latter.
fn write_root(root: &Path, metadata: &str) -> Result<()> {
    fs::create_dir_all(root)?;
    let mut plugins = String::new();
    for at in 0..PLUGINS {
        let _ = write!(
            plugins,
            "---\napiVersion: bench.example.com/v1\nkind: Marker\nmetadata:\n  name: marker-{at}\n{metadata}"
        );
    }
    let kustomization = "resources:\n- all.yaml\ntransformers:\n- plugins.yaml\n";
    for (name, text) in [
        ("kustomization.yaml", kustomization),
        ("plugins.yaml", &plugins),
        ("all.yaml", &kustomize::resources(RESOURCES)),
    ] {
        let path = root.join(name);
        fs::write(&path, text).with_context(|| path.display().to_string())?;
    }
    Ok(())
}

fn executable(path: &Path, script: &str) -> Result<()> {
    fs::create_dir_all(path.parent().expect("a program lies in a directory"))?;
    fs::write(path, script)?;
    Ok(fs::set_permissions(path, fs::Permissions::from_mode(0o755))?)
}

fn clone(command: &Command) -> Command {
    let mut copy = Command::new(command.get_program());
    copy.args(command.get_args());
    copy
}

fn output(mut command: Command) -> Result<Vec<u8>> {
    let output = command.output().with_context(|| format!("cannot start {command:?}"))?;
    if !output.status.success() {
        bail!("{command:?} fails: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(output.stdout)
}
