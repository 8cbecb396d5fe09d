//! How long the phases of a build take, by a clock that the host supplies.

use std::cell::{Cell, RefCell};
use std::time::Duration;

/// The parts of a build that are timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Reading files and parsing documents.
    Load,
    /// Making ConfigMaps, Secrets and other objects.
    Generate,
    /// Transformers of all layers.
    Transform,
    /// Hashes in names, and the fields that name renamed objects.
    References,
    /// Replacing vars.
    Vars,
    Sort,
    /// Writing YAML.
    Write,
}

impl Phase {
    /// All of them, in the order they run.
    pub const ALL: [Phase; 7] = [
        Phase::Load,
        Phase::Generate,
        Phase::Transform,
        Phase::References,
        Phase::Vars,
        Phase::Sort,
        Phase::Write,
    ];

    /// The word for reports.
    pub fn as_str(self) -> &'static str {
        match self {
            Phase::Load => "load",
            Phase::Generate => "generate",
            Phase::Transform => "transform",
            Phase::References => "references",
            Phase::Vars => "vars",
            Phase::Sort => "sort",
            Phase::Write => "write",
        }
    }
}

/// What a build counted and timed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// How many kustomizations were entered.
    pub kustomizations: usize,
    /// How many documents were read.
    pub documents: usize,
    /// How many bytes were read.
    pub bytes_read: usize,
    /// How many transformers ran.
    pub transformers: usize,
    /// How many objects came out.
    pub objects: usize,
    /// How many bytes came out.
    pub bytes_written: usize,
    /// The time of each phase, without the phases inside it; all zero without a clock.
    pub phases: [Duration; Phase::ALL.len()],
}

impl Stats {
    /// The time of a phase.
    pub fn time(&self, phase: Phase) -> Duration {
        self.phases[phase as usize]
    }
}

/// Times phases; phases inside a phase count for themselves only.
pub(crate) struct Clock<'c> {
    now: Option<&'c dyn Fn() -> Duration>,
    spent: RefCell<[Duration; Phase::ALL.len()]>,
    running: RefCell<Vec<(Phase, Duration)>>,
    transformers: Cell<usize>,
}

impl<'c> Clock<'c> {
    pub(crate) fn new(now: Option<&'c dyn Fn() -> Duration>) -> Self {
        Clock {
            now,
            spent: RefCell::default(),
            running: RefCell::default(),
            transformers: Cell::new(0),
        }
    }

    /// Runs something as part of a phase.
    pub(crate) fn time<T>(&self, phase: Phase, run: impl FnOnce() -> T) -> T {
        let Some(now) = self.now else { return run() };
        let start = now();
        if let Some((outer, since)) = self.running.borrow_mut().last_mut() {
            self.spent.borrow_mut()[*outer as usize] += start.saturating_sub(*since);
        }
        self.running.borrow_mut().push((phase, start));
        let outcome = run();
        let end = now();
        let mut running = self.running.borrow_mut();
        if let Some((phase, since)) = running.pop() {
            self.spent.borrow_mut()[phase as usize] += end.saturating_sub(since);
        }
        if let Some((_, since)) = running.last_mut() {
            *since = end;
        }
        outcome
    }

    pub(crate) fn count_transformer(&self) {
        self.transformers.set(self.transformers.get() + 1);
    }

    pub(crate) fn transformers(&self) -> usize {
        self.transformers.get()
    }

    pub(crate) fn spent(&self) -> [Duration; Phase::ALL.len()] {
        *self.spent.borrow()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_inside_another_phase_counts_once() {
        let ticks = Cell::new(0);
        let now = || {
            ticks.set(ticks.get() + 1);
            Duration::from_secs(ticks.get())
        };
        let clock = Clock::new(Some(&now));
        clock.time(Phase::Transform, || clock.time(Phase::Load, || ()));
        let seconds: Vec<u64> = clock.spent().iter().map(Duration::as_secs).collect();
        assert_eq!(seconds, [1, 0, 2, 0, 0, 0, 0]);
    }
}
