//! What `kiln explain` prints.

use std::collections::BTreeSet;
use std::io::{self, Write};

use kiln_engine::Status;
use kiln_object::ObjectId;
use serde_json::json;

use super::made_by::MadeBy;
use super::{Args, ExplainedRequest, Explanation, RuleExplanation};
use crate::args::OutputFormat;
use crate::cluster::policy_status::PolicyCondition;
use crate::ui::{Paint, Style, Ui, counted, plain};

pub(super) fn explanation(ui: &Ui, args: &Args, explanation: &Explanation) -> io::Result<()> {
    if ui.format() != OutputFormat::Text {
        return ui.document(&as_json(explanation));
    }
    let mut out = ui.stdout();
    text(&mut out, args.all, args.trace, explanation)?;
    out.flush()
}

/// The explanation without colours.
pub(super) fn plain_text(explanation: &Explanation) -> io::Result<String> {
    let mut out = Vec::new();
    text(&mut out, false, false, explanation)?;
    Ok(String::from_utf8_lossy(&out).into_owned())
}

fn text(out: &mut impl Paint, all: bool, trace: bool, shown: &Explanation) -> io::Result<()> {
    writeln!(out, "{}", plain(&shown.object.to_string()))?;
    if let Some(made) = &shown.made_by {
        made_by(out, made)?;
    }
    if let Some(why) = &shown.unseen {
        writeln!(out, "  excluded: {why}; otherwise:")?;
    }
    if shown.rules.is_empty() {
        writeln!(out, "  the cluster has no rules")?;
    }
    let about_kind: BTreeSet<String> = shown
        .rules
        .iter()
        .filter(|rule| rule.about_kind)
        .map(|rule| rule.rule.policy.key())
        .collect();
    let (near, far): (Vec<_>, Vec<_>) = shown
        .conditions
        .iter()
        .partition(|condition| all || about_kind.contains(&condition.policy));
    for condition in near {
        writeln!(out, "{}", plain(&condition.to_string()))?;
    }
    // Where nothing acts, those that came near are what the reader asks about.
    let acts = shown.rules.iter().any(|rule| rule.status != Status::NoMatch);
    let is_shown =
        |rule: &RuleExplanation| all || rule.status != Status::NoMatch || !acts && rule.about_kind;
    for rule in shown.rules.iter().filter(|rule| is_shown(rule)) {
        out.paint(Style::Strong, &super::super::plan::rule(&rule.rule))?;
        write!(out, "\n  ")?;
        out.result(rule.status.as_str())?;
        match &rule.why {
            Some(why) => writeln!(out, ": {}", plain(why))?,
            None => writeln!(out)?,
        }
        for (target, state) in &rule.targets {
            writeln!(out, "    {} {}", plain(&target.to_string()), plain(state))?;
        }
        if let Some(steps) = rule.trace.as_ref().filter(|_| trace) {
            for line in steps.to_string().lines() {
                write!(out, "    | ")?;
                out.trace(&plain(line))?;
                writeln!(out)?;
            }
        }
    }
    if let Some(line) = others(&shown.rules, is_shown) {
        writeln!(out, "{line}")?;
    }
    if let Some(line) = unmet_elsewhere(&far) {
        writeln!(out, "{}", plain(&line))?;
    }
    if let Some(why) = &shown.refused {
        writeln!(out, "the API server rejects the object as the rules change it: {}", plain(why))?;
    }
    for ExplainedRequest { name, policy, state, message, retries, .. } in &shown.requests {
        let [name, policy, state] = [name, policy, state].map(|text| plain(text));
        let retries = counted(*retries, "time", "times");
        write!(out, "UpdateRequest {name} of policy {policy}: {state}, retried {retries}")?;
        if message.is_empty() { writeln!(out)? } else { writeln!(out, ": {}", plain(message))? }
    }
    Ok(())
}

fn made_by(out: &mut impl Write, made: &MadeBy) -> io::Result<()> {
    let rule = made.rule.as_ref().map(|rule| format!(", rule {rule}")).unwrap_or_default();
    let trigger = made.trigger.as_ref().map(|id| format!(", for {id}")).unwrap_or_default();
    let said = format!("made by policy {}{rule}{trigger}", made.policy);
    writeln!(out, "  {} (as its labels say; not verified)", plain(&said))?;
    if !made.sources.is_empty() {
        writeln!(out, "  from {}", plain(&made.sources.join(", ")))?;
    }
    writeln!(out, "  {}", plain(&made.state))
}

/// How many policies are not shown because nothing of them matches.
fn others(
    rules: &[RuleExplanation],
    is_shown: impl Fn(&RuleExplanation) -> bool,
) -> Option<String> {
    let (shown, hidden): (Vec<_>, Vec<_>) = rules.iter().partition(|rule| is_shown(rule));
    let shown: BTreeSet<_> = shown.iter().map(|rule| &rule.rule.policy).collect();
    let hidden: BTreeSet<_> = hidden.iter().map(|rule| &rule.rule.policy).collect();
    let count = hidden.difference(&shown).count();
    let other = if shown.is_empty() { "" } else { "other " };
    let (one, many) = (format!("{other}policy does"), format!("{other}policies do"));
    (count > 0).then(|| format!("{} not match; --all shows why", counted(count, &one, &many)))
}

/// The policies that do not match the kind, and say that something is wrong with them.
fn unmet_elsewhere(conditions: &[&PolicyCondition]) -> Option<String> {
    const NAMED: usize = 3;
    let policies: BTreeSet<&str> =
        conditions.iter().map(|condition| condition.policy.as_str()).collect();
    let named: Vec<&str> = policies.iter().take(NAMED).copied().collect();
    let more = match policies.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let count = counted(
        policies.len(),
        "policy does not match this kind and is",
        "policies do not match this kind and are",
    );
    (!policies.is_empty()).then(|| {
        format!(
            "{count} not ready, or not run in full: {}{more}; `kiln doctor` says why",
            named.join(", ")
        )
    })
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
            "verdict": rule.status.as_str(),
            "why": rule.why,
            "targets": targets(&rule.targets),
            "trace": rule.trace,
        })
    };
    let made = |made: &MadeBy| {
        json!({
            "policy": made.policy,
            "rule": made.rule,
            "trigger": made.trigger,
            "sources": made.sources,
            "state": made.state,
            "verified": false,
        })
    };
    let request = |request: &ExplainedRequest| {
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
        "madeBy": explanation.made_by.as_ref().map(made),
        "refused": explanation.refused,
        "unseen": explanation.unseen,
        "rules": explanation.rules.iter().map(rule).collect::<Vec<_>>(),
        "updateRequests": explanation.requests.iter().map(request).collect::<Vec<_>>(),
    })
}
