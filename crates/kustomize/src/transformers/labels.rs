//! Labels and annotations.

use std::collections::BTreeMap;

use kiln_value::{Path, Value};

use super::Transform;
use crate::build::session::Session;
use crate::error::Result;
use crate::fields::field_spec::{FieldSpec, Make, Specs};
use crate::load::decode::record;
use crate::model::output::wrong_node_kind;
use crate::model::resource::Resource;
use crate::model::resources::Resources;

record! {
    /// Sets labels in the fields of the specs.
    Labels = "LabelTransformer" {
        labels: BTreeMap<String, String> = "labels",
        field_specs: Specs = "fieldSpecs",
    }
}

record! {
    /// Sets annotations in the fields of the specs.
    Annotations = "AnnotationsTransformer" {
        annotations: BTreeMap<String, String> = "annotations",
        field_specs: Specs = "fieldSpecs",
    }
}

impl Transform for Labels {
    fn kind(&self) -> &str {
        "LabelTransformer"
    }

    fn transform(&self, resources: &mut Resources, session: &Session<'_>) -> Result<()> {
        set_texts(&self.labels, &self.field_specs, resources, session)
    }
}

impl Transform for Annotations {
    fn kind(&self) -> &str {
        "AnnotationsTransformer"
    }

    fn transform(&self, resources: &mut Resources, session: &Session<'_>) -> Result<()> {
        set_texts(&self.annotations, &self.field_specs, resources, session)
    }
}

fn set_texts(
    texts: &BTreeMap<String, String>,
    specs: &[FieldSpec],
    resources: &mut Resources,
    session: &Session<'_>,
) -> Result<()> {
    if texts.is_empty() {
        return Ok(());
    }
    for resource in resources.iter_mut() {
        set_texts_of(texts, specs, resource, session)?;
    }
    Ok(())
}

/// Sets texts in one object; they identify nothing, so the id stays.
pub(crate) fn set_texts_of(
    texts: &BTreeMap<String, String>,
    specs: &[FieldSpec],
    resource: &mut Resource,
    session: &Session<'_>,
) -> Result<()> {
    let budget = &session.budget;
    let id = resource.id().clone();
    // For each text, whether it was new at the places that the specs lead to.
    let mut new: Vec<Vec<bool>> = vec![Vec::new(); texts.len()];
    for spec in specs {
        spec.apply(
            resource.object_mut(),
            &id,
            Some(Make::Map),
            budget,
            &mut |field| match field {
                Value::Map(map) => {
                    for ((key, text), new) in texts.iter().zip(&mut new) {
                        new.push(map.insert(key.as_str(), text.as_str()).is_none());
                    }
                    Ok(())
                }
                Value::Null => {
                    new.iter_mut().for_each(|new| new.push(false));
                    Ok(())
                }
                other => Err(wrong_node_kind("MappingNode", other)),
            },
        )?;
    }
    resource.settle_shared();
    let several = |new: &Vec<bool>| new.iter().filter(|new| **new).count() > 1;
    if new.iter().any(several) {
        let places: Vec<Path> =
            specs.iter().flat_map(|spec| spec.places(resource.object(), &id)).collect();
        for ((key, text), new) in texts.iter().zip(&new).filter(|(_, new)| several(new)) {
            let places = places.iter().zip(new).filter(|(_, new)| **new);
            let places = places.map(|(place, _)| place.join(key.as_str())).collect();
            resource.share(Value::from(text.as_str()), places);
        }
    }
    Ok(())
}
