//! Names, labels, annotations, finalizers, owners.

use kiln_object::Kind;
use kiln_object::metadata::is_deleted;
use kiln_text::names;
use kiln_value::{Map, Value};

use crate::status::{FieldProblem, FieldProblemKind};

/// The most that annotations of an object may hold together.
const ANNOTATIONS: usize = 256 * 1024;

pub(super) fn check(kind: &Kind, object: &Value) -> Vec<FieldProblem> {
    let mut problems = Vec::new();
    let name = object.str_at(["metadata", "name"]).unwrap_or_default();
    if name.is_empty() {
        problems.push(FieldProblem::required("metadata.name", "name or generateName is required"));
    } else {
        let wrong = name_problems(kind, name);
        problems
            .extend(wrong.into_iter().map(|why| FieldProblem::invalid("metadata.name", name, why)));
    }
    let pairs = |field: &str| object.get_path(["metadata", field]).and_then(Value::as_map);
    problems.extend(labels(pairs("labels"), "metadata.labels"));
    let mut size = 0;
    for (key, value) in pairs("annotations").into_iter().flat_map(Map::iter) {
        size += key.len() + value.as_str().map_or(0, str::len);
        let wrong = names::qualified_name(&key.to_lowercase());
        let at = "metadata.annotations";
        problems.extend(wrong.into_iter().map(|why| FieldProblem::invalid(at, key.as_str(), why)));
    }
    if size > ANNOTATIONS {
        problems.push(FieldProblem::new(
            "metadata.annotations",
            FieldProblemKind::TooLong(ANNOTATIONS),
        ));
    }
    let finalizers = object.get_path(["metadata", "finalizers"]).and_then(Value::as_list);
    for (i, finalizer) in finalizers.into_iter().flat_map(|list| list.iter()).enumerate() {
        let text = finalizer.as_str().unwrap_or_default();
        let at = format!("metadata.finalizers[{i}]");
        let wrong = names::qualified_name(text);
        let standard = matches!(text, "kubernetes" | "orphan" | "foregroundDeletion");
        if !wrong.is_empty() {
            problems
                .extend(wrong.into_iter().map(|why| FieldProblem::invalid(at.as_str(), text, why)));
        } else if !text.contains('/') && !standard && !text.contains('.') {
            let why = "name is neither a standard finalizer name nor is it fully qualified";
            problems.push(FieldProblem::invalid(at, text, why));
        }
    }
    problems.extend(owners(object));
    problems
}

fn name_problems(kind: &Kind, name: &str) -> Vec<String> {
    match (kind.group(), kind.kind()) {
        ("", "Namespace" | "Service") | ("apps", "StatefulSet") => names::dns1123_label(name),
        ("rbac.authorization.k8s.io", _)
        // Kubernetes: of these nothing more is asked than that a path may hold the name.
        | ("policy", "PodDisruptionBudget")
        | ("certificates.k8s.io", "CertificateSigningRequest")
        | ("", "Event") => names::path_segment(name),
        ("batch", "CronJob") if name.len() > 52 => {
            vec!["must be no more than 52 characters".to_owned()]
        }
        _ => names::dns1123_subdomain(name),
    }
}

/// What is wrong with labels.
pub(super) fn labels(pairs: Option<&Map>, at: &str) -> Vec<FieldProblem> {
    let mut problems = Vec::new();
    for (key, value) in pairs.into_iter().flat_map(Map::iter) {
        let text = value.as_str().unwrap_or_default();
        let wrong = names::qualified_name(key);
        problems.extend(wrong.into_iter().map(|why| FieldProblem::invalid(at, key.as_str(), why)));
        problems.extend(
            names::label_value(text).into_iter().map(|why| FieldProblem::invalid(at, text, why)),
        );
    }
    problems
}

fn owners(object: &Value) -> Vec<FieldProblem> {
    let mut problems = Vec::new();
    let at = "metadata.ownerReferences";
    let list = object.get_path(["metadata", "ownerReferences"]).and_then(Value::as_list);
    let Some(list) = list else { return problems };
    for owner in list {
        for field in ["apiVersion", "kind", "name", "uid"] {
            if owner.str_at([field]).unwrap_or_default().is_empty() {
                let why = if field == "apiVersion" {
                    "version must not be empty"
                } else {
                    "must not be empty"
                };
                problems.push(FieldProblem::invalid(format!("{at}.{field}"), "", why));
            }
        }
    }
    let controllers =
        list.iter().filter(|owner| owner.get("controller").and_then(Value::as_bool) == Some(true));
    let controllers: Vec<String> = controllers
        .map(|owner| {
            let text = |field: &str| owner.str_at([field]).unwrap_or_default();
            format!("{}/{}", text("kind"), text("name"))
        })
        .collect();
    if let [first, second, ..] = controllers.as_slice() {
        let why = format!(
            "Only one reference can have Controller set to true. Found \"true\" in references for {first} and {second}"
        );
        problems.push(FieldProblem::invalid(at, Value::List(list.clone()), why));
    }
    problems
}

/// What must not change.
pub(super) fn check_change(old: &Value, new: &Value) -> Vec<FieldProblem> {
    let mut problems = Vec::new();
    let list = |object: &Value| -> Vec<Value> {
        let list = object.get_path(["metadata", "finalizers"]).and_then(Value::as_list);
        list.map(|list| list.to_vec()).unwrap_or_default()
    };
    if is_deleted(old) {
        let before = list(old);
        let added: Vec<String> = list(new)
            .iter()
            .filter(|finalizer| !before.contains(finalizer))
            .map(|finalizer| format!("{:?}", finalizer.as_str().unwrap_or_default()))
            .collect();
        if !added.is_empty() {
            let why = format!(
                "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                added.join(", ")
            );
            problems.push(FieldProblem::forbidden("metadata.finalizers", &why));
        }
    }
    problems
}
