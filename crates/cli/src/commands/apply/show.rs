//! What `kiln apply` prints.

use std::io::{self, Write};

use kiln_diagnostic::Diagnostic;
use kiln_object::ObjectId;
use kiln_offline::{ObjectChange, Report, RuleResult, Status};
use kiln_studio::{Written, fix_of as fix, plan_page, run_as_value, run_report};
use kiln_value::json;
use kiln_yaml::{emit, emit_documents};

use super::policy_report::policy_reports;
use super::{Args, findings, junit};
use crate::args::OutputFormat;
use crate::ui::{Paint, Style, Ui, difference, plain};

/// Prints the report in the form that was asked for.
pub(super) fn report(
    ui: &Ui,
    args: &Args,
    objects_written: bool,
    report: &Report,
    written: &Written<'_>,
) -> io::Result<()> {
    let mut out = ui.stdout();
    let shown: Vec<&RuleResult> = report
        .results
        .iter()
        .filter(|result| !args.fail_only || matches!(result.status, Status::Fail | Status::Error))
        .collect();
    match ui.format() {
        OutputFormat::Junit => out.write_all(junit::xml(&shown, written).as_bytes())?,
        format if crate::findings::FORMS.contains(&format) => {
            crate::findings::write(&mut out, format, &findings::of(&shown, written))?;
        }
        _ if args.policy_report && ui.format() != OutputFormat::Table => {
            let reports = policy_reports(args.report_group, written.rules(), &shown);
            for (at, shown) in reports.iter().enumerate() {
                if at > 0 {
                    writeln!(out, "---")?;
                }
                match ui.format() == OutputFormat::Json || args.output_format == "json" {
                    true => writeln!(out, "{}", json::to_string_pretty(shown))?,
                    false => out.write_all(emit(shown).as_bytes())?,
                }
            }
        }
        OutputFormat::Json => {
            let value = run_as_value(report, &shown, written, args.trace);
            writeln!(out, "{}", json::to_string_pretty(&value))?;
        }
        // What was piped in comes out, changed or not, and what rules make follows.
        OutputFormat::Yaml if args.resource.iter().any(|path| path == "-") => {
            out.write_all(stream(report).as_bytes())?;
        }
        OutputFormat::Yaml => {
            let objects = report.objects();
            let text = emit_documents(objects.iter().map(|made| &made.object));
            out.write_all(text.as_bytes())?;
        }
        OutputFormat::Html => {
            out.write_all(plan_page(&run_report(report, &shown, written)).as_bytes())?;
        }
        OutputFormat::Table => table(&mut out, args, report, &shown)?,
        _ if args.table => table(&mut out, args, report, &shown)?,
        _ => text(&mut out, args, objects_written, report, &shown, written)?,
    }
    out.flush()
}

/// The given resources in order, then the objects that rules made besides.
fn stream(report: &Report) -> String {
    let made = report.objects();
    let made = made.iter().filter(|made| made.change == ObjectChange::Created);
    emit_documents(report.resources.iter().chain(made.map(|made| &made.object)))
}

fn text(
    out: &mut impl Paint,
    args: &Args,
    objects_written: bool,
    report: &Report,
    shown: &[&RuleResult],
    written: &Written<'_>,
) -> io::Result<()> {
    let mut last = None;
    for result in shown {
        if last != Some(&result.rule) {
            let (policy, rule) = (result.rule.policy.key(), &result.rule.rule);
            out.paint(Style::Strong, &plain(&format!("policy {policy}, rule {rule}")))?;
            writeln!(out)?;
            last = Some(&result.rule);
        }
        write!(out, "  {}: ", name(result))?;
        out.result(result.word())?;
        match result.because() {
            Some(because) => writeln!(out, ": {}", plain(&because))?,
            None => writeln!(out)?,
        }
        for fault in written.faults(result) {
            writeln!(out, "    {}", plain(&fault.line()))?;
        }
        if let Some(fix) = fix(result) {
            writeln!(out, "    help: {}", plain(&fix.to_string()))?;
        }
        for made in &result.made {
            writeln!(out, "    {} {}", made.change.as_str(), plain(&made.id.to_string()))?;
        }
        for problem in &result.problems {
            let place =
                problem.place.as_ref().map(|place| format!("{place}: ")).unwrap_or_default();
            writeln!(out, "    error: {}", plain(&format!("{place}{}", problem.message)))?;
            if let Some(hint) = &problem.hint {
                writeln!(out, "    help: {}", plain(hint))?;
            }
        }
        if let Some(trace) = result.trace.as_ref().filter(|_| args.trace) {
            for line in trace.to_string().lines() {
                write!(out, "    | ")?;
                out.trace(line)?;
                writeln!(out)?;
            }
        }
    }
    for resource in &report.untouched {
        writeln!(out, "{}: no rule names this kind", describe(resource))?;
    }
    let objects = report.objects();
    let changed: Vec<_> = objects
        .iter()
        .filter(|made| {
            matches!(
                made.change,
                ObjectChange::Created | ObjectChange::Updated | ObjectChange::Patched
            )
        })
        .collect();
    if args.diff {
        for made in &changed {
            let (id, before) = (made.id.to_string(), made.before.as_ref());
            let text = difference(&format!("{id} as given"), &id, before, Some(&made.object));
            out.difference(&text)?;
        }
    } else if !objects_written && !changed.is_empty() {
        writeln!(out)?;
        for made in &changed {
            write!(out, "---\n{}", emit(&made.object))?;
        }
    }
    if !report.results.is_empty() {
        writeln!(out)?;
    }
    writeln!(out, "{}", summary(report))
}

/// Says on standard error what was refused and what failed, where standard output holds objects alone.
pub(super) fn refusals(ui: &Ui, report: &Report) {
    for result in &report.results {
        if result.status == Status::Error {
            result.problems.iter().for_each(|problem| ui.problem(problem));
        }
        if result.status != Status::Fail {
            continue;
        }
        let why = result.why.as_deref().unwrap_or("rejected");
        let told = match &result.violation {
            Some(violation) => format!("{}: {}", name(result), violation.message),
            None => format!("{} is {why}", name(result)),
        };
        ui.problem(&Diagnostic::error(told));
    }
}

fn name(result: &RuleResult) -> String {
    describe(&result.trigger)
}

pub(super) fn describe(id: &ObjectId) -> String {
    let name = match id.namespace.as_str() {
        "" => format!("{} {}", id.gvk.kind, id.name),
        namespace => format!("{} {namespace}/{}", id.gvk.kind, id.name),
    };
    plain(&name)
}

fn summary(report: &Report) -> String {
    let counts = report.counts();
    format!(
        "pass: {}, fail: {}, warn: {}, error: {}, skip: {}",
        counts.pass, counts.fail, counts.warn, counts.error, counts.skip
    )
}

/// What came of a rule in one text, as reports have it.
pub(in crate::commands) fn message(result: &RuleResult) -> String {
    match result.problems.first() {
        Some(problem) => problem.message.clone(),
        None if result.made.is_empty() => match (&result.violation, &result.why) {
            (Some(violation), _) => violation.message.clone(),
            (None, Some(why)) if result.status == Status::Pass => why.clone(),
            _ => result.because().unwrap_or_default(),
        },
        None => {
            let made: Vec<_> =
                result.made.iter().map(|m| format!("{} {}", m.change.as_str(), m.id)).collect();
            made.join(", ")
        }
    }
}

fn table(
    out: &mut impl Paint,
    args: &Args,
    report: &Report,
    shown: &[&RuleResult],
) -> io::Result<()> {
    let mut header = vec!["POLICY", "RULE", "RESOURCE", "RESULT"];
    if args.detailed_results {
        header.push("MESSAGE");
    }
    let rows = shown.iter().map(|result| {
        let mut row = vec![
            result.rule.policy.key(),
            result.rule.rule.to_string(),
            name(result),
            result.word().to_owned(),
        ];
        if args.detailed_results {
            row.push(message(result));
        }
        row
    });
    crate::ui::table(out, &header, rows)?;
    writeln!(out, "\n{}", summary(report))
}
