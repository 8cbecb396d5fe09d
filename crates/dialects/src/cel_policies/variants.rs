//! Rules for the controllers of Pods, added to policies for Pods.

use std::sync::Arc;

use kiln_diagnostic::{Severity, did_you_mean};
use kiln_fields::FieldTable;
use kiln_rules::Policy;
use kiln_value::Value;

use super::head::Head;
use super::pod_controllers::{self, Fixed, Variant};
use crate::document_reader::{DocumentNode, Report};

/// Adds the rules of the variants of a policy, which `compile` makes of each.
pub(super) fn add(
    policy: &mut Policy,
    head: &Head<'_, '_>,
    report: &Report<'_>,
    fields: &'static FieldTable,
    spec: &Value,
    variants: Result<Vec<Variant>, Fixed>,
    compile: impl Fn(&Head<'_, '_>, &Report<'_>) -> Option<Policy>,
) {
    let path = head.spec.path();
    let unchanged = |report: &Report<'_>, expression: &str| {
        let about = expression.lines().next().unwrap_or_default();
        report.warn(
            &path.join("matchConstraints"),
            format!("the policy cannot be rewritten for the controllers of Pods, so it acts on Pods alone: {about}"),
            Some("say so with autogen: {podControllers: {controllers: []}}, or write a policy for the controllers".into()),
        );
    };
    for (at, name) in pod_controllers::unknown(spec) {
        let known = || pod_controllers::NAMES.iter().copied();
        let hint = match did_you_mean(name, known()) {
            Some(meant) => format!("did you mean {meant:?}?"),
            None => format!("the controllers are {}", known().collect::<Vec<_>>().join(", ")),
        };
        let list = path.join("autogen").join("podControllers").join("controllers");
        let message = format!("no controllers of Pods are called {name:?}, so none are added");
        report.warn(&list.join(at), message, Some(hint));
    }
    let variants = match variants {
        Ok(variants) => variants,
        Err(Fixed(expression)) => return unchanged(report, &expression),
    };
    let mut rules = Vec::new();
    for Variant { prefix, spec, .. } in &variants {
        // The policy has said everything there is to say.
        let quiet = Report::new(report.document());
        let node = DocumentNode { value: spec, path: path.clone(), report: &quiet };
        let variant = node.fields(fields).and_then(|spec| {
            let (api_version, kind) = (head.api_version.clone(), head.kind.clone());
            let name = format!("{prefix}{}", head.name).into();
            let head = Head { api_version, kind, name, scope: head.scope.clone(), spec };
            compile(&head, &quiet)
        });
        let wrong = quiet.finish().into_iter().find(|found| found.severity == Severity::Error);
        match (variant, wrong) {
            (Some(variant), None) => rules.extend(variant.rules),
            (_, wrong) => {
                let why = wrong.map(|wrong| wrong.message).unwrap_or_default();
                return unchanged(report, &why);
            }
        }
    }
    policy.rules.extend(rules.iter().map(|rule| {
        let mut rule = (**rule).clone();
        rule.id.policy = policy.id.clone();
        Arc::new(rule)
    }));
}
