//! Carries out calls.

use std::future::Future;

use http::Method;
use kiln_cluster::{ApiError, Call, Listing, ObjectPatch, Preconditions, Reason, Reply};
use kiln_object::{Gvk, Kind, Kinds, ObjectId};
use kiln_value::{Map, Value, value};

use crate::api::{Api, get};
use crate::path::{Address, BadPart, path};

/// Who writes, for the API server's books of who set which field.
const FIELD_MANAGER: &str = "kiln";

/// Calls that only the leader may make: one that is no longer the leader writes nothing.
pub trait FencedCalls: Sync {
    /// Carries out a call.
    ///
    /// # Errors
    /// What the server says, why it says nothing, or that this process does not lead.
    fn call(
        &self,
        kinds: &Kinds,
        asked: &Call,
    ) -> impl Future<Output = Result<Reply, ApiError>> + Send;
}

/// Carries out a call.
///
/// # Errors
/// What the server says, or why it says nothing.
pub async fn carry_out<A: Api>(client: &A, kinds: &Kinds, call: &Call) -> Result<Reply, ApiError> {
    let about = call.about();
    let kind = find(kinds, &about.gvk)?;
    let object = |value: Value| Ok(Reply::Object(value));
    match call {
        Call::Get(_) => object(get(client, &address(kind, &about, "", &[])?).await?),
        Call::List { selector, limit, resume, .. } => {
            let selector = selector.to_string();
            let limit = limit.map(|limit| limit.to_string());
            let mut query = Vec::new();
            if !selector.is_empty() {
                query.push(("labelSelector", selector.as_str()));
            }
            query.extend(limit.as_deref().map(|limit| ("limit", limit)));
            query.extend(resume.as_deref().map(|resume| ("continue", resume)));
            let answer = get(client, &address(kind, &about, "", &query)?).await?;
            Ok(Reply::List(listing(answer, kind, resume.as_deref())?))
        }
        Call::Create { object: body, dry_run } => {
            let place = ObjectId::new(about.gvk.clone(), &about.namespace, "");
            let path = address(kind, &place, "", &writing(*dry_run))?;
            object(client.send(Method::POST, &path, Some(body), "").await?)
        }
        Call::Update { object: body, subresource, dry_run } => {
            let path = named(kind, &about, subresource, &writing(*dry_run))?;
            object(client.send(Method::PUT, &path, Some(body), "").await?)
        }
        Call::Patch { patch, subresource, .. } => {
            let path = named(kind, &about, subresource, &writing(false))?;
            let (body, form) = match patch {
                ObjectPatch::Json(body) => (body, "application/json-patch+json"),
                ObjectPatch::Merge(body) => (body, "application/merge-patch+json"),
                ObjectPatch::Strategic(body) => (body, "application/strategic-merge-patch+json"),
            };
            object(client.send(Method::PATCH, &path, Some(body), form).await?)
        }
        Call::Apply { object: body, manager, force } => {
            let force = if *force { "true" } else { "false" };
            let query = [("fieldManager", manager.as_str()), ("force", force)];
            let path = named(kind, &about, "", &query)?;
            let form = "application/apply-patch+yaml";
            object(client.send(Method::PATCH, &path, Some(body), form).await?)
        }
        Call::Delete { preconditions, .. } => {
            delete(client, kind, &about, preconditions, Some(BACKGROUND), false).await?;
            Ok(Reply::Deleted)
        }
    }
}

/// Asks whether an object could be deleted: the server does everything but that.
///
/// # Errors
/// What the server says, or why it says nothing.
pub async fn try_delete<A: Api>(
    client: &A,
    kinds: &Kinds,
    target: &ObjectId,
) -> Result<(), ApiError> {
    let kind = find(kinds, &target.gvk)?;
    delete(client, kind, target, &Preconditions::default(), Some(BACKGROUND), true).await
}

/// Deletes an object; what becomes of the objects that it owns is the server's usual way where none is said.
///
/// # Errors
/// What the server says, or why it says nothing.
pub async fn delete_object<A: Api>(
    client: &A,
    kinds: &Kinds,
    target: &ObjectId,
    preconditions: &Preconditions,
    propagation: Option<&str>,
) -> Result<(), ApiError> {
    let kind = find(kinds, &target.gvk)?;
    delete(client, kind, target, preconditions, propagation, false).await
}

/// What becomes of the objects that a deleted downstream owns: they go afterwards.
const BACKGROUND: &str = "Background";

async fn delete<A: Api>(
    client: &A,
    kind: &Kind,
    target: &ObjectId,
    preconditions: &Preconditions,
    propagation: Option<&str>,
    dry_run: bool,
) -> Result<(), ApiError> {
    let mut wanted = Map::new();
    if let Some(uid) = &preconditions.uid {
        wanted.insert("uid", uid.clone());
    }
    if let Some(version) = &preconditions.resource_version {
        wanted.insert("resourceVersion", version.clone());
    }
    let mut options = Map::new();
    options.insert("apiVersion", "v1");
    options.insert("kind", "DeleteOptions");
    if let Some(propagation) = propagation {
        options.insert("propagationPolicy", propagation);
    }
    if !wanted.is_empty() {
        options.insert("preconditions", wanted);
    }
    if dry_run {
        // Where there is a body, a server does not look at the query.
        options.insert("dryRun", value!(["All"]));
    }
    let path = named(kind, target, "", &[])?;
    client.send(Method::DELETE, &path, Some(&Value::Map(options)), "").await?;
    Ok(())
}

/// Lists all objects of a kind that have certain fields, page by page.
///
/// # Errors
/// What the server says, or why it says nothing.
pub async fn list_all<A: Api>(
    client: &A,
    kinds: &Kinds,
    gvk: &Gvk,
    namespace: &str,
    fields: &str,
) -> Result<Listing, ApiError> {
    let kind = find(kinds, gvk)?;
    let mut all = Listing::default();
    loop {
        let mut query = vec![("limit", "500")];
        if !fields.is_empty() {
            query.push(("fieldSelector", fields));
        }
        query.extend(all.resume.as_deref().map(|resume| ("continue", resume)));
        let path = collection_path(kinds, gvk, namespace, &query)?;
        let page = listing(get(client, &path).await?, kind, all.resume.as_deref())?;
        all.objects.extend(page.objects);
        (all.revision, all.resume) = (page.revision, page.resume);
        if all.resume.is_none() {
            return Ok(all);
        }
    }
}

/// The path of all objects of a kind.
///
/// # Errors
/// When the server does not know the kind.
pub fn collection_path(
    kinds: &Kinds,
    gvk: &Gvk,
    namespace: &str,
    query: &[(&str, &str)],
) -> Result<String, ApiError> {
    let kind = find(kinds, gvk)?;
    address(kind, &ObjectId::new(gvk.clone(), namespace, ""), "", query)
}

fn writing(dry_run: bool) -> Vec<(&'static str, &'static str)> {
    let mut query = vec![("fieldManager", FIELD_MANAGER)];
    if dry_run {
        query.push(("dryRun", "All"));
    }
    query
}

fn find<'k>(kinds: &'k Kinds, gvk: &Gvk) -> Result<&'k Kind, ApiError> {
    kinds.get(gvk).ok_or_else(|| {
        ApiError::new(Reason::UnknownKind, format!("the server does not know the kind {gvk}"))
    })
}

fn named(
    kind: &Kind,
    id: &ObjectId,
    subresource: &str,
    query: &[(&str, &str)],
) -> Result<String, ApiError> {
    if id.name.is_empty() {
        return Err(bad(&BadPart { part: "name", text: String::new() }));
    }
    address(kind, id, subresource, query)
}

fn address(
    kind: &Kind,
    id: &ObjectId,
    subresource: &str,
    query: &[(&str, &str)],
) -> Result<String, ApiError> {
    let address = Address {
        group: kind.group(),
        version: kind.version(),
        plural: kind.plural(),
        namespace: if kind.is_namespaced() { &id.namespace } else { "" },
        name: &id.name,
        subresource,
    };
    if kind.is_namespaced() && id.namespace.is_empty() && !id.name.is_empty() {
        let message = format!("{} {:?} needs a namespace", kind.kind(), id.name.as_str());
        return Err(ApiError::new(Reason::Invalid, message));
    }
    path(&address, query).map_err(|part| bad(&part))
}

fn bad(part: &BadPart) -> ApiError {
    ApiError::new(Reason::Invalid, part.to_string())
}

/// A page of a list, which goes on where `after` says. Objects of a list do not say what they are; the list does.
fn listing(mut answer: Value, kind: &Kind, after: Option<&str>) -> Result<Listing, ApiError> {
    let about = |field: &str| answer.str_at(["metadata", field]).unwrap_or_default().to_owned();
    let (revision, resume) = (about("resourceVersion"), about("continue"));
    if after == Some(resume.as_str()) {
        // Following it would never end.
        let message =
            format!("cannot list {}: the server repeats the same continue token", kind.plural());
        return Err(ApiError::new(Reason::Unavailable, message));
    }
    let api_version = kind.gvk().api_version();
    let items = answer.as_map_mut().and_then(|map| map.remove("items"));
    let objects = items.as_ref().and_then(Value::as_list).map(|items| items.to_vec());
    let mut objects = objects.unwrap_or_default();
    for object in &mut objects {
        if let Some(map) = object.as_map_mut() {
            map.insert("apiVersion", api_version.as_str());
            map.insert("kind", kind.kind());
        }
    }
    Ok(Listing {
        objects,
        revision: revision.parse().unwrap_or(0),
        resume: Some(resume).filter(|resume| !resume.is_empty()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_that_does_not_go_on_is_refused() {
        let kinds = Kinds::builtin();
        let kind = kinds.preferred("", "Namespace").unwrap();
        let page = |next: &str| value!({"metadata": {"continue": next, "resourceVersion": "7"}, "items": []});
        assert_eq!(listing(page("b"), kind, Some("a")).unwrap().resume.as_deref(), Some("b"));
        assert_eq!(listing(page(""), kind, None).unwrap().resume, None);
        let stuck = listing(page("a"), kind, Some("a")).unwrap_err();
        assert_eq!(
            stuck.message,
            "cannot list namespaces: the server repeats the same continue token"
        );
    }
}
