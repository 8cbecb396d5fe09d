//! What a plugin may touch, and the process that sees to it.
//!
//! The rights are worked out here. Taking them is left to a program that gives up all others and then becomes
//! the plugin: this process must keep its own.
//!
//! No right comes from a path that a plugin, or the author of the kustomization, can redirect. What lies below
//! a directory that plugins write into is never followed: the rights for the directory are enough for it.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::path::{Component, Path, PathBuf};
use std::process::Command as Process;

use super::programs::in_path;
use crate::host::{Command, Trust};

/// What plugins may touch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Confinement {
    /// Anything.
    #[default]
    Open,
    /// Anything, though the user would have it otherwise; with the reason.
    Missing(String),
    /// What they need, and what is named here.
    Through(Confiner),
}

/// How plugins are confined.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Confiner {
    /// The program and the arguments that precede `--read PATH`, `--write PATH`, `--network`, `--` and the command
    /// line of the plugin. It gives the plugin those of its own variables that begin with [`CARRIED`], without that.
    pub command: Vec<OsString>,
    /// What plugins may read besides, without links on the way.
    pub read: Vec<PathBuf>,
    /// What plugins may write besides, without links on the way.
    pub write: Vec<PathBuf>,
    /// Which variables functions see besides.
    pub variables: Vec<String>,
    /// Whether plugins may use the network.
    pub network: bool,
    /// What this system cannot hold, as sentences for the user.
    pub not_held: Vec<String>,
}

/// Stands before the names of variables for a plugin that pass through the confiner: a kustomization sets some
/// of them, and what the linker and the libraries of the confiner obey must not be among its own.
pub const CARRIED: &str = "_";

/// What a function of a kustomization sees of the environment; those with `LC_` besides.
const VARIABLES: [&str; 38] = [
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LANGUAGE",
    "TZ",
    "TERM",
    "NO_COLOR",
    "SOURCE_DATE_EPOCH",
    "XDG_CONFIG_HOME",
    "XDG_CONFIG_DIRS",
    "XDG_DATA_HOME",
    "XDG_DATA_DIRS",
    "XDG_CACHE_HOME",
    "XDG_STATE_HOME",
    "KUSTOMIZE_PLUGIN_HOME",
    // Where interpreters and compilers have their parts.
    "LD_LIBRARY_PATH",
    "VIRTUAL_ENV",
    "PYTHONHOME",
    "PYTHONPATH",
    "PYENV_ROOT",
    "PYENV_VERSION",
    "RBENV_ROOT",
    "RBENV_VERSION",
    "ASDF_DIR",
    "ASDF_DATA_DIR",
    "NODE_PATH",
    "GEM_HOME",
    "GEM_PATH",
    "PERL5LIB",
    "GOROOT",
    "GOPATH",
    "JAVA_HOME",
    "NIX_PROFILES",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
];

/// And these, in either case, where it may use the network: they may hold passwords.
const PROXIES: [&str; 4] = ["http_proxy", "https_proxy", "no_proxy", "all_proxy"];

/// Where systems keep programs, libraries and their settings.
const SYSTEM: [&str; 18] = [
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/etc",
    "/opt",
    "/nix/store",
    "/gnu/store",
    "/run/current-system",
    "/run/systemd/resolve",
    "/var/lib/ca-certificates",
    "/proc/cpuinfo",
    "/proc/meminfo",
    "/sys/devices/system/cpu",
    "/sys/fs/cgroup",
];

/// What the kernel says of the process that asks.
const PROCESS: &str = "/proc/self";

/// As many links as the kernel follows.
const MAX_LINKS: usize = 40;

/// Devices that hold no user data. The terminal is none of them: what is written there can become input.
const DEVICES: [&str; 5] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"];

impl Confinement {
    /// The process of a plugin, with `temporary` as the directory for what it does not keep.
    pub(super) fn process(
        &self,
        command: &Command,
        temporary: &Path,
        arguments: Vec<&str>,
    ) -> Process {
        match self {
            Confinement::Through(confiner) => confiner.process(command, temporary, arguments),
            Confinement::Open | Confinement::Missing(_) => {
                let mut process = Process::new(&command.program);
                process.args(arguments).envs(command.environment.iter().cloned());
                process
            }
        }
    }
}

impl Confiner {
    fn process(&self, command: &Command, temporary: &Path, arguments: Vec<&str>) -> Process {
        // The directory of a kustomization was found without links on the way when the build came to it.
        let directories = [PathBuf::from(&command.directory), resolved(temporary)];
        let directories: Vec<PathBuf> = self.write.iter().cloned().chain(directories).collect();
        let mut may_read: BTreeSet<PathBuf> = SYSTEM.iter().map(resolved).collect();
        // Another process here than there: only who opens it knows which.
        may_read.insert(PathBuf::from(PROCESS));
        may_read.extend(self.read.iter().cloned());
        may_read.extend(files_of_program(command, &directories));
        let mut may_write: BTreeSet<PathBuf> = DEVICES.iter().map(PathBuf::from).collect();
        may_write.extend(directories);

        let (program, words) = self
            .command
            .split_first()
            .map_or((OsString::new(), &[][..]), |(first, rest)| (first.clone(), rest));
        let mut process = Process::new(program);
        process.args(words);
        for (option, paths) in [("--read", may_read), ("--write", may_write)] {
            for path in paths {
                process.arg(option).arg(path);
            }
        }
        if self.network {
            process.arg("--network");
        }
        process.arg("--").arg(&command.program).args(arguments);
        process.env_clear();
        let own = std::env::vars_os()
            .filter(|(name, _)| !is_function(command) || self.lets_see(name))
            .chain(command.environment.iter().map(|(name, value)| (name.into(), value.into())));
        let temporary = ["TMPDIR", "TMP", "TEMP"].map(|name| (name.into(), temporary.into()));
        for (name, value) in own.chain(temporary) {
            let mut carried = OsString::from(CARRIED);
            carried.push(name);
            process.env(carried, value);
        }
        process
    }

    /// Whether a function that the kustomization brings sees this variable.
    fn lets_see(&self, name: &OsStr) -> bool {
        let Some(name) = name.to_str() else { return false };
        VARIABLES.contains(&name)
            || name.starts_with("LC_")
            || self.variables.iter().any(|other| other == name)
            || self.network && PROXIES.iter().any(|proxy| name.eq_ignore_ascii_case(proxy))
    }
}

/// Whether the kustomization names the program, not the user.
fn is_function(command: &Command) -> bool {
    matches!(command.trust, Trust::Function { .. })
}

/// A path without links, as far as it leads somewhere.
fn resolved(path: impl AsRef<Path>) -> PathBuf {
    path.as_ref().canonicalize().unwrap_or_else(|_| path.as_ref().to_path_buf())
}

/// Where a path leads, unless it leads through one of these directories.
fn outside(path: &Path, directories: &[PathBuf]) -> Option<PathBuf> {
    let mut place = PathBuf::new();
    let mut rest: Vec<PathBuf> = vec![path.to_path_buf()];
    let mut links = 0;
    while let Some(path) = rest.pop() {
        let mut parts = path.components();
        let Some(part) = parts.next() else { continue };
        rest.push(parts.as_path().to_path_buf());
        match part {
            Component::RootDir => place = PathBuf::from("/"),
            Component::ParentDir => _ = place.pop(),
            Component::CurDir | Component::Prefix(_) => {}
            Component::Normal(name) => {
                place.push(name);
                if directories.iter().any(|directory| place.starts_with(directory)) {
                    return None;
                }
                if let Ok(target) = place.read_link() {
                    links += 1;
                    if links > MAX_LINKS {
                        return None;
                    }
                    place.pop();
                    rest.push(target);
                }
            }
        }
    }
    Some(place)
}

/// A program, what lies beside it, and what its interpreter needs, as far as it does not lie in these directories.
fn files_of_program(command: &Command, directories: &[PathBuf]) -> Vec<PathBuf> {
    let program = Path::new(&command.program);
    let mut files = vec![program.to_path_buf()];
    match &command.trust {
        Trust::Plugin(beside) => files.extend(beside.iter().map(PathBuf::from)),
        Trust::Function { elsewhere } => files.extend(elsewhere.iter().map(PathBuf::from)),
        Trust::Tool | Trust::Container => {}
    }
    // What a function says of its interpreter is chosen by its author. The user chooses: by `PATH`, or by
    // installing a plugin.
    let named = interpreter(program, Path::new(&command.directory))
        .filter(|file| !is_function(command) || is_in_path(file));
    if let Some(named) = named
        && let Some(place) = outside(&named, directories)
    {
        files.extend(files_of_interpreter(&named));
        files.extend(files_of_interpreter(&place));
    }
    files.iter().filter_map(|file| outside(file, directories)).collect()
}

fn files_of_interpreter(place: &Path) -> Vec<PathBuf> {
    let mut files = vec![place.to_path_buf()];
    let directory = place.parent().unwrap_or(place);
    match directory.parent().filter(|prefix| prefix.parent().is_some()) {
        // Interpreters in directories of their own have their libraries beside them.
        Some(prefix) if directory.ends_with("bin") => files
            .extend(["lib", "lib64", "libexec", "pyvenv.cfg"].iter().map(|name| prefix.join(name))),
        // Such a file is a script that chooses among the versions beside it.
        Some(prefix) if directory.ends_with("shims") => files.push(prefix.to_path_buf()),
        _ => {}
    }
    files
}

/// Whether a file lies directly in a directory of `PATH`.
fn is_in_path(file: &Path) -> bool {
    let Some(directory) = file.parent() else { return false };
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|entry| entry.is_absolute() && entry == directory)
}

/// The program that the first line of a script names, which runs in that directory.
fn interpreter(program: &Path, directory: &Path) -> Option<PathBuf> {
    let mut start = Vec::new();
    std::fs::File::open(program).ok()?.take(256).read_to_end(&mut start).ok()?;
    let line = start.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let line = std::str::from_utf8(line).ok()?;
    let mut words = line.split_whitespace();
    let first = Path::new(words.next()?);
    if first.file_name()? != "env" {
        return Some(directory.join(first));
    }
    // `env -S python3 -u` and `env NAME=value python3` name it later.
    let name = words.find(|word| !word.starts_with('-') && !word.contains('='))?;
    if name.contains('/') { Some(directory.join(name)) } else { in_path(name) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_of_a_script_names_its_interpreter() {
        let directory = super::super::Running::default().directory().unwrap();
        let script = directory.path().join("script");
        for (line, wanted) in [
            ("#!/bin/sh", Some("/bin/sh")),
            ("#! /bin/sh -e", Some("/bin/sh")),
            ("echo", None),
            ("#!", None),
            ("", None),
        ] {
            std::fs::write(&script, format!("{line}\n")).unwrap();
            assert_eq!(interpreter(&script, directory.path()), wanted.map(PathBuf::from), "{line}");
        }
        std::fs::write(&script, "#!/usr/bin/env -S A=b sh -e\n").unwrap();
        assert_eq!(interpreter(&script, directory.path()), in_path("sh"));
        // Relative to where it runs, as the kernel has it.
        std::fs::write(&script, "#!./x/bin/sh\n").unwrap();
        assert_eq!(interpreter(&script, Path::new("/srv")), Some("/srv/./x/bin/sh".into()));
    }

    #[test]
    fn no_path_leads_through_what_plugins_write() {
        let directory = super::super::Running::default().directory().unwrap();
        let root = directory.path().canonicalize().unwrap();
        for made in ["app/x", "tools/bin", "secret"] {
            std::fs::create_dir_all(root.join(made)).unwrap();
        }
        let app = [root.join("app")];
        for (link, target) in [
            ("app/x/lib", "/"),
            ("tools/lib", "../app/x/lib"),
            ("tools/lib64", "lib"),
            ("tools/share", "../secret"),
            ("tools/loop", "loop"),
        ] {
            std::os::unix::fs::symlink(target, root.join(link)).unwrap();
        }
        for (path, wanted) in [
            ("secret", Some("secret")),
            ("tools/share/a", Some("secret/a")),
            ("tools/bin/../share/./a", Some("secret/a")),
            ("app/x/lib/etc", None),
            ("app/../secret", None),
            ("tools/lib/etc", None),
            ("tools/lib64/etc", None),
            ("tools/loop", None),
        ] {
            let wanted = wanted.map(|wanted| root.join(wanted));
            assert_eq!(outside(&root.join(path), &app), wanted, "{path}");
        }
    }

    #[test]
    fn a_confined_plugin_may_write_into_its_directory_only() {
        let confinement = Confinement::Through(Confiner {
            command: vec!["kiln".into(), "plugin-sandbox".into()],
            read: vec!["/srv/charts".into()],
            ..Confiner::default()
        });
        let command = Command {
            program: "/plugins/team.example.com".into(),
            directory: "/srv/app".into(),
            ..Command::default()
        };
        let process = confinement.process(&command, Path::new("/tmp/x"), vec!["generate"]);
        let words: Vec<_> = process.get_args().map(|word| word.to_str().unwrap()).collect();
        let after = |option: &str| -> Vec<&str> {
            words.windows(2).filter(|pair| pair[0] == option).map(|pair| pair[1]).collect()
        };
        let written: Vec<_> =
            after("--write").into_iter().filter(|path| !path.starts_with("/dev/")).collect();
        assert_eq!(written, ["/srv/app", "/tmp/x"]);
        assert!(after("--read").contains(&"/srv/charts"));
        assert!(words.ends_with(&["--", "/plugins/team.example.com", "generate"]), "{words:?}");
        assert_eq!(words[0], "plugin-sandbox");
    }
}
