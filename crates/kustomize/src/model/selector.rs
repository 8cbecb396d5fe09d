//! Selecting objects by patterns of their ids, labels and annotations.

use kiln_object::Selector as LabelSelector;
use kiln_text::Regex;
use kiln_value::Map;

use crate::error::{Error, Result};
use crate::load::kustomization::Selector;
use crate::model::id::{Gvk, ResId};
use crate::model::resource::Resource;
use crate::model::resources::{Resources, Slot};

/// A part of an id that must match.
enum IdPattern {
    Any,
    /// A text without special characters, compared directly.
    Exactly(String),
    Regex(Box<Regex>),
}

impl IdPattern {
    fn compile(text: &str) -> Result<Self> {
        if text.is_empty() {
            return Ok(IdPattern::Any);
        }
        if text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'/')) {
            return Ok(IdPattern::Exactly(text.to_owned()));
        }
        let regex = Regex::new(&format!("^(?:{text})$")).map_err(|e| Error::new(e.to_string()))?;
        Ok(IdPattern::Regex(Box::new(regex)))
    }

    fn matches(&self, text: &str) -> bool {
        match self {
            IdPattern::Any => true,
            IdPattern::Exactly(wanted) => wanted == text,
            IdPattern::Regex(regex) => regex.is_match(text),
        }
    }
}

/// A selector, ready to use.
pub(crate) struct Selection {
    group: IdPattern,
    version: IdPattern,
    kind: IdPattern,
    name: IdPattern,
    namespace: IdPattern,
    labels: Option<LabelSelector>,
    annotations: Option<LabelSelector>,
    names_an_id: bool,
}

impl Selection {
    pub(crate) fn compile(selector: &Selector) -> Result<Self> {
        let texts = |text: &str| {
            (!text.is_empty())
                .then(|| LabelSelector::parse(text))
                .transpose()
                .map_err(|error| Error::new(error.to_string()))
        };
        Ok(Selection {
            group: IdPattern::compile(&selector.group)?,
            version: IdPattern::compile(&selector.version)?,
            kind: IdPattern::compile(&selector.kind)?,
            name: IdPattern::compile(&selector.name)?,
            namespace: IdPattern::compile(&selector.namespace)?,
            labels: texts(&selector.label_selector)?,
            annotations: texts(&selector.annotation_selector)?,
            names_an_id: selector.id() != ResId::default(),
        })
    }

    /// Whether it says anything about ids (and not only about labels and annotations).
    pub(crate) fn names_an_id(&self) -> bool {
        self.names_an_id
    }

    /// Whether it says anything about labels or annotations.
    pub(crate) fn names_labels(&self) -> bool {
        self.labels.is_some() || self.annotations.is_some()
    }

    fn matches_gvk(&self, gvk: &Gvk) -> bool {
        self.group.matches(&gvk.group)
            && self.version.matches(&gvk.version)
            && self.kind.matches(&gvk.kind)
    }

    /// Whether one id fits all parts; namespaces are taken as written.
    pub(crate) fn matches_id(&self, id: &ResId) -> bool {
        self.matches_gvk(&id.gvk)
            && self.name.matches(&id.name)
            && self.namespace.matches(&id.namespace)
    }

    /// Whether labels and annotations fit.
    pub(crate) fn matches_labels(&self, resource: &Resource) -> bool {
        let fits = |selector: &Option<LabelSelector>, texts: Option<&Map>| {
            selector.as_ref().is_none_or(|selector| selector.matches(texts))
        };
        fits(&self.annotations, resource.annotations()) && fits(&self.labels, resource.labels())
    }

    /// Whether a patch with this target means an object: name and namespace may be the original or
    /// the present ones, all else is of the present.
    pub(crate) fn targets(&self, resource: &Resource) -> bool {
        let now = resource.id();
        let then = resource.original_id();
        (self.namespace.matches(then.effective_namespace())
            || self.namespace.matches(now.effective_namespace()))
            && (self.name.matches(&then.name) || self.name.matches(&now.name))
            && self.matches_gvk(&now.gvk)
            && self.matches_labels(resource)
    }

    /// The objects among which matches can be: those of one name, if it names one.
    pub(crate) fn candidates(&self, resources: &mut Resources) -> Vec<Slot> {
        match &self.name {
            IdPattern::Exactly(name) => resources.by_any_name(name),
            _ => resources.slots(),
        }
    }

    /// The objects that a patch with this target means, in order.
    pub(crate) fn select(&self, resources: &mut Resources) -> Vec<Slot> {
        let mut slots = self.candidates(resources);
        slots.retain(|slot| self.targets(resources.get(*slot)));
        slots
    }
}
