//! ValidatingAdmissionPolicies and MutatingAdmissionPolicies of others.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use kiln_cel::{Env, NoHost, Program, Session, Type};
use kiln_patch::apply::{FieldSet, Manager, Managers};
use kiln_patch::{JsonPatch, JsonPatchRules, apply};
use kiln_value::{Str, Value, json};

use super::webhooks::{conditions_hold, covered, request, selected};
use super::{Operation, Review};
use crate::managed::Kinded;
use crate::server::Server;
use crate::status::Failure;
use crate::storage::TableKey;
use crate::types::Typed;

/// How many expressions are kept compiled.
const KEPT: usize = 2000;

/// Expressions that were compiled before.
#[derive(Debug, Default)]
pub(crate) struct Compiled(Mutex<HashMap<Str, Result<Arc<Program>, String>>>);

fn environment() -> Env {
    let mut env = Env::suite().extend();
    for name in ["object", "oldObject", "request", "params", "namespaceObject", "variables"] {
        env = env.variable(name, Type::Dyn);
    }
    env.build()
}

impl Compiled {
    fn get(&self, env: &Env, source: &str) -> Result<Arc<Program>, String> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = kept.get(source) {
            return known.clone();
        }
        if kept.len() >= KEPT {
            kept.clear();
        }
        let compiled = env.compile(source).map(Arc::new).map_err(|error| error.to_string());
        kept.insert(Str::new(source), compiled.clone());
        compiled
    }
}

/// A policy with one of its bindings.
struct Bound {
    policy: Value,
    binding: Value,
    /// Its parameters, or why it cannot be asked.
    params: Result<Value, String>,
}

impl Bound {
    /// Why it fails; none when it is one of those that are passed over then.
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
                    selector
                        .as_ref()
                        .is_none_or(|selector| selector.matches(crate::fields::labels(object)))
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
    let shown = if review.operation == Operation::Delete { Value::Null } else { object.clone() };
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

/// Evaluates the variables of a policy, one after the other; what is wrong with the first that fails. Only
/// expressions that read it fail with it.
fn variables(
    session: &mut Session<'_>,
    env: &Env,
    kept: &Compiled,
    policy: &Value,
) -> Option<String> {
    let mut known = Value::map();
    let mut wrong = None;
    session.set("variables", known.clone());
    let list = policy.get_path(["spec", "variables"]).and_then(Value::as_list);
    for variable in list.into_iter().flat_map(|list| list.iter()) {
        let text = |field: &str| variable.str_at([field]).unwrap_or_default();
        let value = kept.get(env, text("expression")).and_then(|program| {
            let value = session.eval(&program).map_err(|error| error.to_string())?;
            value.to_json(1 << 20).map_err(|error| error.to_string())
        });
        match value {
            Ok(value) => {
                let _ = known.set([text("name")], value);
                session.set("variables", known.clone());
            }
            Err(why) => {
                wrong.get_or_insert_with(|| format!("variable {:?}: {why}", text("name")));
            }
        }
    }
    wrong
}

/// Lets policies refuse what is written.
pub(super) fn check(
    server: &Server,
    review: &Review<'_>,
    object: &Value,
    warnings: &mut Vec<String>,
) -> Result<(), Failure> {
    let all = bound(server, review, object, "validating");
    if all.is_empty() {
        return Ok(());
    }
    let env = environment();
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
            Failure::forbidden(&review.target.about_name(object_name), &words)
        };
        let params = match params {
            Ok(params) => params,
            Err(why) => match bound.failed(why.clone()) {
                Some(why) => return Err(denied(&why)),
                None => continue,
            },
        };
        let mut host = NoHost;
        let mut session = Session::new(&env, &mut host);
        bind(&mut session, server, review, object, params);
        let wrong = variables(&mut session, &env, kept, policy);
        let list = policy.get_path(["spec", "validations"]).and_then(Value::as_list);
        for validation in list.into_iter().flat_map(|list| list.iter()) {
            let source = validation.str_at(["expression"]).unwrap_or_default();
            let outcome = kept.get(&env, source).and_then(|program| {
                session
                    .eval(&program)
                    .map(|value| value.as_bool() == Some(true))
                    .map_err(|error| error.to_string())
            });
            let why = match outcome {
                Ok(true) => continue,
                Ok(false) => {
                    let made = validation.str_at(["messageExpression"]).and_then(|source| {
                        let program = kept.get(&env, source).ok()?;
                        session.eval(&program).ok()?.as_str().map(str::to_owned)
                    });
                    made.or_else(|| validation.str_at(["message"]).map(str::to_owned))
                        .unwrap_or_else(|| format!("failed expression: {source}"))
                }
                Err(error) => {
                    let error = wrong.clone().unwrap_or(error);
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
) -> Result<(), Failure> {
    if review.operation == Operation::Delete {
        return Ok(());
    }
    let all = bound(server, review, object, "mutating");
    if all.is_empty() {
        return Ok(());
    }
    let env = environment().extend().patch_literals().build();
    let kept = &server.admission.policies;
    for bound in all {
        let Bound { policy, params, .. } = &bound;
        let name = policy.str_at(["metadata", "name"]).unwrap_or_default();
        let failed = |object: &Value, why: &str| {
            let words = format!("policy {name:?} failed: {why}");
            let object_name = object.str_at(["metadata", "name"]).unwrap_or_default();
            Failure::forbidden(&review.target.about_name(object_name), &words)
        };
        let params = match params {
            Ok(params) => params,
            Err(why) => match bound.failed(why.clone()) {
                Some(why) => return Err(failed(object, &why)),
                None => continue,
            },
        };
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
                let mut session = Session::new(&env, &mut host);
                bind(&mut session, server, review, object, params);
                let wrong = variables(&mut session, &env, kept, policy);
                env.compile(source)
                    .map_err(|error| error.to_string())
                    .and_then(|program| session.eval(&program).map_err(|error| error.to_string()))
                    .and_then(|value| value.to_json(1 << 20).map_err(|error| error.to_string()))
                    .map_err(|error| wrong.unwrap_or(error))
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

/// Merges an apply configuration into an object, whoever owns what.
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
