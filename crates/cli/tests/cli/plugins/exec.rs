//! kustomize's own plugins: a program for a kind, and functions that are programs.

use super::{CONFIG_MAP, Case, holds};

const MAKER: &str = "apiVersion: g.example.com/v1\nkind: Maker\nmetadata: {name: m}\nargsOneLiner: one 'two words'\nargsFromFile: args.txt\n";

#[test]
fn arguments_variables_and_folder_are_those_of_kustomize() {
    let script = r#"#!/bin/sh
case $KUSTOMIZE_PLUGIN_CONFIG_STRING in *Maker*) ;; *) exit 7;; esac
[ "$KUSTOMIZE_PLUGIN_CONFIG_ROOT" = "$PWD" ] || exit 8
grep -q 'kind: Maker' "$1" || exit 9
. "$(dirname "$0")/beside.sh"
shift
cat <<END
apiVersion: v1
kind: ConfigMap
metadata:
  name: made
  annotations:
    kustomize.config.k8s.io/needs-hash: "true"
data: {args: "$*", beside: "$BESIDE"}
END
"#;
    let case = Case::new(
        "generators: [m.yaml]\n",
        &[
            ("app/m.yaml", MAKER),
            ("app/args.txt", "three\n\n  four\n"),
            ("exec/g.example.com/v1/maker/beside.sh", "BESIDE=yes\n"),
        ],
    )
    .executable("exec/g.example.com/v1/maker/Maker", script);
    holds(
        &case.builds(&[]),
        &["args: one two words three four\n", "beside: \"yes\"\n", "name: made-"],
    );
}

#[test]
fn behaviour_annotations_merge_into_what_is_there() {
    let script = "#!/bin/sh\nprintf 'apiVersion: v1\\nkind: ConfigMap\\nmetadata:\\n  name: a\\n  annotations: {kustomize.config.k8s.io/behavior: merge}\\ndata: {more: x}\\n'\n";
    let case = Case::new(
        "resources: [a.yaml]\ngenerators: [m.yaml]\n",
        &[
            ("app/a.yaml", CONFIG_MAP),
            ("app/m.yaml", "apiVersion: g.example.com/v1\nkind: Maker\nmetadata: {name: m}\n"),
        ],
    )
    .executable("exec/g.example.com/v1/maker/Maker", script);
    holds(&case.builds(&[]), &["  k: v\n  more: x\n"]);
}

#[test]
fn a_transformer_may_add_rename_and_remove_as_in_kustomize() {
    let script = "#!/bin/sh\nsed 's/^  name: a$/  name: b/'\n";
    let case = Case::new(
        "resources: [a.yaml]\ntransformers: [m.yaml]\n",
        &[
            ("app/a.yaml", CONFIG_MAP),
            ("app/m.yaml", "apiVersion: g.example.com/v1\nkind: Maker\nmetadata: {name: m}\n"),
        ],
    )
    .executable("exec/g.example.com/v1/maker/Maker", script);
    let output = case.builds(&[]);
    holds(&output, &["name: b\n"]);
    assert!(!output.contains("kustomize.config.k8s.io"), "{output}");
}

#[test]
fn misbehaviour_is_told_with_the_place_of_the_configuration() {
    for (script, flags, wanted) in [
        ("echo no >&2; exit 3", &[][..], ": failure in plugin configured via "),
        ("sleep 100", &["--plugin-timeout", "200ms"], "plugin Maker did not end"),
        ("yes", &["--plugin-max-output", "10K"], "wrote more than 10240 bytes"),
        ("printf 'a: b: c'", &[], "line 1 of its output"),
        ("date +%N; echo", &["--check-plugins"], "gives two answers"),
    ] {
        for field in ["generators", "transformers", "validators"] {
            let case = Case::new(
                &format!("resources: [a.yaml]\n{field}: [m.yaml]\n"),
                &[
                    ("app/a.yaml", CONFIG_MAP),
                    ("app/m.yaml", "# first line\napiVersion: g.example.com/v1\nkind: Maker\nmetadata: {name: m}\n"),
                ],
            )
            .executable("exec/g.example.com/v1/maker/Maker", &format!("#!/bin/sh\n{script}\n"));
            let said = case.fails(flags);
            holds(&said, &[wanted, "app/m.yaml:2:1"]);
        }
    }
}

#[test]
fn a_kind_has_its_own_program_before_its_group_has_one() {
    let says = |word: &str| {
        format!(
            "#!/bin/sh\n[ \"$1\" != transform ] || exit 127\nprintf 'apiVersion: v1\\nkind: ConfigMap\\nmetadata: {{name: {word}}}\\n'\n"
        )
    };
    let case = Case::new(
        "generators: [m.yaml, o.yaml]\n",
        &[
            ("app/m.yaml", "apiVersion: g.example.com/v1\nkind: Maker\nmetadata: {name: m}\n"),
            ("app/o.yaml", "apiVersion: g.example.com/v1\nkind: Other\nmetadata: {name: m}\n"),
        ],
    )
    .executable("exec/g.example.com/v1/maker/Maker", &says("by-kind"))
    .executable("config/kustomize/plugins/g.example.com", &says("by-group"));
    holds(&case.builds(&[]), &["name: by-kind\n", "name: by-group\n"]);
}

const FUNCTION: &str = "apiVersion: example.com/v1\nkind: Labeler\nmetadata:\n  name: f\n  annotations:\n    config.kubernetes.io/function: |\n      exec:\n        path: ./fn.sh\n        envs: [WORD=love]\nvalue: x\n";

#[test]
fn functions_speak_in_resource_lists_and_their_results_are_shown() {
    let script = r#"#!/bin/sh
sed "s/k: v/k: $WORD/"
cat <<END
results:
- message: not quite
  severity: warning
  resourceRef: {apiVersion: v1, kind: ConfigMap, name: a}
  field: {path: data.k}
  file: {path: a.yaml}
- message: by the way
  severity: info
END
"#;
    let case = Case::new(
        "resources: [a.yaml]\ntransformers: [f.yaml]\n",
        &[("app/a.yaml", CONFIG_MAP), ("app/f.yaml", FUNCTION)],
    )
    .executable("app/fn.sh", script);
    let run = case.build(&["--enable-exec"]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    holds(&run.stdout, &["k: love\n"]);
    holds(
        &run.stderr,
        &[
            "warning: Labeler: not quite in v1/ConfigMap/a, field data.k, file a.yaml",
            "note: Labeler: by the way",
        ],
    );

    // Results are shown when it fails, too.
    let fails = Case::new(
        "resources: [a.yaml]\ntransformers: [f.yaml]\n",
        &[("app/a.yaml", CONFIG_MAP), ("app/f.yaml", FUNCTION)],
    )
    .executable("app/fn.sh", "#!/bin/sh\nprintf 'kind: ResourceList\\nitems: []\\nresults: [{message: bad, severity: error}]\\n'\nexit 2\n");
    let said = fails.fails(&["--enable-exec"]);
    holds(
        &said,
        &["error: Labeler: bad", "couldn't execute function: exit status 2", "app/f.yaml:1:1"],
    );
}

#[test]
fn a_function_that_fails_is_told_once_with_its_name_its_words_and_its_program() {
    let case = |script: &str| {
        Case::new(
            "resources: [a.yaml]\ntransformers: [f.yaml]\n",
            &[("app/a.yaml", CONFIG_MAP), ("app/f.yaml", FUNCTION)],
        )
        .executable("app/fn.sh", script)
    };
    let said = case("#!/bin/sh\necho no love >&2\nexit 3\n").fails(&["--enable-exec"]);
    holds(
        &said,
        &[
            "function Labeler f: couldn't execute function: exit status 3: no love",
            "app/f.yaml:1:1",
            "it is the executable",
            "app/fn.sh",
        ],
    );
    assert_eq!(said.matches("no love").count(), 1, "{said}");
    let said =
        case("#!/bin/sh\nsleep 100\n").fails(&["--enable-exec", "--plugin-timeout", "300ms"]);
    holds(&said, &["function Labeler f:", "it did not end", "--plugin-timeout", "app/f.yaml:1:1"]);
}

#[test]
fn a_function_is_a_program_of_its_kustomization() {
    let case = |path: &str| {
        let case = Case::new(
            "resources: [a.yaml]\ntransformers: [f.yaml]\n",
            &[("app/a.yaml", CONFIG_MAP), ("app/f.yaml", &FUNCTION.replace("./fn.sh", path))],
        )
        .executable("outside/fn.sh", "#!/bin/sh\ncat\n")
        .executable("app/own.sh", "#!/bin/sh\ncat\n");
        std::os::unix::fs::symlink("../outside/fn.sh", case.0.path().join("app/link.sh")).unwrap();
        std::os::unix::fs::symlink("own.sh", case.0.path().join("app/also.sh")).unwrap();
        case
    };
    for path in ["../outside/fn.sh", "/bin/cat", "./link.sh"] {
        holds(
            &case(path).fails(&["--enable-exec"]),
            &[
                &format!("the program '{path}' of the function Labeler"),
                "is not in or below",
                "app/f.yaml:1:1",
                "--load-restrictor LoadRestrictionsNone",
            ],
        );
        case(path).builds(&["--enable-exec", "--load-restrictor", "LoadRestrictionsNone"]);
    }
    for path in ["own.sh", "./also.sh", "../app/own.sh"] {
        case(path).builds(&["--enable-exec"]);
    }
    holds(
        &case("./gone.sh").fails(&["--enable-exec"]),
        &["cannot find the program './gone.sh'", "no such file", "app/f.yaml:1:1"],
    );
}

#[test]
fn a_function_that_is_wrongly_written_is_told_with_its_place() {
    let case = Case::new(
        "transformers: [f.yaml]\n",
        &[("app/f.yaml", &FUNCTION.replace("exec:", "exce:"))],
    );
    holds(&case.fails(&[]), &["failed to get FunctionSpec", "app/f.yaml:1:1"]);
}

#[test]
fn all_places_are_told_where_a_plugin_could_lie() {
    let config = "apiVersion: g.example.com/v1\nkind: Maker\nmetadata: {name: m}\n";
    for (field, own, other) in [
        ("generators", "plugins/generators/g.example.com", "plugins/transformers/g.example.com"),
        ("transformers", "plugins/transformers/g.example.com", "no such place"),
        ("validators", "plugins/transformers/g.example.com", "no such place"),
    ] {
        let case = Case::new(&format!("{field}: [m.yaml]\n"), &[("app/m.yaml", config)]);
        let said = case.fails(&[]);
        holds(
            &said,
            &[
                "unable to load plugin Maker (Maker.v1.g.example.com/m.[noNs])",
                "exec/g.example.com/v1/maker/Maker",
                "config/kustomize/plugin/g.example.com/v1/maker/Maker",
                "home/.config/kustomize/plugin/g.example.com/v1/maker/Maker",
                "home/kustomize/plugin/g.example.com/v1/maker/Maker",
                "config/kustomize/plugins/g.example.com",
                "home/.config/kustomize/plugins/g.example.com",
                own,
                "app/m.yaml:1:1",
            ],
        );
        assert!(!said.contains(other), "{said}");
        // Nothing behind the first existing folder is read.
        case.0.write("config/kustomize/plugin/.keep", "");
        let said = case.fails(&[]);
        holds(&said, &["exec/g.example.com", "config/kustomize/plugin/g.example.com"]);
        assert!(!said.contains("home/kustomize/plugin/"), "{said}");
    }
}

#[test]
fn functions_that_are_programs_need_a_permission_of_their_own() {
    let case = Case::new(
        "resources: [a.yaml]\ntransformers: [f.yaml]\n",
        &[("app/a.yaml", CONFIG_MAP), ("app/f.yaml", FUNCTION)],
    )
    .executable("app/fn.sh", "#!/bin/sh\ntouch ran\ncat\n");
    let run = case.build(&[]);
    assert_eq!((run.code, run.stdout.contains("k: v\n")), (0, true), "{}", run.stderr);
    holds(
        &run.stderr,
        &["was not run: programs are not allowed", "--enable-exec", "app/f.yaml:1:1"],
    );
    assert!(!case.0.path().join("app/ran").exists());
}
