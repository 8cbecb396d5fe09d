//! A zoo of plugins that do what they should not.

use std::time::{Duration, Instant};

use super::{CONFIG_MAP, Case, TEAM, besides_landlock, holds, running};

#[test]
fn one_that_hangs_is_stopped_with_its_children() {
    // It ignores the polite signal, and so does its child, which keeps the output open.
    let hangs = "#!/bin/sh\ntrap '' TERM\necho working >&2\nsh -c 'trap \"\" TERM; while :; do sleep 0.1; done' &\nwhile :; do sleep 0.1; done\n";
    let case = Case::of_team("generators", hangs);
    let begin = Instant::now();
    let said = case.fails(&["--plugin-timeout", "3s"]);
    assert!(begin.elapsed() < Duration::from_secs(60), "{:?}", begin.elapsed());
    holds(
        &said,
        &[
            "plugin team.example.com generate did not end",
            "after 3s",
            ": working",
            "--plugin-timeout",
            "app/app.yaml:1:1",
        ],
    );
    assert_eq!(running(&case), [""; 0]);
}

#[test]
fn one_that_ends_but_leaves_its_output_open_is_stopped() {
    let leaves = "#!/bin/sh\nsleep 100 &\nexit 0\n";
    let said = Case::of_team("generators", leaves).fails(&["--plugin-timeout", "300ms"]);
    holds(&said, &["did not end", "after 300ms"]);
}

#[test]
fn one_that_fails_is_named_with_its_code_its_words_and_the_place() {
    let fails = "#!/bin/sh\necho cannot reach the moon >&2\nexit 3\n";
    for (field, word) in [("generators", "generate"), ("transformers", "transform")] {
        let said = Case::of_team(field, fails).fails(&[]);
        holds(
            &said,
            &[
                &format!(
                    "plugin team.example.com {word} failed: exit status 3: cannot reach the moon"
                ),
                "app/app.yaml:1:1",
                "kustomize/plugins/team.example.com",
            ],
        );
    }
}

#[test]
fn one_that_dies_of_a_signal_is_told_with_the_signal() {
    for (signal, wanted) in [("KILL", "out of memory"), ("SEGV", "kustomize/plugins")] {
        let said =
            Case::of_team("generators", &format!("#!/bin/sh\nkill -{signal} $$\n")).fails(&[]);
        holds(&said, &[&format!("failed: ended by the signal SIG{signal}"), wanted]);
    }
}

#[test]
fn what_one_that_hangs_put_into_another_session_is_stopped_too() {
    let hangs = "#!/bin/sh\nsh -c 'setsid sh -c \"echo > stray; exec sleep 1000\" &'\nsleep 1000\n";
    for flags in
        [&["--plugin-timeout", "2s"][..], &["--plugin-timeout", "2s", "--no-plugin-sandbox"]]
    {
        let case = Case::of_team("generators", hangs);
        holds(&case.fails(flags), &["did not end"]);
        assert!(case.0.path().join("app/stray").exists(), "{flags:?}");
        assert_eq!(running(&case), [""; 0], "{flags:?}");
    }
}

#[test]
fn one_that_writes_no_yaml_or_half_of_it_is_refused() {
    for (writes, wanted) in [
        ("a: b: c\n", "wrote no YAML in line 1"),
        ("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: \"a", "wrote no YAML in line 3"),
        ("apiVersion: v1\nkind: ConfigMap\nmeta", "wrote no YAML"),
        ("just words\n", "wrote something that is not an object"),
        ("- a\n- b\n", "wrote something that is not an object"),
        ("apiVersion: v1\nkind: ConfigMap\n", "missing metadata.name"),
        ("\\377\\376\\000", "wrote no YAML"),
    ] {
        let script = format!("#!/bin/sh\nprintf -- '{writes}'\n");
        for field in ["generators", "transformers"] {
            let said = Case::of_team(field, &script).fails(&[]);
            holds(&said, &[wanted, "plugin team.example.com", "app/app.yaml:1:1"]);
        }
    }
}

#[test]
fn one_that_writes_without_end_is_stopped() {
    for script in [
        "#!/bin/sh\nyes\n",
        "#!/bin/sh\nwhile :; do echo aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa; done\n",
    ] {
        let said = Case::of_team("generators", script).fails(&["--plugin-max-output", "1M"]);
        holds(&said, &["wrote more than 1048576 bytes", "--plugin-max-output"]);
    }
    // What it says besides is cut, but no failure.
    let chatty =
        "#!/bin/sh\n[ $1 = generate ] || exit 127\nhead -c 3000000 /dev/zero | tr '\\0' x >&2\n";
    let run = Case::of_team("generators", chatty).build(&[]);
    assert_eq!(run.code, 0);
    assert!(run.stderr.len() < 1_200_000, "{}", run.stderr.len());
}

/// More than fits into a pipe.
fn many() -> String {
    (0..3000)
        .map(|n| format!("---\n{}", CONFIG_MAP.replace("name: a", &format!("name: a{n}"))))
        .collect()
}

#[test]
fn one_that_closes_its_input_early_or_never_reads_it_is_heard() {
    for script in [
        "#!/bin/sh\nexec <&-\necho 'I read nothing' >&2\nexit 4\n",
        "#!/bin/sh\necho 'I read nothing' >&2\nexit 4\n",
        "#!/bin/sh\nhead -c 10 > /dev/null\necho 'I read nothing' >&2\nexit 4\n",
    ] {
        let case = Case::of_team("transformers", script);
        case.0.write("app/a.yaml", many());
        holds(&case.fails(&[]), &["failed: exit status 4: I read nothing"]);
    }
    // Written before anything was read, and never read: the answer counts.
    let case = Case::of_team(
        "generators",
        "#!/bin/sh\n[ $1 = generate ] || exit 127\nexec <&-\nprintf 'apiVersion: v1\\nkind: ConfigMap\\nmetadata: {name: b}\\n'\n",
    );
    case.0.write("app/a.yaml", many());
    assert_eq!(case.builds(&[]).matches("kind: ConfigMap").count(), 3001);
}

#[test]
fn one_that_adds_removes_renames_or_doubles_is_refused_with_the_object_named() {
    let secret = r"printf -- '---\napiVersion: v1\nkind: Secret\nmetadata: {name: new}\n'";
    for (script, wanted) in [
        (format!("cat; {secret}"), "transform added Secret.v1.[noGrp]/new.[noNs]"),
        ("true".to_owned(), "transform removed ConfigMap.v1.[noGrp]/a.[noNs]"),
        (
            "sed 's/^  name: a$/  name: b/'".to_owned(),
            "transform renamed ConfigMap.v1.[noGrp]/a.[noNs] to ConfigMap.v1.[noGrp]/b.[noNs]",
        ),
        ("sed 's/^  name: a$/&\\n  namespace: n/'".to_owned(), "to ConfigMap.v1.[noGrp]/a.n"),
        (
            "sed 's/kind: ConfigMap/kind: Secret/'".to_owned(),
            "added Secret.v1.[noGrp]/a.[noNs], removed ConfigMap.v1.[noGrp]/a.[noNs]",
        ),
        (
            "i=$(cat); echo \"$i\"; echo ---; echo \"$i\"".to_owned(),
            "transform wrote ConfigMap.v1.[noGrp]/a.[noNs] twice",
        ),
    ] {
        let said = Case::of_team("transformers", &format!("#!/bin/sh\n{script}\n")).fails(&[]);
        holds(&said, &["plugin team.example.com", wanted, "app/app.yaml:1:1"]);
    }
    let twice = "#!/bin/sh\nfor i in 1 2; do printf -- '---\\napiVersion: v1\\nkind: Secret\\nmetadata: {name: new}\\n'; done\n";
    holds(
        &Case::of_team("generators", twice).fails(&[]),
        &["generate wrote Secret.v1.[noGrp]/new.[noNs] twice"],
    );
    // An existing object cannot be generated again.
    let known = format!(
        "#!/bin/sh\n[ $1 = generate ] || exit 127\nprintf '{}'\n",
        CONFIG_MAP.replace('\n', "\\n")
    );
    holds(
        &Case::of_team("generators", &known).fails(&[]),
        &["exists; can not use behavior", "app/app.yaml:1:1"],
    );
}

#[test]
fn one_that_changes_its_answer_is_found_out_when_asked_twice() {
    let moody = "#!/bin/sh\n[ $1 = generate ] || exit 127\nprintf 'apiVersion: v1\\nkind: ConfigMap\\nmetadata: {name: m}\\ndata: {now: \"%s\"}\\n' $(date +%N)\n";
    let case = Case::of_team("generators", moody);
    case.builds(&[]);
    holds(
        &case.fails(&["--check-plugins"]),
        &["gives two answers to the same input: line 4 of its output", "app/app.yaml:1:1"],
    );

    let keeps_state = "#!/bin/sh\n[ -e been-here ] && exit 5\ntouch been-here\ncat\n";
    let said = Case::of_team("transformers", keeps_state).fails(&["--check-plugins"]);
    holds(&said, &["team.example.com"]);

    let steady = "#!/bin/sh\ncat\n";
    let run = Case::of_team("transformers", steady).build(&["--check-plugins"]);
    assert_eq!((run.code, besides_landlock(&run.stderr).as_str()), (0, ""));

    let grows = "#!/bin/sh\nsed 's/^  k: .*/&x/'\n";
    let run = Case::of_team("transformers", grows).build(&["--check-plugins"]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    holds(
        &run.stderr,
        &[
            "warning: plugin team.example.com changes ConfigMap.v1.[noGrp]/a.[noNs] again when it transforms its own output",
        ],
    );
    holds(&run.stdout, &["k: vx\n"]);

    // Each time one object less, and one more.
    for (script, does) in [
        ("awk 'BEGIN{RS=\"---\\n\"; ORS=\"---\\n\"} NR == 1 || seen++' ", "removes"),
        (
            "i=$(cat); echo \"$i\"; n=$(echo \"$i\" | grep -c 'kind: ConfigMap'); printf -- \"---\\napiVersion: v1\\nkind: ConfigMap\\nmetadata: {name: n$n}\\n\"",
            "adds",
        ),
    ] {
        let case = Case::of_team("transformers", &format!("#!/bin/sh\n{script}\n"));
        case.0.write("app/a.yaml", many());
        let run = case.build(&["--check-plugins", "--unrestricted-transformers"]);
        assert_eq!(run.code, 0, "{}", run.stderr);
        holds(&run.stderr, &[&format!("warning: plugin team.example.com {does} ConfigMap.v1")]);
    }
}

#[test]
fn one_that_cannot_be_started_is_named() {
    let said = Case::of_team("generators", "#!/no/such/interpreter\n").fails(&[]);
    holds(&said, &["cannot start", TEAM, "No such file"]);
    let said =
        Case::of_team("generators", "#!/no/such/interpreter\n").fails(&["--no-plugin-sandbox"]);
    holds(&said, &["cannot start", TEAM, "No such file", "app/app.yaml:1:1"]);
}
