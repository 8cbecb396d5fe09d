//! Budgets: what an expression may cost, counted rather than timed.

use std::cell::Cell;

/// How much an expression may cost.
///
/// Steps and bytes count per search; depth and source length are looked at once, by the compiler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JmesPathLimits {
    /// The longest source, in bytes.
    pub source: usize,
    /// How deep brackets, calls and operators may nest.
    pub depth: usize,
    /// How many steps one search may take. A step is about one node of the tree on one value, or
    /// [`JmesPathLimits::BYTES_PER_STEP`] bytes of text that a function reads, that are compared, or that are made.
    /// Every call is charged for the texts it is given before it runs, so no function can forget to count;
    /// those that do more with a text than read it once (`parse_yaml`, sorting) count further steps themselves.
    pub steps: u64,
    /// How many bytes of new text and values one search may make.
    pub bytes: u64,
}

impl JmesPathLimits {
    /// How many bytes of text are a step. It is the same in Go templates; CEL counts a cost unit for ten bytes,
    /// as Kubernetes does.
    pub const BYTES_PER_STEP: u64 = 16;
}

impl Default for JmesPathLimits {
    fn default() -> Self {
        JmesPathLimits { source: 1 << 20, depth: 128, steps: 2_000_000, bytes: 32 << 20 }
    }
}

/// Counts down the steps and bytes of one search, or of several that share a budget.
#[derive(Debug)]
pub struct Meter {
    steps: Cell<u64>,
    bytes: Cell<u64>,
    limits: JmesPathLimits,
}

/// A budget is used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exhausted {
    Steps(u64),
    Bytes(u64),
}

impl Exhausted {
    pub(crate) fn message(self) -> String {
        match self {
            Exhausted::Steps(limit) => format!("the expression takes more than {limit} steps"),
            Exhausted::Bytes(limit) => format!("the expression makes more than {limit} bytes"),
        }
    }
}

impl Meter {
    /// A full budget.
    pub fn new(limits: &JmesPathLimits) -> Self {
        Meter { steps: Cell::new(limits.steps), bytes: Cell::new(limits.bytes), limits: *limits }
    }

    /// How many steps were taken.
    pub fn steps_used(&self) -> u64 {
        self.limits.steps - self.steps.get()
    }

    /// How many bytes were made.
    pub fn bytes_used(&self) -> u64 {
        self.limits.bytes - self.bytes.get()
    }

    pub(crate) fn step(&self, count: u64) -> Result<(), Exhausted> {
        // Once exceeded, the budget stays empty: a default (`||`) must not make an expression go on.
        let left = self.steps.get().checked_sub(count);
        self.steps.set(left.unwrap_or(0));
        left.map(|_| ()).ok_or(Exhausted::Steps(self.limits.steps))
    }

    /// Counts text that is looked at, in bytes.
    pub(crate) fn read(&self, bytes: u64) -> Result<(), Exhausted> {
        self.step(bytes / JmesPathLimits::BYTES_PER_STEP)
    }

    /// Counts text that is made, in bytes: it takes room, and steps to write.
    pub(crate) fn make(&self, count: u64) -> Result<(), Exhausted> {
        let left = self.bytes.get().checked_sub(count);
        self.bytes.set(left.unwrap_or(0));
        left.ok_or(Exhausted::Bytes(self.limits.bytes))?;
        self.read(count)
    }
}
