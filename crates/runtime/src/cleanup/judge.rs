//! Whether a policy deletes an object, with what it reads of the cluster.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use kiln_cleanup::{Judge, Judgement};
use kiln_cluster::{ApiError, Call, Reason, Reply};
use kiln_controller::AccessCheck;
use kiln_engine::{
    AccessRequest, EvalEnv, ExternalData, ExternalDataError, Globals, ListPage, ListQuery,
    ReadError, ServiceRequest, User, View, WithGlobals,
};
use kiln_object::{Gvk, Kinds, ObjectId, metadata};
use kiln_replica::cleanup::{is_kept, judge};
use kiln_rules::{PolicyId, Rule};
use kiln_services::Services;
use kiln_value::{Str, Value};
use tokio::runtime::Handle;

use crate::author_access::Rights;
use crate::calls::carry_out;
use crate::client::Client;
use crate::policy_store::Registry;
use crate::serve::Machine;

/// How long one read of a policy may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// The most answers that a run remembers.
const REMEMBERED: usize = 4_096;

/// What a run has read: the same question gets the same answer until it is over, as Kyverno loads the context of a policy
/// once for all objects.
#[derive(Debug, Default)]
pub(super) struct RunReads {
    objects: Mutex<HashMap<ObjectId, Option<Value>>>,
    lists: Mutex<HashMap<String, ReadPage>>,
    services: Mutex<HashMap<String, Value>>,
}

/// The objects of a page, and where the next one begins.
type ReadPage = (Vec<Value>, Option<String>);

/// Judges objects by policies that are stored.
pub(super) struct LiveJudge {
    pub(super) client: Client,
    pub(super) kinds: Kinds,
    pub(super) stored: Arc<Registry>,
    /// Whose permissions policies are held to.
    pub(super) authors: HashMap<PolicyId, User>,
    pub(super) rights: Arc<Rights>,
    pub(super) globals: Arc<Globals>,
    pub(super) settings: kiln_admission::Settings,
    pub(super) services: Services,
    pub(super) reads: Arc<RunReads>,
    pub(super) handle: Handle,
}

impl Judge for LiveJudge {
    fn judge(&self, rule: &Rule, object: &Value) -> Judgement {
        if is_kept(&self.settings, object) {
            return Judgement::Keep;
        }
        let services = OnceServices { services: &self.services, reads: &self.reads };
        let external_data = WithGlobals { external_data: &services, globals: &self.globals };
        let eval_env = EvalEnv {
            view: self,
            kinds: &self.kinds,
            sources: &Machine,
            external_data: &external_data,
            limits: self.settings.limits,
            protected_namespaces: &self.settings.protected_namespaces,
            home: &self.settings.namespace,
        };
        judge(&self.stored.cleanup, rule, object, &eval_env)
    }
}

impl LiveJudge {
    fn ask(&self, call: &Call) -> Result<Reply, ApiError> {
        let asking = async {
            tokio::time::timeout(PATIENCE, carry_out(&self.client, &self.kinds, call)).await
        };
        let late =
            |_| Err(ApiError::new(Reason::Unavailable, "the API server did not answer in time"));
        self.handle.block_on(asking).unwrap_or_else(late)
    }
}

impl View for LiveJudge {
    fn get(
        &self,
        kind: &Gvk,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Option<Value>, ReadError> {
        let id = ObjectId::new(kind.clone(), namespace.unwrap_or_default(), name);
        if let Some(known) = remembered(&self.reads.objects, &id) {
            return Ok(known);
        }
        let found = match self.ask(&Call::Get(id.clone())) {
            Ok(reply) => reply.object(),
            Err(error) if error.reason == Reason::NotFound => None,
            Err(error) => return Err(read_error(error, kind)),
        };
        remember(&self.reads.objects, id, &found);
        Ok(found)
    }

    fn list(&self, query: &ListQuery<'_>) -> Result<ListPage, ReadError> {
        let key = format!(
            "{} {:?} {} {} {:?}",
            query.kind, query.namespace, query.selector, query.limit, query.resume
        );
        if let Some((objects, resume)) = remembered(&self.reads.lists, &key) {
            return Ok(ListPage { objects, resume });
        }
        let call = Call::List {
            kind: query.kind.clone(),
            namespace: query.namespace.map(Str::from),
            selector: query.selector.clone(),
            limit: Some(query.limit),
            resume: query.resume.map(str::to_owned),
        };
        let listing = self.ask(&call).map_err(|error| read_error(error, query.kind))?.listing();
        let listing = listing.unwrap_or_default();
        let page = (listing.objects, listing.resume);
        remember(&self.reads.lists, key, &page);
        Ok(ListPage { objects: page.0, resume: page.1 })
    }

    fn permits(&self, wish: &AccessRequest<'_>) -> Result<(), ReadError> {
        let Some(author) = self.authors.get(wish.policy) else { return Ok(()) };
        let right = AccessCheck::of(author, wish);
        let asking = self.rights.may_read(&self.client, &self.kinds, &right);
        let asked = self.handle.block_on(async { tokio::time::timeout(PATIENCE, asking).await });
        let late = |_| Err("the API server did not answer in time".to_owned());
        right.verdict(asked.unwrap_or_else(late))
    }

    fn kind_of(&self, group: &str, version: &str, plural: &str) -> Option<Gvk> {
        self.kinds.by_resource(group, version, plural).map(kiln_object::Kind::gvk)
    }
}

/// Services that are asked once in a run.
struct OnceServices<'s> {
    services: &'s Services,
    reads: &'s RunReads,
}

impl ExternalData for OnceServices<'_> {
    fn call(&self, request: &ServiceRequest<'_>) -> Result<Value, ExternalDataError> {
        let body = request.body.map(kiln_value::json::to_canonical_string).unwrap_or_default();
        let key = format!("{:?} {} {:?} {body}", request.method, request.url, request.headers);
        if let Some(known) = remembered(&self.reads.services, &key) {
            return Ok(known);
        }
        let answer = self.services.call(request)?;
        remember(&self.reads.services, key, &answer);
        Ok(answer)
    }

    fn exchange(
        &self,
        request: &ServiceRequest<'_>,
    ) -> Result<kiln_engine::ServiceAnswer, ExternalDataError> {
        self.services.exchange(request)
    }
}

fn remembered<K: std::hash::Hash + Eq, V: Clone>(
    known: &Mutex<HashMap<K, V>>,
    key: &K,
) -> Option<V> {
    known.lock().unwrap_or_else(PoisonError::into_inner).get(key).cloned()
}

fn remember<K: std::hash::Hash + Eq, V: Clone>(known: &Mutex<HashMap<K, V>>, key: K, value: &V) {
    let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
    if known.len() < REMEMBERED {
        known.insert(key, value.clone());
    }
}

fn read_error(error: ApiError, kind: &Gvk) -> ReadError {
    match error.reason {
        Reason::UnknownKind => ReadError::UnknownKind(kind.to_string()),
        Reason::Forbidden => ReadError::Forbidden(error.message),
        _ => ReadError::Unavailable(error.message),
    }
}

/// What is said of an object in the log.
pub(super) fn described(object: &Value) -> String {
    let name = metadata::name(object).unwrap_or_default();
    match metadata::namespace(object) {
        Some(namespace) => format!("{namespace}/{name}"),
        None => name.to_owned(),
    }
}
