//! Who may do what, decided from the stored roles and bindings when that is asked for.

use kiln_value::{Str, Value};

use crate::request::paths::RequestTarget;
use crate::server::Server;
use crate::status::RequestFailure;
use crate::storage::TableKey;

/// How permissions are decided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Authorization {
    /// Every client may do everything.
    #[default]
    AlwaysAllow,
    /// By the stored roles and bindings.
    Rbac,
}

/// Who asks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct User {
    pub name: String,
    pub groups: Vec<String>,
    /// The UID; empty for people.
    pub uid: String,
    /// What else is known.
    pub extra: Vec<(String, Vec<String>)>,
}

impl User {
    /// The one who may do everything, by the name that kubeadm gives it.
    pub fn admin() -> Self {
        User {
            name: "kubernetes-admin".to_owned(),
            groups: vec!["system:masters".to_owned(), "system:authenticated".to_owned()],
            ..User::default()
        }
    }

    /// The user as objects write it.
    pub(crate) fn to_value(&self) -> Value {
        let mut user = kiln_value::Map::new();
        user.insert("username", self.name.as_str());
        if !self.uid.is_empty() {
            user.insert("uid", self.uid.as_str());
        }
        if !self.groups.is_empty() {
            user.insert("groups", self.groups.iter().map(String::as_str).collect::<Value>());
        }
        if !self.extra.is_empty() {
            let extra: kiln_value::Map = self
                .extra
                .iter()
                .map(|(key, values)| (key.as_str(), Value::from(values.clone())))
                .collect();
            user.insert("extra", Value::Map(extra));
        }
        Value::Map(user)
    }
}

/// An access request of a user.
#[derive(Clone, Debug, Default)]
pub(crate) struct Attributes {
    pub(crate) verb: String,
    pub(crate) group: String,
    pub(crate) resource: String,
    pub(crate) subresource: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// Of a path that is not a resource.
    pub(crate) path: String,
}

/// Lets a request pass, or says who may not do what.
pub(crate) fn authorize(
    server: &Server,
    user: &User,
    verb: &str,
    target: &RequestTarget,
) -> Result<(), RequestFailure> {
    let attributes = Attributes {
        verb: verb.to_owned(),
        group: target.kind.group().to_owned(),
        resource: target.kind.plural().to_owned(),
        subresource: target.subresource.clone(),
        namespace: if target.kind.plural() == "namespaces" && target.kind.group().is_empty() {
            target.name.clone()
        } else {
            target.namespace.clone()
        },
        name: target.name.clone(),
        path: String::new(),
    };
    if may(server, user, &attributes) {
        return Ok(());
    }
    Err(RequestFailure::forbidden(&target.about(), &refusal(user, &attributes)))
}

pub(crate) fn refusal(user: &User, attributes: &Attributes) -> String {
    let resource = match attributes.subresource.as_str() {
        "" => attributes.resource.clone(),
        sub => format!("{}/{sub}", attributes.resource),
    };
    let place = match attributes.namespace.as_str() {
        "" => "at the cluster scope".to_owned(),
        namespace => format!("in the namespace {namespace:?}"),
    };
    let (name, verb, group) = (&user.name, &attributes.verb, &attributes.group);
    format!("User {name:?} cannot {verb} resource {resource:?} in API group {group:?} {place}")
}

/// Whether a user may see a path that is not a resource.
pub(crate) fn may_see(server: &Server, user: &User, verb: &str, path: &str) -> bool {
    let attributes =
        Attributes { verb: verb.to_owned(), path: path.to_owned(), ..Attributes::default() };
    may(server, user, &attributes)
}

/// Whether a user may do something.
pub(crate) fn may(server: &Server, user: &User, attributes: &Attributes) -> bool {
    if server.settings.authorization == Authorization::AlwaysAllow
        || user.groups.iter().any(|group| group == "system:masters")
    {
        return true;
    }
    rules_of(server, user, &attributes.namespace).iter().any(|rule| covers(rule, attributes))
}

/// The rules that hold for a user in a namespace, and everywhere.
pub(crate) fn rules_of(server: &Server, user: &User, namespace: &str) -> Vec<Value> {
    let state = server.read();
    let rbac = |plural: &str| TableKey::new("rbac.authorization.k8s.io", plural);
    let mut rules = Vec::new();
    let mut collect = |binding: &Value, at: &str| {
        let subjects = binding.get("subjects").and_then(Value::as_list);
        let is_meant = |subject: &Value| is_subject(subject, user, at);
        if !subjects.into_iter().flat_map(|subjects| subjects.iter()).any(is_meant) {
            return;
        }
        let name = binding.str_at(["roleRef", "name"]).unwrap_or_default();
        let role = match binding.str_at(["roleRef", "kind"]) {
            Some("ClusterRole") => state.store.get(&rbac("clusterroles"), "", name),
            _ => state.store.get(&rbac("roles"), at, name),
        };
        let list = role.and_then(|role| role.get("rules")).and_then(Value::as_list);
        rules.extend(list.into_iter().flat_map(|list| list.iter().cloned()));
    };
    if let Some(table) = state.store.table(&rbac("clusterrolebindings")) {
        let everywhere = table.range("", None).filter(|((namespace, _), _)| namespace.is_empty());
        everywhere.for_each(|(_, binding)| collect(binding, ""));
    }
    if !namespace.is_empty()
        && let Some(table) = state.store.table(&rbac("rolebindings"))
    {
        table.range(namespace, None).for_each(|(_, binding)| collect(binding, namespace));
    }
    rules
}

fn is_subject(subject: &Value, user: &User, namespace: &str) -> bool {
    let name = subject.str_at(["name"]).unwrap_or_default();
    match subject.str_at(["kind"]) {
        Some("User") => name == user.name,
        Some("Group") => user.groups.iter().any(|group| group == name),
        Some("ServiceAccount") => {
            let of = subject.str_at(["namespace"]).filter(|of| !of.is_empty()).unwrap_or(namespace);
            user.name == format!("system:serviceaccount:{of}:{name}")
        }
        _ => false,
    }
}

fn covers(rule: &Value, attributes: &Attributes) -> bool {
    let list = |field: &str| -> Vec<Str> {
        let list = rule.get(field).and_then(Value::as_list);
        list.into_iter()
            .flat_map(|list| list.iter())
            .filter_map(Value::as_str)
            .map(Str::new)
            .collect()
    };
    let has = |field: &str, text: &str| list(field).iter().any(|one| one == "*" || one == text);
    if !has("verbs", &attributes.verb) {
        return false;
    }
    if !attributes.path.is_empty() {
        return list("nonResourceURLs").iter().any(|url| match url.strip_suffix('*') {
            Some(prefix) => attributes.path.starts_with(prefix),
            None => attributes.path == url.as_str(),
        });
    }
    let resource = match attributes.subresource.as_str() {
        "" => attributes.resource.clone(),
        sub => format!("{}/{sub}", attributes.resource),
    };
    let any = format!("*/{}", attributes.subresource);
    let covered = list("resources").iter().any(|one| {
        one == "*" || *one == resource || !attributes.subresource.is_empty() && *one == any
    });
    let names = list("resourceNames");
    has("apiGroups", &attributes.group)
        && covered
        && (names.is_empty()
            || !attributes.name.is_empty() && names.contains(&Str::new(&attributes.name)))
}
