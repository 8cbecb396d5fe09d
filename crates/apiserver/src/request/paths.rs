//! Which resource a path means.

use kiln_object::{Kind, Kinds};

use crate::request::decode;
use crate::status::{About, RequestFailure};

/// What a path is about.
#[derive(Clone, Debug)]
pub(crate) enum Route {
    /// Objects of a kind.
    Resource(Box<RequestTarget>),
    /// A group that is not served: there is nothing, not even a `Status`.
    UnknownGroup,
    /// Anything else, by its segments.
    Other(Vec<String>),
}

/// One object, or the objects of a kind.
#[derive(Clone, Debug)]
pub(crate) struct RequestTarget {
    pub(crate) kind: Kind,
    /// Empty for cluster-wide kinds, and for all namespaces.
    pub(crate) namespace: String,
    /// Empty for a collection.
    pub(crate) name: String,
    pub(crate) subresource: String,
    /// The old form of a watch: `/api/v1/watch/...`.
    pub(crate) watch: bool,
}

impl RequestTarget {
    pub(crate) fn about(&self) -> About {
        About::new(self.kind.group(), self.kind.plural(), &self.name)
    }

    /// The same with another name.
    pub(crate) fn about_name(&self, name: &str) -> About {
        About::new(self.kind.group(), self.kind.plural(), name)
    }

    pub(crate) fn api_version(&self) -> String {
        self.kind.gvk().api_version()
    }
}

/// Reads a path.
pub(crate) fn route(path: &str, kinds: &Kinds) -> Result<Route, RequestFailure> {
    let parts: Vec<String> =
        path.split('/').filter(|part| !part.is_empty()).map(|part| decode(part, false)).collect();
    let texts: Vec<&str> = parts.iter().map(String::as_str).collect();
    let (group, version, rest) = match texts.as_slice() {
        ["api", version, rest @ ..] if !rest.is_empty() => ("", *version, rest),
        ["apis", group, version, rest @ ..] if !rest.is_empty() => (*group, *version, rest),
        _ => return Ok(Route::Other(parts)),
    };
    if !kinds.iter().any(|kind| kind.group() == group) {
        return Ok(Route::UnknownGroup);
    }
    let (watch, rest) = match rest {
        ["watch", rest @ ..] if !rest.is_empty() => (true, rest),
        rest => (false, rest),
    };
    let find = |plural: &str| kinds.by_resource(group, version, plural).cloned();
    let (namespace, rest) = match rest {
        // A namespace's own subresources come before what is inside it.
        ["namespaces", _, "status" | "finalize"] => ("", rest),
        ["namespaces", namespace, inner @ ..] if !inner.is_empty() => (*namespace, inner),
        rest => ("", rest),
    };
    let (plural, name, subresource) = match rest {
        [plural] => (*plural, "", String::new()),
        [plural, name] => (*plural, *name, String::new()),
        [plural, name, subresource @ ..] => (*plural, *name, subresource.join("/")),
        [] => return Err(RequestFailure::no_resource()),
    };
    let kind = find(plural).ok_or_else(RequestFailure::no_resource)?;
    if kind.is_namespaced() && namespace.is_empty() && !name.is_empty()
        || !kind.is_namespaced() && !namespace.is_empty()
    {
        return Err(RequestFailure::no_resource());
    }
    let first = subresource.split('/').next().unwrap_or_default();
    if !first.is_empty() && kind.subresource(first).is_none() {
        return Err(RequestFailure::no_resource());
    }
    Ok(Route::Resource(Box::new(RequestTarget {
        kind,
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        subresource,
        watch,
    })))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_say_which_resource_they_mean() {
        let kinds = Kinds::builtin();
        let read = |path: &str| match route(path, &kinds) {
            Ok(Route::Resource(target)) => format!(
                "{} {}/{} {}",
                target.kind.kind(),
                target.namespace,
                target.name,
                target.subresource
            ),
            Ok(Route::UnknownGroup) => "unknown group".to_owned(),
            Ok(Route::Other(parts)) => format!("other {}", parts.len()),
            Err(failure) => failure.code.to_string(),
        };
        for (path, wanted) in [
            ("/api/v1/pods", "Pod / "),
            ("/api/v1/namespaces/a/pods/b/log", "Pod a/b log"),
            ("/api/v1/namespaces/a", "Namespace /a "),
            ("/api/v1/namespaces/a/status", "Namespace /a status"),
            ("/apis/apps/v1/namespaces/a/deployments/b/scale", "Deployment a/b scale"),
            ("/api/v1/watch/namespaces/a/configmaps", "ConfigMap a/ "),
            ("/apis/nope/v1/things", "unknown group"),
            ("/apis/apps/v1/things", "404"),
            ("/apis/apps/v9/deployments", "404"),
            ("/api/v1/namespaces/a/configmaps/b/nope", "404"),
            ("/api/v1/namespaces/a/nodes", "404"),
            ("/api/v1/configmaps/a", "404"),
            ("/api/v1", "other 2"),
            ("/apis/apps/v1", "other 3"),
            ("/healthz", "other 1"),
        ] {
            assert_eq!(read(path), wanted, "{path}");
        }
    }
}
