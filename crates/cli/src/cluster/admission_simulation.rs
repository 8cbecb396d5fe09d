//! What rules that act at admission make of a write, for commands that write nothing.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use kiln_admission::{Hooks, SimulatedWrite};
use kiln_dialects::Compiled;
use kiln_engine::{EvalEnv, Event, ListPage, ListQuery, ReadError, User, View};
use kiln_object::{Gvk, Kinds, ObjectId, metadata};
use kiln_runtime::{LiveReader, RuleEnvironment};
use kiln_value::{Map, Value};

use crate::system_env::SystemEnv;

/// Rules at admission, as the API server would call them, and what they read.
pub(crate) struct AdmissionSimulation<'a> {
    hooks: Hooks,
    pub(crate) reader: &'a LiveReader,
    pub(crate) kinds: &'a Kinds,
    around: &'a RuleEnvironment,
    view: WithApplied<'a>,
    /// The labels of namespaces, each read once.
    labels: RefCell<BTreeMap<String, Option<Map>>>,
}

/// A cluster with what a user has applied so far over its own objects.
// A map by identity and no `ObjectMap`: a handful of objects of any kind, which are only looked up.
struct WithApplied<'a> {
    reader: &'a LiveReader,
    objects: RefCell<BTreeMap<ObjectId, Value>>,
}

impl View for WithApplied<'_> {
    fn get(
        &self,
        kind: &Gvk,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Option<Value>, ReadError> {
        let id = ObjectId::new(kind.clone(), namespace.unwrap_or_default(), name);
        match self.objects.borrow().get(&id) {
            Some(object) => Ok(Some(object.clone())),
            None => View::get(self.reader, kind, namespace, name),
        }
    }

    fn list(&self, query: &ListQuery<'_>) -> Result<ListPage, ReadError> {
        let mut page = self.reader.list(query)?;
        let applied = self.objects.borrow();
        let own = applied.iter().filter(|(id, _)| id.gvk == *query.kind);
        let own: Vec<(&ObjectId, &Value)> = own.collect();
        page.objects.retain(|object| {
            let id = ObjectId::of(object);
            id.is_ok_and(|id| !own.iter().any(|(known, _)| **known == id))
        });
        // They are on the first page.
        if query.resume.is_none() {
            let meant = own.into_iter().filter(|(id, object)| {
                query.namespace.is_none_or(|namespace| namespace == id.namespace)
                    && query.selector.matches(metadata::labels(object))
            });
            page.objects.extend(meant.map(|(_, object)| object.clone()));
        }
        Ok(page)
    }

    fn kind_of(&self, group: &str, version: &str, plural: &str) -> Option<Gvk> {
        self.reader.kind_of(group, version, plural)
    }
}

impl<'a> AdmissionSimulation<'a> {
    pub(crate) fn new(
        compiled: &Compiled,
        reader: &'a LiveReader,
        kinds: &'a Kinds,
        around: &'a RuleEnvironment,
    ) -> Self {
        let policies = compiled.policies.iter().map(Arc::clone);
        let hooks = Hooks::new(policies, &compiled.exceptions, kinds, &around.settings);
        let view = WithApplied { reader, objects: RefCell::default() };
        AdmissionSimulation { hooks, reader, kinds, around, view, labels: RefCell::default() }
    }

    /// Lets rules see an object that a user applies.
    pub(crate) fn applied(&self, object: &Value) {
        if let Ok(id) = ObjectId::of(object) {
            self.labels.borrow_mut().remove(id.name.as_str());
            self.view.objects.borrow_mut().insert(id, object.clone());
        }
    }

    /// Simulates a write through all hooks.
    pub(crate) fn simulate(&self, event: &Event) -> SimulatedWrite {
        let external_data = self.around.external_data();
        let eval_env = EvalEnv {
            view: &self.view,
            kinds: self.kinds,
            sources: &SystemEnv,
            external_data: &external_data,
            limits: self.around.settings.limits,
            protected_namespaces: &self.around.settings.protected_namespaces,
            home: &self.around.settings.namespace,
        };
        self.hooks.simulate(event, &eval_env, &self.around.settings, &|name| self.labels_of(name))
    }

    fn labels_of(&self, namespace: &str) -> Option<Map> {
        let read = || {
            let kind = Gvk::new("v1", "Namespace");
            let found = View::get(&self.view, &kind, None, namespace).ok()??;
            found.get_path(["metadata", "labels"]).and_then(Value::as_map).cloned()
        };
        self.labels.borrow_mut().entry(namespace.to_owned()).or_insert_with(read).clone()
    }

    /// What becomes of a write of the engine's own: the object that is stored, or why none is.
    pub(crate) fn admit(&self, old: Option<&Value>, object: Value) -> Result<Value, String> {
        let mut event = match old {
            Some(old) => Event::updated(old.clone(), object),
            None => Event::created(object),
        };
        let username = self.around.settings.background_user().into();
        event.user = Some(User { username, ..User::default() });
        let simulated = self.simulate(&event);
        match simulated.refused {
            None => Ok(simulated.object),
            Some(refused) => Err(match refused.rules.first() {
                Some(rule) => format!("{rule} refuses it: {}", refused.why),
                None => refused.why,
            }),
        }
    }
}
