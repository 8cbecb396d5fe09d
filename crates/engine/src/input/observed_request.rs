//! An admission request as it goes from the webhook that is asked to the rules that act on it later.
//!
//! It is the one form that requests have between admission and the controller: in memory where both are in one process,
//! and as an UpdateRequest where it must not be lost. Both forms have one reader and one writer, which are here.

use kiln_object::{Gvk, ObjectId, metadata};
use kiln_rules::{Operation, RuleId};
use kiln_value::{Map, Str, Value, value};

use crate::input::event::{Event, User};
use crate::output::claim::ContentHash;

/// The label on UpdateRequests that hold an admission request.
pub const CARRIES: &str = "kiln.dev/carries";

/// What only a request knows: who did what. It is joined to the change that it makes, if it makes one.
#[derive(Clone, Debug, PartialEq)]
pub struct ObservedRequest {
    pub operation: Operation,
    /// The kind of the object; for a subresource, of its parent.
    pub kind: Gvk,
    /// The subresource; empty for the object itself.
    pub subresource: Str,
    /// The namespace; empty for cluster-scoped objects.
    pub namespace: Str,
    pub name: Str,
    /// What was sent.
    pub object: Option<Value>,
    /// What was there before.
    pub old_object: Option<Value>,
    /// Who sent it.
    pub user: User,
    /// It is only a trial.
    pub dry_run: bool,
    /// No rule is to see it: its sender is kept out.
    pub passed_over: bool,
    /// The UpdateRequest that carries it; none for one that only this process knows.
    pub request: Option<Str>,
}

impl ObservedRequest {
    /// The object that the request is about.
    pub fn about(&self) -> ObjectId {
        ObjectId::new(self.kind.clone(), &self.namespace, &self.name)
    }

    /// Whether the server stores nothing because of it, so that no watch tells of it.
    pub fn stores_nothing(&self) -> bool {
        self.operation == Operation::Connect || !self.subresource.is_empty()
    }

    /// Whether it sends an object as it is stored.
    pub fn changes_nothing(&self) -> bool {
        let (Some(old), Some(new)) = (&self.old_object, &self.object) else { return false };
        let rest = |object: &Value| {
            let mut object = object.clone();
            for field in ["managedFields", "resourceVersion", "generation"] {
                object.remove(["metadata", field]);
            }
            object
        };
        self.operation == Operation::Update && rest(old) == rest(new)
    }

    /// The UID of its object, as far as the server has given it one.
    pub fn uid(&self) -> Option<&str> {
        self.object.as_ref().or(self.old_object.as_ref()).and_then(metadata::uid)
    }

    /// Whether it may have led from one version of its object to another, as far as their revisions are known.
    pub fn may_lead(&self, old: Option<&Value>, new: Option<&Value>) -> bool {
        let revision = |object: Option<&Value>| -> Option<u64> {
            let text = object.and_then(metadata::resource_version)?;
            text.parse().ok().filter(|known| *known > 0)
        };
        self.operation != Operation::Update
            || revision(self.old_object.as_ref()).is_none_or(|before| {
                revision(old).is_none_or(|old| old <= before)
                    && revision(new).is_none_or(|new| before < new)
            })
    }

    /// The request behind an event, in this namespace; none when the event has none.
    pub fn of(event: &Event, namespace: Str, passed_over: bool) -> Option<Self> {
        Some(ObservedRequest {
            operation: event.operation?,
            kind: event.kind.clone(),
            subresource: event.subresource.clone(),
            namespace,
            name: event.name.clone(),
            object: event.object.clone(),
            old_object: event.old_object.clone(),
            user: event.user.clone().unwrap_or_default(),
            dry_run: event.request.dry_run,
            passed_over,
            request: None,
        })
    }

    /// The event that it is to rules.
    pub fn event(&self) -> Event {
        let object = self.object.clone().unwrap_or(Value::Null);
        let mut event = Event::created(object);
        event.operation = Some(self.operation);
        event.matched_as = self.operation;
        event.kind = self.kind.clone();
        event.subresource = self.subresource.clone();
        event.name = self.name.clone();
        event.namespace = Some(self.namespace.clone()).filter(|n| !n.is_empty());
        event.old_object.clone_from(&self.old_object);
        event.user = Some(self.user.clone());
        event
    }
}

impl ObservedRequest {
    /// The UpdateRequest that carries the hint, for the rules that need it. Those of requests that store nothing
    /// are identified by the identity of the request; of the others, the same one sent again says nothing new.
    pub fn to_request(
        &self,
        kind: &Gvk,
        namespace: &str,
        rules: &[RuleId],
        identity: &str,
    ) -> Value {
        let id = self.about();
        let uid = self.uid().unwrap_or_default();
        let object = |object: &Option<Value>| {
            let mut object = object.clone()?;
            // Who set which field is of no use to rules, and often the larger part.
            object.remove(["metadata", "managedFields"]);
            Some(object)
        };
        let mut request = Map::new();
        request.insert("operation", self.operation.as_str());
        request.insert("kind", gvk(&id.gvk));
        request.insert("namespace", self.namespace.clone());
        request.insert("name", self.name.clone());
        request.insert("subResource", self.subresource.clone());
        // Of what is stored the rest is read from the cluster.
        if self.stores_nothing() {
            request.extend_some("object", object(&self.object));
        } else if self.object.is_some() {
            request.insert("object", value!({"metadata": {"uid": uid}}));
        }
        request.extend_some("oldObject", object(&self.old_object));
        let trigger = value!({
            "apiVersion": id.gvk.api_version(), "kind": id.gvk.kind.as_str(),
            "namespace": id.namespace.as_str(), "name": id.name.as_str(), "uid": uid,
        });
        let policy = rules.first().map(|rule| rule.policy.key()).unwrap_or_default();
        let contexts = rules.iter().map(|rule| {
            let mut context = Map::new();
            context.insert("rule", rule.rule.clone());
            context.insert("trigger", trigger.clone());
            Value::Map(context)
        });
        let mut info = Map::new();
        info.insert("operation", self.operation.as_str());
        info.insert("admissionRequest", Value::Map(request.clone()));
        let user = self.user.to_value();
        let mut context = Map::new();
        context.insert("userInfo", value!({"userInfo": user}));
        context.insert("admissionRequestInfo", Value::Map(info));
        context.insert("passedOver", self.passed_over);
        context.insert("changesNothing", self.changes_nothing());
        let hash = ContentHash::of(&Value::from_iter([
            Value::Map(request),
            user,
            Value::from(self.passed_over),
            Value::from(if self.stores_nothing() { identity } else { uid }),
        ]));
        let mut spec = Map::new();
        spec.insert("requestType", "generate");
        spec.insert("policy", policy);
        spec.insert("resource", trigger.clone());
        spec.insert("ruleContext", Value::from_iter(contexts));
        spec.insert("context", Value::Map(context));
        let name = format!("ur-request-{}", &hash.to_string()[..20]);
        let mut labels = Map::new();
        labels.insert(CARRIES, "true");
        let mut about = Map::new();
        about.insert("name", name);
        about.insert("namespace", namespace);
        about.insert("labels", labels);
        let mut object = Map::new();
        object.insert("apiVersion", kind.api_version());
        object.insert("kind", "UpdateRequest");
        object.insert("metadata", about);
        object.insert("spec", spec);
        Value::Map(object)
    }

    /// The hint that an UpdateRequest carries; none when it carries none.
    pub fn of_request(request: &Value) -> Option<Self> {
        metadata::label(request, CARRIES)?;
        let context = request.get_path(["spec", "context"])?;
        let sent = context.get_path(["admissionRequestInfo", "admissionRequest"])?;
        let text = |key: &str| Str::from(sent.str_at([key]).unwrap_or_default());
        let part = |key: &str| Str::from(sent.str_at(["kind", key]).unwrap_or_default());
        let flag = |key: &str| context.get(key).and_then(Value::as_bool) == Some(true);
        let object = |key: &str| sent.get(key).filter(|object| !object.is_null()).cloned();
        let old_object = object("oldObject");
        Some(ObservedRequest {
            operation: sent.str_at(["operation"])?.parse().ok()?,
            kind: Gvk { group: part("group"), version: part("version"), kind: part("kind") },
            subresource: text("subResource"),
            namespace: text("namespace"),
            name: text("name"),
            // What was sent again as it is stored, is the old object.
            object: if flag("changesNothing") { old_object.clone() } else { object("object") },
            old_object,
            user: context.get_path(["userInfo", "userInfo"]).and_then(User::of_value)?,
            dry_run: false,
            passed_over: flag("passedOver"),
            request: Some(metadata::name(request)?.into()),
        })
    }
}

fn gvk(gvk: &Gvk) -> Value {
    value!({"group": gvk.group.as_str(), "version": gvk.version.as_str(), "kind": gvk.kind.as_str()})
}

trait ExtendSome {
    fn extend_some(&mut self, key: &str, value: Option<Value>);
}

impl ExtendSome for Map {
    fn extend_some(&mut self, key: &str, value: Option<Value>) {
        if let Some(value) = value {
            self.insert(key, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_rules::{Dialect, PolicyId};

    #[test]
    fn hints_are_read_as_they_were_written() {
        let user = User { username: "ann".into(), groups: vec!["a".into()], ..User::default() };
        let pod =
            value!({"metadata": {"uid": "u", "name": "web", "managedFields": [1]}, "spec": {}});
        let mut stored = pod.clone();
        stored.remove(["metadata", "managedFields"]);
        let of = |operation, object: Option<&Value>, old: Option<&Value>| ObservedRequest {
            operation,
            kind: Gvk::new("apps/v1", "Deployment"),
            subresource: Str::default(),
            namespace: "shop".into(),
            name: "web".into(),
            object: object.cloned(),
            old_object: old.cloned(),
            user: user.clone(),
            dry_run: false,
            passed_over: false,
            request: None,
        };
        let only_uid = value!({"metadata": {"uid": "u"}});
        let exec = ObservedRequest {
            subresource: "exec".into(),
            ..of(Operation::Connect, Some(&pod), None)
        };
        for (hint, object, old) in [
            (of(Operation::Create, Some(&pod), None), Some(&only_uid), None),
            (of(Operation::Delete, None, Some(&pod)), None, Some(&stored)),
            (of(Operation::Update, Some(&pod), Some(&pod)), Some(&stored), Some(&stored)),
            (exec, Some(&stored), None),
            (
                ObservedRequest { passed_over: true, ..of(Operation::Create, Some(&pod), None) },
                Some(&only_uid),
                None,
            ),
        ] {
            let policy = PolicyId { dialect: Dialect::Kyverno, namespace: None, name: "p".into() };
            let rule = RuleId { policy, rule: "r".into() };
            let request = hint.to_request(
                &Gvk::new("kyverno.io/v2", "UpdateRequest"),
                "kyverno",
                std::slice::from_ref(&rule),
                "1",
            );
            assert_eq!(request.str_at(["spec", "policy"]), Some("p"));
            let name = metadata::name(&request).map(Str::from);
            let read = ObservedRequest::of_request(&request).unwrap();
            let changes_nothing = hint.changes_nothing();
            let wanted = ObservedRequest {
                object: object.cloned(),
                old_object: old.cloned(),
                request: name,
                ..hint.clone()
            };
            assert_eq!(read, wanted);
            assert_eq!(read.changes_nothing(), changes_nothing);
            let again =
                hint.to_request(&Gvk::new("kyverno.io/v2", "UpdateRequest"), "kyverno", &[], "2");
            let same = metadata::name(&again) == metadata::name(&request);
            assert_eq!(same, !hint.stores_nothing(), "sent again");
        }
        assert_eq!(
            ObservedRequest::of_request(&value!({"metadata": {"name": "a"}, "spec": {}})),
            None
        );
    }
}
