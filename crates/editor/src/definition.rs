//! Where the thing at one place is defined: a variable in its document, a file that a kustomization names.

use kiln_kustomize::fs::FileSystem;
use serde_json::{Value as Json, json};

use crate::outline::{OutlineStep, entry_at, outline, unquoted};
use crate::subject::DocumentSubject;
use crate::text_document::{TextDocument, uri_of};
use crate::variables::{name_at, variables};

const KUSTOMIZATION_FILES: [&str; 3] = ["kustomization.yaml", "kustomization.yml", "Kustomization"];

/// The location of a definition.
pub(crate) fn definition(
    document: &TextDocument,
    at: usize,
    files: Option<&dyn FileSystem>,
) -> Option<Json> {
    let part = document.part_around(at);
    let entries = outline(document.text(), part.clone());
    let subject = DocumentSubject::of(document, &entries);
    let entry = entry_at(&entries, at)?;
    let value = &document.text()[entry.value.clone()];
    if at < entry.value.start {
        return None;
    }
    if let Some((language, span)) = subject.language_at(&entry.path, value, at - entry.value.start)
    {
        let offset = entry.value.start + span.start;
        let (name, _) = name_at(&value[span], at.saturating_sub(offset))?;
        let known = variables(language, document.text(), &part, &entries);
        let is_it = |variable: &str| {
            name == variable
                || name.strip_prefix(variable).is_some_and(|rest| rest.starts_with('.'))
        };
        // The innermost one hides those around it.
        let found = known
            .iter()
            .filter(|variable| entry.path.starts_with(&variable.scope))
            .filter(|variable| is_it(&variable.name))
            .max_by_key(|variable| variable.scope.len())?;
        return Some(json!({"uri": document.uri, "range": document.range(&found.place)}));
    }
    if !subject.is_kustomization {
        return None;
    }
    let first = entry.path.first().and_then(OutlineStep::key)?;
    let last = entry.path.iter().rev().find_map(OutlineStep::key)?;
    let is_path = matches!(first, "resources" | "components" | "bases" | "configurations" | "crds")
        || matches!(last, "path" | "files" | "envs" | "generators" | "transformers");
    let files = files.filter(|_| is_path)?;
    let path = format!("{}/{}", document.directory(), unquoted(value));
    let target = files.resolve(&path).ok()?;
    let path = if target.is_directory {
        let inside = KUSTOMIZATION_FILES.iter().map(|name| format!("{}/{name}", target.path));
        inside.into_iter().find(|path| files.resolve(path).is_ok())?
    } else {
        target.path
    };
    let start = json!({"line": 0, "character": 0});
    Some(json!({"uri": uri_of(&path), "range": {"start": start, "end": start}}))
}
