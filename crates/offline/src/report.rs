//! What came of a run.

use kiln_diagnostic::Diagnostic;
use kiln_engine::{Status, TraceAnswer, TraceStep, Violation};
use kiln_object::ObjectId;
use kiln_rules::RuleId;
use kiln_value::{Str, Value};
use serde::Serialize;

/// What came of a run: results in the order of the resources, then of the rules.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// What each rule did with each resource that concerned it.
    pub results: Vec<RuleResult>,
    /// Resources whose kind no rule names, if that was asked for.
    pub untouched: Vec<ObjectId>,
    /// Resources that a rule refused.
    pub refused: Vec<ObjectId>,
    /// Warnings of rules, each once.
    pub warnings: Vec<Diagnostic>,
    /// The resources that were given, in order, as they are at the end; refused ones are left out.
    pub resources: Vec<Value>,
}

/// What one rule did with one resource.
#[derive(Clone, Debug)]
pub struct RuleResult {
    pub rule: RuleId,
    /// The resource.
    pub trigger: ObjectId,
    /// Whether the resource was given, and not made by a rule.
    pub given: bool,
    /// The number of the resource among those that were given; data and requests follow the resources.
    pub number: Option<usize>,
    /// How it ended.
    pub status: Status,
    /// Why it ended so, where one sentence says it.
    pub why: Option<String>,
    /// The message of a rule that denies the resource.
    pub refusal: Option<String>,
    /// What is wrong with the resource, if it is not as the rule wants it.
    pub violation: Option<Violation>,
    /// What a rule that deletes objects makes of the resource.
    pub deletion: Option<Deletion>,
    /// What the rule adds to reports.
    pub properties: Vec<(Str, Str)>,
    /// The exceptions that mean the resource.
    pub exceptions: Vec<Str>,
    pub made: Vec<Made>,
    /// For a rule that may change the resource: the resource as all rules of its policy left it.
    pub left: Option<Value>,
    /// What failed, and where in the rule.
    pub problems: Vec<Diagnostic>,
    /// Why it ended so, if a trace was asked for.
    pub trace: Option<TraceStep>,
}

/// What a rule that deletes objects makes of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Deletion {
    /// It would be deleted.
    Delete,
    /// It would stay.
    Keep,
}

impl Deletion {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Deletion::Delete => "delete",
            Deletion::Keep => "keep",
        }
    }

    /// The result that Kyverno's command line reports: there, what is kept has failed.
    pub fn in_reports(self) -> &'static str {
        match self {
            Deletion::Delete => Status::Pass.as_str(),
            Deletion::Keep => Status::Fail.as_str(),
        }
    }
}

/// An object that a rule made.
#[derive(Clone, Debug)]
pub struct Made {
    /// What it is called.
    pub id: ObjectId,
    /// The object as it is now.
    pub object: Value,
    /// The object as it was given, if it was.
    pub before: Option<Value>,
    /// What became of it.
    pub change: ObjectChange,
    /// What it was copied from, or made of.
    pub sources: Vec<ObjectId>,
}

/// What became of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ObjectChange {
    /// It is new.
    Created,
    /// It was there, and is another now.
    Updated,
    /// It was given, or made by another rule, and a rule changed it.
    Patched,
    /// It was there, and is as the rule wants it.
    Unchanged,
    /// It was there, and the rule leaves it alone.
    Kept,
}

/// How many results there are of each kind, in Kyverno's words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Rules that did what they say.
    pub pass: usize,
    /// Resources that were refused.
    pub fail: usize,
    /// Rules that did it with a warning.
    pub warn: usize,
    /// Rules that failed.
    pub error: usize,
    /// Rules whose preconditions do not hold.
    pub skip: usize,
}

impl Report {
    /// How many results there are of each kind.
    pub fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        for result in &self.results {
            match result.status {
                Status::Pass => counts.pass += 1,
                Status::Warn => counts.warn += 1,
                Status::Fail => counts.fail += 1,
                Status::Skip => counts.skip += 1,
                Status::Error => counts.error += 1,
                Status::NoMatch => {}
            }
        }
        counts
    }

    /// Every object that rules made or changed, as it is at the end, once, in the order they first did;
    /// what it was before is what was given. Resources that were refused are not among them.
    pub fn objects(&self) -> Vec<Made> {
        let mut objects: Vec<Made> = Vec::new();
        let mut at = std::collections::HashMap::new();
        for made in self.results.iter().flat_map(|result| &result.made) {
            let index = *at.entry(&made.id).or_insert(objects.len());
            match objects.get_mut(index) {
                None => objects.push(made.clone()),
                Some(known) => {
                    known.object = made.object.clone();
                    if matches!(known.change, ObjectChange::Unchanged | ObjectChange::Kept) {
                        known.change = made.change;
                    }
                }
            }
        }
        objects.retain(|made| !self.refused.contains(&made.id));
        objects
    }
}

impl RuleResult {
    /// How it ended, for people: of a rule that deletes objects, what becomes of the resource.
    pub fn word(&self) -> &'static str {
        self.deletion.map_or(self.status.as_str(), Deletion::as_str)
    }

    /// How it ended, in the words of policy reports.
    pub fn report_word(&self) -> &'static str {
        self.deletion.map_or(self.status.as_str(), Deletion::in_reports)
    }

    /// Why it ended so: in the rule's own words, or what kept it from running.
    pub fn because(&self) -> Option<String> {
        match self.status {
            Status::Pass => None,
            Status::Warn if self.violation.is_none() => None,
            _ if self.why.is_some() => self.why.clone(),
            Status::Skip | Status::NoMatch => blocked_by(self.trace.as_ref()?),
            Status::Fail | Status::Warn | Status::Error => None,
        }
    }
}

/// What kept a rule from running, in words: an exclusion that applied, or else what was not met.
pub fn blocked_by(trace: &TraceStep) -> Option<String> {
    let is_excluded = trace.steps.last().is_some_and(|last| last.answer == TraceAnswer::Yes);
    let (answer, how) =
        if is_excluded { (TraceAnswer::Yes, "excluded by ") } else { (TraceAnswer::No, "") };
    let step = innermost(trace, &answer)?;
    Some(match &step.why {
        Some(why) => format!("{how}{}: {why}", step.what),
        None => format!("{how}{}", step.what),
    })
}

/// The innermost of the steps that gave this answer last.
fn innermost<'s>(step: &'s TraceStep, answer: &TraceAnswer) -> Option<&'s TraceStep> {
    let found = step.steps.iter().rfind(|step| step.answer == *answer)?;
    Some(innermost(found, answer).unwrap_or(found))
}

impl ObjectChange {
    /// The word for it in reports.
    pub fn as_str(self) -> &'static str {
        match self {
            ObjectChange::Created => "created",
            ObjectChange::Updated => "updated",
            ObjectChange::Patched => "patched",
            ObjectChange::Unchanged => "unchanged",
            ObjectChange::Kept => "left alone",
        }
    }
}
