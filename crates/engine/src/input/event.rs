//! What happened to a trigger.

use kiln_object::Gvk;
use kiln_rules::{Operation, Payload};
use kiln_value::{Map, Str, Value};

use crate::output::lineage::Lineage;

/// What happened to an object: from an admission request, a watch, or a file.
#[derive(Clone, Debug)]
pub struct Event {
    /// The operation as the request says; none without an admission request.
    pub operation: Option<Operation>,
    /// The operation that rules are matched against. Without a request this is what made the object a
    /// trigger in the first place.
    pub matched_as: Operation,
    /// The kind of the object; for a subresource, of its parent.
    pub kind: Gvk,
    /// The subresource; empty for the object itself.
    pub subresource: Str,
    /// The name; empty while the server has not made one up yet.
    pub name: Str,
    pub namespace: Option<Str>,
    /// The object as it is now; none when it is deleted.
    pub object: Option<Value>,
    /// The object as it was; none when it is new.
    pub old_object: Option<Value>,
    /// Who sent the request, when that is known.
    pub user: Option<User>,
    /// What else the request says, besides what it is about.
    pub request: RequestDetails,
    /// What the host adds to it.
    pub context: EventContext,
    /// What the object is.
    pub payload: Payload,
}

/// What an admission request says of itself.
#[derive(Clone, Debug, Default)]
pub struct RequestDetails {
    /// The identity of the request.
    pub uid: Option<Str>,
    /// The request is only a trial.
    pub dry_run: bool,
    /// Options of the request.
    pub options: Value,
}

/// What a host adds to an event: where it comes from, and what it gives in the place of lookups.
#[derive(Clone, Debug, Default)]
pub struct EventContext {
    /// The engine itself made the request.
    pub own: bool,
    /// The rules whose effects led here.
    pub lineage: Lineage,
    /// The object that match blocks look at, where that is not the object itself.
    pub tier_snapshot: Option<Value>,
    /// Values that the host gives by name, instead of what a rule would load from outside. Names are
    /// paths in the context, such as `request.operation` or `settings.data.mode`.
    pub given: Map,
    /// Values that the host gives for the elements of loops: by name, as above, a list with one value for
    /// each element.
    pub given_each: Map,
}

/// Who sent a request.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct User {
    /// The name.
    pub username: Str,
    /// The identity behind the name.
    pub uid: Str,
    pub groups: Vec<Str>,
    /// What else the authenticator said.
    pub extra: Map,
    /// The roles bound to the user, as `namespace:name`.
    pub roles: Vec<Str>,
    /// The cluster roles bound to the user.
    pub cluster_roles: Vec<Str>,
}

impl User {
    /// Namespace and name of a service account; empty for other users.
    pub fn service_account(&self) -> (&str, &str) {
        self.username
            .strip_prefix("system:serviceaccount:")
            .and_then(|account| account.split_once(':'))
            .unwrap_or_default()
    }
}

impl Event {
    /// An object that is new.
    pub fn created(object: Value) -> Self {
        Event::new(Operation::Create, Some(object), None)
    }

    /// An object that changed.
    pub fn updated(old_object: Value, object: Value) -> Self {
        Event::new(Operation::Update, Some(object), Some(old_object))
    }

    /// An object that is gone.
    pub fn deleted(old_object: Value) -> Self {
        Event::new(Operation::Delete, None, Some(old_object))
    }

    /// An object that was there before the rule: there is no admission request, and rules are matched as if it
    /// were new.
    pub fn existing(object: Value) -> Self {
        Event { operation: None, ..Event::created(object) }
    }

    /// What an admission request says. Roles are not in it: see [`User::resolve_roles`].
    pub fn of_request(request: &Value) -> Option<Self> {
        let text = |path: &[&str]| request.str_at(path.iter().copied()).map(Str::from);
        let operation: Operation = request.str_at(["operation"])?.parse().ok()?;
        let object = |key: &str| request.get(key).filter(|object| !object.is_null()).cloned();
        let kind = |field: &str| text(&["kind", field]).unwrap_or_default();
        let user = request.get("userInfo");
        let words = |value: Option<&Value>| -> Vec<Str> {
            let list = value.and_then(Value::as_list);
            list.into_iter()
                .flat_map(|l| l.iter())
                .filter_map(Value::as_str)
                .map(Str::from)
                .collect()
        };
        Some(Event {
            kind: Gvk { group: kind("group"), version: kind("version"), kind: kind("kind") },
            subresource: text(&["subResource"]).unwrap_or_default(),
            name: text(&["name"]).unwrap_or_default(),
            namespace: text(&["namespace"]).filter(|namespace| !namespace.is_empty()),
            user: user.map(|user| User {
                username: user.str_at(["username"]).unwrap_or_default().into(),
                uid: user.str_at(["uid"]).unwrap_or_default().into(),
                groups: words(user.get("groups")),
                extra: user.get("extra").and_then(Value::as_map).cloned().unwrap_or_default(),
                ..User::default()
            }),
            request: RequestDetails {
                uid: text(&["uid"]),
                dry_run: request.get("dryRun").and_then(Value::as_bool).unwrap_or(false),
                options: request.get("options").cloned().unwrap_or(Value::Null),
            },
            ..Event::new(operation, object("object"), object("oldObject"))
        })
    }

    fn new(operation: Operation, object: Option<Value>, old_object: Option<Value>) -> Self {
        let about = object.as_ref().or(old_object.as_ref()).unwrap_or(&Value::Null);
        let kind = Gvk::of(about).unwrap_or_default();
        let name: Str = about.str_at(["metadata", "name"]).unwrap_or_default().into();
        // A server says of a request for a Namespace that it is in that namespace.
        let own = (kind.group.is_empty() && kind.kind == "Namespace").then(|| name.clone());
        Event {
            operation: Some(operation),
            matched_as: operation,
            kind,
            subresource: Str::default(),
            name,
            namespace: namespace_of(about).or(own),
            object,
            old_object,
            user: None,
            request: RequestDetails::default(),
            context: EventContext::default(),
            payload: Payload::Kubernetes,
        }
    }

    /// Data, or a request to something else than an API server, that rules are to judge under a name.
    pub fn brought(payload: Payload, name: &str, object: Value) -> Self {
        Event {
            payload,
            kind: Gvk::default(),
            name: name.into(),
            namespace: None,
            object: Some(object),
            ..Event::new(Operation::Create, None, None)
        }
    }

    /// The same event, made by the engine itself because of the effects of these rules.
    #[must_use]
    pub fn by_engine(mut self, lineage: Lineage) -> Self {
        self.context.own = true;
        self.context.lineage = lineage;
        self
    }

    /// The same event, as a trial.
    #[must_use]
    pub fn as_dry_run(mut self) -> Self {
        self.request.dry_run = true;
        self
    }

    /// The object, or the one that is gone.
    pub fn trigger(&self) -> Option<&Value> {
        self.object.as_ref().or(self.old_object.as_ref())
    }

    /// The request as rules see it, with these objects in it.
    pub(crate) fn to_request(&self, object: Option<&Value>, old_object: Option<&Value>) -> Value {
        let kind = Map::from_iter([
            ("group", Value::from(self.kind.group.clone())),
            ("version", Value::from(self.kind.version.clone())),
            ("kind", Value::from(self.kind.kind.clone())),
        ]);
        let mut request = Map::new();
        request.insert("uid", self.request.uid.clone().unwrap_or_default());
        request.insert("kind", kind.clone());
        request.insert("requestKind", kind);
        if !self.subresource.is_empty() {
            request.insert("subResource", self.subresource.clone());
            request.insert("requestSubResource", self.subresource.clone());
        }
        request.insert("name", self.name.clone());
        // Kyverno: always there, also for cluster-scoped objects.
        request.insert("namespace", self.namespace.clone().unwrap_or_default());
        request.insert("operation", self.operation.map_or("", Operation::as_str));
        if let Some(user) = &self.user {
            request.insert("userInfo", user.info());
            request.insert("roles", Value::from_iter(user.roles.iter().cloned()));
            request.insert("clusterRoles", Value::from_iter(user.cluster_roles.iter().cloned()));
        }
        request.insert("object", object.cloned().unwrap_or(Value::Null));
        request.insert("oldObject", old_object.cloned().unwrap_or(Value::Null));
        request.insert("dryRun", self.request.dry_run);
        request.insert("options", self.request.options.clone());
        Value::Map(request)
    }
}

impl User {
    /// The user as claims and stored requests hold one: with the roles, which are not found out again.
    pub fn to_value(&self) -> Value {
        let list = |texts: &[Str]| Value::from_iter(texts.iter().cloned());
        let mut map = Map::new();
        map.insert("username", self.username.clone());
        map.insert("uid", self.uid.clone());
        map.insert("groups", list(&self.groups));
        map.insert("roles", list(&self.roles));
        map.insert("clusterRoles", list(&self.cluster_roles));
        Value::Map(map)
    }

    /// Reads what [`User::to_value`] wrote.
    pub fn of_value(value: &Value) -> Option<User> {
        let text = |key: &str| value.str_at([key]).unwrap_or_default().into();
        let list = |key: &str| {
            let list = value.get(key).and_then(Value::as_list);
            let list = list.into_iter().flat_map(|list| list.iter());
            list.filter_map(Value::as_str).map(Str::from).collect()
        };
        Some(User {
            username: value.str_at(["username"])?.into(),
            uid: text("uid"),
            groups: list("groups"),
            extra: Map::new(),
            roles: list("roles"),
            cluster_roles: list("clusterRoles"),
        })
    }

    fn info(&self) -> Value {
        let mut info = Map::new();
        info.insert("username", self.username.clone());
        if !self.uid.is_empty() {
            info.insert("uid", self.uid.clone());
        }
        info.insert("groups", Value::from_iter(self.groups.iter().cloned()));
        if !self.extra.is_empty() {
            info.insert("extra", self.extra.clone());
        }
        Value::Map(info)
    }
}

/// The namespace of an object; none when it has none.
pub(crate) fn namespace_of(object: &Value) -> Option<Str> {
    object
        .str_at(["metadata", "namespace"])
        .filter(|namespace| !namespace.is_empty())
        .map(Str::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_value::value;

    #[test]
    fn a_request_becomes_an_event_and_a_request_again() {
        let request = value!({
            "uid": "1", "operation": "UPDATE", "name": "web", "namespace": "dev", "dryRun": true,
            "kind": {"group": "apps", "version": "v1", "kind": "Deployment"},
            "subResource": "scale",
            "userInfo": {"username": "ann", "groups": ["all"]},
            "object": {"a": 1}, "oldObject": {"a": 2}, "options": {"kind": "UpdateOptions"},
        });
        let event = Event::of_request(&request).unwrap();
        assert_eq!(event.kind, Gvk::new("apps/v1", "Deployment"));
        assert!(event.request.dry_run);
        let again = event.to_request(event.object.as_ref(), event.old_object.as_ref());
        for (key, value) in request.as_map().unwrap() {
            assert_eq!(again.get(key), Some(value), "{key}");
        }
        assert!(Event::of_request(&value!({"operation": "WISH"})).is_none());
    }
}
