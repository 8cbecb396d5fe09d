//! Files that plugins cannot touch. A kernel without Landlock is reported instead.

use super::{Case, TEAM, holds};

/// Whether this kernel can do it; a build says when it cannot.
fn is_confined(case: &Case) -> bool {
    let confined = !case.build(&[]).stderr.contains("Landlock is missing");
    if !confined {
        kiln_testkit::skip(
            "the kernel has no Landlock",
            "run the tests on Linux 5.13 or newer with it enabled",
        );
    }
    confined
}

fn generator(body: &str) -> Case {
    let script = format!("#!/bin/sh\n[ $1 = generate ] || exit 127\n{body}\n");
    Case::of_team("generators", &script)
}

#[test]
fn a_plugin_writes_into_its_folder_and_nowhere_else() {
    let outside = generator("echo x > ../outside.txt || exit 6");
    if is_confined(&outside) {
        holds(&outside.fails(&[]), &["exit status 6", "cannot create", "--plugin-write"]);
        assert!(!outside.0.path().join("outside.txt").exists());
    }
    outside.builds(&["--no-plugin-sandbox"]);
    assert_eq!(outside.0.read("outside.txt"), "x\n");

    let inside = generator(
        "mkdir -p made/here && echo x > made/here/inside.txt && mv made/here/inside.txt made/moved.txt",
    );
    inside.builds(&[]);
    assert_eq!(inside.0.read("app/made/moved.txt"), "x\n");
}

#[test]
fn a_plugin_reads_its_folder_and_what_is_opened_to_it() {
    let case = generator("cat ../secret/token > /dev/null || exit 6\n. ./settings\n");
    case.0.write("secret/token", "hush");
    case.0.write("app/settings", "set -e\n");
    if is_confined(&case) {
        holds(&case.fails(&[]), &["exit status 6", "denied"]);
        holds(&case.fails(&["--plugin-read", "config"]), &["exit status 6"]);
    }
    case.builds(&["--plugin-read", "secret"]);
    case.builds(&["--plugin-write", "secret"]);

    let writes = generator("echo x >> ../secret/token || exit 6");
    writes.0.write("secret/token", "hush");
    if is_confined(&writes) {
        holds(&writes.fails(&["--plugin-read", "secret"]), &["exit status 6"]);
    }
    writes.builds(&["--plugin-write", "secret"]);
}

#[test]
fn a_plugin_cannot_leave_by_a_link_or_a_child() {
    let case = generator("ln -sf ../secret/token link; cat link || exit 6");
    case.0.write("secret/token", "hush");
    if is_confined(&case) {
        holds(&case.fails(&[]), &["exit status 6", "denied"]);
    }
    let case = generator("sh -c 'cd .. && cat secret/token' || exit 6");
    case.0.write("secret/token", "hush");
    if is_confined(&case) {
        holds(&case.fails(&[]), &["exit status 6", "denied"]);
    }
}

#[test]
fn a_plugin_has_a_temporary_folder_of_its_own_that_goes_away() {
    let case = generator(
        "f=$(mktemp) && echo x > $f && cat $f > /dev/null && cp $f other && echo $f > where\n\
         cat <<END > /dev/null\nhere\nEND\n",
    );
    case.builds(&[]);
    assert_eq!(case.0.read("app/other"), "x\n");
    let place = case.0.read("app/where");
    if is_confined(&case) {
        assert!(!std::path::Path::new(place.trim()).exists(), "{place} is left behind");
    }
}

#[test]
fn interpreters_work_inside() {
    if std::process::Command::new("python3").arg("--version").output().is_err() {
        return;
    }
    let script = "#!/usr/bin/env python3\nimport json, os, random, sys, tempfile\n\
                  if sys.argv[1] != 'generate': sys.exit(127)\n\
                  with tempfile.TemporaryFile() as f: f.write(b'x')\n\
                  print(json.dumps({'apiVersion': 'v1', 'kind': 'ConfigMap', 'metadata': {'name': 'py'}}))\n";
    let case = Case::of_team("generators", script);
    holds(&case.builds(&[]), &["name: py\n"]);
}

#[test]
fn every_kind_of_plugin_is_kept_in() {
    let spy = "#!/bin/sh\ncat ../secret/token >&2 || exit 6\n";
    let config = "apiVersion: g.example.com/v1\nkind: Spy\nmetadata: {name: s}\n";
    let function = "apiVersion: g.example.com/v1\nkind: Other\nmetadata:\n  name: s\n  annotations:\n    config.kubernetes.io/function: |\n      exec: {path: ./spy.sh}\n";
    for (config, flags) in [(config, &[][..]), (function, &["--enable-exec"])] {
        let case = Case::new(
            "generators: [c.yaml]\n",
            &[("app/c.yaml", config), ("secret/token", "hush")],
        )
        .executable("exec/g.example.com/v1/spy/Spy", spy)
        .executable("app/spy.sh", spy);
        if is_confined(&case) {
            let said = case.fails(flags);
            holds(&said, &["exit status 6", "denied"]);
            assert!(!said.contains("hush"));
        }
    }
}

#[test]
fn the_sandbox_command_is_hidden_and_says_when_it_cannot_start() {
    let case = Case::of_team("generators", "");
    let run = case.kiln(&["--help"]);
    assert!(!run.stdout.contains("plugin-sandbox"));
    let run = case.kiln(&["plugin-sandbox", "--", "/no/such/program"]);
    assert_eq!(run.code, 126);
    holds(&run.stderr, &["cannot start /no/such/program"]);
    assert!(case.0.path().join(TEAM).exists());
}
