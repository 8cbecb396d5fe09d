//! CleanupPolicy and ClusterCleanupPolicy: objects that go when their time has come.

use std::sync::Arc;

use kiln_fields::kyverno as table;
use kiln_object::Kinds;
use kiln_object::policy_kinds::OWN_VERSION;
use kiln_rules::{
    ApplyRules, ContextEntry, Delete, Delivery, Dialect, Filters, Load, Origin, Policy, PolicyId,
    Program, RequestFacts, Rule, RuleId, Scope, Trigger, WebhookFamily,
};
use kiln_value::Path;
use kiln_yaml::Document;

use crate::Compiled;
use crate::delivery::{background, report_words};
use crate::document_reader::{DocumentFields, Report};
use crate::kyverno::check;
use crate::kyverno::compile::KEPT;
use crate::kyverno::entries;
use crate::kyverno::filters::{self, Block, holds_variables};
use crate::kyverno::parse::conditions;
use crate::kyverno::variables::VariableCheck;
use crate::schedule::{ScheduledKind, propagation, schedule};

/// Compiles a cleanup policy. One with an error is left out, as Kyverno refuses it.
pub(crate) fn compile(document: &Document, kinds: &Kinds, compiled: &mut Compiled) {
    let report = Report::new(document);
    let policy = policy(&report, kinds);
    if !report.has_errors() {
        compiled.policies.extend(policy.map(Arc::new));
    }
    compiled.diagnostics.extend(report.finish());
}

fn policy(report: &Report<'_>, kinds: &Kinds) -> Option<Policy> {
    let root = report.root().fields(&table::CLEANUP_POLICY)?;
    let (api_version, kind) = (root.required_text("apiVersion")?, root.required_text("kind")?);
    if !matches!(&*api_version, "kyverno.io/v2" | "kyverno.io/v2beta1" | OWN_VERSION) {
        report.error(
            &Path::from_iter(["apiVersion"]),
            format!("{api_version} {kind} is not known"),
            Some("use kyverno.io/v2".into()),
        );
    }
    let Some(metadata) = root.get("metadata") else {
        root.error("the policy has no metadata", Some("add metadata.name".into()));
        return None;
    };
    let metadata = metadata.any_fields()?;
    let name = metadata.required_text("name")?;
    let namespace = metadata.text("namespace").filter(|namespace| !namespace.is_empty());
    let scope = match (kind.as_str(), namespace) {
        ("ClusterCleanupPolicy", Some(_)) => {
            report.error(
                &metadata.path().join("namespace"),
                "a ClusterCleanupPolicy has no namespace",
                Some("remove it, or write `kind: CleanupPolicy`".into()),
            );
            Scope::Cluster
        }
        ("ClusterCleanupPolicy", None) => Scope::Cluster,
        // As kubectl does without being told otherwise.
        (_, namespace) => Scope::Namespace(namespace.unwrap_or_else(|| "default".into())),
    };
    let Some(spec) = root.get("spec") else {
        root.error("the policy has no spec", Some("add spec.match and spec.schedule".into()));
        return None;
    };
    let spec = spec.fields(&table::CLEANUP_SPEC)?;
    let times = schedule(&spec, ScheduledKind::CleanupPolicy);
    let propagation = propagation(&spec);
    let (include, exclude) = blocks(&spec, &scope, kinds)?;
    let context = entries::context(spec.get("context"), &scope);
    check_context(report, &context);
    let guard = conditions(spec.get("conditions"), false);
    let mut variables = VariableCheck::of_cleanup(report, &name);
    variables.context(&context);
    variables.target();
    variables.guard(guard.as_ref());
    let (schedule, schedule_path) = times?;
    let id = PolicyId {
        dialect: Dialect::CleanupPolicy,
        namespace: scope.namespace().map(Into::into),
        name: name.clone(),
    };
    let origin = Origin::new(report.document().clone(), Path::root());
    let rule = Rule {
        id: RuleId { policy: id.clone(), rule: name },
        trigger: Trigger::of(
            include.filters,
            exclude.map_or(Filters::NONE, |exclude| exclude.filters),
        ),
        scope,
        context,
        guard,
        script: None,
        program: Program::Delete(Box::new(Delete {
            schedule,
            schedule_path,
            propagation,
            reports_unmatched: true,
        })),
        lifecycle: KEPT,
        report_properties: Vec::new(),
        // No request makes it run.
        request_facts: RequestFacts::default(),
        origin: origin.clone(),
    };
    Some(Policy {
        id,
        api_version: api_version.to_string(),
        kind: kind.to_string(),
        rules: vec![Arc::new(rule)],
        apply: ApplyRules::All,
        delivery: Delivery::usual(WebhookFamily::Rules),
        background: background(report.document().value()),
        report: report_words(report.document().value()),
        origin,
    })
}

type Blocks<'d, 'r> = (Block<'d, 'r>, Option<Block<'d, 'r>>);

/// `match`, and `exclude` if there is one.
fn blocks<'d, 'r>(
    spec: &DocumentFields<'d, 'r>,
    scope: &Scope,
    kinds: &Kinds,
) -> Option<Blocks<'d, 'r>> {
    let Some(include) = spec.get("match") else {
        spec.error(
            "the policy has no match",
            Some("add match.any with a list of resources".into()),
        );
        return None;
    };
    let include = filters::new_block(include)?;
    let exclude = match spec.get("exclude") {
        Some(exclude) => Some(filters::new_block(exclude)?),
        None => None,
    };
    for block in [Some(&include), exclude.as_ref()].into_iter().flatten() {
        if holds_variables(block.node.value) {
            block.node.error_with(
                format!("{} cannot have variables", block.node.path),
                "compare with variables in conditions",
            );
        }
        no_users(block);
        if let Scope::Namespace(_) = scope {
            check::namespaced(block, kinds, "CleanupPolicy");
        }
    }
    check::has_kinds(&include);
    // Kyverno's words; the value is left out, which would be the whole policy.
    let empty = "spec: Invalid value: CleanupPolicy is matching an empty set";
    check::matches_something(&include, exclude.as_ref(), empty);
    Some((include, exclude))
}

/// A schedule runs the policy, not a request: there is no user to match.
fn no_users(block: &Block<'_, '_>) {
    for (at, filter) in block.filters.filters().iter().enumerate() {
        for word in check::user_fields(filter) {
            let path = check::filter_path(block, at).join(word);
            let message =
                format!("{path}: Forbidden: user information is not allowed in cleanup policies");
            block.node.report.error(&path, message, Some("remove it".into()));
        }
    }
}

fn check_context(report: &Report<'_>, context: &[ContextEntry]) {
    for entry in context {
        let word = match &entry.load {
            Load::Image { .. } => "ImageRegistry",
            Load::ConfigMap { .. } => "ConfigMap",
            Load::Variable { .. } | Load::Call(_) | Load::Global { .. } => continue,
        };
        report.error(
            &entry.path,
            format!("{word} is not allowed in CleanUp Policy"),
            Some("use variable, apiCall or globalReference".into()),
        );
    }
}
