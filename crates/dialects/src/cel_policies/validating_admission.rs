//! Kubernetes' ValidatingAdmissionPolicy and its bindings.
//!
//! A policy becomes one rule for each of its bindings, which may narrow it, and say where its parameters are and what
//! becomes of objects that fail.

use std::sync::Arc;

use kiln_cel::{Env, Type};
use kiln_fields::validating as table;
use kiln_object::Kinds;
use kiln_rules::{
    Actions, ApplyRules, Check, Dialect, Expressions, FailureActions, Origin, Policy, PolicyId,
    Program, Rule, RuleId, Scope, Script, Unmet, Validate,
};
use kiln_value::{Path, Str};
use kiln_yaml::Document;

use super::admission::{self, Binding, BindingTables, param_kind};
use super::constraints::OldLabels;
use super::expressions::{self, ExpectedType};
use super::head::{self, Head, Rules};
use super::mutating::{check_failure_policy, lifecycle};
use super::validating::{judging, validations};
use crate::Compiled;
use crate::document_reader::Report;

static RULES: Rules = Rules {
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
    let kind = head.spec.get("paramKind").and_then(|node| param_kind(&node));
    let base = Env::admission().extend().homogeneous_literals(true);
    let base = match &kind {
        Some(_) => base.variable("params", Type::Dyn).build(),
        None => base.build(),
    };
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
        check: Check::Expressions(Box::new(Expressions {
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
    let id = PolicyId {
        dialect: Dialect::ValidatingAdmissionPolicy,
        namespace: None,
        name: head.name.clone(),
    };
    let origin = Origin::new(report.document().clone(), Path::root());
    let rule = |name: &Str, binding: Option<&Binding>| {
        let params = binding.and_then(|binding| binding.params_of(kind.as_ref(), as_list));
        let actions = binding.and_then(|binding| binding.actions);
        Rule {
            id: RuleId { policy: id.clone(), rule: name.clone() },
            trigger: admission::trigger(&constraints, binding),
            scope: Scope::Cluster,
            context: Vec::new(),
            guard: None,
            script: Some(Arc::new(Script { params, ..script.clone() })),
            program: Program::Validate(Box::new(program(actions.unwrap_or(Actions::DENY)))),
            lifecycle: lifecycle(false),
            report_properties: Vec::new(),
            origin: origin.clone(),
        }
    };
    let bound: Vec<_> = bindings
        .iter()
        .filter(|binding| binding.policy == head.name)
        .map(|binding| Arc::new(rule(&binding.name, Some(binding))))
        .collect();
    let rules = if bound.is_empty() { vec![Arc::new(rule(&head.name, None))] } else { bound };
    Some(Policy {
        api_version: head.api_version.to_string(),
        kind: head.kind.to_string(),
        rules,
        apply: ApplyRules::All,
        origin: origin.clone(),
        id,
    })
}
