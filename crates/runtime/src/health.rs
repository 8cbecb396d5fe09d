//! Whether the process can do its work: what `/readyz` says; and whether all of it runs: what `/healthz` says.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Parts without which reviews can be answered all the same, by the beginning of their names.
const ONLY_ACTS: [&str; 2] = ["controller", "global context"];

/// Whether the process can do its work. Parts report here by name.
#[derive(Debug, Default)]
pub struct Health {
    parts: Mutex<BTreeMap<String, PartHealth>>,
    /// Parts without which reviews can be answered by now, likewise.
    dispensable: Mutex<BTreeSet<&'static str>>,
    /// Parts that do not run, or have to say again that they do.
    running: Mutex<BTreeMap<&'static str, PartHealth>>,
}

#[derive(Debug)]
enum PartHealth {
    /// It has to report again before this time.
    Good {
        until: Option<Instant>,
    },
    Bad(String),
}

impl PartHealth {
    fn problem(&self, now: Instant) -> Option<String> {
        match self {
            PartHealth::Bad(why) => Some(why.clone()),
            PartHealth::Good { until: Some(until) } if *until < now => {
                Some("it received nothing for too long".to_owned())
            }
            PartHealth::Good { .. } => None,
        }
    }
}

fn line((name, why): &(String, String)) -> String {
    format!("{name}: {why}")
}

impl Health {
    /// A part is well, and reports again within some time if one is given.
    pub fn good(&self, part: &str, within: Option<Duration>) {
        let until = within.map(|within| Instant::now() + within);
        self.set(part, PartHealth::Good { until });
    }

    /// A part cannot do its work.
    pub fn bad(&self, part: &str, why: impl Into<String>) {
        self.set(part, PartHealth::Bad(why.into()));
    }

    /// A part is no longer needed.
    pub fn forget(&self, part: &str) {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner).remove(part);
    }

    /// The names of all parts that have reported and are still needed.
    pub fn names(&self) -> Vec<String> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner).keys().cloned().collect()
    }

    /// What is not well; empty when everything is.
    pub fn problems(&self) -> Vec<String> {
        self.unwell().iter().map(line).collect()
    }

    /// A part does not run: the process is not what it should be.
    pub fn down(&self, part: &'static str, why: impl Into<String>) {
        self.lock_running().insert(part, PartHealth::Bad(why.into()));
    }

    /// A part runs.
    pub fn up(&self, part: &'static str) {
        self.lock_running().remove(part);
    }

    /// A part runs, and says so again within some time: one that is stuck in the middle of something does not.
    pub fn runs(&self, part: &'static str, within: Duration) {
        self.lock_running().insert(part, PartHealth::Good { until: Some(Instant::now() + within) });
    }

    /// The parts that do not run; empty while the process lives as it should.
    pub fn not_running(&self) -> Vec<String> {
        self.stopped(Instant::now()).iter().map(line).collect()
    }

    fn stopped(&self, now: Instant) -> Vec<(String, String)> {
        let running = self.lock_running();
        let stopped = running.iter().filter_map(|(name, part)| Some((*name, part.problem(now)?)));
        stopped.map(|(name, why)| (name.to_owned(), why)).collect()
    }

    fn lock_running(&self) -> MutexGuard<'_, BTreeMap<&'static str, PartHealth>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on reviews are answered while parts whose names begin so are not well: by what they have done so far.
    pub fn can_do_without(&self, parts: &'static str) {
        self.dispensable.lock().unwrap_or_else(PoisonError::into_inner).insert(parts);
    }

    /// Whether a part has done what reviews wait for at the start.
    pub fn has_begun(&self, part: &str) -> bool {
        self.dispensable.lock().unwrap_or_else(PoisonError::into_inner).contains(part)
    }

    /// What keeps the process from answering reviews. A controller that still reads, or a value of the global context that
    /// cannot be had, does not; who has never known the rules cannot answer. Who knows them goes on by what was last
    /// read: what keeps one replica from reading mostly keeps all of them, and with none of them ready the cluster would
    /// refuse whatever rules are asked about.
    pub fn keeps_from_answering(&self) -> Vec<String> {
        let dispensable = self.dispensable.lock().unwrap_or_else(PoisonError::into_inner);
        let parts: Vec<&str> = dispensable.iter().copied().chain(ONLY_ACTS).collect();
        drop(dispensable);
        let mut problems: Vec<String> = self.unable(Instant::now()).iter().map(line).collect();
        problems.retain(|problem| !parts.iter().any(|part| problem.starts_with(part)));
        problems
    }

    /// A part that is forgotten when its handle is dropped.
    pub fn part(self: &Arc<Self>, name: String) -> HealthPart {
        HealthPart { health: Arc::clone(self), name }
    }

    /// The parts that cannot do their work or do not run, each with the reason.
    pub fn unwell(&self) -> Vec<(String, String)> {
        let now = Instant::now();
        let mut unwell = self.unable(now);
        unwell.extend(self.stopped(now));
        unwell
    }

    fn unable(&self, now: Instant) -> Vec<(String, String)> {
        let parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        parts.iter().filter_map(|(name, part)| Some((name.clone(), part.problem(now)?))).collect()
    }

    fn set(&self, part: &str, state: PartHealth) {
        let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        parts.insert(part.to_owned(), state);
    }
}

/// The handle by which one part reports its health.
#[derive(Debug)]
pub struct HealthPart {
    health: Arc<Health>,
    name: String,
}

impl HealthPart {
    /// What the part is called.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// It is well, and says so again within some time.
    pub fn good(&self, within: Duration) {
        self.health.good(&self.name, Some(within));
    }

    /// It cannot do its work.
    pub fn bad(&self, why: impl Into<String>) {
        self.health.bad(&self.name, why);
    }

    /// It has nothing to do, or is about to begin anew.
    pub fn rests(&self) {
        self.health.forget(&self.name);
    }
}

impl Drop for HealthPart {
    fn drop(&mut self) {
        self.health.forget(&self.name);
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
            ["watch of Pod: forbidden", "watch of Secret: it received nothing for too long"]
        );
        health.good("watch of Pod", Some(Duration::from_secs(60)));
        health.forget("watch of Secret");
        assert!(health.problems().is_empty());
    }

    #[test]
    fn a_part_that_does_not_run_is_told_and_keeps_nobody_from_answering() {
        let health = Health::default();
        assert!(health.not_running().is_empty());
        health.bad("controller", "its caches are not synced yet");
        assert!(health.not_running().is_empty(), "it runs");
        health.down("status", "it panicked");
        health.runs("controller", Duration::ZERO);
        std::thread::sleep(Duration::from_millis(2));
        let stuck = "controller: it received nothing for too long";
        assert_eq!(health.not_running(), [stuck, "status: it panicked"]);
        assert_eq!(health.problems().len(), 3);
        assert!(health.keeps_from_answering().is_empty());
        health.runs("controller", Duration::from_secs(60));
        health.up("status");
        assert!(health.not_running().is_empty());
    }

    #[test]
    fn a_part_is_forgotten_with_whoever_cares_for_it() {
        let health = Arc::new(Health::default());
        let rules = health.part("rules: watch of Policy".to_owned());
        let acting = health.part("controller: watch of Policy".to_owned());
        rules.bad("forbidden");
        acting.bad("it fell silent");
        assert_eq!(health.problems().len(), 2);
        assert_eq!(health.keeps_from_answering(), ["rules: watch of Policy: forbidden"]);
        health.can_do_without("rules");
        assert!(health.keeps_from_answering().is_empty(), "what was read goes on to count");
        assert_eq!(health.problems().len(), 2);
        drop(rules);
        assert_eq!(health.problems(), ["controller: watch of Policy: it fell silent"]);
        assert!(health.keeps_from_answering().is_empty());
    }
}
