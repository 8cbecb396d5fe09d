//! The programs of the control plane: found, or built once.
//!
//! Looked for in `KUBEBUILDER_ASSETS`, then on `PATH`, then in the user's cache directory. When they are in none of
//! them and Go is there, the module `xtask/control-plane` is built into the cache, under a lock, so that
//! test processes that run side by side build it once. The runner of the peers' suites and packages of other
//! languages come into the cache in the same way.

use std::collections::HashMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use sha2::{Digest, Sha256};

use super::Error;
use crate::project_root;

const MODULE: [&str; 2] = ["go.mod", "go.sum"];
const NAMES: [&str; 4] = ["etcd", "kube-apiserver", "kube-controller-manager", "kubectl"];

/// Where the four programs are.
#[derive(Clone, Debug)]
pub struct Binaries {
    paths: HashMap<&'static str, PathBuf>,
}

impl Binaries {
    /// Finds the programs, and builds them if need be, which takes minutes the first time.
    pub fn find() -> Result<Self, Error> {
        // A build that failed fails again: one attempt for all tests of a process.
        static FOUND: OnceLock<Result<Binaries, String>> = OnceLock::new();
        FOUND.get_or_init(find).clone().map_err(Error::Unavailable)
    }

    /// The path of one of `etcd`, `kube-apiserver`, `kube-controller-manager` and `kubectl`.
    ///
    /// # Panics
    /// For another name.
    pub fn path(&self, name: &str) -> &Path {
        &self.paths[name]
    }

    fn all(find: impl Fn(&str) -> Option<PathBuf>) -> Option<Self> {
        let paths = NAMES.iter().map(|name| Some((*name, find(name)?))).collect::<Option<_>>()?;
        Some(Binaries { paths })
    }
}

fn find() -> Result<Binaries, String> {
    let assets = std::env::var_os("KUBEBUILDER_ASSETS").map(PathBuf::from);
    let asset =
        |name: &str| assets.as_ref().map(|directory| directory.join(name)).filter(|p| p.is_file());
    if let Some(found) = Binaries::all(|name| asset(name).or_else(|| on_path(name))) {
        return Ok(found);
    }
    let module = project_root().join("xtask/control-plane");
    let directory = cache()?.join(format!(
        "control-plane-{}",
        fingerprint(&module, &[MODULE[0], MODULE[1], "main.go"])?
    ));
    let built =
        |directory: &Path| Binaries::all(|name| Some(directory.join(name)).filter(|p| p.is_file()));
    if let Some(found) = built(&directory) {
        return Ok(found);
    }
    build_once(
        &directory,
        "the control plane (this happens once and takes some minutes)",
        |into| {
            let mut command = Command::new("go");
            command.current_dir(&module).env("CGO_ENABLED", "0").args(["build", "-trimpath"]);
            command.arg("-ldflags").arg(version_flags(&module)?);
            command.arg("-o").arg(into.join("control-plane")).arg(".");
            Ok(command)
        },
    )?;
    for name in NAMES {
        // One program that looks at the name it is called by.
        let _ = std::os::unix::fs::symlink("control-plane", directory.join(name));
    }
    built(&directory).ok_or_else(|| format!("{} lacks a program", directory.display()))
}

/// The program that runs the peers' conformance suites, built once if need be.
pub fn chainsaw() -> Result<PathBuf, Error> {
    match on_path("chainsaw") {
        Some(found) => Ok(found),
        None => go_program("chainsaw", "chainsaw", "github.com/kyverno/chainsaw"),
    }
}

/// Helm, of one of its major versions, built once if need be.
pub fn helm(major: u8) -> Result<PathBuf, Error> {
    let package = format!("helm.sh/helm/v{major}/cmd/helm");
    go_program("helm", &format!("helm{major}"), &package)
}

/// The program that validates manifests against schemas, built once if need be.
pub fn kubeconform() -> Result<PathBuf, Error> {
    go_program("helm", "kubeconform", "github.com/yannh/kubeconform/cmd/kubeconform")
}

/// A file of a module that another one pins, below `xtask`, where Go keeps what it has fetched.
pub(super) fn go_module_file(pinned_by: &str, module: &str, file: &str) -> Result<PathBuf, Error> {
    let directory = project_root().join("xtask").join(pinned_by);
    let listed = Command::new("go")
        .args(["list", "-m", "-f", "{{.Dir}}", module])
        .current_dir(directory)
        .output()
        .map_err(|error| Error::Unavailable(format!("cannot start go: {error}")))?;
    let listed = String::from_utf8_lossy(&listed.stdout).trim().to_owned();
    let path = PathBuf::from(listed).join(file);
    match path.is_file() {
        true => Ok(path),
        false => Err(Error::Unavailable(format!("the module {module} has no file {file}"))),
    }
}

/// A program of a module that pins it, below `xtask`.
pub(super) fn go_program(module: &str, name: &str, package: &str) -> Result<PathBuf, Error> {
    let module = project_root().join("xtask").join(module);
    let find = || -> Result<PathBuf, String> {
        let directory = cache()?.join(format!("{name}-{}", fingerprint(&module, &MODULE)?));
        let program = directory.join(name);
        if !program.is_file() {
            let what = format!("{name} (this happens once and takes some minutes)");
            build_once(&directory, &what, |into| {
                let mut command = Command::new("go");
                command.current_dir(&module).env("CGO_ENABLED", "0");
                command.args(["build", "-trimpath", "-ldflags", "-s -w", "-o"]);
                command.arg(into.join(name)).arg(package);
                Ok(command)
            })?;
        }
        Ok(program)
    };
    find().map_err(Error::Unavailable)
}

/// The directory with the Python packages of a requirements file (for `PYTHONPATH`), installed once into the cache; none
/// after saying loudly that the test is skipped.
pub fn python_packages(requirements: &Path) -> Option<PathBuf> {
    let find = || -> Result<PathBuf, String> {
        let name = requirements.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let module = requirements.parent().unwrap_or(Path::new("."));
        let directory = cache()?.join(format!("python-{}", fingerprint(module, &[name])?));
        if !directory.is_dir() {
            let python = on_path("python3").ok_or("there is no python3")?;
            install_once(&directory, "the Python client", |into| {
                // An environment knows its own place: only its packages can be moved.
                let mut command = Command::new(&python);
                command.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
                command.arg("--requirement").arg(requirements).arg("--target").arg(into);
                Ok(command)
            })?;
        }
        Ok(directory)
    };
    match find() {
        Ok(directory) => Some(directory),
        Err(why) => {
            crate::skip(
                &format!("the Python client is not there: {why}"),
                "install Python 3 with pip",
            );
            None
        }
    }
}

/// Runs a Go build into a directory unless another process has done so while we waited for the lock.
fn build_once(
    directory: &Path,
    what: &str,
    command: impl FnOnce(&Path) -> Result<Command, String>,
) -> Result<(), String> {
    if on_path("go").is_none() {
        return Err(
            "neither KUBEBUILDER_ASSETS nor PATH has etcd, kube-apiserver, kube-controller-manager and kubectl, \
             and there is no Go toolchain to build them"
                .to_owned(),
        );
    }
    install_once(directory, what, command)
}

/// Runs a command that fills a directory unless another process has done so while we waited for the lock.
fn install_once(
    directory: &Path,
    what: &str,
    command: impl FnOnce(&Path) -> Result<Command, String>,
) -> Result<(), String> {
    let failed =
        |error: std::io::Error| format!("cannot build into {}: {error}", directory.display());
    let parent = directory.parent().expect("a directory in the cache");
    fs::create_dir_all(parent).map_err(failed)?;
    let lock = File::create(parent.join("build.lock")).map_err(failed)?;
    lock.lock().map_err(failed)?;
    if directory.is_dir() {
        return Ok(());
    }
    eprintln!("building {what} into {}", directory.display());
    let unfinished = directory.with_extension("unfinished");
    let _ = fs::remove_dir_all(&unfinished);
    fs::create_dir_all(&unfinished).map_err(failed)?;
    let output = command(&unfinished)?.output().map_err(failed)?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        let lines: Vec<_> = text.lines().collect();
        let tail = lines[lines.len().saturating_sub(5)..].join(" · ");
        return Err(format!("{what} cannot be built: {tail}"));
    }
    fs::rename(&unfinished, directory).map_err(failed)
}

/// Without them the servers do not know their version.
fn version_flags(module: &Path) -> Result<String, String> {
    let path = module.join("go.mod");
    let text = fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    let version =
        text.lines().find_map(|line| line.trim().strip_prefix("k8s.io/kubernetes v")).ok_or_else(
            || format!("{} does not name a version of k8s.io/kubernetes", path.display()),
        )?;
    let mut numbers = version.split('.');
    let (major, minor) = (numbers.next().unwrap_or("1"), numbers.next().unwrap_or("0"));
    let package = "k8s.io/component-base/version";
    Ok(format!(
        "-s -w -X {package}.gitVersion=v{version} -X {package}.gitMajor={major} -X {package}.gitMinor={minor}"
    ))
}

/// Another module is another build.
fn fingerprint(module: &Path, files: &[&str]) -> Result<String, String> {
    let mut hash = Sha256::new();
    for name in files {
        let path = module.join(name);
        hash.update(fs::read(&path).map_err(|e| format!("{}: {e}", path.display()))?);
    }
    Ok(hash.finalize()[..6].iter().map(|byte| format!("{byte:02x}")).collect())
}

fn cache() -> Result<PathBuf, String> {
    let set =
        |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    set("XDG_CACHE_HOME")
        .or_else(|| set("HOME").map(|home| home.join(".cache")))
        .map(|cache| cache.join("kiln"))
        .ok_or_else(|| "neither XDG_CACHE_HOME nor HOME says where a cache may be".to_owned())
}

fn on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|directory| directory.join(name)).find(|file| file.is_file())
}
