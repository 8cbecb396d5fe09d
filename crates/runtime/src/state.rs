//! What the parts of a running process share.

use std::sync::Arc;

use kiln_engine::{Globals, ObservedRequest};
use kiln_object::Kinds;
use kiln_replica::status::RegisteredPolicies;
use tokio::sync::{mpsc, watch};

use crate::author_access::Rights;
use crate::client::Client;
use crate::discovery::Rumours;
use crate::events::Happened;
use crate::health::Health;
use crate::metrics::Metrics;
use crate::options::RuntimeOptions;
use crate::policy_store::Registry;
use crate::reporter::ReportNews;

pub use kiln_replica::status::Troubles;

/// How far the controller is with what it knows of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ActivityState {
    /// It does not act: it reads what is stored, or another process acts.
    #[default]
    Standby,
    /// Something is to be done.
    Busy,
    /// Nothing is to be done now.
    Idle,
}

/// When objects will be deleted by schedules and by the TTL label, in milliseconds since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NextDeletions {
    /// When the next policy runs.
    pub policies: Option<u64>,
    /// When the next object with the label goes.
    pub ttl: Option<u64>,
    /// Objects with the label are followed, as far as the account may.
    pub follows_ttl: bool,
}

/// What the parts of a running process share. Cloning copies pointers.
#[derive(Clone, Debug)]
pub struct AppState {
    /// What the user decided.
    pub options: Arc<RuntimeOptions>,
    pub clients: Clients,
    /// The kinds that the cluster serves.
    pub kinds: watch::Receiver<Kinds>,
    /// Where to say that it may serve new ones.
    pub rumours: Rumours,
    /// The policies, exceptions and configuration that are stored.
    pub registry: watch::Receiver<Arc<Registry>>,
    /// What the global context holds.
    pub globals: watch::Sender<Arc<Globals>>,
    pub news: NewsChannels,
    pub progress: PartProgress,
    /// What the API server answered of late about the rights of authors.
    pub rights: Arc<Rights>,
    /// Whether the process can do its work.
    pub health: Arc<Health>,
    /// What is counted.
    pub metrics: Arc<Metrics>,
    /// Turns true when the process is to end.
    pub shutdown: watch::Receiver<bool>,
}

/// The connections to the API server, each with the rights of its part.
#[derive(Clone, Debug)]
pub struct Clients {
    /// The connection of the controller's side.
    pub controller: Client,
    /// The connection of the admission side.
    pub admission: Client,
    /// The connection that deletes objects whose time has come.
    pub cleanup: Client,
}

/// Where parts tell others what happened.
#[derive(Clone, Debug)]
pub struct NewsChannels {
    /// Where the admission side tells what only a request knows.
    pub hints: mpsc::Sender<ObservedRequest>,
    /// Receives what users may want to read.
    pub happened: mpsc::Sender<Happened>,
    /// Receives what rules that check objects found, for reports.
    pub findings: mpsc::Sender<ReportNews>,
}

/// How far parts are.
#[derive(Clone, Debug)]
pub struct PartProgress {
    /// The policies whose webhooks the API server has: which object, and its `metadata.generation`. The
    /// admission side tells, and a policy becomes ready by it.
    pub webhooks: watch::Sender<RegisteredPolicies>,
    /// What keeps policies from firing, as the process that acts finds out; none while this one does not act.
    pub troubles: watch::Sender<Option<Troubles>>,
    /// How far the controller is.
    pub work: watch::Sender<ActivityState>,
    /// When something will be deleted because its time has come.
    pub deletions: watch::Sender<NextDeletions>,
}
