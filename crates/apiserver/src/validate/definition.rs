//! What must hold of the definition of a custom kind.

use kiln_text::names;
use kiln_value::Value;

use crate::crd;
use crate::crd::names::{Approval, approval, approval_path, is_protected, needs_approval};
use crate::status::FieldProblem;

fn text<'v>(value: &'v Value, path: &[&str]) -> &'v str {
    value.str_at(path.iter().copied()).unwrap_or_default()
}

/// What is wrong with a definition.
pub(super) fn check(object: &Value, old: Option<&Value>, problems: &mut Vec<FieldProblem>) {
    let (group, plural) =
        (text(object, &["spec", "group"]), text(object, &["spec", "names", "plural"]));
    let name = text(object, &["metadata", "name"]);
    if name != format!("{plural}.{group}") {
        let why = "must be spec.names.plural+\".\"+spec.group".to_owned();
        problems.push(FieldProblem::invalid("metadata.name", name, why));
    }
    for (path, value) in [("spec.group", group), ("spec.names.plural", plural)] {
        if value.is_empty() {
            problems.push(FieldProblem::required(path, ""));
        }
    }
    if text(object, &["spec", "names", "kind"]).is_empty() {
        problems.push(FieldProblem::required("spec.names.kind", ""));
    }
    check_group(object, old, problems);
    check_names(object, problems);
    let scope = text(object, &["spec", "scope"]);
    if !["Cluster", "Namespaced"].contains(&scope) {
        problems.push(FieldProblem::unsupported("spec.scope", scope, &["Cluster", "Namespaced"]));
    }
    let versions = object.get_path(["spec", "versions"]).and_then(Value::as_list);
    let versions: Vec<&Value> = versions.into_iter().flat_map(|list| list.iter()).collect();
    let stored = versions
        .iter()
        .filter(|version| version.get("storage").and_then(Value::as_bool) == Some(true));
    if stored.count() != 1 {
        let list =
            Value::from(versions.iter().map(|version| (*version).clone()).collect::<Vec<_>>());
        let why = "must have exactly one version marked as storage version";
        problems.push(FieldProblem::invalid("spec.versions", list, why));
    }
    for (i, version) in versions.iter().enumerate() {
        let name = text(version, &["name"]);
        let wrong = names::dns1035_label(name).into_iter();
        let at = format!("spec.versions[{i}].name");
        problems.extend(wrong.map(|why| FieldProblem::invalid(at.as_str(), name, why)));
        if version.get_path(["schema", "openAPIV3Schema"]).is_none() {
            let at = format!("spec.versions[{i}].schema.openAPIV3Schema");
            problems.push(FieldProblem::required(at, "schemas are required"));
        } else if text(version, &["schema", "openAPIV3Schema", "type"]) != "object" {
            let at = format!("spec.versions[{i}].schema.openAPIV3Schema.type");
            problems.push(FieldProblem::required(at, "must not be empty at the root"));
        } else if let Some(schema) = version.get_path(["schema", "openAPIV3Schema"]) {
            // Kubernetes: what all versions share is reported once.
            let at = match versions.as_slice() {
                [_] => "spec.validation.openAPIV3Schema".to_owned(),
                _ => format!("spec.versions[{i}].schema.openAPIV3Schema"),
            };
            problems.extend(crd::schema_problems(schema, &at));
        }
    }
}

/// A group is a domain, and those of Kubernetes are reserved.
fn check_group(object: &Value, old: Option<&Value>, problems: &mut Vec<FieldProblem>) {
    let group = text(object, &["spec", "group"]);
    if group.is_empty() {
        return;
    }
    if group.contains('.') {
        let wrong = names::dns1123_subdomain(group).into_iter();
        problems.extend(wrong.map(|why| FieldProblem::invalid("spec.group", group, why)));
    } else {
        let why = "should be a domain with at least one dot";
        problems.push(FieldProblem::invalid("spec.group", group, why));
    }
    let state = |definition: &Value| approval(definition).reason();
    // Kubernetes: an update that leaves the approval as it is may change the rest.
    if !is_protected(group) || old.is_some_and(|old| state(old) == state(object)) {
        return;
    }
    match approval(object) {
        Approval::Approved(_) | Approval::Bypassed(_) => {}
        Approval::Missing => {
            problems.push(FieldProblem::required(approval_path(), &needs_approval()));
        }
        Approval::Invalid => {
            let given = text(object, &["metadata", "annotations", crd::names::APPROVED]);
            problems.push(FieldProblem::invalid(approval_path(), given, needs_approval()));
        }
    }
}

fn check_names(object: &Value, problems: &mut Vec<FieldProblem>) {
    let mut check = |at: &str, name: &str, any_case: bool| {
        if name.is_empty() {
            return;
        }
        let lower = if any_case { name.to_lowercase() } else { name.to_owned() };
        for why in names::dns1035_label(&lower) {
            let why = if any_case {
                format!("may have mixed case, but should otherwise match: {why}")
            } else {
                why
            };
            problems.push(FieldProblem::invalid(at, name, why));
        }
    };
    for (field, any_case) in
        [("plural", false), ("singular", false), ("kind", true), ("listKind", true)]
    {
        check(&format!("spec.names.{field}"), text(object, &["spec", "names", field]), any_case);
    }
    for field in ["shortNames", "categories"] {
        let list = object.get_path(["spec", "names", field]).and_then(Value::as_list);
        for (i, name) in list.into_iter().flat_map(|list| list.iter()).enumerate() {
            check(&format!("spec.names.{field}[{i}]"), name.as_str().unwrap_or_default(), false);
        }
    }
    let kind = text(object, &["spec", "names", "kind"]);
    if !kind.is_empty() && kind == text(object, &["spec", "names", "listKind"]) {
        let why = "kind and listKind may not be the same";
        problems.push(FieldProblem::invalid("spec.names.listKind", kind, why));
    }
}

/// What of a definition must not change while its kind is served.
pub(super) fn fixed(old: &Value) -> &'static [&'static [&'static str]] {
    let conditions = old.get_path(["status", "conditions"]).and_then(Value::as_list);
    let established = conditions
        .into_iter()
        .flat_map(|list| list.iter())
        .any(|one| text(one, &["type"]) == "Established" && text(one, &["status"]) == "True");
    if established {
        &[
            &["spec", "group"],
            &["spec", "scope"],
            &["spec", "names", "kind"],
            &["spec", "names", "plural"],
        ]
    } else {
        &[]
    }
}
