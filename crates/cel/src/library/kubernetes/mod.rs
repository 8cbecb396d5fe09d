//! The libraries of Kubernetes: quantities, versions, URLs, formats, authorization; and the types of
//! the variables that admission binds.
//!
//! Lists, regular expressions and addresses lie with their cousins of the language itself.

mod authorization;
mod formats;
mod quantity;
mod semver;
mod url;

use kiln_value::Str;

pub(crate) use self::authorization::request_resource;

use super::Registry;
use crate::Type;
use crate::env::{EnvBuilder, Structure};

pub(super) fn register(registry: &mut Registry) {
    register_values(registry);
    authorization::register(registry);
}

/// Registers what only looks at values.
pub(super) fn register_values(registry: &mut Registry) {
    quantity::register(registry);
    semver::register(registry);
    url::register(registry);
    formats::register(registry);
}

/// Declares `authorizer.requestResource`.
pub(super) fn declare_request_resource(builder: EnvBuilder) -> EnvBuilder {
    authorization::declare_request_resource(builder)
}

/// Declares `object`, `oldObject`, `request` (with some further fields), `namespaceObject` and `authorizer` with their
/// types.
pub(super) fn declare(builder: EnvBuilder, further: &[(&'static str, Type)]) -> EnvBuilder {
    let text = || Type::String;
    let message = |name: &'static str| Type::Struct(Str::new_static(name));
    let strings = || Type::list(Type::String);
    let labels = || Type::map(Type::String, Type::String);
    let kind = [("group", text()), ("version", text()), ("kind", text())];
    let resource = [("group", text()), ("version", text()), ("resource", text())];
    let user = [
        ("username", text()),
        ("uid", text()),
        ("groups", strings()),
        ("extra", Type::map(Type::String, strings())),
    ];
    let request = [
        ("kind", message("kubernetes.GroupVersionKind")),
        ("requestKind", message("kubernetes.GroupVersionKind")),
        ("resource", message("kubernetes.GroupVersionResource")),
        ("requestResource", message("kubernetes.GroupVersionResource")),
        ("subResource", text()),
        ("requestSubResource", text()),
        ("name", text()),
        ("namespace", text()),
        ("operation", text()),
        ("uid", text()),
        ("userInfo", message("kubernetes.UserInfo")),
        ("dryRun", Type::Bool),
        ("options", Type::Dyn),
    ];
    let request = request.into_iter().chain(further.iter().cloned());
    let metadata = [
        ("name", text()),
        ("generateName", text()),
        ("namespace", text()),
        ("labels", labels()),
        ("annotations", labels()),
        ("UID", text()),
        ("creationTimestamp", Type::Timestamp),
        ("deletionTimestamp", Type::Timestamp),
        ("deletionGracePeriodSeconds", Type::Int),
        ("generation", Type::Int),
        ("resourceVersion", text()),
        ("finalizers", strings()),
    ];
    let condition = [
        ("type", text()),
        ("status", text()),
        ("lastTransitionTime", Type::Timestamp),
        ("message", text()),
        ("reason", text()),
    ];
    let status =
        [("phase", text()), ("conditions", Type::list(message("kubernetes.NamespaceCondition")))];
    let namespace = [
        ("metadata", message("kubernetes.NamespaceMetadata")),
        ("spec", message("kubernetes.NamespaceSpec")),
        ("status", message("kubernetes.NamespaceStatus")),
    ];
    let builder = builder
        .structure("kubernetes.GroupVersionKind", Structure::new(kind))
        .structure("kubernetes.GroupVersionResource", Structure::new(resource))
        .structure("kubernetes.UserInfo", Structure::new(user))
        .structure("kubernetes.AdmissionRequest", Structure::new(request))
        .structure("kubernetes.NamespaceMetadata", Structure::new(metadata))
        .structure("kubernetes.NamespaceSpec", Structure::new([("finalizers", strings())]))
        .structure("kubernetes.NamespaceCondition", Structure::new(condition))
        .structure("kubernetes.NamespaceStatus", Structure::new(status))
        .structure("kubernetes.Namespace", Structure::new(namespace))
        .variable("object", Type::Dyn)
        .variable("oldObject", Type::Dyn)
        .variable("request", message("kubernetes.AdmissionRequest"))
        .variable("namespaceObject", message("kubernetes.Namespace"));
    authorization::declare(builder)
}
