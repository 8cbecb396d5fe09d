//! A plan as a comment of a pull request.

use std::io::{self, Write};

use kiln_object::ObjectId;
use kiln_rules::RuleId;
use kiln_studio::fold;
use kiln_value::Value;

use super::Plan;
use super::show::{Shown, named, rule, summary};
use crate::ui::{difference, plain};

pub(super) fn markdown(out: &mut impl Write, shown: Shown, plan: &Plan) -> io::Result<()> {
    writeln!(out, "**{}**\n", summary(plan))?;
    let mut rows = Vec::new();
    let mut details = Vec::new();
    for planned in &plan.now.changes {
        let fields =
            plan.set_by(&planned.target).map(|fields| format!("sets {}", fields.join(", ")));
        rows.push(row(
            planned.action(),
            &planned.target,
            &planned.rules,
            &fields.unwrap_or_default(),
        ));
        let (before, after) = (planned.before.as_ref(), planned.after.as_ref());
        details.push((planned.action(), &planned.target, before, after));
    }
    for denied in &plan.now.denied {
        rows.push(row("deny", &denied.target, &denied.rules, &denied.why));
    }
    for write in &plan.next_write {
        match &write.refused {
            Some(why) => rows.push(row("deny later", &write.target, &write.rules, why)),
            None => {
                rows.push(row("change later", &write.target, &write.rules, ""));
                let (before, after) = (Some(&write.before), Some(&write.after));
                details.push(("change later", &write.target, before, after));
            }
        }
    }
    for run in &plan.next_runs {
        for (target, warning) in &run.deletes {
            let why = warning.as_deref().unwrap_or_default();
            rows.push(row("delete later", target, std::slice::from_ref(&run.rule), why));
        }
    }
    if !rows.is_empty() {
        writeln!(out, "| action | object | rules | |\n|---|---|---|---|")?;
        for row in rows {
            writeln!(out, "{row}")?;
        }
    }
    for undone in &plan.now.undone {
        writeln!(out, "\n- not done: {}: {}", escaped(&undone.what), escaped(&undone.why))?;
    }
    if shown == Shown::Names {
        return Ok(());
    }
    for (action, target, before, after) in details {
        let text = text_of(shown, target, before, after);
        // No line of an object ends the block.
        let fence = "`".repeat(longest_run(&text).max(2) + 1);
        let target = named(target).replace('&', "&amp;").replace('<', "&lt;");
        writeln!(out, "\n<details><summary>{action} <code>{target}</code></summary>\n")?;
        writeln!(out, "{fence}diff\n{}{fence}\n\n</details>", ended(&text))?;
    }
    Ok(())
}

fn text_of(
    shown: Shown,
    target: &ObjectId,
    before: Option<&Value>,
    after: Option<&Value>,
) -> String {
    let id = named(target);
    let text = |before: Option<&Value>, after: Option<&Value>| {
        difference(&format!("{id} as it is"), &id, before, after)
    };
    if shown == Shown::All {
        return text(before, after);
    }
    let folded = fold(before, after);
    text(folded.before.as_ref(), folded.after.as_ref())
}

fn ended(text: &str) -> String {
    if text.is_empty() || text.ends_with('\n') { text.to_owned() } else { format!("{text}\n") }
}

/// The most backticks in a row.
fn longest_run(text: &str) -> usize {
    text.split(|c| c != '`').map(str::len).max().unwrap_or_default()
}

fn row(action: &str, target: &ObjectId, rules: &[RuleId], more: &str) -> String {
    let rules: Vec<String> = rules.iter().map(|id| escaped(&rule(id))).collect();
    format!("| {action} | {} | {} | {} |", escaped(&named(target)), rules.join("; "), escaped(more))
}

/// A text that Markdown shows as it is.
fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for c in plain(text).chars() {
        if matches!(c, '|' | '`' | '*' | '_' | '<' | '>' | '[' | ']' | '\\' | '#' | '@' | '!') {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    escaped
}

#[cfg(test)]
mod tests {
    use kiln_object::Gvk;
    use kiln_runtime::{Denied, DryRunResult, Planned};
    use kiln_value::value;

    use super::*;

    #[test]
    fn nothing_in_an_object_leaves_its_place() {
        let id = ObjectId::new(Gvk::new("v1", "ConfigMap"), "shop", "a|b");
        let after = value!({"data": {"text": "```\n</details>\n| x |"}});
        let planned =
            Planned { target: id.clone(), rules: Vec::new(), before: None, after: Some(after) };
        let denied = Denied { target: id, rules: Vec::new(), why: "<b>\n| no | `".to_owned() };
        let plan = Plan {
            now: DryRunResult { changes: vec![planned], denied: vec![denied], undone: Vec::new() },
            next_write: Vec::new(),
            next_runs: Vec::new(),
            waiting: Vec::new(),
            set_by_rules: Vec::new(),
        };
        let mut out = Vec::new();
        markdown(&mut out, Shown::Content, &plan).unwrap();
        let said = String::from_utf8(out).unwrap();
        assert!(
            said.contains(r"| deny | v1/ConfigMap/shop/a\|b |  | \<b\> \| no \| \` |"),
            "{said}"
        );
        assert!(said.contains("\n````diff\n"), "{said}");
        assert_eq!(said.matches("\n````\n").count(), 1, "{said}");
    }
}
