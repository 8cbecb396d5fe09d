//! Every example below `examples/cleanup`, `examples/generate`, `examples/generating-policy`, `examples/mutate`, `examples/modrule`,
//! `examples/validate` and `examples/validating-policy` is run, and must print and end as it says.
//!
//! An example is a folder. `kiln apply rules.yaml --resource resources.yaml` runs in it, with
//! `--target-resource others.yaml` and `--values-file values.yaml` where there are such files.
//! `expected.txt` is what standard output gets, `expected-errors.txt` what standard error gets, and
//! `expected-exit-code.txt` says how it ends; the last two are absent where there is nothing to say.
//! With `cargo xtask accept` these files are rewritten to what happens now.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;

use kiln_testkit::{difference, project_root};

/// The folders of `examples` that hold them.
const GROUPS: [&str; 7] = [
    "cleanup",
    "generate",
    "generating-policy",
    "mutate",
    "modrule",
    "validate",
    "validating-policy",
];

/// The folders of `examples` that hold test suites: on files, and of policies at work.
const SUITES: [&str; 2] = ["test", "live"];

const FILES: [&str; 7] = [
    "rules.yaml",
    "resources.yaml",
    "others.yaml",
    "values.yaml",
    "expected.txt",
    "expected-errors.txt",
    "expected-exit-code.txt",
];

#[test]
fn examples_print_and_end_as_they_say() {
    let update = std::env::var_os("KILN_ACCEPT").is_some();
    let mut wrong = Vec::new();
    for folder in folders() {
        for (name, now) in run(&folder) {
            let path = folder.join(name);
            if update {
                write(&path, &now);
            } else if let Some(difference) = difference(&read(&path), &now) {
                wrong.push(format!("{}:\n{difference}", path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "(cargo xtask accept rewrites the examples)\n{}", wrong.join("\n"));
}

#[test]
fn examples_hold_no_file_that_nobody_reads() {
    for folder in folders() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            assert!(FILES.contains(&name.as_str()), "{} holds {name}", folder.display());
        }
    }
}

#[test]
fn examples_are_all_in_the_index() {
    let index = std::fs::read_to_string(project_root().join("examples/README.md")).unwrap();
    let folders: Vec<PathBuf> = folders().into_iter().chain(suites()).collect();
    for group in GROUPS.into_iter().chain(SUITES) {
        let listed: BTreeSet<_> = index
            .lines()
            .filter_map(|line| line.split(&format!("]({group}/")).nth(1)?.split('/').next())
            .collect();
        let there = folders
            .iter()
            .filter(|folder| folder.parent().is_some_and(|parent| parent.ends_with(group)))
            .filter_map(|folder| folder.file_name()?.to_str())
            .collect();
        assert_eq!(listed, there);
    }
}

#[test]
fn suites_among_the_examples_pass() {
    let output = Command::new(env!("CARGO_BIN_EXE_kiln"))
        .args(["test", "examples/test", "examples/live", "--require-tests"])
        .current_dir(project_root())
        .output()
        .unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!((output.status.code(), output.stderr.is_empty()), (Some(0), true), "{said}");
    let count = suites().len();
    assert!(said.contains(&format!("{count} suites: ")), "{said}");
}

fn folders() -> Vec<PathBuf> {
    GROUPS.into_iter().flat_map(folders_in).collect()
}

fn suites() -> Vec<PathBuf> {
    SUITES.into_iter().flat_map(folders_in).collect()
}

fn folders_in(group: &str) -> Vec<PathBuf> {
    let root = project_root().join("examples").join(group);
    let mut folders: Vec<_> =
        std::fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path()).collect();
    folders.sort();
    assert!(!folders.is_empty());
    folders
}

/// Runs an example; what it comes to now, by the name of the file that says so.
fn run(folder: &Path) -> [(&'static str, String); 3] {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kiln"));
    command.args(["apply", "rules.yaml", "--resource", "resources.yaml"]).current_dir(folder);
    for (option, file) in [("--target-resource", "others.yaml"), ("--values-file", "values.yaml")] {
        if folder.join(file).exists() {
            command.args([option, file]);
        }
    }
    let output = command.env("NO_COLOR", "1").output().unwrap();
    let code = match output.status.code().expect("ended by itself") {
        0 => String::new(),
        code => format!("{code}\n"),
    };
    [
        ("expected.txt", String::from_utf8(output.stdout).unwrap()),
        ("expected-errors.txt", String::from_utf8(output.stderr).unwrap()),
        ("expected-exit-code.txt", code),
    ]
}

/// The text of a file; none is the same as an empty one.
fn read(path: &Path) -> String {
    match std::fs::read_to_string(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
        text => text.unwrap(),
    }
}

fn write(path: &Path, text: &str) {
    if !text.is_empty() {
        std::fs::write(path, text).unwrap();
    } else if path.exists() {
        std::fs::remove_file(path).unwrap();
    }
}
