//! Budgets: what one evaluation of one rule may cost, counted rather than timed.

use std::cell::Cell;
use std::fmt;

/// What one evaluation of one rule may cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EvaluationLimits {
    /// Steps of all its expressions together.
    pub steps: u64,
    /// Bytes that its expressions and templates make.
    pub bytes: u64,
    /// Bytes of what its context entries hold at one time.
    pub context_bytes: u64,
    /// Elements of all lists it runs for.
    pub elements: u64,
    /// Objects it makes.
    pub objects: u64,
    /// Times it reads objects, or asks a service.
    pub reads: u64,
    /// Objects that it reads by lists.
    pub listed: u64,
    /// Values of all objects that its patches and patterns go over, each time one does.
    pub patched: u64,
    /// Levels of expressions of context entries that ask for one another. Each takes about a kilobyte of
    /// stack.
    pub levels: usize,
    /// How often a rule may fire on what it made itself, directly or through others.
    pub repeats: usize,
    /// How many rules may fire one upon the other.
    pub chain: usize,
    /// Steps of the trace; none for no trace.
    pub trace: usize,
    pub traced: Traced,
    /// How often an object that fails is changed and evaluated again, to find what would make it pass; none for not at
    /// all.
    pub fixes: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Traced {
    /// All of an evaluation.
    #[default]
    All,
    /// Why a rule that matched does nothing: it begins behind the match, and is gone once the rule acts.
    Skips,
}

impl Default for EvaluationLimits {
    fn default() -> Self {
        EvaluationLimits {
            steps: 5_000_000,
            bytes: 64 << 20,
            // Kyverno: maxContextSize.
            context_bytes: 2 << 20,
            elements: 50_000,
            objects: 5_000,
            reads: 5_000,
            listed: 100_000,
            patched: 50_000_000,
            levels: 800,
            repeats: 4,
            chain: 32,
            trace: 0,
            traced: Traced::All,
            fixes: 0,
        }
    }
}

impl EvaluationLimits {
    /// The same limits, with a trace.
    #[must_use]
    pub fn traced(self) -> Self {
        EvaluationLimits { trace: 10_000, ..self }
    }

    /// The same limits, with the smallest change for objects that fail.
    #[must_use]
    pub fn fixing(self) -> Self {
        EvaluationLimits { fixes: 16, ..self }
    }

    /// The same limits, with enough of a trace to say why a rule that matched did nothing.
    #[must_use]
    pub fn explaining_skips(self) -> Self {
        EvaluationLimits { trace: 32, traced: Traced::Skips, ..self }
    }
}

/// What there was too much of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exceeded {
    verb: &'static str,
    limit: u64,
    noun: &'static str,
}

impl fmt::Display for Exceeded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the rule {} more than {} {}", self.verb, self.limit, self.noun)
    }
}

impl std::error::Error for Exceeded {}

/// What one evaluation has cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Steps of expressions.
    pub steps: u64,
    /// Bytes made by expressions and templates.
    pub bytes: u64,
    /// Elements run for.
    pub elements: u64,
    /// Objects made.
    pub objects: u64,
    pub reads: u64,
    /// Objects read by lists.
    pub listed: u64,
}

/// Counts what has no meter of its own.
#[derive(Debug)]
pub(crate) struct Counters {
    limits: EvaluationLimits,
    context_bytes: Cell<u64>,
    bytes: Cell<u64>,
    elements: Cell<u64>,
    objects: Cell<u64>,
    reads: Cell<u64>,
    listed: Cell<u64>,
    patched: Cell<u64>,
    explained: Cell<u64>,
    steps: Cell<u64>,
}

impl Counters {
    pub(crate) fn new(limits: &EvaluationLimits) -> Self {
        Counters {
            limits: *limits,
            context_bytes: Cell::new(0),
            bytes: Cell::new(0),
            elements: Cell::new(0),
            objects: Cell::new(0),
            reads: Cell::new(0),
            listed: Cell::new(0),
            patched: Cell::new(0),
            explained: Cell::new(0),
            steps: Cell::new(0),
        }
    }

    pub(crate) fn context(&self, bytes: u64) -> Result<(), Exceeded> {
        count(
            &self.context_bytes,
            bytes,
            self.limits.context_bytes,
            "loads",
            "bytes into its context",
        )
    }

    /// Gives back what a part of the context held.
    pub(crate) fn forget_context(&self, bytes: u64) {
        self.context_bytes.set(self.context_bytes.get().saturating_sub(bytes));
    }

    pub(crate) fn bytes(&self, bytes: u64) -> Result<(), Exceeded> {
        count(&self.bytes, bytes, self.limits.bytes, "makes", "bytes")
    }

    pub(crate) fn element(&self) -> Result<(), Exceeded> {
        count(&self.elements, 1, self.limits.elements, "runs for", "elements")
    }

    pub(crate) fn object(&self) -> Result<(), Exceeded> {
        count(&self.objects, 1, self.limits.objects, "makes", "objects")
    }

    pub(crate) fn read(&self) -> Result<(), Exceeded> {
        count(&self.reads, 1, self.limits.reads, "reads", "times")
    }

    pub(crate) fn listed(&self, objects: u64) -> Result<(), Exceeded> {
        count(&self.listed, objects, self.limits.listed, "reads", "objects")
    }

    pub(crate) fn patched(&self, values: u64) -> Result<(), Exceeded> {
        count(&self.patched, values, self.limits.patched, "patches", "values")
    }

    /// Counts values that patterns look at, with those of patches: both go over objects.
    pub(crate) fn compared(&self, values: u64) -> Result<(), Exceeded> {
        count(&self.patched, values, self.limits.patched, "compares", "values")
    }

    pub(crate) fn comparisons_left(&self) -> u64 {
        self.limits.patched.saturating_sub(self.patched.get())
    }

    /// How many values may still be looked at to explain results: as many as for the results themselves, and counted
    /// apart from them, so that a result is the same with an explanation and without.
    pub(crate) fn explanations_left(&self) -> u64 {
        self.limits.patched.saturating_sub(self.explained.get())
    }

    /// Counts values that were looked at to explain a result.
    pub(crate) fn explained(&self, values: usize) {
        self.explained.set(self.explained.get().saturating_add(values as u64));
    }

    /// Notes steps that were counted, and limited, elsewhere.
    pub(crate) fn spent(&self, steps: u64) {
        self.steps.set(self.steps.get().saturating_add(steps));
    }

    pub(crate) fn steps(&self) -> u64 {
        self.steps.get()
    }

    pub(crate) fn bytes_left(&self) -> u64 {
        self.limits.bytes.saturating_sub(self.bytes.get())
    }

    pub(crate) fn cost(&self) -> Cost {
        Cost {
            steps: self.steps.get(),
            bytes: self.bytes.get(),
            elements: self.elements.get(),
            objects: self.objects.get(),
            reads: self.reads.get(),
            listed: self.listed.get(),
        }
    }
}

fn count(
    used: &Cell<u64>,
    more: u64,
    limit: u64,
    verb: &'static str,
    noun: &'static str,
) -> Result<(), Exceeded> {
    used.set(used.get().saturating_add(more));
    if used.get() > limit { Err(Exceeded { verb, limit, noun }) } else { Ok(()) }
}
