//! Kubernetes' ValidatingAdmissionPolicy and its bindings.
//!
//! A policy becomes one rule for each of its bindings, which may narrow it, and say where its parameters are and what
//! becomes of objects that fail.

use kiln_fields::validating as table;
use kiln_object::Kinds;
use kiln_rules::{
    Actions, Dialect, Expressions, FailureActions, Policy, Program, Unmet, Validate, ValidateCheck,
};
use kiln_value::Str;
use kiln_yaml::Document;

use super::admission::{self, Binding, BindingTables, Bound};
use super::constraints::OldLabels;
use super::expressions::{self, ExpectedType};
use super::head::{self, Head, PolicyKindRules};
use super::mutating::check_failure_policy;
use super::validating::{judging, validations};
use crate::Compiled;
use crate::document_reader::Report;

static RULES: PolicyKindRules = PolicyKindRules {
    document: &table::VALIDATING_ADMISSION_POLICY,
    spec: &table::VALIDATING_ADMISSION_SPEC,
    versions: &["v1", "v1beta1", "v1alpha1"],
    namespaced_versions: &[],
};
static BINDING: BindingTables =
    BindingTables { document: &table::VALIDATING_BINDING, spec: &table::VALIDATING_BINDING_SPEC };

/// Compiles policies with those of the bindings that name them. Without a binding a policy acts everywhere, as in
/// Kyverno's command line.
pub(crate) fn compile(
    policies: &[&Document],
    bindings: &[&Document],
    kinds: &Kinds,
    compiled: &mut Compiled,
) {
    let read = admission::bindings(bindings, &BINDING, kinds, compiled);
    for document in policies {
        head::compile(document, compiled, &RULES, |head, report| {
            policy(head, report, &read, kinds)
        });
    }
}

fn policy(
    head: &Head<'_, '_>,
    report: &Report<'_>,
    bindings: &[Binding],
    kinds: &Kinds,
) -> Option<Policy> {
    let constraints = head.constraints(kinds, OldLabels::Count);
    check_failure_policy(&head.spec);
    let (params, base) = admission::environment(head);
    // Kubernetes: conditions do not see the values.
    let conditions =
        expressions::named(&base, head.spec.get("matchConditions"), ExpectedType::Bool);
    let (variables, env) = head.variables(&base);
    let found = validations(head.spec.get("validations"), &env, None);
    let annotations = head.annotations(&env);
    if found.is_empty() && annotations.is_empty() && !report.has_errors() {
        head.spec.error(
            "spec.validations: Required value: validations or auditAnnotations must contain at \
             least one item",
            Some("add a validation with an expression".into()),
        );
    }
    let program = |actions: Actions| Validate {
        check: ValidateCheck::Expressions(Box::new(Expressions {
            validations: found.clone(),
            errors_fail: false,
            ignores_errors: head.spec.text("failurePolicy").as_deref() == Some("Ignore"),
            any_message: false,
            numbered: false,
            passed: Str::default(),
            unmet: "match conditions aren't met",
        })),
        message: None,
        on_failure: FailureActions { overrides: Vec::new(), usual: actions },
        allows_existing: false,
        scored: true,
    };
    let script = head::script(env, variables, conditions, annotations, Unmet::Skip);
    let script = judging(script, &program(Actions::DENY));
    let of_checks = program(Actions::DENY);
    let of_checks = of_checks.expressions();
    // Kyverno's command line gives all objects that a selector finds as one list.
    let as_list = head::sources(&script)
        .chain(of_checks.iter().map(|expression| expression.program.source()))
        .any(|text| text.contains("params.items"));
    let constraints = constraints?;
    let bound = Bound { constraints: &constraints, params, as_list, script, bindings };
    Some(bound.policy(head, report, Dialect::ValidatingAdmissionPolicy, |binding| {
        let actions = binding.and_then(|binding| binding.actions);
        Program::Validate(Box::new(program(actions.unwrap_or(Actions::DENY))))
    }))
}
