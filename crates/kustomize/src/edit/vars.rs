//! Vars to replacements.
//!
//! Every place of a file that says `$(NAME)` becomes the target of a replacement, and the file says
//! `NAME_PLACEHOLDER` there from then on. Unlike kustomize, replacements that are there already stay,
//! and bases of bases are found where they are.

use std::collections::BTreeSet;

use kiln_diagnostic::Diagnostic;
use kiln_value::{Map, Value};
use kiln_yaml::ReadOptions;

use super::KustomizationFile;
use crate::error::{Error, Result};
use crate::load::fs::FileSystem;
use crate::load::kustomization::{Kustomization, Patch, Var};
use crate::load::{loader, paths};

/// A file with placeholders in the place of vars.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Converted {
    /// Its absolute path.
    pub path: String,
    /// Its new text.
    pub text: String,
}

/// Larger files are no place for vars.
const MAX_FILE: usize = 64 << 20;

/// A file that a build reads, and the patch it is, if it is one.
struct Touched {
    path: String,
    text: String,
    patch: Option<Patch>,
}

/// Turns the vars of a kustomization file into replacements. Returns the other files to be written.
///
/// # Errors
/// When a var stands between characters that differ, which no replacement can express, or when a
/// file lies outside of the directories that the build uses.
pub fn convert_vars(
    file: &mut KustomizationFile,
    files: &dyn FileSystem,
    directory: &str,
) -> Result<Vec<Converted>> {
    let kustomization = file.decoded()?;
    let Some(vars) = kustomization.vars.clone() else { return Ok(Vec::new()) };
    let mut touched = Vec::new();
    let mut seen = BTreeSet::new();
    gather(&kustomization, directory, files, &mut seen, &mut touched)?;
    let mut replacements = Vec::new();
    let mut texts: Vec<String> = touched.iter().map(|file| file.text.clone()).collect();
    for var in &vars {
        let mut targets = Vec::new();
        for file in &touched {
            find_targets(file, &var.name, &mut targets)?;
        }
        for text in &mut texts {
            *text = text.replace(&format!("$({})", var.name), &format!("{}_PLACEHOLDER", var.name));
        }
        replacements.push(replacement(var, targets));
    }
    file.remove_field("vars");
    file.list_mut("replacements").extend(replacements);
    file.drop_if_empty("replacements");
    Ok(touched
        .into_iter()
        .zip(texts)
        .filter(|(file, text)| file.text != *text)
        .map(|(file, text)| Converted { path: file.path, text })
        .collect())
}

/// Collects the files of resources and patches, and of the kustomizations below.
fn gather(
    kustomization: &Kustomization,
    directory: &str,
    files: &dyn FileSystem,
    seen: &mut BTreeSet<String>,
    touched: &mut Vec<Touched>,
) -> Result<()> {
    if seen.len() > loader::MAX_NESTING * 100 {
        return Err(Error::new("too many files and directories to convert vars in"));
    }
    let patches = kustomization.patches.iter().filter(|patch| !patch.path.is_empty());
    let named = kustomization
        .resources
        .iter()
        .map(|path| (path.as_str(), None))
        .chain(patches.map(|patch| (patch.path.as_str(), Some(patch.clone()))));
    for (path, patch) in named {
        let Ok(found) = files.resolve(&paths::join(directory, path)) else { continue };
        if !seen.insert(found.path.clone()) {
            continue;
        }
        if !found.is_directory {
            // Like the build, this reads and writes nothing outside of the directory of a kustomization.
            if !paths::is_within(&found.path, directory) {
                return Err(Error::new(format!(
                    "security; file '{path}' is not in or below '{directory}'"
                )));
            }
            let Ok(bytes) = files.read(&found.path, MAX_FILE) else { continue };
            let Ok(text) = String::from_utf8(bytes) else { continue };
            touched.push(Touched { path: found.path, text, patch });
            continue;
        }
        for name in super::FILE_NAMES {
            let Ok(bytes) = files.read(&paths::join(&found.path, name), MAX_FILE) else {
                continue;
            };
            let inner = KustomizationFile::read(name, &bytes)?.decoded()?;
            gather(&inner, &found.path, files, seen, touched)?;
        }
    }
    Ok(())
}

fn find_targets(file: &Touched, name: &str, targets: &mut Vec<Value>) -> Result<()> {
    let variable = format!("$({name})");
    if !file.text.contains(&variable) {
        return Ok(());
    }
    let options = ReadOptions::kustomize_resource();
    let documents = kiln_yaml::read_bytes(&file.path, file.text.as_bytes(), options)
        .map_err(|diagnostic: Diagnostic| crate::model::output::yaml_error(&diagnostic))?;
    for document in documents {
        let mut found = Vec::new();
        find(document.value(), &variable, &mut Vec::new(), &mut found)
            .map_err(|error| error.context(format_args!("error with {}", file.path)))?;
        for (path, options) in found {
            let mut target = Map::new();
            target.insert("fieldPaths", Value::from(vec![Value::from(path)]));
            if let Some((delimiter, index)) = options {
                let mut options = Map::new();
                options.insert("delimiter", delimiter.to_string());
                if index != 0 {
                    options.insert("index", index as i64);
                }
                target.insert("options", options);
            }
            target.insert("select", select(document.value(), file.patch.as_ref()));
            targets.push(Value::Map(target));
        }
    }
    Ok(())
}

type FoundVar = (String, Option<(char, usize)>);

/// The paths of all texts that hold a variable, and how it is cut out of each.
fn find(
    value: &Value,
    variable: &str,
    path: &mut Vec<String>,
    found: &mut Vec<FoundVar>,
) -> Result<()> {
    match value {
        Value::Map(map) => {
            for (key, value) in map {
                let dotted = key.contains('.');
                path.push(if dotted { format!("[{key}]") } else { key.to_string() });
                find(value, variable, path, found)?;
                path.pop();
            }
        }
        Value::List(list) => {
            for (at, value) in list.iter().enumerate() {
                path.push(at.to_string());
                find(value, variable, path, found)?;
                path.pop();
            }
        }
        Value::String(text) if text.contains(variable) => {
            found.push((path.join("."), cut(text, variable)?));
        }
        _ => {}
    }
    Ok(())
}

/// The delimiter of a variable in a text and its position; nothing if it is all of the text.
fn cut(text: &str, variable: &str) -> Result<Option<(char, usize)>> {
    let at = text.find(variable).unwrap_or(0);
    let before = text[..at].chars().next_back();
    let after = text[at + variable.len()..].chars().next();
    let undelimited = || {
        Error::new(format!("cannot convert all vars to replacements; {variable} is not delimited"))
            .hint("write the same character before and after it, or replace it by hand")
    };
    let position = |delimiter: char| text.split(delimiter).position(|part| part == variable);
    match (before, after) {
        (None, None) => Ok(None),
        (None, Some(delimiter)) => Ok(Some((delimiter, 0))),
        (Some(delimiter), None) => {
            Ok(Some((delimiter, text.split(delimiter).count().saturating_sub(1))))
        }
        (Some(before), Some(after)) if before == after => {
            position(before).map(|at| Some((before, at))).ok_or_else(undelimited)
        }
        _ => Err(undelimited()),
    }
}

fn select(object: &Value, patch: Option<&Patch>) -> Map {
    let text = |path: &[&str]| object.str_at(path.iter().copied()).unwrap_or_default().to_owned();
    let name = text(&["metadata", "name"]);
    let namespace = text(&["metadata", "namespace"]);
    let options = patch.and_then(|patch| patch.options.as_ref());
    let renames = options.is_some_and(|o| o.allow_name_change && o.allow_kind_change);
    let (group, version) = match text(&["apiVersion"]).split_once('/') {
        Some((group, version)) => (group.to_owned(), version.to_owned()),
        None => (String::new(), text(&["apiVersion"])),
    };
    let mut fields = match patch {
        // A patch may be for other objects than the one it names.
        Some(patch) if !renames => {
            let target = patch.target.clone().unwrap_or_default();
            let mut fields = vec![
                ("annotationSelector", target.annotation_selector),
                ("group", target.group.to_string()),
                ("kind", target.kind.to_string()),
                ("labelSelector", target.label_selector),
                ("name", target.name.to_string()),
                ("namespace", target.namespace.to_string()),
                ("version", target.version.to_string()),
            ];
            let mut put = |field: &str, text: String| {
                for (_, value) in fields.iter_mut().filter(|(name, _)| *name == field) {
                    value.clone_from(&text);
                }
            };
            if options.is_some_and(|o| o.allow_name_change) {
                put("name", name);
            }
            if options.is_some_and(|o| o.allow_kind_change) {
                put("kind", text(&["kind"]));
            }
            if !namespace.is_empty() {
                put("namespace", namespace);
            }
            fields
        }
        _ => vec![
            ("group", group),
            ("kind", text(&["kind"])),
            ("name", name),
            ("namespace", namespace),
            ("version", version),
        ],
    };
    fields.retain(|(_, text)| !text.is_empty());
    fields.into_iter().collect()
}

fn replacement(var: &Var, targets: Vec<Value>) -> Value {
    let objref = &var.objref;
    let (group, version) = match objref.api_version.split_once('/') {
        Some((group, version)) => (group, version),
        None => ("", objref.api_version.as_str()),
    };
    let source: Map = [
        ("fieldPath", var.fieldref.field_path.as_str()),
        ("group", group),
        ("kind", &objref.kind),
        ("name", &objref.name),
        ("namespace", &objref.namespace),
        ("version", version),
    ]
    .into_iter()
    .filter(|(_, text)| !text.is_empty())
    .collect();
    let mut replacement = Map::new();
    replacement.insert("source", source);
    if !targets.is_empty() {
        replacement.insert("targets", Value::from(targets));
    }
    Value::Map(replacement)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::fs::Memory;

    #[test]
    fn variables_are_cut_out_by_what_stands_around_them() {
        for (text, wanted) in [
            ("$(A)", None),
            ("$(A).x.y", Some(('.', 0))),
            ("x.y.$(A)", Some(('.', 2))),
            ("x.$(A).y", Some(('.', 1))),
        ] {
            assert_eq!(cut(text, "$(A)").unwrap(), wanted, "{text}");
        }
        assert!(cut("x-$(A).y", "$(A)").is_err());
    }

    #[test]
    fn vars_become_replacements() {
        let text = "resources:\n- pod.yaml # keep\nvars:\n- name: A\n  objref: {apiVersion: v1, kind: Service, name: s}\n";
        let tree = Memory::new().with("app/kustomization.yaml", text).with(
            "app/pod.yaml",
            "apiVersion: v1\nkind: Pod\nmetadata:\n  name: p # c\nspec:\n  host: http://$(A)\n",
        );
        let mut file = KustomizationFile::read("kustomization.yaml", text.as_bytes()).unwrap();
        let converted = convert_vars(&mut file, &tree, "/app").unwrap();
        assert_eq!(converted.len(), 1);
        assert!(converted[0].text.contains("name: p # c\n"), "{converted:?}");
        assert!(converted[0].text.contains("host: http://A_PLACEHOLDER\n"), "{converted:?}");
        let text = file.text().unwrap();
        assert!(text.starts_with("resources:\n- pod.yaml # keep\n"), "{text}");
        assert!(!text.contains("vars:"), "{text}");
        assert!(text.contains("fieldPaths:\n    - spec.host\n"), "{text}");
        assert!(text.contains("delimiter: /\n      index: 2\n"), "{text}");
    }

    #[test]
    fn no_file_outside_is_touched() {
        let text = "resources: [../pod.yaml]\nvars: [{name: A, objref: {kind: B, name: c}}]\n";
        let tree = Memory::new().with("app/kustomization.yaml", text).with("pod.yaml", "x: $(A)\n");
        let mut file = KustomizationFile::read("kustomization.yaml", text.as_bytes()).unwrap();
        let refused = convert_vars(&mut file, &tree, "/app").unwrap_err();
        assert!(refused.message().contains("is not in or below"), "{refused}");
    }
}
