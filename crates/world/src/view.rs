//! What rules see of the cluster while they are evaluated.

use std::collections::HashMap;

use kiln_admission::Settings;
use kiln_cluster::{ApiError, Call, Reason};
use kiln_controller::AccessCheck;
use kiln_engine::{
    AccessRequest, EvalEnv, Globals, ListPage, ListQuery, NoExternalData, ReadError, User, View,
    WithGlobals,
};
use kiln_object::{Gvk, Kinds, ObjectId};
use kiln_replica::api::at_once;
use kiln_replica::author_access::Rights;
use kiln_rules::PolicyId;
use kiln_value::{Str, Value};

use crate::connection::Connection;

/// Reads objects from the server.
pub(crate) struct ApiView<'v> {
    pub(crate) connection: &'v Connection,
    pub(crate) kinds: &'v Kinds,
    /// Whose permissions the reads of which policies are held to.
    pub(crate) authors: &'v HashMap<PolicyId, User>,
    pub(crate) rights: &'v Rights,
}

impl ApiView<'_> {
    /// Evaluates something with this view.
    pub(crate) fn with_env<T>(
        &self,
        settings: &Settings,
        globals: &Globals,
        evaluate: impl FnOnce(&EvalEnv<'_>) -> T,
    ) -> T {
        let external_data = WithGlobals { external_data: &NoExternalData, globals };
        evaluate(&EvalEnv {
            view: self,
            kinds: self.kinds,
            sources: &self.connection.core.ambience,
            external_data: &external_data,
            limits: settings.limits,
            protected_namespaces: &settings.protected_namespaces,
            home: &settings.namespace,
        })
    }
}

impl View for ApiView<'_> {
    fn get(
        &self,
        kind: &Gvk,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Option<Value>, ReadError> {
        let id = ObjectId::new(kind.clone(), namespace.unwrap_or_default(), name);
        match self.connection.call(self.kinds, &Call::Get(id)) {
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
        let listed = self.connection.call(self.kinds, &call);
        let listing = listed.map_err(|error| read_error(error, query.kind))?.listing();
        let listing = listing.unwrap_or_default();
        Ok(ListPage { objects: listing.objects, resume: listing.resume })
    }

    fn permits(&self, wish: &AccessRequest<'_>) -> Result<(), ReadError> {
        let Some(author) = self.authors.get(wish.policy) else { return Ok(()) };
        let right = AccessCheck::of(author, wish);
        let asked = at_once(self.rights.may_read(self.connection, self.kinds, &right));
        right.verdict(asked.unwrap_or_else(|| Err("an answer of the world is missing".to_owned())))
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
