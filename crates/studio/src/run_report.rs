//! A run over files as the report that pages show.

use kiln_offline::{Made, ObjectChange, Report, RuleResult, Status};

use crate::bookkeeping::fold;
use crate::difference::unified_difference;
use crate::lineage::Lineage;
use crate::object_name::{ObjectName, RuleName};
use crate::plan_report::{ChangeAction, PlanReport, ReportedChange, ReportedNote, ReportedResult};
use crate::run_value::fix_of;
use crate::secret_values::hide_secret_values;
use crate::written::{Located, Written};

/// What rules made of resources. Values of Secrets are not in it: pages are passed on.
pub fn run_report(report: &Report, shown: &[&RuleResult], written: &Written<'_>) -> PlanReport {
    let counts = report.counts();
    let mut changes: Vec<ReportedChange> =
        report.objects().into_iter().filter_map(|made| changed(report, made)).collect();
    for result in report.results.iter().filter(|result| result.status == Status::Fail) {
        changes.push(ReportedChange {
            action: ChangeAction::Deny,
            object: ObjectName::from(&result.trigger),
            rules: vec![RuleName::from(&result.rule)],
            why: message(result),
            diff: String::new(),
            remark: None,
        });
    }
    let warnings = report.warnings.iter().map(|warning| ReportedNote {
        what: warning.to_string(),
        why: warning.hint.clone().unwrap_or_default(),
        failed: false,
    });
    let untouched = report.untouched.iter().map(|id| ReportedNote {
        what: id.to_string(),
        why: "no rule names this kind".to_owned(),
        failed: false,
    });
    PlanReport {
        title: "Policies applied to resources".to_owned(),
        summary: format!(
            "pass: {}, fail: {}, warn: {}, error: {}, skip: {}",
            counts.pass, counts.fail, counts.warn, counts.error, counts.skip
        ),
        changes,
        results: shown.iter().map(|result| reported(result, written)).collect(),
        lineage: Lineage::of_run(report),
        notes: warnings.chain(untouched).collect(),
    }
}

fn changed(report: &Report, made: Made) -> Option<ReportedChange> {
    let action = match made.change {
        ObjectChange::Created => ChangeAction::Create,
        ObjectChange::Updated | ObjectChange::Patched => ChangeAction::Change,
        ObjectChange::Unchanged | ObjectChange::Kept => return None,
    };
    let (mut before, mut after) = (made.before, Some(made.object));
    hide_secret_values(&made.id, before.as_mut(), after.as_mut());
    let folded = fold(before.as_ref(), after.as_ref());
    let rules = report.results.iter().filter(|result| {
        let does = |other: &Made| {
            other.id == made.id
                && !matches!(other.change, ObjectChange::Unchanged | ObjectChange::Kept)
        };
        result.made.iter().any(does)
    });
    let mut rules: Vec<RuleName> = rules.map(|result| RuleName::from(&result.rule)).collect();
    rules.dedup();
    Some(ReportedChange {
        action,
        object: ObjectName::from(&made.id),
        rules,
        why: None,
        diff: unified_difference(None, folded.before.as_ref(), folded.after.as_ref()),
        remark: folded.remark(),
    })
}

fn reported(result: &RuleResult, written: &Written<'_>) -> ReportedResult {
    let faults = written.faults(result);
    let mut details: Vec<String> = faults.iter().map(Located::line).collect();
    details.extend(fix_of(result).map(|fix| format!("help: {fix}")));
    for problem in &result.problems {
        details.push(format!("error: {problem}"));
        details.extend(problem.hint.as_ref().map(|hint| format!("help: {hint}")));
    }
    ReportedResult {
        rule: RuleName::from(&result.rule),
        resource: ObjectName::from(&result.trigger),
        result: result.word().to_owned(),
        message: message(result).unwrap_or_default(),
        details,
    }
}

fn message(result: &RuleResult) -> Option<String> {
    let violation = result.violation.as_ref().map(|violation| violation.message.clone());
    violation.or_else(|| result.because())
}
