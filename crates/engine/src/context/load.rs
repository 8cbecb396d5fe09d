//! Loading the value of a context entry.

use kiln_object::Gvk;
use kiln_rules::{ApiCall, Callee, ContextEntry, Load, Method, QueryText};
use kiln_value::{Map, Str, Value};
use kiln_variables::Template;

use crate::context::api_path::{ApiPath, ApiTarget};
use crate::context::{Layer, Remark, text_of};
use crate::input::external_data::{ExternalDataError, ServiceRequest};
use crate::output::failure::{Failure, FailureKind};
use crate::protected_namespaces;

impl Layer<'_> {
    pub(crate) fn load(&self, entry: &ContextEntry) -> Result<Value, Failure> {
        match &entry.load {
            Load::Variable { value, query, default } => {
                self.variable(value.as_ref(), query.as_ref(), default.as_ref(), &entry.name)
            }
            Load::ConfigMap { name, namespace } => self.config_map(name, namespace.as_ref()),
            Load::Call(call) => self.call(call),
            Load::Global { name, query } => {
                let name = text_of(self.fill(name)?, "the name of a global reference")?;
                let found = self.shared().global(&name).map_err(external_data)?;
                let found = found.ok_or_else(|| {
                    Failure::new(FailureKind::Value, format!("there is no global value {name:?}"))
                        .hint("give the GlobalContextEntry, or a value of this name")
                })?;
                self.within(query.as_ref(), found)
            }
            Load::Image { reference, query } => {
                let reference = text_of(self.fill(reference)?, "an image")?;
                let found =
                    self.shared().eval_env.external_data.image(&reference).map_err(|error| {
                        let hint = format!(
                            "give a value named {:?} instead, for example in a values file",
                            entry.name.as_str()
                        );
                        external_data(error).hint(hint)
                    })?;
                self.within(query.as_ref(), found)
            }
        }
    }

    fn variable(
        &self,
        value: Option<&Template>,
        query: Option<&QueryText>,
        default: Option<&Template>,
        name: &str,
    ) -> Result<Value, Failure> {
        let found = match (value, query) {
            (Some(value), None) => self.fill(value),
            (Some(value), Some(query)) => {
                let value = self.fill(value)?;
                self.query_in(query, &value)
            }
            (None, Some(query)) => self.query_here(query),
            (None, None) => Ok(Value::Null),
        };
        let found = match (found, default) {
            (Ok(Value::Null), Some(default)) => self.fill(default)?,
            (Err(failure), Some(default)) => self.instead(failure, default)?,
            (found, _) => found?,
        };
        if found.is_null() {
            // Kyverno's words.
            let message = format!(
                "failed to add context entry for variable {name} since it evaluated to nil"
            );
            return Err(Failure::new(FailureKind::Value, message).hint("give it a default"));
        }
        Ok(found)
    }

    fn config_map(&self, name: &Template, namespace: Option<&Template>) -> Result<Value, Failure> {
        let shared = self.shared();
        let name = text_of(self.fill(name)?, "the name of a ConfigMap")?;
        let namespace = match namespace {
            Some(template) => {
                let filled = text_of(self.fill(template)?, "the namespace of a ConfigMap")?;
                let names =
                    |named: &str| protected_namespaces::in_template(template, named, shared.rule);
                shared.gate.may_read_from(Some(&filled), names)?;
                filled
            }
            None => shared.gate.scope.namespace().unwrap_or("default").into(),
        };
        let kind = Gvk { group: Str::default(), version: "v1".into(), kind: "ConfigMap".into() };
        let found = shared.gate.get(&kind, Some(&namespace), &name)?.ok_or_else(|| {
            Failure::new(FailureKind::Value, format!("there is no ConfigMap {namespace}/{name}"))
                .hint("create it, or give it along with the objects")
        })?;
        let mut parts = Map::new();
        parts.insert("data", found.get("data").cloned().unwrap_or_else(Value::map));
        parts.insert("metadata", found.get("metadata").cloned().unwrap_or_else(Value::map));
        Ok(Value::Map(parts))
    }

    fn call(&self, call: &ApiCall) -> Result<Value, Failure> {
        let found = self.answer(call).and_then(|found| self.within(call.query.as_ref(), found));
        match (found, &call.default) {
            (Err(failure), Some(default)) => self.instead(failure, default),
            (found, _) => found,
        }
    }

    /// The default for something that could not be had.
    fn instead(&self, failure: Failure, default: &Template) -> Result<Value, Failure> {
        if failure.bars_defaults() {
            return Err(failure);
        }
        if failure.leaves_doubt() {
            self.shared().gate.uncertain(failure);
        }
        self.fill(default)
    }

    fn answer(&self, call: &ApiCall) -> Result<Value, Failure> {
        let body = match call.method {
            Method::Get => None,
            Method::Post | Method::Put => Some(self.body(&call.data)?),
        };
        match (&call.callee, body) {
            (Callee::ApiServer(path), None) => {
                let path = self.api_path(path)?;
                self.read(&path.text, &path.said)
            }
            (Callee::ApiServer(path), Some(body)) => {
                let path = self.api_path(path)?.text;
                let shared = self.shared();
                if shared.gate.scope.namespace().is_some() {
                    let to = ApiPath::parse(&path, shared.eval_env.kinds, shared.eval_env.view)?;
                    shared
                        .gate
                        .check(to.namespace.as_deref(), || format!("the answer to {path}"))?;
                }
                shared.counters.read()?;
                shared.eval_env.external_data.post(&path, &body).map_err(external_data)
            }
            (Callee::Service { url, headers, ca_bundle }, body) => {
                let url = self.service_url(url)?;
                let mut sent = Vec::with_capacity(headers.len());
                for (name, value) in headers {
                    sent.push((name.clone(), text_of(self.fill(value)?, "a header")?.to_string()));
                }
                self.shared().counters.read()?;
                let request = ServiceRequest {
                    url: &url,
                    method: call.method,
                    headers: &sent,
                    body: body.as_ref(),
                    ca_bundle: ca_bundle.as_deref(),
                };
                self.shared().service(&request).map_err(external_data)
            }
        }
    }

    fn body(&self, data: &[(Str, Template)]) -> Result<Value, Failure> {
        let mut body = Map::new();
        for (key, value) in data {
            body.insert(key.as_str(), self.fill(value)?);
        }
        Ok(Value::Map(body))
    }

    /// What the API server would answer, from the objects in view.
    /// `said` are the steps of the path that variables say.
    fn read(&self, path: &str, said: &[String]) -> Result<Value, Failure> {
        let shared = self.shared();
        if let Some(ready) = shared.eval_env.external_data.get(path).map_err(external_data)? {
            return Ok(ready);
        }
        let ApiPath { kind, namespace, asks, remark } =
            ApiPath::parse(path, shared.eval_env.kinds, shared.eval_env.view)?;
        let names = |named: &str| !said.iter().any(|said| said == named);
        shared.gate.may_read_from(namespace.as_deref(), names)?;
        let remark = remark.map(|text| Remark { text, path: None });
        shared.remarks.borrow_mut().extend(remark);
        match asks {
            ApiTarget::One(name) => {
                shared.gate.get(&kind, namespace.as_deref(), &name)?.ok_or_else(|| {
                    let place =
                        namespace.map_or_else(String::new, |namespace| format!("{namespace}/"));
                    let message = format!("there is no {} {place}{name}", kind.kind);
                    Failure::new(FailureKind::Value, message)
                        .hint("give the call a default if the object may be absent")
                })
            }
            ApiTarget::Many { selector, fields, limit } => {
                // The server counts what it sends, so what the fields leave out does not count.
                let most = limit.filter(|_| fields.is_empty());
                let page = shared.gate.list(&kind, namespace.as_deref(), &selector, most)?;
                if page.objects.is_empty() && !shared.eval_env.view.knows(&kind) {
                    let message =
                        format!("no object of kind {} is given to answer {path}", kind.kind);
                    return Err(Failure::new(FailureKind::Value, message)
                        .hint("give such objects, or the value by name"));
                }
                let mut objects = page.objects;
                objects.retain(|object| fields.iter().all(|field| field.holds(object)));
                let mut metadata = Map::from_iter([("resourceVersion", Value::from(""))]);
                if let Some(limit) = limit.filter(|limit| objects.len() > *limit) {
                    objects.truncate(limit);
                    metadata.insert("continue", "more");
                } else if page.resume.is_some() {
                    metadata.insert("continue", "more");
                }
                let mut list = Map::new();
                list.insert("apiVersion", kind.api_version());
                list.insert("kind", format!("{}List", kind.kind));
                list.insert("metadata", metadata);
                list.insert("items", Value::from(objects));
                Ok(Value::Map(list))
            }
        }
    }

    fn within(&self, query: Option<&QueryText>, found: Value) -> Result<Value, Failure> {
        match query {
            Some(query) => self.query_in(query, &found),
            None => Ok(found),
        }
    }
}

fn external_data(error: ExternalDataError) -> Failure {
    match error.refused {
        true => Failure::new(FailureKind::Unserved, error.message)
            .hint("give the value by name instead, or allow the host"),
        false => Failure::new(FailureKind::Read, error.message),
    }
}
