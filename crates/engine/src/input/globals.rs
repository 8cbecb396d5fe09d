//! The global context: values that a host keeps for all rules.

use std::collections::BTreeMap;
use std::time::Duration;

use kiln_jmespath::{Expression, JmesPathEnvironment, JmesPathLimits, NoAmbientSources};
use kiln_value::{Str, Value};

use crate::input::external_data::{ExternalData, ExternalDataError, ServiceAnswer, ServiceRequest};

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
        let environment =
            JmesPathEnvironment { sources: &NoAmbientSources, limits: JmesPathLimits::default() };
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

/// A GlobalContextEntry, as it is written.
#[derive(Clone, Debug)]
pub struct GlobalEntry {
    /// Where it has its value from.
    pub source: GlobalSource,
    /// Parts of the value, by name.
    pub projections: Vec<(Str, Expression)>,
}

/// Where an entry has its value from.
#[derive(Clone, Debug, PartialEq)]
pub enum GlobalSource {
    /// All objects of a resource.
    Objects {
        /// The API group; empty for the core group.
        group: Str,
        version: Str,
        /// The plural name.
        resource: Str,
        /// The namespace; empty for all.
        namespace: Str,
    },
    /// An answer of the API server.
    Answer {
        /// What is asked for.
        path: Str,
        /// How often, if it says.
        every: Option<Duration>,
    },
}

impl GlobalEntry {
    /// Reads an entry.
    ///
    /// # Errors
    /// When it cannot hold anything; why.
    pub fn read(entry: &Value) -> Result<Self, String> {
        let spec = entry.get("spec").unwrap_or(&Value::Null);
        let text = |path: [&str; 2]| spec.str_at(path).unwrap_or_default();
        let is_there = |key: &str| spec.get(key).is_some_and(|value| !value.is_null());
        let source = match (is_there("kubernetesResource"), is_there("apiCall")) {
            (true, false) => {
                let of = |key: &str| Str::from(text(["kubernetesResource", key]));
                if of("resource").is_empty() || of("version").is_empty() {
                    return Err("kubernetesResource needs resource and version".to_owned());
                }
                GlobalSource::Objects {
                    group: of("group"),
                    version: of("version"),
                    resource: of("resource"),
                    namespace: of("namespace"),
                }
            }
            (false, true) => {
                let path = text(["apiCall", "urlPath"]);
                if path.is_empty() || matches!(text(["apiCall", "method"]), "POST") {
                    return Err("only answers of the API server to GET are kept: give \
                                apiCall.urlPath, or kubernetesResource"
                        .to_owned());
                }
                let every = match text(["apiCall", "refreshInterval"]) {
                    "" => None,
                    written => Some(interval(written)?),
                };
                GlobalSource::Answer { path: path.into(), every }
            }
            _ => return Err("give one of kubernetesResource and apiCall".to_owned()),
        };
        let list = spec.get("projections").and_then(Value::as_list);
        let read = |projection: &Value| -> Result<(Str, Expression), String> {
            let name = projection.str_at(["name"]).unwrap_or_default();
            let query = projection.str_at(["jmesPath"]).unwrap_or_default();
            let query = Expression::compile(query)
                .map_err(|error| format!("projection {name:?}: {error}"))?;
            Ok((name.into(), query))
        };
        let projections = list.into_iter().flat_map(|list| list.iter()).map(read);
        Ok(GlobalEntry { source, projections: projections.collect::<Result<_, _>>()? })
    }
}

fn interval(written: &str) -> Result<Duration, String> {
    let parsed = kiln_text::duration::Duration::parse(written);
    let parsed = parsed.map_err(|error| format!("apiCall.refreshInterval: {error}"))?;
    Ok(Duration::try_from_secs_f64(parsed.as_secs_f64()).unwrap_or(Duration::ZERO))
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
pub struct WithGlobals<'o, O: ?Sized> {
    /// All the rest, and values that count more than entries.
    pub external_data: &'o O,
    /// The global context.
    pub globals: &'o Globals,
}

impl<O: ExternalData + ?Sized> ExternalData for WithGlobals<'_, O> {
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
        match self.external_data.global(name)? {
            None => self.globals.global(name),
            found => Ok(found),
        }
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

    #[test]
    fn entries_are_read() {
        let read = |spec: Value| GlobalEntry::read(&value!({"spec": spec}));
        let call = read(value!({
            "apiCall": {"urlPath": "/api/v1/namespaces", "refreshInterval": "1h30m"},
            "projections": [{"name": "names", "jmesPath": "items[].metadata.name"}],
        }))
        .unwrap();
        let every = Some(Duration::from_secs(5_400));
        assert_eq!(call.source, GlobalSource::Answer { path: "/api/v1/namespaces".into(), every });
        let answer = value!({"items": [{"metadata": {"name": "a"}}]});
        let held = CachedGlobal::of(answer.clone(), &call.projections).unwrap();
        assert_eq!((held.value, held.projections["names"].clone()), (answer, value!(["a"])));
        let objects = value!({"group": "apps", "version": "v1", "resource": "deployments"});
        let objects = read(value!({"kubernetesResource": objects})).unwrap();
        assert!(
            matches!(objects.source, GlobalSource::Objects { resource, .. } if resource == "deployments")
        );
    }

    #[test]
    fn what_cannot_be_kept_is_said() {
        for (spec, why) in [
            (value!({}), "give one of"),
            (
                value!({"apiCall": {"service": {"url": "https://x"}}}),
                "only answers of the API server",
            ),
            (
                value!({"apiCall": {"urlPath": "/x", "method": "POST"}}),
                "only answers of the API server",
            ),
            (value!({"apiCall": {"urlPath": "/x", "refreshInterval": "soon"}}), "refreshInterval"),
            (value!({"kubernetesResource": {"resource": "pods"}}), "needs resource and version"),
            (
                value!({"apiCall": {"urlPath": "/x"}, "projections": [{"name": "p", "jmesPath": "a["}]}),
                "projection \"p\"",
            ),
        ] {
            let error = GlobalEntry::read(&value!({"spec": spec})).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }
}
