//! `managedFields`: who set which field. The rules around apply that only an API server knows.

use kiln_object::Gvk;
use kiln_object::metadata::LAST_APPLIED;
use kiln_patch::apply::{
    self, ApplyError, Conflict, FieldSet, Manager, ManagerOperation, Managers,
};
use kiln_value::{Map, Value, json, value};

use crate::crd::SchemaShape;
use crate::server::ServerState;
use crate::status::RequestFailure;
use crate::types::{self, Typed, types};

/// How many managers that do not apply are kept apart.
const MOST_UPDATERS: usize = 10;

/// Fields without an owner.
fn without_owner() -> FieldSet {
    FieldSet::of_fields(&[
        &["apiVersion"],
        &["kind"],
        &["metadata"],
        &["metadata", "name"],
        &["metadata", "namespace"],
        &["metadata", "creationTimestamp"],
        &["metadata", "selfLink"],
        &["metadata", "uid"],
        &["metadata", "clusterName"],
        &["metadata", "generation"],
        &["metadata", "managedFields"],
        &["metadata", "resourceVersion"],
    ])
}

/// The types of a kind.
#[derive(Clone)]
pub(crate) enum Kinded {
    Builtin(types::StructId),
    Custom(SchemaShape),
}

impl Kinded {
    pub(crate) fn of(state: &ServerState, gvk: &Gvk) -> Option<Self> {
        if let Some(custom) = state.customs.get(gvk) {
            return Some(Kinded::Custom(SchemaShape::root(custom.schema.as_ref())));
        }
        types().kind(&gvk.api_version(), &gvk.kind).map(Kinded::Builtin)
    }

    /// An object of the kind with nothing in it.
    fn empty(&self, gvk: &Gvk) -> Value {
        let bare = value!({"kind": (gvk.kind.as_str()), "apiVersion": (gvk.api_version())});
        match self {
            Kinded::Builtin(id) => {
                types::decode(&bare, *id).map(|decoded| decoded.object).unwrap_or(bare)
            }
            Kinded::Custom(_) => bare,
        }
    }
}

/// What must be known to keep the managers of an object.
pub(crate) struct Keeping<'k> {
    pub(crate) gvk: &'k Gvk,
    pub(crate) kinded: &'k Kinded,
    pub(crate) manager: &'k str,
    pub(crate) subresource: &'k str,
    /// Whether the kind keeps its status apart.
    pub(crate) has_status: bool,
    pub(crate) now: &'k str,
}

impl Keeping<'_> {
    /// Fields that this way of writing cannot set.
    fn ignored(&self) -> FieldSet {
        match self.subresource {
            "" if self.has_status => FieldSet::of_fields(&[&["status"]]),
            "status" => FieldSet::of_fields(&[&["spec"], &["metadata", "labels"]]),
            _ => FieldSet::default(),
        }
    }

    /// Notes who changed what from `old` (none: it is new) to `new`, in `new`.
    pub(crate) fn update(&self, old: Option<&Value>, new: &mut Value) {
        let given = new.get_path(["metadata", "managedFields"]).cloned();
        let reset = given.as_ref().and_then(Value::as_list).is_some_and(|list| {
            list.is_empty() || list.len() == 1 && list[0].as_map().is_some_and(Map::is_empty)
        });
        let kept = old.and_then(|old| old.get_path(["metadata", "managedFields"])).cloned();
        let mut managers = Managers::default();
        if !reset {
            let from = |value: Option<&Value>| Managers::from_value(value).unwrap_or_default();
            // What the client sends back wins over what is stored, as with every other field. A subresource does not write them.
            if self.subresource.is_empty() {
                managers = from(given.as_ref());
            }
            if managers.is_empty() {
                managers = from(kept.as_ref());
            }
        }
        let before = managers.clone();
        strip(new);
        if old.is_some() && managers.is_empty() && !reset && kept.is_none() {
            // Kubernetes: what was never tracked is not tracked from the middle on.
            return;
        }
        if reset {
            return;
        }
        let blank = self.kinded.empty(self.gvk);
        let old = old.map_or(blank, |old| {
            let mut old = old.clone();
            strip(&mut old);
            old
        });
        let manager = Manager::update(self.manager, &self.gvk.api_version(), self.subresource);
        let ignored = self.ignored();
        match self.kinded {
            Kinded::Builtin(id) => {
                apply::update(&old, new, &Typed::root(*id), &mut managers, &manager, &ignored);
            }
            Kinded::Custom(shape) => {
                apply::update(&old, new, shape, &mut managers, &manager, &ignored);
            }
        }
        // Stripped before the times are set: a manager whose owned fields stay the same keeps its time.
        managers.strip(&without_owner());
        managers.stamp(&before, self.now);
        managers.cap(MOST_UPDATERS);
        write(new, &managers);
    }

    /// Applies an object to the stored one.
    pub(crate) fn apply(
        &self,
        live: Option<&Value>,
        applied: &Value,
        force: bool,
    ) -> Result<Value, RequestFailure> {
        let mut managers = Managers::default();
        let old = match live {
            None => self.kinded.empty(self.gvk),
            Some(live) => {
                let kept = live.get_path(["metadata", "managedFields"]);
                managers = Managers::from_value(kept).unwrap_or_default();
                let mut old = live.clone();
                strip(&mut old);
                if managers.is_empty() {
                    // Kubernetes: fields from before the first apply get an owner.
                    let first = Manager::update("before-first-apply", &self.gvk.api_version(), "");
                    let blank = self.kinded.empty(self.gvk);
                    let ignored = FieldSet::default();
                    match self.kinded {
                        Kinded::Builtin(id) => {
                            apply::update(
                                &blank,
                                &old,
                                &Typed::root(*id),
                                &mut managers,
                                &first,
                                &ignored,
                            );
                        }
                        Kinded::Custom(shape) => {
                            apply::update(&blank, &old, shape, &mut managers, &first, &ignored);
                        }
                    }
                    managers.strip(&without_owner());
                }
                old
            }
        };
        let before = match live {
            Some(live) => Managers::from_value(live.get_path(["metadata", "managedFields"]))
                .unwrap_or_default(),
            None => Managers::default(),
        };
        let manager = Manager::apply(self.manager, &self.gvk.api_version(), self.subresource);
        let mut tried = managers.clone();
        let mut result = self.try_apply(&old, applied, &mut tried, &manager, force);
        if let Err(ApplyError::Conflicts(conflicts)) = &result
            && self.manager == "kubectl"
        {
            // kubectl moves from client-side to server-side apply: fields that the annotation shows unchanged are its own, although
            // another manager is noted for them.
            let foreign = self.foreign(&old, conflicts);
            tried = managers.clone();
            result = if foreign.is_empty() {
                self.try_apply(&old, applied, &mut tried, &manager, true)
            } else {
                Err(ApplyError::Conflicts(foreign))
            };
        }
        let mut new = result.map_err(|error| self.failure(applied, error))?;
        if self.manager == "kubectl" && self.subresource.is_empty() {
            rewrite_last_applied(applied, &mut new);
        }
        tried.strip(&without_owner());
        tried.stamp(&before, self.now);
        strip(&mut new);
        if new == old {
            tried.keep_time(&before, &manager);
        }
        tried.cap(MOST_UPDATERS);
        write(&mut new, &tried);
        Ok(new)
    }

    fn try_apply(
        &self,
        old: &Value,
        applied: &Value,
        managers: &mut Managers,
        manager: &Manager,
        force: bool,
    ) -> Result<Value, ApplyError> {
        let ignored = self.ignored();
        match self.kinded {
            Kinded::Builtin(id) => {
                apply::apply(old, applied, &Typed::root(*id), managers, manager, &ignored, force)
            }
            Kinded::Custom(shape) => {
                apply::apply(old, applied, shape, managers, manager, &ignored, force)
            }
        }
    }

    /// The conflicts that are not about what client-side apply set and that are unchanged since: those come from the
    /// same user.
    fn foreign(&self, old: &Value, conflicts: &[Conflict]) -> Vec<Conflict> {
        let last = old
            .str_at(["metadata", "annotations", LAST_APPLIED])
            .and_then(|text| json::parse(text).ok());
        let same_kind = |last: &Value| {
            last.str_at(["kind"]) == Some(self.gvk.kind.as_str())
                && last.str_at(["apiVersion"]) == Some(self.gvk.api_version().as_str())
        };
        let Some(last) = last.filter(same_kind) else { return conflicts.to_vec() };
        let fields = match self.kinded {
            Kinded::Builtin(id) => apply::unchanged_fields(&last, old, &Typed::root(*id)),
            Kinded::Custom(shape) => apply::unchanged_fields(&last, old, shape),
        };
        let known = fields.paths();
        conflicts.iter().filter(|conflict| !known.contains(&conflict.field)).cloned().collect()
    }

    fn failure(&self, applied: &Value, error: ApplyError) -> RequestFailure {
        match error {
            ApplyError::Type(why) => {
                let text = |field: &str| applied.str_at(["metadata", field]).unwrap_or_default();
                let (group, version) = (&self.gvk.group, &self.gvk.version);
                RequestFailure::internal(format!(
                    "failed to create typed patch object ({}/{}; {group}/{version}, Kind={}): {why}",
                    text("namespace"),
                    text("name"),
                    self.gvk.kind
                ))
            }
            ApplyError::Conflicts(conflicts) => conflict(&conflicts),
        }
    }
}

/// Keeps the annotation of client-side apply in step, where there is one.
fn rewrite_last_applied(applied: &Value, new: &mut Value) {
    if new.str_at(["metadata", "annotations", LAST_APPLIED]).is_none() {
        return;
    }
    let mut last = applied.clone();
    last.remove(["metadata", "annotations", LAST_APPLIED]);
    let annotations = last.get_path(["metadata", "annotations"]).and_then(Value::as_map);
    if annotations.is_some_and(Map::is_empty) {
        last.remove(["metadata", "annotations"]);
    }
    let text = json::to_canonical_string(&last);
    let _ = new.set(["metadata", "annotations", LAST_APPLIED], format!("{text}\n"));
}

/// What the client hears about fields of others.
fn conflict(conflicts: &[Conflict]) -> RequestFailure {
    let causes: Vec<Value> = conflicts
        .iter()
        .map(|conflict| {
            let message = format!("conflict with {}", printed(&conflict.manager));
            value!({"reason": "FieldManagerConflict", "message": message, "field": (conflict.field.as_str())})
        })
        .collect();
    let message = match conflicts {
        [one] => format!(
            "Apply failed with 1 conflict: conflict with {}: {}",
            printed(&one.manager),
            one.field
        ),
        many => {
            let mut by_manager: std::collections::BTreeMap<String, Vec<String>> =
                std::collections::BTreeMap::new();
            for conflict in many {
                let fields = by_manager.entry(printed(&conflict.manager)).or_default();
                fields.push(format!("- {}", conflict.field));
            }
            let parts: Vec<String> = by_manager
                .into_iter()
                .map(|(manager, fields)| {
                    format!("conflicts with {manager}:\n{}", fields.join("\n"))
                })
                .collect();
            format!("Apply failed with {} conflicts: {}", many.len(), parts.join("\n"))
        }
    };
    let mut details = Map::new();
    details.insert("causes", causes);
    RequestFailure::new(409, "Conflict", message).with_details(details)
}

fn printed(manager: &Manager) -> String {
    let name = format!("{:?}", manager.name.as_str());
    let with = match manager.subresource.as_str() {
        "" => String::new(),
        sub => format!(" with subresource {sub:?}"),
    };
    match manager.operation {
        ManagerOperation::Apply => format!("{name}{with}"),
        ManagerOperation::Update => format!("{name}{with} using {}", manager.api_version),
    }
}

/// Takes `managedFields` out.
pub(crate) fn strip(object: &mut Value) {
    if object.get_path(["metadata", "managedFields"]).is_some() {
        object.remove(["metadata", "managedFields"]);
    }
}

fn write(object: &mut Value, managers: &Managers) {
    strip(object);
    if !managers.is_empty() {
        let _ = object.set(["metadata", "managedFields"], managers.to_values());
    }
}
