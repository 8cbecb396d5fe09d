//! What all commands have in common.

use crate::harness::{Folder, kiln};

#[test]
fn version_is_printed_in_every_form() {
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(kiln(&["version"]).stdout, format!("kiln {version}\n"));
    let json = kiln(&["version", "--format", "json"]).stdout;
    assert_eq!(json, format!("{{\"version\":\"{version}\"}}\n"));
    assert_eq!(kiln(&["--version"]).stdout, format!("kiln {version}\n"));
}

#[test]
fn completions_exist_for_every_shell() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let run = kiln(&["completion", shell]);
        assert_eq!((run.code, run.stdout.contains("kiln")), (0, true), "{shell}");
    }
}

#[test]
fn manual_pages_are_written_for_every_command() {
    let folder = Folder::with(&[]);
    assert_eq!(folder.kiln(&["man", "pages/man1"]).code, 0);
    assert!(folder.read("pages/man1/kiln.1").contains("kiln"));
    assert!(folder.read("pages/man1/kiln-version.1").contains("Print the version"));
}

#[test]
fn wrong_usage_ends_with_code_2_and_a_suggestion() {
    let run = kiln(&["verison"]);
    assert_eq!(run.code, 2);
    assert!(run.stderr.contains("'version'"), "{}", run.stderr);
    assert_eq!(kiln(&[]).code, 2);
}

#[test]
fn a_form_of_output_that_a_command_lacks_is_wrong_usage() {
    for command in [&["version"][..], &["completion", "bash"], &["eval", "jmespath", "`1`"]] {
        for form in ["table", "junit"] {
            let run = kiln(&[command, &["--format", form]].concat());
            assert_eq!(run.code, 2, "{command:?}");
            let said = format!("this command has no output of the form {form}");
            assert!(run.stderr.contains(&said), "{command:?}: {}", run.stderr);
        }
    }
}
