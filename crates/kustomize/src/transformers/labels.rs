//! Labels and annotations.

use std::collections::BTreeMap;

use kiln_value::Value;

use super::Transform;
use crate::decode::record;
use crate::error::Result;
use crate::field_spec::{FieldSpec, Make, Specs};
use crate::output::wrong_node_kind;
use crate::resource::Resource;
use crate::resources::Resources;
use crate::session::Session;

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
    for spec in specs {
        spec.apply(
            resource.object_mut(),
            &id,
            Some(Make::Map),
            budget,
            &mut |field| match field {
                Value::Map(map) => {
                    for (key, text) in texts {
                        map.insert(key.as_str(), text.as_str());
                    }
                    Ok(())
                }
                Value::Null => Ok(()),
                other => Err(wrong_node_kind("MappingNode", other)),
            },
        )?;
    }
    Ok(())
}
