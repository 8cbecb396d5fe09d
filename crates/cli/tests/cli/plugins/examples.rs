//! The plugins under `examples/plugins`, in the shell and in Python: both must print what the examples say.
//!
//! `cargo xtask accept` rewrites the examples.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use kiln_testkit::{difference, project_root};

use super::besides_landlock;

fn build(example: &str, language: &str, flags: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_kiln"))
        .args(["build", example, "--enable-alpha-plugins"])
        .args(flags)
        .current_dir(root())
        .env("XDG_CONFIG_HOME", language)
        .env("NO_COLOR", "1")
        .output()
        .unwrap()
}

fn root() -> PathBuf {
    project_root().join("examples/plugins")
}

/// The languages that can be run here.
fn languages() -> Vec<&'static str> {
    let python =
        Command::new("python3").args(["-c", "import yaml\nmatch 1:\n case _: pass"]).output();
    let has_python = python.is_ok_and(|output| output.status.success());
    if !has_python {
        kiln_testkit::skip("there is no Python 3.10 with PyYAML", "pip install pyyaml");
    }
    if has_python { vec!["shell", "python"] } else { vec!["shell"] }
}

fn check(file: &Path, now: &str) {
    if std::env::var_os("KILN_ACCEPT").is_some() {
        std::fs::write(file, now).unwrap();
        return;
    }
    let said = std::fs::read_to_string(file).unwrap_or_default();
    if let Some(difference) = difference(&said, now) {
        panic!("(cargo xtask accept rewrites the examples)\n{}:\n{difference}", file.display());
    }
}

#[test]
fn both_stories_of_plugins_are_built_in_both_languages() {
    for example in ["app", "defaults"] {
        for language in languages() {
            for flags in [&[][..], &["--check-plugins"]] {
                let output = build(example, language, flags);
                let said = besides_landlock(&String::from_utf8(output.stderr).unwrap());
                assert_eq!(
                    (output.status.code(), said.as_str()),
                    (Some(0), ""),
                    "{example} {language}"
                );
                let now = String::from_utf8(output.stdout).unwrap();
                check(&root().join(example).join("expected.yaml"), &now);
            }
        }
    }
}

#[test]
fn the_story_of_the_chart_needs_no_plugin_and_no_flag() {
    let example = project_root().join("examples/charts/chart-resource");
    let output = Command::new(env!("CARGO_BIN_EXE_kiln"))
        .arg("build")
        .arg(&example)
        .env("NO_COLOR", "1")
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), said.as_str()), (Some(0), ""));
    check(&example.join("expected.yaml"), &String::from_utf8(output.stdout).unwrap());
}

#[test]
fn stories_that_add_or_rename_need_the_option() {
    for example in ["app-as-printed", "defaults-as-printed"] {
        for language in languages() {
            let output = build(example, language, &[]);
            assert_eq!(output.status.code(), Some(2), "{example} {language}");
            let said = besides_landlock(&String::from_utf8(output.stderr).unwrap()) + "\n";
            let place = root().join(language).display().to_string();
            let said = said.replace(&place, "…");
            check(&root().join(example).join("expected-errors.txt"), &said);
            let output = build(example, language, &["--unrestricted-transformers"]);
            assert_eq!(output.status.code(), Some(0), "{example} {language}");
            let now = String::from_utf8(output.stdout).unwrap();
            check(&root().join(example).join("expected-unrestricted.yaml"), &now);
        }
    }
}
