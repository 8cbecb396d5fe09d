//! What all comparisons share: the outcome, the budget, and how values are read.

use std::fmt;

use kiln_text::duration::Duration;
use kiln_text::wildcard;
use kiln_value::Value;

/// The outcome of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compared {
    /// Whether the condition holds.
    pub holds: bool,
    /// What decided it.
    pub rule: ComparisonRule,
}

/// The rule that decided a comparison. The kind of the key chooses a ladder of rules; the first one that
/// fits both sides decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ComparisonRule {
    /// Two booleans.
    Booleans,
    /// Two numbers, one of them maybe written as text.
    Numbers,
    /// Two durations, one of them maybe a number of seconds.
    Durations,
    /// Two quantities.
    Quantities,
    /// Two versions.
    Versions,
    /// A text and a pattern.
    Wildcard,
    /// Two lists, element by element.
    Lists,
    /// Two maps, entry by entry.
    Maps,
    /// An element among others, with wildcards on both sides.
    Elements,
    /// An element among others, by exact text.
    ExactElements,
    /// A range such as `10-20`.
    Range,
    /// The key cannot be compared with this operator.
    WrongKey,
    /// The value does not fit the key.
    WrongValue,
}

impl ComparisonRule {
    pub(super) fn decides(self, holds: bool) -> Compared {
        Compared { holds, rule: self }
    }

    /// The rule in words.
    pub fn as_str(self) -> &'static str {
        match self {
            ComparisonRule::Booleans => "as booleans",
            ComparisonRule::Numbers => "as numbers",
            ComparisonRule::Durations => "as durations",
            ComparisonRule::Quantities => "as quantities",
            ComparisonRule::Versions => "as versions",
            ComparisonRule::Wildcard => "as text and pattern",
            ComparisonRule::Lists => "as lists",
            ComparisonRule::Maps => "as maps",
            ComparisonRule::Elements => "as elements with wildcards",
            ComparisonRule::ExactElements => "as elements by exact text",
            ComparisonRule::Range => "as a range",
            ComparisonRule::WrongKey => "not at all: the operator does not take such a key",
            ComparisonRule::WrongValue => "not at all: the value does not fit the key",
        }
    }
}

impl fmt::Display for ComparisonRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// How many bytes comparisons may still look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effort {
    limit: u64,
    left: u64,
}

/// The effort is used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exhausted {
    /// How much there was.
    pub limit: u64,
}

impl fmt::Display for Exhausted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the comparison looks at more than {} bytes", self.limit)
    }
}

impl std::error::Error for Exhausted {}

impl Default for Effort {
    fn default() -> Self {
        Effort::new(200 << 20)
    }
}

impl Effort {
    /// An effort of this many bytes.
    pub fn new(limit: u64) -> Self {
        Effort { limit, left: limit }
    }

    /// How much was used.
    pub fn used(&self) -> u64 {
        self.limit - self.left
    }

    pub(super) fn spend(&mut self, bytes: usize) -> Result<(), Exhausted> {
        match self.left.checked_sub(bytes as u64) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => {
                self.left = 0;
                Err(Exhausted { limit: self.limit })
            }
        }
    }

    /// Matches a wildcard pattern, at the price of the worst case.
    pub(super) fn matches(&mut self, pattern: &str, text: &str) -> Result<bool, Exhausted> {
        let stars = pattern.bytes().filter(|b| *b == b'*').take(2).count();
        // With two stars or more, what follows the last one may be tried at every place of the text.
        let longest = if stars < 2 { 1 } else { pattern.len() };
        self.spend(pattern.len() + text.len().saturating_mul(longest))?;
        Ok(wildcard::matches(pattern, text))
    }
}

/// Two durations, if at least one side is text that is one and the other is that too or a number of
/// seconds. `"0"` alone is not a duration: it may mean anything.
pub(super) fn durations(key: &Value, value: &Value) -> Option<(Duration, Duration)> {
    let (key_text, value_text) = (duration_text(key), duration_text(value));
    if key_text.is_none() && value_text.is_none() {
        return None;
    }
    let read = |text: Option<Duration>, value: &Value| text.or_else(|| value.as_f64().map(seconds));
    Some((read(key_text, key)?, read(value_text, value)?))
}

fn duration_text(value: &Value) -> Option<Duration> {
    value.as_str().filter(|text| *text != "0").and_then(|text| Duration::parse(text).ok())
}

/// Whole seconds; the fraction is dropped. What does not fit stays at the end of the range.
pub(super) fn seconds(number: f64) -> Duration {
    let end = if number < 0.0 { Duration::MIN } else { Duration::MAX };
    Duration::from_secs(number as i64).unwrap_or(end)
}
