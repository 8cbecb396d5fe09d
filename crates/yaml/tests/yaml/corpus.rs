//! The recorded cases: what kustomize prints for a value, and for YAML that it reads.

use std::path::Path;

use kiln_testkit::{Tally, corpus, corpus_json, difference};
use kiln_value::{Value, json, value};
use kiln_yaml::{Document, ReadOptions, emit, emit_documents, read_bytes};

/// The lines that each case stands below.
const ENVELOPE: &str = "apiVersion: example.test/v1\nkind: Any\nmetadata:\n  name: x\n";

fn read(text: &str) -> Result<Vec<Document>, String> {
    let documents = read_bytes("r.yaml", text.as_bytes(), ReadOptions::kustomize_resource());
    documents.map_err(|error| error.to_string())
}

fn same(wanted: &str, got: &str) -> Result<(), String> {
    difference(wanted, got).map_or(Ok(()), Err)
}

/// Keys of the envelope as kustomize's order puts them between the case's own.
fn without_envelope(emitted: &str) -> String {
    ENVELOPE.lines().fold(emitted.to_owned(), |text, line| {
        let line = format!("{line}\n");
        let below = || text.replacen(&format!("\n{line}"), "\n", 1);
        text.strip_prefix(&line).map_or_else(below, str::to_owned)
    })
}

#[test]
fn values_print_as_kustomize_prints_them() {
    let Some(cases) = corpus_json("yaml/emit.json") else { return };
    let mut tally = Tally::new("yaml/emit");
    for (at, case) in cases.as_list().unwrap().iter().enumerate() {
        let kind = case.get("kind").and_then(Value::as_str).unwrap();
        // JSON text, because the number cases are about the text of numbers.
        let text = match case.get("text").and_then(Value::as_str) {
            Some(number) => number.to_owned(),
            None => json::to_string(case.get("value").unwrap()),
        };
        let Some(emitted) = case.get("emitted").and_then(Value::as_str) else {
            tally.leave_out();
            continue;
        };
        tally.case(&format!("{kind} {at}: {text:.60}"), || {
            let documents = read(&format!("{{\"v\": {text}}}"))?;
            same(emitted, &emit(documents[0].value()))
        });
    }
    tally.finish();
}

#[test]
fn what_kustomize_cannot_print_is_escaped() {
    for (text, wanted) in [("\x7f", "v: \"\\x7F\"\n"), ("\u{80}", "v: \"\\x80\"\n")] {
        assert_eq!(emit(&value!({ "v": text })), wanted);
    }
}

#[test]
fn yaml_is_read_as_kustomize_reads_it() {
    let Some(cases) = corpus_json("yaml/read.json") else { return };
    let mut tally = Tally::new("yaml/read");
    for (at, case) in cases.as_list().unwrap().iter().enumerate() {
        let yaml = case.get("yaml").and_then(Value::as_str).unwrap();
        let wanted = case.get("emitted").and_then(Value::as_str);
        let error = case.get("error").and_then(Value::as_str).unwrap_or_default();
        tally.case(&format!("{at} {yaml:?}"), || {
            let read = read(&format!("{ENVELOPE}{yaml}"));
            match (wanted, read) {
                (Some(wanted), Ok(documents)) => same(
                    wanted,
                    &without_envelope(&emit_documents(documents.iter().map(Document::value))),
                ),
                (Some(_), Err(error)) => Err(format!("not read: {error}")),
                (None, Err(error)) if error.starts_with("r.yaml:") => Ok(()),
                (None, Err(error)) => Err(format!("no place: {error}")),
                // kustomize refuses these for what the second document holds, or for text after ---.
                (None, Ok(documents))
                    if error.contains("missing Resource metadata")
                        || error.contains("invalid document separator") =>
                {
                    let strange = documents.len() != 1;
                    strange.then_some(()).ok_or_else(|| "one document".to_owned())
                }
                (None, Ok(documents)) => {
                    Err(format!("accepted as {:?}, but: {error}", documents[0].value()))
                }
            }
        });
    }
    tally.finish();
}

#[test]
fn what_kustomize_built_prints_the_same_again() {
    let Some(folder) = corpus("kustomize") else { return };
    let mut tally = Tally::new("kustomize outputs");
    visit(&folder, &mut |path| {
        let name = path.strip_prefix(&folder).unwrap().display().to_string();
        let text = std::fs::read_to_string(path).unwrap();
        tally.case(&name, || {
            let documents = read(&text)?;
            same(&text, &emit_documents(documents.iter().map(Document::value)))
        });
    });
    tally.finish();
}

fn visit(folder: &Path, found: &mut impl FnMut(&Path)) {
    let mut entries: Vec<_> =
        std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    entries.sort();
    for path in entries {
        let name = path.file_name().unwrap().to_string_lossy();
        if path.is_dir() {
            visit(&path, found);
        } else if name.starts_with("expected") && name.ends_with(".yaml") {
            found(&path);
        }
    }
}
