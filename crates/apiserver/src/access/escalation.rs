//! No user grants permissions that they do not have, unless they may `escalate` roles or `bind` them.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use kiln_value::{Str, Value, value};

use crate::access::authorization::{self, Attributes, User};
use crate::request::paths::RequestTarget;
use crate::server::Server;
use crate::status::{About, RequestFailure};
use crate::storage::TableKey;

const GROUP: &str = "rbac.authorization.k8s.io";
/// The most single rights that the rules of a role may come to: groups, resources, names and verbs multiply.
const MOST_RIGHTS: usize = 100_000;

/// Refuses a role or binding that gives more than its writer has.
pub(crate) fn check(
    server: &Server,
    user: &User,
    target: &RequestTarget,
    old: Option<&Value>,
    new: &Value,
) -> Result<(), RequestFailure> {
    if target.kind.group() != GROUP || old.is_some_and(|old| only_collects(old, new)) {
        return Ok(());
    }
    let attributes = |verb: &str, resource: &str, name: &str| Attributes {
        verb: verb.to_owned(),
        group: GROUP.to_owned(),
        resource: resource.to_owned(),
        namespace: target.namespace.clone(),
        name: name.to_owned(),
        ..Attributes::default()
    };
    let plural = target.kind.plural();
    let granted = match plural {
        "roles" | "clusterroles" => {
            if authorization::may(server, user, &attributes("escalate", plural, &target.name)) {
                return Ok(());
            }
            rules(new)
        }
        "rolebindings" | "clusterrolebindings" => {
            let name = new.str_at(["roleRef", "name"]).unwrap_or_default();
            let resource = match new.str_at(["roleRef", "kind"]) {
                Some("ClusterRole") => "clusterroles",
                Some("Role") if plural == "rolebindings" => "roles",
                // Whatever this refers to, the checks of the object refuse it.
                _ => return Ok(()),
            };
            if authorization::may(server, user, &attributes("bind", resource, name)) {
                return Ok(());
            }
            rules_of_role(server, resource, &target.namespace, name)?
        }
        _ => return Ok(()),
    };
    let name = new.str_at(["metadata", "name"]).unwrap_or_default();
    let forbidden = |why: &str| RequestFailure::forbidden(&About::new(GROUP, plural, name), why);
    let held: Vec<Held> =
        authorization::rules_of(server, user, &target.namespace).iter().map(Held::read).collect();
    let missing = missing(&held, &granted)?;
    if !missing.is_empty() {
        let (name, groups) = (&user.name, quoted(user.groups.iter().map(String::as_str)));
        return Err(forbidden(&format!(
            "user {name:?} (groups={groups}) is attempting to grant RBAC permissions not currently held:\n{}",
            describe(missing)
        )));
    }
    // What an aggregated role holds is decided by the labels of others.
    let aggregates = |role: &Value| role.get("aggregationRule").is_some_and(|rule| !rule.is_null());
    if plural == "clusterroles" && (aggregates(new) || old.is_some_and(aggregates)) {
        let everything = [
            value!({"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}),
            value!({"nonResourceURLs": ["*"], "verbs": ["*"]}),
        ];
        if !self::missing(&held, &everything)?.is_empty() {
            return Err(forbidden("must have cluster-admin privileges to use an aggregationRule"));
        }
    }
    Ok(())
}

fn rules(role: &Value) -> Vec<Value> {
    let list = role.get("rules").and_then(Value::as_list);
    list.into_iter().flat_map(|list| list.iter().cloned()).collect()
}

/// The rules of a role that a binding refers to.
fn rules_of_role(
    server: &Server,
    resource: &str,
    namespace: &str,
    name: &str,
) -> Result<Vec<Value>, RequestFailure> {
    let at = if resource == "roles" { namespace } else { "" };
    let state = server.read();
    let role = state.store.get(&TableKey::new(GROUP, resource), at, name);
    // Kubernetes: named as its listers do, in the singular.
    let singular = resource.trim_end_matches('s');
    role.map(rules).ok_or_else(|| RequestFailure::not_found(&About::new(GROUP, singular, name)))
}

/// Whether a change is only one that lets an object go.
fn only_collects(old: &Value, new: &Value) -> bool {
    let rest = |object: &Value| {
        let mut object = object.clone();
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_map_mut) {
            for field in ["finalizers", "ownerReferences", "managedFields", "resourceVersion"] {
                metadata.remove(field);
            }
        }
        object
    };
    rest(old) == rest(new)
}

fn texts<'v>(rule: &'v Value, field: &str) -> Vec<&'v str> {
    let list = rule.get(field).and_then(Value::as_list);
    list.into_iter().flat_map(|list| list.iter()).filter_map(Value::as_str).collect()
}

/// A rule that holds for a user.
struct Held {
    verbs: HashSet<Str>,
    groups: HashSet<Str>,
    resources: HashSet<Str>,
    names: HashSet<Str>,
    urls: Vec<Str>,
}

/// One thing that may be done: fields as Kubernetes names them, each with at most one value, verbs aside.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Right<'v> {
    group: Option<&'v str>,
    resource: Option<&'v str>,
    url: Option<&'v str>,
    name: Option<&'v str>,
}

impl Held {
    fn read(rule: &Value) -> Self {
        let set = |field: &str| texts(rule, field).into_iter().map(Str::new).collect();
        Held {
            verbs: set("verbs"),
            groups: set("apiGroups"),
            resources: set("resources"),
            names: set("resourceNames"),
            urls: texts(rule, "nonResourceURLs").into_iter().map(Str::new).collect(),
        }
    }

    fn covers(&self, right: &Right<'_>, verb: &str) -> bool {
        let has = |set: &HashSet<Str>, text: &str| set.contains(&Str::new(text));
        let any_or = |set: &HashSet<Str>, text: &str| has(set, "*") || has(set, text);
        if !any_or(&self.verbs, verb) {
            return false;
        }
        if let Some(url) = right.url {
            return self.urls.iter().any(|held| match held.strip_suffix('*') {
                Some(prefix) => url.starts_with(prefix),
                None => url == held.as_str(),
            });
        }
        let (group, resource) =
            (right.group.unwrap_or_default(), right.resource.unwrap_or_default());
        let any_of_subresource = || {
            resource
                .split_once('/')
                .is_some_and(|(_, sub)| has(&self.resources, &format!("*/{sub}")))
        };
        any_or(&self.groups, group)
            && (any_or(&self.resources, resource) || any_of_subresource())
            && (self.names.is_empty() || right.name.is_some_and(|name| has(&self.names, name)))
    }
}

/// The rights that rules give and that are not held, each with its verbs.
fn missing<'v>(
    held: &[Held],
    granted: &'v [Value],
) -> Result<BTreeMap<Right<'v>, Vec<&'v str>>, RequestFailure> {
    let mut missing: BTreeMap<Right<'v>, Vec<&'v str>> = BTreeMap::new();
    let mut left = MOST_RIGHTS;
    for rule in granted {
        let mut rights = Vec::new();
        let (groups, resources) = (texts(rule, "apiGroups"), texts(rule, "resources"));
        let (names, urls) = (texts(rule, "resourceNames"), texts(rule, "nonResourceURLs"));
        let verbs = texts(rule, "verbs");
        let count = [groups.len(), resources.len(), names.len().max(1)]
            .into_iter()
            .fold(1, usize::saturating_mul)
            .saturating_add(urls.len())
            .saturating_mul(verbs.len());
        left = left.checked_sub(count).ok_or_else(|| {
            let message = format!("the rules come to more than {MOST_RIGHTS} rights");
            RequestFailure::new(413, "RequestEntityTooLarge", message)
        })?;
        for group in &groups {
            for resource in &resources {
                let right =
                    Right { group: Some(group), resource: Some(resource), ..Right::default() };
                match names.is_empty() {
                    true => rights.push(right),
                    false => rights.extend(
                        names.iter().map(|name| Right { name: Some(name), ..right.clone() }),
                    ),
                }
            }
        }
        rights.extend(urls.iter().map(|url| Right { url: Some(url), ..Right::default() }));
        for right in rights {
            for verb in &verbs {
                if !held.iter().any(|held| held.covers(&right, verb)) {
                    missing.entry(right.clone()).or_default().push(verb);
                }
            }
        }
    }
    Ok(missing)
}

/// Texts as Go's `%q` shows a list of them.
fn quoted<'t>(texts: impl Iterator<Item = &'t str>) -> String {
    let texts: Vec<String> = texts.map(|text| format!("{text:?}")).collect();
    format!("[{}]", texts.join(" "))
}

/// Rights as Kubernetes lists them: the verbs of a resource together, those of a path one by one, in order.
fn describe(missing: BTreeMap<Right<'_>, Vec<&str>>) -> String {
    let mut lines = BTreeSet::new();
    for (right, verbs) in missing {
        let mut parts = Vec::new();
        for (field, text) in [
            ("APIGroups", right.group),
            ("Resources", right.resource),
            ("NonResourceURLs", right.url),
            ("ResourceNames", right.name),
        ] {
            parts.extend(text.map(|text| format!("{field}:{}", quoted(std::iter::once(text)))));
        }
        let parts = parts.join(", ");
        let mut line = |verbs: &[&str]| {
            lines.insert(format!("{{{parts}, Verbs:{}}}", quoted(verbs.iter().copied())));
        };
        match right.url {
            Some(_) => verbs.iter().for_each(|verb| line(&[verb])),
            None => line(&verbs),
        }
    }
    lines.into_iter().collect::<Vec<_>>().join("\n")
}
