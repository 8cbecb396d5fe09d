//! Anchors of one document, and the budget of what aliases may stand for.
//!
//! Values are shared, so an alias costs a pointer however much it stands for. The budget protects
//! later walks of the value: nine levels of ten aliases each would be a thousand million nodes.

use std::collections::HashMap;

use kiln_value::Value;

use crate::options::YamlLimits;

/// What was read so far, aliases counted in full.
#[derive(Clone, Copy, Default)]
pub(crate) struct Weight {
    pub(crate) nodes: usize,
    pub(crate) bytes: usize,
}

impl Weight {
    pub(crate) fn since(self, before: Weight) -> Weight {
        Weight { nodes: self.nodes - before.nodes, bytes: self.bytes - before.bytes }
    }

    /// Saturates: what overflows is over every budget.
    pub(crate) fn add(&mut self, more: Weight) {
        self.nodes = self.nodes.saturating_add(more.nodes);
        self.bytes = self.bytes.saturating_add(more.bytes);
    }
}

/// A node that aliases may stand for.
#[derive(Clone)]
pub(crate) struct Anchored<T> {
    pub(crate) value: Value,
    pub(crate) track: T,
    pub(crate) weight: Weight,
    /// How many levels of lists and maps it has.
    pub(crate) height: usize,
}

/// Why an alias cannot be followed.
pub(crate) enum BadAlias {
    Unknown,
    Recursive,
    TooMuch(String),
}

/// The anchors of one document.
pub(crate) struct Anchors<'t, T> {
    /// `None` while the node is still being read: an alias to it would contain itself.
    named: HashMap<&'t str, Option<Anchored<T>>>,
    spent: Weight,
}

impl<'t, T: Clone> Anchors<'t, T> {
    pub(crate) fn new() -> Self {
        Anchors { named: HashMap::new(), spent: Weight::default() }
    }

    /// Forgets everything: anchors do not reach into the next document.
    pub(crate) fn clear(&mut self) {
        self.named.clear();
        self.spent = Weight::default();
    }

    pub(crate) fn open(&mut self, name: &'t str) {
        self.named.insert(name, None);
    }

    pub(crate) fn close(&mut self, name: &'t str, anchored: Anchored<T>) {
        self.named.insert(name, Some(anchored));
    }

    /// What an alias stands for, paid from the budget.
    pub(crate) fn follow(
        &mut self,
        name: &str,
        limits: &YamlLimits,
    ) -> Result<Anchored<T>, BadAlias> {
        let anchored = match self.named.get(name) {
            None => return Err(BadAlias::Unknown),
            Some(None) => return Err(BadAlias::Recursive),
            Some(Some(anchored)) => anchored,
        };
        self.spent.add(anchored.weight);
        if self.spent.nodes > limits.alias_nodes {
            let most = limits.alias_nodes;
            return Err(BadAlias::TooMuch(format!("more than {most} nodes")));
        }
        if self.spent.bytes > limits.alias_bytes {
            let most = limits.alias_bytes;
            return Err(BadAlias::TooMuch(format!("more than {most} bytes of text")));
        }
        Ok(anchored.clone())
    }

    /// Names to suggest; comparing a million of them would be an effort.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.named.keys().copied().take(1000)
    }
}
