//! Keeps ValidatingAdmissionPolicies of policies that ask for them, as the leader does.

use std::future::{Future, ready};

use kiln_cluster::{ApiError, Call, Reply};
use kiln_object::Kinds;
use kiln_replica::calls::FencedCalls;
use kiln_replica::native_policies::{are_served, reconcile};

use crate::around::{Around, Seen, Timers};
use crate::connection::now_or_never;

/// How long to wait after a failure.
const AGAIN: u64 = 2_000;
/// How often everything is compared, if nothing else happens.
const COMPARE: u64 = 60_000;

/// ValidatingAdmissionPolicies.
#[derive(Debug, Default)]
pub(crate) struct NativePoliciesPart {
    registry: Seen,
    kinds: Seen,
    /// When something failed, when to try again.
    again: Option<u64>,
    compare: u64,
}

impl NativePoliciesPart {
    pub(crate) fn run(&mut self, around: &mut Around) -> bool {
        let knowledge = &around.knowledge;
        let changed = self.registry.renew(&knowledge.registry) | self.kinds.renew(&knowledge.kinds);
        let now = around.now();
        let due = self.again.is_some_and(|at| at <= now) || self.compare <= now;
        let (stored, kinds) = (knowledge.registry.get(), knowledge.kinds.get());
        if !stored.complete || !are_served(kinds) || !(due || changed) {
            return false;
        }
        self.compare = now + COMPARE;
        let settings = around.identity.settings();
        let api = &around.connections.controller;
        let kept = now_or_never(reconcile(api, &*around, kinds, &settings, stored));
        self.again = kept.is_err().then_some(now + AGAIN);
        changed
    }

    pub(crate) fn timers(&self) -> Timers {
        Timers { work: self.again, routine: Some(self.compare) }
    }
}

impl FencedCalls for Around {
    fn call(
        &self,
        _kinds: &Kinds,
        asked: &Call,
    ) -> impl Future<Output = Result<Reply, ApiError>> + Send {
        ready(self.fenced(&self.connections.controller, asked))
    }
}
