//! `resource.Get`, `List` and `Post`: objects of the cluster; and `globalContext`.

use std::any::Any;
use std::sync::Arc;

use kiln_value::{Str, Value};

use super::{host_failure, string_pairs};
use crate::error::{EvalFailure, no_such_overload};
use crate::eval::Context;
use crate::host::{Resource, ResourceRef};
use crate::library::{PolicyScope, Registry};
use crate::value::Opaque;
use crate::{Type, Val};

/// A group, version and resource, from `resource.ToGVR`.
#[derive(Debug, PartialEq, Eq)]
struct Gvr(Resource);

impl Opaque for Gvr {
    fn type_name(&self) -> &'static str {
        "kyverno.GVR"
    }
    fn equals(&self, other: &dyn Opaque) -> bool {
        other.as_any().downcast_ref::<Gvr>() == Some(self)
    }
    fn to_text(&self) -> Option<String> {
        Some(format!("{}/{}", self.0.api_version, self.0.resource))
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
}

pub(super) fn register(registry: &mut Registry, scope: &PolicyScope) {
    registry.type_name(Type::opaque("kyverno.GVR"));
    match scope {
        PolicyScope::Cluster => {
            registry.add(
                get,
                &[
                    "(kyverno.Resource).Get(string, string, string, string): map(string, dyn)",
                    "(kyverno.Resource).get(string, string, string, string): map(string, dyn)",
                    "(kyverno.Resource).Get(kyverno.GVR, string, string): map(string, dyn)",
                    "(kyverno.Resource).get(kyverno.GVR, string, string): map(string, dyn)",
                ],
            );
            registry.add(
                list,
                &[
                    "(kyverno.Resource).List(string, string, string): map(string, dyn)",
                    "(kyverno.Resource).list(string, string, string): map(string, dyn)",
                    "(kyverno.Resource).List(string, string, string, map(string, string)): map(string, dyn)",
                    "(kyverno.Resource).list(string, string, string, map(string, string)): map(string, dyn)",
                    "(kyverno.Resource).List(kyverno.GVR, string): map(string, dyn)",
                    "(kyverno.Resource).list(kyverno.GVR, string): map(string, dyn)",
                    "(kyverno.Resource).List(kyverno.GVR, string, map(string, string)): map(string, dyn)",
                    "(kyverno.Resource).list(kyverno.GVR, string, map(string, string)): map(string, dyn)",
                ],
            );
            registry.add(
                post,
                &[
                    "(kyverno.Resource).Post(string, string, string, map(string, dyn)): map(string, dyn)",
                    "(kyverno.Resource).post(string, string, string, map(string, dyn)): map(string, dyn)",
                    "(kyverno.Resource).Post(string, string, map(string, dyn)): map(string, dyn)",
                    "(kyverno.Resource).post(string, string, map(string, dyn)): map(string, dyn)",
                ],
            );
        }
        PolicyScope::Namespace(_) => {
            registry.add(
                get,
                &[
                    "(kyverno.Resource).Get(string, string, string): map(string, dyn)",
                    "(kyverno.Resource).get(string, string, string): map(string, dyn)",
                    "(kyverno.Resource).Get(kyverno.GVR, string): map(string, dyn)",
                    "(kyverno.Resource).get(kyverno.GVR, string): map(string, dyn)",
                ],
            );
            registry.add(
                list,
                &[
                    "(kyverno.Resource).List(string, string): map(string, dyn)",
                    "(kyverno.Resource).list(string, string): map(string, dyn)",
                    "(kyverno.Resource).List(string, string, map(string, string)): map(string, dyn)",
                    "(kyverno.Resource).list(string, string, map(string, string)): map(string, dyn)",
                    "(kyverno.Resource).List(kyverno.GVR): map(string, dyn)",
                    "(kyverno.Resource).list(kyverno.GVR): map(string, dyn)",
                    "(kyverno.Resource).List(kyverno.GVR, map(string, string)): map(string, dyn)",
                    "(kyverno.Resource).list(kyverno.GVR, map(string, string)): map(string, dyn)",
                ],
            );
            registry.add(
                post,
                &[
                    "(kyverno.Resource).Post(string, string, map(string, dyn)): map(string, dyn)",
                    "(kyverno.Resource).post(string, string, map(string, dyn)): map(string, dyn)",
                ],
            );
        }
    }
    registry.add(
        to_gvr,
        &[
            "(kyverno.Resource).ToGVR(string, string): kyverno.GVR",
            "(kyverno.Resource).toGVR(string, string): kyverno.GVR",
        ],
    );
    registry.add(
        global_context,
        &[
            "(kyverno.GlobalContext).Get(string): dyn",
            "(kyverno.GlobalContext).get(string): dyn",
            "(kyverno.GlobalContext).Get(string, string): dyn",
            "(kyverno.GlobalContext).get(string, string): dyn",
        ],
    );
}

/// What a call names, taken from the front of its arguments.
struct ResourceTarget<'a> {
    api_version: &'a str,
    resource: &'a str,
    namespace: Option<Str>,
    rest: &'a [Val],
}

impl<'a> ResourceTarget<'a> {
    /// In a cluster policy the namespace is an argument, unless the call leaves it out.
    fn read(
        context: &Context<'_>,
        args: &'a [Val],
        with_namespace: bool,
    ) -> Result<Self, EvalFailure> {
        let (api_version, resource, mut rest) = match &args[1..] {
            [Val::String(api_version), Val::String(resource), rest @ ..] => {
                (api_version.as_str(), resource.as_str(), rest)
            }
            [gvr, rest @ ..] => {
                let gvr = gvr.as_opaque::<Gvr>().ok_or_else(no_such_overload)?;
                (gvr.0.api_version.as_str(), gvr.0.resource.as_str(), rest)
            }
            [] => return Err(no_such_overload()),
        };
        let namespace = match (&context.scope, rest) {
            (PolicyScope::Namespace(own), _) => Some(own.clone()),
            (PolicyScope::Cluster, [Val::String(namespace), after @ ..]) if with_namespace => {
                rest = after;
                Some(namespace.clone()).filter(|namespace| !namespace.is_empty())
            }
            (PolicyScope::Cluster, _) if with_namespace => return Err(no_such_overload()),
            (PolicyScope::Cluster, _) => None,
        };
        Ok(ResourceTarget { api_version, resource, namespace, rest })
    }

    fn reference(&self) -> ResourceRef<'_> {
        ResourceRef {
            api_version: self.api_version,
            resource: self.resource,
            namespace: self.namespace.as_deref(),
        }
    }
}

/// What a read costs: more than looking at values, less than a search.
const READ_COST: u64 = 1_000;

fn get(context: &mut Context<'_>, args: &[Val]) -> Result<Val, EvalFailure> {
    context.meter.charge(READ_COST)?;
    let target = ResourceTarget::read(context, args, true)?;
    let [Val::String(name)] = target.rest else { return Err(no_such_overload()) };
    let found = context.host.get_resource(&target.reference(), name);
    // Kyverno: what is not there is null, not an error.
    let found = found.map_err(|error| host_failure("get resource", &error))?;
    Ok(found.map_or(Val::Null, Val::from))
}

fn list(context: &mut Context<'_>, args: &[Val]) -> Result<Val, EvalFailure> {
    context.meter.charge(READ_COST)?;
    let target = ResourceTarget::read(context, args, true)?;
    let labels = match target.rest {
        [] => Vec::new(),
        [labels] => string_pairs(labels)?,
        _ => return Err(no_such_overload()),
    };
    let found = context.host.list_resources(&target.reference(), &labels);
    Ok(Val::from(found.map_err(|error| host_failure("list resource", &error))?))
}

fn post(context: &mut Context<'_>, args: &[Val]) -> Result<Val, EvalFailure> {
    context.meter.charge(READ_COST)?;
    let target = ResourceTarget::read(context, args, args.len() == 5)?;
    let [payload] = target.rest else { return Err(no_such_overload()) };
    let payload: Value = context.json(payload)?;
    let created = context.host.post_resource(&target.reference(), payload);
    Ok(Val::from(created.map_err(|error| host_failure("create resource", &error))?))
}

fn to_gvr(context: &mut Context<'_>, args: &[Val]) -> Result<Val, EvalFailure> {
    let [_, Val::String(api_version), Val::String(kind)] = args else {
        return Err(no_such_overload());
    };
    let found = context.host.resource_of_kind(api_version, kind);
    let found = found.map_err(|error| host_failure("map kind to resource", &error))?;
    Ok(Arc::new(Gvr(found)).into())
}

fn global_context(context: &mut Context<'_>, args: &[Val]) -> Result<Val, EvalFailure> {
    context.meter.charge(READ_COST)?;
    let (name, projection) = match args {
        [_, Val::String(name)] => (name, None),
        [_, Val::String(name), Val::String(projection)] => (name, Some(projection.as_str())),
        _ => return Err(no_such_overload()),
    };
    let found = context.host.global_context(name, projection);
    let found = found.map_err(|error| host_failure("get global reference", &error))?;
    Ok(found.map_or(Val::Null, Val::from))
}
