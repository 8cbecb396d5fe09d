//! What `kiln plan` prints.

use std::io::{self, Write};

use kiln_object::ObjectId;
use kiln_rules::RuleId;
use kiln_runtime::Planned;
use kiln_studio::{fold, plan_page};
use kiln_value::{Map, Value, json};
use kiln_yaml::emit;

use super::Plan;
use super::cleanup::NextRun;
use super::next_write::NextWrite;
use crate::args::OutputFormat;
use crate::ui::{Paint, Style, Ui, counted, difference, plain, table};

pub(super) fn plan(ui: &Ui, shown: Shown, plan: &Plan) -> io::Result<()> {
    let mut out = ui.stdout();
    match ui.format() {
        OutputFormat::Json => writeln!(out, "{}", json::to_string_pretty(&as_value(plan)))?,
        OutputFormat::Yaml => out.write_all(emit(&as_value(plan)).as_bytes())?,
        OutputFormat::Table => rows(&mut out, plan)?,
        OutputFormat::Html => {
            out.write_all(plan_page(&super::html::report(shown, plan)).as_bytes())?;
        }
        OutputFormat::Markdown => super::markdown::markdown(&mut out, shown, plan)?,
        _ => text(&mut out, shown, plan)?,
    }
    out.flush()
}

/// How much of the objects is shown.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Shown {
    /// Only the names of objects, with `--brief`.
    Names,
    /// How they differ, without the engine's bookkeeping.
    Content,
    /// How they differ.
    All,
}

/// A rule by its policy and its own name.
pub(in crate::commands) fn rule(rule: &RuleId) -> String {
    plain(&format!("policy {}, rule {}", rule.policy.key(), rule.rule))
}

/// The rules that do something, for the end of a line.
pub(in crate::commands) fn by(rules: &[RuleId]) -> String {
    match rules.iter().map(rule).collect::<Vec<_>>() {
        none if none.is_empty() => String::new(),
        named => format!(" ({})", named.join("; ")),
    }
}

/// An object by its name.
pub(super) fn named(id: &ObjectId) -> String {
    plain(&id.to_string())
}

fn text(out: &mut impl Paint, shown: Shown, plan: &Plan) -> io::Result<()> {
    for planned in &plan.now.changes {
        let by = by(&planned.rules);
        out.result(planned.action())?;
        writeln!(out, " {}{by}", named(&planned.target))?;
        let (before, after) = (planned.before.as_ref(), planned.after.as_ref());
        write_difference(out, shown, &planned.target, before, after)?;
        if let Some(fields) = plan.set_by(&planned.target) {
            out.paint(Style::Faint, &plain(&format!("(rules set {})", fields.join(", "))))?;
            writeln!(out)?;
        }
    }
    for denied in &plan.now.denied {
        out.result("deny")?;
        writeln!(out, " {}{}: {}", named(&denied.target), by(&denied.rules), plain(&denied.why))?;
    }
    if !plan.next_write.is_empty() {
        writeln!(out, "on their next write:")?;
    }
    for write in &plan.next_write {
        let (target, by) = (named(&write.target), by(&write.rules));
        if let Some(why) = &write.refused {
            out.result("deny")?;
            writeln!(out, " {target}{by}: {}", plain(why))?;
        } else {
            out.result("change")?;
            writeln!(out, " {target}{by}")?;
            let (before, after) = (Some(&write.before), Some(&write.after));
            write_difference(out, shown, &write.target, before, after)?;
        }
    }
    for run in plan.next_runs.iter().filter(|run| !run.deletes.is_empty() || !run.failed.is_empty())
    {
        let time = run.time.as_deref().unwrap_or("never");
        writeln!(out, "by the next run of policy {} ({time}):", plain(&run.rule.policy.key()))?;
        for (target, warning) in &run.deletes {
            out.result("delete")?;
            write!(out, " {}", named(target))?;
            match warning {
                Some(warning) => writeln!(out, ": {}", plain(warning))?,
                None => writeln!(out)?,
            }
        }
        for (what, why) in &run.failed {
            out.result("not done")?;
            writeln!(out, ": {}: {}", plain(what), plain(why))?;
        }
    }
    for undone in &plan.now.undone {
        out.result("not done")?;
        writeln!(out, ": {}: {}", plain(&undone.what), plain(&undone.why))?;
    }
    for id in &plan.waiting {
        writeln!(
            out,
            "note: {} acts on new objects only; --all shows what it does with existing ones",
            rule(id)
        )?;
    }
    writeln!(out, "{}", summary(plan))
}

fn write_difference(
    out: &mut impl Paint,
    shown: Shown,
    id: &ObjectId,
    before: Option<&Value>,
    after: Option<&Value>,
) -> io::Result<()> {
    let id = named(id);
    let text = |before: Option<&Value>, after: Option<&Value>| {
        difference(&format!("{id} as it is"), &id, before, after)
    };
    match shown {
        Shown::Names => Ok(()),
        Shown::All => out.difference(&text(before, after)),
        Shown::Content => {
            let folded = fold(before, after);
            out.difference(&text(folded.before.as_ref(), folded.after.as_ref()))?;
            if folded.count > 0 {
                let (one, many) = ("label or annotation", "labels and annotations");
                let count = counted(folded.count, one, many);
                out.paint(Style::Faint, &format!("({count} of the engine; --full shows them)"))?;
                writeln!(out)?;
            }
            Ok(())
        }
    }
}

/// How many changes of each kind.
fn counts(plan: &Plan) -> [(&'static str, usize); 8] {
    let count = |word: &str| plan.now.changes.iter().filter(|p| p.action() == word).count();
    let refused = plan.next_write.iter().filter(|write| write.refused.is_some()).count();
    let unjudged: usize = plan.next_runs.iter().map(|run| run.failed.len()).sum();
    [
        ("create", count("create")),
        ("change", count("change")),
        ("delete", count("delete")),
        ("deny", plan.now.denied.len()),
        ("changeOnNextWrite", plan.next_write.len() - refused),
        ("refuseOnNextWrite", refused),
        ("deleteOnSchedule", plan.next_runs.iter().map(|run| run.deletes.len()).sum()),
        ("notDone", plan.now.undone.len() + unjudged),
    ]
}

pub(super) fn summary(plan: &Plan) -> String {
    let [create, change, delete, deny, next, refuse, scheduled, undone] =
        counts(plan).map(|(_, count)| count);
    if create + change + delete + deny + next + refuse + scheduled + undone == 0 {
        return "nothing would change".to_owned();
    }
    let mut text = format!("{create} to create, {change} to change, {delete} to delete");
    for (count, one, many) in [
        (deny, "object is denied", "objects are denied"),
        (next, "object changes on its next write", "objects change on their next write"),
        (refuse, "object is denied on its next write", "objects are denied on their next write"),
        (scheduled, "object is deleted on a schedule", "objects are deleted on a schedule"),
        (undone, "change cannot be made", "changes cannot be made"),
    ] {
        if count > 0 {
            text.push_str("; ");
            text.push_str(&counted(count, one, many));
        }
    }
    text
}

fn rows(out: &mut impl Paint, plan: &Plan) -> io::Result<()> {
    let row = |action: &str, what: &str, rules: &[RuleId], why: &str| {
        let policies = rules.iter().map(|id| id.policy.key()).collect::<Vec<_>>().join(", ");
        let rules = rules.iter().map(|id| id.rule.as_str()).collect::<Vec<_>>().join(", ");
        [action, what, &policies, &rules, why].map(plain).to_vec()
    };
    let now = plan
        .now
        .changes
        .iter()
        .map(|planned| row(planned.action(), &planned.target.to_string(), &planned.rules, ""));
    let denied = plan
        .now
        .denied
        .iter()
        .map(|denied| row("deny", &denied.target.to_string(), &denied.rules, &denied.why));
    let later = plan.next_write.iter().map(|write| {
        let action = if write.refused.is_some() { "deny later" } else { "change later" };
        let why = write.refused.as_deref().unwrap_or_default();
        row(action, &write.target.to_string(), &write.rules, why)
    });
    let undone =
        plan.now.undone.iter().map(|undone| row("not done", &undone.what, &[], &undone.why));
    let scheduled = plan.next_runs.iter().flat_map(|run| {
        let rules = [run.rule.clone()];
        let deletes = run.deletes.iter().map(|(target, warning)| {
            let why = warning.as_deref().unwrap_or_default();
            row("delete later", &target.to_string(), &rules, why)
        });
        let failed = run.failed.iter().map(|(what, why)| row("not done", what, &rules, why));
        deletes.chain(failed).collect::<Vec<_>>()
    });
    let header = ["ACTION", "OBJECT", "POLICY", "RULE", "WHY"];
    table(out, &header, now.chain(denied).chain(later).chain(scheduled).chain(undone))?;
    writeln!(out, "\n{}", summary(plan))
}

fn rule_value(id: &RuleId) -> Value {
    Value::from(Map::from_iter([
        ("policy", Value::from(id.policy.key())),
        ("rule", Value::from(id.rule.clone())),
    ]))
}

fn change_value(plan: &Plan, planned: &Planned) -> Value {
    let mut map = Map::from_iter([
        ("action", Value::from(planned.action())),
        ("object", Value::from(planned.target.to_string())),
    ]);
    map.insert("by", planned.rules.iter().map(rule_value).collect::<Value>());
    if let Some(fields) = plan.set_by(&planned.target) {
        let fields: Value = fields.iter().map(String::as_str).collect();
        map.insert("setByRules", fields);
    }
    for (name, object) in [("before", &planned.before), ("after", &planned.after)] {
        if let Some(object) = object {
            map.insert(name, object.clone());
        }
    }
    Value::from(map)
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

fn run_value(run: &NextRun) -> Value {
    let deletes = run.deletes.iter().map(|(target, warning)| {
        let mut fields = Map::from_iter([("object", Value::from(target.to_string()))]);
        if let Some(warning) = warning {
            fields.insert("warning", warning.as_str());
        }
        Value::from(fields)
    });
    let failed = run.failed.iter().map(|(what, why)| {
        let fields = [("what", Value::from(what.as_str())), ("why", Value::from(why.as_str()))];
        Value::from(Map::from_iter(fields))
    });
    Value::from(Map::from_iter([
        ("policy", Value::from(run.rule.policy.key())),
        ("time", run.time.as_deref().map_or(Value::Null, Value::from)),
        ("deletes", deletes.collect()),
        ("notDone", failed.collect()),
    ]))
}

fn as_value(plan: &Plan) -> Value {
    let changes = plan.now.changes.iter().map(|planned| change_value(plan, planned));
    let changes: Value = changes.collect();
    let denied = plan.now.denied.iter().map(|denied| {
        Value::from(Map::from_iter([
            ("object", Value::from(denied.target.to_string())),
            ("by", denied.rules.iter().map(rule_value).collect()),
            ("why", Value::from(denied.why.as_str())),
        ]))
    });
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
        ("denied", denied.collect()),
        ("nextWrite", next),
        ("nextRuns", plan.next_runs.iter().map(run_value).collect()),
        ("notDone", undone),
        ("newObjectsOnly", plan.waiting.iter().map(rule_value).collect()),
        ("summary", Value::from(summary)),
    ]))
}

#[cfg(test)]
mod tests {
    use kiln_object::Gvk;
    use kiln_runtime::{DryRunResult, NotApplied};

    use super::*;

    #[test]
    fn what_rules_and_servers_say_stays_on_its_line_and_is_not_obeyed() {
        let hostile = "a\u{1b}[2J\nnothing would change";
        let undone = NotApplied { what: hostile.to_owned(), why: hostile.to_owned() };
        let refused = NextWrite {
            target: ObjectId::new(Gvk::new("v1", "ConfigMap"), "shop", "a"),
            rules: Vec::new(),
            before: Value::Null,
            after: Value::Null,
            refused: Some(hostile.to_owned()),
        };
        let plan = Plan {
            now: DryRunResult { undone: vec![undone], ..DryRunResult::default() },
            next_write: vec![refused],
            next_runs: Vec::new(),
            waiting: Vec::new(),
            set_by_rules: Vec::new(),
        };
        let (mut lines, mut table) = (Vec::new(), Vec::new());
        text(&mut lines, Shown::Names, &plan).unwrap();
        rows(&mut table, &plan).unwrap();
        for said in [lines, table] {
            let said = String::from_utf8(said).unwrap();
            assert!(!said.contains('\u{1b}'), "{said:?}");
            assert_eq!(said.matches("a\u{fffd}[2J nothing would change").count(), 3, "{said}");
        }
    }
}
