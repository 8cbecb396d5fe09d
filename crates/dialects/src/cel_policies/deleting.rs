//! DeletingPolicy and NamespacedDeletingPolicy.

use kiln_cel::Env;
use kiln_fields::deleting as table;
use kiln_object::Kinds;
use kiln_rules::{Delete, Dialect, Filters, Policy, Program, Scope, Script, Trigger, Unmet};
use kiln_yaml::Document;

use super::constraints::{self, ConstraintOwner, Constraints, OldLabels};
use super::expressions::{self, ExpectedType};
use super::head::{self, Head, PolicyBody, PolicyKindRules};
use super::mutating::lifecycle;
use super::tokens;
use crate::Compiled;
use crate::document_reader::Report;
use crate::schedule::{ScheduledKind, propagation, schedule};

static RULES: PolicyKindRules = PolicyKindRules {
    document: &table::DELETING_POLICY,
    spec: &table::DELETING_SPEC,
    versions: &["v1", "v1beta1", "v1alpha1"],
    namespaced_versions: &["v1", "v1beta1"],
};

/// Kyverno: the most conditions that a policy has.
const CONDITIONS: usize = 64;

/// Names that expressions may mention and that are never there: no request makes a policy run.
const UNBOUND: [&str; 3] = ["request", "oldObject", "exceptions"];

/// Compiles a deleting policy.
pub(crate) fn compile(document: &Document, kinds: &Kinds, compiled: &mut Compiled) {
    head::compile(document, compiled, &RULES, |head, report| policy(head, report, kinds));
}

fn policy(head: &Head<'_, '_>, report: &Report<'_>, kinds: &Kinds) -> Option<Policy> {
    let times = schedule(&head.spec, ScheduledKind::DeletingPolicy);
    let propagation = propagation(&head.spec);
    let base = Env::deleting(head.policy_scope()).extend().homogeneous_literals(true).build();
    let (variables, env) = head.variables(&base);
    let list = head.spec.get("conditions");
    if let Some(list) = list.as_ref().filter(|list| list.elements().len() > CONDITIONS) {
        let message = format!("spec.conditions: Too many: must have at most {CONDITIONS} items");
        list.error_with(message, "join some of them with &&");
    }
    let conditions = expressions::named(&env, list, ExpectedType::Bool);
    let script = head::script(env, variables, conditions, Vec::new(), Unmet::Skip);
    let script = Script {
        asks_for_user: false,
        supposes_namespace: true,
        has_no_request: true,
        namespaces_are_their_own: true,
        ..script
    };
    warn_of_unbound(&script, report);
    head.refuse_http(head::sources(&script));
    let Constraints { include, exclude } = read_constraints(head, report, kinds)?;
    let (schedule, schedule_path) = times?;
    let trigger =
        Trigger { takes_data: head.scope == Scope::Cluster, ..Trigger::of(include, exclude) };
    let program = Program::Delete(Box::new(Delete {
        schedule,
        schedule_path,
        propagation,
        reports_unmatched: false,
    }));
    let dialect = Dialect::DeletingPolicy;
    let lifecycle = lifecycle(false);
    Some(head.policy(report, PolicyBody { dialect, trigger, script, program, lifecycle }))
}

/// `matchConstraints`. Kyverno's command line judges data by policies without them, which no API server stores.
fn read_constraints(
    head: &Head<'_, '_>,
    report: &Report<'_>,
    kinds: &Kinds,
) -> Option<Constraints> {
    let Some(node) = head.spec.get("matchConstraints") else {
        // Kyverno's words.
        let message = "spec.matchConstraints: Required value: a matchConstraints with at least one \
                       resource rule is required";
        report.warn(
            head.spec.path(),
            format!(
                "{message}; without one, only data is judged, and no API server stores the policy"
            ),
            Some("add resourceRules".into()),
        );
        return Some(Constraints { include: Filters::NONE, exclude: Filters::NONE });
    };
    let found = constraints::read(&node, kinds, OldLabels::DoNot, ConstraintOwner::Policy)?;
    if found.include.filters().is_empty() {
        return head.constraints(kinds, OldLabels::DoNot);
    }
    Some(found)
}

/// Warns of expressions that fail whatever the object is, so that nothing is ever deleted.
fn warn_of_unbound(script: &Script, report: &Report<'_>) {
    for named in script.variables.iter().chain(&script.conditions) {
        let expression = &named.expression;
        for name in UNBOUND {
            if tokens::reads(expression.program.source(), name) {
                report.warn(
                    &expression.path,
                    format!("there is no {name} when the policy runs, so this fails and keeps every object"),
                    Some("use object, namespaceObject and variables".into()),
                );
            }
        }
    }
}
