//! Executables named after an API group: `generate` and `transform`.

use super::{APP, CONFIG_MAP, Case, TEAM, besides_landlock, holds};

/// Generates a ConfigMap that tells what it was given; passes everything through otherwise.
const TELLS: &str = r#"#!/bin/sh
echo "$1 in $(basename "$PWD") with $GREETING" >&2
case $1 in
generate)
    input=$(cat)
    cat <<END
apiVersion: v1
kind: ConfigMap
metadata:
  name: told
data:
  input: |
$(echo "$input" | sed 's/^/    /')
END
    ;;
transform) cat ;;
*) exit 127 ;;
esac
"#;

#[test]
fn generates_from_the_virtual_resources_of_its_group_and_inherits_folder_and_environment() {
    let case = Case::of_team("generators", TELLS);
    let run = {
        let root = case.0.path().display().to_string();
        case.0.kiln_with_variables(
            &["build", "app", "--enable-alpha-plugins"],
            &[("XDG_CONFIG_HOME", &format!("{root}/config")), ("GREETING", "love")],
        )
    };
    assert_eq!(run.code, 0, "{}", run.stderr);
    holds(&run.stderr, &["team.example.com says: generate in app with love"]);
    // What generates is asked to transform too.
    holds(&run.stderr, &["team.example.com says: transform in app with love"]);
    let wanted = "\
apiVersion: v1
data:
  k: v
kind: ConfigMap
metadata:
  name: a
---
apiVersion: v1
data:
  input: |
    generate:
      image: foo
      size: big
    groupVersion: team.example.com/v1beta1
    kind: CommonApp
kind: ConfigMap
metadata:
  name: told
";
    assert_eq!(run.stdout, wanted);
}

#[test]
fn one_process_serves_all_virtual_resources_of_a_group() {
    let count = "#!/bin/sh\n[ $1 = generate ] || exit 127\nn=$(grep -c '^kind: CommonApp')\n\
                 printf 'apiVersion: v1\\nkind: ConfigMap\\nmetadata: {name: n%s}\\n' $n\n";
    let case = Case::new(
        "generators: [one.yaml, two.yaml]\n",
        &[
            ("app/one.yaml", &format!("{APP}---\n{APP}")),
            (
                "app/two.yaml",
                "apiVersion: team.example.com/v1\nkind: CommonApp\nmetadata: {name: x}\n",
            ),
        ],
    )
    .executable(TEAM, count);
    let output = case.builds(&[]);
    holds(&output, &["name: n3\n"]);
    assert_eq!(output.matches("kind:").count(), 1, "{output}");
}

#[test]
fn transforms_all_resources_before_the_built_in_transformers() {
    let script = "#!/bin/sh\n[ $1 = transform ] || exit 127\nsed 's/k: v/k: by-plugin/; s/CommonApp/CommonApp/'\n";
    let case = Case::new(
        "namePrefix: x-\nresources: [a.yaml]\nconfigMapGenerator: [{name: g, literals: [k=v]}]\n\
         transformers: [app.yaml]\npatches:\n- patch: |-\n    apiVersion: v1\n    kind: ConfigMap\n    metadata: {name: a}\n    data: {p: patched}\n",
        &[("app/a.yaml", CONFIG_MAP), ("app/app.yaml", APP)],
    )
    .executable(TEAM, script);
    let output = case.builds(&[]);
    // The hash of the generated one is that of its new content, and prefixes still come.
    holds(&output, &["  k: by-plugin\n  p: patched\n", "name: x-a\n", "name: x-g-"]);
    assert_eq!(output.matches("by-plugin").count(), 2, "{output}");
    assert!(!output.contains("CommonApp"), "virtual resources stay behind:\n{output}");
}

#[test]
fn exit_code_127_is_an_answer_only_where_transforming_was_not_asked_for() {
    let generator = "#!/bin/sh\n[ $1 = generate ] || exit 127\nprintf 'apiVersion: v1\\nkind: ConfigMap\\nmetadata: {name: b}\\n'\n";
    let output = Case::of_team("generators", generator).builds(&[]);
    holds(&output, &["name: a\n", "name: b\n"]);
    let said = Case::of_team("transformers", generator).fails(&[]);
    holds(
        &said,
        &["team.example.com does not support transform: exit status 127", "app/app.yaml:1:1"],
    );
    let transformer =
        "#!/bin/sh\n[ $1 = transform ] || { echo no such word >&2; exit 127; }\ncat\n";
    let said = Case::of_team("generators", transformer).fails(&[]);
    holds(&said, &["does not support generate: exit status 127: no such word", "app/app.yaml:1:1"]);
    assert!(Case::of_team("transformers", transformer).builds(&[]).contains("name: a\n"));
}

#[test]
fn patches_reach_virtual_resources_first_and_resources_later() {
    let script = "#!/bin/sh\n[ $1 = generate ] || exit 127\nsize=$(sed -n 's/^  size: //p')\nimage=x\n\
                  printf 'apiVersion: v1\\nkind: ConfigMap\\nmetadata: {name: made}\\ndata: {size: %s}\\n' $size\n";
    let kustomization = "generators: [app.yaml]\npatches:\n- target: {kind: CommonApp}\n  patch: |-\n    - {op: replace, path: /generate/size, value: small}\n\
                         - target: {kind: ConfigMap}\n  patch: |-\n    - {op: add, path: /data/later, value: yes}\n";
    let case = Case::new(kustomization, &[("app/app.yaml", APP)]).executable(TEAM, script);
    let run = case.build(&[]);
    holds(&run.stdout, &["  later: true\n  size: small\n"]);
    assert_eq!(
        besides_landlock(&run.stderr),
        "",
        "a patch that hit a virtual resource selects something"
    );

    // A patch by name, in the words of the virtual resource.
    let by_name =
        "groupVersion: team.example.com/v1beta1\nkind: CommonApp\ngenerate: {size: tiny}\n";
    let case = Case::new(
        "generators: [app.yaml]\npatches: [{path: patch.yaml}]\n",
        &[("app/app.yaml", APP), ("app/patch.yaml", by_name)],
    )
    .executable(TEAM, script);
    holds(&case.builds(&[]), &["  size: tiny\n"]);

    // One that hits nothing at all is an error, as ever.
    let case = Case::new(
        "generators: [app.yaml]\npatches: [{path: patch.yaml}]\n",
        &[
            ("app/app.yaml", APP),
            ("app/patch.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: x}\n"),
        ],
    )
    .executable(TEAM, script);
    holds(&case.fails(&[]), &["no resource matches strategic merge patch"]);
}

#[test]
fn places_are_searched_in_order_and_listed_when_nothing_is_there() {
    let says = |word: &str| {
        format!(
            "#!/bin/sh\n[ $1 = generate ] || exit 127\nprintf 'apiVersion: v1\\nkind: ConfigMap\\nmetadata: {{name: {word}}}\\n'\n"
        )
    };
    let mut case = Case::new("generators: [app.yaml]\n", &[("app/app.yaml", APP)]);
    let said = case.fails(&[]);
    holds(
        &said,
        &[
            "unable to load plugin CommonApp (CommonApp.v1beta1.team.example.com/[noName].[noNs]): no executable at ",
            "/config/kustomize/plugins/team.example.com",
            "/config/kustomize/plugins/generators/team.example.com",
            "/home/.config/kustomize/plugins/team.example.com",
            "app/app.yaml:1:1",
        ],
    );
    for (place, word) in [
        ("home/.config/kustomize/plugins/generators/team.example.com", "home-generators"),
        ("home/.config/kustomize/plugins/team.example.com", "home"),
        ("config/kustomize/plugins/generators/team.example.com", "generators"),
        (TEAM, "first"),
    ] {
        case = case.executable(place, &says(word));
        holds(&case.builds(&[]), &[&format!("name: {word}\n")]);
    }
    // A group without a version will do, and a version that is unknown.
    for api_version in ["team.example.com", "team.example.com/v9"] {
        case.0.write("app/app.yaml", format!("apiVersion: {api_version}\nkind: CommonApp\n"));
        holds(&case.builds(&[]), &["name: first\n"]);
        case.0.write("app/app.yaml", format!("groupVersion: {api_version}\nkind: CommonApp\n"));
        holds(&case.builds(&[]), &["name: first\n"]);
    }
}

#[test]
fn no_group_and_no_kind_leads_out_of_the_folder_of_plugins() {
    let case = Case::new("generators: [app.yaml]\n", &[])
        .executable("config/evil", "#!/bin/sh\ntouch \"$OLDPWD/pwned\"\n")
        .executable("exec/g/v1/evil", "#!/bin/sh\necho\n");
    for (api_version, kind) in [
        ("../../evil", "X"),
        ("..", "X"),
        ("g/v1", "../evil"),
        ("g/../../config", "evil"),
        ("g/..", "evil"),
    ] {
        let config = format!("apiVersion: {api_version}\nkind: {kind}\nmetadata: {{name: x}}\n");
        case.0.write("app/app.yaml", config);
        let said = case.fails(&[]);
        assert!(said.contains("unable to load plugin") || said.contains("missing"), "{said}");
    }
}

#[test]
fn a_file_that_cannot_be_executed_is_named() {
    let case =
        Case::new("generators: [app.yaml]\n", &[("app/app.yaml", APP), (TEAM, "#!/bin/sh\n")]);
    holds(&case.fails(&[]), &["unexecutable plugin at: ", TEAM, "app/app.yaml:1:1"]);
}

#[test]
fn nothing_runs_unless_it_is_allowed() {
    let case = Case::of_team("generators", "#!/bin/sh\ntouch ran\n");
    for args in [&["build", "app"][..], &["build", "app", "--enable-exec"]] {
        let run = case.kiln(args);
        assert_eq!(run.code, 2);
        holds(
            &run.stderr,
            &[
                "external plugins disabled; unable to load external plugin 'CommonApp'",
                "--enable-alpha-plugins",
            ],
        );
    }
    assert!(!case.0.path().join("app/ran").exists());
}

#[test]
fn bases_run_their_plugins_in_their_own_folder() {
    let script = "#!/bin/sh\n[ $1 = generate ] || exit 127\n\
                  printf 'apiVersion: v1\\nkind: ConfigMap\\nmetadata: {name: from-%s}\\n' $(basename $PWD)\n";
    let case = Case::new(
        "resources: [../base]\ngenerators: [app.yaml]\nnameSuffix: -x\n",
        &[
            ("app/app.yaml", APP),
            ("base/app.yaml", APP),
            ("base/kustomization.yaml", "generators: [app.yaml]\n"),
        ],
    )
    .executable(TEAM, script);
    holds(&case.builds(&[]), &["name: from-app-x\n", "name: from-base-x\n"]);
}

#[test]
fn generators_of_several_groups_run_side_by_side_and_answer_in_order() {
    // Each waits for the other to have started.
    let script = |own: &str, other: &str| {
        format!(
            "#!/bin/sh\n[ $1 = generate ] || exit 127\ntouch started-{own}\n\
             i=0; while [ ! -e started-{other} ]; do i=$((i+1)); [ $i -gt 500 ] && exit 9; sleep 0.02; done\n\
             printf 'apiVersion: v1\\nkind: ConfigMap\\nmetadata: {{name: {own}}}\\n'\n"
        )
    };
    let case = Case::new(
        "sortOptions: {order: fifo}\ngenerators: [b.yaml, a.yaml]\n",
        &[
            ("app/a.yaml", "groupVersion: a.example.com/v1\nkind: A\n"),
            ("app/b.yaml", "groupVersion: b.example.com/v1\nkind: B\n"),
        ],
    )
    .executable("config/kustomize/plugins/a.example.com", &script("a", "b"))
    .executable("config/kustomize/plugins/b.example.com", &script("b", "a"));
    let output = case.builds(&[]);
    assert!(output.find("name: b\n") < output.find("name: a\n"), "{output}");
}

#[test]
fn what_transformers_may_do_can_be_lifted() {
    let deployment = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d}\nspec: {template: {spec: {volumes: [{configMap: {name: a}}]}}}\n";
    let renames = "#!/bin/sh\nsed 's/^  name: a$/  name: foo-a/'\nprintf -- '---\\napiVersion: v1\\nkind: Secret\\nmetadata: {name: new}\\n'\n";
    let case = Case::new(
        "resources: [a.yaml, d.yaml]\ntransformers: [app.yaml]\n",
        &[("app/a.yaml", CONFIG_MAP), ("app/d.yaml", deployment), ("app/app.yaml", APP)],
    )
    .executable(TEAM, renames);
    let said = case.fails(&[]);
    holds(
        &said,
        &[
            "renamed ConfigMap.v1.[noGrp]/a.[noNs] to ConfigMap.v1.[noGrp]/foo-a.[noNs]",
            "added Secret.v1.[noGrp]/new.[noNs]",
            "--unrestricted-transformers",
            "app/app.yaml:1:1",
        ],
    );
    let output = case.builds(&["--unrestricted-transformers"]);
    // Who spoke of the old name speaks of the new one.
    holds(&output, &["name: foo-a\n", "- configMap:\n          name: foo-a\n", "name: new\n"]);
}
