//! What `kiln test` prints.

use std::io::{self, Write};

use kiln_suites::{Counts, Report, Row, Verdict, junit};
use kiln_value::json;
use kiln_yaml::emit;

use super::Args;
use crate::args::Format;
use crate::ui::{Paint, counted, table};

/// Prints the report in the form that was asked for.
pub(super) fn report(
    out: &mut impl Paint,
    format: Format,
    args: &Args,
    report: &Report,
) -> io::Result<()> {
    let failed_only = args.fail_only.then(|| only_failed(report));
    let shown = failed_only.as_ref().unwrap_or(report);
    match format {
        Format::Json => writeln!(out, "{}", json::to_string_pretty(&shown.as_value()))?,
        Format::Yaml => out.write_all(emit(&shown.as_value()).as_bytes())?,
        Format::Junit => out.write_all(junit(shown).as_bytes())?,
        Format::Table => rows(out, args, shown)?,
        Format::Text => {
            rows(out, args, shown)?;
            differences(out, shown)?;
            writeln!(out, "{}", summary(report))?;
        }
    }
    out.flush()
}

fn only_failed(report: &Report) -> Report {
    let mut report = report.clone();
    for suite in &mut report.suites {
        suite.rows.retain(|row| row.verdict == Verdict::Failed);
    }
    report
}

fn rows(out: &mut impl Paint, args: &Args, report: &Report) -> io::Result<()> {
    let mut header = vec!["ID", "POLICY", "RULE", "RESOURCE", "RESULT", "REASON"];
    if args.detailed_results {
        header.push("MESSAGE");
    }
    let mut number = 0;
    for suite in report.suites.iter().filter(|suite| !suite.rows.is_empty()) {
        writeln!(out, "{}", suite.path)?;
        let cells = suite.rows.iter().map(|row| {
            number += 1;
            cells(number, row, args.detailed_results)
        });
        table(out, &header, cells.collect::<Vec<_>>())?;
        writeln!(out)?;
    }
    Ok(())
}

fn cells(number: usize, row: &Row, detailed: bool) -> Vec<String> {
    let mut cells = vec![
        number.to_string(),
        row.policy.clone(),
        row.rule.clone(),
        row.resource.clone(),
        row.verdict.as_str().to_owned(),
        one_line(&row.reason),
    ];
    if detailed {
        cells.push(one_line(&row.message));
    }
    cells
}

fn one_line(text: &str) -> String {
    text.split(['\n', '\r'])
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect::<Vec<_>>()
        .join(" ")
}

fn differences(out: &mut impl Write, report: &Report) -> io::Result<()> {
    let mut number = 0;
    for row in report.suites.iter().flat_map(|suite| &suite.rows) {
        number += 1;
        for difference in &row.differences {
            writeln!(out, "{number}: {}", row.place)?;
            writeln!(out, "{}", difference.diff)?;
        }
    }
    Ok(())
}

fn summary(report: &Report) -> String {
    let Counts { passed, failed, excluded, not_run, broken, compared } = report.counts();
    let mut parts = vec![format!("{passed} passed"), format!("{failed} failed")];
    for (count, what) in [(excluded, "excluded"), (not_run, "not run")] {
        if count > 0 {
            parts.push(format!("{count} {what}"));
        }
    }
    let mut text = format!(
        "{}: {}; {} compared",
        counted(report.suites.len(), "suite", "suites"),
        parts.join(", "),
        counted(compared, "object", "objects")
    );
    if broken > 0 {
        text.push_str(&format!("; {} cannot be used", counted(broken, "suite", "suites")));
    }
    text
}
