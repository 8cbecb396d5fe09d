//! Objects out to a program and back.

use kiln_value::Value;

use crate::annotations;
use crate::error::{Error, Result};
use crate::objects::Purpose;
use crate::resource::{Behavior, Resource, scalar_text};
use crate::resources::Resources;
use crate::session::Session;

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
/// When it is no list of objects.
pub(super) fn generated(output: &[u8], by: &str, session: &Session<'_>) -> Result<Vec<Resource>> {
    let mut objects = session.read_objects(by, output, Purpose::Object)?;
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
/// When it is no list of objects, or holds one twice.
pub(super) fn transformed(
    output: &[u8],
    by: &str,
    resources: &mut Resources,
    session: &Session<'_>,
) -> Result<()> {
    let objects = session.read_objects(by, output, Purpose::Object)?;
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

/// Programs hand the origin of objects back as they got it.
fn remember_origin(resource: &mut Resource) {
    let Some(texts) = resource.annotations() else { return };
    let read = |key: &str| {
        texts
            .get(key)
            .and_then(|text| crate::output::parse_text(&scalar_text(text)).ok())
            .unwrap_or_default()
    };
    let origin = crate::origin::Origin::from_value(&read(annotations::ORIGIN));
    let steps = read(annotations::TRANSFORMATIONS);
    if let Some(origin) = origin {
        resource.origin = Some(origin.into());
    }
    if let Value::List(steps) = steps {
        resource.transformations =
            steps.iter().filter_map(crate::origin::Origin::from_value).map(Into::into).collect();
    }
}
