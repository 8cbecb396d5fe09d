//! What came of a run over files, as programs read it: the output of `kiln apply --format json`, and what the playground shows.

use kiln_engine::{FieldChange, FieldValue, Fix, TraceAnswer, TraceStep};
use kiln_offline::{Report, RuleResult};
use kiln_value::{Map, Value};

use crate::written::{Located, Written};

/// The report of a run; of its results, those that are shown.
pub fn run_as_value(
    report: &Report,
    shown: &[&RuleResult],
    written: &Written<'_>,
    with_trace: bool,
) -> Value {
    let results = shown.iter().map(|result| result_as_value(result, written, with_trace));
    let results: Value = results.collect();
    let untouched: Value = report.untouched.iter().map(|id| Value::from(id.to_string())).collect();
    let objects: Value = report.objects().iter().map(|made| made.object.clone()).collect();
    Value::from(Map::from_iter([
        ("results", results),
        ("untouched", untouched),
        ("summary", counts_as_value(report)),
        ("objects", objects),
    ]))
}

pub(crate) fn result_as_value(
    result: &RuleResult,
    written: &Written<'_>,
    with_trace: bool,
) -> Value {
    let made: Value = result
        .made
        .iter()
        .map(|made| {
            Value::from(Map::from_iter([
                ("object", Value::from(made.id.to_string())),
                ("change", Value::from(made.change.as_str())),
            ]))
        })
        .collect();
    let problems: Value = result.problems.iter().map(|p| Value::from(p.to_string())).collect();
    let mut fields = Map::from_iter([
        ("policy", Value::from(result.rule.policy.key())),
        ("rule", Value::from(result.rule.rule.clone())),
        ("resource", Value::from(result.trigger.to_string())),
        ("result", Value::from(result.status.as_str())),
    ]);
    if let Some(deletion) = result.deletion {
        fields.insert("deletion", deletion.as_str());
    }
    if let Some(because) = result.because() {
        fields.insert("why", because);
    }
    if result.violation.is_some() {
        let faults = written.faults(result);
        fields.insert("faults", faults.iter().map(Located::as_value).collect::<Value>());
    }
    if let Some(fix) = fix_of(result) {
        fields.insert("fix", fix.changes.iter().map(change_as_value).collect::<Value>());
    }
    if !result.properties.is_empty() {
        fields.insert("properties", properties(result));
    }
    fields.insert("made", made);
    fields.insert("problems", problems);
    if let Some(trace) = result.trace.as_ref().filter(|_| with_trace) {
        fields.insert("trace", step_as_value(trace));
    }
    Value::from(fields)
}

/// The smallest change that makes a resource pass.
pub fn fix_of(result: &RuleResult) -> Option<&Fix> {
    result.violation.as_ref()?.fix.as_ref()
}

/// One change, as programs read it: without a value, any that matches the pattern will do.
pub fn change_as_value(change: &FieldChange) -> Value {
    let mut fields = Map::from_iter([
        ("path", Value::from(change.at.to_string())),
        ("pointer", Value::from(change.at.to_pointer())),
    ]);
    match &change.to {
        FieldValue::Value(value) => {
            fields.insert("action", "set");
            fields.insert("value", value.clone());
        }
        FieldValue::Matching { pattern, .. } => {
            fields.insert("action", "set");
            fields.insert("matching", pattern.clone());
        }
        FieldValue::Removed => drop(fields.insert("action", "remove")),
    }
    Value::from(fields)
}

fn step_as_value(step: &TraceStep) -> Value {
    let mut fields = Map::from_iter([("what", Value::from(step.what.clone()))]);
    let answer = match &step.answer {
        TraceAnswer::Done => None,
        TraceAnswer::Yes => Some(Value::from(true)),
        TraceAnswer::No => Some(Value::from(false)),
        TraceAnswer::Value(value) => Some(value.clone()),
        TraceAnswer::Failed => Some(Value::from("failed")),
    };
    if let Some(answer) = answer {
        fields.insert("answer", answer);
    }
    if let Some(why) = &step.why {
        fields.insert("why", why.clone());
    }
    if !step.steps.is_empty() {
        let steps: Value = step.steps.iter().map(step_as_value).collect();
        fields.insert("steps", steps);
    }
    Value::from(fields)
}

pub(crate) fn counts_as_value(report: &Report) -> Value {
    let counts = report.counts();
    Value::from(Map::from_iter([
        ("pass", counts.pass),
        ("fail", counts.fail),
        ("warn", counts.warn),
        ("error", counts.error),
        ("skip", counts.skip),
    ]))
}

/// What a rule adds to reports.
fn properties(result: &RuleResult) -> Value {
    let pairs = result.properties.iter();
    Value::from(Map::from_iter(pairs.map(|(key, value)| (key.as_str(), value.clone()))))
}
