//! The connection: credentials, and the one way that requests go out and answers come in.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, HeaderName, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use kiln_cluster::{ApiError, Reason};
use kiln_replica::api::{Api, reason_of, sort};
use kiln_value::{KeyTable, Value, json, value};
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};

use crate::options::RuntimeOptions;
use crate::path::{Address, path};

/// The longest answer that is read: a page of 500 large objects.
const LONGEST_ANSWER: usize = 512 << 20;
/// The longest text that is read.
const LONGEST_TEXT: usize = 1 << 20;
/// How long an answer may take to come.
const PATIENCE: Duration = Duration::from_secs(30);

/// A connection to an API server. Cloning copies a pointer.
#[derive(Clone)]
pub struct Client {
    inner: kube::Client,
    user: Option<Arc<str>>,
    server: Arc<str>,
    /// Where objects are looked for by default.
    namespace: Arc<str>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("server", &self.server)
            .field("user", &self.user)
            .finish_non_exhaustive()
    }
}

/// Why there is no connection, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectError {
    /// What went wrong.
    pub message: String,
    /// What to try.
    pub hint: String,
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.message, self.hint)
    }
}

impl std::error::Error for ConnectError {}

/// An answer with its headers' `ETag`; no value when nothing changed since the tag that was sent.
#[derive(Clone, Debug)]
pub struct Tagged {
    /// The answer.
    pub value: Option<Value>,
    /// The tag to send next time.
    pub etag: Option<String>,
}

impl Client {
    /// Connects with the credentials of a kubeconfig, or of the pod, acting as another user if one is
    /// given.
    ///
    /// # Errors
    /// When there are no credentials, or they cannot be read.
    pub async fn connect(
        options: &RuntimeOptions,
        user: Option<&str>,
    ) -> Result<Self, ConnectError> {
        let mut config = load(options).await?;
        // A watch says something at least once a minute, and the server ends it after some minutes.
        config.read_timeout = None;
        config.connect_timeout = Some(Duration::from_secs(10));
        if let Some(user) = user {
            let header = HeaderValue::from_str(user).map_err(|_| ConnectError {
                message: format!("{user:?} cannot be the name of a user"),
                hint: "write it as system:serviceaccount:NAMESPACE:NAME, for example".to_owned(),
            })?;
            config.headers.retain(|(name, _)| !name.as_str().starts_with("impersonate-"));
            config.headers.push((HeaderName::from_static("impersonate-user"), header));
        }
        let server: Arc<str> = config.cluster_url.to_string().into();
        let namespace: Arc<str> = config.default_namespace.as_str().into();
        let inner = kube::Client::try_from(config).map_err(|error| ConnectError {
            message: format!("cannot set up the connection to {server}: {error}"),
            hint: "check certificates and credentials in the kubeconfig".to_owned(),
        })?;
        Ok(Client { inner, user: user.map(Arc::from), server, namespace })
    }

    /// The user that requests are made as, when it is not the one of the credentials.
    pub fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }

    /// The address of the API server.
    pub fn server(&self) -> &str {
        &self.server
    }

    /// The namespace of the kubeconfig's context, or of the pod; `default` where neither says one.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Who the server takes this process for, if it says so.
    pub async fn who(&self) -> Option<String> {
        let review = Address {
            group: "authentication.k8s.io",
            version: "v1",
            plural: "selfsubjectreviews",
            ..Address::default()
        };
        let body = value!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
        let path = path(&review, &[]).ok()?;
        let answer = self.send(Method::POST, &path, Some(&body), "").await.ok()?;
        answer.str_at(["status", "userInfo", "username"]).map(str::to_owned)
    }

    /// Reads something.
    ///
    /// # Errors
    /// What the server says, or why it says nothing.
    pub async fn get(&self, path: &str) -> Result<Value, ApiError> {
        self.send(Method::GET, path, None, "").await
    }

    /// Reads something that is not JSON.
    ///
    /// # Errors
    /// What the server says, or why it says nothing.
    pub async fn text(&self, path: &str) -> Result<String, ApiError> {
        let response = self.respond(Request::builder().uri(path).body(Body::empty())).await?;
        let is_good = response.status().is_success();
        if !is_good {
            return Err(read(response)
                .await
                .err()
                .unwrap_or_else(|| unavailable("the response is malformed")));
        }
        let body = Limited::new(response.into_body(), LONGEST_TEXT).collect();
        let body = tokio::time::timeout(PATIENCE, body).await;
        match body {
            Ok(Ok(body)) => Ok(String::from_utf8_lossy(&body.to_bytes()).into_owned()),
            Ok(Err(error)) => Err(unavailable(&format!("the response was cut off: {error}"))),
            Err(_) => Err(unavailable("the response is incomplete")),
        }
    }

    /// Reads something, unless it still has this `etag`.
    ///
    /// # Errors
    /// What the server says, or why it says nothing.
    pub async fn get_tagged(
        &self,
        path: &str,
        accept: &'static str,
        etag: Option<&str>,
    ) -> Result<Tagged, ApiError> {
        let mut request = Request::builder().method(Method::GET).uri(path).header(ACCEPT, accept);
        if let Some(etag) = etag {
            request = request.header(http::header::IF_NONE_MATCH, etag);
        }
        let response = self.respond(request.body(Body::empty())).await?;
        let etag = response
            .headers()
            .get(http::header::ETAG)
            .and_then(|value| value.to_str().ok())
            .map(str::to_owned);
        if response.status() == StatusCode::NOT_MODIFIED {
            return Ok(Tagged { value: None, etag });
        }
        Ok(Tagged { value: Some(read(response).await?), etag })
    }

    /// Sends something, and reads the answer.
    ///
    /// # Errors
    /// What the server says, or why it says nothing.
    pub async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        content_type: &str,
    ) -> Result<Value, ApiError> {
        let mut request =
            Request::builder().method(method).uri(path).header(ACCEPT, "application/json");
        let body = match body {
            None => Body::empty(),
            Some(body) => {
                let kind = if content_type.is_empty() { "application/json" } else { content_type };
                request = request.header(CONTENT_TYPE, kind);
                Body::from(json::to_string(body).into_bytes())
            }
        };
        let response = self.respond(request.body(body)).await?;
        tokio::time::timeout(PATIENCE, read(response))
            .await
            .unwrap_or_else(|_| Err(unavailable("the response is incomplete")))
    }

    /// Begins an answer without end.
    ///
    /// # Errors
    /// What the server says, or why it says nothing.
    pub async fn stream(&self, path: &str) -> Result<Response<Body>, ApiError> {
        let request = Request::builder().uri(path).header(ACCEPT, "application/json");
        let response = self.respond(request.body(Body::empty())).await?;
        if response.status().is_success() {
            return Ok(response);
        }
        Err(read(response).await.err().unwrap_or_else(|| unavailable("the response is malformed")))
    }

    async fn respond(
        &self,
        request: Result<Request<Body>, http::Error>,
    ) -> Result<Response<Body>, ApiError> {
        let request = request
            .map_err(|error| ApiError::new(Reason::Invalid, format!("invalid request: {error}")))?;
        match tokio::time::timeout(PATIENCE, self.inner.send(request)).await {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(error)) => Err(unavailable(&describe(&error))),
            Err(_) => Err(unavailable("the server does not answer")),
        }
    }
}

fn unavailable(message: &str) -> ApiError {
    ApiError::new(Reason::Unavailable, message)
}

/// An error and what caused it.
fn describe(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let words = inner.to_string();
        if !text.contains(&words) {
            text.push_str(": ");
            text.push_str(&words);
        }
        cause = inner.source();
    }
    text
}

async fn load(options: &RuntimeOptions) -> Result<kube::Config, ConnectError> {
    let chosen =
        KubeConfigOptions { context: options.context.clone(), ..KubeConfigOptions::default() };
    let wrong = |what: String, error: &dyn std::error::Error| ConnectError {
        message: format!("{what}: {}", describe(error)),
        hint: "give --kubeconfig FILE or set KUBECONFIG; inside a pod its account is used"
            .to_owned(),
    };
    if let Some(file) = &options.kubeconfig {
        let what = || format!("cannot use the kubeconfig {}", file.display());
        let read = Kubeconfig::read_from(file).map_err(|error| wrong(what(), &error))?;
        return kube::Config::from_custom_kubeconfig(read, &chosen)
            .await
            .map_err(|error| wrong(what(), &error));
    }
    match kube::Config::from_kubeconfig(&chosen).await {
        Ok(config) => Ok(config),
        Err(outside) => match kube::Config::incluster() {
            Ok(config) if options.context.is_none() => Ok(config),
            _ => Err(wrong("there is no cluster to connect to".to_owned(), &outside)),
        },
    }
}

async fn read(response: Response<Body>) -> Result<Value, ApiError> {
    let status = response.status();
    let retry_after = response
        .headers()
        .get(http::header::RETRY_AFTER)
        .and_then(|value| value.to_str().ok()?.parse().ok());
    let body: Bytes = Limited::new(response.into_body(), LONGEST_ANSWER)
        .collect()
        .await
        .map_err(|error| unavailable(&format!("the response was cut off: {error}")))?
        .to_bytes();
    let value = json::parse_bytes(&body, &mut KeyTable::new());
    if status.is_success() {
        return value.map_err(|error| unavailable(&format!("the answer is not JSON: {error}")));
    }
    let mut error = match value {
        Ok(value) if value.str_at(["kind"]) == Some("Status") => sort(status, &value),
        _ => {
            let text = String::from_utf8_lossy(&body);
            let text: String = text.trim().chars().take(300).collect();
            let reason = if status == StatusCode::NOT_FOUND {
                Reason::UnknownKind
            } else {
                reason_of(status)
            };
            ApiError::new(reason, if text.is_empty() { status.to_string() } else { text })
        }
    };
    error.retry_after_seconds = error.retry_after_seconds.or(retry_after);
    Err(error)
}

impl Api for Client {
    fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        content_type: &str,
    ) -> impl Future<Output = Result<Value, ApiError>> + Send {
        Client::send(self, method, path, body, content_type)
    }

    fn now(&self) -> u64 {
        crate::controller_loop::now()
    }
}
