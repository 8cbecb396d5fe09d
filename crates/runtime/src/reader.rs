//! Read access for commands that ask a cluster and change nothing: blocking, one question at a time.

use std::fmt;
use std::time::Duration;

use http::Method;
use kiln_admission::access::ACCESS_REVIEWS;
use kiln_cluster::{ApiError, Call, Reason, Reply};
use kiln_engine::{ListPage, ListQuery, ReadError, User, View};
use kiln_object::{EngineNames, Gvk, Kinds, ObjectId};
use kiln_value::{Str, Value, value};
use tokio::runtime::{Builder, Runtime};

use crate::calls::{carry_out, list_all};
use crate::client::{Client, ConnectError};
use crate::discovery::Discovery;
use crate::options::RuntimeOptions;
use crate::path::{Address, BadPart, path};

/// How long an engine may take to say how it is.
const HEALTH_PATIENCE: Duration = Duration::from_secs(5);

/// Where a client asks who it is.
const SELF_REVIEWS: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";

/// Who passes a question on to an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeTarget<'a> {
    /// A Service: one of the engines behind it that are ready, whichever.
    Service(&'a str),
    /// A pod, ready or not.
    Pod {
        name: &'a str,
        /// The port that the engine listens on.
        port: u16,
    },
}

/// A cluster that can only be read.
pub struct LiveReader {
    pub(crate) runtime: Runtime,
    pub(crate) client: Client,
    pub(crate) kinds: Kinds,
    pub(crate) names: EngineNames,
}

impl fmt::Debug for LiveReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader").field("server", &self.client.server()).finish_non_exhaustive()
    }
}

impl LiveReader {
    /// Connects, and asks which kinds are served.
    ///
    /// # Errors
    /// When there are no credentials, or the server does not answer.
    pub fn connect(options: &RuntimeOptions) -> Result<Self, ConnectError> {
        let runtime =
            Builder::new_current_thread().enable_all().build().map_err(|error| ConnectError {
                message: format!("cannot start: {error}"),
                hint: "check the limit of open files (`ulimit -n`)".to_owned(),
            })?;
        let client = runtime.block_on(Client::connect(options, None))?;
        let kinds = runtime.block_on(Discovery::default().refresh(&client));
        match kinds {
            Ok(kinds) => {
                let kinds = kinds.unwrap_or_else(Kinds::builtin);
                Ok(LiveReader { runtime, client, kinds, names: options.names.clone() })
            }
            Err(error) => Err(ConnectError {
                message: format!(
                    "cannot discover the kinds that {} serves: {error}",
                    client.server()
                ),
                hint: "check that the cluster is up and the credentials are valid".to_owned(),
            }),
        }
    }

    /// What the engine calls its objects.
    pub fn names(&self) -> &EngineNames {
        &self.names
    }

    /// The kinds that are served.
    pub fn kinds(&self) -> &Kinds {
        &self.kinds
    }

    /// The namespace of the kubeconfig's context, as kubectl takes it when none is given.
    pub fn namespace(&self) -> &str {
        self.client.namespace()
    }

    /// Why the server would not store this object in the place of the one that it has, found out by a dry run. None when
    /// it would, and when it does not say: no right to ask, another version by now, no answer.
    pub fn refuses(&self, object: &Value) -> Option<String> {
        let call =
            Call::Update { object: object.clone(), subresource: Str::default(), dry_run: true };
        match self.runtime.block_on(carry_out(&self.client, &self.kinds, &call)) {
            // Another webhook without dry-run support says nothing about the object.
            Err(error)
                if error.reason == Reason::Invalid
                    && !error.message.contains("does not support dry run") =>
            {
                Some(error.message)
            }
            _ => None,
        }
    }

    /// One object, or none when there is no such object.
    ///
    /// # Errors
    /// What the server says, or why it says nothing.
    pub fn object(&self, id: &ObjectId) -> Result<Option<Value>, ApiError> {
        let call = Call::Get(id.clone());
        match self.runtime.block_on(carry_out(&self.client, &self.kinds, &call)) {
            Ok(Reply::Object(object)) => Ok(Some(object)),
            Ok(_) => Ok(None),
            Err(error) if error.reason == Reason::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// All objects of a kind, in one namespace or in all. A kind that is not served has none.
    ///
    /// # Errors
    /// What the server says, or why it says nothing.
    pub fn all(&self, gvk: &Gvk, namespace: &str) -> Result<Vec<Value>, ApiError> {
        if self.kinds.get(gvk).is_none() {
            return Ok(Vec::new());
        }
        let listed = list_all(&self.client, &self.kinds, gvk, namespace, "");
        Ok(self.runtime.block_on(listed)?.objects)
    }

    /// The schema of everything that is served, as OpenAPI v2.
    ///
    /// # Errors
    /// What the server says, or why it says nothing.
    pub fn schema(&self) -> Result<Value, ApiError> {
        self.runtime.block_on(self.client.get("/openapi/v2"))
    }

    /// The answer to a SubjectAccessReview: whether a user may do something. Nothing is stored by asking.
    ///
    /// # Errors
    /// What the server says, or why it says nothing.
    pub fn review(&self, review: &Value) -> Result<bool, ApiError> {
        let asked = self.client.send(Method::POST, ACCESS_REVIEWS, Some(review), "");
        let answer = self.runtime.block_on(asked)?;
        Ok(answer.get_path(["status", "allowed"]).and_then(Value::as_bool) == Some(true))
    }

    /// Who asks, as the server knows them. None where it does not say.
    pub fn user(&self) -> Option<User> {
        let review =
            value!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
        let asked = self.client.send(Method::POST, SELF_REVIEWS, Some(&review), "");
        let answer = self.runtime.block_on(asked).ok()?;
        let info = answer.get_path(["status", "userInfo"])?;
        let groups = info.get("groups").and_then(Value::as_list).into_iter().flatten();
        Some(User {
            username: info.str_at(["username"])?.into(),
            uid: info.str_at(["uid"]).unwrap_or_default().into(),
            groups: groups.filter_map(Value::as_str).map(Str::from).collect(),
            ..User::default()
        })
    }

    /// What an engine says of itself at a path such as `health`, asked through the API server.
    ///
    /// # Errors
    /// What the server says, or why it says nothing.
    pub fn probe(
        &self,
        namespace: &str,
        asked: ProbeTarget<'_>,
        at: &str,
    ) -> Result<String, ApiError> {
        let (plural, name) = match asked {
            ProbeTarget::Service(name) => ("services", format!("https:{name}:443")),
            ProbeTarget::Pod { name, port } => ("pods", format!("https:{name}:{port}")),
        };
        let subresource = format!("proxy/{at}");
        let probed = Address {
            version: "v1",
            plural,
            namespace,
            name: &name,
            subresource: &subresource,
            ..Address::default()
        };
        let path = path(&probed, &[]).map_err(|bad| unaskable(&bad))?;
        self.runtime.block_on(async {
            let asked = tokio::time::timeout(HEALTH_PATIENCE, self.client.text(&path)).await;
            let late = || ApiError::new(Reason::Unavailable, "timed out");
            asked.unwrap_or_else(|_| Err(late()))
        })
    }
}

impl View for LiveReader {
    fn get(
        &self,
        kind: &Gvk,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Option<Value>, ReadError> {
        let id = ObjectId::new(kind.clone(), namespace.unwrap_or_default(), name);
        self.object(&id).map_err(|error| read_error(&error))
    }

    fn list(&self, query: &ListQuery<'_>) -> Result<ListPage, ReadError> {
        let call = Call::List {
            kind: query.kind.clone(),
            namespace: query.namespace.map(Into::into),
            selector: query.selector.clone(),
            limit: Some(query.limit),
            resume: query.resume.map(str::to_owned),
        };
        match self
            .runtime
            .block_on(carry_out(&self.client, &self.kinds, &call))
            .map_err(|error| read_error(&error))?
        {
            Reply::List(list) => Ok(ListPage { objects: list.objects, resume: list.resume }),
            _ => Ok(ListPage::default()),
        }
    }

    fn kind_of(&self, group: &str, version: &str, plural: &str) -> Option<Gvk> {
        self.kinds.by_resource(group, version, plural).map(kiln_object::Kind::gvk)
    }
}

fn unaskable(bad: &BadPart) -> ApiError {
    ApiError::new(Reason::Invalid, bad.to_string())
}

fn read_error(error: &ApiError) -> ReadError {
    match error.reason {
        Reason::Forbidden => ReadError::Forbidden(error.to_string()),
        _ => ReadError::Unavailable(error.to_string()),
    }
}
