//! The trees in `tests/cases`: what kustomize makes of each, byte for byte.
//!
//! A case has `files` (texts by path), `binaryFiles` (base64 by path), `root` (the folder to build) and `flags`; or
//! `command` (`cfg …`, with its options) and `input`, what that reads from standard input.
//! Messages are Kiln's own around kustomize's words, so of an `error` only `errorContains` is held against Kiln.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kiln_kustomize::fs::Memory;
use kiln_kustomize::{Build, BuildOptions, LoadRestrictions, Reorder};
use kiln_testkit::{Case, Expected, difference};
use kiln_value::Value;

/// Where the trees lie in memory.
const FOLDER: &str = "/tree";

/// Cases that fail, with the reason.
const KNOWN: &[(&str, &str)] = &[
    (
        "documents.yaml: an escape of JSON that YAML of old does not know",
        "`\\/` is read as JSON has it, where kustomize refuses the file",
    ),
    (
        "labels-images-replicas.yaml: an annotation key that is a boolean because it lacks quotes",
        "the key becomes the text `true`, where kustomize fails on what it wrote itself",
    ),
];

#[test]
fn trees_give_the_recorded_bytes() {
    kiln_testkit::cases(
        "kustomize",
        concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cases"),
        KNOWN,
        check,
    );
}

fn check(case: &Case) -> Result<(), String> {
    let built = match case.get("command").and_then(Value::as_list) {
        Some(words) => {
            let words: Vec<&str> = words.iter().filter_map(Value::as_str).collect();
            let input = case.get("input").and_then(Value::as_str);
            crate::commands::run(&tree(case), FOLDER, &words, input)
                .map_err(|error| error.to_string())
        }
        None => {
            let root = case.get("root").and_then(Value::as_str).unwrap_or(".");
            Build::new(&tree(case), &options(case))
                .run(&format!("{FOLDER}/{root}"))
                .map(|output| output.yaml)
                .map_err(|failed| failed.to_string())
        }
    };
    match (case.expected(), built) {
        (Expected::Output(wanted), Ok(output)) => {
            let wanted = wanted.as_str().expect("an output is text");
            difference(wanted, &output).map_or(Ok(()), Err)
        }
        (Expected::Output(_), Err(message)) => Err(format!("fails: {message}")),
        (Expected::Error(wanted), Ok(output)) => {
            Err(format!("succeeds, but kustomize says: {wanted}\n{output}"))
        }
        (Expected::Error(wanted), Err(message)) => {
            let part = if case.differs() { wanted } else { case.text("errorContains") };
            if message.contains(part) {
                Ok(())
            } else {
                Err(format!("the message lacks {part:?}: {message}"))
            }
        }
    }
}

fn tree(case: &Case) -> Memory {
    let mut tree = Memory::new();
    for (path, text) in entries(case, "files") {
        tree.write(&format!("{FOLDER}/{path}"), text);
    }
    for (path, text) in entries(case, "binaryFiles") {
        let bytes = STANDARD.decode(text).expect("binary files are written in base64");
        tree.write(&format!("{FOLDER}/{path}"), bytes);
    }
    tree
}

fn entries<'a>(case: &'a Case, field: &str) -> impl Iterator<Item = (&'a str, &'a str)> {
    let map = case.get(field).and_then(Value::as_map);
    map.into_iter()
        .flat_map(kiln_value::Map::iter)
        .map(|(path, text)| (path.as_str(), text.as_str().expect("a file is text")))
}

fn options(case: &Case) -> BuildOptions {
    let mut options =
        BuildOptions { working_directory: FOLDER.to_owned(), ..BuildOptions::default() };
    let flags = case.get("flags").and_then(Value::as_list);
    let flags: Vec<&str> =
        flags.into_iter().flat_map(|f| f.iter()).filter_map(Value::as_str).collect();
    for flag in flags.chunks(2) {
        match flag {
            ["--reorder", "none"] => options.reorder = Reorder::None,
            ["--reorder", "legacy"] => options.reorder = Reorder::Legacy,
            ["--load-restrictor", "LoadRestrictionsNone"] => {
                options.load_restrictions = LoadRestrictions::None;
            }
            other => panic!("{}: unknown flag {other:?}", case.place()),
        }
    }
    options
}
