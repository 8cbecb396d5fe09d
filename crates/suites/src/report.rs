//! What came of suites.

use kiln_diagnostic::{Diagnostic, Severity, SourceLocation};
use kiln_value::{Map, Value};

use crate::compare::Difference;

/// What came of all suites.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The suites, in the order they ran.
    pub suites: Vec<Suite>,
}

/// What came of one suite.
#[derive(Clone, Debug)]
pub struct Suite {
    /// The path of its file.
    pub path: String,
    /// The name it gives itself.
    pub name: Option<String>,
    /// What is wrong with it, or suspicious. With errors, some of its expectations were not looked at.
    pub problems: Vec<Diagnostic>,
    /// What became of its expectations.
    pub rows: Vec<Row>,
}

/// What became of one expectation for one resource and one rule.
#[derive(Clone, Debug)]
pub struct Row {
    /// The policy, as the suite has it.
    pub policy: String,
    /// The rule, by its own name.
    pub rule: String,
    /// The resource, as kind, namespace and name.
    pub resource: String,
    /// The result that was expected.
    pub wanted: &'static str,
    /// The result that there is; none when the rule did not run.
    pub got: Option<&'static str>,
    /// Whether both agree.
    pub verdict: Verdict,
    /// Why, in a few words.
    pub reason: String,
    /// What the rule did or said.
    pub message: String,
    /// How objects differ from the expected ones.
    pub differences: Vec<Difference>,
    /// How many objects were compared with expected ones.
    pub compared: usize,
    /// Where the suite has the expectation.
    pub place: SourceLocation,
}

/// Whether an expectation is met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is met.
    Passed,
    /// It is not met.
    Failed,
    /// The rule does not match the resource, and nothing else was expected.
    Excluded,
    /// Kiln does not run the rule.
    NotRun,
}

impl Verdict {
    /// The word for it in reports.
    pub fn as_str(self) -> &'static str {
        match self {
            Verdict::Passed => "pass",
            Verdict::Failed => "fail",
            Verdict::Excluded => "excluded",
            Verdict::NotRun => "not run",
        }
    }
}

/// How many there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Expectations that are met.
    pub passed: usize,
    /// Expectations that are not met.
    pub failed: usize,
    /// Rules that do not match the resource, where nothing else was expected.
    pub excluded: usize,
    /// Rules that Kiln does not run.
    pub not_run: usize,
    /// Suites with errors.
    pub broken: usize,
    /// Objects that were compared with expected ones.
    pub compared: usize,
}

impl Suite {
    /// Whether something is wrong with the suite itself.
    pub fn is_broken(&self) -> bool {
        self.problems.iter().any(|problem| problem.severity == Severity::Error)
    }
}

impl Report {
    /// How many there are.
    pub fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        for suite in &self.suites {
            counts.broken += usize::from(suite.is_broken());
            for row in &suite.rows {
                counts.compared += row.compared;
                match row.verdict {
                    Verdict::Passed => counts.passed += 1,
                    Verdict::Failed => counts.failed += 1,
                    Verdict::Excluded => counts.excluded += 1,
                    Verdict::NotRun => counts.not_run += 1,
                }
            }
        }
        counts
    }

    /// The report for programs.
    pub fn as_value(&self) -> Value {
        let suites: Value = self.suites.iter().map(Suite::as_value).collect();
        let counts = self.counts();
        let summary = Map::from_iter([
            ("passed", counts.passed),
            ("failed", counts.failed),
            ("excluded", counts.excluded),
            ("notRun", counts.not_run),
            ("brokenSuites", counts.broken),
            ("objectsCompared", counts.compared),
        ]);
        Value::from(Map::from_iter([("suites", suites), ("summary", Value::from(summary))]))
    }
}

impl Suite {
    fn as_value(&self) -> Value {
        let problems: Value = self.problems.iter().map(problem_as_value).collect();
        let rows: Value = self.rows.iter().map(Row::as_value).collect();
        let mut fields = Map::from_iter([("path", self.path.clone())]);
        if let Some(name) = &self.name {
            fields.insert("name", name.clone());
        }
        fields.insert("problems", problems);
        fields.insert("results", rows);
        Value::from(fields)
    }
}

fn problem_as_value(problem: &Diagnostic) -> Value {
    let mut fields = Map::from_iter([
        ("severity", problem.severity.as_str().to_owned()),
        ("message", problem.message.clone()),
    ]);
    if let Some(place) = &problem.place {
        add_place(&mut fields, place);
    }
    if let Some(hint) = &problem.hint {
        fields.insert("hint", hint.clone());
    }
    Value::from(fields)
}

fn add_place(fields: &mut Map, place: &SourceLocation) {
    let position = place.position();
    fields.insert("file", place.source().name());
    fields.insert("line", position.line as u64);
    fields.insert("column", position.column as u64);
}

impl Row {
    fn as_value(&self) -> Value {
        let mut fields = Map::from_iter([
            ("policy", self.policy.clone()),
            ("rule", self.rule.clone()),
            ("resource", self.resource.clone()),
            ("verdict", self.verdict.as_str().to_owned()),
            ("wanted", self.wanted.to_owned()),
        ]);
        if let Some(got) = self.got {
            fields.insert("got", got);
        }
        fields.insert("reason", self.reason.clone());
        fields.insert("message", self.message.clone());
        fields.insert("objectsCompared", self.compared as u64);
        let differences: Value = self
            .differences
            .iter()
            .map(|difference| {
                let object = difference.object.to_string();
                let diff = difference.diff.clone();
                Value::from(Map::from_iter([("object", object), ("diff", diff)]))
            })
            .collect();
        fields.insert("differences", differences);
        add_place(&mut fields, &self.place);
        Value::from(fields)
    }
}
