//! What every field of a kustomization that takes a text must not do with it. The fields come from their declaration:
//! a new one is tried here automatically, and the lists below say when it reads files.

use std::cell::RefCell;
use std::collections::BTreeSet;

use kiln_value::{Map, Value, value};

use super::*;
use crate::error::{Error, Result};
use crate::host::{Argument, Command, Fetch, Finished, Programs};
use crate::load::decode::Decode;
use crate::load::fs::{FileError, FileSystem, Memory, Resolved};
use crate::load::remote::Repository;
use crate::local::git_words;
use crate::{Build, BuildOptions, ChartRenderer, Helm};

/// A host that remembers what was read, run and fetched. `/app/link` leads to `/outside`.
#[derive(Default)]
struct RecordingHost {
    tree: Memory,
    read: RefCell<Vec<String>>,
    run: RefCell<Vec<Command>>,
    cloned: RefCell<Vec<Repository>>,
}

fn followed(path: &str) -> String {
    match path.strip_prefix("/app/link") {
        Some(rest) => format!("/outside{rest}"),
        None => path.to_owned(),
    }
}

impl FileSystem for RecordingHost {
    fn resolve(&self, path: &str) -> std::result::Result<Resolved, FileError> {
        self.tree.resolve(&followed(path))
    }

    fn read(&self, path: &str, limit: usize) -> std::result::Result<Vec<u8>, FileError> {
        let path = followed(path);
        self.read.borrow_mut().push(path.clone());
        self.tree.read(&path, limit)
    }

    fn is_executable(&self, _: &str) -> Option<bool> {
        Some(true)
    }

    fn links_below(&self, path: &str) -> std::result::Result<Vec<String>, FileError> {
        self.tree.links_below(path)
    }
}

impl Programs for RecordingHost {
    fn run(&self, command: &Command) -> Result<Finished> {
        self.run.borrow_mut().push(command.clone());
        let output = match command.arguments.first() {
            Some(Argument::Text(word)) if word == "version" => "v3.15.0\n",
            _ => "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: made}\n",
        };
        Ok(Finished { output: output.into(), ..Finished::default() })
    }

    fn plugin_home(&self) -> Option<String> {
        None
    }
}

impl Fetch for RecordingHost {
    fn get(&self, url: &str) -> Result<Vec<u8>> {
        Err(Error::http(format!("{url} is not there")))
    }

    fn clone_repository(&self, repository: &Repository) -> Result<String> {
        self.cloned.borrow_mut().push(repository.clone());
        Err(Error::new("it is not there"))
    }
}

const POD: &str = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n";

/// The name of a field, and a kustomization that has this text there and what it takes to be looked at.
fn kustomizations(text: &str) -> Vec<(String, Value)> {
    let mut all: Vec<_> = Kustomization::places(text)
        .into_iter()
        .map(|(name, kustomization)| (name, complete(kustomization)))
        .collect();
    // The same chart in a document of its own.
    for (name, chart) in HelmChart::places(text) {
        let Value::Map(mut chart) = chart else { panic!("{name} is not a field") };
        with(&mut chart, value!({"name": "web", "repo": "https://charts.example"}));
        with(
            &mut chart,
            value!({"apiVersion": "builtin", "kind": "HelmChartInflationGenerator", "metadata": {"name": "web"}}),
        );
        let document = kiln_yaml::emit(&Value::Map(chart));
        all.push((format!("generators{name}"), value!({"generators": [document]})));
    }
    all
}

/// Adds what is not there.
fn with(map: &mut Map, defaults: Value) {
    let Value::Map(defaults) = defaults else { return };
    for (key, value) in &defaults {
        if map.get(key).is_none() {
            map.insert(key.clone(), value.clone());
        }
    }
}

/// Fills in without what other fields of an entry the field in question is not read.
fn complete(kustomization: Value) -> Value {
    let Value::Map(mut map) = kustomization else { return kustomization };
    for (field, defaults) in [
        ("helmCharts", value!({"name": "web", "repo": "https://charts.example"})),
        (
            "helmChartInflationGenerator",
            value!({"chartName": "web", "chartRepoUrl": "https://charts.example"}),
        ),
        ("configMapGenerator", value!({"name": "c"})),
        ("secretGenerator", value!({"name": "c"})),
        ("patchesJson6902", value!({"target": {"version": "v1", "kind": "Pod", "name": "a"}})),
    ] {
        if let Some(Value::List(entries)) = map.get(field).cloned() {
            let entries = entries.iter().map(|entry| {
                let Value::Map(mut entry) = entry.clone() else { return entry.clone() };
                with(&mut entry, defaults.clone());
                Value::Map(entry)
            });
            map.insert(field, Value::from_iter(entries));
        }
    }
    if map.get("helmGlobals").is_some() {
        with(&mut map, value!({"helmCharts": [{"name": "web"}]}));
    }
    with(&mut map, value!({"resources": ["pod.yaml"]}));
    Value::Map(map)
}

/// Builds a kustomization that may do everything.
fn build(kustomization: &Value) -> (RecordingHost, String) {
    let host = RecordingHost {
        tree: Memory::new()
            .with("app/kustomization.yaml", kiln_yaml::emit(kustomization))
            .with("app/pod.yaml", POD)
            .with("app/inside.yaml", POD)
            .with("app/charts/web/values.yaml", "a: 1\n")
            .with("outside/inside.yaml", "token: s3cr3t\n"),
        ..RecordingHost::default()
    };
    let options = BuildOptions {
        enable_plugins: true,
        enable_exec: true,
        helm: Some(Helm { renderer: ChartRenderer::Program, ..Helm::default() }),
        ..BuildOptions::default()
    };
    let built = Build::new(&host, &options).fetch(&host).programs(&host).run("/app");
    let said = match built {
        Ok(output) => format!("{} {:?}", output.yaml, output.warnings),
        Err(failed) => failed.error.to_string(),
    };
    (host, said)
}

/// The fields that name files; who adds another adds it here, and all tests hold for it.
const FILES: &[&str] = &[
    ".openapi.path",
    ".patchesStrategicMerge",
    ".patchesJson6902.path",
    ".patches.path",
    ".replacements.path",
    ".resources",
    ".crds",
    ".bases",
    ".configMapGenerator.files",
    ".configMapGenerator.envs",
    ".configMapGenerator.env",
    ".secretGenerator.files",
    ".secretGenerator.envs",
    ".secretGenerator.env",
    ".helmCharts.valuesFile",
    ".helmChartInflationGenerator.values",
    ".configurations",
    ".generators",
    ".transformers",
    ".validators",
    "generators.valuesFile",
];

#[test]
fn every_field_that_names_a_file_is_known() {
    let readers: Vec<_> = kustomizations("inside.yaml")
        .into_iter()
        .filter(|(_, kustomization)| {
            build(kustomization).0.read.borrow().iter().any(|path| path == "/app/inside.yaml")
        })
        .map(|(name, _)| name)
        .collect();
    assert_eq!(readers, FILES);
}

#[test]
fn no_field_of_a_kustomization_leads_out() {
    for out in [
        "../outside/inside.yaml",
        "/outside/inside.yaml",
        "link/inside.yaml",
        "./x/../link/inside.yaml",
        "key=../outside/inside.yaml",
        "key=link/inside.yaml",
        "file:///outside/inside.yaml",
        "../outside",
        "link",
    ] {
        for (name, kustomization) in kustomizations(out) {
            let (host, said) = build(&kustomization);
            assert!(!said.contains("s3cr3t"), "{name}: {out}: {said}");
            let read = host.read.borrow();
            assert!(!read.iter().any(|path| path == "/outside/inside.yaml"), "{name}: {out}");
            for command in host.run.borrow().iter() {
                let variables = command.environment.iter().map(|(_, value)| value.as_str());
                for path in paths_of_helm(command).into_iter().chain(variables) {
                    assert!(is_inside(path), "{name}: {out}: {path}");
                }
            }
        }
    }
}

fn is_inside(path: &str) -> bool {
    let mut parts = path.split('/').skip(1);
    parts.next() == Some("app")
        && parts.next().is_some_and(|part| part != "link")
        && !path.split('/').any(|part| part == "..")
}

/// What helm takes for paths in what it is asked.
fn paths_of_helm(command: &Command) -> Vec<&str> {
    let words: Vec<&str> = command
        .arguments
        .iter()
        .filter_map(|argument| match argument {
            Argument::Text(text) => Some(text.as_str()),
            Argument::File | Argument::Name => None,
        })
        .collect();
    let chart = words.get(2).filter(|_| words.first() == Some(&"template")).copied();
    let options = words.iter().filter_map(|word| {
        word.strip_prefix("--values=").or_else(|| word.strip_prefix("--untardir="))
    });
    chart.into_iter().chain(options).collect()
}

/// The options that programs are given, whatever a kustomization says; what it says may stand behind `=`.
const OPTIONS: &[&str] = &[
    "--api-versions",
    "--depth",
    "--generate-name",
    "--init",
    "--kube-version",
    "--name-template",
    "--namespace",
    "--recursive",
    "--repo",
    "--short",
    "--untar",
    "--untardir",
    "--values",
    "--version",
    "-f",
];

fn is_no_option_but_ours(word: &str) -> bool {
    let (name, _) = word.split_once('=').unwrap_or((word, ""));
    !word.starts_with('-') || OPTIONS.contains(&name)
}

#[test]
fn no_field_of_a_kustomization_becomes_an_option() {
    let mut reached = BTreeSet::new();
    for hostile in [
        "--post-renderer=./evil.sh",
        "-f./evil.sh",
        "--upload-pack=./evil.sh",
        "--upload-pack=evil.sh@h.example:o/r",
        "git::--upload-pack=evil.sh@h.example:o/r",
        "-oProxyCommand=evil.sh@h.example:o/r",
        "git::-oProxyCommand@h.example:evil.sh/r",
        "https://h.example/o/r.git?ref=--upload-pack=evil.sh",
        "https://h.example/o/r.git?version=-evil.sh",
        "git@h.example:o/r.git?ref=-evil.sh",
    ] {
        for (name, kustomization) in kustomizations(hostile) {
            let (host, _) = build(&kustomization);
            for command in host.run.borrow().iter() {
                reached.insert(command.program.clone());
                for argument in &command.arguments {
                    let Argument::Text(word) = argument else { continue };
                    assert!(is_no_option_but_ours(word), "{name}: {hostile}: {word}");
                }
            }
            for repository in host.cloned.borrow().iter() {
                reached.insert("git".to_owned());
                for word in git_words(repository).into_iter().flatten().flatten() {
                    assert!(is_no_option_but_ours(&word), "{name}: {hostile}: {word}");
                }
            }
        }
    }
    // Refusing everything would prove nothing.
    assert_eq!(Vec::from_iter(reached), ["git", "helm"]);
}
