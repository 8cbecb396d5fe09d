//! ValidatingPolicy and NamespacedValidatingPolicy.

use kiln_cel::{Asker, Env};
use kiln_fields::validating as table;
use kiln_object::Kinds;
use kiln_rules::{
    Actions, Answers, Dialect, Expression, Expressions, FailureActions, Filters, Payload, Policy,
    Program, Script, Trigger, Unmet, Validate, ValidateCheck, Validation, WebhookFamily,
};
use kiln_value::{Str, Value};
use kiln_yaml::Document;

use super::constraints::{Constraints, OldLabels};
use super::delivery::{self, VariantGuard};
use super::expressions::{self, ExpectedType};
use super::head::{self, Head, PolicyBody, PolicyKindRules};
use super::mutating::{check_failure_policy, lifecycle};
use super::object_literals;
use super::pod_controllers;
use super::variants;
use crate::Compiled;
use crate::document_reader::{DocumentFields, DocumentNode, Report};
use crate::generated_object_fields;

static RULES: PolicyKindRules = PolicyKindRules {
    document: &table::VALIDATING_POLICY,
    spec: &table::VALIDATING_SPEC,
    versions: &["v1", "v1beta1", "v1alpha1"],
    namespaced_versions: &["v1", "v1beta1"],
};

/// The webhooks that serve validating policies.
const FAMILY: WebhookFamily = WebhookFamily::Kind { cluster: "vpol", namespaced: "nvpol" };

/// Kubernetes: the most that one expression may cost.
pub(super) const EXPRESSION_COST: u64 = 1_000_000;

/// The annotation that takes a policy out of the score.
const SCORED: &str = "policies.kyverno.io/scored";

/// Compiles a validating policy.
pub(crate) fn compile(document: &Document, kinds: &Kinds, compiled: &mut Compiled) {
    head::compile(document, compiled, &RULES, |head, report| {
        let mut policy = policy(head, report, kinds)?;
        policy.delivery = delivery::of(document.value(), FAMILY, &[], VariantGuard::Object);
        let is_about_objects =
            policy.rules.iter().all(|rule| rule.trigger.payload == Payload::Kubernetes);
        // Kyverno rewrites policies for data as well, which then fail.
        if !report.has_errors() && is_about_objects {
            add_variants(&mut policy, head, report, kinds);
        }
        Some(policy)
    });
}

fn add_variants(policy: &mut Policy, head: &Head<'_, '_>, report: &Report<'_>, kinds: &Kinds) {
    let Some(spec) = report.document().value().get("spec") else { return };
    let spec = with_plurals(spec, head, report);
    let found = pod_controllers::validating_variants(&spec);
    let document = report.document().value();
    policy.delivery = delivery::of(document, FAMILY, &found, VariantGuard::Object);
    variants::add(policy, head, report, RULES.spec, &spec, Ok(found), |head, report| {
        self::policy(head, report, kinds)
    });
}

/// The spec with plurals where the list of controllers has kinds, which Kyverno passes over in silence.
fn with_plurals(spec: &Value, head: &Head<'_, '_>, report: &Report<'_>) -> Value {
    const LIST: [&str; 3] = ["autogen", "podControllers", "controllers"];
    let mut spec = spec.clone();
    let Some(names) = spec.get_path_mut(LIST).and_then(Value::as_list_mut) else { return spec };
    for (at, name) in names.iter_mut().enumerate() {
        let Some(written) = name.as_str() else { continue };
        let plural = format!("{}s", written.to_ascii_lowercase());
        if pod_controllers::NAMES.contains(&plural.as_str()) {
            let path = LIST.iter().fold(head.spec.path().clone(), |path, key| path.join(*key));
            report.warn(
                &path.join(at),
                format!("{written:?} is a kind, and Kyverno takes only resources"),
                Some(format!("write {plural:?}")),
            );
            *name = Value::from(plural);
        }
    }
    spec
}

fn policy(head: &Head<'_, '_>, report: &Report<'_>, kinds: &Kinds) -> Option<Policy> {
    let evaluation = head.spec.get("evaluation");
    let evaluation = evaluation.and_then(|node| node.fields(&table::VALIDATING_EVALUATION));
    let payload = evaluation.as_ref().map_or(Payload::Kubernetes, mode);
    // Both are for clusters; they are read so that mistakes in them are reported.
    super::head::switch(evaluation.as_ref(), "admission");
    if let Some(autogen) = head.spec.get("autogen") {
        let autogen = autogen.fields(&table::VALIDATING_AUTOGEN);
        super::head::switch(autogen.as_ref(), "validatingAdmissionPolicy");
    }
    check_failure_policy(&head.spec);
    let ignores_errors = head.spec.text("failurePolicy").as_deref() == Some("Ignore");
    let actions = match head.spec.get("validationActions") {
        Some(node) => actions(&node),
        None => Some(Actions::DENY),
    };
    let asker = match payload {
        Payload::Http => Some(Asker::Http),
        Payload::Envoy => Some(Asker::Envoy),
        Payload::Kubernetes | Payload::Json => None,
    };
    let base = match asker {
        Some(asker) => Env::requests(asker),
        None => Env::validating(head.policy_scope()).extend().homogeneous_literals(true).build(),
    };
    let constraints = match payload {
        Payload::Kubernetes => head.constraints(kinds, OldLabels::Count),
        _ => Some(Constraints { include: Filters::NONE, exclude: Filters::NONE }),
    };
    // Kyverno: conditions do not see the values.
    let conditions =
        expressions::named(&base, head.spec.get("matchConditions"), ExpectedType::Bool);
    let (variables, env) = head.variables(&base);
    let check = match asker {
        Some(asker) => {
            let expressions = answers(&head.spec, &env, asker);
            ValidateCheck::Answers(Box::new(Answers { expressions, ignores_errors }))
        }
        None => ValidateCheck::Expressions(Box::new(Expressions {
            validations: validations(head.spec.get("validations"), &env, None),
            errors_fail: false,
            ignores_errors,
            any_message: true,
            numbered: true,
            passed: Str::new_static("success"),
            unmet: "skip",
        })),
    };
    let annotations = match payload {
        Payload::Kubernetes => head.annotations(&env),
        _ => Vec::new(),
    };
    let checked =
        constraints.as_ref().and_then(|it| generated_object_fields::filtered(&it.include, kinds));
    for list in ["variables", "matchConditions", "validations"] {
        let checked = checked.as_deref().unwrap_or_default();
        object_literals::check_reads_of(head.spec.get(list), &env, checked);
    }
    let script = head::script(env, variables, conditions, annotations, Unmet::Skip);
    let scored = report.document().value().str_at(["metadata", "annotations", SCORED]);
    let program = Validate {
        check,
        message: None,
        on_failure: FailureActions { overrides: Vec::new(), usual: actions? },
        allows_existing: false,
        scored: scored != Some("false"),
    };
    let script = judging(script, &program);
    let texts = program.expressions();
    let texts = texts.iter().map(|expression| expression.program.source());
    if asker.is_none() {
        head.refuse_http(head::sources(&script).chain(texts));
    }
    let Constraints { include, exclude } = constraints?;
    let trigger = Trigger { own_namespace: true, payload, ..Trigger::of(include, exclude) };
    let program = Program::Validate(Box::new(program));
    let dialect = Dialect::ValidatingPolicy;
    let lifecycle = lifecycle(false);
    Some(head.policy(report, PolicyBody { dialect, trigger, script, program, lifecycle }))
}

/// A script whose expressions judge: with Kubernetes' limit on what they cost, and what they look at.
pub(super) fn judging(script: Script, program: &Validate) -> Script {
    let asks = |word: &str| {
        program.expressions().iter().any(|expression| expression.program.source().contains(word))
    };
    Script {
        asks_for_namespace: script.asks_for_namespace || asks("namespaceObject"),
        asks_for_user: script.asks_for_user || asks("userInfo"),
        expression_cost: Some(EXPRESSION_COST),
        supposes_namespace: true,
        ..script
    }
}

/// What a policy is about.
fn mode(evaluation: &DocumentFields<'_, '_>) -> Payload {
    match evaluation.text("mode").as_deref() {
        None | Some("" | "Kubernetes") => Payload::Kubernetes,
        Some("JSON") => Payload::Json,
        Some("HTTP") => Payload::Http,
        Some("Envoy") => Payload::Envoy,
        Some(other) => {
            evaluation.report().warn(
                &evaluation.path().join("mode"),
                format!("{other:?} is not a valid mode; reading the policy as mode Kubernetes"),
                Some("use Kubernetes, JSON, HTTP or Envoy".into()),
            );
            Payload::Kubernetes
        }
    }
}

/// `validationActions`.
pub(super) fn actions(node: &DocumentNode<'_, '_>) -> Option<Actions> {
    let mut actions = Actions::default();
    for (at, word) in node.texts().iter().enumerate() {
        match word.as_str() {
            "Deny" => actions.deny = true,
            "Warn" => actions.warn = true,
            "Audit" => actions.audit = true,
            other => {
                // The API server's words.
                let message = format!(
                    "Unsupported value: {other:?}: supported values: \"Deny\", \"Audit\", \"Warn\""
                );
                node.report.error(&node.path.join(at), message, Some("use one of them".into()));
                return None;
            }
        }
    }
    // Kyverno: an empty list is one that is not there.
    Some(if actions == Actions::default() { Actions::DENY } else { actions })
}

/// `validations`, or `expressions` of a rule, whose message stands in for missing ones.
pub(super) fn validations(
    list: Option<DocumentNode<'_, '_>>,
    env: &Env,
    message: Option<&Str>,
) -> Vec<Validation> {
    let elements = list.map(|node| node.elements()).unwrap_or_default();
    let read = |element: &DocumentNode<'_, '_>| {
        let fields = element.fields(&table::VALIDATION)?;
        fields.required_text("expression")?;
        let made = fields.get("messageExpression");
        let made = made.map(|node| expressions::node(env, &node, ExpectedType::Message));
        let expression = expressions::node(env, &fields.get("expression")?, ExpectedType::Bool);
        Some(Validation {
            message: fields.text("message").or_else(|| message.cloned()),
            message_expression: match made {
                Some(made) => Some(made?),
                None => None,
            },
            expression: expression?,
        })
    };
    elements.iter().filter_map(read).collect()
}

/// `validations` that answer requests.
fn answers(spec: &DocumentFields<'_, '_>, env: &Env, asker: Asker) -> Vec<Expression> {
    let elements = spec.get("validations").map(|node| node.elements()).unwrap_or_default();
    let read = |element: &DocumentNode<'_, '_>| {
        let fields = element.fields(&table::VALIDATION)?;
        fields.required_text("expression")?;
        expressions::node(env, &fields.get("expression")?, ExpectedType::Answer(asker))
    };
    elements.iter().filter_map(read).collect()
}
