//! Keeps ValidatingAdmissionPolicies of policies that ask for them. Only the leader does; [`kiln_replica::native_policies`]
//! says which there are to be.

use std::sync::Arc;
use std::time::Duration;

use kiln_cluster::{ApiError, Call, Reply};
use kiln_object::Kinds;
use kiln_replica::calls::FencedCalls;
use kiln_replica::native_policies::{are_served, reconcile};

use crate::election::Fence;
use crate::lease::TermEnd;
use crate::state::AppState;
use crate::supervisor::caught;
use crate::tasks::call;

const PART: &str = "native policies";
/// How often everything is compared, if nothing else happens.
const COMPARE: Duration = Duration::from_secs(60);
/// How long policies must be unchanged.
const SETTLE: Duration = Duration::from_millis(200);
/// How long to wait after a panic.
const AGAIN: Duration = Duration::from_secs(5);

/// Keeps them until the term is over.
pub(crate) async fn keep(shared: AppState, fence: Arc<Fence>, mut term: TermEnd) {
    let keeping = async {
        loop {
            let following = follow(shared.clone(), Arc::clone(&fence));
            if caught(&shared.metrics, PART, following).await.is_some() {
                return;
            }
            tokio::time::sleep(AGAIN).await;
        }
    };
    tokio::select! {
        () = keeping => {}
        () = term.comes() => {}
    }
}

async fn follow(shared: AppState, fence: Arc<Fence>) {
    let (mut registry, mut known) = (shared.registry.clone(), shared.kinds.clone());
    loop {
        let stored = registry.borrow_and_update().clone();
        let served = known.borrow_and_update().clone();
        if stored.complete && are_served(&served) {
            let calls = LeaderCalls { shared: &shared, fence: &fence };
            let settings = shared.options.settings();
            let kept =
                reconcile(&shared.clients.controller, &calls, &served, &settings, &stored).await;
            if let Err(error) = kept {
                tracing::warn!(%error, "cannot keep ValidatingAdmissionPolicies");
            }
        }
        tokio::select! {
            changed = registry.changed() => if changed.is_err() { return },
            changed = known.changed() => if changed.is_err() { return },
            () = tokio::time::sleep(COMPARE) => {}
        }
        tokio::time::sleep(SETTLE).await;
    }
}

/// Calls of the controller's side, counted, and held back when the term is over.
struct LeaderCalls<'c> {
    shared: &'c AppState,
    fence: &'c Fence,
}

impl FencedCalls for LeaderCalls<'_> {
    async fn call(&self, kinds: &Kinds, asked: &Call) -> Result<Reply, ApiError> {
        let shared = self.shared;
        call(&shared.clients.controller, kinds, asked, None, &shared.metrics, self.fence).await
    }
}
