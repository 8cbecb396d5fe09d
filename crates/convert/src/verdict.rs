//! What became of a rule: whether its conversion means the same, and if not, where not.

use std::fmt;

use kiln_value::Path;
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
}

impl Difference {
    pub(crate) fn weaker(inputs: impl Into<String>, effect: impl Into<String>) -> Self {
        Difference { inputs: inputs.into(), effect: effect.into(), weaker: true }
    }

    pub(crate) fn other(inputs: impl Into<String>, effect: impl Into<String>) -> Self {
        Difference { inputs: inputs.into(), effect: effect.into(), weaker: false }
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
    /// What keeps it from being converted.
    pub obstacle: Option<Obstacle>,
}
