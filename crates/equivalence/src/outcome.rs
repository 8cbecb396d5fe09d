//! What a set of policies makes of an input, in a form that can be compared.

use std::collections::BTreeMap;
use std::fmt;

use kiln_engine::{Effect, EvalEnv, Event, RuleOutcome, RuleSet, Status, TraceAnswer, TraceStep};
use kiln_object::Kinds;
use kiln_value::Value;
use serde::Serialize;

use crate::PolicySide;
use crate::inputs::Input;

/// How an object fares with policies, all rules together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Word {
    /// No rule says anything about it.
    Skip,
    Pass,
    /// A rule cannot be evaluated.
    Error,
    Fail,
}

impl fmt::Display for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Word::Skip => "skip",
            Word::Pass => "pass",
            Word::Error => "error",
            Word::Fail => "fail",
        })
    }
}

/// What policies make of an input.
#[derive(Clone, Debug, PartialEq)]
pub struct PolicyOutcome {
    pub word: Word,
    /// The object afterwards; none if it is deleted.
    pub object: Option<Value>,
    /// What was generated, by what it is called.
    pub made: BTreeMap<String, Value>,
    /// What rules say about it.
    pub messages: Vec<String>,
}

impl PolicyOutcome {
    /// Whether a policy that enforces would refuse the request. What cannot be evaluated is refused, too.
    pub fn refuses(&self) -> bool {
        matches!(self.word, Word::Fail | Word::Error)
    }
}

/// Steps of traces, and which answers they gave.
pub(crate) type Branches = BTreeMap<String, [bool; 3]>;

/// Runs policies on an input.
pub(crate) fn run(
    side: &PolicySide,
    input: &Input,
    kinds: &Kinds,
    branches: Option<&mut Branches>,
) -> PolicyOutcome {
    let view = input.view();
    let mut eval_env = EvalEnv::of(&view, kinds);
    if branches.is_some() {
        eval_env.limits = eval_env.limits.traced();
    }
    let (outcomes, object) = outcomes(&side.rules, &input.event(), &eval_env);
    if let Some(branches) = branches {
        for outcome in &outcomes {
            if let Some(trace) = &outcome.trace {
                let name = outcome.rule.to_string();
                note(trace, &name, branches);
            }
        }
    }
    folded(&side.rules, &outcomes, object)
}

/// What rules make of an event.
pub fn outcome_of(rules: &RuleSet, event: &Event, eval_env: &EvalEnv<'_>) -> PolicyOutcome {
    let (outcomes, object) = outcomes(rules, event, eval_env);
    folded(rules, &outcomes, object)
}

/// The outcome of each rule, and the object afterwards: first as it would be changed, then as it would be checked.
fn outcomes(
    rules: &RuleSet,
    event: &Event,
    eval_env: &EvalEnv<'_>,
) -> (Vec<RuleOutcome>, Option<Value>) {
    let mutated = rules.mutate(event, eval_env);
    let mut after = event.clone();
    if after.object.is_some() {
        after.object = Some(mutated.object.clone());
    }
    let mut outcomes = mutated.outcomes;
    outcomes.extend(rules.evaluate(&after, eval_env));
    (outcomes, after.object)
}

fn folded(rules: &RuleSet, outcomes: &[RuleOutcome], object: Option<Value>) -> PolicyOutcome {
    let mut word = Word::Skip;
    let mut made = BTreeMap::new();
    let mut messages = Vec::new();
    for outcome in outcomes {
        // What runs after an object is stored keeps none from being stored, whatever becomes of it.
        let refuses = rules.rule(&outcome.rule).is_none_or(|rule| rule.program.acts_at_admission());
        let found = match outcome.status() {
            Status::Fail => Word::Fail,
            Status::Warn if outcome.violation().is_some() => Word::Fail,
            Status::Error if !refuses => Word::Skip,
            Status::Error => Word::Error,
            Status::Pass | Status::Warn => Word::Pass,
            Status::Skip | Status::NoMatch => Word::Skip,
        };
        if found >= Word::Error {
            messages.push(outcome.message());
        }
        word = word.max(found);
        for effect in &outcome.effects {
            match effect {
                Effect::Ensure(ensure) => {
                    made.insert(ensure.target.to_string(), without_ownership(&ensure.object));
                }
                Effect::Patch(patch) => {
                    let id = kiln_object::ObjectId::of(&patch.after);
                    let own = object.as_ref().map(kiln_object::ObjectId::of);
                    if let Ok(id) = id
                        && own.is_none_or(|own| own.ok().as_ref() != Some(&id))
                    {
                        made.insert(id.to_string(), patch.after.clone());
                    }
                }
                _ => {}
            }
        }
    }
    PolicyOutcome { word, object, made, messages }
}

/// A generated object without what says which policy made it.
fn without_ownership(object: &Value) -> Value {
    let mut object = object.clone();
    for field in ["labels", "annotations"] {
        let Some(Value::Map(map)) = object.get_path_mut(["metadata", field]) else { continue };
        let own = |key: &str| {
            key.contains("kyverno.io/")
                || key.contains("kiln.dev/")
                || key == "app.kubernetes.io/managed-by"
        };
        map.retain(|key, _| !own(key));
        if map.is_empty() {
            object.remove(["metadata", field]);
        }
    }
    object
}

/// Notes the answers of steps, numbers left out so that elements of lists are the same step.
fn note(step: &TraceStep, above: &str, branches: &mut Branches) {
    for inner in &step.steps {
        let what: String = inner.what.chars().filter(|c| !c.is_ascii_digit()).take(160).collect();
        let name = format!("{above} › {what}");
        let answer = match &inner.answer {
            TraceAnswer::Yes => Some(0),
            TraceAnswer::No => Some(1),
            TraceAnswer::Failed => Some(2),
            TraceAnswer::Value(Value::Bool(true)) => Some(0),
            TraceAnswer::Value(Value::Bool(false)) => Some(1),
            _ => None,
        };
        if let Some(answer) = answer {
            branches.entry(name.clone()).or_default()[answer] = true;
        }
        note(inner, &name, branches);
    }
}
