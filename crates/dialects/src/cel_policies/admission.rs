//! Kubernetes' MutatingAdmissionPolicy and its bindings.
//!
//! A policy becomes one rule for each of its bindings, which may narrow it and say where its parameters
//! are.

use std::sync::Arc;

use kiln_cel::{Env, Type};
use kiln_fields::{FieldTable, policies as table};
use kiln_object::{Gvk, Kinds, Selector};
use kiln_rules::{
    Actions, ApplyRules, Dialect, Filters, FindParams, MissingParams, Mutate, Mutation, Origin,
    Params, Policy, PolicyId, Program, Rule, RuleId, Scope, Script, Trigger, Unmet, WebhookFamily,
};
use kiln_value::{Path, Str, Value};
use kiln_yaml::Document;

use super::constraints::{self, ConstraintOwner, Constraints, OldLabels};
use super::delivery::{self, VariantGuard};
use super::expressions::{self, ExpectedType};
use super::head::{self, Head, PolicyKindRules};
use super::mutating::{check_failure_policy, lifecycle, mutations};
use super::{request_facts, validating};
use crate::Compiled;
use crate::delivery::{background, report_words};
use crate::document_reader::{DocumentFields, DocumentNode, Report};
use crate::generated_object_fields;

static RULES: PolicyKindRules = PolicyKindRules {
    document: &table::ADMISSION_POLICY,
    spec: &table::ADMISSION_SPEC,
    versions: &["v1", "v1beta1", "v1alpha1"],
    namespaced_versions: &[],
};

/// A binding, as it was written.
pub(super) struct Binding {
    pub(super) name: Str,
    pub(super) policy: Str,
    pub(super) params: Option<ParamRef>,
    pub(super) narrow_include: Option<Constraints>,
    /// What becomes of objects that fail, where that is said.
    pub(super) actions: Option<Actions>,
}

/// The fields of a kind of bindings.
pub(super) struct BindingTables {
    pub(super) document: &'static FieldTable,
    pub(super) spec: &'static FieldTable,
}

/// Which parameters are meant, where they are, and what it means that there are none.
pub(super) type ParamRef = (FindParams, Option<Str>, MissingParams);

impl Binding {
    /// The parameters of this kind that the binding means; all at once where expressions want a list.
    fn params_of(&self, kind: Option<&Gvk>, as_list: bool) -> Option<Params> {
        let ((find, namespace, missing), kind) = self.params.clone().zip(kind.cloned())?;
        Some(Params { kind, find, namespace, missing, as_list })
    }
}

/// What fires a rule with these constraints, as its binding narrows them.
fn trigger(constraints: &Constraints, binding: Option<&Binding>) -> Trigger {
    let narrow_include = binding.and_then(|binding| binding.narrow_include.as_ref());
    Trigger {
        narrow_include: narrow_include.map(|narrow_include| narrow_include.include.clone()),
        narrow_exclude: narrow_include
            .map_or(Filters::NONE, |narrow_include| narrow_include.exclude.clone()),
        ..Trigger::of(constraints.include.clone(), constraints.exclude.clone())
    }
}

/// Reads bindings; those with errors are left out.
pub(super) fn bindings(
    documents: &[&Document],
    tables: &BindingTables,
    kinds: &Kinds,
    compiled: &mut Compiled,
) -> Vec<Binding> {
    let mut read = Vec::new();
    for document in documents {
        let report = Report::new(document);
        let found = binding(&report, tables, kinds);
        if !report.has_errors() {
            read.extend(found);
        }
        compiled.diagnostics.extend(report.finish());
    }
    read
}

/// Compiles policies with those of the bindings that name them. Without a binding a policy acts
/// everywhere, as in Kyverno's command line.
pub(crate) fn compile(
    policies: &[&Document],
    bindings: &[&Document],
    kinds: &Kinds,
    compiled: &mut Compiled,
) {
    let tables = BindingTables { document: &table::BINDING, spec: &table::BINDING_SPEC };
    let read = self::bindings(bindings, &tables, kinds, compiled);
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
    if head.spec.text("reinvocationPolicy").is_none() {
        head.spec.error(
            "spec.reinvocationPolicy: Required value",
            Some("write `reinvocationPolicy: Never` or IfNeeded".into()),
        );
    }
    check_failure_policy(&head.spec);
    let (params, base) = environment(head);
    // Kubernetes: conditions do not see the values.
    let conditions =
        expressions::named(&base, head.spec.get("matchConditions"), ExpectedType::Bool);
    let (variables, env) = head.variables(&base);
    let patched =
        constraints.as_ref().and_then(|it| generated_object_fields::filtered(&it.include, kinds));
    let steps = mutations(&head.spec, &env, false, &patched.unwrap_or_default());
    if steps.is_empty() && !report.has_errors() {
        head.spec.error(
            "spec.mutations: Required value: mutations must contain at least one item",
            Some("add one".into()),
        );
    }
    let script = head::script(env, variables, conditions, Vec::new(), Unmet::Skip);
    let texts: Vec<&str> = head::sources(&script)
        .chain(steps.iter().map(|step| step.expression.program.source()))
        .collect();
    let asks_for_namespace = script.asks_for_namespace
        || steps.iter().any(|step| head::asks_for_namespace(&step.expression));
    // Kyverno's command line gives all objects that a selector finds as one list.
    let as_list = texts.iter().any(|text| text.contains("params.items"));
    let script = Script { asks_for_namespace, renew_for_each_patch: true, ..script };
    let constraints = constraints?;
    let bound = Bound { constraints: &constraints, params, as_list, script, bindings };
    Some(bound.policy(head, report, Dialect::MutatingAdmissionPolicy, |_| {
        Program::Mutate(Mutate {
            targets: None,
            change: Mutation::Steps(steps.clone()),
            pass_unchanged: true,
        })
    }))
}

/// The kind of a policy's parameters, and what its expressions know.
pub(super) fn environment(head: &Head<'_, '_>) -> (Option<Gvk>, Env) {
    let kind = head.spec.get("paramKind").and_then(|node| param_kind(&node));
    let base = Env::admission().extend().homogeneous_literals(true);
    let base = match &kind {
        Some(_) => base.variable("params", Type::Dyn).build(),
        None => base.build(),
    };
    (kind, base)
}

/// What becomes a rule for each binding.
pub(super) struct Bound<'b> {
    pub(super) constraints: &'b Constraints,
    /// The kind of the parameters.
    pub(super) params: Option<Gvk>,
    /// Expressions want all parameters at once.
    pub(super) as_list: bool,
    pub(super) script: Script,
    /// All bindings, also those of other policies.
    pub(super) bindings: &'b [Binding],
}

impl Bound<'_> {
    /// The policy, with a rule for each of its bindings, or for all objects if it has none.
    pub(super) fn policy(
        &self,
        head: &Head<'_, '_>,
        report: &Report<'_>,
        dialect: Dialect,
        program: impl Fn(Option<&Binding>) -> Program,
    ) -> Policy {
        let id = PolicyId { dialect, namespace: None, name: head.name.clone() };
        let origin = Origin::new(report.document().clone(), Path::root());
        let document = report.document().value();
        let rule = |name: &Str, binding: Option<&Binding>| {
            let kind = self.params.as_ref();
            let params = binding.and_then(|binding| binding.params_of(kind, self.as_list));
            let program = program(binding);
            Arc::new(Rule {
                id: RuleId { policy: id.clone(), rule: name.clone() },
                trigger: trigger(self.constraints, binding),
                scope: Scope::Cluster,
                context: Vec::new(),
                guard: None,
                script: Some(Arc::new(Script { params, ..self.script.clone() })),
                request_facts: request_facts::of_rule(Some(&self.script), &program),
                program,
                lifecycle: lifecycle(false),
                report_properties: Vec::new(),
                origin: origin.clone(),
            })
        };
        let own = self.bindings.iter().filter(|binding| binding.policy == head.name);
        let bound: Vec<_> = own.map(|binding| rule(&binding.name, Some(binding))).collect();
        let rules = if bound.is_empty() { vec![rule(&head.name, None)] } else { bound };
        Policy {
            api_version: head.api_version.to_string(),
            kind: head.kind.to_string(),
            rules,
            apply: ApplyRules::All,
            delivery: delivery::of(document, WebhookFamily::Rules, &[], VariantGuard::Kind),
            background: background(document),
            report: report_words(document),
            origin,
            id,
        }
    }
}

pub(super) fn param_kind(node: &DocumentNode<'_, '_>) -> Option<Gvk> {
    let fields = node.fields(&table::PARAM_KIND)?;
    Some(Gvk::new(&fields.required_text("apiVersion")?, &fields.required_text("kind")?))
}

fn binding(report: &Report<'_>, tables: &BindingTables, kinds: &Kinds) -> Option<Binding> {
    let root = report.root().fields(tables.document)?;
    let metadata = root.get("metadata")?.any_fields()?;
    let name = metadata.required_text("name")?;
    let Some(spec) = root.get("spec") else {
        root.error("the binding has no spec", Some("add spec.policyName".into()));
        return None;
    };
    let spec = spec.fields(tables.spec)?;
    let policy = spec.required_text("policyName")?;
    let narrow_include = match spec.get("matchResources") {
        Some(node) => {
            Some(constraints::read(&node, kinds, OldLabels::Count, ConstraintOwner::Binding)?)
        }
        None => None,
    };
    let params = match spec.get("paramRef") {
        Some(node) => Some(param_ref(&node)?),
        None => None,
    };
    let actions = match spec.get("validationActions") {
        Some(node) => Some(validating::actions(&node)?),
        None if tables.spec.field("validationActions").is_some() => {
            // Kyverno's command line does not ask for them; an API server does.
            spec.report().warn(
                spec.path(),
                "spec.validationActions: Required value: an API server rejects the binding",
                Some("write `validationActions: [Deny]`, or Audit, or Warn".into()),
            );
            None
        }
        None => None,
    };
    Some(Binding { name, policy, params, narrow_include, actions })
}

pub(super) fn param_ref(node: &DocumentNode<'_, '_>) -> Option<ParamRef> {
    let fields: DocumentFields<'_, '_> = node.fields(&table::PARAM_REF)?;
    let missing = match fields.text("parameterNotFoundAction").as_deref() {
        None | Some("Deny") => MissingParams::Fail,
        Some("Allow") => MissingParams::Skip,
        Some(other) => {
            let message = format!("unknown value {other:?} of parameterNotFoundAction");
            fields.error(message, Some("use Allow or Deny".into()));
            MissingParams::Fail
        }
    };
    let find = match (fields.text("name"), fields.get("selector")) {
        (Some(name), None) => FindParams::Named(name),
        (None, Some(selector)) => FindParams::Selected(read_selector(&selector)?),
        _ => {
            node.error_with("paramRef needs either a name or a selector", "write one of them");
            return None;
        }
    };
    Some((find, fields.text("namespace").filter(|namespace| !namespace.is_empty()), missing))
}

fn read_selector(node: &DocumentNode<'_, '_>) -> Option<Selector> {
    let value: &Value = node.value;
    Selector::from_value(value)
        .map_err(|error| node.error(format!("bad selector at {}: {error}", node.path)))
        .ok()
}
