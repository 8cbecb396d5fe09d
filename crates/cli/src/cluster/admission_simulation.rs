//! What rules that act at admission make of a write, for commands that write nothing.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use kiln_admission::{Hooks, SimulatedWrite};
use kiln_dialects::Compiled;
use kiln_engine::{EvalEnv, Event, User};
use kiln_object::{Gvk, Kinds, ObjectId};
use kiln_runtime::{Reader, RuleEnvironment};
use kiln_value::{Map, Value};

use crate::system_env::SystemEnv;

/// Rules at admission, as the API server would call them, and what they read.
pub(crate) struct AdmissionSimulation<'a> {
    hooks: Hooks,
    pub(crate) reader: &'a Reader,
    pub(crate) kinds: &'a Kinds,
    around: &'a RuleEnvironment,
    /// The labels of namespaces, each read once.
    labels: RefCell<BTreeMap<String, Option<Map>>>,
}

impl<'a> AdmissionSimulation<'a> {
    pub(crate) fn new(
        compiled: &Compiled,
        reader: &'a Reader,
        kinds: &'a Kinds,
        around: &'a RuleEnvironment,
    ) -> Self {
        let policies = compiled.policies.iter().map(Arc::clone);
        let hooks = Hooks::new(policies, &compiled.exceptions, kinds, &around.settings);
        AdmissionSimulation { hooks, reader, kinds, around, labels: RefCell::default() }
    }

    /// Plays a write through all hooks.
    pub(crate) fn simulate(&self, event: &Event) -> SimulatedWrite {
        let external_data = self.around.external_data();
        let eval_env = EvalEnv {
            view: self.reader,
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
            let id = ObjectId::new(Gvk::new("v1", "Namespace"), "", namespace);
            let found = self.reader.object(&id).ok()??;
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
            Some((Some(rule), why)) => Err(format!("{rule} refuses it: {why}")),
            Some((None, why)) => Err(why),
        }
    }
}
