//! Budgets: what a rendering may cost, counted rather than timed.

use std::cell::Cell;

use crate::error::Refusal;

/// How much a template may cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TemplateLimits {
    /// The longest template, in bytes.
    pub source: usize,
    /// How deep control structures and parentheses may nest in the text.
    pub nesting: usize,
    /// How many levels of control structures, calls and templates may be open while rendering.
    pub depth: usize,
    /// How many steps one rendering may take. A step is about one node of the template, one
    /// element looked at, or [`TemplateLimits::BYTES_PER_STEP`] bytes of text that a function reads or that are made.
    /// Every call is charged for the texts it is given before it runs, so no function can forget to count.
    pub steps: u64,
    /// How many bytes of output and of new texts and lists one rendering may make.
    pub bytes: u64,
}

impl TemplateLimits {
    /// How many bytes of text are a step. It is the same in JMESPath; CEL counts a cost unit for ten bytes, as
    /// Kubernetes does.
    pub const BYTES_PER_STEP: u64 = 16;
}

impl Default for TemplateLimits {
    fn default() -> Self {
        TemplateLimits {
            source: 1 << 20,
            nesting: 100,
            depth: 300,
            steps: 2_000_000,
            bytes: 32 << 20,
        }
    }
}

/// Counts down the steps and bytes of one rendering.
#[derive(Debug)]
pub(crate) struct Meter {
    steps: Cell<u64>,
    bytes: Cell<u64>,
    limits: TemplateLimits,
}

impl Meter {
    pub(crate) fn new(limits: &TemplateLimits) -> Self {
        Meter { steps: Cell::new(limits.steps), bytes: Cell::new(limits.bytes), limits: *limits }
    }

    pub(crate) fn step(&self, count: u64) -> Result<(), Refusal> {
        let left = self.steps.get().checked_sub(count);
        self.steps.set(left.unwrap_or(0));
        let limit = self.limits.steps;
        left.map(drop)
            .ok_or_else(|| Refusal::Limit(format!("the template takes more than {limit} steps")))
    }

    /// Counts text that is looked at, in bytes.
    pub(crate) fn read(&self, bytes: u64) -> Result<(), Refusal> {
        self.step(bytes / TemplateLimits::BYTES_PER_STEP)
    }

    /// Counts what is made, in bytes: it takes room, and steps to write.
    pub(crate) fn make(&self, count: u64) -> Result<(), Refusal> {
        let left = self.bytes.get().checked_sub(count);
        self.bytes.set(left.unwrap_or(0));
        let limit = self.limits.bytes;
        left.ok_or_else(|| Refusal::Limit(format!("the template makes more than {limit} bytes")))?;
        self.read(count)
    }
}
