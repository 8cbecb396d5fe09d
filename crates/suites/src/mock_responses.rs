//! What services, registries and the API server are said to answer, in the place of real ones.

use std::collections::{HashMap, HashSet};

use kiln_engine::{
    CachedGlobal, ExternalData, ExternalDataError, Globals, ServiceAnswer, ServiceRequest,
};
use kiln_jmespath::{Expression, JmesPathEnvironment, JmesPathLimits, NoAmbientSources};
use kiln_rules::Method;
use kiln_value::{Str, Value};

use crate::format::{ApiCallResponse, GlobalEntry, Response};

/// What is wrong with a value of the global context.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GlobalEntryError {
    #[error("has no name")]
    NoName,
    #[error("is there twice")]
    SameName,
    #[error("has data that is not a map")]
    DataWithoutFields,
    #[error("has data and resources, and one is needed")]
    DataAndResources,
    #[error("has neither data nor resources")]
    Nothing,
    /// An expression that does not compile, or not work on the value.
    #[error("{field} {text:?}: {why}")]
    Evaluate { field: &'static str, text: String, why: String },
    /// The same of a part of the value, which the engine names.
    #[error("{0}")]
    Project(String),
}

/// Recorded responses. Nothing else is called.
#[derive(Debug, Default)]
pub(crate) struct MockResponses {
    calls: Vec<ApiCallResponse>,
    globals: Globals,
    images: HashMap<Str, Value>,
}

impl MockResponses {
    /// Adds answers to calls. Those that answer nothing, or what another one answers already, are named by their number.
    pub(crate) fn calls(&mut self, calls: Vec<ApiCallResponse>) -> Vec<(usize, String)> {
        let mut wrong = Vec::new();
        let mut seen = HashSet::new();
        for (at, call) in calls.into_iter().enumerate() {
            match call.slip() {
                Some(slip) => wrong.push((at, slip)),
                None if !seen.insert(call.question()) => {
                    wrong.push((at, "is the second one to the same call".to_owned()));
                }
                None => self.calls.push(call),
            }
        }
        wrong
    }

    /// Adds what a GlobalContextEntry holds; the objects of its files are read already.
    ///
    /// # Errors
    /// When an expression in it does not work; which field, and why.
    pub(crate) fn global(
        &mut self,
        entry: &GlobalEntry,
        objects: Option<Vec<Value>>,
    ) -> Result<(), GlobalEntryError> {
        if entry.name.trim().is_empty() {
            return Err(GlobalEntryError::NoName);
        }
        let root = match (&entry.data, objects) {
            (Some(data), None) if data.as_map().is_none() => {
                return Err(GlobalEntryError::DataWithoutFields);
            }
            (Some(data), None) => data.clone(),
            (None, Some(objects)) => Value::from(objects),
            (Some(_), Some(_)) => return Err(GlobalEntryError::DataAndResources),
            (None, None) => return Err(GlobalEntryError::Nothing),
        };
        let wrong = |field: &'static str, text: &str, why: String| GlobalEntryError::Evaluate {
            field,
            text: text.to_owned(),
            why,
        };
        let compile = |field: &'static str, text: &str| {
            Expression::compile(text).map_err(|error| wrong(field, text, error.to_string()))
        };
        let root = match entry.field_path.as_str() {
            "" => root,
            path => {
                let environment = JmesPathEnvironment {
                    sources: &NoAmbientSources,
                    limits: JmesPathLimits::default(),
                };
                let found = compile("fieldPath", path)?.search(&root, &environment);
                found.map_err(|error| wrong("fieldPath", path, error.to_string()))?
            }
        };
        let projections: Vec<(Str, Expression)> = entry
            .projections
            .iter()
            .map(|wanted| Ok((wanted.name.clone(), compile("projection", &wanted.path)?)))
            .collect::<Result<_, GlobalEntryError>>()?;
        let mut held = CachedGlobal::of(root, &projections).map_err(GlobalEntryError::Project)?;
        if !held.projections.is_empty() {
            // Kyverno: by its name alone, such an entry is the map of its parts.
            let parts = held.projections.iter();
            let parts =
                parts.map(|(name, part)| (kiln_value::Key::from(name.as_str()), part.clone()));
            held.value = Value::Map(parts.collect());
        }
        self.globals.insert(entry.name.clone(), Ok(held));
        Ok(())
    }

    /// Adds what a registry knows about an image, as a Context file has it.
    pub(crate) fn image(&mut self, image: &Value) {
        let Some(name) = image.get("image").and_then(Value::as_str) else { return };
        let mut known = image.as_map().cloned().unwrap_or_default();
        // The file and the rules have different words for it.
        if let Some(config) = known.get("config").cloned() {
            known.insert("configData", config);
        }
        self.images.insert(name.into(), Value::Map(known));
    }

    fn said(&self, method: Method, means: impl Fn(&ApiCallResponse) -> bool) -> Option<&Response> {
        let named = |call: &&ApiCallResponse| call.method.eq_ignore_ascii_case(method.as_str());
        let any = |call: &&ApiCallResponse| call.method.is_empty();
        let meant = || self.calls.iter().filter(|call| means(call));
        meant().find(named).or_else(|| meant().find(any)).map(|call| &call.response)
    }

    fn answer(&self, method: Method, means: impl Fn(&ApiCallResponse) -> bool) -> MockResponse<'_> {
        match self.said(method, means) {
            Some(said) if said.status_code >= 400 => {
                let code = said.status_code;
                Err(ExternalDataError::failed(format!("the answer is an error with code {code}")))
            }
            said => Ok(said.map(|said| &said.body)),
        }
    }

    fn unknown(&self, what: &str) -> ExternalDataError {
        ExternalDataError::refused(format!("apiCallResponses has no answer of {what}"))
    }
}

type MockResponse<'a> = Result<Option<&'a Value>, ExternalDataError>;

fn is(text: Option<&Str>, wanted: &str) -> bool {
    text.is_some_and(|text| text.trim() == wanted)
}

impl ExternalData for MockResponses {
    fn call(&self, request: &ServiceRequest<'_>) -> Result<Value, ExternalDataError> {
        let found = self.answer(request.method, |call| is(call.url.as_ref(), request.url))?;
        found.cloned().ok_or_else(|| self.unknown(request.url))
    }

    fn exchange(&self, request: &ServiceRequest<'_>) -> Result<ServiceAnswer, ExternalDataError> {
        let found = self.said(request.method, |call| is(call.url.as_ref(), request.url));
        let found = found.ok_or_else(|| self.unknown(request.url))?;
        let status = if found.status_code == 0 { 200 } else { found.status_code };
        let mut body = found.body.clone();
        // Kyverno: the fields of an answer are those of the body in a cluster, and below `body` in a suite.
        if let Some(fields) = body.as_map_mut()
            && !fields.contains_key("body")
        {
            fields.insert("body", found.body.clone());
        }
        Ok(ServiceAnswer { status, body: Some(body) })
    }

    fn get(&self, path: &str) -> Result<Option<Value>, ExternalDataError> {
        let found = self.answer(Method::Get, |call| is(call.url_path.as_ref(), path))?;
        Ok(found.cloned())
    }

    fn post(&self, path: &str, _body: &Value) -> Result<Value, ExternalDataError> {
        let found = self.answer(Method::Post, |call| is(call.url_path.as_ref(), path))?;
        found.cloned().ok_or_else(|| self.unknown(path))
    }

    fn image(&self, reference: &str) -> Result<Value, ExternalDataError> {
        self.images.get(reference).cloned().ok_or_else(|| {
            ExternalDataError::refused(format!(
                "the images of the context do not have {reference:?}"
            ))
        })
    }

    fn global(&self, name: &str) -> Result<Option<Value>, ExternalDataError> {
        self.globals.global(name)
    }
}

/// The answers of a suite, and services for what it says no answer to.
pub(crate) struct MockedServices<'a> {
    pub(crate) answers: &'a MockResponses,
    pub(crate) services: &'a dyn ExternalData,
}

impl MockedServices<'_> {
    /// Who answers a request.
    fn answerer(&self, request: &ServiceRequest<'_>) -> &dyn ExternalData {
        let said = self.answers.said(request.method, |call| is(call.url.as_ref(), request.url));
        if said.is_some() { self.answers } else { self.services }
    }

    /// What a suite says, when services are off, helps more than that they are.
    fn refusal(&self, request: &ServiceRequest<'_>, error: ExternalDataError) -> ExternalDataError {
        if error.refused { self.answers.unknown(request.url) } else { error }
    }
}

impl ExternalData for MockedServices<'_> {
    fn call(&self, request: &ServiceRequest<'_>) -> Result<Value, ExternalDataError> {
        self.answerer(request).call(request).map_err(|error| self.refusal(request, error))
    }

    fn exchange(&self, request: &ServiceRequest<'_>) -> Result<ServiceAnswer, ExternalDataError> {
        self.answerer(request).exchange(request).map_err(|error| self.refusal(request, error))
    }

    fn get(&self, path: &str) -> Result<Option<Value>, ExternalDataError> {
        self.answers.get(path)
    }

    fn post(&self, path: &str, body: &Value) -> Result<Value, ExternalDataError> {
        self.answers.post(path, body)
    }

    fn image(&self, reference: &str) -> Result<Value, ExternalDataError> {
        self.answers.image(reference)
    }

    fn global(&self, name: &str) -> Result<Option<Value>, ExternalDataError> {
        self.answers.global(name)
    }
}
