//! Every example below `examples/generate` and `examples/generating-policy` is run, and must print and end as it says.
//!
//! An example is a folder. `kiln apply rules.yaml --resource resources.yaml` runs in it, with
//! `--target-resource others.yaml` and `--values-file values.yaml` where there are such files.
//! `expected.txt` is what standard output gets, `expected-errors.txt` what standard error gets, and
//! `expected-exit-code.txt` says how it ends; the last two are absent where there is nothing to say.
//! With `KILN_UPDATE=1` these files are rewritten to what happens now.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;

use kiln_testkit::{difference, project_root};

/// The folders of `examples` that hold them.
const GROUPS: [&str; 2] = ["generate", "generating-policy"];

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
    let update = std::env::var_os("KILN_UPDATE").is_some();
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
    assert!(wrong.is_empty(), "(KILN_UPDATE=1 rewrites the examples)\n{}", wrong.join("\n"));
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
    let folders = folders();
    for group in GROUPS {
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

fn folders() -> Vec<PathBuf> {
    let root = project_root().join("examples");
    let mut folders: Vec<_> = GROUPS
        .iter()
        .flat_map(|group| std::fs::read_dir(root.join(group)).unwrap())
        .map(|entry| entry.unwrap().path())
        .collect();
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
