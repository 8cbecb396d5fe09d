//! The binary under other names: as `kustomize` it is kustomize, as `kubectl-kiln` a plugin of kubectl.
//!
//! What Argo CD and Flux call stands in `tests/cases/kustomize-calls` with what kustomize answers, recorded by
//! `cargo xtask record kustomize-calls`: standard output, exit code and the first line of the message.

#![cfg(unix)]

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use kiln_testkit::{Case, Expected, difference, project_root};
use kiln_value::{Map, Value};
use tempfile::TempDir;

use crate::harness::{Folder, Run};

const CONFIG_MAP: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n";

/// The binary under a name of its own.
struct Program {
    _folder: TempDir,
    path: PathBuf,
}

impl Program {
    /// By a link.
    fn linked(name: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_kiln"), &path).unwrap();
        Program { _folder: folder, path }
    }

    /// As a copy would be: nothing leads back to the other name.
    fn copied(name: &str) -> Self {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let path = folder.path().join(name);
        std::fs::hard_link(env!("CARGO_BIN_EXE_kiln"), &path).unwrap();
        Program { _folder: folder, path }
    }

    fn run(&self, here: &Path, args: &[&str]) -> Run {
        let output = Command::new(&self.path)
            .args(args)
            .current_dir(here)
            .env_remove("KUSTOMIZE_PLUGIN_HOME")
            .stdin(Stdio::null())
            .output()
            .unwrap();
        Run {
            code: output.status.code().expect("ended by itself"),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

#[test]
fn calls_of_argo_cd_and_flux_are_answered_as_kustomize_does() {
    let kustomize = Program::linked("kustomize");
    kiln_testkit::cases(
        "kustomize-calls",
        concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cases/kustomize-calls"),
        &[],
        |case| check(&kustomize, case),
    );
}

fn check(kustomize: &Program, case: &Case) -> Result<(), String> {
    let files = case.get("files").and_then(Value::as_map).into_iter().flat_map(Map::iter);
    let folder = Folder::with(&[]);
    for (path, text) in files {
        folder.write(path.as_str(), text.as_str().expect("a file is text"));
    }
    let root = folder.path().canonicalize().unwrap();
    let seen = transcript(kustomize, &root, case.text("calls"));
    match case.expected() {
        Expected::Output(wanted) => {
            let wanted = wanted.as_str().expect("an output is text");
            difference(wanted, &seen).map_or(Ok(()), Err)
        }
        Expected::Error(error) => panic!("a transcript is an output, not {error}"),
    }
}

/// What a person sees of calls, as the recorder writes it.
fn transcript(kustomize: &Program, root: &Path, calls: &str) -> String {
    let shown = root.to_str().unwrap();
    let mut seen = String::new();
    for call in calls.trim().lines() {
        let words = call.replace("<root>", shown);
        let words: Vec<&str> = words.split_whitespace().skip(1).collect();
        let run = kustomize.run(root, &words);
        seen.push_str(&format!("$ {call}\n{}", run.stdout));
        if run.code != 0 {
            let error = run.stderr.lines().find(|line| line.starts_with("Error: "));
            seen.push_str(&format!("[exit {}] {}\n", run.code, error.unwrap_or_default()));
        }
    }
    seen.replace(shown, "<root>")
}

#[test]
fn it_has_the_commands_of_kustomize_and_no_others() {
    let kustomize = Program::linked("kustomize");
    let folder = Folder::with(&[("kustomization.yaml", "namePrefix: a-\n")]);
    let run = |words: &str| kustomize.run(folder.path(), &words.split(' ').collect::<Vec<_>>());
    for words in ["-h", "--help", "help", "edit", "help edit set", "build --help", "cfg", "openapi"]
    {
        let run = run(words);
        assert_eq!((run.code, run.stderr.as_str()), (0, ""), "{words}");
        assert!(run.stdout.contains("Usage: kustomize"), "{words}: {}", run.stdout);
    }
    let bare = kustomize.run(folder.path(), &[]);
    assert_eq!((bare.code, bare.stderr.as_str()), (0, ""));
    for command in ["build", "cfg", "completion", "create", "edit", "fn", "localize", "version"] {
        assert!(bare.stdout.contains(&format!("  {command} ")), "{command}: {}", bare.stdout);
    }
    for (words, error) in [
        ("apply", "Error: unknown command \"apply\" for \"kustomize\""),
        ("up", "Error: unknown command \"up\" for \"kustomize\""),
        ("build --nope", "Error: unknown flag: --nope"),
        ("build -z", "Error: unknown shorthand flag: 'z' in -z"),
        ("build --output", "Error: flag needs an argument: --output"),
        ("edit set image", "Error: "),
        ("edit set namespace a b", "Error: "),
        ("version --short -o json", "Error: "),
        ("--version", "Error: unknown flag: --version"),
    ] {
        let run = run(words);
        assert_eq!((run.code, run.stdout.as_str()), (1, ""), "{words}");
        assert!(run.stderr.starts_with(error), "{words}: {}", run.stderr);
    }
}

#[test]
fn it_gives_the_version_of_kustomize() {
    let kustomize = Program::linked("kustomize_5_8_1");
    let here = Folder::with(&[]);
    let run = |words: &[&str]| kustomize.run(here.path(), words);
    assert_eq!(run(&["version"]).stdout, "v5.8.2\n");
    let short = run(&["version", "--short"]);
    assert_eq!(short.stdout, "{v5.8.2  unknown   }\n");
    assert!(short.stderr.starts_with("Flag --short has been deprecated"), "{}", short.stderr);
    let json = run(&["version", "-o", "json"]).stdout;
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let fields = ["version", "gitCommit", "buildDate", "goOs", "goArch", "goVersion"];
    assert!(fields.iter().all(|field| json[field].is_string()), "{json}");
    assert_eq!(json["version"], "v5.8.2");
    assert_eq!(json["kiln"], env!("CARGO_PKG_VERSION"));
    let yaml = run(&["version", "--output=yaml"]).stdout;
    assert!(yaml.starts_with("version: v5.8.2\ngitCommit: "), "{yaml}");
    assert!(run(&["completion", "bash"]).stdout.contains("kustomize"));
}

/// `-o json` of a build is a path, as kustomize has it; problems begin as kustomize's do, and say more.
#[test]
fn builds_and_problems_are_as_kustomize_has_them() {
    let kustomize = Program::linked("kustomize");
    let folder =
        Folder::with(&[("kustomization.yaml", "resources: [a.yaml]\n"), ("a.yaml", CONFIG_MAP)]);
    let run = |words: &[&str]| kustomize.run(folder.path(), words);
    let built = run(&["build", "-o", "json"]);
    assert_eq!((built.code, built.stdout.as_str()), (0, ""), "{}", built.stderr);
    assert_eq!(folder.read("json"), CONFIG_MAP);
    let old = run(&["build", "--reorder", "none"]);
    assert_eq!((old.code, old.stdout.as_str()), (0, CONFIG_MAP));
    assert!(old.stderr.starts_with("Flag --reorder has been deprecated, use"), "{}", old.stderr);
    folder.write("kustomization.yaml", "resources: [a.yaml]\ncommonLabels: {a: b}\n");
    let warned = run(&["build"]);
    assert!(warned.stderr.starts_with("# Warning: 'commonLabels' is deprecated."));
    folder.write("kustomization.yaml", "resources: [b.yaml]\n");
    let failed = run(&["build"]);
    assert_eq!((failed.code, failed.stdout.as_str()), (1, ""));
    for part in ["Error: accumulating resources: ", " --> ", "kustomization.yaml:1:13"] {
        assert!(failed.stderr.contains(part), "{}", failed.stderr);
    }
}

/// A copy has no other name by which it could start the sandbox of its plugins.
#[cfg(target_os = "linux")]
#[test]
fn a_copy_runs_plugins_in_their_sandbox() {
    use std::os::unix::fs::PermissionsExt;

    let kustomize = Program::copied("kustomize");
    let folder = Folder::with(&[
        ("kustomization.yaml", "resources: [a.yaml]\ntransformers: [f.yaml]\n"),
        ("a.yaml", CONFIG_MAP),
        (
            "f.yaml",
            "apiVersion: example.com/v1\nkind: F\nmetadata:\n  name: f\n  annotations:\n    config.kubernetes.io/function: |\n      exec: {path: ./f.sh}\n",
        ),
        ("f.sh", "#!/bin/sh\nsed 's/name: a$/name: b/'\n"),
    ]);
    let script = folder.path().join("f.sh");
    std::fs::set_permissions(script, std::fs::Permissions::from_mode(0o755)).unwrap();
    let built = kustomize.run(folder.path(), &["build", "--enable-alpha-plugins", "--enable-exec"]);
    let wanted = CONFIG_MAP.replace("name: a", "name: b");
    assert_eq!((built.code, built.stdout.as_str()), (0, wanted.as_str()), "{}", built.stderr);
}

#[test]
fn as_a_plugin_of_kubectl_it_is_kiln() {
    let plugin = Program::linked("kubectl-kiln");
    let folder =
        Folder::with(&[("kustomization.yaml", "resources: [a.yaml]\n"), ("a.yaml", CONFIG_MAP)]);
    let built = plugin.run(folder.path(), &["build"]);
    assert_eq!((built.code, built.stdout.as_str()), (0, CONFIG_MAP));
    let help = plugin.run(folder.path(), &["build", "--help"]).stdout;
    assert!(help.contains("Usage: kubectl kiln build"), "{help}");
    let wrong = plugin.run(folder.path(), &["build", "--nope"]);
    assert_eq!(wrong.code, 2);
    assert!(wrong.stderr.contains("Usage: kubectl kiln build"), "{}", wrong.stderr);
}

/// The objects that an example builds.
fn example(name: &str) -> Vec<Value> {
    let folder = Folder::with(&[]);
    let path = project_root().join("examples").join(name);
    let built = folder.kiln(&["build", path.to_str().unwrap()]);
    assert_eq!((built.code, built.stderr.as_str()), (0, ""));
    documents(&built.stdout)
}

fn documents(text: &str) -> Vec<Value> {
    let read = kiln_yaml::read_bytes("", text.as_bytes(), kiln_yaml::ReadOptions::kubernetes());
    read.unwrap().iter().map(|document| document.value().clone()).collect()
}

fn of_kind<'o>(objects: &'o [Value], kind: &str, name: &str) -> &'o Value {
    let is_meant = |object: &&Value| {
        let named = object.str_at(["metadata", "name"]).unwrap_or_default();
        object.str_at(["kind"]) == Some(kind) && named.starts_with(name)
    };
    objects.iter().find(is_meant).unwrap_or_else(|| panic!("no {kind} {name}"))
}

/// The parts of the configuration fit each other, and what they run works.
#[test]
fn the_configuration_for_argo_cd_works() {
    let objects = example("argo-cd");
    let settings = of_kind(&objects, "ConfigMap", "argocd-cm");
    let path = settings.str_at(["data", "kustomize.path.kiln"]).unwrap();
    let image =
        std::fs::read_to_string(project_root().join("examples/argo-cd/Dockerfile")).unwrap();
    assert!(image.contains(&format!("/usr/local/bin/kiln {path}\n")), "{image}");

    // As a kustomize version: the file of that name takes the options that are configured.
    let kustomize = Program::copied(Path::new(path).file_name().unwrap().to_str().unwrap());
    let overlay = project_root().join("examples/build/overlay");
    let options = settings.str_at(["data", "kustomize.buildOptions.kiln"]).unwrap();
    let mut words = vec!["build", overlay.to_str().unwrap()];
    words.extend(options.split_whitespace());
    let built = kustomize.run(&overlay, &words);
    let wanted = Folder::with(&[]).kiln(&["build", overlay.to_str().unwrap()]).stdout;
    assert_eq!((built.code, built.stdout.as_str()), (0, wanted.as_str()), "{}", built.stderr);

    // As a plugin: its file is mounted where the plugin server looks, and its command prints the same.
    let plugin = of_kind(&objects, "ConfigMap", "kiln-plugin");
    let deployment = of_kind(&objects, "Deployment", "argocd-repo-server");
    let text = kiln_yaml::emit(deployment);
    assert!(text.contains(plugin.str_at(["metadata", "name"]).unwrap()), "{text}");
    assert!(text.contains("/home/argocd/cmp-server/config/plugin.yaml"), "{text}");
    let plugin = documents(plugin.str_at(["data", "plugin.yaml"]).unwrap()).remove(0);
    let command = plugin.get_path(["spec", "generate", "command"]).and_then(Value::as_list);
    let command: Vec<&str> = command.unwrap().iter().filter_map(Value::as_str).collect();
    let kiln = Program::linked(command[0]);
    let built = kiln.run(&overlay, &command[1..]);
    assert_eq!((built.code, built.stdout.as_str()), (0, wanted.as_str()), "{}", built.stderr);
    let applications = project_root().join("examples/argo-cd/application.yaml");
    let applications = documents(&std::fs::read_to_string(applications).unwrap());
    let version = applications[0].str_at(["spec", "source", "kustomize", "version"]);
    assert_eq!(version, Some("kiln"));
    let name = applications[1].str_at(["spec", "source", "plugin", "name"]);
    assert_eq!(name, plugin.str_at(["metadata", "name"]));
}

/// The script publishes what the build prints, with its variables, and nothing if the build fails.
#[test]
fn the_script_for_flux_publishes_what_is_built() {
    use std::os::unix::fs::PermissionsExt;

    let kiln = Program::linked("kiln");
    let bin = kiln.path.parent().unwrap();
    for (name, text) in [
        ("flux", "#!/bin/sh\necho \"$1 $2 $3\"\ncat \"$5/all.yaml\"\n"),
        ("git", "#!/bin/sh\necho main\n"),
    ] {
        std::fs::write(bin.join(name), text).unwrap();
        let executable = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(bin.join(name), executable).unwrap();
    }
    let examples = project_root().join("examples/flux");
    let publish = |folder: &str| {
        let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
        let output = Command::new(examples.join("publish.sh"))
            .args([folder, "oci://registry.example.com/rendered/shop:latest"])
            .current_dir(&examples)
            .env("PATH", path)
            .output()
            .unwrap();
        (output.status.code().unwrap(), String::from_utf8(output.stdout).unwrap())
    };
    let built = Folder::with(&[]).kiln(&["build", examples.join("shop").to_str().unwrap()]).stdout;
    assert!(built.contains("${cluster_region:=eu-central-1}"), "{built}");
    let called = "push artifact oci://registry.example.com/rendered/shop:latest\n";
    assert_eq!(publish("shop"), (0, format!("{called}{built}")));
    assert_eq!(publish("missing"), (2, String::new()));
}
