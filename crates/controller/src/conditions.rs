//! The conditions that a policy sets for its webhook, where nobody asks a webhook.
//!
//! An API server calls a webhook only for requests that meet `webhookConfiguration.matchConditions`, so a change
//! that a watch tells of counts only if they hold for it. Those that ask for the request itself can be decided
//! only when the request is known.

use kiln_cel::{Env, NoHost, Program, Session, Type, Val};
use kiln_engine::Event;
use kiln_rules::{Dialect, Operation, Policy, Rule};
use kiln_value::{Map, Value};

use crate::controller::Controller;

/// The conditions of a policy.
#[derive(Clone, Debug)]
pub(crate) struct Conditions {
    env: Env,
    /// Those that can be evaluated here.
    programs: Vec<Program>,
    /// Some ask for the request, or for what only the API server knows.
    pub(crate) ask_for_request: bool,
}

impl Conditions {
    /// The conditions of a policy; none when it sets none.
    pub(crate) fn of(policy: &Policy) -> Option<Self> {
        if policy.id.dialect != Dialect::Kyverno {
            // Policies in CEL have theirs in their rules.
            return None;
        }
        let path = ["spec", "webhookConfiguration", "matchConditions"];
        let written = policy.origin.document().value().get_path(path)?.as_list()?;
        if written.is_empty() {
            return None;
        }
        let env = Env::suite()
            .extend()
            .variable("object", Type::Dyn)
            .variable("oldObject", Type::Dyn)
            .variable("request", Type::Dyn)
            .build();
        let mut ask_for_request = false;
        let mut programs = Vec::new();
        for text in written.iter().filter_map(|condition| condition.str_at(["expression"])) {
            match env.compile_as(text, &[Type::Bool]) {
                Ok(program) => {
                    ask_for_request |= text.contains("request");
                    programs.push(program);
                }
                // The API server decides about it, and tells only of what meets it.
                Err(_) => ask_for_request = true,
            }
        }
        Some(Conditions { env, programs, ask_for_request })
    }

    /// Whether they hold. One that fails does not: then the API server calls nobody either.
    fn hold(&self, event: &Event) -> bool {
        let mut host = NoHost;
        let mut session = Session::new(&self.env, &mut host);
        let object = |object: &Option<Value>| object.clone().unwrap_or(Value::Null);
        session.set("object", object(&event.object));
        session.set("oldObject", object(&event.old_object));
        session.set("request", request(event));
        self.programs.iter().all(|program| {
            matches!(session.eval(program).as_ref().map(Val::as_bool), Ok(Some(true)))
        })
    }
}

/// What conditions see of a request.
fn request(event: &Event) -> Value {
    let mut kind = Map::new();
    kind.insert("group", event.kind.group.clone());
    kind.insert("version", event.kind.version.clone());
    kind.insert("kind", event.kind.kind.clone());
    let mut user = Map::new();
    if let Some(who) = &event.user {
        user.insert("username", who.username.clone());
        user.insert("uid", who.uid.clone());
        user.insert("groups", Value::from_iter(who.groups.iter().cloned()));
    }
    let mut request = Map::new();
    request.insert("kind", kind);
    request.insert("subResource", event.subresource.clone());
    request.insert("name", event.name.clone());
    request.insert("namespace", event.namespace.clone().unwrap_or_default());
    request.insert("operation", event.operation.map(Operation::as_str).unwrap_or_default());
    request.insert("userInfo", user);
    request.insert("dryRun", event.dry_run);
    Value::Map(request)
}

impl Controller {
    fn conditions_of(&self, rule: &Rule) -> Option<&Conditions> {
        self.held(rule)?.conditions.as_ref()
    }

    /// Whether a rule can only be decided about when the request is known.
    pub(crate) fn asks_for_request(&self, rule: &Rule) -> bool {
        rule.trigger.asks_for_user()
            || self.conditions_of(rule).is_some_and(|conditions| conditions.ask_for_request)
    }

    /// Whether the webhook of a rule's policy would be called for what happened. For objects that were there before,
    /// nobody would have asked.
    pub(crate) fn would_be_asked(&self, rule: &Rule, event: &Event) -> bool {
        event.operation.is_none()
            || self.conditions_of(rule).is_none_or(|conditions| conditions.hold(event))
    }
}
