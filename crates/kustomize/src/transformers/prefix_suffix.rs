//! Prefixes and suffixes of names.

use kiln_value::{Str, Value};

use super::Transform;
use crate::build::session::Session;
use crate::error::{Error, Result};
use crate::fields::field_spec::Specs;
use crate::load::decode::record;
use crate::model::id::ResId;
use crate::model::output::wrong_node_kind;
use crate::model::resource::{Resource, scalar_text};
use crate::model::resources::Resources;

record! {
    /// The configuration of PrefixTransformer, SuffixTransformer and PrefixSuffixTransformer.
    AffixConfig = "PrefixSuffixTransformer" {
        prefix: String = "prefix",
        suffix: String = "suffix",
        field_specs: Option<Specs> = "fieldSpecs",
    }
}

/// Puts a text before or after names.
pub(crate) struct Affix {
    side: Side,
    text: Str,
    specs: Specs,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Prefix,
    Suffix,
}

impl Affix {
    pub(crate) fn new(side: Side, text: &str, specs: Specs) -> Self {
        Affix { side, text: Str::new(text), specs }
    }

    /// From the configuration of a transformer object.
    ///
    /// # Errors
    /// When it has no field specs.
    pub(crate) fn configured(side: Side, config: AffixConfig) -> Result<Self> {
        let specs =
            config.field_specs.ok_or_else(|| Error::new("fieldSpecs is not expected to be nil"))?;
        let text = if side == Side::Prefix { config.prefix } else { config.suffix };
        Ok(Affix::new(side, &text, specs))
    }

    fn apply(&self, resource: &mut Resource, session: &Session<'_>) -> Result<()> {
        let original = resource.original_id();
        if is_exempt(&original) {
            return Ok(());
        }
        for spec in self.specs.iter().filter(|spec| spec.fits(&original.gvk)) {
            if spec.path == "metadata/name" && !self.text.is_empty() {
                match self.side {
                    Side::Prefix => resource.prefixes.push(self.text.clone()),
                    Side::Suffix => resource.suffixes.push(self.text.clone()),
                }
                resource.store_previous_id();
            }
            let id = resource.id().clone();
            let make = Some(crate::fields::field_spec::Make::Scalar);
            spec.apply(resource.object_mut(), &id, make, &session.budget, &mut |field| {
                if matches!(field, Value::List(_) | Value::Map(_)) {
                    return Err(wrong_node_kind("ScalarNode", field));
                }
                let name = scalar_text(field);
                *field = match self.side {
                    Side::Prefix => format!("{}{name}", self.text).into(),
                    Side::Suffix => format!("{name}{}", self.text).into(),
                };
                Ok(())
            })?;
            resource.refresh_id(&session.scopes);
        }
        Ok(())
    }
}

/// Kinds whose name is not free: it says what they define, or all namespaced objects repeat it.
fn is_exempt(id: &ResId) -> bool {
    match id.gvk.kind.as_str() {
        "CustomResourceDefinition" | "Namespace" => true,
        "APIService" => id.gvk.group == "apiregistration.k8s.io",
        _ => false,
    }
}

impl Transform for Affix {
    fn kind(&self) -> &str {
        match self.side {
            Side::Prefix => "PrefixTransformer",
            Side::Suffix => "SuffixTransformer",
        }
    }

    fn transform(&self, resources: &mut Resources, session: &Session<'_>) -> Result<()> {
        resources.update_all(&session.scopes, |resource| self.apply(resource, session))
    }
}

/// Several steps as one.
pub(crate) struct Both(pub(crate) Affix, pub(crate) Affix);

impl Transform for Both {
    fn kind(&self) -> &str {
        "PrefixSuffixTransformer"
    }

    fn transform(&self, resources: &mut Resources, session: &Session<'_>) -> Result<()> {
        self.0.transform(resources, session)?;
        self.1.transform(resources, session)
    }
}
