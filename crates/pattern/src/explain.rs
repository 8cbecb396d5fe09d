//! Why an object meets a pattern or not: every question that is asked, with its answer.

use kiln_value::{Path, Value, json};

use crate::anchor::AnchorKind;
use crate::effort::{Effort, PatternLimits};
use crate::leaf::Numbers;
use crate::tree::{Matcher, Mismatch};

/// How many steps are kept: a longer list is of no use to a reader.
pub const MOST_STEPS: usize = 1_000;

/// One question that a pattern asks of an object.
#[derive(Clone, Debug, PartialEq)]
pub struct MatchStep {
    /// The key as the pattern has it, or the number of an element.
    pub what: String,
    /// Where in the object.
    pub at: Path,
    /// Which part of the pattern asks.
    pub pattern: Path,
    /// The answer.
    pub outcome: StepOutcome,
    /// Why, unless the steps below say so.
    pub why: Option<String>,
    /// What it took to answer.
    pub steps: Vec<MatchStep>,
}

/// What came of a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepOutcome {
    /// The object is as wanted.
    Met,
    /// The object differs from the pattern.
    Failed,
    /// A condition does not hold, so that the pattern asks nothing.
    Skipped,
}

/// A match with all its steps.
#[derive(Clone, Debug)]
pub struct Explained {
    /// How it ended.
    pub result: Result<(), Mismatch>,
    /// The questions, in the order they were asked. After the one that decides there are no more.
    pub steps: Vec<MatchStep>,
    /// There were more than [`MOST_STEPS`]; those after them are left out.
    pub is_cut: bool,
    /// How much work it took.
    pub spent: usize,
}

/// Whether an object meets a tree of patterns, as a validate rule asks, with every step.
pub fn explain(pattern: &Value, value: &Value, limits: &PatternLimits) -> Explained {
    let mut effort = Effort::new(limits);
    let mut matcher = Matcher::new(&mut effort, Numbers::Whole);
    matcher.log = Some(Log { levels: vec![Vec::new()], left: MOST_STEPS, is_cut: false });
    let result = matcher.value(pattern, value);
    let log = matcher.log.take();
    let is_cut = log.as_ref().is_some_and(|log| log.is_cut);
    let steps = log.and_then(|mut log| log.levels.pop()).unwrap_or_default();
    Explained { result, steps, is_cut, spent: effort.spent() }
}

/// Steps while they are taken.
pub(crate) struct Log {
    /// The steps of each level that is not finished.
    levels: Vec<Vec<MatchStep>>,
    left: usize,
    is_cut: bool,
}

/// What is asked.
pub(crate) struct PatternQuestion<'q> {
    pub(crate) what: String,
    pub(crate) anchor: Option<AnchorKind>,
    pub(crate) wanted: &'q Value,
    pub(crate) found: Option<&'q Value>,
}

impl<'q> PatternQuestion<'q> {
    /// What is asked of an element of a list.
    pub(crate) fn element(at: usize, wanted: &'q Value, found: &'q Value) -> Self {
        PatternQuestion { what: format!("[{at}]"), anchor: None, wanted, found: Some(found) }
    }
}

impl Matcher<'_> {
    /// Asks something, and remembers question and answer if that is wanted.
    pub(crate) fn logged<'q>(
        &mut self,
        question: impl FnOnce() -> PatternQuestion<'q>,
        ask: impl FnOnce(&mut Self) -> Result<(), Mismatch>,
    ) -> Result<(), Mismatch> {
        match &mut self.log {
            Some(log) if log.left > 0 => {
                log.left -= 1;
                log.levels.push(Vec::new());
            }
            Some(log) => {
                log.is_cut = true;
                return ask(self);
            }
            None => return ask(self),
        }
        let question = question();
        let (at, pattern) = (self.path.clone(), self.written_pattern());
        let result = ask(self);
        let Some(log) = &mut self.log else { return result };
        let steps = log.levels.pop().unwrap_or_default();
        let outcome = match &result {
            Ok(()) => StepOutcome::Met,
            Err(mismatch) if mismatch.condition => StepOutcome::Skipped,
            Err(_) => StepOutcome::Failed,
        };
        let why = why(&question, &result, !steps.is_empty());
        if let Some(level) = log.levels.last_mut() {
            level.push(MatchStep { what: question.what, at, pattern, outcome, why, steps });
        }
        result
    }
}

fn why(
    question: &PatternQuestion<'_>,
    result: &Result<(), Mismatch>,
    has_steps: bool,
) -> Option<String> {
    let is_condition = matches!(question.anchor, Some(AnchorKind::Condition | AnchorKind::Global));
    let said = match (question.anchor, question.found, result) {
        (Some(AnchorKind::Negation), None, _) => "it is not there, as wanted".to_owned(),
        (Some(AnchorKind::Condition), None, _) => "it is not there".to_owned(),
        (Some(_), None, Ok(())) => "it is not there, and nothing is asked of it".to_owned(),
        (_, _, Err(mismatch)) if !has_steps => mismatch.why.clone(),
        (_, _, Err(_)) | (_, Some(Value::Map(_)), Ok(())) if !is_condition => return None,
        (_, _, Err(_)) => String::new(),
        (_, found, Ok(())) => match (question.wanted, found) {
            (Value::Map(_) | Value::List(_), _) => String::new(),
            (wanted, None | Some(Value::Null)) => {
                format!("it is missing, which meets {}", json::to_string(wanted))
            }
            (wanted, Some(found)) => {
                format!("{} matches {}", json::to_string(found), json::to_string(wanted))
            }
        },
    };
    let said = match (is_condition, result) {
        (true, Err(_)) if said.is_empty() => "so the pattern does not apply here".to_owned(),
        (true, Err(_)) => format!("{said}, so the pattern does not apply here"),
        _ => said,
    };
    Some(said).filter(|said| !said.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_value::value;

    fn lines(steps: &[MatchStep], indent: usize, out: &mut Vec<String>) {
        for step in steps {
            let why = step.why.as_deref().unwrap_or("");
            out.push(format!("{:indent$}{} {:?} {why}", "", step.what, step.outcome));
            lines(&step.steps, indent + 2, out);
        }
    }

    #[test]
    fn steps_are_in_the_order_they_are_asked_and_end_with_the_one_that_decides() {
        let pod = value!({"spec": {"hostNetwork": true, "containers": [
            {"image": "a:1"}, {"image": "b:latest", "imagePullPolicy": "Never"},
        ], "nodeName": "n"}});
        let pattern = value!({"spec": {
            "=(hostPID)": false,
            "containers": [{"(image)": "*:latest", "imagePullPolicy": "Always"}],
            "nodeName": "?*",
        }});
        let explained = explain(&pattern, &pod, &PatternLimits::default());
        let mut out = Vec::new();
        lines(&explained.steps, 0, &mut out);
        assert_eq!(
            out,
            [
                "spec Failed ",
                "  =(hostPID) Met it is not there, and nothing is asked of it",
                "  containers Failed ",
                "    [0] Skipped ",
                "      (image) Skipped \"a:1\" does not match \"*:latest\", so the pattern does not apply here",
                "    [1] Failed ",
                "      (image) Met \"b:latest\" matches \"*:latest\"",
                "      imagePullPolicy Failed \"Never\" does not match \"Always\"",
            ]
        );
        assert_eq!(explained.result, crate::matches(&pattern, &pod, &PatternLimits::default()));
        assert!(!explained.is_cut && explained.spent > 0);
    }

    #[test]
    fn more_steps_than_are_kept_are_told() {
        let list = |length: usize| -> Value { (0..length).map(|_| value!({"a": 1})).collect() };
        let pattern = value!({"l": [{"a": 1}]});
        let explained = |length| {
            let object = value!({"l": (list(length))});
            explain(&pattern, &object, &PatternLimits::default())
        };
        // The list itself, and two steps for each of its elements.
        assert!(!explained((MOST_STEPS - 1) / 2).is_cut);
        let cut = explained(MOST_STEPS);
        assert!(cut.is_cut && cut.result.is_ok());
    }
}
