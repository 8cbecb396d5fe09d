//! MutatingPolicy and NamespacedMutatingPolicy.

use std::sync::Arc;

use kiln_cel::Env;
use kiln_fields::policies as table;
use kiln_object::{Gvk, Kinds};
use kiln_rules::{
    Dialect, Existing, ExpressionTargets, FilteredTargets, LabelOwner, Lifecycle, Mutate, Mutation,
    NamedExpression, OnPolicyDelete, OwnershipLabels, PatchForm, Policy, Program, ScriptedPatch,
    Targets, Trigger, Unmet, WebhookFamily, Write,
};
use kiln_yaml::Document;

use super::constraints::{self, ConstraintOwner, Constraints, OldLabels};
use super::delivery::{self, VariantGuard};
use super::expressions::{self, ExpectedType};
use super::head::{self, Head, PolicyBody, PolicyKindRules, switch};
use super::object_literals;
use super::pod_controllers;
use super::variants;
use crate::Compiled;
use crate::document_reader::{DocumentFields, DocumentNode, Report};
use crate::generated_object_fields;

static RULES: PolicyKindRules = PolicyKindRules {
    document: &table::MUTATING_POLICY,
    spec: &table::MUTATING_SPEC,
    versions: &["v1", "v1beta1", "v1alpha1"],
    namespaced_versions: &["v1", "v1beta1"],
};
/// The webhooks that serve mutating policies.
const FAMILY: WebhookFamily = WebhookFamily::Kind { cluster: "mpol", namespaced: "nmpol" };
/// Begins the name of the rule for existing objects, where another one changes what is sent.
const EXISTING: &str = "existing-";

/// How what a mutate rule changes lives on: nothing follows it.
pub(super) fn lifecycle(existing: bool) -> Lifecycle {
    Lifecycle {
        synchronize: false,
        existing,
        on_policy_delete: OnPolicyDelete::Keep,
        on_conflict: Existing::Keep,
        write: Write::Replace,
        labels: OwnershipLabels {
            owner: LabelOwner::Kyverno,
            rule: false,
            trigger_name: true,
            whole_source: false,
        },
        clears_adopted: false,
        existing_switch: "evaluation.mutateExisting.enabled",
    }
}

/// Compiles a mutating policy.
pub(crate) fn compile(document: &Document, kinds: &Kinds, compiled: &mut Compiled) {
    head::compile(document, compiled, &RULES, |head, report| {
        let mut policy = policy(head, report, kinds)?;
        if !report.has_errors() {
            let Some(spec) = report.document().value().get("spec") else { return Some(policy) };
            let found = pod_controllers::variants(spec);
            // What cannot be rewritten for the controllers of Pods is said below.
            let others = found.as_deref().unwrap_or_default();
            policy.delivery = delivery::of(document.value(), FAMILY, others, VariantGuard::Kind);
            variants::add(&mut policy, head, report, RULES.spec, spec, found, |head, report| {
                self::policy(head, report, kinds)
            });
        }
        Some(policy)
    });
}

fn policy(head: &Head<'_, '_>, report: &Report<'_>, kinds: &Kinds) -> Option<Policy> {
    let constraints = head.constraints(kinds, OldLabels::Count);
    let evaluation =
        head.spec.get("evaluation").and_then(|node| node.fields(&table::MUTATING_EVALUATION));
    let evaluation = evaluation.as_ref();
    let base = Env::mutating(head.policy_scope()).extend().homogeneous_literals(true).build();
    let (variables, env) = head.variables(&base);
    let conditions = expressions::named(&env, head.spec.get("matchConditions"), ExpectedType::Bool);
    let targets = targets(head, &env, kinds);
    let annotations = head.annotations(&env);
    let over_atomic = evaluation.and_then(|fields| fields.flag("useServerSideApply"));
    let patched = match (&targets, &constraints) {
        (None, Some(of_triggers)) => generated_object_fields::filtered(&of_triggers.include, kinds),
        (Some(Targets::Filtered(taken)), _) => {
            generated_object_fields::filtered(&taken.include, kinds)
        }
        _ => None,
    };
    let patched = patched.unwrap_or_default();
    if targets.is_none() {
        for list in ["variables", "matchConditions"] {
            object_literals::check_reads_of(head.spec.get(list), &env, &patched);
        }
    }
    let steps = mutations(&head.spec, &env, over_atomic.unwrap_or(false), &patched);
    let script = head::script(env, variables, conditions, annotations, Unmet::Skip);
    let texts: Vec<&str> = steps.iter().map(|step| step.expression.program.source()).collect();
    head.refuse_http(head::sources(&script).chain(texts.iter().copied()));
    let script = kiln_rules::Script {
        asks_for_namespace: script.asks_for_namespace
            || steps.iter().any(|step| head::asks_for_namespace(&step.expression)),
        ..script
    };
    let existing = switch(evaluation, "mutateExisting").unwrap_or(false);
    let existing_only = switch(evaluation, "admission") == Some(false);
    if existing_only && !existing {
        head.spec.error(
            "spec.evaluation: Forbidden: disabling both admission and mutateExisting evaluation \
             modes is not allowed",
            Some("switch one of them on".into()),
        );
    }
    check_failure_policy(&head.spec);
    let skip_own = evaluation.and_then(|fields| fields.flag("skipBackgroundRequests"));
    let Constraints { include, exclude } = constraints?;
    let body = |targets: Option<Targets>| {
        let changes_trigger = targets.is_none();
        let trigger = Trigger {
            ignore_own_requests: skip_own.unwrap_or(true) && !changes_trigger,
            own_namespace: true,
            existing_only,
            ..Trigger::of(include.clone(), exclude.clone())
        };
        let change = Mutation::Steps(steps.clone());
        let program = Program::Mutate(Mutate { targets, change, pass_unchanged: true });
        let (dialect, script) = (Dialect::MutatingPolicy, script.clone());
        let lifecycle = lifecycle(existing && !changes_trigger);
        PolicyBody { dialect, trigger, script, program, lifecycle }
    };
    // Kyverno: without targets, all objects that match are the targets, and requests are patched as well.
    if existing && targets.is_none() {
        let at_admission = (!existing_only).then(|| head.policy(report, body(None)));
        let matching = Targets::Matching { but_the_trigger: !existing_only };
        let mut policy = head.policy(report, body(Some(matching)));
        if let Some(at_admission) = at_admission {
            let mut rules = at_admission.rules;
            rules.extend(policy.rules.iter().map(|rule| {
                let mut rule = (**rule).clone();
                rule.id.rule = format!("{EXISTING}{}", rule.id.rule).into();
                Arc::new(rule)
            }));
            policy.rules = rules;
        }
        return Some(policy);
    }
    Some(head.policy(report, body(targets)))
}

/// Checks what happens to a request when the policy fails, which is the business of admission.
pub(super) fn check_failure_policy(spec: &DocumentFields<'_, '_>) {
    if let Some(other) = spec.text("failurePolicy")
        && !matches!(other.as_str(), "Fail" | "Ignore")
    {
        let path = spec.path().join("failurePolicy");
        let message = format!("unknown value {:?} of failurePolicy", other.as_str());
        spec.report().error(&path, message, Some("use Fail or Ignore".into()));
    }
}

/// The existing objects that are changed, if the policy names some.
fn targets(head: &Head<'_, '_>, env: &Env, kinds: &Kinds) -> Option<Targets> {
    let node = head.spec.get("targetMatchConstraints")?;
    let conditions: Vec<NamedExpression> =
        expressions::named(env, head.spec.get("targetMatchConditions"), ExpectedType::Bool);
    let Constraints { include, exclude } =
        constraints::read(&node, kinds, OldLabels::DoNot, ConstraintOwner::Targets)?;
    let expression = node.any_fields().and_then(|fields| fields.get("expression"));
    if let Some(expression) = expression {
        let expression = expressions::node(env, &expression, ExpectedType::Map)?;
        return Some(Targets::FromExpression(Box::new(ExpressionTargets {
            expression,
            conditions,
        })));
    }
    if include.filters().is_empty() {
        return None;
    }
    Some(Targets::Filtered(Box::new(FilteredTargets { include, exclude, conditions })))
}

/// `mutations`, in order, of objects of these kinds; none are given where others may be patched too.
pub(super) fn mutations(
    spec: &DocumentFields<'_, '_>,
    env: &Env,
    over_atomic: bool,
    patched: &[Gvk],
) -> Vec<ScriptedPatch> {
    let list = spec.get("mutations").map(|node| node.elements()).unwrap_or_default();
    list.iter().filter_map(|node| mutation(node, env, over_atomic, patched)).collect()
}

fn mutation(
    node: &DocumentNode<'_, '_>,
    env: &Env,
    over_atomic: bool,
    patched: &[Gvk],
) -> Option<ScriptedPatch> {
    let fields = node.fields(&table::MUTATION)?;
    let (word, other, form, wanted) = match fields.required_text("patchType")?.as_str() {
        "ApplyConfiguration" => {
            let form = PatchForm::Configuration { over_atomic };
            ("applyConfiguration", "jsonPatch", form, ExpectedType::Object)
        }
        "JSONPatch" => {
            ("jsonPatch", "applyConfiguration", PatchForm::Operations, ExpectedType::Patches)
        }
        unknown => {
            let message = format!("unknown patchType {unknown:?}");
            node.error_with(message, "use ApplyConfiguration or JSONPatch");
            return None;
        }
    };
    let kind = fields.text("patchType")?;
    if fields.get(other).is_some() {
        node.error_with(
            format!("{}.{other}: must not be specified when patchType is {kind}", node.path),
            format!("remove {other}"),
        );
    }
    let Some(patch) = fields.get(word) else {
        node.error_with(
            format!(
                "{}.{word}: Required value: must be specified when patchType is {kind}",
                node.path
            ),
            format!("add {word} with an expression"),
        );
        return None;
    };
    let patch = patch.fields(&table::PATCH_EXPRESSION)?;
    patch.required_text("expression")?;
    let written = patch.get("expression")?;
    let expression = expressions::node(env, &written, wanted)?;
    object_literals::check_patch(&written, env, patched);
    object_literals::check_reads(&written, env, patched);
    Some(ScriptedPatch { form, expression })
}
