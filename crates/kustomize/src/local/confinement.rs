//! Which files a plugin may touch, and the process that sees to it.
//!
//! The rights are worked out here. Taking them is left to a program that gives up all others and then becomes
//! the plugin: this process must keep its own.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command as Process;

use super::programs::in_path;
use crate::host::Command;

/// Which files plugins may touch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Confinement {
    /// Any.
    #[default]
    Open,
    /// Any, though the user would have it otherwise; with the reason.
    Missing(String),
    /// Those that they need, and these.
    Through {
        /// The program and the arguments that precede `--read PATH`, `--write PATH`, `--` and the command
        /// line of the plugin.
        confiner: Vec<OsString>,
        /// What plugins may read besides.
        read: Vec<PathBuf>,
        /// What plugins may write besides.
        write: Vec<PathBuf>,
    },
}

/// Where systems keep programs, libraries and their settings.
const SYSTEM: [&str; 19] = [
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
    "/proc/self",
    "/proc/cpuinfo",
    "/proc/meminfo",
    "/sys/devices/system/cpu",
    "/sys/fs/cgroup",
];

/// Devices that hold nobody's data.
const DEVICES: [&str; 6] =
    ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"];

impl Confinement {
    /// The process of a plugin, with `temporary` as the folder for what it does not keep.
    pub(super) fn process(
        &self,
        command: &Command,
        beside: &[String],
        temporary: &Path,
        arguments: Vec<&str>,
    ) -> Process {
        let Confinement::Through { confiner, read, write } = self else {
            let mut process = Process::new(&command.program);
            process.args(arguments);
            return process;
        };
        let mut may_read: BTreeSet<PathBuf> = SYSTEM.iter().map(PathBuf::from).collect();
        may_read.extend(read.iter().cloned());
        may_read.extend(beside.iter().map(PathBuf::from));
        may_read.extend(files_of_program(Path::new(&command.program)));
        let mut may_write: BTreeSet<PathBuf> = DEVICES.iter().map(PathBuf::from).collect();
        may_write.extend(write.iter().cloned());
        may_write.extend([PathBuf::from(&command.directory), temporary.to_path_buf()]);

        let (confiner, words) = confiner
            .split_first()
            .map_or((OsString::new(), &[][..]), |(first, rest)| (first.clone(), rest));
        let mut process = Process::new(confiner);
        process.args(words);
        for (option, paths) in [("--read", may_read), ("--write", may_write)] {
            for path in paths {
                process.arg(option).arg(path);
            }
        }
        process.arg("--").arg(&command.program).args(arguments);
        for variable in ["TMPDIR", "TMP", "TEMP"] {
            process.env(variable, temporary);
        }
        process
    }
}

/// A program, and what its interpreter needs.
fn files_of_program(program: &Path) -> Vec<PathBuf> {
    let mut files = vec![program.to_path_buf()];
    files.extend(program.canonicalize().ok());
    let Some(interpreter) = interpreter(program) else { return files };
    let found = std::iter::once(interpreter.clone()).chain(interpreter.canonicalize().ok());
    for place in found {
        let folder = place.parent().unwrap_or(&place);
        match folder.parent().filter(|prefix| prefix.parent().is_some()) {
            // Interpreters in folders of their own have their libraries beside them.
            Some(prefix) if folder.ends_with("bin") => files.extend(
                ["lib", "lib64", "libexec", "pyvenv.cfg"].iter().map(|name| prefix.join(name)),
            ),
            // Such a file is a script that chooses among the versions beside it.
            Some(prefix) if folder.ends_with("shims") => files.push(prefix.to_path_buf()),
            _ => {}
        }
        files.push(place);
    }
    files
}

/// The program that the first line of a script names.
fn interpreter(program: &Path) -> Option<PathBuf> {
    let mut start = Vec::new();
    std::fs::File::open(program).ok()?.take(256).read_to_end(&mut start).ok()?;
    let line = start.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let line = std::str::from_utf8(line).ok()?;
    let mut words = line.split_whitespace();
    let first = Path::new(words.next()?);
    if first.file_name()? != "env" {
        return Some(first.to_path_buf());
    }
    // `env -S python3 -u` and `env NAME=value python3` name it later.
    let name = words.find(|word| !word.starts_with('-') && !word.contains('='))?;
    in_path(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_of_a_script_names_its_interpreter() {
        let folder = super::super::Running::default().folder().unwrap();
        let script = folder.path().join("script");
        for (line, wanted) in [
            ("#!/bin/sh", Some("/bin/sh")),
            ("#! /bin/sh -e", Some("/bin/sh")),
            ("echo", None),
            ("#!", None),
            ("", None),
        ] {
            std::fs::write(&script, format!("{line}\n")).unwrap();
            assert_eq!(interpreter(&script), wanted.map(PathBuf::from), "{line}");
        }
        std::fs::write(&script, "#!/usr/bin/env -S A=b sh -e\n").unwrap();
        assert_eq!(interpreter(&script), in_path("sh"));
    }

    #[test]
    fn a_confined_plugin_may_write_into_its_folder_only() {
        let confinement = Confinement::Through {
            confiner: vec!["kiln".into(), "plugin-sandbox".into()],
            read: vec!["/srv/charts".into()],
            write: vec![],
        };
        let command = Command {
            program: "/plugins/team.example.com".into(),
            directory: "/srv/app".into(),
            ..Command::default()
        };
        let process = confinement.process(&command, &[], Path::new("/tmp/x"), vec!["generate"]);
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
