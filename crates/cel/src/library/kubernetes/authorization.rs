//! Questions to the authorizer: `authorizer.group('apps').resource('deployments').check('create')`.

use std::any::Any;
use std::sync::Arc;

use crate::env::EnvBuilder;
use crate::error::{EvalFailure, failure, no_such_overload};
use crate::eval::Context;
use crate::host::{Authorization, AuthorizationCheck};
use crate::library::Registry;
use crate::value::Opaque;
use crate::{Type, Val};

const AUTHORIZER: &str = "kubernetes.authorization.Authorizer";
const RESOURCE: &str = "kubernetes.authorization.ResourceCheck";
const REQUEST_RESOURCE: &str = "authorizer.requestResource";

/// A question under construction; which functions apply depends on how far it is.
#[derive(Debug)]
struct AuthorizationQuestion {
    stage: &'static str,
    check: AuthorizationCheck,
}

#[derive(Debug)]
struct Decision(Authorization);

impl Opaque for AuthorizationQuestion {
    fn type_name(&self) -> &'static str {
        self.stage
    }
    fn equals(&self, other: &dyn Opaque) -> bool {
        let other = other.as_any().downcast_ref::<AuthorizationQuestion>();
        other.is_some_and(|other| other.stage == self.stage && other.check == self.check)
    }
    fn to_text(&self) -> Option<String> {
        None
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Opaque for Decision {
    fn type_name(&self) -> &'static str {
        "kubernetes.authorization.Decision"
    }
    fn equals(&self, other: &dyn Opaque) -> bool {
        other.as_any().downcast_ref::<Decision>().is_some_and(|other| other.0 == self.0)
    }
    fn to_text(&self) -> Option<String> {
        None
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
}

pub(super) fn declare(builder: EnvBuilder) -> EnvBuilder {
    let unasked = AuthorizationQuestion { stage: AUTHORIZER, check: AuthorizationCheck::default() };
    builder.constant("authorizer", Type::opaque(AUTHORIZER), Arc::new(unasked).into())
}

/// Declares the question about the request itself, which is bound to what [`request_resource`] gives.
pub(super) fn declare_request_resource(builder: EnvBuilder) -> EnvBuilder {
    builder.variable(REQUEST_RESOURCE, Type::opaque(RESOURCE))
}

/// A question about the resource of a request: what it is, where, and what is done to it.
pub(crate) fn request_resource(check: AuthorizationCheck) -> Val {
    Arc::new(AuthorizationQuestion { stage: RESOURCE, check }).into()
}

pub(super) fn register(registry: &mut Registry) {
    registry.add(
        |_, args| {
            ask(args, "kubernetes.authorization.PathCheck", |check, text| check.path = Some(text))
        },
        &["(kubernetes.authorization.Authorizer).path(string): kubernetes.authorization.PathCheck"],
    );
    registry.add(
        |_, args| ask(args, "kubernetes.authorization.GroupCheck", |check, text| check.group = text),
        &["(kubernetes.authorization.Authorizer).group(string): kubernetes.authorization.GroupCheck"],
    );
    registry.add(
        service_account,
        &["(kubernetes.authorization.Authorizer).serviceAccount(string, string): kubernetes.authorization.Authorizer"],
    );
    registry.add(
        |_, args| ask(args, RESOURCE, |check, text| check.resource = text),
        &["(kubernetes.authorization.GroupCheck).resource(string): kubernetes.authorization.ResourceCheck"],
    );
    registry.add(
        |_, args| ask(args, RESOURCE, |check, text| check.subresource = text),
        &["(kubernetes.authorization.ResourceCheck).subresource(string): kubernetes.authorization.ResourceCheck"],
    );
    registry.add(
        |_, args| ask(args, RESOURCE, |check, text| check.namespace = text),
        &["(kubernetes.authorization.ResourceCheck).namespace(string): kubernetes.authorization.ResourceCheck"],
    );
    registry.add(
        |_, args| ask(args, RESOURCE, |check, text| check.name = text),
        &["(kubernetes.authorization.ResourceCheck).name(string): kubernetes.authorization.ResourceCheck"],
    );
    registry.add(
        |_, args| ask(args, RESOURCE, |check, text| check.field_selector = text),
        &["(kubernetes.authorization.ResourceCheck).fieldSelector(string): kubernetes.authorization.ResourceCheck"],
    );
    registry.add(
        |_, args| ask(args, RESOURCE, |check, text| check.label_selector = text),
        &["(kubernetes.authorization.ResourceCheck).labelSelector(string): kubernetes.authorization.ResourceCheck"],
    );
    registry.add(
        check,
        &[
            "(kubernetes.authorization.PathCheck).check(string): kubernetes.authorization.Decision",
            "(kubernetes.authorization.ResourceCheck).check(string): kubernetes.authorization.Decision",
        ],
    );
    registry.add(
        |_, args| Ok(Val::Bool(decision(args)?.allowed)),
        &["(kubernetes.authorization.Decision).allowed(): bool"],
    );
    registry.add(
        |_, args| Ok(Val::string(&decision(args)?.reason)),
        &["(kubernetes.authorization.Decision).reason(): string"],
    );
    registry.add(
        |_, args| Ok(Val::Bool(decision(args)?.error.is_some())),
        &["(kubernetes.authorization.Decision).errored(): bool"],
    );
    registry.add(
        |_, args| Ok(Val::string(decision(args)?.error.as_deref().unwrap_or_default())),
        &["(kubernetes.authorization.Decision).error(): string"],
    );
}

fn question(value: &Val) -> Result<&AuthorizationQuestion, EvalFailure> {
    value.as_opaque::<AuthorizationQuestion>().ok_or_else(no_such_overload)
}

fn decision(args: &[Val]) -> Result<&Authorization, EvalFailure> {
    args[0].as_opaque::<Decision>().map(|it| &it.0).ok_or_else(no_such_overload)
}

fn ask(
    args: &[Val],
    stage: &'static str,
    set: impl Fn(&mut AuthorizationCheck, String),
) -> Result<Val, EvalFailure> {
    let [receiver, Val::String(text)] = args else { return Err(no_such_overload()) };
    let mut check = question(receiver)?.check.clone();
    set(&mut check, text.to_string());
    Ok(Arc::new(AuthorizationQuestion { stage, check }).into())
}

fn service_account(_: &mut Context<'_>, args: &[Val]) -> Result<Val, EvalFailure> {
    let [receiver, Val::String(namespace), Val::String(name)] = args else {
        return Err(no_such_overload());
    };
    let mut check = question(receiver)?.check.clone();
    check.service_account = Some((namespace.to_string(), name.to_string()));
    Ok(Arc::new(AuthorizationQuestion { stage: AUTHORIZER, check }).into())
}

fn check(context: &mut Context<'_>, args: &[Val]) -> Result<Val, EvalFailure> {
    let [receiver, Val::String(verb)] = args else { return Err(no_such_overload()) };
    // Kubernetes: one check is expensive, it may call out.
    context.meter.charge(350_000)?;
    let mut check = question(receiver)?.check.clone();
    check.verb = verb.to_string();
    let answer = context.host.authorize(&check).map_err(|error| failure(error.message))?;
    Ok(Arc::new(Decision(answer)).into())
}
