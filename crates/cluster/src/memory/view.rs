//! The cluster as evaluations see it.

use kiln_engine::{ListPage, ListQuery, ReadError, View};
use kiln_object::{Gvk, ObjectId};
use kiln_value::Value;

use super::Memory;
use crate::error::{ApiError, Reason};

impl View for Memory {
    fn get(
        &self,
        kind: &Gvk,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Option<Value>, ReadError> {
        match Memory::get(self, &ObjectId::new(kind.clone(), namespace.unwrap_or_default(), name)) {
            Ok(object) => Ok(Some(object)),
            Err(error) if error.reason == Reason::NotFound => Ok(None),
            Err(error) => Err(read_error(error)),
        }
    }

    fn list(&self, query: &ListQuery<'_>) -> Result<ListPage, ReadError> {
        let listing = Memory::list(
            self,
            query.kind,
            query.namespace,
            query.selector,
            Some(query.limit),
            query.resume,
        )
        .map_err(read_error)?;
        Ok(ListPage { objects: listing.objects, resume: listing.resume })
    }

    fn kind_of(&self, group: &str, version: &str, plural: &str) -> Option<Gvk> {
        self.kinds().by_resource(group, version, plural).map(kiln_object::Kind::gvk)
    }
}

fn read_error(error: ApiError) -> ReadError {
    match error.reason {
        Reason::UnknownKind => ReadError::UnknownKind(error.message),
        Reason::Forbidden => ReadError::Forbidden(error.message),
        _ => ReadError::Unavailable(error.message),
    }
}
