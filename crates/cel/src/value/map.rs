//! Maps: those of objects as they are, and those that expressions build.

use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use kiln_value::Str;

use super::{Val, deeper, deepest};
use crate::error::{EvalFailure, failure};

#[derive(Clone, Debug)]
pub enum Map {
    /// A map of an object.
    Json(kiln_value::Map),
    /// A map that an expression built.
    Built(Arc<Built>),
}

/// The entries of a map that an expression built, in the order of the expression.
#[derive(Debug, Default)]
pub struct Built {
    entries: Vec<(MapKey, Val)>,
    /// Positions by key, for maps too large to search from the front.
    positions: Option<HashMap<MapKey, u32>>,
    depth: u32,
}

/// A key. Integers of both kinds are equal when their numbers are.
#[derive(Clone, Debug)]
pub enum MapKey {
    /// A boolean key.
    Bool(bool),
    /// An integer key.
    Int(i64),
    /// An unsigned key.
    UInt(u64),
    /// A string key.
    String(Str),
}

/// From this size on, maps have an index.
const MANY: usize = 16;

impl PartialEq for MapKey {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (MapKey::Bool(a), MapKey::Bool(b)) => a == b,
            (MapKey::Int(a), MapKey::Int(b)) => a == b,
            (MapKey::UInt(a), MapKey::UInt(b)) => a == b,
            (MapKey::Int(a), MapKey::UInt(b)) | (MapKey::UInt(b), MapKey::Int(a)) => {
                u64::try_from(*a) == Ok(*b)
            }
            (MapKey::String(a), MapKey::String(b)) => a == b,
            _ => false,
        }
    }
}

impl Eq for MapKey {}

impl Hash for MapKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        match self {
            MapKey::Bool(b) => b.hash(state),
            MapKey::Int(i) => i.hash(state),
            // The same bits as the signed twin, where there is one.
            MapKey::UInt(u) => (*u as i64).hash(state),
            MapKey::String(text) => text.hash(state),
        }
    }
}

impl MapKey {
    /// The key that a value makes in a map literal.
    pub(crate) fn from_val(value: &Val) -> Result<Self, EvalFailure> {
        Ok(match value {
            Val::Bool(b) => MapKey::Bool(*b),
            Val::Int(i) => MapKey::Int(*i),
            Val::UInt(u) => MapKey::UInt(*u),
            Val::String(text) => MapKey::String(text.clone()),
            other => return Err(failure(format!("unsupported key type: {}", other.type_name()))),
        })
    }

    /// The key to look up for a value: floats find integers of the same number.
    fn to_find(value: &Val) -> Option<Self> {
        match value {
            Val::Double(x) if x.fract() == 0.0 => {
                if *x >= -9_223_372_036_854_775_808.0 && *x < 9_223_372_036_854_775_808.0 {
                    Some(MapKey::Int(*x as i64))
                } else if *x >= 0.0 && *x < 18_446_744_073_709_551_616.0 {
                    Some(MapKey::UInt(*x as u64))
                } else {
                    None
                }
            }
            Val::Bool(_) | Val::Int(_) | Val::UInt(_) | Val::String(_) => {
                MapKey::from_val(value).ok()
            }
            _ => None,
        }
    }

    /// The key as a value.
    pub fn to_val(&self) -> Val {
        match self {
            MapKey::Bool(b) => Val::Bool(*b),
            MapKey::Int(i) => Val::Int(*i),
            MapKey::UInt(u) => Val::UInt(*u),
            MapKey::String(text) => Val::String(text.clone()),
        }
    }
}

/// A map while an expression builds it.
#[derive(Default)]
pub(crate) struct MapBuilder(Built);

impl MapBuilder {
    pub(crate) fn with_capacity(entries: usize) -> Self {
        MapBuilder(Built { entries: Vec::with_capacity(entries), ..Built::default() })
    }

    /// Adds an entry; a key that is there already is an error, as for all map literals.
    pub(crate) fn insert(&mut self, key: MapKey, value: Val) -> Result<(), EvalFailure> {
        if self.0.position(&key).is_some() {
            let shown = match &key {
                MapKey::Bool(b) => b.to_string(),
                MapKey::Int(i) => i.to_string(),
                MapKey::UInt(u) => u.to_string(),
                MapKey::String(text) => text.to_string(),
            };
            return Err(failure(format!("insert failed: key {shown} already exists")));
        }
        let at = u32::try_from(self.0.entries.len()).map_err(|_| failure("map too large"))?;
        if let Some(positions) = &mut self.0.positions {
            positions.insert(key.clone(), at);
        }
        self.0.entries.push((key, value));
        if self.0.positions.is_none() && self.0.entries.len() >= MANY {
            let keys = self.0.entries.iter().map(|(key, _)| key.clone());
            self.0.positions = Some(keys.zip(0..).collect());
        }
        Ok(())
    }

    pub(crate) fn finish(mut self) -> Result<Val, EvalFailure> {
        self.0.depth = deeper(deepest(self.0.entries.iter().map(|(_, value)| value)))?;
        Ok(Val::Map(Map::Built(Arc::new(self.0))))
    }
}

impl Built {
    fn position(&self, key: &MapKey) -> Option<usize> {
        match &self.positions {
            Some(positions) => positions.get(key).map(|at| *at as usize),
            None => self.entries.iter().position(|(known, _)| known == key),
        }
    }

    fn get_str(&self, key: &str) -> Option<&Val> {
        if self.positions.is_some() {
            let at = self.position(&MapKey::String(Str::new(key)))?;
            return Some(&self.entries[at].1);
        }
        let matches = |known: &MapKey| matches!(known, MapKey::String(text) if text == key);
        self.entries.iter().find(|(known, _)| matches(known)).map(|(_, value)| value)
    }
}

impl Map {
    pub(crate) fn depth(&self) -> u32 {
        match self {
            Map::Json(_) => 1,
            Map::Built(built) => built.depth,
        }
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        match self {
            Map::Json(map) => map.len(),
            Map::Built(built) => built.entries.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The value under a string key.
    pub fn get_str(&self, key: &str) -> Option<Val> {
        match self {
            Map::Json(map) => map.get(key).map(Val::from),
            Map::Built(built) => built.get_str(key).cloned(),
        }
    }

    pub(crate) fn contains_str(&self, key: &str) -> bool {
        match self {
            Map::Json(map) => map.contains_key(key),
            Map::Built(built) => built.get_str(key).is_some(),
        }
    }

    /// A part by reference, for walks along several fields.
    pub(crate) fn part(&self, key: &str) -> Option<MapPart<'_>> {
        match self {
            Map::Json(map) => map.get(key).map(MapPart::Json),
            Map::Built(built) => built.get_str(key).map(MapPart::Val),
        }
    }

    /// The value under any key.
    pub fn get(&self, key: &Val) -> Option<Val> {
        match self {
            Map::Json(map) => map.get(key.as_str()?).map(Val::from),
            Map::Built(built) => {
                if let Val::String(text) = key {
                    return built.get_str(text).cloned();
                }
                let at = built.position(&MapKey::to_find(key)?)?;
                Some(built.entries[at].1.clone())
            }
        }
    }

    /// Whether there is such a key.
    pub fn contains(&self, key: &Val) -> bool {
        match (self, key) {
            (map, Val::String(text)) => map.contains_str(text),
            (Map::Json(_), _) => false,
            (Map::Built(built), _) => {
                MapKey::to_find(key).is_some_and(|key| built.position(&key).is_some())
            }
        }
    }

    /// Key and value of the entry at a position.
    pub(crate) fn entry(&self, at: usize) -> Option<(Val, Val)> {
        match self {
            Map::Json(map) => {
                map.as_slice().get(at).map(|(key, value)| (Val::string(key), Val::from(value)))
            }
            Map::Built(built) => {
                built.entries.get(at).map(|(key, value)| (key.to_val(), value.clone()))
            }
        }
    }

    /// The key of the entry at a position.
    pub(crate) fn key(&self, at: usize) -> Option<Val> {
        match self {
            Map::Json(map) => map.as_slice().get(at).map(|(key, _)| Val::string(key)),
            Map::Built(built) => built.entries.get(at).map(|(key, _)| key.to_val()),
        }
    }

    /// The entries in order.
    pub fn iter(&self) -> impl Iterator<Item = (Val, Val)> {
        (0..self.len()).filter_map(|at| self.entry(at))
    }
}

/// A part of a map by reference.
#[derive(Clone, Copy)]
pub(crate) enum MapPart<'p> {
    Json(&'p kiln_value::Value),
    Val(&'p Val),
}

impl MapPart<'_> {
    pub(crate) fn to_val(self) -> Val {
        match self {
            MapPart::Json(value) => Val::from(value),
            MapPart::Val(value) => value.clone(),
        }
    }
}
