//! The global context: values that a host keeps for all rules.

use std::collections::BTreeMap;

use kiln_jmespath::{Environment, Expression, Limits, NoAmbientSources};
use kiln_value::{Str, Value};

use crate::external_data::{ExternalData, ExternalDataError, ServiceAnswer, ServiceRequest};

/// The entries of the global context. It never changes: a host puts a new one in its place.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Globals {
    entries: BTreeMap<Str, Result<CachedGlobal, String>>,
}

/// What one entry holds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CachedGlobal {
    /// The whole.
    pub value: Value,
    /// Parts of it, by name.
    pub projections: BTreeMap<Str, Value>,
}

impl CachedGlobal {
    /// A value with parts of it that expressions find.
    ///
    /// # Errors
    /// When an expression does not work; which one, and why.
    pub fn of(value: Value, projections: &[(Str, Expression)]) -> Result<Self, String> {
        let environment = Environment { sources: &NoAmbientSources, limits: Limits::default() };
        let found = projections.iter().map(|(name, expression)| {
            let found = expression.search(&value, &environment);
            let found = found.map_err(|error| {
                format!("projection {:?}: {:?}: {error}", name.as_str(), expression.source())
            });
            Ok((name.clone(), found?))
        });
        let projections = found.collect::<Result<_, String>>()?;
        Ok(CachedGlobal { value, projections })
    }
}

impl Globals {
    /// What an entry holds, or why it holds nothing yet; none when there is no such entry.
    pub fn entry(&self, name: &str) -> Option<&Result<CachedGlobal, String>> {
        self.entries.get(name)
    }

    /// Removes an entry.
    pub fn remove(&mut self, name: &str) {
        self.entries.remove(name);
    }

    /// Puts what an entry holds in the place of what it held, or why it holds nothing yet.
    pub fn insert(&mut self, name: Str, entry: Result<CachedGlobal, String>) {
        self.entries.insert(name, entry);
    }
}

impl ExternalData for Globals {
    /// `name`, or `name.projection`. Names of entries may have dots themselves: the longest counts.
    fn global(&self, name: &str) -> Result<Option<Value>, ExternalDataError> {
        let not_ready = |entry: &str, why: &String| {
            ExternalDataError::failed(format!(
                "the global context entry {entry:?} is not ready: {why}"
            ))
        };
        match self.entries.get(name) {
            Some(Ok(entry)) => return Ok(Some(entry.value.clone())),
            Some(Err(why)) => return Err(not_ready(name, why)),
            None => {}
        }
        for (at, _) in name.rmatch_indices('.') {
            let (entry, projection) = (&name[..at], &name[at + 1..]);
            match self.entries.get(entry) {
                Some(Ok(held)) => return Ok(held.projections.get(projection).cloned()),
                Some(Err(why)) => return Err(not_ready(entry, why)),
                None => {}
            }
        }
        Ok(None)
    }
}

/// What is outside, with the global context beside it.
pub struct WithGlobals<'o, O> {
    /// All the rest.
    pub external_data: &'o O,
    /// The global context.
    pub globals: &'o Globals,
}

impl<O: ExternalData> ExternalData for WithGlobals<'_, O> {
    fn call(&self, request: &ServiceRequest<'_>) -> Result<Value, ExternalDataError> {
        self.external_data.call(request)
    }

    fn exchange(&self, request: &ServiceRequest<'_>) -> Result<ServiceAnswer, ExternalDataError> {
        self.external_data.exchange(request)
    }

    fn get(&self, path: &str) -> Result<Option<Value>, ExternalDataError> {
        self.external_data.get(path)
    }

    fn post(&self, path: &str, body: &Value) -> Result<Value, ExternalDataError> {
        self.external_data.post(path, body)
    }

    fn image(&self, reference: &str) -> Result<Value, ExternalDataError> {
        self.external_data.image(reference)
    }

    fn global(&self, name: &str) -> Result<Option<Value>, ExternalDataError> {
        self.globals.global(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_value::value;

    #[test]
    fn entries_and_their_projections_are_found_by_name() {
        let mut globals = Globals::default();
        let projections = BTreeMap::from([("labels".into(), value!(["a"]))]);
        globals.insert("team".into(), Ok(CachedGlobal { value: value!({"x": 1}), projections }));
        let dotted = CachedGlobal { value: value!("dotted"), projections: BTreeMap::new() };
        globals.insert("team.eu".into(), Ok(dotted));
        globals.insert("late".into(), Err("nothing answers".to_owned()));
        for (name, found) in [
            ("team", Some(value!({"x": 1}))),
            ("team.labels", Some(value!(["a"]))),
            ("team.eu", Some(value!("dotted"))),
            ("team.none", None),
            ("other", None),
        ] {
            assert_eq!(globals.global(name), Ok(found), "{name}");
        }
        for name in ["late", "late.labels"] {
            let error = globals.global(name).unwrap_err();
            assert!(!error.refused, "it may come: {error}");
            assert!(error.message.contains("nothing answers"), "{error}");
        }
    }
}
