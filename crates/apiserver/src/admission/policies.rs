//! ValidatingAdmissionPolicies and MutatingAdmissionPolicies of others.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use kiln_cel::{Env, EvalError, NoHost, Program, Session, Type, Val};
use kiln_patch::apply::{FieldSet, Manager, Managers};
use kiln_patch::{JsonPatch, JsonPatchRules, apply};
use kiln_value::{Str, Value, json};

use super::webhooks::{conditions_hold, covered, request, selected};
use super::{Review, WriteOperation};
use crate::server::Server;
use crate::status::RequestFailure;
use crate::storage::TableKey;
use crate::types::Typed;
use crate::write::decode_mutated;
use crate::write::managed_fields::Kinded;

/// How many expressions are kept compiled.
const KEPT: usize = 2000;

/// What came of compiling an expression.
type CompileResult = Result<Arc<Program>, String>;

/// Expressions that were compiled before, by their language and their text.
#[derive(Debug, Default)]
pub(crate) struct CompiledExpressions(Mutex<HashMap<(Str, Str), CompileResult>>);

impl CompiledExpressions {
    fn get(&self, language: &Language, source: &str) -> CompileResult {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (language.name.clone(), Str::new(source));
        if let Some(known) = kept.get(&key) {
            return known.clone();
        }
        if kept.len() >= KEPT {
            kept.clear();
        }
        let compiled =
            language.env.compile(source).map(Arc::new).map_err(|error| error.to_string());
        kept.insert(key, compiled.clone());
        compiled
    }
}

/// What the expressions of a policy may mention.
struct Language {
    env: Env,
    /// The same for policies whose expressions mean the same.
    name: Str,
}

impl Language {
    /// The language of a policy, with its variables; `patches` may be written where objects are changed.
    fn of(policy: &Value, patches: bool) -> Self {
        let mut env = Env::suite().extend();
        for name in ["object", "oldObject", "request", "params", "namespaceObject"] {
            env = env.variable(name, Type::Dyn);
        }
        let mut known = if patches { "mutating" } else { "validating" }.to_owned();
        for (name, _) in variables(policy) {
            env = env.policy_variable(name, Type::Dyn);
            known.push('\n');
            known.push_str(name);
        }
        let env = if patches { env.patch_literals() } else { env };
        Language { env: env.build(), name: known.into() }
    }
}

/// The variables of a policy: their names and expressions.
fn variables(policy: &Value) -> impl Iterator<Item = (&str, &str)> {
    let list = policy.get_path(["spec", "variables"]).and_then(Value::as_list);
    list.into_iter().flat_map(|list| list.iter()).map(|variable| {
        let text = |field: &str| variable.str_at([field]).unwrap_or_default();
        (text("name"), text("expression"))
    })
}

/// A policy with one of its bindings.
struct Bound {
    policy: Value,
    binding: Value,
    /// Its parameters, or why it cannot be asked.
    params: Result<Value, String>,
}

impl Bound {
    /// Why it fails; none when it is one of those that are skipped then.
    fn failed(&self, why: String) -> Option<String> {
        let ignores = self.policy.str_at(["spec", "failurePolicy"]) == Some("Ignore");
        (!ignores).then_some(why)
    }
}

fn bound(server: &Server, review: &Review<'_>, object: &Value, kind: &str) -> Vec<Bound> {
    if review.target.kind.group() == "admissionregistration.k8s.io" {
        return Vec::new();
    }
    let key = |plural: &str| TableKey::new("admissionregistration.k8s.io", plural);
    let (policies, bindings): (Vec<Value>, Vec<Value>) = {
        let state = server.read();
        let all = |plural: String| -> Vec<Value> {
            let table = state.store.table(&key(&plural));
            table
                .into_iter()
                .flat_map(|table| table.range("", None))
                .map(|(_, object)| object.clone())
                .collect()
        };
        (all(format!("{kind}admissionpolicies")), all(format!("{kind}admissionpolicybindings")))
    };
    let mut found = Vec::new();
    for policy in policies {
        let Some(constraints) = policy.get_path(["spec", "matchConstraints"]) else { continue };
        if !matches(server, review, object, constraints, true) {
            continue;
        }
        let conditions = policy.get_path(["spec", "matchConditions"]);
        let asked = conditions_hold(server, review, object, conditions);
        if asked == Ok(false) {
            continue;
        }
        let name = policy.get_path(["metadata", "name"]);
        for binding in
            bindings.iter().filter(|binding| binding.get_path(["spec", "policyName"]) == name)
        {
            let narrows = binding.get_path(["spec", "matchResources"]);
            if narrows.is_some_and(|narrows| !matches(server, review, object, narrows, false)) {
                continue;
            }
            let params = asked.clone().and_then(|_| parameters(server, review, &policy, binding));
            let bound = |params| Bound { policy: policy.clone(), binding: binding.clone(), params };
            match params {
                Ok(all) => found.extend(all.into_iter().map(|params| bound(Ok(params)))),
                Err(why) => found.push(bound(Err(why))),
            }
        }
    }
    found
}

fn matches(
    server: &Server,
    review: &Review<'_>,
    object: &Value,
    constraints: &Value,
    needs_rules: bool,
) -> bool {
    let rules = constraints
        .get("resourceRules")
        .filter(|rules| rules.as_list().is_some_and(|list| !list.is_empty()));
    let wanted = match rules {
        Some(rules) => covered(review, Some(rules)),
        None => !needs_rules,
    };
    wanted
        && !covered(review, constraints.get("excludeResourceRules"))
        && selected(server, review, object, constraints)
}

/// The parameters of a binding: one object, or many, or none at all.
fn parameters(
    server: &Server,
    review: &Review<'_>,
    policy: &Value,
    binding: &Value,
) -> Result<Vec<Value>, String> {
    let Some(kind) = policy.get_path(["spec", "paramKind"]).filter(|kind| !kind.is_null()) else {
        return Ok(vec![Value::Null]);
    };
    let reference = binding.get_path(["spec", "paramRef"]).cloned().unwrap_or_default();
    let state = server.read();
    let gvk = kiln_object::Gvk::new(
        kind.str_at(["apiVersion"]).unwrap_or_default(),
        kind.str_at(["kind"]).unwrap_or_default(),
    );
    let Some(known) = state.kinds.get(&gvk) else {
        let (version, kind) = (gvk.api_version(), &gvk.kind);
        return Err(format!(
            "failed to configure policy: failed to find resource referenced by paramKind: '{version}, Kind={kind}'"
        ));
    };
    let key = TableKey::new(known.group(), known.plural());
    let namespace = match (known.is_namespaced(), reference.str_at(["namespace"])) {
        (false, _) => "",
        (true, Some(namespace)) => namespace,
        (true, None) => &review.target.namespace,
    };
    let found: Vec<Value> = match reference.str_at(["name"]) {
        Some(name) => state.store.get(&key, namespace, name).cloned().into_iter().collect(),
        None => {
            let selector = reference
                .get("selector")
                .and_then(|selector| kiln_object::Selector::from_value(selector).ok());
            let table =
                state.store.table(&key).into_iter().flat_map(|table| table.range(namespace, None));
            table
                .map(|(_, object)| object.clone())
                .filter(|object| {
                    selector.as_ref().is_none_or(|selector| {
                        selector.matches(crate::read::field_selector::labels(object))
                    })
                })
                .collect()
        }
    };
    if found.is_empty() && reference.str_at(["parameterNotFoundAction"]) != Some("Allow") {
        return Err("failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction".to_owned());
    }
    Ok(found)
}

/// Binds what expressions may mention.
fn bind(
    session: &mut Session<'_>,
    server: &Server,
    review: &Review<'_>,
    object: &Value,
    params: &Value,
) {
    let shown =
        if review.operation == WriteOperation::Delete { Value::Null } else { object.clone() };
    session.set("object", shown);
    session.set("oldObject", review.old.cloned().unwrap_or_default());
    session.set("request", request(server, review, object, ""));
    session.set("params", params.clone());
    let namespace = server
        .read()
        .store
        .get(&TableKey::new("", "namespaces"), "", &review.target.namespace)
        .cloned();
    session.set("namespaceObject", namespace.unwrap_or_default());
}

/// The expressions of a policy at work on one object. A variable is evaluated when it is first read: who does not read
/// it does not fail with it.
struct Expressions<'s, 'h> {
    session: Session<'h>,
    language: &'s Language,
    kept: &'s CompiledExpressions,
    /// Variables whose expressions cannot be compiled, and why.
    broken: Vec<(&'s str, String)>,
}

impl<'s, 'h> Expressions<'s, 'h> {
    fn new(
        session: Session<'h>,
        language: &'s Language,
        kept: &'s CompiledExpressions,
        policy: &'s Value,
    ) -> Self {
        let mut all = Expressions { session, language, kept, broken: Vec::new() };
        for (name, source) in variables(policy) {
            match kept.get(language, source) {
                Ok(program) => all.session.set_policy_variable(name, (*program).clone()),
                Err(why) => all.broken.push((name, why)),
            }
        }
        all
    }

    fn eval(&mut self, source: &str) -> Result<Val, String> {
        let program = self.kept.get(self.language, source)?;
        self.session.eval(&program).map_err(|error| self.words(&error))
    }

    // Kubernetes: the variable that fails is named before what is wrong with it.
    fn words(&self, error: &EvalError) -> String {
        let failed = |name: &str, why: &str| {
            format!("composited variable {name:?} fails to evaluate: {why}")
        };
        let unset = error.message.strip_prefix("no such attribute(s): variables.");
        if let Some((name, why)) = self.broken.iter().find(|(name, _)| Some(*name) == unset) {
            return failed(name, why);
        }
        match error.variable.as_deref() {
            Some(slot) => failed(slot.strip_prefix("variables.").unwrap_or(slot), &error.message),
            None => error.to_string(),
        }
    }
}

/// Lets policies refuse what is written.
pub(super) fn check(
    server: &Server,
    review: &Review<'_>,
    object: &Value,
    warnings: &mut Vec<String>,
) -> Result<(), RequestFailure> {
    let all = bound(server, review, object, "validating");
    if all.is_empty() {
        return Ok(());
    }
    let kept = &server.admission.policies;
    for bound in all {
        let Bound { policy, binding, params } = &bound;
        let name = policy.str_at(["metadata", "name"]).unwrap_or_default();
        let binding_name = binding.str_at(["metadata", "name"]).unwrap_or_default();
        let object_name = object.str_at(["metadata", "name"]).unwrap_or(&review.target.name);
        let denied = |why: &str| {
            let words = format!(
                "ValidatingAdmissionPolicy '{name}' with binding '{binding_name}' denied request: {why}"
            );
            RequestFailure::forbidden(&review.target.about_name(object_name), &words)
        };
        let params = match params {
            Ok(params) => params,
            Err(why) => match bound.failed(why.clone()) {
                Some(why) => return Err(denied(&why)),
                None => continue,
            },
        };
        let mut host = NoHost;
        let language = Language::of(policy, false);
        let mut session = Session::new(&language.env, &mut host);
        bind(&mut session, server, review, object, params);
        let mut expressions = Expressions::new(session, &language, kept, policy);
        let list = policy.get_path(["spec", "validations"]).and_then(Value::as_list);
        for validation in list.into_iter().flat_map(|list| list.iter()) {
            let source = validation.str_at(["expression"]).unwrap_or_default();
            let outcome = expressions.eval(source);
            let why = match outcome.map(|value| value.as_bool() == Some(true)) {
                Ok(true) => continue,
                Ok(false) => {
                    let made = validation.str_at(["messageExpression"]).and_then(|source| {
                        expressions.eval(source).ok()?.as_str().map(str::to_owned)
                    });
                    made.or_else(|| validation.str_at(["message"]).map(str::to_owned))
                        .unwrap_or_else(|| format!("failed expression: {source}"))
                }
                Err(error) => {
                    let why = format!("expression '{source}' resulted in error: {error}");
                    match bound.failed(why) {
                        Some(why) => why,
                        None => continue,
                    }
                }
            };
            let actions = binding.get_path(["spec", "validationActions"]).and_then(Value::as_list);
            let actions: Vec<&str> = actions
                .into_iter()
                .flat_map(|list| list.iter())
                .filter_map(Value::as_str)
                .collect();
            if actions.contains(&"Warn") {
                warnings.push(format!("Validation failed for ValidatingAdmissionPolicy '{name}' with binding '{binding_name}': {why}"));
            }
            if actions.contains(&"Deny") {
                let mut failure = denied(&why);
                let (code, reason) = match validation.str_at(["reason"]) {
                    Some("Unauthorized") => (401, "Unauthorized"),
                    Some("Forbidden") => (403, "Forbidden"),
                    Some("RequestEntityTooLarge") => (413, "RequestEntityTooLarge"),
                    _ => (422, "Invalid"),
                };
                (failure.code, failure.reason) = (code, reason);
                return Err(failure);
            }
        }
    }
    Ok(())
}

/// Lets policies change what is written.
pub(super) fn change(
    server: &Server,
    review: &Review<'_>,
    object: &mut Value,
) -> Result<(), RequestFailure> {
    if review.operation == WriteOperation::Delete {
        return Ok(());
    }
    let all = bound(server, review, object, "mutating");
    if all.is_empty() {
        return Ok(());
    }
    let kept = &server.admission.policies;
    for bound in all {
        let Bound { policy, params, .. } = &bound;
        let name = policy.str_at(["metadata", "name"]).unwrap_or_default();
        let failed = |object: &Value, why: &str| {
            let words = format!("policy {name:?} failed: {why}");
            let object_name = object.str_at(["metadata", "name"]).unwrap_or_default();
            RequestFailure::forbidden(&review.target.about_name(object_name), &words)
        };
        let params = match params {
            Ok(params) => params,
            Err(why) => match bound.failed(why.clone()) {
                Some(why) => return Err(failed(object, &why)),
                None => continue,
            },
        };
        let language = Language::of(policy, true);
        let list = policy
            .get_path(["spec", "mutations"])
            .and_then(Value::as_list)
            .map(|list| list.to_vec());
        for mutation in list.unwrap_or_default() {
            let source = mutation
                .str_at(["applyConfiguration", "expression"])
                .or_else(|| mutation.str_at(["jsonPatch", "expression"]))
                .unwrap_or_default();
            let made = {
                let mut host = NoHost;
                let mut session = Session::new(&language.env, &mut host);
                bind(&mut session, server, review, object, params);
                let mut expressions = Expressions::new(session, &language, kept, policy);
                expressions
                    .eval(source)
                    .and_then(|value| value.to_json(1 << 20).map_err(|error| error.to_string()))
            };
            let changed = made.and_then(|made| {
                if mutation.get("jsonPatch").is_some_and(|patch| !patch.is_null()) {
                    let patch = JsonPatch::parse(&made, JsonPatchRules::kubernetes())
                        .map_err(|error| error.to_string())?;
                    let mut next = object.clone();
                    patch.apply(&mut next).map_err(|error| error.to_string())?;
                    Ok(next)
                } else {
                    merge(server, review, object, &made)
                }
            });
            let changed = changed.and_then(|next| {
                let decoded = decode_mutated(server, review.target, object, next);
                decoded.map_err(|failure| failure.message)
            });
            match changed {
                Ok(next) => *object = next,
                Err(why) => {
                    if let Some(why) = bound.failed(why) {
                        return Err(failed(object, &why));
                    }
                }
            }
        }
    }
    Ok(())
}

/// Merges an apply configuration into an object, regardless of field owners.
fn merge(
    server: &Server,
    review: &Review<'_>,
    object: &Value,
    applied: &Value,
) -> Result<Value, String> {
    let gvk = review.target.kind.gvk();
    let kinded = Kinded::of(&server.read(), &gvk).ok_or("its type is not known")?;
    let mut managers = Managers::default();
    let manager = Manager::apply("admission-policy", &gvk.api_version(), "");
    let none = FieldSet::default();
    let merged = match &kinded {
        Kinded::Builtin(id) => {
            apply::apply(object, applied, &Typed::root(*id), &mut managers, &manager, &none, true)
        }
        Kinded::Custom(shape) => {
            apply::apply(object, applied, shape, &mut managers, &manager, &none, true)
        }
    };
    merged.map_err(|error| match error {
        apply::ApplyError::Type(why) => format!("{why} in {}", json::to_string(applied)),
        apply::ApplyError::Conflicts(_) => "conflicts".to_owned(),
    })
}
