//! Why an evaluation ended as it did: a tree of questions and answers.
//!
//! Text for people is its `Display`; programs take it as JSON. Nothing is recorded, and nothing is
//! formatted, unless the host asks for it.

use std::cell::{Cell, RefCell};
use std::fmt;

use kiln_value::{Value, json};
use serde::Serialize;

use crate::input::limits::{EvaluationLimits, Traced};

/// A question that came up, its answer, and the questions that led to it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct TraceStep {
    /// What was asked or done.
    pub what: String,
    /// What came out.
    pub answer: TraceAnswer,
    /// Why, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// What it took to answer.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<TraceStep>,
}

/// What came out of a step.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum TraceAnswer {
    /// Nothing to say.
    #[default]
    Done,
    /// The check holds.
    Yes,
    /// The check does not hold.
    No,
    Value(Value),
    /// It could not be found out.
    Failed,
}

impl From<bool> for TraceAnswer {
    fn from(yes: bool) -> Self {
        if yes { TraceAnswer::Yes } else { TraceAnswer::No }
    }
}

/// How much of a value is shown in text.
const SHOWN: usize = 120;

impl fmt::Display for TraceAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TraceAnswer::Done => Ok(()),
            TraceAnswer::Yes => f.write_str(": yes"),
            TraceAnswer::No => f.write_str(": no"),
            TraceAnswer::Failed => f.write_str(": failed"),
            TraceAnswer::Value(value) => {
                let text = json::to_string(value);
                match text.char_indices().nth(SHOWN) {
                    Some((end, _)) => write!(f, " = {}…", &text[..end]),
                    None => write!(f, " = {text}"),
                }
            }
        }
    }
}

impl fmt::Display for TraceStep {
    /// A tree, one step per line, as tools for directories draw them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The depth of a trace is that of the code that made it, so recursion is bounded.
        fn line(step: &TraceStep, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "{}{}", step.what, step.answer)?;
            match &step.why {
                Some(why) => writeln!(f, " ({why})"),
                None => writeln!(f),
            }
        }
        fn below(step: &TraceStep, indent: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            for (at, child) in step.steps.iter().enumerate() {
                let last = at + 1 == step.steps.len();
                write!(f, "{indent}{}", if last { "└─ " } else { "├─ " })?;
                line(child, f)?;
                below(child, &format!("{indent}{}", if last { "   " } else { "│  " }), f)?;
            }
            Ok(())
        }
        line(self, f)?;
        below(self, "", f)
    }
}

/// Records steps while an evaluation runs.
#[derive(Debug)]
pub(crate) struct Tracer {
    /// The steps that are not finished, below the root; empty as long as nothing is recorded.
    open: RefCell<Vec<TraceStep>>,
    left: Cell<usize>,
    /// How many steps there may be once the rule has matched.
    waiting: Cell<usize>,
    traced: Traced,
}

impl Tracer {
    /// A tracer that keeps as many steps as the limits say, of what they say.
    pub(crate) fn new(limits: &EvaluationLimits) -> Self {
        let tracer = Tracer {
            open: RefCell::default(),
            left: Cell::new(0),
            waiting: Cell::new(limits.trace),
            traced: limits.traced,
        };
        if limits.traced == Traced::All {
            tracer.matched();
        }
        tracer
    }

    /// The rule acts, so the reason for skipping it is not needed.
    pub(crate) fn acts(&self) {
        if self.traced == Traced::Skips {
            self.left.set(0);
            self.open.borrow_mut().clear();
        }
    }

    /// The rule has matched.
    pub(crate) fn matched(&self) {
        let most = self.waiting.take();
        if most > 0 {
            self.left.set(most);
            self.open.borrow_mut().push(TraceStep::default());
        }
    }

    /// Runs something as a step; `answer` looks at what came out.
    pub(crate) fn within<T>(
        &self,
        what: impl FnOnce() -> String,
        run: impl FnOnce() -> T,
        answer: impl FnOnce(&T) -> (TraceAnswer, Option<String>),
    ) -> T {
        if !self.take() {
            return run();
        }
        self.open.borrow_mut().push(TraceStep { what: what(), ..TraceStep::default() });
        let result = run();
        let (answer, why) = answer(&result);
        let mut open = self.open.borrow_mut();
        if let Some(mut step) = open.pop() {
            step.answer = answer;
            step.why = why;
            if let Some(parent) = open.last_mut() {
                parent.steps.push(step);
            }
        }
        result
    }

    /// Records a step without steps of its own.
    pub(crate) fn note(&self, step: impl FnOnce() -> TraceStep) {
        if self.take()
            && let Some(parent) = self.open.borrow_mut().last_mut()
        {
            parent.steps.push(step());
        }
    }

    /// The finished trace; `describe` says what was traced, and why it ended as it did.
    pub(crate) fn finish(self, describe: impl FnOnce() -> (String, String)) -> Option<TraceStep> {
        let cut = self.left.get() == 0;
        let mut root = self.open.into_inner().into_iter().next()?;
        if cut {
            root.steps.push(TraceStep {
                what: "further steps are not shown".into(),
                ..TraceStep::default()
            });
        }
        let (what, why) = describe();
        root.what = what;
        root.why = Some(why);
        Some(root)
    }

    fn take(&self) -> bool {
        match self.left.get() {
            0 => false,
            left => {
                self.left.set(left - 1);
                true
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_value::value;

    #[test]
    fn a_trace_reads_as_a_tree() {
        let tracer = Tracer::new(&EvaluationLimits { trace: 10, ..EvaluationLimits::default() });
        let matched = tracer.within(
            || "match".into(),
            || {
                tracer.note(|| TraceStep {
                    what: "kinds".into(),
                    answer: TraceAnswer::Yes,
                    why: Some("Pod".into()),
                    steps: Vec::new(),
                });
                false
            },
            |no| (TraceAnswer::from(*no), None),
        );
        assert!(!matched);
        tracer.note(|| TraceStep {
            what: "x".into(),
            answer: TraceAnswer::Value(value!({"a": 1})),
            ..TraceStep::default()
        });
        let trace = tracer.finish(|| ("rule".into(), "no match".into())).unwrap();
        assert_eq!(
            trace.to_string(),
            "rule (no match)\n├─ match: no\n│  └─ kinds: yes (Pod)\n└─ x = {\"a\":1}\n"
        );
        let json = serde_json::to_value(&trace).unwrap();
        assert_eq!(json["steps"][1]["answer"]["value"]["a"], 1);
    }

    #[test]
    fn a_trace_that_is_off_formats_nothing() {
        let tracer = Tracer::new(&EvaluationLimits::default());
        tracer.note(|| unreachable!());
        tracer.matched();
        assert_eq!(tracer.within(|| unreachable!(), || 7, |_| unreachable!()), 7);
        assert_eq!(tracer.finish(|| unreachable!()), None);
    }

    #[test]
    fn a_trace_of_skips_is_there_for_skips_only() {
        let limits = EvaluationLimits::default().explaining_skips();
        let skipped = Tracer::new(&limits);
        skipped.note(|| unreachable!());
        skipped.matched();
        skipped.note(|| TraceStep { what: "guard".into(), ..TraceStep::default() });
        let trace = skipped.finish(|| ("rule".into(), "skip".into())).unwrap();
        assert_eq!(trace.to_string(), "rule (skip)\n└─ guard\n");

        let acting = Tracer::new(&limits);
        acting.matched();
        acting.within(|| "guard".into(), || acting.acts(), |()| (TraceAnswer::Yes, None));
        acting.note(|| unreachable!());
        assert_eq!(acting.finish(|| unreachable!()), None);
        assert_eq!(Tracer::new(&limits).finish(|| unreachable!()), None);
    }

    #[test]
    fn a_long_trace_is_cut_and_says_so() {
        let tracer = Tracer::new(&EvaluationLimits { trace: 2, ..EvaluationLimits::default() });
        for at in 0..5 {
            tracer.note(|| TraceStep { what: at.to_string(), ..TraceStep::default() });
        }
        let trace = tracer.finish(|| ("rule".into(), "pass".into())).unwrap();
        let shown = trace.to_string();
        assert_eq!(shown, "rule (pass)\n├─ 0\n├─ 1\n└─ further steps are not shown\n");
    }
}
