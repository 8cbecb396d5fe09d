//! `validate.cel` of Kyverno's rules.

use kiln_cel::{Env, Type};
use kiln_fields::validating::CEL_RULE;
use kiln_object::Gvk;
use kiln_rules::{Expressions, Params, Script, Unmet, ValidateCheck};
use kiln_value::Str;

use super::admission::{param_kind, param_ref};
use super::expressions::{self, ExpectedType};
use super::head;
use super::object_literals;
use super::validating::{EXPRESSION_COST, validations};
use crate::document_reader::DocumentNode;

/// Warns about fields of the trigger that expressions read, and that none of these kinds has.
pub(crate) fn check_reads(node: &DocumentNode<'_, '_>, script: &Script, kinds: &[Gvk]) {
    let Some(fields) = node.any_fields() else { return };
    for list in ["variables", "expressions"] {
        object_literals::check_reads_of(fields.get(list), &script.env, kinds);
    }
}

/// Compiles `validate.cel` of a rule, with its `celPreconditions`.
pub(crate) fn compile(
    node: &DocumentNode<'_, '_>,
    preconditions: Option<DocumentNode<'_, '_>>,
    message: Option<&Str>,
    rule: &str,
) -> Option<(ValidateCheck, Script)> {
    let fields = node.fields(&CEL_RULE)?;
    let kind = fields.get("paramKind");
    let reference = fields.get("paramRef");
    // Kyverno's words.
    match (&kind, &reference) {
        (Some(kind), None) => kind.error_with("cel.paramRef is required", "add paramRef"),
        (None, Some(reference)) => {
            reference.error_with("cel.paramKind is required", "add paramKind");
        }
        _ => {}
    }
    if let Some(reference) = &reference
        && reference.value.get("parameterNotFoundAction").is_none()
    {
        reference.error_with(
            "cel.paramRef.parameterNotFoundAction is required",
            "write `parameterNotFoundAction: Deny` or Allow",
        );
    }
    let params = match (kind, reference) {
        (Some(kind), Some(reference)) => {
            let kind = param_kind(&kind);
            let (find, namespace, missing) = param_ref(&reference)?;
            Some(Params { kind: kind?, find, namespace, missing, as_list: false })
        }
        _ => None,
    };
    let base = Env::admission().extend().homogeneous_literals(true);
    let base = match &params {
        Some(_) => base.variable("params", Type::Dyn).build(),
        None => base.build(),
    };
    let conditions = expressions::named(&base, preconditions, ExpectedType::Bool);
    let (variables, env) = head::variables(fields.get("variables"), &base);
    let validations = validations(fields.get("expressions"), &env, message);
    // Kyverno compiles them, and drops what they give.
    head::annotations(fields.get("auditAnnotations"), &env);
    let asks = |word: &str| {
        let mut of_checks = validations.iter().flat_map(|one| {
            [Some(&one.expression), one.message_expression.as_ref()].into_iter().flatten()
        });
        of_checks.any(|expression| expression.program.source().contains(word))
    };
    let (asks_for_namespace, asks_for_user) = (asks("namespaceObject"), asks("userInfo"));
    let script = head::script(env, variables, conditions, Vec::new(), Unmet::Skip);
    let script = Script {
        asks_for_namespace: script.asks_for_namespace || asks_for_namespace,
        asks_for_user: script.asks_for_user || asks_for_user,
        params,
        expression_cost: Some(EXPRESSION_COST),
        supposes_namespace: true,
        ..script
    };
    let check = ValidateCheck::Expressions(Box::new(Expressions {
        validations,
        errors_fail: true,
        ignores_errors: false,
        any_message: false,
        numbered: false,
        passed: format!("Validation rule '{rule}' passed.").into(),
        unmet: "cel preconditions not met",
    }));
    Some((check, script))
}
