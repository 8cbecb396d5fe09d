//! What became of a rule: whether its conversion means the same, and if not, where not.

use std::fmt;

use kiln_equivalence::{DifferenceKind, FoundDifference, Word};
use kiln_rules::Operation;
use kiln_value::{Path, Value};
use serde::Serialize;

/// A construct that has no counterpart in the other language.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Obstacle {
    /// The construct, as users write it.
    pub construct: String,
    /// Where it stands, from the root of the document.
    pub path: Path,
    /// What to do about it.
    pub advice: String,
}

impl Obstacle {
    pub(crate) fn new(construct: impl Into<String>, advice: impl Into<String>) -> Self {
        Obstacle { construct: construct.into(), path: Path::root(), advice: advice.into() }
    }

    /// The same, with its place, unless it is known better already.
    #[must_use]
    pub(crate) fn at(mut self, path: &Path) -> Self {
        if self.path.is_root() {
            self.path = path.clone();
        }
        self
    }
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}", self.construct, self.path)
    }
}

/// Inputs for which a conversion is known to mean something else.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// Which inputs.
    pub inputs: String,
    /// What happens to them with the old policy, and with the new one.
    pub effect: String,
    /// Whether the new policy lets something through that the old one refuses.
    pub weaker: bool,
    /// Which of the differences that are found are this one.
    #[serde(skip)]
    pub covers: CoveredRequests,
}

/// Which differences between two policies are one that is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CoveredRequests {
    Deletes,
    /// Updates that the new policy refuses and the old one lets through.
    StricterUpdates,
    Kind(&'static str),
    /// Objects that are not Pods.
    Controllers,
    Subresource(&'static str),
    /// Both leave the same object, but for the order of lists.
    Order,
    /// Objects with several keys that meet this wildcard.
    SeveralKeys(String),
    /// Objects with this key.
    HasKey(String),
    /// The old policy refuses the request because it cannot evaluate a rule.
    OldError,
    /// The new policy refuses the request because it cannot evaluate an expression, and says this.
    NewErrorOf(&'static str),
    /// None that requests show.
    Untried,
}

impl CoveredRequests {
    pub(crate) fn hold(&self, found: &FoundDifference) -> bool {
        let input = &found.input;
        match self {
            CoveredRequests::Deletes => input.operation == Operation::Delete,
            CoveredRequests::StricterUpdates => {
                input.operation == Operation::Update
                    && !matches!(found.kind, DifferenceKind::Weaker)
            }
            CoveredRequests::Kind(kind) => input.kind.kind.as_str() == *kind,
            CoveredRequests::Controllers => input.kind.kind.as_str() != "Pod",
            CoveredRequests::Subresource(name) => input.subresource.as_str() == *name,
            CoveredRequests::Order => {
                let ordered = |object: &Option<Value>| object.as_ref().map(without_order);
                found.kind == DifferenceKind::Object
                    && ordered(&found.old.object) == ordered(&found.new.object)
            }
            CoveredRequests::SeveralKeys(pattern) => {
                most_keys(&input.object, &|key| kiln_text::wildcard::matches(pattern, key)) > 1
            }
            CoveredRequests::HasKey(key) => most_keys(&input.object, &|found| found == key) > 0,
            CoveredRequests::OldError => found.old.word == Word::Error,
            CoveredRequests::NewErrorOf(text) => {
                found.new.word == Word::Error && found.new.messages.iter().any(|m| m.contains(text))
            }
            CoveredRequests::Untried => false,
        }
    }
}

/// A value whose lists are in the order of what their elements print.
fn without_order(value: &Value) -> Value {
    match value {
        Value::List(list) => {
            let mut elements: Vec<Value> = list.iter().map(without_order).collect();
            elements.sort_by_cached_key(kiln_value::json::to_canonical_string);
            Value::List(elements.into())
        }
        Value::Map(map) => {
            Value::Map(map.iter().map(|(key, value)| (key.clone(), without_order(value))).collect())
        }
        scalar => scalar.clone(),
    }
}

/// How many keys of one map are meant, of the map that has the most of them.
fn most_keys(value: &Value, is_meant: &dyn Fn(&str) -> bool) -> usize {
    match value {
        Value::Map(map) => {
            let own = map.keys().filter(|key| is_meant(key)).count();
            map.values().map(|value| most_keys(value, is_meant)).max().unwrap_or(0).max(own)
        }
        Value::List(list) => list.iter().map(|value| most_keys(value, is_meant)).max().unwrap_or(0),
        _ => 0,
    }
}

impl Difference {
    pub(crate) fn weaker(
        inputs: impl Into<String>,
        effect: impl Into<String>,
        covers: CoveredRequests,
    ) -> Self {
        Difference { inputs: inputs.into(), effect: effect.into(), weaker: true, covers }
    }

    pub(crate) fn other(
        inputs: impl Into<String>,
        effect: impl Into<String>,
        covers: CoveredRequests,
    ) -> Self {
        Difference { inputs: inputs.into(), effect: effect.into(), weaker: false, covers }
    }
}

/// What became of one rule.
#[derive(Clone, Debug)]
pub struct ConvertedRule {
    /// The policy that it stands in.
    pub policy: String,
    /// Its name; that of the policy where rules have none.
    pub rule: String,
    /// What it does, in the word of its field: `validate.pattern`.
    pub form: String,
    /// The documents that it became, by their position in the conversion.
    pub documents: Vec<usize>,
    /// Where it cannot mean the same, known without running it.
    pub differences: Vec<Difference>,
    /// Where it may mean something else, if there are such requests.
    pub possible: Vec<Difference>,
    /// What keeps it from being converted.
    pub obstacle: Option<Obstacle>,
}
