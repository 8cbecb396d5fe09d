//! Rendered texts to documents: what is a hook, what is a test, and in which order they are installed.

use kiln_value::Value;
use kiln_yaml::ReadOptions;

use crate::error::{ChartError, Result};
use crate::metadata::{json_kind, scalar_text};
use crate::options::{ChartOptions, HelmVersion};

/// What a chart renders.
#[derive(Clone, Debug, Default)]
pub struct Rendered {
    /// Definitions of custom resources, as their files have them; only if they were asked for.
    pub crds: Vec<Manifest>,
    /// Objects, in the order of installation.
    pub manifests: Vec<Manifest>,
    /// Hooks, likewise.
    pub hooks: Vec<Manifest>,
    /// What `NOTES.txt` says.
    pub notes: String,
    /// What was left out, and why.
    pub warnings: Vec<String>,
}

/// A document of a chart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// The file it comes from.
    pub path: String,
    pub text: String,
    kind: String,
}

impl Rendered {
    /// What `helm template` prints.
    pub fn text(&self) -> String {
        let mut out = String::new();
        for manifest in self.crds.iter().chain(&self.manifests) {
            manifest.print(&mut out);
        }
        let end = out.trim_end().len();
        out.truncate(end);
        let start = out.len() - out.trim_start().len();
        out.drain(..start);
        out.push('\n');
        self.hooks.iter().for_each(|hook| hook.print(&mut out));
        out
    }
}

impl Manifest {
    pub(crate) fn crd(path: String, text: String) -> Self {
        Manifest { path, text, kind: String::new() }
    }

    fn print(&self, out: &mut String) {
        out.push_str("---\n# Source: ");
        out.push_str(&self.path);
        out.push('\n');
        out.push_str(&self.text);
        out.push('\n');
    }
}

/// Sorts rendered files, given by their paths in order, into manifests and hooks.
pub(crate) fn sort(files: &[(String, String)], options: &ChartOptions) -> Result<Rendered> {
    let mut rendered = Rendered::default();
    for (path, text) in files {
        let name = path.rsplit('/').next().unwrap_or(path);
        if name.starts_with('_') || text.trim().is_empty() {
            continue;
        }
        for document in split(text, options.helm) {
            let head = Head::read(path, document)?;
            let manifest =
                Manifest { path: path.clone(), text: document.to_owned(), kind: head.kind };
            match head.hook {
                None => rendered.manifests.push(manifest),
                Some(events) => match hook_events(&events) {
                    None => rendered
                        .warnings
                        .push(format!("{path}: unknown hook {events:?} is left out")),
                    Some(_) if options.no_hooks => {}
                    Some(has_test) if has_test && options.skip_tests => {}
                    Some(_) => rendered.hooks.push(manifest),
                },
            }
        }
    }
    let order = |manifest: &Manifest| place(&manifest.kind, options.helm);
    for list in [&mut rendered.manifests, &mut rendered.hooks] {
        list.sort_by(|a, b| match (order(a), order(b)) {
            (None, None) => a.kind.cmp(&b.kind),
            (None, Some(_)) => std::cmp::Ordering::Greater,
            (Some(_), None) => std::cmp::Ordering::Less,
            (Some(a), Some(b)) => a.cmp(&b),
        });
    }
    Ok(rendered)
}

/// What Helm reads of a document.
struct Head {
    kind: String,
    hook: Option<String>,
}

impl Head {
    fn read(path: &str, document: &str) -> Result<Head> {
        let failed = |message: &str| format!("YAML parse error on {path}: {message}");
        let documents =
            // Its lines are not those of the template.
            kiln_yaml::read_bytes(&format!("{path} (rendered)"), document.as_bytes(), ReadOptions::kustomization())
                .map_err(|problem| {
                    let line = problem.place.as_ref().map_or(1, |place| place.position().line);
                    let helm = failed(&format!(
                        "error converting YAML to JSON: yaml: line {line}: {}",
                        problem.message
                    ));
                    let mut diagnostic = problem;
                    diagnostic.message =
                        format!("what the template renders is not YAML: {}", diagnostic.message);
                    ChartError::placed(diagnostic, helm)
                })?;
        let wrong = |what: &str, into: &str| {
            let unmarshal = "error unmarshaling JSON: while decoding JSON: json: cannot unmarshal";
            ChartError::new(failed(&format!("{unmarshal} {what} into Go {into}")))
        };
        let value =
            documents.into_iter().next().map_or(Value::Null, kiln_yaml::Document::into_value);
        let map = match &value {
            Value::Null => return Ok(Head { kind: String::new(), hook: None }),
            Value::Map(map) => map,
            other => return Err(wrong(json_kind(other), "value of type releaseutil.SimpleHead")),
        };
        let field = |value: Option<&Value>, name: &str| match value {
            None | Some(Value::Null) => Ok(None),
            Some(value) => match scalar_text(value) {
                Some(text) => Ok(Some(text)),
                None => {
                    Err(wrong(json_kind(value), &format!("struct field {name} of type string")))
                }
            },
        };
        field(map.get("apiVersion"), "SimpleHead.apiVersion")?;
        let kind = field(map.get("kind"), "SimpleHead.kind")?.unwrap_or_default();
        let metadata = match map.get("metadata") {
            None | Some(Value::Null) => return Ok(Head { kind, hook: None }),
            Some(Value::Map(metadata)) => metadata,
            Some(other) => {
                return Err(wrong(
                    json_kind(other),
                    "struct field SimpleHead.metadata of type struct { Name string \"json:\\\"name\\\"\"; Annotations map[string]string \"json:\\\"annotations\\\"\" }",
                ));
            }
        };
        field(metadata.get("name"), ".metadata.name")?;
        let annotations = match metadata.get("annotations") {
            None | Some(Value::Null) => return Ok(Head { kind, hook: None }),
            Some(Value::Map(annotations)) => annotations,
            Some(other) => {
                return Err(wrong(
                    json_kind(other),
                    "struct field .metadata.annotations of type map[string]string",
                ));
            }
        };
        for (_, value) in annotations {
            field(Some(value), ".metadata.annotations")?;
        }
        let hook =
            annotations.get("helm.sh/hook").map(|value| scalar_text(value).unwrap_or_default());
        Ok(Head { kind, hook })
    }
}

/// Whether one of the events of a hook is a test; `None` if one of them is not an event.
fn hook_events(events: &str) -> Option<bool> {
    let mut has_test = false;
    for event in events.split(',') {
        match event.trim().to_ascii_lowercase().as_str() {
            "test" | "test-success" => has_test = true,
            "pre-install" | "post-install" | "pre-delete" | "post-delete" | "pre-upgrade"
            | "post-upgrade" | "pre-rollback" | "post-rollback" => {}
            _ => return None,
        }
    }
    Some(has_test)
}

const ORDER: [&str; 38] = [
    "PriorityClass",
    "Namespace",
    "NetworkPolicy",
    "ResourceQuota",
    "LimitRange",
    "PodSecurityPolicy",
    "PodDisruptionBudget",
    "ServiceAccount",
    "Secret",
    "SecretList",
    "ConfigMap",
    "StorageClass",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "CustomResourceDefinition",
    "ClusterRole",
    "ClusterRoleList",
    "ClusterRoleBinding",
    "ClusterRoleBindingList",
    "Role",
    "RoleList",
    "RoleBinding",
    "RoleBindingList",
    "Service",
    "DaemonSet",
    "Pod",
    "ReplicationController",
    "ReplicaSet",
    "Deployment",
    "HorizontalPodAutoscaler",
    "StatefulSet",
    "Job",
    "CronJob",
    "IngressClass",
    "Ingress",
    "APIService",
    "MutatingWebhookConfiguration",
    "ValidatingWebhookConfiguration",
];

/// Where a kind comes; `None` after all others.
fn place(kind: &str, helm: HelmVersion) -> Option<usize> {
    let known = if helm.webhooks_last { ORDER.len() } else { ORDER.len() - 2 };
    ORDER[..known].iter().position(|known| *known == kind)
}

/// The documents of a text.
fn split(text: &str, helm: HelmVersion) -> Vec<&str> {
    if helm.split_at_line_start { split_at_lines(text) } else { split_around(text) }
}

/// White space as Go's regular expressions have it.
fn is_blank(byte: u8) -> bool {
    matches!(byte, b'\t' | b'\n' | b'\x0c' | b'\r' | b' ')
}

/// Helm 3: `(?:^|\s*\n)---\s*` is between documents.
fn split_around(text: &str) -> Vec<&str> {
    let text = text.trim();
    let bytes = text.as_bytes();
    let after_blanks = |mut at: usize| {
        while bytes.get(at).copied().is_some_and(is_blank) {
            at += 1;
        }
        at
    };
    let mut documents = Vec::new();
    let mut start = if text.starts_with("---") { after_blanks(3) } else { 0 };
    while let Some(found) = text[start..].find("\n---") {
        let newline = start + found;
        let mut end = newline;
        while end > start && is_blank(bytes[end - 1]) {
            end -= 1;
        }
        documents.push(&text[start..end]);
        start = after_blanks(newline + 4);
    }
    documents.push(&text[start..]);
    documents.retain(|document| !document.is_empty());
    documents.into_iter().map(str::trim).collect()
}

/// Helm 4: `(?m)^---[ \t]*` is between documents, and their ends stay.
fn split_at_lines(text: &str) -> Vec<&str> {
    let text = text.trim_start();
    let mut documents = Vec::new();
    let mut start = 0;
    let mut line = 0;
    while line <= text.len() {
        if text[line..].starts_with("---") {
            documents.push(&text[start..line]);
            let rest = &text[line + 3..];
            start = text.len() - rest.trim_start_matches([' ', '\t']).len();
            line = start;
        }
        match text[line..].find('\n') {
            Some(end) => line += end + 1,
            None => break,
        }
    }
    documents.push(&text[start..]);
    documents.retain(|document| !document.trim().is_empty());
    documents.into_iter().map(str::trim_start).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_end_where_each_version_ends_them() {
        for (text, three, four) in [
            ("a: 1\n---\nb: 2\n", &["a: 1", "b: 2"][..], &["a: 1\n", "b: 2\n"][..]),
            ("---\na: 1\n\n---\n", &["a: 1"], &["a: 1\n\n"]),
            ("---\n---\na: 1", &["---\na: 1"], &["a: 1"]),
            ("a: 1\n--- b: 2", &["a: 1", "b: 2"], &["a: 1\n", "b: 2"]),
            ("a: 1 ---\n", &["a: 1 ---"], &["a: 1 ---\n"]),
            ("---a: 1", &["a: 1"], &["a: 1"]),
        ] {
            assert_eq!(split_around(text), three, "{text:?}");
            assert_eq!(split_at_lines(text), four, "{text:?}");
        }
    }
}
