//! GeneratingPolicy and NamespacedGeneratingPolicy, in the shipped and in the proposed spelling.

use kiln_cel::Env;
use kiln_fields::policies as table;
use kiln_object::{Gvk, Kinds};
use kiln_rules::{
    Block, Delivery, Dialect, Emission, Emitter, Existing, FailurePolicies, Generate, LabelOwner,
    Lifecycle, OnPolicyDelete, OwnershipLabels, Policy, Program, Script, Trigger, Unmet,
    WebhookFamily, Write,
};
use kiln_yaml::Document;

use super::constraints::OldLabels;
use super::delivery::{self, VariantGuard};
use super::expressions::{self, ExpectedType};
use super::head::{self, Head, PolicyBody, PolicyKindRules, switch};
use super::{object_literals, request_facts, template, tokens};
use crate::Compiled;
use crate::document_reader::{DocumentFields, DocumentNode, Report};
use crate::generated_object_fields;

/// The field manager of objects that are written by server-side apply.
const MANAGER: &str = "generate";

/// The labels that generating policies write.
const LABELS: OwnershipLabels = OwnershipLabels {
    owner: LabelOwner::Kyverno,
    rule: false,
    trigger_name: true,
    whole_source: false,
};

/// The webhooks that serve generating policies.
const FAMILY: WebhookFamily = WebhookFamily::Kind { cluster: "gpol", namespaced: "ngpol" };

static RULES: PolicyKindRules = PolicyKindRules {
    document: &table::GENERATING_POLICY,
    spec: &table::GENERATING_SPEC,
    versions: &["v1", "v1beta1", "v1alpha1"],
    namespaced_versions: &["v1", "v1beta1"],
};

/// Compiles a generating policy.
pub(crate) fn compile(document: &Document, kinds: &Kinds, compiled: &mut Compiled) {
    head::compile(document, compiled, &RULES, |head, report| {
        let mut policy = policy(head, report, kinds)?;
        // Kyverno: these policies have no say in what a failure means.
        let failure = FailurePolicies::IGNORE;
        let delivery = delivery::of(document.value(), FAMILY, &[], VariantGuard::Kind);
        policy.delivery = Delivery { failure, ..delivery };
        Some(policy)
    });
}

fn policy(head: &Head<'_, '_>, report: &Report<'_>, kinds: &Kinds) -> Option<Policy> {
    let constraints = head.constraints(kinds, OldLabels::DoNot);
    // Kyverno: conditions come first, so they cannot see the values.
    let base = Env::generating(head.policy_scope());
    let conditions =
        expressions::named(&base, head.spec.get("matchConditions"), ExpectedType::Bool);
    let (variables, env) = head.variables(&base);
    let annotations = head.annotations(&env);
    let script = head::script(env, variables, conditions, annotations, Unmet::NoMatch);
    let fired_by =
        constraints.as_ref().and_then(|it| generated_object_fields::filtered(&it.include, kinds));
    for list in ["variables", "matchConditions", "generate"] {
        let fired_by = fired_by.as_deref().unwrap_or_default();
        object_literals::check_reads_of(head.spec.get(list), &script.env, fired_by);
    }
    let (program, asks_for_namespace) = program(head, &script, kinds)?;
    let script =
        Script { asks_for_namespace: script.asks_for_namespace || asks_for_namespace, ..script };
    let evaluation =
        head.spec.get("evaluation").and_then(|node| node.fields(&table::GENERATING_EVALUATION));
    let evaluation = evaluation.as_ref();
    let lifecycle = Lifecycle {
        synchronize: switch(evaluation, "synchronize").unwrap_or(false),
        existing: switch(evaluation, "generateExisting").unwrap_or(false),
        on_policy_delete: match switch(evaluation, "orphanDownstreamOnPolicyDelete") {
            Some(true) => OnPolicyDelete::Keep,
            // Kyverno: copies of a source stay also then.
            Some(false) | None => OnPolicyDelete::DeleteMade,
        },
        // Kyverno: an object of another writer is left alone, whether it is synchronized or not.
        on_conflict: Existing::UpdateOwn,
        write: match head.spec.flag("useServerSideApply") {
            Some(true) => Write::Apply { manager: MANAGER },
            _ => Write::Replace,
        },
        labels: LABELS,
        clears_adopted: true,
        existing_switch: "evaluation.generateExisting.enabled",
    };
    let constraints = constraints?;
    let skip_own = evaluation.and_then(|fields| fields.flag("skipBackgroundRequests"));
    let trigger = Trigger {
        ignore_own_requests: skip_own.unwrap_or(true),
        own_namespace: true,
        existing_only: switch(evaluation, "admission") == Some(false),
        ..Trigger::of(constraints.include, constraints.exclude)
    };
    let (dialect, program) = (Dialect::GeneratingPolicy, Program::Generate(program));
    Some(head.policy(report, PolicyBody { dialect, trigger, script, program, lifecycle }))
}

/// What the policy makes, and whether an expression in it looks at the namespace of the trigger.
fn program(head: &Head<'_, '_>, script: &Script, kinds: &Kinds) -> Option<(Generate, bool)> {
    let entries = head.spec.get("generate").map(|node| node.elements()).unwrap_or_default();
    for variable in head.spec.get("variables").map(|node| node.elements()).unwrap_or_default() {
        if let Some(expression) = variable.any_fields().and_then(|fields| fields.get("expression"))
        {
            object_literals::check(&expression, &script.env);
        }
    }
    if entries.is_empty() {
        // The API server's words.
        let message = format!(
            "The {} {:?} is invalid: spec.generate: Required value",
            head.kind,
            head.name.as_str()
        );
        head.spec.error(message, Some("add generate with an expression or a template".into()));
        return None;
    }
    let emitters: Vec<Emitter> =
        entries.iter().filter_map(|entry| emitter(entry, script, kinds)).collect();
    let written = || emitters.iter().flat_map(|emitter| request_facts::emitted(&emitter.emission));
    let texts = written().map(|expression| expression.program.source());
    head.refuse_http(head::sources(script).chain(texts));
    let asks_for_namespace = written().any(head::asks_for_namespace);
    let block = |emitter| Block { foreach: None, emitters: vec![emitter] };
    // Kyverno: what comes after a failed entry does not run, what came before stays.
    let blocks = emitters.into_iter().map(block).collect();
    Some((Generate { blocks, stop_at_failure: true }, asks_for_namespace))
}

fn emitter(entry: &DocumentNode<'_, '_>, script: &Script, kinds: &Kinds) -> Option<Emitter> {
    let fields = entry.fields(&table::GENERATE_ENTRY)?;
    let name = fields.text("name");
    let emission = match (fields.get("expression"), fields.get("template")) {
        (Some(expression), None) => asked(&expression, script, kinds)?,
        (None, Some(template)) => documents(&template, &script.env)?,
        (None, None) => {
            entry.error_with(
                format!(
                    "{}: Required value: one of expression or template must be set",
                    entry.path
                ),
                "add one of them",
            );
            return None;
        }
        (Some(_), Some(template)) => {
            template.error_with(
                format!("{}: only one of expression or template may be set", entry.path),
                "write two entries",
            );
            return None;
        }
    };
    Some(Emitter { emission, name, path: entry.path.clone() })
}

fn asked(node: &DocumentNode<'_, '_>, script: &Script, kinds: &Kinds) -> Option<Emission> {
    let expression = expressions::node(&script.env, node, ExpectedType::Calls)?;
    object_literals::check(node, &script.env);
    let source = expression.program.source();
    if tokens::generates_in_exists(source) {
        node.report.warn(
            &node.path,
            "exists stops at the first call of the generator, so nothing more is made",
            Some("use all to make an object for each element".into()),
        );
    }
    let values = script.variables.iter().map(|variable| variable.expression.program.source());
    let named: Vec<Gvk> = tokens::named_kinds(values.chain([source]), kinds);
    Some(Emission::FromExpression { expression, named })
}

fn documents(node: &DocumentNode<'_, '_>, env: &Env) -> Option<Emission> {
    let fields: DocumentFields<'_, '_> = node.fields(&table::GENERATE_TEMPLATE)?;
    fields.required_text("value")?;
    let interpolate = match fields.text("interpolate").as_deref() {
        None | Some("none") => false,
        Some("cel") => true,
        Some(other) => {
            let message = format!("unknown value {other:?} of interpolate");
            fields.error(message, Some("use none or cel".into()));
            return None;
        }
    };
    template::read(&fields.get("value")?, env, interpolate).map(Emission::Documents)
}
