//! What `kiln explain` prints.

use std::io::{self, Write};

use kiln_object::ObjectId;
use serde_json::json;

use super::super::conditions::PolicyCondition;
use super::{Explanation, Request, RuleExplanation};
use crate::args::Format;
use crate::ui::{Ui, plain};

pub(super) fn explanation(ui: &Ui, trace: bool, explanation: &Explanation) -> io::Result<()> {
    let mut out = ui.stdout();
    match ui.format() {
        Format::Json => writeln!(out, "{:#}", as_json(explanation))?,
        _ => text(&mut out, trace, explanation)?,
    }
    out.flush()
}

fn text(out: &mut impl Write, trace: bool, explanation: &Explanation) -> io::Result<()> {
    writeln!(out, "{}", plain(&explanation.object.to_string()))?;
    if let Some(why) = &explanation.unseen {
        writeln!(out, "  unseen: {why}; without that:")?;
    }
    if explanation.rules.is_empty() {
        writeln!(out, "  the cluster has no rules")?;
    }
    for PolicyCondition { policy, condition, message, .. } in &explanation.conditions {
        let (policy, condition) = (plain(policy), plain(condition));
        writeln!(out, "policy {policy} is not {condition}: {}", plain(message))?;
    }
    for rule in &explanation.rules {
        writeln!(out, "{}", super::super::plan::rule(&rule.rule))?;
        match &rule.why {
            Some(why) => writeln!(out, "  {}: {}", rule.verdict, plain(why))?,
            None => writeln!(out, "  {}", rule.verdict)?,
        }
        for (target, state) in &rule.targets {
            writeln!(out, "    {} {}", plain(&target.to_string()), plain(state))?;
        }
        if let Some(steps) = rule.trace.as_ref().filter(|_| trace) {
            for line in steps.to_string().lines() {
                writeln!(out, "    | {}", plain(line))?;
            }
        }
    }
    for Request { name, policy, state, message, retries } in &explanation.requests {
        let [name, policy, state] = [name, policy, state].map(|text| plain(text));
        write!(
            out,
            "UpdateRequest {name} of policy {policy}: {state}, tried again {retries} times"
        )?;
        if message.is_empty() { writeln!(out)? } else { writeln!(out, ": {}", plain(message))? }
    }
    Ok(())
}

fn as_json(explanation: &Explanation) -> serde_json::Value {
    let targets = |targets: &[(ObjectId, String)]| -> Vec<_> {
        targets
            .iter()
            .map(|(id, state)| json!({"object": id.to_string(), "state": state}))
            .collect()
    };
    let rule = |rule: &RuleExplanation| {
        json!({
            "policy": rule.rule.policy.key(),
            "rule": rule.rule.rule,
            "verdict": rule.verdict,
            "why": rule.why,
            "targets": targets(&rule.targets),
            "trace": rule.trace,
        })
    };
    let request = |request: &Request| {
        json!({
            "name": request.name,
            "policy": request.policy,
            "state": request.state,
            "message": request.message,
            "retries": request.retries,
        })
    };
    let condition = |condition: &PolicyCondition| {
        json!({
            "policy": condition.policy,
            "condition": condition.condition,
            "message": condition.message,
        })
    };
    json!({
        "conditions": explanation.conditions.iter().map(condition).collect::<Vec<_>>(),
        "object": explanation.object.to_string(),
        "unseen": explanation.unseen,
        "rules": explanation.rules.iter().map(rule).collect::<Vec<_>>(),
        "updateRequests": explanation.requests.iter().map(request).collect::<Vec<_>>(),
    })
}
