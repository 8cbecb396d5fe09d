//! Numbers of replicas.

use kiln_value::Value;

use super::Transform;
use crate::build::session::Session;
use crate::error::{Error, Result};
use crate::fields::field_spec::{Make, Specs};
use crate::load::decode::record;
use crate::load::kustomization::Replica;
use crate::model::output::wrong_node_kind;
use crate::model::resources::Resources;

record! {
    /// Sets the number of replicas of whatever has or had a name.
    Replicas = "ReplicaCountTransformer" {
        replica: Replica = "replica",
        field_specs: Specs = "fieldSpecs",
    }
}

impl Transform for Replicas {
    fn kind(&self) -> &str {
        "ReplicaCountTransformer"
    }

    fn transform(&self, resources: &mut Resources, session: &Session<'_>) -> Result<()> {
        let name = &self.replica.name;
        let named = resources.by_any_name(name);
        let mut found = false;
        for spec in &self.field_specs {
            for &slot in &named {
                let resource = resources.get(slot);
                let fits = (resource.name() == name && spec.fits(&resource.id().gvk))
                    || resource.previous_ids().any(|id| id.name == *name && spec.fits(&id.gvk));
                if !fits {
                    continue;
                }
                found = true;
                resources.update(slot, &session.scopes, |resource| {
                    let id = resource.id().clone();
                    let (make, budget) = (Some(Make::Scalar), &session.budget);
                    spec.apply(resource.object_mut(), &id, make, budget, &mut |field| {
                        if matches!(field, Value::List(_) | Value::Map(_)) {
                            return Err(wrong_node_kind("ScalarNode", field));
                        }
                        // kustomize: a scalar takes over the quotes of the one it replaces.
                        let in_quotes = field.as_str().is_some_and(|text| {
                            !matches!(crate::model::output::resolve_plain(text), Value::String(_))
                        });
                        *field = match in_quotes {
                            true => self.replica.count.to_string().into(),
                            false => self.replica.count.into(),
                        };
                        Ok(())
                    })
                })?;
            }
        }
        if found {
            return Ok(());
        }
        let kinds: Vec<String> = self.field_specs.iter().map(|s| s.gvk().to_string()).collect();
        Err(Error::new(format!(
            "resource with name {name} does not match a config with the following GVK [{}]",
            kinds.join(" ")
        )))
    }
}
