//! Which file, generator, patch and transformer touched an object.

use kiln_value::Value;
use rustc_hash::FxHashSet;

use crate::build::session::Session;
use crate::error::Result;
use crate::load::target::KustomizationTarget;
use crate::model::id::{DEFAULT_NAMESPACE, NOT_NAMESPACED};
use crate::model::resource::Resource;
use crate::model::resources::Resources;

/// One step that made or changed an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Touch {
    /// The id the object had after the step.
    pub id: String,
    /// What it was at first, which all touches of an object share: `Deployment.apps/web.default`.
    pub original: String,
    /// Its kind after the step.
    pub kind: String,
    /// Its name after the step.
    pub name: String,
    /// What happened to it.
    pub what: What,
    /// The file or kustomization that caused it.
    pub file: String,
    /// The generator, transformer or plugin, as kustomize names it.
    pub by: String,
}

/// What a step did to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// It was read from a file.
    Read,
    /// A generator made it.
    Generated,
    /// A transformer changed it.
    Changed,
    /// A transformer deleted it.
    Deleted,
    /// It was renamed because of its content's hash.
    Hashed,
    /// Names of other objects in it were brought up to date.
    References,
    /// Vars in it were replaced.
    Vars,
}

/// The objects as they were.
type Snapshot = Vec<(usize, Value)>;

pub(crate) fn snapshot(resources: &Resources) -> Snapshot {
    resources.iter().map(|(slot, resource)| (slot, resource.object().clone())).collect()
}

pub(crate) fn note_changes(
    before: Snapshot,
    resources: &Resources,
    by: &str,
    what: What,
    target: &KustomizationTarget,
    session: &Session<'_>,
) {
    let file = target.shown(session);
    let mut known = FxHashSet::default();
    for (slot, object) in before {
        known.insert(slot);
        let resource = resources.get(slot);
        if resource.is_gone() {
            let was = Resource::new(object, &session.scopes);
            // Former ids outlive the object.
            let original = match resource.previous_ids().next() {
                Some(_) => original(resource),
                None => original(&was),
            };
            session.touch(Touch { original, ..touch(&was, What::Deleted, &file, by) });
        } else if *resource.object() != object {
            session.touch(touch(resource, what, &file, by));
        }
    }
    for (slot, resource) in resources.iter() {
        if !known.contains(&slot) {
            session.touch(touch(resource, What::Generated, &file, by));
        }
    }
}

/// Runs a step, and notes which objects it changed if that is wanted.
pub(crate) fn explaining(
    resources: &mut Resources,
    session: &Session<'_>,
    what: What,
    target: &KustomizationTarget,
    run: impl FnOnce(&mut Resources) -> Result<()>,
) -> Result<()> {
    let before = session.options.explain.then(|| snapshot(resources));
    run(resources)?;
    if let Some(before) = before {
        note_changes(before, resources, "", what, target, session);
    }
    Ok(())
}

/// What all touches of an object share. Former ids name a namespace also where there is none, and no version.
fn original(resource: &Resource) -> String {
    let id = resource.original_id();
    let namespace = id.namespace.as_str();
    let is_none = namespace.is_empty() || namespace == NOT_NAMESPACED;
    let namespace = if is_none { DEFAULT_NAMESPACE } else { namespace };
    format!("{}.{}/{}.{namespace}", id.gvk.kind, id.gvk.group, id.name)
}

pub(crate) fn touch(resource: &Resource, what: What, file: &str, by: &str) -> Touch {
    Touch {
        id: resource.id().to_string(),
        original: original(resource),
        kind: resource.kind().to_string(),
        name: resource.name().to_string(),
        what,
        file: file.to_owned(),
        by: by.to_owned(),
    }
}
