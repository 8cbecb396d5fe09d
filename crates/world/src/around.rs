//! What the parts of a replica have around them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use kiln_admission::Settings;
use kiln_cluster::{ApiError, Call, Reason, Reply};
use kiln_engine::Globals;
use kiln_object::{EngineNames, Kinds, ReportForm};
use kiln_replica::election::Until;
use kiln_replica::events::Happened;
use kiln_replica::policy_store::Registry;
use kiln_replica::report_results::ReportNews;
use kiln_replica::status::{RegisteredPolicies, Troubles};

use crate::admission::Desk;
use crate::connection::Connection;
use crate::core::Core;

/// Something that parts know, and the number of the version that they know.
#[derive(Clone, Debug, Default)]
pub(crate) struct Known<T> {
    value: T,
    version: u64,
}

impl<T> Known<T> {
    pub(crate) fn new(value: T) -> Self {
        Known { value, version: 1 }
    }

    pub(crate) fn get(&self) -> &T {
        &self.value
    }

    pub(crate) fn set(&mut self, value: T) {
        self.value = value;
        self.version += 1;
    }
}

/// The version of something that a part has seen last.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen(u64);

impl Seen {
    /// Whether there is a newer one, which counts as seen from now on.
    pub(crate) fn renew<T>(&mut self, known: &Known<T>) -> bool {
        std::mem::replace(&mut self.0, known.version) != known.version
    }
}

/// What the process knows of the cluster, kept by one part and read by others.
#[derive(Debug, Default)]
pub(crate) struct Knowledge {
    pub(crate) kinds: Known<Kinds>,
    pub(crate) registry: Known<Arc<Registry>>,
    pub(crate) globals: Known<Arc<Globals>>,
    pub(crate) registered: Known<RegisteredPolicies>,
    /// Whether webhooks were registered once, so that trial writes pass mutating rules.
    pub(crate) webhooks_begun: bool,
    pub(crate) troubles: Known<Option<Troubles>>,
}

/// What the process is called, and where it lives.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    pub(crate) replica: usize,
    /// What it is called as a holder of the Lease.
    pub(crate) name: String,
    pub(crate) namespace: String,
    pub(crate) names: EngineNames,
}

impl Identity {
    /// What users decide about admission, before the ConfigMap says something.
    pub(crate) fn settings(&self) -> Settings {
        Settings::named(&self.namespace, &self.names)
    }

    pub(crate) fn report_form(&self) -> ReportForm {
        ReportForm { names: self.names.clone(), open: false }
    }
}

/// The connections of the sides of a process, each as its account.
#[derive(Clone, Debug)]
pub(crate) struct Connections {
    pub(crate) controller: Connection,
    pub(crate) admission: Connection,
    pub(crate) cleanup: Connection,
}

/// What the parts of a replica have around them.
#[derive(Debug)]
pub(crate) struct Around {
    pub(crate) core: Arc<Core>,
    pub(crate) identity: Identity,
    pub(crate) connections: Connections,
    pub(crate) desk: Arc<Desk>,
    pub(crate) knowledge: Knowledge,
    /// Until when the process may write as the leader.
    pub(crate) fence: Until<Duration>,
    /// What users may want to read.
    pub(crate) happened: VecDeque<Happened>,
    /// What reports are to know.
    pub(crate) findings: VecDeque<ReportNews>,
}

impl Around {
    pub(crate) fn now(&self) -> u64 {
        self.core.now()
    }

    /// The time by a clock that only goes forward.
    pub(crate) fn moment(&self) -> Duration {
        Duration::from_millis(self.core.now())
    }

    /// Whether the leader may write now.
    pub(crate) fn may_write(&self) -> bool {
        match self.fence {
            Until::Unlimited => true,
            Until::At(end) => end > self.moment(),
            Until::Over => false,
        }
    }

    /// Carries out a call of the leader: nothing is written unless the Lease is held.
    pub(crate) fn fenced(&self, connection: &Connection, call: &Call) -> Result<Reply, ApiError> {
        if call.changes() && !self.may_write() {
            let why = "this replica does not hold the Lease; writing nothing";
            return Err(ApiError::new(Reason::Unavailable, why));
        }
        connection.call(self.knowledge.kinds.get(), call)
    }

    /// What users decide, as it is stored now.
    pub(crate) fn settings(&self) -> Settings {
        self.identity.settings().read(self.knowledge.registry.get().config.as_ref()).0
    }
}

/// When a part wants to run again.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Timers {
    /// Something is to be done then.
    pub(crate) work: Option<u64>,
    /// Something is looked at then that heals lost events and says that the process lives; where nothing is lost, nothing
    /// comes of it.
    pub(crate) routine: Option<u64>,
}

impl Timers {
    pub(crate) fn work(at: Option<u64>) -> Self {
        Timers { work: at, routine: None }
    }

    pub(crate) fn routine(at: Option<u64>) -> Self {
        Timers { work: None, routine: at }
    }

    pub(crate) fn and(self, other: Timers) -> Self {
        let earliest = |a: Option<u64>, b: Option<u64>| a.into_iter().chain(b).min();
        Timers {
            work: earliest(self.work, other.work),
            routine: earliest(self.routine, other.routine),
        }
    }
}
