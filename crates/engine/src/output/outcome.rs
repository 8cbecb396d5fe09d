//! What came of one rule for one event.

use std::borrow::Cow;
use std::time::Duration;

use kiln_rules::{Actions, RuleId};
use kiln_value::Str;
use serde::Serialize;

use crate::input::limits::Cost;
use crate::input::view::RecordedRead;
use crate::output::effect::{Effect, Violation};
use crate::output::failure::Failure;
use crate::output::lineage::Lineage;
use crate::output::trace::TraceStep;

/// What came of one rule for one event.
#[derive(Clone, Debug)]
pub struct RuleOutcome {
    pub rule: RuleId,
    /// How it ended.
    pub verdict: Verdict,
    /// Why it ended so, in words, where the verdict alone does not say.
    pub why: Option<Cow<'static, str>>,
    /// The exceptions that mean the object: downstreams of the rule stay as they are.
    pub exceptions: Vec<Str>,
    /// An API server would have asked about the event: the conditions on requests hold. Otherwise, whatever the rule made
    /// stays as it is.
    pub asked: bool,
    /// What is to be done. After failures this is what did work; a host must not take it for all that
    /// the rule wants.
    pub effects: Vec<Effect>,
    /// What failed.
    pub failures: Vec<Failure>,
    /// What becomes of the object when the rule that checks it fails to be evaluated; none for all other outcomes.
    pub on_error: Option<Actions>,
    /// A default stands in for something that could not be read and may well be there. The rule ran all the same; a host
    /// that keeps objects in step removes none because of it.
    pub uncertain: Option<Failure>,
    /// What the outcome depends on, besides the rule and the event.
    pub reads: Vec<RecordedRead>,
    /// What the rule adds to reports about it.
    pub properties: Vec<(Str, Str)>,
    /// What to hand on to events that the effects cause.
    pub lineage: Lineage,
    pub cost: Cost,
    /// How long it took, by the clock that the evaluation was given: none without one, and zero if it stands still.
    pub took: Option<Duration>,
    /// Why it ended so, if the limits allow for a trace.
    pub trace: Option<TraceStep>,
}

/// How an evaluation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The event is none of the rule's business.
    NoMatch,
    /// It matches, and the guards say no.
    Skip,
    /// It ran.
    Pass,
    /// The object was a trigger and no longer is.
    Lapsed,
    /// Something failed.
    Error,
}

/// How a rule ended, in the words of reports. There is one place that decides it, so that all hosts say the same of the
/// same rule and object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// It did what it says.
    Pass,
    /// It did what it says, and has something to say about it.
    Warn,
    /// It refuses the resource.
    Fail,
    /// Its preconditions do not hold.
    Skip,
    /// Something failed.
    Error,
    /// The resource is none of the rule's business.
    #[serde(rename = "no match")]
    NoMatch,
}

impl Status {
    /// The word for it in reports.
    pub fn as_str(self) -> &'static str {
        match self {
            Status::Pass => "pass",
            Status::Warn => "warn",
            Status::Fail => "fail",
            Status::Skip => "skip",
            Status::Error => "error",
            Status::NoMatch => "no match",
        }
    }
}

impl RuleOutcome {
    /// How the rule ended, with what its effects say: a rule that ran may refuse the object.
    pub fn status(&self) -> Status {
        match self.verdict {
            _ if self.violation().is_some_and(|violation| !violation.scored) => Status::Warn,
            _ if self.violation().is_some() || self.refusal().is_some() => Status::Fail,
            Verdict::NoMatch => Status::NoMatch,
            Verdict::Skip | Verdict::Lapsed => Status::Skip,
            Verdict::Error => Status::Error,
            Verdict::Pass => {
                let warns = self.effects.iter().any(|effect| matches!(effect, Effect::Warn(_)));
                if warns { Status::Warn } else { Status::Pass }
            }
        }
    }

    /// The message for the user, if the rule denies the request.
    pub fn refusal(&self) -> Option<&str> {
        self.effects.iter().find_map(|effect| match effect {
            Effect::Reject { message, .. } => Some(message.as_str()),
            Effect::Violation(violation) if violation.actions.deny => Some(&violation.message),
            _ => None,
        })
    }

    /// What is wrong with the object, if it is not as the rule wants it.
    pub fn violation(&self) -> Option<&Violation> {
        self.effects.iter().find_map(|effect| match effect {
            Effect::Violation(violation) => Some(&**violation),
            _ => None,
        })
    }

    /// What a rule that checks objects says of this one: what is wrong with it, what kept the rule from finding out, or
    /// why the object passes.
    pub fn message(&self) -> String {
        if let Some(violation) = self.violation() {
            return violation.message.clone();
        }
        if let Some(why) = &self.why {
            return why.to_string();
        }
        let failures: Vec<&str> =
            self.failures.iter().map(|failure| failure.message.as_str()).collect();
        failures.join("; ")
    }

    /// Whether an exception means the object.
    pub fn is_excepted(&self) -> bool {
        !self.exceptions.is_empty()
    }
}

impl Verdict {
    /// The word for it in reports.
    pub fn as_str(self) -> &'static str {
        match self {
            Verdict::NoMatch => "no match",
            Verdict::Skip => "skip",
            Verdict::Pass => "pass",
            Verdict::Lapsed => "lapsed",
            Verdict::Error => "error",
        }
    }
}
