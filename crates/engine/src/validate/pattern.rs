//! Patterns against objects.

use std::cell::LazyCell;

use kiln_pattern::{
    Explained, Fix, MOST_STEPS, MatchStep, Mismatch, PatternLimits, StepOutcome, explain,
    fix_counted, matches_counted,
};
use kiln_rules::Pattern;
use kiln_value::{Path, Value};

use super::{Checked, Checking, Failed, Subject, ValidationFault};
use crate::context::Context;
use crate::mutate::size;
use crate::output::failure::{Failure, FailureKind};
use crate::output::trace::{TraceAnswer, TraceStep};

impl Checking<'_> {
    pub(super) fn pattern(
        &self,
        pattern: &Pattern,
        subject: Subject<'_>,
        context: &Context<'_>,
    ) -> Result<Checked, Failure> {
        let filled = filled(pattern, context)?;
        let Some(mismatch) = mismatch(pattern, &filled, subject, context)? else {
            return Ok(self.passed());
        };
        if mismatch.condition {
            return Ok(Checked::Skip(mismatch.to_string()));
        }
        let at = shown(&mismatch.path);
        let rule = self.name();
        let message = match self.message(context) {
            None => format!("validation error: rule {rule} failed at path {at}"),
            Some(Ok(said)) => {
                format!("validation error: {}rule {rule} failed at path {at}", sentence(&said))
            }
            Some(Err(_)) => format!(
                "validation error: variables substitution error in rule {rule} execution error: {mismatch}"
            ),
        };
        let below = place_in(self.object, subject.value);
        let fix = fix_of(&filled, subject, below.as_ref(), context);
        let faults = vec![fault(pattern, below.as_ref(), mismatch)];
        Ok(Checked::Fail(Failed { message, faults, fix }))
    }

    pub(super) fn any_pattern(
        &self,
        patterns: &[Pattern],
        subject: Subject<'_>,
        context: &Context<'_>,
    ) -> Result<Checked, Failure> {
        // Kyverno: all are filled in before the first is tried.
        let all = patterns.iter().map(|pattern| Ok((pattern, filled(pattern, context)?)));
        let all: Vec<(&Pattern, Value)> = all.collect::<Result<_, Failure>>()?;
        let rule = self.name();
        let (mut failed, mut skipped, mut faults) = (Vec::new(), Vec::new(), Vec::new());
        let mut fixes = Vec::new();
        let below = LazyCell::new(|| place_in(self.object, subject.value));
        for (at, (pattern, filled)) in all.into_iter().enumerate() {
            match mismatch(pattern, &filled, subject, context)? {
                None => {
                    return Ok(Checked::Pass(format!(
                        "validation rule '{rule}' anyPattern[{at}] passed."
                    )));
                }
                Some(mismatch) if mismatch.condition => {
                    skipped.push(format!("rule {rule}[{at}] skipped: {mismatch}"));
                }
                Some(mismatch) => {
                    failed.push(format!(
                        "rule {rule}[{at}] failed at path {}",
                        shown(&mismatch.path)
                    ));
                    faults.push(fault(pattern, below.as_ref(), mismatch));
                    if wants_fix(context) {
                        fixes.push(fix_of(&filled, subject, below.as_ref(), context));
                    }
                }
            }
        }
        if failed.is_empty() {
            return Ok(match skipped.is_empty() {
                true => self.passed(),
                false => Checked::Skip(skipped.join(" ")),
            });
        }
        let list = failed.join(" ");
        let message = match self.message(context) {
            None => format!("validation error: {list}"),
            Some(Ok(said)) => format!("validation error: {}{list}", sentence(&said)),
            Some(Err(_)) => format!(
                "validation error: variables substitution error in rule {rule} execution error: {list}"
            ),
        };
        Ok(Checked::Fail(Failed { message, faults, fix: smallest(fixes) }))
    }
}

fn wants_fix(context: &Context<'_>) -> bool {
    context.shared.eval_env.limits.fixes > 0
}

/// What would make the object meet the pattern, in paths of the whole object.
fn fix_of(
    filled: &Value,
    subject: Subject<'_>,
    below: Option<&Path>,
    context: &Context<'_>,
) -> Option<Fix> {
    let below = below.filter(|_| wants_fix(context))?;
    let limits = limits_of_explanations(context)?;
    let (found, steps) = fix_counted(filled, subject.value, &limits);
    context.shared.counters.explained(steps);
    found.map(|fix| fix.below(below))
}

/// How much work an explanation may take; none when there is nothing left for it.
fn limits_of_explanations(context: &Context<'_>) -> Option<PatternLimits> {
    let left = context.shared.counters.explanations_left();
    let left = usize::try_from(left).unwrap_or(usize::MAX);
    let steps = PatternLimits::default().steps.min(left);
    (steps > 0).then_some(PatternLimits { steps })
}

/// The steps of a match, and what is missing of them.
fn steps_of(filled: &Value, subject: Subject<'_>, context: &Context<'_>) -> Vec<TraceStep> {
    let Some(limits) = limits_of_explanations(context) else {
        return vec![left_out("the budget of the rule for explanations is used up".into())];
    };
    let explained = explain(filled, subject.value, &limits);
    context.shared.counters.explained(explained.spent);
    TraceStep::of_match(explained)
}

fn left_out(why: String) -> TraceStep {
    TraceStep { what: "…".into(), why: Some(why), ..TraceStep::default() }
}

impl TraceStep {
    /// The steps of a match, and a last one that says what is missing of them.
    pub fn of_match(explained: Explained) -> Vec<Self> {
        let given_up = explained.result.err().and_then(|mismatch| mismatch.too_much);
        let mut steps: Vec<TraceStep> = explained.steps.into_iter().map(TraceStep::from).collect();
        if explained.is_cut {
            steps.push(left_out(format!("only the first {MOST_STEPS} steps are shown")));
        } else if let Some(too_much) = given_up {
            steps.push(left_out(too_much.to_string()));
        }
        steps
    }
}

/// The fix with the fewest changes; none if another one has as few, or if one cannot be told.
fn smallest(fixes: Vec<Option<Fix>>) -> Option<Fix> {
    let mut fixes = fixes.into_iter().collect::<Option<Vec<Fix>>>()?;
    fixes.sort_by_key(|fix| fix.changes.len());
    let is_tied = matches!(fixes.as_slice(), [a, b, ..] if a.changes.len() == b.changes.len());
    fixes.into_iter().next().filter(|_| !is_tied)
}

fn filled(pattern: &Pattern, context: &Context<'_>) -> Result<Value, Failure> {
    let filled = context.fill(&pattern.template);
    filled.map_err(|failure| failure.at(&pattern.path).while_doing("variable substitution failed"))
}

/// Where the subject is not as a pattern says; none when it is.
fn mismatch(
    pattern: &Pattern,
    filled: &Value,
    subject: Subject<'_>,
    context: &Context<'_>,
) -> Result<Option<Mismatch>, Failure> {
    let counters = &context.shared.counters;
    let too_much = |exceeded| Failure::from(exceeded).at(&pattern.path);
    counters.compared(size(filled)).map_err(too_much)?;
    let usual = PatternLimits::default().steps;
    // One more than there are, so that the rule's own limit is the one that is named.
    let left = usize::try_from(counters.comparisons_left()).unwrap_or(usize::MAX);
    let limits = PatternLimits { steps: usual.min(left.saturating_add(1)) };
    let (found, steps) = matches_counted(filled, subject.value, &limits);
    let found = found.err();
    counters.compared(steps as u64).map_err(too_much)?;
    if let Some(too_much) = found.as_ref().and_then(|mismatch| mismatch.too_much) {
        let failure = Failure::new(FailureKind::Limit, too_much.to_string());
        return Err(failure.at(&pattern.path));
    }
    context.shared.tracer.note(|| TraceStep {
        what: "pattern".into(),
        answer: found.is_none().into(),
        why: found.as_ref().map(ToString::to_string),
        steps: steps_of(filled, subject, context),
    });
    Ok(found)
}

fn fault(pattern: &Pattern, below: Option<&Path>, mismatch: Mismatch) -> ValidationFault {
    let steps = mismatch.pattern.segments().iter().skip(pattern.wrapped);
    let wanted = pattern.path.segments().iter().chain(steps).cloned().collect();
    let at = |below: &Path| {
        below.segments().iter().chain(mismatch.at.segments()).cloned().collect::<Path>()
    };
    ValidationFault { at: below.map(at), wanted: Some(wanted), why: mismatch.why }
}

impl From<MatchStep> for TraceStep {
    fn from(step: MatchStep) -> Self {
        TraceStep {
            what: step.what,
            answer: match step.outcome {
                StepOutcome::Met => TraceAnswer::Yes,
                StepOutcome::Failed => TraceAnswer::No,
                StepOutcome::Skipped => TraceAnswer::Done,
            },
            why: step.why,
            steps: step.steps.into_iter().map(TraceStep::from).collect(),
        }
    }
}

/// A path as Kyverno writes it: `/spec/containers/0/image/`.
fn shown(path: &Path) -> String {
    let mut shown = String::from("/");
    for step in path.segments() {
        match step {
            kiln_value::Segment::Key(key) => shown.push_str(key),
            kiln_value::Segment::Index(at) => shown.push_str(&at.to_string()),
        }
        shown.push('/');
    }
    shown
}

/// A text that another one follows.
fn sentence(said: &str) -> String {
    match said {
        "" => String::new(),
        said if said.ends_with('.') => format!("{said} "),
        said => format!("{said}. "),
    }
}

/// Where a part of a value is in it. Expressions hand out parts of objects as they are, so it is found by its allocation.
fn place_in(whole: &Value, part: &Value) -> Option<Path> {
    fn walk(whole: &Value, part: &Value, path: &mut Path) -> bool {
        if whole.same(part) {
            return true;
        }
        match whole {
            Value::Map(map) => map.iter().any(|(key, value)| {
                path.push(key);
                let found = walk(value, part, path);
                if !found {
                    path.pop();
                }
                found
            }),
            Value::List(list) => list.iter().enumerate().any(|(at, value)| {
                path.push(at);
                let found = walk(value, part, path);
                if !found {
                    path.pop();
                }
                found
            }),
            _ => false,
        }
    }
    let mut path = Path::root();
    walk(whole, part, &mut path).then_some(path)
}
