//! Objects and surroundings for rules that ask while a request waits.
//!
//! Rules are evaluated on threads of their own, where waiting for an answer of the API server is fine.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use kiln_cluster::{ApiError, Call, Reason};
use kiln_controller::AccessCheck;
use kiln_engine::{AccessRequest, ListPage, ListQuery, ReadError, User, View};
use kiln_jmespath::AmbientSources;
use kiln_object::{Gvk, Kinds, ObjectId};
use kiln_rules::PolicyId;
use kiln_value::{Str, Value};

use super::review_pool::ReviewPermit;
use crate::author_access::Rights;
use crate::calls::carry_out;
use crate::client::Client;

/// Reads objects from the API server until the request's time is over.
pub(crate) struct LiveView<'t> {
    pub(crate) client: Client,
    pub(crate) kinds: Kinds,
    pub(crate) turn: &'t ReviewPermit<'t>,
    pub(crate) deadline: Instant,
    /// Whose rights the reads of which policies are held to.
    pub(crate) authors: Arc<HashMap<PolicyId, User>>,
    pub(crate) rights: Arc<Rights>,
}

impl LiveView<'_> {
    fn ask(&self, call: &Call) -> Result<kiln_cluster::Reply, ApiError> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        let asking =
            async { tokio::time::timeout(left, carry_out(&self.client, &self.kinds, call)).await };
        self.turn.wait_for(asking).unwrap_or_else(|_| {
            Err(ApiError::new(Reason::Unavailable, "the deadline of the request has passed"))
        })
    }
}

impl View for LiveView<'_> {
    fn get(
        &self,
        kind: &Gvk,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Option<Value>, ReadError> {
        let id = ObjectId::new(kind.clone(), namespace.unwrap_or_default(), name);
        match self.ask(&Call::Get(id)) {
            Ok(reply) => Ok(reply.object()),
            Err(error) if error.reason == Reason::NotFound => Ok(None),
            Err(error) => Err(read_error(error, kind)),
        }
    }

    fn list(&self, query: &ListQuery<'_>) -> Result<ListPage, ReadError> {
        let call = Call::List {
            kind: query.kind.clone(),
            namespace: query.namespace.map(Str::from),
            selector: query.selector.clone(),
            limit: Some(query.limit),
            resume: query.resume.map(str::to_owned),
        };
        let listing = self.ask(&call).map_err(|error| read_error(error, query.kind))?.listing();
        let listing = listing.unwrap_or_default();
        Ok(ListPage { objects: listing.objects, resume: listing.resume })
    }

    fn permits(&self, wish: &AccessRequest<'_>) -> Result<(), ReadError> {
        let Some(author) = self.authors.get(wish.policy) else { return Ok(()) };
        let right = AccessCheck::of(author, wish);
        let left = self.deadline.saturating_duration_since(Instant::now());
        let asking = self.rights.may_read(&self.client, &self.kinds, &right);
        let asked = self.turn.wait_for(async { tokio::time::timeout(left, asking).await });
        right.verdict(
            asked.unwrap_or_else(|_| Err("the deadline of the request has passed".to_owned())),
        )
    }

    fn kind_of(&self, group: &str, version: &str, plural: &str) -> Option<Gvk> {
        self.kinds.by_resource(group, version, plural).map(kiln_object::Kind::gvk)
    }
}

fn read_error(error: ApiError, kind: &Gvk) -> ReadError {
    match error.reason {
        Reason::UnknownKind => ReadError::UnknownKind(kind.to_string()),
        Reason::Forbidden => ReadError::Forbidden(error.message),
        _ => ReadError::Unavailable(error.message),
    }
}

/// The time and chance of the machine.
pub(crate) struct Machine;

impl AmbientSources for Machine {
    fn now(&self) -> Option<SystemTime> {
        Some(SystemTime::now())
    }

    fn random(&self) -> Option<u64> {
        // Every state of the standard library's hashes is seeded by the system.
        Some(RandomState::new().build_hasher().finish())
    }
}
