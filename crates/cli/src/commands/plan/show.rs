//! What `kiln plan` prints.

use std::io::{self, Write};

use kiln_live::Planned;
use kiln_object::ObjectId;
use kiln_rules::RuleId;
use kiln_value::{Map, Value, json};

use super::Plan;
use super::next_write::NextWrite;
use crate::args::Format;
use crate::ui::{Ui, counted, difference, table};

pub(super) fn plan(ui: &Ui, brief: bool, plan: &Plan) -> io::Result<()> {
    let mut out = ui.stdout();
    match ui.format() {
        Format::Json => writeln!(out, "{}", json::to_string_pretty(&as_value(plan)))?,
        Format::Table => rows(&mut out, plan)?,
        _ => text(&mut out, brief, plan)?,
    }
    out.flush()
}

/// A rule by its policy and its own name.
pub(in crate::commands) fn rule(rule: &RuleId) -> String {
    format!("policy {}, rule {}", rule.policy.key(), rule.rule)
}

/// The rules that do something, for the end of a line.
pub(in crate::commands) fn by(rules: &[RuleId]) -> String {
    match rules.iter().map(rule).collect::<Vec<_>>() {
        none if none.is_empty() => String::new(),
        named => format!(" ({})", named.join("; ")),
    }
}

/// Names in a cluster may hold what a terminal would obey.
fn plain(id: &ObjectId) -> String {
    id.to_string().chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

fn text(out: &mut impl Write, brief: bool, plan: &Plan) -> io::Result<()> {
    for planned in &plan.now.changes {
        let by = by(&planned.rules);
        writeln!(out, "{} {}{by}", planned.action(), plain(&planned.target))?;
        if !brief {
            write_difference(
                out,
                &planned.target,
                planned.before.as_ref(),
                planned.after.as_ref(),
            )?;
        }
    }
    if !plan.next_write.is_empty() {
        writeln!(out, "on their next write:")?;
    }
    for write in &plan.next_write {
        let (target, by) = (plain(&write.target), by(&write.rules));
        match &write.refused {
            Some(why) => writeln!(out, "refuse {target}{by}: {why}")?,
            None => writeln!(out, "change {target}{by}")?,
        }
        if !brief && write.refused.is_none() {
            write_difference(out, &write.target, Some(&write.before), Some(&write.after))?;
        }
    }
    for undone in &plan.now.undone {
        writeln!(out, "not done: {}: {}", undone.what, undone.why)?;
    }
    for rule in &plan.waiting {
        writeln!(
            out,
            "note: {rule} acts on new objects only; --all shows what it makes of those that are there"
        )?;
    }
    writeln!(out, "{}", summary(plan))
}

fn write_difference(
    out: &mut impl Write,
    id: &ObjectId,
    before: Option<&Value>,
    after: Option<&Value>,
) -> io::Result<()> {
    let id = plain(id);
    let text = difference(&format!("{id} as it is"), &id, before, after);
    out.write_all(text.as_bytes())
}

/// How many changes of each kind.
fn counts(plan: &Plan) -> [(&'static str, usize); 6] {
    let count = |word: &str| plan.now.changes.iter().filter(|p| p.action() == word).count();
    let refused = plan.next_write.iter().filter(|write| write.refused.is_some()).count();
    [
        ("create", count("create")),
        ("change", count("change")),
        ("delete", count("delete")),
        ("changeOnNextWrite", plan.next_write.len() - refused),
        ("refuseOnNextWrite", refused),
        ("notDone", plan.now.undone.len()),
    ]
}

fn summary(plan: &Plan) -> String {
    let [create, change, delete, next, refuse, undone] = counts(plan).map(|(_, count)| count);
    if create + change + delete + next + refuse + undone == 0 {
        return "nothing would change".to_owned();
    }
    let mut text = format!("{create} to create, {change} to change, {delete} to delete");
    for (count, one, many) in [
        (next, "object changes on its next write", "objects change on their next write"),
        (refuse, "object is refused on its next write", "objects are refused on their next write"),
        (undone, "thing cannot be done", "things cannot be done"),
    ] {
        if count > 0 {
            text.push_str("; ");
            text.push_str(&counted(count, one, many));
        }
    }
    text
}

fn rows(out: &mut impl Write, plan: &Plan) -> io::Result<()> {
    let by = |id: Option<&RuleId>| {
        let names = id.map(|id| (id.policy.key(), id.rule.to_string()));
        names.unwrap_or_default()
    };
    let now = plan.now.changes.iter().map(|planned| {
        let (policy, rule) = by(planned.rules.first());
        vec![planned.action().to_owned(), plain(&planned.target), policy, rule]
    });
    let later = plan.next_write.iter().map(|write| {
        let (policy, rule) = by(write.rules.first());
        let action = if write.refused.is_some() { "refuse later" } else { "change later" };
        vec![action.to_owned(), plain(&write.target), policy, rule]
    });
    table(out, &["ACTION", "OBJECT", "POLICY", "RULE"], now.chain(later))?;
    writeln!(out, "\n{}", summary(plan))
}

fn rule_value(id: &RuleId) -> Value {
    Value::from(Map::from_iter([
        ("policy", Value::from(id.policy.key())),
        ("rule", Value::from(id.rule.clone())),
    ]))
}

fn change_value(planned: &Planned) -> Value {
    let mut fields = Map::from_iter([
        ("action", Value::from(planned.action())),
        ("object", Value::from(planned.target.to_string())),
    ]);
    fields.insert("by", planned.rules.iter().map(rule_value).collect::<Value>());
    for (name, object) in [("before", &planned.before), ("after", &planned.after)] {
        if let Some(object) = object {
            fields.insert(name, object.clone());
        }
    }
    Value::from(fields)
}

fn write_value(write: &NextWrite) -> Value {
    let rules: Value = write.rules.iter().map(rule_value).collect();
    let mut fields = Map::from_iter([
        ("action", Value::from(if write.refused.is_some() { "refuse" } else { "change" })),
        ("object", Value::from(write.target.to_string())),
        ("by", rules),
        ("before", write.before.clone()),
        ("after", write.after.clone()),
    ]);
    if let Some(why) = &write.refused {
        fields.insert("why", why.as_str());
    }
    Value::from(fields)
}

fn as_value(plan: &Plan) -> Value {
    let changes: Value = plan.now.changes.iter().map(change_value).collect();
    let next: Value = plan.next_write.iter().map(write_value).collect();
    let undone: Value = plan
        .now
        .undone
        .iter()
        .map(|undone| {
            Value::from(Map::from_iter([
                ("what", Value::from(undone.what.as_str())),
                ("why", Value::from(undone.why.as_str())),
            ]))
        })
        .collect();
    let summary = Map::from_iter(counts(plan).map(|(name, count)| (name, count)));
    Value::from(Map::from_iter([
        ("changes", changes),
        ("nextWrite", next),
        ("notDone", undone),
        ("summary", Value::from(summary)),
    ]))
}
