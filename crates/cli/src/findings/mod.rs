//! What needs attention, in the forms that code scanning and forges read: SARIF, workflow commands of GitHub and Azure,
//! Code Quality reports of GitLab.
//!
//! Commands turn their results into [`Finding`]s; the forms know nothing of commands.

mod forges;
mod sarif;

use std::io;

use kiln_diagnostic::{Diagnostic, Severity, SourceLocation};
use kiln_value::{Map, Value, json, value};

use crate::args::OutputFormat;

/// The forms that show findings and nothing else.
pub(crate) const FORMS: [OutputFormat; 4] =
    [OutputFormat::Sarif, OutputFormat::Github, OutputFormat::Gitlab, OutputFormat::Azure];

/// How serious a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    Error,
    Warning,
    Note,
}

/// One place that needs attention.
#[derive(Clone, Debug)]
pub(crate) struct Finding {
    /// What found it, the same from one run to the next: `policy/rule`, `kiln-check/error`.
    pub(crate) id: String,
    pub(crate) level: Level,
    pub(crate) text: String,
    pub(crate) place: Option<SourceLocation>,
    /// Other places, with what each shows.
    pub(crate) related: Vec<(SourceLocation, String)>,
    /// The object that it is about.
    pub(crate) object: Option<String>,
    /// The same finding in the next run, wherever its lines have moved to.
    pub(crate) fingerprint: String,
    /// What SARIF says about everything with this id.
    pub(crate) about: Value,
}

impl Finding {
    /// A problem that a command found in a document.
    pub(crate) fn of_problem(command: &str, problem: &Diagnostic) -> Self {
        let (level, word) = match problem.severity {
            Severity::Error => (Level::Error, "error"),
            Severity::Warning => (Level::Warning, "warning"),
            Severity::Note => (Level::Note, "note"),
        };
        let mut text = problem.message.clone();
        if let Some(hint) = &problem.hint {
            text.push_str(&format!("\n{hint}"));
        }
        let file = problem.place.as_ref().map(|place| place.source().name());
        let title = format!("{word} of kiln {command}");
        Finding {
            id: format!("kiln-{command}/{word}"),
            level,
            text,
            place: problem.place.clone(),
            related: problem
                .related
                .iter()
                .map(|related| (related.place.clone(), related.message.clone()))
                .collect(),
            object: None,
            fingerprint: format!("{command} {} {}", file.unwrap_or_default(), problem.message),
            about: about(&title, level),
        }
    }

    /// Something that a command found besides problems.
    pub(crate) fn new(id: &str, level: Level, text: String, place: SourceLocation) -> Self {
        let fingerprint = format!("{id} {} {text}", place.source().name());
        Finding {
            id: id.to_owned(),
            level,
            text,
            place: Some(place),
            related: Vec::new(),
            object: None,
            fingerprint,
            about: about(id, level),
        }
    }
}

fn about(title: &str, level: Level) -> Value {
    value!({
        "shortDescription": {"text": (title)},
        "defaultConfiguration": {"level": (sarif::word(level))},
        "properties": {"tags": ["kubernetes"]},
    })
}

/// Writes findings in one of [`FORMS`].
pub(crate) fn write(
    out: &mut impl io::Write,
    format: OutputFormat,
    findings: &[Finding],
) -> io::Result<()> {
    match format {
        OutputFormat::Github => forges::github(out, findings),
        OutputFormat::Azure => forges::azure(out, findings),
        OutputFormat::Gitlab => {
            writeln!(out, "{}", json::to_string_pretty(&forges::gitlab(findings)))
        }
        _ => writeln!(out, "{}", json::to_string_pretty(&sarif::log(findings))),
    }
}

/// The name of a file as forges want it: relative names count from the root of the repository.
fn path(name: &str) -> String {
    let name = name.replace('\\', "/");
    name.strip_prefix("./").map_or(name.clone(), str::to_owned)
}

/// The fields of a map that have a value.
fn fields<const N: usize>(entries: [(&'static str, Option<Value>); N]) -> Value {
    let there = entries.into_iter().filter_map(|(key, value)| Some((key, value?)));
    Value::from(there.collect::<Map>())
}
