//! The annotations that kustomize keeps its memory in.
//!
//! Here the memory lies beside the objects. These annotations appear only where other tools expect
//! them: in what plugins read and write, in objects that carry them from the start, and in the
//! message about objects that a namespace made equal.

use kiln_value::{Map, Str, Value};

use crate::error::Result;
use crate::model::origin::Origin;
use crate::model::resource::{Behavior, PreviousId, Resource, scalar_text};

const INTERNAL: &str = "internal.config.kubernetes.io/";
const ENABLED: &str = "enabled";

/// Where an object comes from.
pub(crate) const ORIGIN: &str = "config.kubernetes.io/origin";
/// What transformed an object.
pub(crate) const TRANSFORMATIONS: &str = "alpha.config.kubernetes.io/transformations";
/// Objects that never leave the build.
pub(crate) const LOCAL_CONFIG: &str = "config.kubernetes.io/local-config";

/// What is taken off every object at the end, besides what begins with the internal prefix and is
/// remembered.
const DROPPED: [&str; 8] = [
    "config.kubernetes.io/path",
    "config.kubernetes.io/index",
    "config.k8s.io/id",
    "internal.config.kubernetes.io/path",
    "internal.config.kubernetes.io/index",
    "internal.config.kubernetes.io/seqindent",
    "internal.config.kubernetes.io/id",
    "internal.config.kubernetes.io/annotations-migration-resource-id",
];

/// Whether an annotation is kustomize's own and must not reach the output.
pub(crate) fn is_bookkeeping(key: &str) -> bool {
    DROPPED.contains(&key)
        || key.strip_prefix(INTERNAL).is_some_and(|name| {
            matches!(
                name,
                "previousKinds"
                    | "previousNames"
                    | "previousNamespaces"
                    | "prefixes"
                    | "suffixes"
                    | "allowNameChange"
                    | "allowKindChange"
                    | "refBy"
                    | "generatorBehavior"
                    | "needsHashSuffix"
                    | "helm-generated"
            )
        })
}

/// The object with its memory written into annotations.
pub(crate) fn with_memory(resource: &Resource) -> Value {
    let mut annotations = resource.annotations().cloned().unwrap_or_default();
    let mut put = |name: &str, text: String| {
        if !text.is_empty() {
            annotations.insert(format!("{INTERNAL}{name}"), text);
        }
    };
    let joined = |texts: Vec<&str>| texts.join(",");
    let previous = &resource.previous;
    put("previousNames", joined(previous.iter().map(|p| p.name.as_str()).collect()));
    put("previousNamespaces", joined(previous.iter().map(|p| p.namespace.as_str()).collect()));
    put("previousKinds", joined(previous.iter().map(|p| p.kind.as_str()).collect()));
    put("prefixes", joined(resource.prefixes.iter().map(Str::as_str).collect()));
    put("suffixes", joined(resource.suffixes.iter().map(Str::as_str).collect()));
    if resource.behavior != Behavior::Unspecified || resource.needs_hash {
        put("generatorBehavior", resource.behavior.as_str().to_owned());
    }
    if resource.needs_hash {
        put("needsHashSuffix", ENABLED.to_owned());
    }
    if resource.from_helm {
        put("helm-generated", "true".to_owned());
    }
    if let Some(origin) = &resource.origin {
        annotations.insert(ORIGIN, origin.to_text());
    }
    if !resource.transformations.is_empty() {
        let steps = resource.transformations.iter().map(AsRef::as_ref);
        annotations.insert(TRANSFORMATIONS, crate::model::origin::transformations_text(steps));
    }
    let mut object = resource.object().clone();
    if !annotations.is_empty() {
        // A copy of an object that passed validation: metadata is a map.
        let _ = object.set(["metadata", "annotations"], annotations);
    }
    object
}

/// Changes an object as kustomize has it when a JSON patch comes: with its memory among the annotations. What
/// that leaves of the origin counts; all else is remembered, whatever was done to it.
///
/// # Errors
/// When the change fails.
pub(crate) fn with_memory_inside(
    resource: &mut Resource,
    change: impl FnOnce(&mut Value) -> Result<()>,
) -> Result<()> {
    crate::model::objects::unsettle_annotations(resource);
    let mut object = with_memory(resource);
    let memory = object.get_path(["metadata", "annotations"]).and_then(Value::as_map).cloned();
    change(&mut object)?;
    resource.replace_object(object);
    let mut texts = Map::new();
    for (key, value) in resource.annotations().into_iter().flatten() {
        // Numbers are floats on the way, and so written as Go writes floats.
        let text = match value {
            Value::Number(number) => kiln_text::float::print(number.as_f64()),
            value => crate::model::objects::node_text(value, None),
        };
        texts.insert(key.clone(), text);
    }
    for (key, value) in memory.iter().flatten().filter(|(key, _)| key.starts_with(INTERNAL)) {
        texts.insert(key.clone(), value.clone());
    }
    if resource.origin.is_some() {
        let read = |text: Option<Value>| {
            let text = text.as_ref().map(scalar_text).unwrap_or_default();
            crate::model::output::parse_text(&text).unwrap_or_default()
        };
        resource.origin = Origin::from_value(&read(texts.remove(ORIGIN))).map(Into::into);
        let steps = read(texts.remove(TRANSFORMATIONS));
        let steps = steps.as_list().into_iter().flat_map(|steps| steps.iter());
        resource.transformations = steps.filter_map(Origin::from_value).map(Into::into).collect();
    }
    if !resource.is_gone() {
        set(resource, texts);
        remember(resource);
    }
    Ok(())
}

/// Moves the memory from the annotations of an object to where it belongs.
pub(crate) fn remember(resource: &mut Resource) {
    let has_memory = resource
        .annotations()
        .is_some_and(|annotations| annotations.keys().any(|key| key.starts_with(INTERNAL)));
    if !has_memory {
        return;
    }
    let mut annotations = resource.annotations().cloned().unwrap_or_default();
    let mut take = |name: &str| -> Option<Str> {
        annotations.remove(&format!("{INTERNAL}{name}")).map(|value| scalar_text(&value))
    };
    let split = |texts: Option<Str>| -> Vec<Str> {
        texts.map(|texts| texts.split(',').map(Str::new).collect()).unwrap_or_default()
    };
    let names = split(take("previousNames"));
    let namespaces = split(take("previousNamespaces"));
    let kinds = split(take("previousKinds"));
    resource.previous = names
        .into_iter()
        .zip(namespaces)
        .zip(kinds)
        .map(|((name, namespace), kind)| PreviousId { name, namespace, kind })
        .collect();
    resource.prefixes = split(take("prefixes"));
    resource.suffixes = split(take("suffixes"));
    if let Some(behavior) = take("generatorBehavior") {
        resource.behavior = Behavior::parse(&behavior);
    }
    resource.needs_hash = take("needsHashSuffix").is_some_and(|text| text == ENABLED);
    resource.from_helm = take("helm-generated").is_some_and(|text| text == "true");
    set(resource, annotations);
}

/// Replaces all annotations; none at all takes the field away.
pub(crate) fn set(resource: &mut Resource, annotations: Map) {
    if annotations.is_empty() {
        resource.remove_metadata("annotations");
    } else {
        resource.set_metadata("annotations", annotations);
    }
}
