//! What `kiln test` prints.

use std::io::{self, Write};

use kiln_suites::{Counts, Report, Row, Suite, Verdict, junit};
use kiln_value::json;
use kiln_yaml::emit;

use super::Args;
use crate::args::OutputFormat;
use crate::findings::{self, Finding, Level};
use crate::ui::{Paint, Ui, counted, table};

/// Prints the report in the form that was asked for.
pub(super) fn report(
    out: &mut impl Paint,
    format: OutputFormat,
    args: &Args,
    report: &Report,
) -> io::Result<()> {
    let failed_only = args.fail_only.then(|| only_failed(report));
    let shown = failed_only.as_ref().unwrap_or(report);
    match format {
        OutputFormat::Json => writeln!(out, "{}", json::to_string_pretty(&shown.as_value()))?,
        OutputFormat::Yaml => out.write_all(emit(&shown.as_value()).as_bytes())?,
        OutputFormat::Junit => out.write_all(junit(shown).as_bytes())?,
        OutputFormat::Markdown => markdown(out, shown)?,
        OutputFormat::Table => rows(out, args, shown)?,
        OutputFormat::Sarif | OutputFormat::Github | OutputFormat::Gitlab | OutputFormat::Azure => {
            findings::write(out, format, &attention(report))?;
        }
        // `Ui::has_formats_of` has refused what is not a form of this command.
        OutputFormat::Text | OutputFormat::Html => {
            rows(out, args, shown)?;
            differences(out, shown)?;
            writeln!(out, "{}", summary(report))?;
        }
    }
    out.flush()
}

/// Expectations that are not met, and what is wrong with suites.
fn attention(report: &Report) -> Vec<Finding> {
    let mut found = Vec::new();
    for suite in &report.suites {
        let problems = suite.problems.iter();
        found.extend(problems.map(|problem| Finding::of_problem("test", problem)));
        for row in suite.rows.iter().filter(|row| row.verdict == Verdict::Failed) {
            let mut text = format!(
                "policy {}, rule {}, {}: {}",
                row.policy,
                row.rule,
                row.resource,
                one_line(&row.reason)
            );
            for difference in &row.differences {
                text.push_str(&format!("\n{}", difference.diff.trim_end()));
            }
            found.push(Finding {
                object: Some(row.resource.clone()),
                ..Finding::new("kiln-test/fail", Level::Error, text, row.place.clone())
            });
        }
    }
    found
}

/// A report that is printed while it comes into being.
pub(super) struct Shown<'s> {
    ui: &'s Ui,
    args: &'s Args,
    /// Whether each suite is printed when it is done; forms for programs are printed as a whole.
    streams: bool,
    number: usize,
}

impl<'s> Shown<'s> {
    pub(super) fn new(ui: &'s Ui, args: &'s Args, to_standard_output: bool) -> Self {
        let streams =
            to_standard_output && matches!(ui.format(), OutputFormat::Text | OutputFormat::Table);
        Shown { ui, args, streams, number: 0 }
    }

    /// A suite that is done.
    pub(super) fn suite(&mut self, suite: &Suite) -> io::Result<()> {
        if !self.streams {
            return Ok(());
        }
        let mut one = Report { suites: vec![suite.clone()] };
        if self.args.fail_only {
            one = only_failed(&one);
        }
        let mut out = self.ui.stdout();
        self.number = numbered_rows(&mut out, self.args, &one, self.number)?;
        out.flush()
    }

    /// All suites are done.
    pub(super) fn end(&self, report: &Report) -> io::Result<()> {
        let mut out = self.ui.stdout();
        if !self.streams {
            return self::report(&mut out, self.ui.format(), self.args, report);
        }
        if self.ui.format() == OutputFormat::Text {
            let failed_only = self.args.fail_only.then(|| only_failed(report));
            differences(&mut out, failed_only.as_ref().unwrap_or(report))?;
            writeln!(out, "{}", summary(report))?;
        }
        out.flush()
    }
}

fn only_failed(report: &Report) -> Report {
    let mut report = report.clone();
    for suite in &mut report.suites {
        suite.rows.retain(|row| row.verdict == Verdict::Failed);
    }
    report
}

fn rows(out: &mut impl Paint, args: &Args, report: &Report) -> io::Result<()> {
    numbered_rows(out, args, report, 0).map(drop)
}

/// Prints the rows of suites, counting on; the number of the last one.
fn numbered_rows(
    out: &mut impl Paint,
    args: &Args,
    report: &Report,
    mut number: usize,
) -> io::Result<usize> {
    let mut header = vec!["ID", "POLICY", "RULE", "RESOURCE", "RESULT", "REASON"];
    if args.detailed_results {
        header.push("MESSAGE");
    }
    for suite in report.suites.iter().filter(|suite| !suite.rows.is_empty()) {
        writeln!(out, "{}", suite.path)?;
        let cells = suite.rows.iter().map(|row| {
            number += 1;
            cells(number, row, args.detailed_results)
        });
        table(out, &header, cells.collect::<Vec<_>>())?;
        writeln!(out)?;
    }
    Ok(number)
}

/// A table of all results for places that show Markdown.
fn markdown(out: &mut impl Write, report: &Report) -> io::Result<()> {
    writeln!(out, "| ID | POLICY | RULE | RESOURCE | RESULT | REASON |")?;
    writeln!(out, "|---|---|---|---|---|---|")?;
    let rows = report.suites.iter().flat_map(|suite| &suite.rows);
    for (at, row) in rows.enumerate() {
        let cells = cells(at + 1, row, false);
        let cells: Vec<String> = cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
        writeln!(out, "| {} |", cells.join(" | "))?;
    }
    writeln!(out, "\n{}", summary(report))
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
