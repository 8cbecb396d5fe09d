//! Whether the process can do its work: what `/readyz` says.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Whether the process can do its work. Parts report here by name.
#[derive(Debug, Default)]
pub struct Health {
    parts: Mutex<BTreeMap<String, Part>>,
}

#[derive(Debug)]
enum Part {
    /// It has to report again before this time.
    Good {
        until: Option<Instant>,
    },
    Bad(String),
}

impl Health {
    /// A part is well, and reports again within some time if one is given.
    pub fn good(&self, part: &str, within: Option<Duration>) {
        let until = within.map(|within| Instant::now() + within);
        self.set(part, Part::Good { until });
    }

    /// A part cannot do its work.
    pub fn bad(&self, part: &str, why: impl Into<String>) {
        self.set(part, Part::Bad(why.into()));
    }

    /// A part is no longer needed.
    pub fn forget(&self, part: &str) {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner).remove(part);
    }

    /// What keeps the process from being ready; empty when nothing does.
    pub fn problems(&self) -> Vec<String> {
        self.unwell().into_iter().map(|(name, why)| format!("{name}: {why}")).collect()
    }

    /// The parts that cannot do their work, each with the reason.
    pub fn unwell(&self) -> Vec<(String, String)> {
        let now = Instant::now();
        let parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        let problem = |(name, part): (&String, &Part)| match part {
            Part::Bad(why) => Some((name.clone(), why.clone())),
            Part::Good { until: Some(until) } if *until < now => {
                Some((name.clone(), "nothing was heard of it for too long".to_owned()))
            }
            Part::Good { .. } => None,
        };
        parts.iter().filter_map(problem).collect()
    }

    fn set(&self, part: &str, state: Part) {
        let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        parts.insert(part.to_owned(), state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_that_falls_silent_is_a_problem() {
        let health = Health::default();
        assert!(health.problems().is_empty());
        health.bad("watch of Pod", "forbidden");
        health.good("watch of Secret", Some(Duration::ZERO));
        health.good("server", None);
        std::thread::sleep(Duration::from_millis(2));
        assert_eq!(
            health.problems(),
            ["watch of Pod: forbidden", "watch of Secret: nothing was heard of it for too long"]
        );
        health.good("watch of Pod", Some(Duration::from_secs(60)));
        health.forget("watch of Secret");
        assert!(health.problems().is_empty());
    }
}
