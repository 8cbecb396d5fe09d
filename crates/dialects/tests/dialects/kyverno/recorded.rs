//! Recorded cases: the policies of Kyverno's conformance suite.

use std::path::{Path, PathBuf};

use kiln_dialects::{compile, is_policy};
use kiln_object::Kinds;
use kiln_testkit::{Tally, corpus};
use kiln_yaml::{Document, ReadOptions, read_bytes};

fn read(path: &Path) -> Result<Vec<Document>, String> {
    let text = std::fs::read(path).map_err(|e| format!("{}: {e}", path.display()))?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    read_bytes(&name, &text, ReadOptions::kubernetes()).map_err(|e| e.to_string())
}

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    let mut entries: Vec<_> =
        std::fs::read_dir(folder).into_iter().flatten().flatten().map(|e| e.path()).collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            files(&path, found);
        } else if path.extension().is_some_and(|e| e == "yaml") {
            found.push(path);
        }
    }
}

/// The kinds that the steps of a test define.
fn custom_kinds(folder: &Path) -> Kinds {
    let mut found = Vec::new();
    files(folder, &mut found);
    let documents = found.iter().filter_map(|path| read(path).ok()).flatten();
    documents.fold(Kinds::builtin(), |kinds, document| {
        let is_definition = document.value().str_at(["kind"]) == Some("CustomResourceDefinition");
        match is_definition {
            // What a step waits for is a definition without its spec.
            true => kinds.clone().with_crd(document.value()).unwrap_or(kinds),
            false => kinds,
        }
    })
}

/// Policies that a step of the suite expects to be refused, by a part of their path.
fn refused(case: &str) -> bool {
    let name = case.rsplit('/').next().unwrap_or_default();
    ["fail", "bad", "no-targets"].iter().any(|word| name.contains(word))
        || case.contains("use-generate-existing-on-policy-update")
        || case.contains("cross-namespace-denied/")
        || case.contains("generating-policies/validate/")
        || case.contains("-invalid/")
}

#[test]
fn policies_of_the_conformance_suite_compile() {
    let Some(root) = corpus("chainsaw") else { return };
    let mut tally = Tally::new("conformance policies");
    for suite in ["generate", "mutate", "generating-policies", "namespaced-generating-policies"] {
        let mut found = Vec::new();
        files(&root.join(suite), &mut found);
        for path in found {
            let case = path.strip_prefix(&root).unwrap_or(&path).display().to_string();
            let Ok(documents) = read(&path) else { continue };
            // What a step waits for is a policy without its spec.
            let whole = |d: &Document| is_policy(d) && d.value().get("spec").is_some();
            if !documents.iter().any(whole) {
                continue;
            }
            tally.case(&case, || {
                let kinds = custom_kinds(path.parent().unwrap_or(&root));
                let compiled = compile(&documents, &kinds);
                let errors: Vec<_> = crate::support::messages(&compiled)
                    .into_iter()
                    .filter(|m| m.starts_with("error"))
                    .collect();
                match (errors.is_empty(), refused(&case)) {
                    (true, false) | (false, true) => Ok(()),
                    (true, true) => Err("compiles, and should not".into()),
                    (false, false) => Err(errors.join("; ")),
                }
            });
        }
    }
    tally.finish();
}
