//! How much work a match may take: a list of patterns meets every element of a list, so work and results
//! can grow with the product of both.

use std::fmt;

/// How much work a match may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PatternLimits {
    /// Values that are looked at or copied.
    pub steps: usize,
}

impl Default for PatternLimits {
    fn default() -> Self {
        PatternLimits { steps: 2_000_000 }
    }
}

/// A match would take more work than allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooMuchWork {
    /// How many steps there may be.
    pub limit: usize,
}

impl fmt::Display for TooMuchWork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "matching the pattern takes more than {} steps", self.limit)
    }
}

impl std::error::Error for TooMuchWork {}

/// Counts steps.
pub(crate) struct Effort {
    limit: usize,
    left: usize,
}

impl Effort {
    pub(crate) fn new(limits: &PatternLimits) -> Self {
        Effort { limit: limits.steps, left: limits.steps }
    }

    /// How many steps were taken so far.
    pub(crate) fn spent(&self) -> usize {
        self.limit - self.left
    }

    pub(crate) fn spend(&mut self, steps: usize) -> Result<(), TooMuchWork> {
        match self.left.checked_sub(steps) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => {
                self.left = 0;
                Err(TooMuchWork { limit: self.limit })
            }
        }
    }
}
