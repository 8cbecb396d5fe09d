//! Work that is under way: jobs, what they write, what keys wait for, and the pass over everything.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use kiln_cluster::KindKey;
use kiln_object::ObjectId;

use crate::reconcile::plan::Job;
use crate::rights::RightsLook;
use crate::work_queue::WorkKey;

/// Work that is under way.
#[derive(Debug, Default)]
pub(crate) struct Work {
    /// One job per key at most.
    jobs: HashMap<WorkKey, Job>,
    /// Objects that are being written: by which key, and which keys wait for it. Two rules that want one object would
    /// otherwise both decide on a version that neither has seen the other write.
    writing: HashMap<ObjectId, (WorkKey, BTreeSet<WorkKey>)>,
    /// Keys that cannot go on before a kind is known.
    awaiting: BTreeMap<WorkKey, BTreeSet<KindKey>>,
    /// Keys of the pass over everything that were not looked at yet. Nothing is deleted before all of them were: what one
    /// key does not want any more, another one may adopt.
    pass: usize,
    /// Keys with something to delete, which waits for the end of the pass.
    deferred: BTreeSet<WorkKey>,
    /// When what waits for rights is looked at.
    pub(crate) rights: RightsLook,
}

impl Work {
    pub(crate) fn begin(&mut self, key: &WorkKey, job: Job) {
        self.jobs.insert(key.clone(), job);
    }

    pub(crate) fn job(&mut self, key: &WorkKey) -> Option<&mut Job> {
        self.jobs.get_mut(key)
    }

    pub(crate) fn end(&mut self, key: &WorkKey) -> Option<Job> {
        self.jobs.remove(key)
    }

    pub(crate) fn jobs(&self) -> impl Iterator<Item = &Job> {
        self.jobs.values()
    }

    pub(crate) fn is_busy(&self, key: &WorkKey) -> bool {
        self.jobs.contains_key(key)
    }

    /// How many jobs are under way.
    pub(crate) fn busy(&self) -> usize {
        self.jobs.len()
    }

    /// Whether a key may write an object now. Otherwise another one is writing it, and the key has its turn afterwards.
    pub(crate) fn may_write(&mut self, key: &WorkKey, id: &ObjectId) -> bool {
        match self.writing.get_mut(id) {
            Some((holder, waiting)) if holder != key => {
                waiting.insert(key.clone());
                false
            }
            Some(_) => true,
            None => {
                self.writing.insert(id.clone(), (key.clone(), BTreeSet::new()));
                true
            }
        }
    }

    /// A key has written: the keys that waited for it.
    pub(crate) fn has_written(&mut self, key: &WorkKey) -> BTreeSet<WorkKey> {
        let mut woken = BTreeSet::new();
        self.writing.retain(|_, (holder, waiting)| {
            let is_done = holder == key;
            if is_done {
                woken.append(waiting);
            }
            !is_done
        });
        woken
    }

    /// A key cannot go on before these kinds are known.
    pub(crate) fn await_kinds(&mut self, key: &WorkKey, kinds: BTreeSet<KindKey>) {
        self.awaiting.insert(key.clone(), kinds);
    }

    /// A key cannot go on before one more kind is known.
    pub(crate) fn await_kind(&mut self, key: &WorkKey, kind: KindKey) {
        self.awaiting.entry(key.clone()).or_default().insert(kind);
    }

    pub(crate) fn awaits_kinds(&self, key: &WorkKey) -> bool {
        self.awaiting.contains_key(key)
    }

    /// A kind is known, or it is known why it cannot be: the keys that waited for it.
    pub(crate) fn kind_is_known(&mut self, kind: &KindKey) -> Vec<WorkKey> {
        let awaiting = self.awaiting.iter().filter(|(_, kinds)| kinds.contains(kind));
        let woken: Vec<WorkKey> = awaiting.map(|(key, _)| key.clone()).collect();
        for key in &woken {
            self.awaiting.remove(key);
        }
        woken
    }

    /// One more key belongs to the pass over everything.
    pub(crate) fn enter_pass(&mut self) {
        self.pass += 1;
    }

    /// A key of the pass was looked at.
    pub(crate) fn leave_pass(&mut self) {
        self.pass = self.pass.saturating_sub(1);
    }

    pub(crate) fn is_in_pass(&self) -> bool {
        self.pass > 0
    }

    /// What a key has to delete waits for the end of the pass.
    pub(crate) fn defer(&mut self, key: &WorkKey) {
        if let Some(job) = self.jobs.get_mut(key) {
            job.deferred = true;
        }
        self.deferred.insert(key.clone());
    }

    /// The keys that waited for the end of the pass.
    pub(crate) fn end_pass(&mut self) -> BTreeSet<WorkKey> {
        std::mem::take(&mut self.deferred)
    }
}

#[cfg(test)]
mod tests {
    use kiln_object::Gvk;
    use kiln_rules::{Dialect, PolicyId, RuleId};

    use super::*;

    fn key(name: &str) -> WorkKey {
        let policy = PolicyId { dialect: Dialect::Kyverno, namespace: None, name: "p".into() };
        WorkKey { rule: RuleId { policy, rule: "r".into() }, trigger: name.into() }
    }

    #[test]
    fn one_key_writes_an_object_and_the_others_have_their_turn() {
        let mut work = Work::default();
        let id = |name: &str| ObjectId::new(Gvk::new("v1", "Secret"), "a", name);
        let (one, two, three) = (key("1"), key("2"), key("3"));
        assert!(work.may_write(&one, &id("x")) && work.may_write(&one, &id("x")));
        assert!(!work.may_write(&two, &id("x")) && !work.may_write(&three, &id("x")));
        assert!(work.may_write(&two, &id("y")));
        assert_eq!(work.has_written(&one), [two.clone(), three].into());
        assert!(work.may_write(&two, &id("x")), "it is free");
        assert!(work.has_written(&one).is_empty());
    }

    #[test]
    fn keys_go_on_when_one_of_their_kinds_is_known() {
        let mut work = Work::default();
        let kind = |name: &str| KindKey::new("", name);
        work.await_kinds(&key("1"), [kind("A"), kind("B")].into());
        work.await_kind(&key("2"), kind("B"));
        assert_eq!(work.kind_is_known(&kind("A")), [key("1")]);
        assert!(!work.awaits_kinds(&key("1")) && work.awaits_kinds(&key("2")));
        assert_eq!(work.kind_is_known(&kind("B")), [key("2")]);
    }
}
