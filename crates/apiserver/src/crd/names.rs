//! Which names a custom kind gets: none that a built-in kind or an older custom one of its group has.

use std::collections::HashSet;

use kiln_object::{Kind, Kinds};
use kiln_value::{Map, Str, Value};

/// The annotation that permits kinds in groups of Kubernetes.
pub(crate) const APPROVED: &str = "api-approved.kubernetes.io";

/// What becomes of the names that a definition asks for.
#[derive(Debug)]
pub(crate) struct Naming {
    /// The names that it is served under.
    pub(crate) accepted: Map,
    /// Whether its kind is served: from when it first had all its names.
    pub(crate) established: bool,
    /// Why it does not have all of them: a reason and a message.
    pub(crate) conflict: Option<(&'static str, String)>,
}

/// Decides about the names of a definition, given the kinds that are served.
pub(crate) fn naming(kinds: &Kinds, definition: &Value) -> Naming {
    let text =
        |path: &[&str]| definition.str_at(path.iter().copied()).unwrap_or_default().to_owned();
    let (group, plural) = (text(&["spec", "group"]), text(&["spec", "names", "plural"]));
    let own = kinds.custom(&group, &plural);
    let others = || {
        kinds
            .in_group(&group)
            .filter(|kind| own.is_none() || kind.plural() != plural || kind.is_built_in())
    };
    let resources: HashSet<Str> = others().flat_map(resource_names).collect();
    let kind_names: HashSet<Str> =
        others().flat_map(|kind| [Str::new(kind.kind()), kind.list_kind()]).collect();
    let mut naming = Naming {
        accepted: own.map(names_of).unwrap_or_default(),
        established: own.is_some(),
        conflict: None,
    };
    for (field, used, reason) in [
        ("plural", &resources, "PluralConflict"),
        ("singular", &resources, "SingularConflict"),
        ("shortNames", &resources, "ShortNamesConflict"),
        ("kind", &kind_names, "KindConflict"),
        ("listKind", &kind_names, "ListKindConflict"),
    ] {
        let Some(asked) = definition.get_path(["spec", "names", field]) else {
            naming.accepted.remove(field);
            continue;
        };
        let asked_for: Vec<&str> = match asked {
            Value::List(list) => list.iter().filter_map(Value::as_str).collect(),
            one => one.as_str().into_iter().collect(),
        };
        let taken: Vec<String> = asked_for
            .iter()
            .filter(|name| used.contains(**name))
            .map(|name| format!("{name:?} is already in use"))
            .collect();
        match taken.as_slice() {
            [] => {
                naming.accepted.insert(field, asked.clone());
            }
            // Kubernetes: the last of several is reported.
            [one] => naming.conflict = Some((reason, one.clone())),
            many => naming.conflict = Some((reason, format!("[{}]", many.join(", ")))),
        }
    }
    if let Some(categories) = definition.get_path(["spec", "names", "categories"]) {
        naming.accepted.insert("categories", categories.clone());
    }
    naming.established |= naming.conflict.is_none();
    naming
}

fn resource_names(kind: &Kind) -> Vec<Str> {
    let mut names = vec![Str::new(kind.plural()), kind.singular()];
    names.extend(kind.short_names().map(Str::new));
    names
}

/// The names that a kind is served with.
fn names_of(kind: &Kind) -> Map {
    let mut names = Map::new();
    names.insert("plural", kind.plural());
    names.insert("singular", kind.singular());
    let short: Vec<&str> = kind.short_names().collect();
    if !short.is_empty() {
        names.insert("shortNames", short);
    }
    names.insert("kind", kind.kind());
    names.insert("listKind", kind.list_kind());
    names
}

/// The definition as it is served: with the names that it has. None while it is not.
pub(crate) fn served(kinds: &Kinds, definition: &Value) -> Option<Value> {
    let naming = naming(kinds, definition);
    if !naming.established {
        return None;
    }
    let mut served = definition.clone();
    let _ = served.set(["spec", "names"], Value::Map(naming.accepted));
    Some(served)
}

/// Writes into the status of a definition what became of its names.
pub(crate) fn tell(kinds: &Kinds, definition: &mut Value, now: &str) {
    let naming = naming(kinds, definition);
    let mut conditions: Vec<(&str, &str, &str, String)> = Vec::new();
    let group = definition.str_at(["spec", "group"]).unwrap_or_default();
    if is_protected(group) {
        let approval = approval(definition);
        let (status, message) = match approval {
            Approval::Approved(url) => ("True", format!("approved in {url}")),
            Approval::Bypassed(why) => ("False", format!("not approved: {why:?}")),
            Approval::Missing | Approval::Invalid => ("False", needs_approval()),
        };
        let kind = "KubernetesAPIApprovalPolicyConformant";
        conditions.push((kind, status, approval.reason(), message));
    }
    let (status, reason, message) = match &naming.conflict {
        None => ("True", "NoConflicts", "no conflicts found"),
        Some((reason, message)) => ("False", *reason, message.as_str()),
    };
    conditions.push(("NamesAccepted", status, reason, message.to_owned()));
    let (status, reason, message) = if naming.established {
        ("True", "InitialNamesAccepted", "the initial names have been accepted")
    } else {
        ("False", "NotAccepted", "not all names are accepted")
    };
    conditions.push(("Established", status, reason, message.to_owned()));
    let known = definition.get_path(["status", "conditions"]).and_then(Value::as_list);
    let mut all = known.map(|list| list.to_vec()).unwrap_or_default();
    for (kind, status, reason, message) in conditions {
        let at = all.iter().position(|one| one.str_at(["type"]) == Some(kind));
        let same = at.is_some_and(|at| all[at].str_at(["status"]) == Some(status));
        let since = at.filter(|_| same).and_then(|at| all[at].str_at(["lastTransitionTime"]));
        let mut condition = Map::new();
        condition.insert("type", kind);
        condition.insert("status", status);
        condition.insert("lastTransitionTime", since.unwrap_or(now).to_owned());
        condition.insert("reason", reason);
        condition.insert("message", message);
        match at {
            Some(at) => all[at] = Value::Map(condition),
            None => all.push(Value::Map(condition)),
        }
    }
    let _ = definition.set(["status", "conditions"], all);
    let _ = definition.set(["status", "acceptedNames"], Value::Map(naming.accepted));
}

/// Whether a group belongs to Kubernetes.
pub(crate) fn is_protected(group: &str) -> bool {
    ["k8s.io", "kubernetes.io"].iter().any(|domain| {
        group.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    })
}

/// Who agreed to a kind in a group of Kubernetes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Approval<'d> {
    /// The server at this address.
    Approved(&'d str),
    /// None, and a warning says so.
    Bypassed(&'d str),
    Missing,
    Invalid,
}

impl Approval<'_> {
    /// What Kubernetes calls it.
    pub(crate) fn reason(self) -> &'static str {
        match self {
            Approval::Approved(_) => "ApprovedAnnotation",
            Approval::Bypassed(_) => "UnapprovedAnnotation",
            Approval::Missing => "MissingAnnotation",
            Approval::Invalid => "InvalidAnnotation",
        }
    }
}

/// What a definition says of its approval.
pub(crate) fn approval(definition: &Value) -> Approval<'_> {
    let text = definition.str_at(["metadata", "annotations", APPROVED]).unwrap_or_default();
    let host = text.split_once("://").map(|(_, rest)| rest.trim_start_matches('/'));
    match host {
        _ if text.is_empty() => Approval::Missing,
        _ if text.starts_with("unapproved") => Approval::Bypassed(text),
        Some(host) if !host.is_empty() => Approval::Approved(text),
        _ => Approval::Invalid,
    }
}

/// The path of the annotation, and what is to be done about it.
pub(crate) fn approval_path() -> String {
    format!("metadata.annotations[{APPROVED}]")
}

/// The message about kinds in a group of Kubernetes.
pub(crate) fn needs_approval() -> String {
    format!(
        "protected groups must have approval annotation {APPROVED:?} with either a URL or a reason starting with \"unapproved\""
    )
}

#[cfg(test)]
mod tests {
    use kiln_value::value;

    use super::*;

    #[test]
    fn groups_of_kubernetes_are_protected() {
        for (group, protected) in [
            ("k8s.io", true),
            ("gateway.networking.k8s.io", true),
            ("x.kubernetes.io", true),
            ("wgpolicyk8s.io", false),
            ("k8s.io.example.com", false),
            ("kyverno.io", false),
        ] {
            assert_eq!(is_protected(group), protected, "{group}");
        }
    }

    #[test]
    fn an_approval_is_an_address_or_says_that_there_is_none() {
        let of = |text: &str| {
            let definition =
                value!({"metadata": {"annotations": {"api-approved.kubernetes.io": text}}});
            approval(&definition).reason()
        };
        assert_eq!(of("https://example.com/1"), "ApprovedAnnotation");
        assert_eq!(of("unapproved, a trial"), "UnapprovedAnnotation");
        assert_eq!(of(""), "MissingAnnotation");
        for text in ["yes", "https://", "example.com/1"] {
            assert_eq!(of(text), "InvalidAnnotation", "{text}");
        }
    }
}
