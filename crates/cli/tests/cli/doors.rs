//! Ways into Kiln: schemas, the language server, annotations of forges, starts of policies, functions.

use std::path::Path;
use std::process::Command;

use kiln_testkit::{project_root, skip};
use serde_json::{Value, json};

use crate::harness::{Folder, kiln};

#[test]
fn schemas_are_printed_and_written() {
    let one = kiln(&["schema", "clusterpolicy"]);
    let schema: Value = serde_json::from_str(&one.stdout).unwrap();
    assert_eq!(schema["title"], "ClusterPolicy");
    assert_eq!(schema["properties"]["kind"]["const"], "ClusterPolicy");
    let unknown = kiln(&["schema", "ClusterPolicyy"]);
    assert_eq!(unknown.code, 2);
    assert!(unknown.stderr.contains("did you mean \"ClusterPolicy\"?"), "{}", unknown.stderr);
    let several = kiln(&["schema", "Test"]);
    assert!(several.stderr.contains("chainsaw.kyverno.io/v1alpha1/Test"), "{}", several.stderr);
    let comment = kiln(&["schema", "Kustomization", "--comment", ".schemas/"]);
    assert_eq!(
        comment.stdout,
        "# yaml-language-server: $schema=.schemas/kustomize.config.k8s.io-kustomization.json\n"
    );
    let folder = Folder::with(&[]);
    let all = folder.kiln(&["schema", "--all", ".schemas"]);
    assert!(all.stdout.contains("$schema=.schemas/kiln.json"), "{}", all.stdout);
    let whole: Value = serde_json::from_str(&folder.read(".schemas/kiln.json")).unwrap();
    assert!(whole["allOf"].as_array().unwrap().len() > 30);
    let listed = kiln(&["schema", "--list"]).stdout;
    assert!(listed.contains("ModRule") && listed.contains("kustomize.config.k8s.io/v1beta1"));
}

#[test]
fn starts_pass_their_own_tests() {
    for what in [
        &["policy", "first"][..],
        &["policy", "first", "--rule", "mutate"],
        &["policy", "first", "--rule", "generate"],
        &["policy", "first", "--rule", "cel"],
        &["modrule", "first"],
    ] {
        let folder = Folder::with(&[]);
        let words: Vec<&str> = ["new"].into_iter().chain(what.iter().copied()).collect();
        let made = folder.kiln(&words);
        assert_eq!(made.code, 0, "{what:?}: {}", made.stderr);
        assert!(made.stdout.contains("next: kiln test first\n"), "{}", made.stdout);
        let checked = folder.kiln(&["check", "--strict", "first"]);
        assert_eq!(checked.code, 0, "{what:?}: {}{}", checked.stdout, checked.stderr);
        let tested = folder.kiln(&["test", "first", "--require-tests"]);
        assert_eq!(tested.code, 0, "{what:?}: {}{}", tested.stdout, tested.stderr);
        let again = folder.kiln(&words);
        assert_eq!(again.code, 2);
        assert!(again.stderr.contains("is there already"), "{}", again.stderr);
        // What a test expects can be written from what happens.
        std::fs::remove_file(folder.path().join("first/kyverno-test.yaml")).unwrap();
        let _ = std::fs::remove_file(folder.path().join("first/patched.yaml"));
        let _ = std::fs::remove_file(folder.path().join("first/generated.yaml"));
        let recorded = folder.kiln(&["new", "test", "first"]);
        assert_eq!(recorded.code, 0, "{what:?}: {}", recorded.stderr);
        let tested = folder.kiln(&["test", "first", "--require-tests"]);
        assert_eq!(
            tested.code,
            0,
            "{what:?}: {}{}{}",
            tested.stdout,
            tested.stderr,
            folder.read("first/kyverno-test.yaml")
        );
    }
    assert_eq!(kiln(&["new", "policy", "../x"]).code, 2);
    assert_eq!(kiln(&["new", "test", "."]).code, 2);
}

#[cfg(target_os = "linux")]
#[test]
fn a_started_plugin_builds_what_it_expects() {
    let folder = Folder::with(&[]);
    assert_eq!(folder.kiln(&["new", "plugin", "teams"]).code, 0);
    let built = folder.kiln(&[
        "build",
        "teams",
        "--enable-alpha-plugins",
        "--enable-exec",
        "--diff",
        "teams/expected.yaml",
        "--exit-code",
    ]);
    assert_eq!((built.code, built.stdout.as_str()), (0, ""), "{}", built.stderr);
}

#[test]
fn files_of_kyvernos_command_line_are_created_and_read() {
    let folder = Folder::with(&[]);
    folder.kiln(&["new", "policy", "p"]);
    let test = folder.kiln(&[
        "create",
        "test",
        "-p",
        "policy.yaml",
        "-r",
        "resources.yaml",
        "--name",
        "t",
        "--pass",
        "p,team-label,labelled,shop,Deployment",
        "--fail",
        "p,team-label,unlabelled,shop,Deployment",
        "-o",
        "p/kyverno-test.yaml",
    ]);
    assert_eq!(test.code, 0, "{}", test.stderr);
    let tested = folder.kiln(&["test", "p", "--require-tests"]);
    assert_eq!(tested.code, 0, "{}{}", tested.stdout, tested.stderr);
    let exception = folder.kiln(&[
        "create",
        "exception",
        "late",
        "--namespace",
        "shop",
        "--policy-rules",
        "p,team-label",
        "--any",
        "kind=Deployment,name=un*",
        "-o",
        "exception.yaml",
    ]);
    assert_eq!(exception.code, 0, "{}", exception.stderr);
    let excepted =
        folder.kiln(&["apply", "p/policy.yaml", "-r", "p/resources.yaml", "-e", "exception.yaml"]);
    assert_eq!(excepted.code, 0, "{}{}", excepted.stdout, excepted.stderr);
    let user = kiln(&["create", "user-info", "-u", "ann", "-g", "dev,ops", "-c", "admin"]);
    assert_eq!(
        user.stdout,
        "apiVersion: cli.kyverno.io/v1alpha1\nkind: UserInfo\nmetadata:\n  name: user-info\nroles: []\nclusterRoles:\n- admin\nuserInfo:\n  username: ann\n  groups:\n  - dev\n  - ops\n"
    );
    let values = kiln(&[
        "create",
        "values",
        "-g",
        "request.mode=dev",
        "-n",
        "prod,env=prod",
        "--rule",
        "p,r,env=demo",
        "--resource",
        "p,x,a=b",
    ]);
    assert!(values.stdout.contains("globalValues:\n  request.mode: dev\n"), "{}", values.stdout);
    assert!(
        values.stdout.contains("- name: prod\n  labels:\n    env: prod\n"),
        "{}",
        values.stdout
    );
    let metrics = kiln(&["create", "metrics-config", "-i", "a", "-e", "b"]);
    assert!(
        metrics.stdout.contains("name: kyverno-metrics") && metrics.stdout.contains("\"include\"")
    );
    let role = kiln(&[
        "create",
        "cluster-role",
        "crontab",
        "--api-groups",
        "stable.example.com",
        "--verbs",
        "all",
        "--resources",
        "crontabs",
    ]);
    assert!(
        role.stdout.contains("rbac.kyverno.io/aggregate-to-background-controller: \"true\""),
        "{}",
        role.stdout
    );
    for wrong in [
        &["create", "test", "--pass", "a,b"][..],
        &["create", "exception", "e", "--policy-rules", "p"],
        &["create", "exception", "e", "--policy-rules", "p,r", "--any", "color=red"],
        &["create", "values", "-g", "x"],
    ] {
        assert_eq!(kiln(wrong).code, 2, "{wrong:?}");
    }
    // The command of kustomize is as it was.
    let kustomization = Folder::with(&[]);
    assert_eq!(kustomization.kiln(&["create", "--namespace", "shop"]).code, 0);
    assert!(kustomization.read("kustomization.yaml").contains("namespace: shop"));
}

fn annotated() -> Folder {
    let folder = Folder::with(&[
        (
            "broken.yaml",
            "apiVersion: kyverno.io/v1\nkind: ClusterPolicy\nmetadata: {name: b}\nspec:\n  ruls: []\n",
        ),
        ("app/kustomization.yaml", "resources: [c.yaml]\ncommonLabels: {a: b}\n"),
        ("app/c.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\n"),
        ("bad/kustomization.yaml", "resources: [no.yaml]\n"),
    ]);
    folder.kiln(&["new", "policy", "p"]);
    folder
}

#[test]
fn every_command_of_a_pipeline_annotates() {
    let folder = annotated();
    folder.write(
        "p/kyverno-test.yaml",
        folder.read("p/kyverno-test.yaml").replace("result: fail", "result: pass"),
    );
    for (words, code, github) in [
        (
            &["check", "broken.yaml"][..],
            2,
            "::error file=broken.yaml,line=5,col=3,title=kiln-check/error::unknown field spec.ruls",
        ),
        (
            &["apply", "p/policy.yaml", "-r", "p/resources.yaml"],
            1,
            "::warning file=p/resources.yaml,line=",
        ),
        (&["test", "p"], 1, "::error file=p/kyverno-test.yaml,line="),
        (
            &["build", "app"],
            0,
            "::warning file=app/kustomization.yaml,line=2,col=1,title=kiln-build/warning::",
        ),
        (&["build", "bad"], 2, "::error file=bad/kustomization.yaml,line=1,"),
    ] {
        let with = |form: &str| {
            let words: Vec<&str> = words.iter().copied().chain(["--format", form]).collect();
            let run = folder.kiln(&words);
            assert_eq!(run.code, code, "{words:?}: {}{}", run.stdout, run.stderr);
            run.stdout
        };
        let lines = with("github");
        assert!(lines.lines().any(|line| line.starts_with(github)), "{words:?}: {lines}");
        let sarif: Value = serde_json::from_str(&with("sarif")).unwrap();
        let results = sarif["runs"][0]["results"].as_array().unwrap();
        assert_eq!(results.len(), lines.lines().count(), "{words:?}: {sarif:#}");
        for result in results {
            let rule = result["ruleIndex"].as_u64().unwrap();
            assert_eq!(
                sarif["runs"][0]["tool"]["driver"]["rules"][rule as usize]["id"],
                result["ruleId"]
            );
            assert!(result["locations"][0]["physicalLocation"]["region"]["startLine"].is_u64());
        }
        let gitlab: Value = serde_json::from_str(&with("gitlab")).unwrap();
        assert_eq!(gitlab.as_array().unwrap().len(), results.len());
        assert_eq!(gitlab[0]["fingerprint"].as_str().unwrap().len(), 32);
        assert!(with("azure").starts_with("##vso[task.logissue type="));
    }
    // The objects are not lost: they go to a file.
    assert_eq!(folder.kiln(&["build", "app", "--format", "github", "-o", "out.yaml"]).code, 0);
    assert!(folder.read("out.yaml").contains("kind: ConfigMap"));
}

#[test]
fn hooks_may_give_files_without_policies() {
    let folder = annotated();
    assert_eq!(folder.kiln(&["check", "app/c.yaml"]).code, 2);
    let allowed = folder.kiln(&["check", "--allow-empty", "app/c.yaml"]);
    assert_eq!(allowed.code, 0, "{}", allowed.stderr);
    assert_eq!(folder.kiln(&["check", "--allow-empty", "app/c.yaml", "broken.yaml"]).code, 2);
    // So may a directory that has no policies yet.
    std::fs::create_dir(folder.path().join("policies")).unwrap();
    assert_eq!(folder.kiln(&["check", "policies"]).code, 2);
    let allowed = folder.kiln(&["check", "--allow-empty", "policies"]);
    assert_eq!((allowed.code, allowed.stderr.as_str()), (0, ""));
    assert_eq!(folder.kiln(&["check", "--allow-empty", "polices"]).code, 2);
}

#[test]
fn comments_stay_where_that_is_asked_for() {
    let folder = Folder::with(&[("a.yaml", "# head\nb:\n    c:   1 # why\na: 2\n")]);
    assert_eq!(folder.kiln(&["fmt", "--check", "--keep-comments", "a.yaml"]).code, 1);
    assert_eq!(folder.kiln(&["fmt", "--write", "--keep-comments", "a.yaml"]).code, 0);
    assert_eq!(folder.read("a.yaml"), "# head\nb:\n  c: 1 # why\na: 2\n");
    assert_eq!(folder.kiln(&["fmt", "--check", "--keep-comments", "a.yaml"]).code, 0);
}

const RESOURCE_LIST: &str = "\
apiVersion: config.kubernetes.io/v1
kind: ResourceList
functionConfig:
  apiVersion: v1
  kind: ConfigMap
  metadata: {name: policies}
  data:
    label.yaml: |
      apiVersion: kyverno.io/v1
      kind: ClusterPolicy
      metadata: {name: team}
      spec:
        rules:
        - name: label
          match: {any: [{resources: {kinds: [ConfigMap]}}]}
          mutate: {patchStrategicMerge: {metadata: {labels: {+(team): shop}}}}
items:
- apiVersion: v1
  kind: ConfigMap
  metadata:
    name: a
    annotations: {config.kubernetes.io/index: '0', config.kubernetes.io/path: a.yaml}
- apiVersion: kyverno.io/v1
  kind: ClusterPolicy
  metadata: {name: names}
  spec:
    rules:
    - name: short
      match: {any: [{resources: {kinds: [ConfigMap]}}]}
      validate: {failureAction: Enforce, message: the name must be short, pattern: {metadata: {name: '?'}}}
";

#[test]
fn the_binary_is_a_function() {
    let folder = Folder::with(&[]);
    let read = |text: &str| -> Value { serde_json::from_str(text).unwrap() };
    let as_json = |yaml: &str| {
        let json = folder.kiln_with_input(&["fmt", "-", "--format", "json"], yaml.as_bytes());
        read(&json.stdout)
    };
    for words in [&["krm"][..], &[]] {
        let run = folder.kiln_with_input(words, RESOURCE_LIST.as_bytes());
        assert_eq!(run.code, 0, "{}", run.stderr);
        let list = as_json(&run.stdout);
        assert_eq!(list["kind"], "ResourceList");
        assert_eq!(list["items"][0]["metadata"]["labels"], json!({"team": "shop"}));
        assert_eq!(
            list["items"][0]["metadata"]["annotations"]["config.kubernetes.io/path"],
            "a.yaml"
        );
        assert_eq!(list["items"][1]["kind"], "ClusterPolicy");
        assert!(list.get("results").is_none());
    }
    let refused = folder
        .kiln_with_input(&["krm"], RESOURCE_LIST.replace("name: a\n", "name: long\n").as_bytes());
    assert_eq!(refused.code, 1);
    let list = as_json(&refused.stdout);
    assert_eq!(list["results"][0]["severity"], "error");
    assert_eq!(list["results"][0]["resourceRef"]["name"], "long");
    assert_eq!(list["items"][0]["metadata"]["name"], "long");
    // Nothing, or something else, is what it was before.
    assert!(folder.kiln(&[]).stderr.contains("Usage: kiln"));
    assert_eq!(folder.kiln_with_input(&["krm"], b"kind: Pod\n").code, 2);
    let none = RESOURCE_LIST.split("functionConfig:").next().unwrap();
    assert_eq!(folder.kiln_with_input(&["krm"], format!("{none}items: []\n").as_bytes()).code, 2);
}

/// A real client of the protocol, from npm.
#[test]
fn a_client_in_node_is_served() {
    let how = "install Node.js with npm";
    let has = |program: &str| Command::new(program).arg("--version").output().is_ok();
    if !has("node") || !has("npm") {
        return skip("Node.js or npm is missing", how);
    }
    let source = project_root().join("xtask/lsp-client");
    let packages =
        std::env::temp_dir().join(format!("kiln-lsp-client-{}", env!("CARGO_PKG_VERSION")));
    if !packages.join("node_modules/vscode-languageserver-protocol").exists() {
        std::fs::create_dir_all(&packages).unwrap();
        for file in ["package.json", "package-lock.json"] {
            std::fs::copy(source.join(file), packages.join(file)).unwrap();
        }
        let installed = Command::new("npm")
            .args(["ci", "--no-audit", "--no-fund", "--ignore-scripts"])
            .current_dir(&packages)
            .output()
            .unwrap();
        if !installed.status.success() {
            return skip("npm cannot fetch packages", "connect to the registry of npm");
        }
    }
    std::fs::copy(source.join("client.mjs"), packages.join("client.mjs")).unwrap();
    let folder = annotated();
    let ran = Command::new("node")
        .arg(packages.join("client.mjs"))
        .arg(env!("CARGO_BIN_EXE_kiln"))
        .arg(folder.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ran.stdout).into_owned();
    assert!(ran.status.success(), "{said}{}", String::from_utf8_lossy(&ran.stderr));
    let wanted = std::fs::read_to_string(source.join("expected.txt")).unwrap();
    assert_eq!(said, wanted);
}

/// The Action, the hooks and the manifest of the plugin call commands and options that there are.
#[test]
fn published_files_call_what_there_is() {
    let root = project_root();
    let texts = [".github/action/run.sh", ".pre-commit-hooks.yaml", "action.yml"]
        .map(|file| std::fs::read_to_string(root.join(file)).unwrap_or_else(|_| panic!("{file}")));
    for option in ["--format", "--allow-empty", "--keep-comments", "--diff", "--strict"] {
        assert!(texts.iter().any(|text| text.contains(option)), "{option}");
    }
    for command in ["check", "test", "fmt", "build", "apply"] {
        let help = kiln(&[command, "--help"]);
        assert_eq!(help.code, 0, "{command}");
    }
    let hooks =
        kiln_yaml::read_bytes("hooks", texts[1].as_bytes(), kiln_yaml::ReadOptions::kubernetes());
    let hooks = hooks.unwrap().remove(0).into_value();
    let folder = annotated();
    for hook in hooks.as_list().unwrap() {
        let entry = hook.str_at(["entry"]).unwrap();
        let mut words: Vec<&str> = entry.split(' ').collect();
        assert_eq!(words.remove(0), "kiln");
        words.push("--help");
        assert_eq!(folder.kiln(&words).code, 0, "{entry}");
    }
    assert!(Path::new(&root.join("docs/guides/editors.md")).exists());
}

/// What the Action runs, as a runner does.
#[cfg(unix)]
#[test]
fn the_script_of_the_action_runs_every_part_and_annotates() {
    if Command::new("bash").arg("--version").output().is_err() {
        return skip("bash is missing", "install bash");
    }
    let folder = annotated();
    let run = |variables: &[(&str, &str)]| {
        let ran = Command::new("bash")
            .arg(project_root().join(".github/action/run.sh"))
            .current_dir(folder.path())
            .env("KILN", env!("CARGO_BIN_EXE_kiln"))
            .envs(variables.iter().copied())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&ran.stdout).into_owned();
        (ran.status.code(), said)
    };
    let all = [
        ("KILN_CHECK", "p/policy.yaml"),
        ("KILN_TEST", "p"),
        ("KILN_BUILD", "app"),
        ("KILN_FMT", "app"),
    ];
    let (code, said) = run(&all);
    assert_eq!(code, Some(0), "{said}");
    for group in ["check", "test", "build app", "fmt"] {
        assert!(said.contains(&format!("::group::kiln {group}\n")), "{said}");
    }
    // One part fails, and the others run all the same.
    let (code, said) =
        run(&[("KILN_CHECK", "broken.yaml"), ("KILN_BUILD", "bad app"), ("KILN_TEST", "p")]);
    assert_eq!(code, Some(1), "{said}");
    assert!(
        said.contains("::error file=broken.yaml,line=5") && said.contains("::group::kiln test"),
        "{said}"
    );
    let applied = [
        ("KILN_APPLY", "p/policy.yaml"),
        ("KILN_RESOURCES", "p/resources.yaml"),
        ("KILN_SARIF", "kiln.sarif"),
    ];
    assert_eq!(run(&applied).0, Some(1));
    let sarif: Value = serde_json::from_str(&folder.read("kiln.sarif")).unwrap();
    assert_eq!(sarif["version"], "2.1.0");
}

/// The Action takes a release only with its checksum. `file:` stands for the server of releases.
#[cfg(target_os = "linux")]
#[test]
fn the_action_installs_what_has_its_checksum() {
    let has = |program: &str| Command::new(program).arg("--version").output().is_ok();
    if !["bash", "curl", "tar", "sha256sum", "awk"].iter().all(|program| has(program)) {
        return skip("bash, curl, tar, sha256sum or awk is missing", "install them");
    }
    let system = if cfg!(target_arch = "aarch64") { "linux-arm64" } else { "linux-amd64" };
    let (archive, inside) = (format!("kiln-0.2.0-{system}.tar.gz"), format!("kiln-0.2.0-{system}"));
    let folder = Folder::with(&[]);
    folder.write(&format!("{inside}/kiln"), "#!/bin/sh\necho kiln from a release\n");
    let shell = |script: &str| {
        let ran = Command::new("bash").args(["-ec", script]).current_dir(folder.path()).output();
        assert!(ran.unwrap().status.success(), "{script}");
    };
    shell(&format!(
        "chmod +x {inside}/kiln; mkdir -p releases/v0.2.0 temp; tar -czf releases/v0.2.0/{archive} {inside}; \
         cd releases/v0.2.0; sha256sum {archive} > SHA256SUMS"
    ));
    let install = |version: &str| {
        let at = |name: &str| folder.path().join(name);
        let _ = std::fs::remove_file(at("output"));
        let ran = Command::new("bash")
            .arg(project_root().join(".github/action/install.sh"))
            .env("KILN_VERSION", version)
            .env("KILN_REF", "v0.2.0")
            .env("KILN_RELEASES", format!("file://{}", at("releases").display()))
            .env("RUNNER_TEMP", at("temp"))
            .env("GITHUB_PATH", at("path"))
            .env("GITHUB_OUTPUT", at("output"))
            .env_remove("KILN_BINARY")
            .output()
            .unwrap();
        (ran.status.code(), String::from_utf8_lossy(&ran.stdout).into_owned())
    };
    // The release is that of the Action where none is named.
    for version in ["", "0.2.0"] {
        let (code, said) = install(version);
        assert_eq!((code, said.as_str()), (Some(0), "kiln from a release\n"), "{version:?}");
        assert!(folder.read("output").ends_with(&format!("/{inside}/kiln\n")));
        assert!(folder.read("path").contains(&inside));
    }
    let (code, said) = install("9.9.9");
    assert_eq!(code, Some(2));
    assert!(said.contains("::error title=kiln::cannot download file://"), "{said}");
    let (code, said) = install("main");
    assert_eq!(code, Some(2));
    assert!(said.contains("set version to a release such as 0.2.0"), "{said}");
    for sums in [format!("{:064}  {archive}\n", 0), String::new()] {
        folder.write("releases/v0.2.0/SHA256SUMS", sums);
        let (code, said) = install("0.2.0");
        assert_eq!(code, Some(2), "{said}");
        assert!(said.contains("does not have the checksum"), "{said}");
        assert!(!folder.path().join("output").exists());
    }
}
