//! The recorded builds: what kustomize makes of each tree, byte for byte. Most were recorded with 5.8.1.

use std::fs;
use std::path::Path;

use kiln_kustomize::fs::Disk;
use kiln_kustomize::local::Local;
use kiln_kustomize::{
    Build, BuildOptions, ChartRenderer, Failed, Helm, KustomizeVersion, LoadRestrictions, Output,
    ReleaseBehavior, Reorder,
};
use kiln_testkit::{Tally, corpus, difference};
use kiln_value::{Value, json};

/// Builds that differ on purpose, or not yet; with the reason.
const DIFFERENT: &[(&str, &str)] = &[
    (
        "namespacetransformer-NamespaceTransformer-InvalidFieldSpecs",
        "the message shows the value without the quotes it was written with",
    ),
    (
        "openapicustomschema-CustomOpenApiFieldFromComponentWithOverlays",
        "references of a custom schema do not lead into the built-in one below it",
    ),
];

/// What 5.8.2 prints otherwise; the differences are those of `kustomize-5.8.2`.
const SINCE_5_8_2: &[(&str, &str)] =
    &[("own-labels-forms", CLAIMS_OF_5_8_1), ("own-labels-forms@default-order", CLAIMS_OF_5_8_1)];
const CLAIMS_OF_5_8_1: &str =
    "recorded with 5.8.1, which labels volumeClaimTemplates with includeTemplates";

#[test]
fn builds_as_5_8_1_give_the_recorded_bytes() {
    recorded_builds("5.8.1", &[]);
}

#[test]
fn builds_give_the_recorded_bytes_but_for_what_5_8_2_changed() {
    recorded_builds("5.8.2", SINCE_5_8_2);
}

fn recorded_builds(version: &'static str, changed: &[(&str, &str)]) {
    let Some(folder) = corpus("kustomize") else { return };
    let mut tally = Tally::new(format!("kustomize as {version}"));
    for (case, reason) in changed {
        tally.known_failure(*case, *reason);
    }
    for (case, reason) in DIFFERENT {
        tally.known_failure(*case, *reason);
    }
    let mut names: Vec<String> = fs::read_dir(&folder)
        .expect("the corpus is a folder")
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| folder.join(name).join("case.json").exists())
        .collect();
    names.sort();
    for name in names {
        let directory = folder.join(&name);
        let meta = read_json(&directory.join("case.json"));
        let flags = strings(meta.get("flags"));
        let wanted = match meta.get("expect").and_then(Value::as_str) {
            Some("error") => None,
            _ => Some("expected.yaml".to_owned()),
        };
        tally.case(&name, || check(&directory, &meta, version, &flags, wanted.as_deref()));
        for also in meta.get("also").and_then(Value::as_list).into_iter().flat_map(|l| l.iter()) {
            let flags = strings(also.get("flags"));
            let wanted = also.get("expected").and_then(Value::as_str).map(str::to_owned);
            tally.case(&format!("{name}@default-order"), || {
                check(&directory, &meta, version, &flags, wanted.as_deref())
            });
        }
    }
    tally.finish();
}

/// What differs on purpose, with the reason; docs/reference/differences/kustomize.md has a row for each.
const ON_PURPOSE: &[(&str, &str)] = &[
    ("06b-replacement-type-silent", "an error, where kustomize writes a text that cannot be read"),
    ("11-document-end-marker", "an error, where kustomize drops the object after `...`"),
    ("16-replaced-name-number", "the name stays text, where kustomize makes a number of it"),
    ("18-big-int-after-json-patch", "the number stays exact, where kustomize rounds it"),
    ("19-block-keep-then-comment", "the text is as it is written, where kustomize adds a line"),
];

#[test]
fn trees_on_which_both_differed_give_the_recorded_bytes() {
    let Some(folder) = corpus("kustomize-differences") else { return };
    let mut tally = Tally::new("kustomize-differences");
    for (case, reason) in ON_PURPOSE {
        tally.known_failure(*case, *reason);
    }
    let mut names: Vec<String> = fs::read_dir(&folder)
        .expect("the corpus is a folder")
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| folder.join(name).join("case.json").exists())
        .collect();
    names.sort();
    for name in names {
        let directory = folder.join(&name);
        let meta = read_json(&directory.join("case.json"));
        let flags = strings(meta.get("flags"));
        tally.case(&name, || {
            let error = directory.join("error.5.8.1.txt");
            if !error.exists() {
                return check(&directory, &meta, "5.8.1", &flags, Some("expected.5.8.1.yaml"));
            }
            let input = directory.join("input").canonicalize().map_err(|e| e.to_string())?;
            let input = input.to_str().expect("the path of the corpus is text");
            let root = meta.get("root").and_then(Value::as_str).unwrap_or(".");
            match build(input, root, "5.8.1", &flags) {
                Ok(output) => {
                    Err(format!("it succeeds, but kustomize refuses it:\n{}", output.yaml))
                }
                Err(_) => Ok(()),
            }
        });
    }
    tally.finish();
}

/// Where a release fails by an accident that Kiln does not share.
const NOT_IMITATED: &[(&str, &str)] =
    &[("images-bad-regexp@5.8.1", "5.8.1 crashes, where later releases and Kiln match nothing")];

#[test]
fn both_releases_give_the_recorded_bytes() {
    let Some(folder) = corpus("kustomize-5.8.2") else { return };
    let mut tally = Tally::new("kustomize-5.8.2, both releases");
    for (case, reason) in NOT_IMITATED {
        tally.known_failure(*case, *reason);
    }
    let mut names: Vec<String> = fs::read_dir(&folder)
        .expect("the corpus is a folder")
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| folder.join(name).join("case.json").exists())
        .collect();
    names.sort();
    for name in names {
        let directory = folder.join(&name);
        let meta = read_json(&directory.join("case.json"));
        let flags = strings(meta.get("flags"));
        for version in ["5.8.1", "5.8.2"] {
            tally.case(&format!("{name}@{version}"), || {
                let expected = format!("expected.{version}.yaml");
                if directory.join(&expected).exists() {
                    return check(&directory, &meta, version, &flags, Some(&expected));
                }
                let input = directory.join("input").canonicalize().map_err(|e| e.to_string())?;
                let input = input.to_str().expect("the path of the corpus is text");
                let root = meta.get("root").and_then(Value::as_str).unwrap_or(".");
                match build(input, root, version, &flags) {
                    Ok(output) => Err(format!("it succeeds:\n{}", output.yaml)),
                    Err(_) => Ok(()),
                }
            });
        }
    }
    tally.finish();
}

fn check(
    directory: &Path,
    meta: &Value,
    version: &str,
    flags: &[String],
    wanted: Option<&str>,
) -> Result<(), String> {
    let input = directory.join("input").canonicalize().map_err(|e| e.to_string())?;
    let input = input.to_str().expect("the path of the corpus is text");
    let root = meta.get("root").and_then(Value::as_str).unwrap_or(".");
    let built = build(input, root, version, flags);
    let Some(wanted) = wanted else {
        let failed = built.err().ok_or("it succeeds, but an error was expected")?;
        let texts = fs::read_to_string(directory.join("error.txt")).map_err(|e| e.to_string())?;
        let message = failed.error.to_string().replace(input, "");
        for text in texts.lines().filter(|text| !text.is_empty()) {
            if !message.contains(text) {
                return Err(format!("the message lacks {text:?}:\n{message}"));
            }
        }
        return Ok(());
    };
    let output = built.map_err(|failed| format!("fails: {}", failed.error))?;
    let text = fs::read_to_string(directory.join(wanted)).map_err(|e| e.to_string())?;
    match difference(&text, &output.yaml) {
        Some(difference) => Err(difference),
        None => check_warnings(meta, &output),
    }
}

/// Old fields are announced as kustomize announces them, in its order.
fn check_warnings(meta: &Value, output: &Output) -> Result<(), String> {
    let recorded: Vec<String> = strings(meta.get_path(["real", "warnings"]))
        .into_iter()
        .filter(|line| line.contains("is deprecated"))
        .collect();
    let given: Vec<String> = output
        .warnings
        .iter()
        .filter(|warning| warning.message.contains("is deprecated"))
        .map(|warning| format!("# Warning: {}", warning.message))
        .collect();
    if recorded.is_empty() || recorded == given {
        Ok(())
    } else {
        Err(format!("other warnings:\nwanted {recorded:#?}\ngot {given:#?}"))
    }
}

fn build(input: &str, root: &str, version: &str, flags: &[String]) -> Result<Output, Box<Failed>> {
    let version = KustomizeVersion::parse(version).expect("a version that is known");
    let mut options = BuildOptions {
        working_directory: input.to_owned(),
        behavior: ReleaseBehavior::of(version),
        ..BuildOptions::default()
    };
    let mut flags = flags.iter().map(String::as_str);
    while let Some(flag) = flags.next() {
        match flag {
            "--reorder" => {
                options.reorder = match flags.next() {
                    Some("none") => Reorder::None,
                    _ => Reorder::Legacy,
                }
            }
            "--load-restrictor" => {
                if flags.next() == Some("LoadRestrictionsNone") {
                    options.load_restrictions = LoadRestrictions::None;
                }
            }
            "--enable-alpha-plugins" => options.enable_plugins = true,
            "--enable-exec" => options.enable_exec = true,
            "--enable-helm" => options.helm = Some(Helm::default()),
            "--helm-command" => {
                let command = flags.next().unwrap_or_default().to_owned();
                let renderer = ChartRenderer::Program;
                options.helm = Some(Helm { command, renderer, ..Helm::default() });
            }
            other => panic!("unknown flag {other}"),
        }
    }
    let home = format!("{input}/.plugin-home");
    let programs =
        Local { plugin_home: Path::new(&home).is_dir().then_some(home), ..Local::default() };
    Build::new(&Disk, &options).programs(&programs).run(&format!("{input}/{root}"))
}

fn read_json(path: &Path) -> Value {
    let text = fs::read_to_string(path).expect("a case has a description");
    json::parse(&text).expect("the description is JSON")
}

fn strings(value: Option<&Value>) -> Vec<String> {
    let list = value.and_then(Value::as_list);
    list.into_iter()
        .flat_map(|list| list.iter())
        .filter_map(|text| text.as_str().map(str::to_owned))
        .collect()
}
