//! Budgets: how much an evaluation may do before it is stopped.
//!
//! Work is counted in the cost units of Kubernetes, with its limits as defaults. Ten bytes of text that a function
//! reads or makes are a unit ([`Meter::charge_text`]), a byte is one where they are parsed (JSON, YAML, certificates). What an expression
//! builds is charged before it is built, so memory is bounded too. A deadline is the caller's
//! business: the [`Interrupt`] callback is asked now and then.

use crate::error::{EvalError, EvalErrorKind, EvalFailure};

/// Limits of one session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Cost units for one expression, with the variables it is the first to use.
    pub expression: u64,
    /// Cost units for all expressions of the session.
    pub total: u64,
    /// Nodes and bytes of text that one result, or one argument of a host call, may have as JSON.
    pub output: u64,
}

impl Default for Budget {
    // Kubernetes: one million per expression, ten million per policy; request bodies of 3 MiB.
    fn default() -> Self {
        Budget { expression: 1_000_000, total: 10_000_000, output: 4 << 20 }
    }
}

/// Asked now and then whether to stop; `true` ends the evaluation.
pub type Interrupt<'i> = dyn FnMut() -> bool + Send + 'i;

/// Counts the cost of an evaluation.
pub(crate) struct Meter<'i> {
    spent: u64,
    /// Where the current expression must stop.
    limit: u64,
    /// Where to look up next: the limit, or the next question to the interrupt.
    checkpoint: u64,
    budget: Budget,
    interrupt: Option<Box<Interrupt<'i>>>,
}

/// How many units pass between two questions to the interrupt.
const INTERRUPT_EVERY: u64 = 1_000;

impl<'i> Meter<'i> {
    pub(crate) fn new(budget: Budget) -> Self {
        let mut meter = Meter { spent: 0, limit: 0, checkpoint: 0, budget, interrupt: None };
        meter.begin_expression();
        meter
    }

    pub(crate) fn set_interrupt(&mut self, interrupt: Box<Interrupt<'i>>) {
        self.interrupt = Some(interrupt);
        self.checkpoint = self.spent;
    }

    /// A new expression begins; it has its own limit below that of the session.
    pub(crate) fn begin_expression(&mut self) {
        let own = self.spent.saturating_add(self.budget.expression);
        self.limit = own.min(self.budget.total);
        self.next_checkpoint();
    }

    fn next_checkpoint(&mut self) {
        self.checkpoint = match self.interrupt {
            Some(_) => self.limit.min(self.spent.saturating_add(INTERRUPT_EVERY)),
            None => self.limit,
        };
    }

    /// What has been spent in the session so far.
    pub(crate) fn spent(&self) -> u64 {
        self.spent
    }

    pub(crate) fn output_limit(&self) -> u64 {
        self.budget.output
    }

    /// Charges for work about to be done.
    #[inline]
    pub(crate) fn charge(&mut self, units: u64) -> Result<(), EvalFailure> {
        // One comparison on the usual path: the checkpoint is the limit, or the next time to ask the interrupt.
        self.spent = self.spent.saturating_add(units);
        if self.spent > self.checkpoint { self.over() } else { Ok(()) }
    }

    /// Charges a tenth of a unit per byte or element.
    // Kubernetes: the cost of looking at text is a tenth of its length, rounded up.
    #[inline]
    pub(crate) fn charge_text(&mut self, size: u64) -> Result<(), EvalFailure> {
        self.charge(size.div_ceil(10))
    }

    #[cold]
    fn over(&mut self) -> Result<(), EvalFailure> {
        let stop = |kind, message: &str| {
            Err(Box::new(EvalError {
                kind,
                message: message.to_owned(),
                span: None,
                variable: None,
                hint: None,
            }))
        };
        if self.spent > self.limit {
            // What was refused was not done.
            self.spent = self.limit;
            return stop(EvalErrorKind::Budget, "operation cancelled: actual cost limit exceeded");
        }
        if let Some(interrupt) = &mut self.interrupt
            && interrupt()
        {
            return stop(EvalErrorKind::Interrupted, "operation interrupted");
        }
        self.next_checkpoint();
        Ok(())
    }
}

impl std::fmt::Debug for Meter<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Meter({} of {})", self.spent, self.limit)
    }
}
