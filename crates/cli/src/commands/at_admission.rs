//! What rules that act at admission make of a write, for commands that write nothing.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use kiln_admission::{Hooks, Judged};
use kiln_dialects::Compiled;
use kiln_engine::{Event, User, World};
use kiln_live::{Around, Reader};
use kiln_object::{Gvk, Kinds, ObjectId};
use kiln_value::{Map, Value};

use super::eval::Surroundings;

/// Rules at admission, as the API server would call them, and what they read.
pub(super) struct AtAdmission<'a> {
    hooks: Hooks,
    pub(super) reader: &'a Reader,
    pub(super) kinds: &'a Kinds,
    around: &'a Around,
    /// The labels of namespaces, each read once.
    labels: RefCell<BTreeMap<String, Option<Map>>>,
}

impl<'a> AtAdmission<'a> {
    pub(super) fn new(
        compiled: &Compiled,
        reader: &'a Reader,
        kinds: &'a Kinds,
        around: &'a Around,
    ) -> Self {
        let policies = compiled.policies.iter().map(Arc::clone);
        let hooks = Hooks::new(policies, &compiled.exceptions, kinds, &around.settings);
        AtAdmission { hooks, reader, kinds, around, labels: RefCell::default() }
    }

    /// Plays a write through all hooks.
    pub(super) fn judge(&self, event: &Event) -> Judged {
        let outside = self.around.outside();
        let world = World {
            view: self.reader,
            kinds: self.kinds,
            sources: &Surroundings,
            outside: &outside,
            limits: self.around.settings.limits,
            protected: &self.around.settings.protected,
            home: &self.around.settings.namespace,
        };
        self.hooks.judge(event, &world, &self.around.settings, &|name| self.labels_of(name))
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
    pub(super) fn admit(&self, old: Option<&Value>, object: Value) -> Result<Value, String> {
        let mut event = match old {
            Some(old) => Event::updated(old.clone(), object),
            None => Event::created(object),
        };
        let username = self.around.settings.background_user().into();
        event.user = Some(User { username, ..User::default() });
        let judged = self.judge(&event);
        match judged.refused {
            None => Ok(judged.object),
            Some((Some(rule), why)) => Err(format!("{rule} refuses it: {why}")),
            Some((None, why)) => Err(why),
        }
    }
}
