//! What library functions need from outside: the cluster, the network, the clock, chance.

use kiln_value::{Str, Value};

use crate::Timestamp;

/// The world as expressions see it. Every method has a default that refuses, so a host offers only
/// what it has.
pub trait Host {
    /// Reads one object; `None` when there is none.
    fn get_resource(
        &mut self,
        resource: &ResourceRef<'_>,
        name: &str,
    ) -> HostResult<Option<Value>> {
        let _ = (resource, name);
        Err(HostError::unavailable("reading resources"))
    }

    /// Reads all objects that have these labels, as a List object.
    fn list_resources(
        &mut self,
        resource: &ResourceRef<'_>,
        labels: &[(Str, Str)],
    ) -> HostResult<Value> {
        let _ = (resource, labels);
        Err(HostError::unavailable("listing resources"))
    }

    /// Creates an object and gives back what was created.
    fn post_resource(&mut self, resource: &ResourceRef<'_>, payload: Value) -> HostResult<Value> {
        let _ = (resource, payload);
        Err(HostError::unavailable("creating resources"))
    }

    /// The group, version and plural resource name of a kind.
    fn resource_of_kind(&mut self, api_version: &str, kind: &str) -> HostResult<Resource> {
        let _ = (api_version, kind);
        Err(HostError::unavailable("discovery"))
    }

    /// An entry of the global context, perhaps projected; `None` when there is no such entry.
    fn global_context(
        &mut self,
        name: &str,
        projection: Option<&str>,
    ) -> HostResult<Option<Value>> {
        let _ = (name, projection);
        Err(HostError::unavailable("the global context"))
    }

    /// Sends an HTTP request.
    fn http(&mut self, request: HttpRequest<'_>) -> HostResult<HttpResponse> {
        let _ = request;
        Err(HostError::unavailable("http"))
    }

    /// The metadata of an image in its registry.
    fn image_metadata(&mut self, image: &str) -> HostResult<Value> {
        let _ = image;
        Err(HostError::unavailable("image metadata"))
    }

    /// Decides an authorization question.
    fn authorize(&mut self, check: &AuthorizationCheck) -> HostResult<Authorization> {
        let _ = check;
        Err(HostError::unavailable("authorization"))
    }

    /// Reads one YAML document; empty text is null.
    fn parse_yaml(&mut self, text: &str) -> HostResult<Value> {
        let _ = text;
        Err(HostError::unavailable("reading YAML"))
    }

    /// The fields of a certificate or certificate request in PEM form.
    fn decode_certificate(&mut self, pem: &str) -> HostResult<Value> {
        let _ = pem;
        Err(HostError::unavailable("reading certificates"))
    }

    /// The current time.
    fn now(&mut self) -> HostResult<Timestamp> {
        Err(HostError::unavailable("the clock"))
    }

    /// 64 random bits.
    fn random(&mut self) -> HostResult<u64> {
        Err(HostError::unavailable("randomness"))
    }
}

/// A host that has nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoHost;

impl Host for NoHost {}

/// The outcome of a host call.
pub type HostResult<T> = Result<T, HostError>;

/// Why a host could not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostError {
    /// What went wrong.
    pub message: String,
    /// Whether permission was missing.
    pub forbidden: bool,
}

impl HostError {
    /// A failure.
    pub fn new(message: impl Into<String>) -> Self {
        HostError { message: message.into(), forbidden: false }
    }

    /// A failure for lack of permission.
    pub fn forbidden(message: impl Into<String>) -> Self {
        HostError { message: message.into(), forbidden: true }
    }

    fn unavailable(what: &str) -> Self {
        HostError::new(format!("{what} is not available here"))
    }
}

/// Objects of one resource, in one namespace or in all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResourceRef<'r> {
    /// Group and version, such as `apps/v1`.
    pub api_version: &'r str,
    /// The plural name, such as `deployments`; after a slash a subresource.
    pub resource: &'r str,
    /// The namespace; `None` for cluster-scoped resources or all namespaces.
    pub namespace: Option<&'r str>,
}

/// A resource by group, version and plural name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resource {
    /// Group and version, such as `apps/v1`.
    pub api_version: String,
    /// The plural name.
    pub resource: String,
}

/// An HTTP request of an expression.
#[derive(Clone, Debug)]
pub struct HttpRequest<'r> {
    /// `GET`, `POST` or `PUT`.
    pub method: &'static str,
    pub url: &'r str,
    /// Extra headers.
    pub headers: Vec<(Str, Str)>,
    /// The JSON body.
    pub body: Option<Value>,
    /// Certificates to trust, as PEM.
    pub ca_bundle: Option<&'r str>,
}

#[derive(Clone, Debug)]
pub struct HttpResponse {
    /// The status code.
    pub status: u16,
    /// The body, if it was JSON.
    pub body: Option<Value>,
}

/// A question to the authorizer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuthorizationCheck {
    /// The user to ask for instead of the one of the request, as `namespace` and `name`.
    pub service_account: Option<(String, String)>,
    /// A path that is not a resource.
    pub path: Option<String>,
    /// The API group.
    pub group: String,
    /// The plural resource name.
    pub resource: String,
    pub subresource: String,
    pub namespace: String,
    /// The name of the object.
    pub name: String,
    pub field_selector: String,
    pub label_selector: String,
    pub verb: String,
}

/// The authorizer's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authorization {
    pub allowed: bool,
    /// Why.
    pub reason: String,
    /// What went wrong while deciding.
    pub error: Option<String>,
}

/// Something that an expression wants done once its evaluation is over.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// `generator.Apply`: generate these objects.
    Generate {
        /// The namespace argument; `None` in the one-argument form of namespaced policies.
        namespace: Option<Str>,
        /// The objects in order; Lists are not expanded yet.
        objects: Vec<Value>,
    },
}
