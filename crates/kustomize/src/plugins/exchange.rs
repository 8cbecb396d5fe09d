//! Objects out to a program and back.

use kiln_value::Value;

use crate::build::session::Session;
use crate::error::{Error, Result};
use crate::model::annotations;
use crate::model::id::Gvk;
use crate::model::objects::Purpose;
use crate::model::resource::{Behavior, Resource, scalar_text};
use crate::model::resources::{Resources, Slot};

/// Tells a program (and tells us again) which object is which.
const ID: &str = "kustomize.config.k8s.io/id";
const NEEDS_HASH: &str = "kustomize.config.k8s.io/needs-hash";
const BEHAVIOR: &str = "kustomize.config.k8s.io/behavior";

/// The objects as programs see them, with kustomize's memory in annotations.
pub(super) fn outgoing(resources: &Resources) -> Vec<Value> {
    resources
        .iter()
        .map(|(_, resource)| {
            let mut object = annotations::with_memory(resource);
            let id = resource.id();
            let mut lines = String::new();
            for (key, text) in [
                ("group", &id.gvk.group),
                ("kind", &id.gvk.kind),
                ("name", &id.name),
                ("namespace", &id.namespace),
                ("version", &id.gvk.version),
            ] {
                if !text.is_empty() {
                    lines.push_str(&kiln_yaml::emit(
                        &[(key, text.clone())].into_iter().collect::<kiln_value::Map>().into(),
                    ));
                }
            }
            // An object that passed validation: metadata is a map.
            let _ = object.set(["metadata", "annotations", ID], lines);
            object
        })
        .collect()
}

/// Takes in what a generator wrote.
///
/// # Errors
/// When it is not a list of objects.
pub(super) fn generated(output: &[u8], by: &str, session: &Session<'_>) -> Result<Vec<Resource>> {
    marked(read(output, by, session)?)
}

/// The objects that a program wrote.
fn read(output: &[u8], by: &str, session: &Session<'_>) -> Result<Vec<Resource>> {
    session.read_objects(by, output, Purpose::Object).map_err(|error| {
        // The place is one in the output; what the user can change is the configuration.
        let line = error.place().map(|place| place.position().line);
        let line = line.map(|line| format!(" (line {line} of its output)")).unwrap_or_default();
        error.reword(|message| format!("{message} from plugin {by}{line}")).nowhere()
    })
}

/// Takes in what a generator says about its objects in annotations.
///
/// # Errors
/// When it says something that cannot be.
pub(super) fn marked(mut objects: Vec<Resource>) -> Result<Vec<Resource>> {
    for resource in &mut objects {
        let mut texts = resource.annotations().cloned().unwrap_or_default();
        if let Some(wanted) = texts.remove(NEEDS_HASH) {
            resource.needs_hash = match scalar_text(&wanted).as_str() {
                "1" | "t" | "T" | "true" | "TRUE" | "True" => true,
                "0" | "f" | "F" | "false" | "FALSE" | "False" => false,
                other => {
                    return Err(Error::new(format!(
                        "the annotation {NEEDS_HASH:?} contains an invalid value ({other:?})"
                    )));
                }
            };
        }
        let behavior = texts.remove(BEHAVIOR).map(|value| scalar_text(&value)).unwrap_or_default();
        resource.behavior = Behavior::parse(&behavior);
        annotations::set(resource, texts);
        remember_origin(resource);
    }
    Ok(objects)
}

/// Takes in what a transformer wrote: objects it left out are deleted, new ones are added.
///
/// # Errors
/// When it is not a list of objects, or holds one twice.
pub(super) fn transformed(
    output: &[u8],
    by: &str,
    resources: &mut Resources,
    session: &Session<'_>,
) -> Result<()> {
    let objects = read(output, by, session)?;
    let mut seen = rustc_hash::FxHashSet::default();
    for mut resource in objects {
        let mut texts = resource.annotations().cloned().unwrap_or_default();
        texts.remove(ID);
        annotations::set(&mut resource, texts);
        remember_origin(&mut resource);
        if !seen.insert(resource.id().key()) {
            return Err(Error::new(format!(
                "plugin {by} generated duplicate resource: {}",
                resource.id()
            )));
        }
        match resources.by_current_id(resource.id()).as_slice() {
            [] => resources.append(resource)?,
            [slot] => resources.update(*slot, &session.scopes, |old| {
                resource.vars = std::mem::take(&mut old.vars);
                *old = resource;
            }),
            several => {
                return Err(Error::new(format!("id matched {} resources", several.len())));
            }
        }
    }
    for slot in resources.slots() {
        if !seen.contains(&resources.get(slot).id().key()) {
            resources.update(slot, &session.scopes, |gone| *gone.object_mut() = Value::Null);
        }
    }
    Ok(())
}

/// Takes in what a transformer wrote that may change objects, but neither add nor remove nor rename them,
/// unless that is allowed.
///
/// # Errors
/// When it did one of these, or wrote an object twice.
pub(super) fn exchanged(
    objects: Vec<Resource>,
    by: &str,
    resources: &mut Resources,
    session: &Session<'_>,
) -> Result<()> {
    let mut seen = rustc_hash::FxHashSet::default();
    let mut changed: Vec<(Slot, Resource)> = Vec::new();
    let mut added: Vec<Resource> = Vec::new();
    for resource in objects {
        if !seen.insert(resource.id().key()) {
            return Err(Error::new(format!("{by} wrote {} twice", resource.id())));
        }
        match resources.by_current_id(resource.id()).first() {
            Some(slot) => changed.push((*slot, resource)),
            None => added.push(resource),
        }
    }
    let kept: rustc_hash::FxHashSet<Slot> = changed.iter().map(|(slot, _)| *slot).collect();
    let mut removed: Vec<Slot> = resources.slots();
    removed.retain(|slot| !kept.contains(slot));
    let renamed = renames(&mut added, &mut removed, resources);

    if !session.options.unrestricted_transformers {
        refuse(by, &renamed, &added, &removed, resources)?;
    }
    for (slot, resource) in changed {
        resources.update(slot, &session.scopes, |old| old.replace_object(resource.into_object()));
    }
    for (slot, resource) in renamed {
        resources.update(slot, &session.scopes, |old| {
            old.store_previous_id();
            old.replace_object(resource.into_object());
        });
    }
    for slot in removed {
        resources.update(slot, &session.scopes, |gone| *gone.object_mut() = Value::Null);
    }
    added.into_iter().try_for_each(|resource| resources.append(resource))
}

/// Takes out of both lists what looks like one object under two names: of one kind as many were added as
/// were removed.
fn renames(
    added: &mut Vec<Resource>,
    removed: &mut Vec<Slot>,
    resources: &Resources,
) -> Vec<(Slot, Resource)> {
    let mut renamed = Vec::new();
    let mut new = Vec::new();
    for resource in std::mem::take(added) {
        let gvk = resource.id().gvk.clone();
        let is_same = |slot: &&Slot| resources.get(**slot).id().gvk == gvk;
        new.push((resource, removed.iter().filter(is_same).count()));
    }
    let count = |new: &[(Resource, usize)], gvk: &Gvk| {
        new.iter().filter(|(resource, _)| resource.id().gvk == *gvk).count()
    };
    let equal: Vec<bool> =
        new.iter().map(|(resource, gone)| count(&new, &resource.id().gvk) == *gone).collect();
    for ((resource, _), equal) in new.into_iter().zip(equal) {
        let gvk = &resource.id().gvk;
        let slot = removed.iter().position(|slot| resources.get(*slot).id().gvk == *gvk);
        match slot {
            Some(at) if equal => renamed.push((removed.remove(at), resource)),
            _ => added.push(resource),
        }
    }
    renamed
}

/// So many objects are named in a message.
const NAMED: usize = 10;

fn refuse(
    by: &str,
    renamed: &[(Slot, Resource)],
    added: &[Resource],
    removed: &[Slot],
    resources: &Resources,
) -> Result<()> {
    let mut done: Vec<String> = renamed
        .iter()
        .map(|(slot, new)| format!("renamed {} to {}", resources.get(*slot).id(), new.id()))
        .chain(added.iter().map(|new| format!("added {}", new.id())))
        .chain(removed.iter().map(|slot| format!("removed {}", resources.get(*slot).id())))
        .collect();
    if done.is_empty() {
        return Ok(());
    }
    if done.len() > NAMED {
        let more = done.len() - NAMED;
        done.truncate(NAMED);
        done.push(format!("and {more} more"));
    }
    Err(Error::new(format!("{by} {}", done.join(", "))).hint(
        "a plugin that transforms neither adds nor removes nor renames objects (it writes back what it does not change, or exits with 127 if it only generates); --unrestricted-transformers lifts this",
    ))
}

/// Programs hand the origin of objects back as they got it.
fn remember_origin(resource: &mut Resource) {
    let Some(texts) = resource.annotations() else { return };
    let read = |key: &str| {
        texts
            .get(key)
            .and_then(|text| crate::model::output::parse_text(&scalar_text(text)).ok())
            .unwrap_or_default()
    };
    let origin = crate::model::origin::Origin::from_value(&read(annotations::ORIGIN));
    let steps = read(annotations::TRANSFORMATIONS);
    if let Some(origin) = origin {
        resource.origin = Some(origin.into());
    }
    if let Value::List(steps) = steps {
        resource.transformations = steps
            .iter()
            .filter_map(crate::model::origin::Origin::from_value)
            .map(Into::into)
            .collect();
    }
}
