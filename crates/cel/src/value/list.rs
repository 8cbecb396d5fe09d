//! Lists: those of objects as they are, and those that expressions build.

use std::sync::Arc;

use kiln_value::Value;

use super::{Val, deeper, deepest};
use crate::error::EvalFailure;

#[derive(Clone, Debug)]
pub enum CelList {
    /// A list of an object.
    Json(kiln_value::List),
    /// A list that an expression built.
    Built(Arc<Built>),
}

/// The elements of a list that an expression built.
#[derive(Debug)]
pub struct Built {
    elements: Vec<Val>,
    depth: u32,
}

impl CelList {
    pub(crate) fn new(elements: Vec<Val>) -> Result<Self, EvalFailure> {
        let depth = deeper(deepest(&elements))?;
        Ok(CelList::Built(Arc::new(Built { elements, depth })))
    }

    pub(crate) fn depth(&self) -> u32 {
        match self {
            CelList::Json(_) => 1,
            CelList::Built(built) => built.depth,
        }
    }

    /// How many elements there are.
    pub fn len(&self) -> usize {
        match self {
            CelList::Json(list) => list.len(),
            CelList::Built(built) => built.elements.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The element at an index.
    pub fn get(&self, index: usize) -> Option<Val> {
        match self {
            CelList::Json(list) => list.get(index).map(Val::from),
            CelList::Built(built) => built.elements.get(index).cloned(),
        }
    }

    /// The elements in order.
    pub fn iter(&self) -> Iter<'_> {
        match self {
            CelList::Json(list) => Iter::Json(list.iter()),
            CelList::Built(built) => Iter::Built(built.elements.iter()),
        }
    }

    /// Both lists, one after the other.
    pub(crate) fn concat(&self, other: &CelList) -> Result<CelList, EvalFailure> {
        if self.is_empty() {
            return Ok(other.clone());
        }
        if other.is_empty() {
            return Ok(self.clone());
        }
        let mut elements = Vec::with_capacity(self.len() + other.len());
        elements.extend(self.iter());
        elements.extend(other.iter());
        CelList::new(elements)
    }
}

/// The elements of a list.
#[derive(Clone, Debug)]
pub enum Iter<'l> {
    /// Of an object.
    Json(std::slice::Iter<'l, Value>),
    /// Of a built list.
    Built(std::slice::Iter<'l, Val>),
}

impl Iterator for Iter<'_> {
    type Item = Val;

    fn next(&mut self) -> Option<Val> {
        match self {
            Iter::Json(values) => values.next().map(Val::from),
            Iter::Built(values) => values.next().cloned(),
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        match self {
            Iter::Json(values) => values.size_hint(),
            Iter::Built(values) => values.size_hint(),
        }
    }
}

impl ExactSizeIterator for Iter<'_> {}

impl<'l> IntoIterator for &'l CelList {
    type Item = Val;
    type IntoIter = Iter<'l>;
    fn into_iter(self) -> Iter<'l> {
        self.iter()
    }
}
