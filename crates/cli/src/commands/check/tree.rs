//! Which files of a tree are looked at. What a user names is read whatever it is; what is only found in a directory may be
//! no business of ours, and says so instead of keeping the rest from being checked.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use kiln_diagnostic::{Diagnostic, Severity};
use kiln_object::Kinds;
use kiln_text::wildcard;
use kiln_value::Value;
use kiln_yaml::{Document, ReadOptions, Reader};

use crate::args::Global;
use crate::input;
use crate::ui::{Ui, counted, plain};

/// Everything that was read.
#[derive(Default)]
pub(super) struct Tree {
    pub(super) documents: Vec<Document>,
    /// The kinds that are built in, and those that the documents define.
    pub(super) kinds: Kinds,
    /// What cannot be read, or not be used.
    pub(super) problems: Vec<Diagnostic>,
    /// How many files and directories were left alone.
    pub(super) passed_over: usize,
}

/// Reads files, directories and standard input.
pub(super) fn read(
    ui: &Ui,
    global: &Global,
    paths: &[String],
    exclude: &[String],
    allow_empty: bool,
) -> Tree {
    let limit = usize::try_from(global.max_input_size).unwrap_or(usize::MAX);
    let mut reader = Reader::new(ReadOptions::kubernetes().max_input_size(limit));
    let mut tree = Tree::default();
    let mut definitions = Vec::new();
    for path in paths {
        let is_directory = path != "-" && Path::new(path).is_dir();
        let files = match is_directory {
            true => match found_below(ui, path, exclude, &mut tree) {
                Ok(files) => files,
                Err(problem) => {
                    tree.problems.push(problem);
                    continue;
                }
            },
            false => vec![path.clone()],
        };
        if is_directory && files.is_empty() && !allow_empty {
            let message = format!("there is no YAML or JSON file below {path}");
            tree.problems.push(Diagnostic::error(message));
        }
        for file in files {
            let input = match input::read(&file, global.max_input_size) {
                Ok(input) => input,
                Err(problem) => {
                    tree.problems.push(problem);
                    continue;
                }
            };
            match reader.read_bytes(&input.name, &input.bytes) {
                Ok(documents) => {
                    let is_one = |document: &Document| !is_directory || is_object(document.value());
                    if !documents.is_empty() && !documents.iter().any(is_one) {
                        tree.pass_over(ui, &file, "it holds no Kubernetes object");
                        continue;
                    }
                    for document in documents.into_iter().filter(is_one) {
                        if document.value().str_at(["kind"]) == Some("CustomResourceDefinition") {
                            definitions.push((document.clone(), is_directory));
                        }
                        tree.documents.push(document);
                    }
                }
                Err(_) if is_directory && is_template(&input.bytes) => {
                    tree.pass_over(ui, &file, "it is a template to be filled in, not YAML");
                }
                Err(problem) => tree.problems.push(problem),
            }
        }
    }
    tree.define(ui, &definitions);
    tree
}

impl Tree {
    fn pass_over(&mut self, ui: &Ui, path: &str, why: &str) {
        self.passed_over += 1;
        remark(ui, &format!("{} is skipped: {why}", plain(path)));
    }

    /// Takes the kinds of definitions. A part of one, as tests have them, defines nothing.
    fn define(&mut self, ui: &Ui, definitions: &[(Document, bool)]) {
        let mut kinds = Kinds::builtin();
        for (document, only_found) in definitions {
            match kinds.clone().with_crd(document.value()) {
                Ok(more) => kinds = more,
                Err(error) if *only_found => {
                    let file = document.source().name().to_owned();
                    self.pass_over(ui, &file, &format!("a part of a definition: {error}"));
                }
                Err(error) => {
                    self.problems.push(Diagnostic::error(error.to_string()).at(document.place()));
                }
            }
        }
        self.kinds = kinds;
    }
}

/// Says what is left alone: a line for people, a note for programs.
fn remark(ui: &Ui, text: &str) {
    match ui.format() {
        crate::args::OutputFormat::Json => ui.problem(&Diagnostic::new(Severity::Note, text)),
        _ => ui.status(text),
    }
}

fn is_object(value: &Value) -> bool {
    value.str_at(["apiVersion"]).is_some() && value.str_at(["kind"]).is_some()
}

/// Whether a text that is not YAML is one that Helm would make YAML of.
fn is_template(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes);
    ["{{-", "{{ .", "{{.", "-}}", "{{ include", "{{ template", "{{ if", "{{ range", "{{/*"]
        .iter()
        .any(|mark| text.contains(mark))
}

/// The YAML and JSON files below a directory in the order of names, but for what is hidden, excluded or Helm's.
fn found_below(
    ui: &Ui,
    root: &str,
    exclude: &[String],
    tree: &mut Tree,
) -> Result<Vec<String>, Diagnostic> {
    let mut files = Vec::new();
    let mut hidden: BTreeMap<String, usize> = BTreeMap::new();
    let mut directories = vec![PathBuf::from(root)];
    while let Some(directory) = directories.pop() {
        let shown = directory.display().to_string();
        let entries =
            fs::read_dir(&directory).map_err(|error| input::cannot("read", &shown, &error))?;
        let mut entries: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        entries.sort();
        for entry in entries {
            let name = entry.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let path = entry.display().to_string();
            let is_directory = entry.is_dir();
            let is_ours = matches!(
                entry.extension().and_then(|ending| ending.to_str()),
                Some("yaml" | "yml" | "json")
            );
            if !is_directory && !is_ours || is_directory && entry.is_symlink() {
                // A link to a directory above would never end.
                continue;
            }
            if is_excluded(&path, root, exclude) {
                tree.pass_over(ui, &path, "it is excluded");
            } else if name.starts_with('.') {
                *hidden.entry(name).or_default() += 1;
            } else if is_directory && name == "templates" && directory.join("Chart.yaml").exists() {
                tree.pass_over(ui, &path, "it holds the templates of a Helm chart");
            } else if is_directory {
                directories.push(entry);
            } else if !fs::metadata(&entry).is_ok_and(|metadata| metadata.is_file()) {
                tree.pass_over(ui, &path, "it is not a regular file");
            } else {
                files.push(path);
            }
        }
    }
    for (name, count) in hidden {
        tree.passed_over += count;
        let those = counted(count, "entry of this name is", "entries of this name are");
        remark(ui, &format!("{} is hidden: {those} skipped below {}", plain(&name), plain(root)));
    }
    files.sort();
    Ok(files)
}

/// Whether a glob means a path: the whole of it, what follows the directory that was named, a directory on the way, or a name.
fn is_excluded(path: &str, root: &str, exclude: &[String]) -> bool {
    let below = path.strip_prefix(root).unwrap_or(path).trim_start_matches('/');
    exclude.iter().any(|glob| {
        let glob = glob.trim_start_matches("./").trim_end_matches('/').replace("**", "*");
        let means = |text: &str| wildcard::matches(&glob, text);
        means(path.trim_start_matches("./")) || means(below) || below.split('/').any(means)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs_mean_names_directories_and_paths() {
        let is = |path: &str, glob: &str| is_excluded(path, "./rules", &[glob.to_owned()]);
        assert!(is("./rules/a/test/x.yaml", "test"));
        assert!(is("./rules/a/x.yaml", "*.yaml"));
        assert!(is("./rules/a/b/x.yaml", "a/**"));
        assert!(is("./rules/a/x.yaml", "rules/a/x.yaml"));
        assert!(is("./rules/a", "a/"));
        assert!(!is("./rules/a/x.yaml", "b"));
        assert!(!is("./rules/a/x.yaml", "x"));
    }

    #[test]
    fn templates_are_told_from_broken_yaml() {
        assert!(is_template(b"a: {{ .Values.x }}\n{{- if }}\n"));
        assert!(!is_template(b"a: {{ request.object.x }}\nb: [\n"));
    }
}
