//! When rights come back: what waits because the cluster forbids it goes on then, and not each after its own wait.

use kiln_cluster::KindKey;
use kiln_object::{Gvk, ObjectId};

use crate::controller::Controller;
use crate::work_queue::{Waiting, WorkKey};

const GROUP: &str = "rbac.authorization.k8s.io";
/// What rights are made of. Where something else decides, these tell nothing, and the first work that goes through
/// takes the rest along.
const KINDS: [&str; 4] = ["ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"];
/// So long an API server may need to see a role itself, and the controller of aggregated roles to write another one.
const HEARD_AFTER: u64 = 250;
/// In a cluster where roles change all the time, what waits is looked at no more often than this.
const LOOK_AGAIN: u64 = 3_000;

/// When what waits for rights is looked at.
#[derive(Debug, Default)]
pub(crate) struct RightsLook {
    next: Option<u64>,
    last: u64,
}

impl RightsLook {
    pub(crate) fn next_deadline(&self) -> Option<u64> {
        self.next
    }
}

impl Controller {
    /// Something is forbidden: from now on roles and bindings are followed.
    pub(crate) fn follow_rights(&mut self) {
        if !self.env.settings.follow_rights {
            return;
        }
        for kind in KINDS {
            let gvk = Gvk::new(&format!("{GROUP}/v1"), kind);
            if self.env.kinds.get(&gvk).is_some() {
                self.cache.follow(&gvk);
            }
        }
    }

    /// Whether objects of a kind are what rights are made of.
    pub(crate) fn is_right(&self, kind: &KindKey) -> bool {
        kind.group == GROUP && KINDS.contains(&kind.kind.as_str())
    }

    /// Rights may be others now: a role changed, or something went through that was forbidden before.
    pub(crate) fn rights_changed(&mut self) {
        if self.env.settings.follow_rights {
            let soon = (self.now + HEARD_AFTER).max(self.work.rights.last + LOOK_AGAIN);
            self.work.rights.next = Some(self.work.rights.next.map_or(soon, |next| next.min(soon)));
        }
    }

    /// Looks again at everything that is forbidden, if it is time to.
    pub(crate) fn look_at_forbidden(&mut self) {
        if self.work.rights.next.is_none_or(|next| next > self.now) {
            return;
        }
        self.work.rights = RightsLook { next: None, last: self.now };
        self.cache.retry_forbidden(self.now);
        let forbidden = self.conditions().filter(|(_, found)| found.reason == Waiting::Forbidden);
        let forbidden: Vec<WorkKey> = forbidden.map(|(key, _)| key.clone()).collect();
        for key in forbidden {
            // If the server has not heard of the role yet, the next try comes soon again.
            if let Some(state) = self.queue.get_mut(&key) {
                state.tries = 0;
            }
            self.queue.enqueue(&key, self.now);
        }
    }

    /// A role or a binding came, changed or went.
    pub(crate) fn on_right(&mut self, id: &ObjectId) {
        if self.is_right(&KindKey::of(&id.gvk)) {
            self.rights_changed();
        }
    }
}
