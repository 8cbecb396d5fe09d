//! What all commands have in common.

use crate::harness::{Folder, kiln};

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

/// Each command as it may be typed, and the forms that its output has.
const FORMS: &[(&[&str], &[&str])] = &[
    (&["adopt", "--plan", "--kubeconfig", "none"], &["text", "yaml", "json"]),
    (
        &["apply", "r.yaml"],
        &["text", "table", "yaml", "json", "junit", "sarif", "github", "gitlab", "azure"],
    ),
    (&["build"], &["text", "yaml", "json", "sarif", "github", "gitlab", "azure"]),
    (&["cfg", "count", "nowhere"], &["text"]),
    (&["check", "r.yaml"], &["text", "yaml", "json", "sarif", "github", "gitlab", "azure"]),
    (&["completion", "bash"], &["text"]),
    (&["convert", "r.yaml"], &["text", "yaml", "json"]),
    (&["create"], &["text", "json"]),
    (&["diff", "a.yaml", "b.yaml"], &["text", "yaml", "json"]),
    (&["doctor", "--kubeconfig", "none"], &["text", "yaml", "json"]),
    (&["edit", "fix"], &["text", "json"]),
    (&["edit", "set", "namespace", "n"], &["text", "json"]),
    (&["eval", "cel", "1"], &["text", "yaml", "json"]),
    (&["eval", "conditions", "r.yaml"], &["text", "yaml", "json"]),
    (&["eval", "gotemplate", "x"], &["text", "yaml", "json"]),
    (&["eval", "jmespath", "`1`"], &["text", "yaml", "json"]),
    (&["eval", "jsonpath", "$"], &["text", "yaml", "json"]),
    (&["explain", "Pod/a"], &["text", "yaml", "json"]),
    (&["fmt", "r.yaml"], &["text", "yaml", "json"]),
    (&["fn", "run", "nowhere"], &["text"]),
    (&["init", "--rule", "mutate"], &["text"]),
    (&["install"], &["text", "yaml", "json"]),
    (&["krm"], &["text"]),
    (&["localize", "nowhere"], &["text", "json"]),
    (&["lsp"], &["text"]),
    (&["man", "pages"], &["text"]),
    (&["new", "policy", "p"], &["text"]),
    (&["plan", "--kubeconfig", "none"], &["text", "table", "yaml", "json"]),
    (&["schema", "--list"], &["text"]),
    (&["run", "--kubeconfig", "none"], &["text", "json"]),
    (&["storm", "a.yaml"], &["text", "yaml", "json"]),
    (&["test"], &["text", "table", "yaml", "json", "junit", "sarif", "github", "gitlab", "azure"]),
    (&["uninstall", "--kubeconfig", "none"], &["text"]),
    (&["ui", "--kubeconfig", "none"], &["text"]),
    (&["up", "--limits"], &["text"]),
    (&["version"], &["text", "yaml", "json"]),
];

#[test]
fn a_form_of_output_that_a_command_lacks_is_wrong_usage() {
    for (command, forms) in FORMS {
        for form in ["text", "table", "yaml", "json", "junit", "sarif", "github", "gitlab", "azure"]
        {
            let run = kiln(&[*command, &["--format", form]].concat());
            let said = format!("invalid value '{form}' for '--format <FORMAT>'");
            // In front of the command, clap does not know yet which formats it has.
            let before = kiln(&[&["--format", form], *command].concat());
            let said_before = format!("this command does not support --format {form}");
            for (run, said) in [(run, said), (before, said_before)] {
                if forms.contains(&form) {
                    assert!(!run.stderr.contains(&said), "{command:?}: {}", run.stderr);
                } else {
                    assert_eq!(run.code, 2, "{command:?}");
                    assert!(run.stderr.contains(&said), "{command:?}: {}", run.stderr);
                }
            }
        }
    }
    let help = kiln(&["--help"]).stdout;
    let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let is_command = |line: &&str| line.starts_with("  ") && !line.starts_with("   ");
    for line in listed.take_while(|line| !line.is_empty()).filter(is_command) {
        let command = line.split_whitespace().next().unwrap();
        assert!(
            FORMS.iter().any(|(words, _)| words[0] == command),
            "{command} is not in the table"
        );
    }
}

#[test]
fn standard_input_is_read_once() {
    let folder = Folder::with(&[("r.yaml", "a: 1\n")]);
    for command in [
        &["fmt", "-", "-"][..],
        &["check", "-", "-"],
        &["apply", "-", "--resource", "-"],
        &["apply", "-", "--userinfo", "-"],
        &["eval", "conditions", "-"],
        &["eval", "conditions", "-", "--input", "-"],
    ] {
        let run = folder.kiln_with_input(command, b"all: []\n");
        assert_eq!(run.code, 2, "{command:?}: {}", run.stderr);
    }
    let run = folder.kiln_with_input(&["fmt", "-", "-"], b"a: 1\n");
    assert!(run.stderr.contains("standard input can be read only once"), "{}", run.stderr);
    assert_eq!(run.stdout, "");
}

#[test]
fn colours_come_where_they_are_asked_for_and_not_from_others() {
    let policy = "apiVersion: kyverno.io/v1\nkind: ClusterPolicy\nmetadata: {name: p}\nspec:\n  rules:\n  - name: r\n    match: {any: [{resources: {kinds: [ConfigMap]}}]}\n    mutate: {patchStrategicMerge: {metadata: {labels: {a: b}}}}\n";
    let resource =
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata: {k: \"\\e[31mred\"}\n";
    let folder = Folder::with(&[("p.yaml", policy), ("r.yaml", resource)]);
    let apply = ["apply", "p.yaml", "--resource", "r.yaml"];
    let run = folder.kiln(&[&apply[..], &["--diff", "--color=always"]].concat());
    assert!(run.stdout.contains("ConfigMap default/c: \u{1b}[32mpass\u{1b}[0m"), "{}", run.stdout);
    assert!(run.stdout.contains("\u{1b}[32m+    a: b\u{1b}[0m"), "{:?}", run.stdout);
    assert!(!run.stdout.contains("\u{1b}[31mred"), "{:?}", run.stdout);
    let run = folder.kiln(&[&apply[..], &["--trace", "--table", "--color=always"]].concat());
    assert!(run.stdout.contains("\u{1b}[1mPOLICY\u{1b}[0m"), "{:?}", run.stdout);
    for plain in [&["--color=never"][..], &["--color=always", "--format=json"], &[]] {
        let run = folder.kiln(&[&apply[..], plain].concat());
        assert!(!run.stdout.contains('\u{1b}'), "{plain:?}: {:?}", run.stdout);
    }
}
