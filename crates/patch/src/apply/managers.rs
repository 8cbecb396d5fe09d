//! `metadata.managedFields`: who set which fields, how, and when.

use kiln_value::{Map, Str, Value};

use super::fieldset::FieldSet;

/// How a manager writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ManagerOperation {
    /// Server-side apply.
    Apply,
    /// By anything else.
    Update,
}

/// Who writes, how, in which version, and through which subresource.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Manager {
    /// How it writes.
    pub operation: ManagerOperation,
    pub name: Str,
    /// The version of the objects that it writes. Of a manager that applies it does not tell two apart.
    pub api_version: Str,
    /// The subresource; empty for the object itself.
    pub subresource: Str,
}

impl Manager {
    pub fn apply(name: &str, api_version: &str, subresource: &str) -> Self {
        Manager {
            operation: ManagerOperation::Apply,
            name: name.into(),
            api_version: api_version.into(),
            subresource: subresource.into(),
        }
    }

    /// One that writes in another way.
    pub fn update(name: &str, api_version: &str, subresource: &str) -> Self {
        Manager {
            operation: ManagerOperation::Update,
            ..Manager::apply(name, api_version, subresource)
        }
    }

    /// Kubernetes: a manager that applies is the same in every version.
    fn is(&self, other: &Manager) -> bool {
        self.operation == other.operation
            && self.name == other.name
            && self.subresource == other.subresource
            && (self.operation == ManagerOperation::Apply || self.api_version == other.api_version)
    }
}

/// What a manager owns, and since when.
#[derive(Clone, Debug, PartialEq)]
pub struct Managed {
    manager: Manager,
    fields: FieldSet,
    time: Option<Str>,
}

/// The managers of an object.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Managers(Vec<Managed>);

impl Managers {
    /// Reads `managedFields`.
    ///
    /// # Errors
    /// When an entry is not one.
    pub fn from_value(entries: Option<&Value>) -> Result<Self, String> {
        let mut managers = Vec::new();
        for entry in entries.and_then(Value::as_list).into_iter().flat_map(|list| list.iter()) {
            let text = |field: &str| entry.get(field).and_then(Value::as_str).unwrap_or_default();
            let operation = match text("operation") {
                "Apply" => ManagerOperation::Apply,
                "Update" => ManagerOperation::Update,
                other => return Err(format!("invalid operation {other:?} of a manager")),
            };
            let manager = Manager {
                operation,
                name: text("manager").into(),
                api_version: text("apiVersion").into(),
                subresource: text("subresource").into(),
            };
            let fields = entry.get("fieldsV1").map(FieldSet::from_value).unwrap_or_default();
            let time = entry.get("time").and_then(Value::as_str).map(Str::new);
            managers.push(Managed { manager, fields, time });
        }
        Ok(Managers(managers))
    }

    /// Writes `managedFields`, in the order of Kubernetes: those who apply first, then by time.
    pub fn to_values(&self) -> Vec<Value> {
        let mut sorted: Vec<&Managed> = self.0.iter().collect();
        let key = |managed: &Managed| {
            let Manager { operation, name, api_version, subresource } = managed.manager.clone();
            (operation, managed.time.clone(), name, api_version, subresource)
        };
        sorted.sort_by_key(|managed| key(managed));
        let entries = sorted.into_iter().map(|Managed { manager, fields, time }| {
            let mut entry = Map::new();
            entry.insert("manager", manager.name.clone());
            let operation = match manager.operation {
                ManagerOperation::Apply => "Apply",
                ManagerOperation::Update => "Update",
            };
            entry.insert("operation", operation);
            entry.insert("apiVersion", manager.api_version.clone());
            if let Some(time) = time {
                entry.insert("time", time.clone());
            }
            entry.insert("fieldsType", "FieldsV1");
            entry.insert("fieldsV1", fields.to_value());
            if !manager.subresource.is_empty() {
                entry.insert("subresource", manager.subresource.clone());
            }
            Value::Map(entry)
        });
        entries.collect()
    }

    /// Whether no field has an owner.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Who owns what.
    pub fn iter(&self) -> impl Iterator<Item = (&Manager, &FieldSet)> {
        self.0.iter().map(|managed| (&managed.manager, &managed.fields))
    }

    /// What a manager owns.
    pub fn fields(&self, manager: &Manager) -> Option<&FieldSet> {
        self.0.iter().find(|managed| managed.manager.is(manager)).map(|managed| &managed.fields)
    }

    /// All owned fields.
    pub fn all_fields(&self) -> FieldSet {
        self.0.iter().fold(FieldSet::default(), |all, managed| all.union(&managed.fields))
    }

    /// Sets what a manager owns; one that owns nothing is none.
    pub fn set(&mut self, manager: Manager, fields: FieldSet) {
        self.set_even_empty(manager, fields);
        self.drop_empty();
    }

    pub(super) fn set_even_empty(&mut self, manager: Manager, fields: FieldSet) {
        match self.0.iter_mut().find(|managed| managed.manager.is(&manager)) {
            Some(managed) => {
                managed.manager = manager;
                managed.fields = fields;
            }
            None => self.0.push(Managed { manager, fields, time: None }),
        }
    }

    pub(super) fn drop_empty(&mut self) {
        self.0.retain(|managed| !managed.fields.is_empty());
    }

    /// Replaces the fields that other managers own.
    pub(super) fn change_others(
        &mut self,
        manager: &Manager,
        change: impl Fn(&FieldSet) -> FieldSet,
    ) {
        for managed in self.0.iter_mut().filter(|managed| !managed.manager.is(manager)) {
            managed.fields = change(&managed.fields);
        }
        self.0.retain(|managed| !managed.fields.is_empty() || managed.manager.is(manager));
    }

    /// Takes fields from every manager, with what is below them.
    pub fn strip(&mut self, fields: &FieldSet) {
        for managed in &mut self.0 {
            managed.fields = managed.fields.difference(fields);
        }
        self.drop_empty();
    }

    /// Gives the time to managers that differ from how it was `before`; others keep theirs.
    pub fn stamp(&mut self, before: &Managers, time: &str) {
        for managed in &mut self.0 {
            let known = before.0.iter().find(|known| known.manager == managed.manager);
            managed.time = match known {
                Some(known) if known.fields == managed.fields => known.time.clone(),
                _ => Some(Str::new(time)),
            };
        }
    }

    /// After an apply that changed nothing but who owns what: its manager keeps the time that it had, and a new one has none.
    pub fn keep_time(&mut self, before: &Managers, manager: &Manager) {
        let known = before.0.iter().find(|known| known.manager == *manager);
        for managed in self.0.iter_mut().filter(|managed| managed.manager == *manager) {
            managed.time = known.and_then(|known| known.time.clone());
        }
    }

    /// Keeps at most so many managers that do not apply: the oldest become one.
    pub fn cap(&mut self, most: usize) {
        let mut updaters: Vec<Managed> = Vec::new();
        let mut rest = Vec::new();
        for managed in self.0.drain(..) {
            let list = if managed.manager.operation == ManagerOperation::Update {
                &mut updaters
            } else {
                &mut rest
            };
            list.push(managed);
        }
        updaters.sort_by(|a, b| a.time.cmp(&b.time).then_with(|| a.manager.cmp(&b.manager)));
        // Kubernetes: per version, the oldest go into "ancient-changes", two at least.
        while updaters.len() > most {
            let is_ancient = |managed: &Managed| managed.manager.name == "ancient-changes";
            let Some(at) = updaters.iter().position(|managed| !is_ancient(managed)) else { break };
            let version = updaters[at].manager.api_version.clone();
            let ancient = Manager::update("ancient-changes", &version, "");
            let oldest = updaters.remove(at);
            if let Some(known) = updaters.iter_mut().find(|managed| managed.manager == ancient) {
                known.fields = std::mem::take(&mut known.fields).union(&oldest.fields);
                continue;
            }
            let next = updaters.iter().position(|managed| managed.manager.api_version == version);
            let Some(next) = next else {
                updaters.push(oldest);
                break;
            };
            let second = updaters.remove(next);
            let fields = oldest.fields.union(&second.fields);
            updaters.insert(0, Managed { manager: ancient, fields, time: second.time });
        }
        self.0 = rest;
        self.0.extend(updaters);
    }
}
