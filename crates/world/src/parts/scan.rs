//! Checks the objects that are there, as the leader does.

use kiln_object::{Change, metadata};
use kiln_replica::calls::list_all;
use kiln_replica::report_results::{FoundBy, ReportNews};
use kiln_replica::scan::{ScanBasis, ScanRules, ScannedObjects, basis, happened};
use kiln_replica::watch_news::Subject;
use kiln_value::Value;

use crate::around::{Around, Seen, Timers};
use crate::connection::now_or_never;
use crate::follower::{FollowNews, Follower};
use crate::view::ApiView;

/// How long policies must be unchanged before a scan begins.
const SETTLE: u64 = 500;

/// Scans objects.
#[derive(Debug, Default)]
pub(crate) struct ScanPart {
    registry: Seen,
    kinds: Seen,
    basis: Option<ScanBasis>,
    /// When it is looked whether there is another basis.
    settles: Option<u64>,
    next: u64,
    rules: ScanRules,
    followers: Vec<Follower>,
    seen: ScannedObjects,
}

impl ScanPart {
    pub(crate) fn run(&mut self, around: &mut Around) -> bool {
        let now = around.now();
        let knowledge = &around.knowledge;
        let mut progress = false;
        if self.registry.renew(&knowledge.registry) | self.kinds.renew(&knowledge.kinds) {
            self.settles = Some(if self.basis.is_none() { now } else { now + SETTLE });
            progress = true;
        }
        if !knowledge.registry.get().complete {
            return progress;
        }
        let is_old = self.basis.is_some() && self.next <= now;
        if is_old || self.settles.is_some_and(|at| at <= now) {
            self.settles = None;
            let identity = &around.identity;
            let (settings, form) = (identity.settings(), identity.report_form());
            let (registry, kinds) = (knowledge.registry.get(), knowledge.kinds.get());
            let found = basis(&settings, &form, registry, kinds);
            if is_old || self.basis.as_ref() != Some(&found) {
                self.begin(around, found);
                progress = true;
            }
        }
        progress |= self.follow(around);
        progress
    }

    fn begin(&mut self, around: &mut Around, basis: ScanBasis) {
        self.next = around.now() + basis.reporting.interval * 1000;
        let kinds = around.knowledge.kinds.get();
        for kind in around.identity.report_form().kinds() {
            let connection = &around.connections.controller;
            let reports = now_or_never(list_all(connection, kinds, &kind, "", ""));
            let reports = reports.map(|listing| listing.objects).unwrap_or_default();
            around.findings.extend(reports.into_iter().map(ReportNews::Stored));
        }
        let registry = around.knowledge.registry.get();
        self.rules = ScanRules::of(&around.identity.settings(), &around.settings(), registry);
        self.seen = ScannedObjects::default();
        self.followers =
            basis.kinds.iter().map(|gvk| Follower::new(Subject::all(gvk.clone()))).collect();
        self.basis = Some(basis);
    }

    fn follow(&mut self, around: &mut Around) -> bool {
        let mut progress = false;
        let mut changed: Vec<Value> = Vec::new();
        for follower in &mut self.followers {
            let connection = &around.connections.controller;
            for news in follower.poll(connection, around.knowledge.kinds.get()) {
                match news {
                    FollowNews::All(listing) => changed.extend(listing.objects),
                    FollowNews::One(event) if event.change == Change::Deleted => {
                        let uid = metadata::uid(&event.object).unwrap_or_default();
                        self.seen.forget(uid);
                        around.findings.push_back(ReportNews::Gone(uid.into()));
                        progress = true;
                    }
                    FollowNews::One(event) => changed.push(event.object),
                    FollowNews::Unserved | FollowNews::Unreadable(_) => {}
                }
            }
        }
        changed.retain(|object| self.seen.is_new(object));
        if changed.is_empty() {
            return progress;
        }
        let settings = around.settings();
        let authors = around.knowledge.registry.get().authors(settings.authors);
        let view = ApiView {
            connection: &around.connections.controller,
            kinds: around.knowledge.kinds.get(),
            authors: &authors,
            rights: &around.desk.rights,
        };
        let globals = around.knowledge.globals.get();
        let found =
            view.with_env(&settings, globals, |env| self.rules.check(changed, &settings, env));
        for (object, results) in found {
            around.happened.extend(happened(&object, &results));
            around.findings.push_back(ReportNews::Found { object, results, by: FoundBy::Scan });
        }
        true
    }

    pub(crate) fn timers(&self) -> Timers {
        let again = self.followers.iter().filter_map(Follower::next_time).min();
        let next = self.basis.as_ref().map(|_| self.next);
        Timers { work: self.settles, routine: again.into_iter().chain(next).min() }
    }
}
