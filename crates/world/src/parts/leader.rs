//! Leader election: which replica acts, and until when it may write.

use std::time::Duration;

use kiln_replica::election::{Election, Leadership, Times};
use kiln_replica::lease;

use crate::around::{Around, Identity, Timers};
use crate::connection::now_or_never;
use crate::timeline::TimelineEvent;

/// How long the Lease of a replica counts that does not renew it.
pub(crate) const LEASE: Duration = Duration::from_secs(10);

/// The part of a replica in the election.
#[derive(Debug)]
pub(crate) struct LeasePart {
    election: Election<Duration>,
    /// When it is asked for next.
    again: Duration,
    leads: bool,
}

impl LeasePart {
    pub(crate) fn new(identity: &Identity) -> Self {
        LeasePart {
            election: Election::new(identity.name.clone(), Times::of(LEASE)),
            again: Duration::ZERO,
            leads: false,
        }
    }

    /// Whether this replica acts.
    pub(crate) fn leads(&self) -> bool {
        self.leads
    }

    pub(crate) fn run(&mut self, around: &mut Around) -> bool {
        let asked = around.moment();
        if self.again > asked {
            return false;
        }
        let id = lease::id(&around.identity.namespace, &around.identity.names);
        let connection = &around.connections.controller;
        let kinds = around.knowledge.kinds.get();
        let holds =
            now_or_never(lease::try_once(connection, kinds, &id, &mut self.election, || asked));
        let standing = self.election.tried(asked, holds.as_ref().copied(), asked);
        around.fence = self.election.until();
        let leads = standing == Leadership::Leading;
        if matches!(standing, Leadership::Ousted | Leadership::Late) {
            // A candidate begins anew.
            self.election = Election::new(around.identity.name.clone(), Times::of(LEASE));
        }
        (self.again, _) = self.election.next(asked);
        if leads == self.leads {
            return false;
        }
        self.leads = leads;
        around.core.tell(TimelineEvent::Leads { replica: around.identity.replica, leads });
        true
    }

    pub(crate) fn timers(&self) -> Timers {
        Timers::routine(u64::try_from(self.again.as_millis()).ok())
    }
}
