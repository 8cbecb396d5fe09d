//! `cargo xtask cluster`: a real control plane to try things on.
//!
//! `up` leaves a process behind that holds the servers for as long as the file `target/cluster/running` is there;
//! `down` removes the file and waits. Whatever kills that process ends the servers too.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use kiln_testkit::control_plane::{ControlPlane, Error, HOW_TO_GET_IT};

use crate::root;

/// The users for whom kubeconfigs are written, besides the administrator.
const ACCOUNTS: [&str; 3] =
    ["kyverno-admission-controller", "kyverno-background-controller", "kyverno-cleanup-controller"];

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(clap::Subcommand)]
enum Action {
    /// Start etcd, kube-apiserver and kube-controller-manager on loopback
    Up,
    /// Stop them; everything in them is gone
    Down,
    /// Print the lines that make kubectl and kiln use them: eval "$(cargo xtask cluster env)"
    Env,
    #[command(hide = true)]
    Serve,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    match args.action {
        Action::Up => up(),
        Action::Down => down(),
        Action::Env => env(),
        Action::Serve => serve(),
    }
}

/// What became of building something for live tests. Where it cannot be had, the tests that need it say so, too.
pub(crate) fn built(what: &str, outcome: Result<(), Error>) -> Result<bool> {
    match outcome {
        Ok(()) => Ok(true),
        Err(Error::Unavailable(why)) => {
            eprintln!("skipped: {what}: {why}; to get it: {HOW_TO_GET_IT}");
            Ok(true)
        }
        Err(error @ Error::Failed(_)) => Err(error.into()),
    }
}

fn directory() -> PathBuf {
    root().join("target/cluster")
}

fn running() -> PathBuf {
    directory().join("running")
}

/// Held by the process that holds the servers.
fn lock() -> Result<File> {
    fs::create_dir_all(directory())?;
    File::create(directory().join("lock")).context("cannot make target/cluster/lock")
}

fn up() -> Result<()> {
    if lock()?.try_lock().is_err() {
        eprintln!("the control plane is up already");
        return env();
    }
    fs::write(running(), "")?;
    let _ = fs::remove_file(directory().join("kubeconfig"));
    let log = directory().join("log");
    let mut serve = Command::new(std::env::current_exe()?)
        .args(["cluster", "serve"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(File::create(&log)?)
        .process_group(0)
        .spawn()?;
    while !directory().join("kubeconfig").exists() {
        if serve.try_wait()?.is_some() {
            bail!("the control plane did not start: {}", fs::read_to_string(&log)?.trim());
        }
        sleep(Duration::from_millis(100));
    }
    env()
}

fn down() -> Result<()> {
    let _ = fs::remove_file(running());
    lock()?.lock()?;
    Ok(())
}

#[expect(clippy::print_stdout, reason = "the lines are this command's output")]
fn env() -> Result<()> {
    if lock()?.try_lock().is_ok() {
        bail!("no control plane is up: cargo xtask cluster up");
    }
    println!("export KUBECONFIG={}", quoted(&directory().join("kubeconfig")));
    println!("export PATH={}:\"$PATH\"", quoted(&directory().join("bin")));
    Ok(())
}

fn quoted(path: &Path) -> String {
    format!("'{}'", path.display().to_string().replace('\'', r"'\''"))
}

fn serve() -> Result<()> {
    let lock = lock()?;
    lock.try_lock().context("another control plane is up")?;
    let cluster = ControlPlane::start()?;
    let bin = directory().join("bin");
    let _ = fs::remove_dir_all(&bin);
    fs::create_dir_all(&bin)?;
    symlink(cluster.kubectl_path(), bin.join("kubectl"))?;
    for account in ACCOUNTS {
        let user = format!("system:serviceaccount:kyverno:{account}");
        fs::copy(cluster.kubeconfig_as(&user)?, directory().join(format!("kubeconfig-{account}")))?;
    }
    // The one that `up` waits for comes last, and whole.
    fs::copy(cluster.kubeconfig(), directory().join("kubeconfig.new"))?;
    fs::rename(directory().join("kubeconfig.new"), directory().join("kubeconfig"))?;
    while running().exists() {
        sleep(Duration::from_millis(200));
    }
    drop(cluster);
    for file in fs::read_dir(directory())?.flatten() {
        if file.file_name().to_string_lossy().starts_with("kubeconfig") {
            fs::remove_file(file.path())?;
        }
    }
    Ok(())
}
