//! A plan as a page.

use kiln_object::ObjectId;
use kiln_rules::RuleId;
use kiln_runtime::Planned;
use kiln_studio::{
    ChangeAction, Lineage, LineageLink, LinkState, ObjectName, PlanReport, ReportedChange,
    ReportedNote, RuleName, fold, link_of_claim, unified_difference,
};
use kiln_value::Value;

use super::Plan;
use super::show::{Shown, rule, summary};

pub(super) fn report(shown: Shown, plan: &Plan) -> PlanReport {
    let names = |rules: &[RuleId]| rules.iter().map(RuleName::from).collect();
    let mut changes: Vec<ReportedChange> =
        plan.now.changes.iter().map(|planned| change(shown, plan, planned)).collect();
    changes.extend(plan.now.denied.iter().map(|denied| ReportedChange {
        action: ChangeAction::Deny,
        object: ObjectName::from(&denied.target),
        rules: names(&denied.rules),
        why: Some(denied.why.clone()),
        diff: String::new(),
        remark: None,
    }));
    changes.extend(plan.next_write.iter().map(|write| {
        let (diff, remark) = difference(shown, Some(&write.before), Some(&write.after));
        let is_refused = write.refused.is_some();
        ReportedChange {
            action: if is_refused { ChangeAction::DenyLater } else { ChangeAction::ChangeLater },
            object: ObjectName::from(&write.target),
            rules: names(&write.rules),
            why: write.refused.clone(),
            diff: if is_refused { String::new() } else { diff },
            remark,
        }
    }));
    let mut notes = Vec::new();
    for run in &plan.next_runs {
        changes.extend(run.deletes.iter().map(|(target, warning)| ReportedChange {
            action: ChangeAction::DeleteLater,
            object: ObjectName::from(target),
            rules: names(std::slice::from_ref(&run.rule)),
            why: warning.clone(),
            diff: String::new(),
            remark: None,
        }));
        notes.extend(run.failed.iter().map(|(what, why)| note(what, why, true)));
    }
    notes.extend(plan.now.undone.iter().map(|undone| note(&undone.what, &undone.why, true)));
    let new_only = "acts on new objects only; --all shows what it does with existing ones";
    notes.extend(plan.waiting.iter().map(|id| note(&rule(id), new_only, false)));
    PlanReport {
        title: "Plan".to_owned(),
        summary: summary(plan),
        changes,
        results: Vec::new(),
        lineage: lineage(plan),
        notes,
    }
}

fn note(what: &str, why: &str, failed: bool) -> ReportedNote {
    ReportedNote { what: what.to_owned(), why: why.to_owned(), failed }
}

fn change(shown: Shown, plan: &Plan, planned: &Planned) -> ReportedChange {
    let (diff, remark) = difference(shown, planned.before.as_ref(), planned.after.as_ref());
    let fields = plan.set_by(&planned.target);
    let set = fields.map(|fields| format!("rules set {}", fields.join(", ")));
    let remarks: Vec<String> = set.into_iter().chain(remark).collect();
    ReportedChange {
        action: match (&planned.before, &planned.after) {
            (None, _) => ChangeAction::Create,
            (Some(_), Some(_)) => ChangeAction::Change,
            (Some(_), None) => ChangeAction::Delete,
        },
        object: ObjectName::from(&planned.target),
        rules: planned.rules.iter().map(RuleName::from).collect(),
        why: None,
        diff,
        remark: Some(remarks.join("; ")).filter(|text| !text.is_empty()),
    }
}

/// The difference as much of it as is shown, and what is left out.
fn difference(
    shown: Shown,
    before: Option<&Value>,
    after: Option<&Value>,
) -> (String, Option<String>) {
    match shown {
        Shown::Names => (String::new(), None),
        Shown::All => (unified_difference(None, before, after), None),
        Shown::Content => {
            let folded = fold(before, after);
            let diff = unified_difference(None, folded.before.as_ref(), folded.after.as_ref());
            (diff, folded.remark())
        }
    }
}

/// What objects would say of themselves; of those that carry no claim, the rules that change or deny them.
fn lineage(plan: &Plan) -> Lineage {
    let mut links = Vec::new();
    for planned in &plan.now.changes {
        let state = match (&planned.before, &planned.after) {
            (None, _) => LinkState::Created,
            (Some(_), Some(_)) => LinkState::Changed,
            (Some(_), None) => LinkState::Deleted,
        };
        let object = planned.after.as_ref().or(planned.before.as_ref());
        let claim = object.and_then(|object| link_of_claim(&planned.target, object, state, None));
        match claim {
            Some(mut link) => {
                // Labels shorten names, and those of some languages name no rule.
                let exact =
                    planned.rules.iter().find(|id| id.policy.key().starts_with(&link.rule.policy));
                if let Some(exact) = exact {
                    link.rule = RuleName::from(exact);
                }
                links.push(link);
            }
            None => links.extend(direct(&planned.rules, &planned.target, state, None)),
        }
    }
    for denied in &plan.now.denied {
        let why = Some(denied.why.as_str());
        links.extend(direct(&denied.rules, &denied.target, LinkState::Denied, why));
    }
    for write in &plan.next_write {
        let state = if write.refused.is_some() { LinkState::Denied } else { LinkState::Changed };
        links.extend(direct(&write.rules, &write.target, state, write.refused.as_deref()));
    }
    for run in &plan.next_runs {
        for (target, why) in &run.deletes {
            let rules = std::slice::from_ref(&run.rule);
            links.extend(direct(rules, target, LinkState::Deleted, why.as_deref()));
        }
    }
    Lineage::new(links)
}

fn direct(
    rules: &[RuleId],
    target: &ObjectId,
    state: LinkState,
    why: Option<&str>,
) -> Vec<LineageLink> {
    let link = |rule: &RuleId| LineageLink {
        rule: RuleName::from(rule),
        trigger: None,
        sources: Vec::new(),
        object: Some(ObjectName::from(target)),
        state,
        why: why.map(str::to_owned),
    };
    rules.iter().map(link).collect()
}
