//! What the functions of CEL ask the world, through the gates that every rule passes.

use std::cell::RefCell;
use std::time::UNIX_EPOCH;

use kiln_cel::{
    Authorization, AuthorizationCheck, Host, HostError, HostResult, HttpRequest, HttpResponse,
    Resource, ResourceRef, Timestamp,
};
use kiln_object::{GroupVersion, Gvk, ObjectId, Selector};
use kiln_rules::{Method, Scope, usual_plural};
use kiln_value::{Map, Str, Value, value};
use kiln_yaml::{Document, ReadOptions, read_bytes};

use super::read_log::ReadLog;
use crate::context::EvalShared;
use crate::input::event::User;
use crate::input::external_data::{ExternalDataError, ServiceRequest};
use crate::input::view::ReadError;
use crate::output::failure::Failure;
use crate::protected_namespaces;

/// The world as the expressions of one evaluation see it.
pub(super) struct CelHost<'h> {
    pub(super) shared: &'h EvalShared<'h>,
    pub(super) read_log: &'h RefCell<ReadLog>,
    /// Who sent the request, when that is known.
    pub(super) user: Option<&'h User>,
}

impl CelHost<'_> {
    /// The kind of a resource. Kyverno takes plural names; a kind will do where nothing has that plural.
    fn kind(&self, api_version: &str, resource: &str) -> HostResult<Gvk> {
        if let Some((_, subresource)) = resource.split_once('/') {
            return Err(HostError::new(format!(
                "the subresource {subresource:?} cannot be read from here"
            )));
        }
        let GroupVersion { group, version } = GroupVersion::parse(api_version);
        let kinds = self.shared.eval_env.kinds;
        if let Some(kind) = kinds.by_resource(&group, &version, resource) {
            return Ok(kind.gvk());
        }
        if let Some(kind) = self.shared.eval_env.view.kind_of(&group, &version, resource) {
            return Ok(kind);
        }
        let as_kind = Gvk::new(api_version, resource);
        if kinds.get(&as_kind).is_some() {
            return Ok(as_kind);
        }
        Err(HostError::new(format!(
            "there is no resource {resource:?} in {api_version} here; is its definition given?"
        )))
    }

    /// The namespace to look in: none for what is in no namespace.
    fn namespace<'n>(&self, kind: &Gvk, namespace: Option<&'n str>) -> Option<&'n str> {
        namespace.filter(|_| self.shared.eval_env.kinds.is_namespaced(kind) != Some(false))
    }

    /// Whether the rule names a namespace in an expression that reads this resource.
    fn names(&self, namespace: &str, resource: &str) -> bool {
        protected_namespaces::in_reads(self.shared.rule, namespace, resource)
    }

    fn may_read_from(&self, namespace: Option<&str>, resource: &str) -> HostResult<()> {
        let names = |named: &str| self.names(named, resource);
        let allowed = self.shared.gate.may_read_from(namespace, names);
        allowed.map_err(|error| self.refused(error))
    }

    fn refused(&self, error: ReadError) -> HostError {
        let forbidden = matches!(error, ReadError::Forbidden(_));
        let failure = Failure::from(error);
        let message = failure.message.clone();
        self.read_log.borrow_mut().refused.get_or_insert(failure.kind);
        if forbidden { HostError::forbidden(message) } else { HostError::new(message) }
    }

    fn external_data(&self, error: ExternalDataError) -> HostError {
        self.read_log.borrow_mut().refused.get_or_insert(crate::output::failure::FailureKind::Read);
        HostError::new(error.message)
    }

    fn count(&self) -> HostResult<()> {
        self.shared.counters.read().map_err(|exceeded| self.refused(exceeded.into()))
    }
}

impl Host for CelHost<'_> {
    fn get_resource(
        &mut self,
        resource: &ResourceRef<'_>,
        name: &str,
    ) -> HostResult<Option<Value>> {
        let kind = self.kind(resource.api_version, resource.resource)?;
        let namespace = self.namespace(&kind, resource.namespace);
        self.may_read_from(namespace, resource.resource)?;
        let found = self.shared.gate.get(&kind, namespace, name);
        let found = found.map_err(|error| self.refused(error))?;
        let mut read_log = self.read_log.borrow_mut();
        match &found {
            Some(object) => read_log.read(object),
            None => {
                read_log.missing.push(ObjectId::new(kind, namespace.unwrap_or_default(), name));
            }
        }
        Ok(found)
    }

    fn list_resources(
        &mut self,
        resource: &ResourceRef<'_>,
        labels: &[(Str, Str)],
    ) -> HostResult<Value> {
        let kind = self.kind(resource.api_version, resource.resource)?;
        let namespace = self.namespace(&kind, resource.namespace);
        let pairs = labels.iter().map(|(key, value)| (key.as_str(), value.as_str()));
        let selector =
            Selector::from_labels(pairs).map_err(|error| HostError::new(error.to_string()))?;
        // An empty namespace means all of them, which an object does not choose either.
        let shared = self.shared;
        if namespace.is_none_or(str::is_empty)
            && !shared.eval_env.protected_namespaces.is_empty()
            && shared.eval_env.kinds.is_namespaced(&kind) != Some(false)
            && protected_namespaces::is_emptied(shared.rule, resource.resource)
        {
            return Err(self.refused(ReadError::Protected("".into())));
        }
        self.may_read_from(namespace, resource.resource)?;
        let page = self.shared.gate.list(&kind, namespace, &selector, None);
        let objects = page.map_err(|error| self.refused(error))?.objects;
        let mut read_log = self.read_log.borrow_mut();
        objects.iter().for_each(|object| read_log.read(object));
        let mut list = Map::new();
        list.insert("apiVersion", kind.api_version());
        list.insert("kind", format!("{}List", kind.kind));
        list.insert("metadata", Map::from_iter([("resourceVersion", Value::from(""))]));
        list.insert("items", Value::from(objects));
        Ok(Value::Map(list))
    }

    fn post_resource(&mut self, resource: &ResourceRef<'_>, payload: Value) -> HostResult<Value> {
        if let (Scope::Namespace(own), namespace) = (self.shared.gate.scope, resource.namespace)
            && namespace != Some(own.as_str())
        {
            let wanted = format!("into {}", namespace.unwrap_or("no namespace"));
            return Err(self.refused(ReadError::OutOfReach { own: own.clone(), wanted }));
        }
        let parts = resource.api_version.split('/').chain([resource.resource]);
        if let Some(bad) = parts.chain(resource.namespace).find(|part| !is_one_step(part)) {
            return Err(HostError::new(format!("nothing is sent to {bad:?}: it is not a name")));
        }
        self.count()?;
        let root = if resource.api_version.contains('/') { "apis" } else { "api" };
        let namespace = resource
            .namespace
            .map_or_else(String::new, |namespace| format!("namespaces/{namespace}/"));
        let path = format!("/{root}/{}/{namespace}{}", resource.api_version, resource.resource);
        self.shared
            .eval_env
            .external_data
            .post(&path, &payload)
            .map_err(|error| self.external_data(error))
    }

    fn resource_of_kind(&mut self, api_version: &str, kind: &str) -> HostResult<Resource> {
        let known = self.shared.eval_env.kinds.get(&Gvk::new(api_version, kind));
        let resource = known.map_or_else(|| usual_plural(kind), |known| known.plural().to_owned());
        Ok(Resource { api_version: api_version.to_owned(), resource })
    }

    fn global_context(
        &mut self,
        name: &str,
        projection: Option<&str>,
    ) -> HostResult<Option<Value>> {
        self.count()?;
        let name = match projection.filter(|projection| !projection.is_empty()) {
            Some(projection) => format!("{name}.{projection}"),
            None => name.to_owned(),
        };
        self.shared.global(&name).map_err(|error| self.external_data(error))
    }

    fn http(&mut self, request: HttpRequest<'_>) -> HostResult<HttpResponse> {
        if self.shared.gate.scope.namespace().is_some() {
            return Err(HostError::new(
                "http calls are not allowed in namespaced policies: use a policy for the cluster, \
                 and list the host with --allow-service or kiln.services",
            ));
        }
        self.count()?;
        let headers: Vec<(Str, String)> =
            request.headers.iter().map(|(name, value)| (name.clone(), value.to_string())).collect();
        let asked = ServiceRequest {
            url: request.url,
            method: match request.method {
                "POST" => Method::Post,
                "PUT" => Method::Put,
                _ => Method::Get,
            },
            headers: &headers,
            body: request.body.as_ref(),
            ca_bundle: request.ca_bundle,
        };
        let answer = self.shared.eval_env.external_data.exchange(&asked);
        let answer = answer.map_err(|error| self.external_data(error))?;
        Ok(HttpResponse { status: answer.status, body: answer.body })
    }

    fn image_metadata(&mut self, image: &str) -> HostResult<Value> {
        self.count()?;
        self.shared.eval_env.external_data.image(image).map_err(|error| self.external_data(error))
    }

    fn authorize(&mut self, check: &AuthorizationCheck) -> HostResult<Authorization> {
        if let Scope::Namespace(own) = self.shared.gate.scope
            && (check.path.is_some() || check.namespace != own.as_str())
        {
            return Err(HostError::new(format!(
                "policies of a namespace may only ask about permissions in it, which is {own}"
            )));
        }
        let Some(review) = access_review(check, self.user) else {
            return Err(HostError::new("authorization is not available here: no user is known"));
        };
        self.count()?;
        let posted = self.shared.eval_env.external_data.post(ACCESS_REVIEWS, &review);
        let status = posted.map_err(|error| {
            let mut error = self.external_data(error);
            error.message = format!("authorization is not available here: {}", error.message);
            error
        })?;
        let status = status.get("status").cloned().unwrap_or_default();
        let text = |key: &str| status.str_at([key]).filter(|text| !text.is_empty());
        Ok(Authorization {
            allowed: status.get("allowed").and_then(Value::as_bool) == Some(true),
            reason: text("reason").unwrap_or_default().to_owned(),
            error: text("evaluationError").map(str::to_owned),
        })
    }

    fn parse_yaml(&mut self, text: &str) -> HostResult<Value> {
        let documents = read_bytes("yaml.parse", text.as_bytes(), ReadOptions::kubernetes())
            .map_err(|error| HostError::new(error.to_string()))?;
        Ok(documents.into_iter().next().map_or(Value::Null, Document::into_value))
    }

    fn decode_certificate(&mut self, pem: &str) -> HostResult<Value> {
        kiln_jmespath::functions::decode_certificate(pem).map_err(HostError::new)
    }

    fn now(&mut self) -> HostResult<Timestamp> {
        let now = self.shared.eval_env.sources.now().and_then(|now| {
            let since = now.duration_since(UNIX_EPOCH).ok()?;
            Timestamp::new(i64::try_from(since.as_secs()).ok()?, since.subsec_nanos())
        });
        now.ok_or_else(|| HostError::new("the current time is not available here"))
    }

    fn random(&mut self) -> HostResult<u64> {
        let bits = self.shared.eval_env.sources.random();
        bits.ok_or_else(|| HostError::new("random numbers are not available here"))
    }
}

const ACCESS_REVIEWS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";

/// What the API server is asked about a permission; none if it is not known of whom.
fn access_review(check: &AuthorizationCheck, user: Option<&User>) -> Option<Value> {
    let mut spec = match (&check.service_account, user) {
        (Some((namespace, name)), _) => value!({
            "user": format!("system:serviceaccount:{namespace}:{name}"),
            "groups": [
                "system:serviceaccounts",
                format!("system:serviceaccounts:{namespace}"),
                "system:authenticated",
            ],
        }),
        (None, Some(user)) => {
            let groups = user.groups.iter().map(|group| Value::from(group.as_str()));
            value!({
                "user": user.username.as_str(), "uid": user.uid.as_str(),
                "groups": Value::from_iter(groups), "extra": Value::Map(user.extra.clone()),
            })
        }
        (None, None) => return None,
    };
    let (key, attributes) = match &check.path {
        Some(path) => {
            ("nonResourceAttributes", value!({"path": path.as_str(), "verb": check.verb.as_str()}))
        }
        None => {
            let mut attributes = value!({
                "group": check.group.as_str(), "version": "*", "resource": check.resource.as_str(),
                "subresource": check.subresource.as_str(), "namespace": check.namespace.as_str(),
                "name": check.name.as_str(), "verb": check.verb.as_str(),
            });
            for (key, selector) in
                [("fieldSelector", &check.field_selector), ("labelSelector", &check.label_selector)]
            {
                if !selector.is_empty() {
                    let _ = attributes.set([key, "rawSelector"], selector.as_str());
                }
            }
            ("resourceAttributes", attributes)
        }
    };
    let _ = spec.set([key], attributes);
    Some(value!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec,
    }))
}

/// Whether a text leads no further than one step of a path.
fn is_one_step(text: &str) -> bool {
    let is_more = |c: char| matches!(c, '/' | '?' | '#' | '%' | '\\') || c.is_control();
    !matches!(text, "" | "." | "..") && !text.contains(is_more)
}
