//! What a user decides about a running process.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use kiln_admission::Settings;
use kiln_engine::HostAllowlist;
use kiln_object::{EngineNames, ReportForm};

use crate::serve::ClientAuthority;

/// How long other replicas wait for a leader that does not renew its Lease; `--lease`.
pub const DEFAULT_LEASE_DURATION: Duration = Duration::from_secs(10);

/// Shorter leases would expire between two renewals of a busy API server.
pub const MIN_LEASE_DURATION: Duration = Duration::from_secs(2);

/// How long `kiln run` serves after SIGTERM; `--shutdown-grace-period`. API servers may still send requests to a replica
/// that is no longer ready, because they hear of it later.
pub const DEFAULT_SHUTDOWN_GRACE_PERIOD: Duration = Duration::from_secs(5);

/// Which part of the work a process does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Only {
    /// It answers admission requests.
    Admission,
    /// It generates, synchronizes and patches stored objects.
    Controller,
}

/// What a user decides about a running process.
#[derive(Clone, Debug)]
pub struct RuntimeOptions {
    /// The kubeconfig; none for the usual places, then for the account of the pod.
    pub kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig; none for the current one.
    pub context: Option<String>,
    /// Do only a part of the work.
    pub only: Option<Only>,
    /// The user that the controller acts as, if not the one of the kubeconfig.
    pub as_controller: Option<String>,
    /// The user that the admission side acts as, if not the one of the kubeconfig.
    pub as_admission: Option<String>,
    /// The user that deletes objects whose time has come, if not the one of the controller.
    pub as_cleanup: Option<String>,
    /// Where the engine keeps its configuration, records and UpdateRequests.
    pub namespace: String,
    /// What it calls its own objects, and with that whose policies it runs.
    pub names: EngineNames,
    /// Reports of `openreports.io` in the place of PolicyReports.
    pub open_reports: bool,
    /// Numbers are also kept under Kyverno's names.
    pub kyverno_metrics: bool,
    /// The ConfigMap with the configuration.
    pub config_map: String,
    /// The address that the HTTPS server listens on.
    pub listen: SocketAddr,
    /// The address at which the API server reaches the webhook, when that is not a Service in the cluster.
    pub webhook_url: Option<String>,
    /// The Service through which the API server reaches the webhook.
    pub service: String,
    /// Whose certificates clients show before their reviews are answered; none when no certificate is required.
    pub client_ca: Option<ClientAuthority>,
    /// The webhook configurations stay when the process ends, because others answer at the same address.
    pub leave_webhooks: bool,
    /// How long the process goes on answering after SIGTERM, until no requests come any more.
    pub linger: Duration,
    /// How long the Lease of a process counts that does not renew it: so long others wait before they take over.
    pub lease: Duration,
    /// The services that rules may ask, besides those that the ConfigMap allows.
    pub services: HostAllowlist,
    /// The most calls to the API server at once.
    pub calls_at_once: usize,
    /// A watch that receives nothing for so long is restarted.
    pub stale_after: Duration,
}

impl Default for RuntimeOptions {
    fn default() -> Self {
        RuntimeOptions {
            kubeconfig: None,
            context: None,
            only: None,
            as_controller: None,
            as_admission: None,
            as_cleanup: None,
            namespace: "kyverno".to_owned(),
            names: EngineNames::default(),
            open_reports: false,
            kyverno_metrics: false,
            config_map: EngineNames::default().config_map(),
            listen: SocketAddr::from(([0, 0, 0, 0], 9443)),
            webhook_url: None,
            service: EngineNames::default().service(),
            client_ca: None,
            leave_webhooks: false,
            // `kiln up` stops its API server with the engine: no requests can follow.
            linger: Duration::ZERO,
            lease: DEFAULT_LEASE_DURATION,
            services: HostAllowlist::default(),
            calls_at_once: 16,
            stale_after: Duration::from_secs(180),
        }
    }
}

impl RuntimeOptions {
    /// What users decide about admission, before the ConfigMap says something.
    pub(crate) fn settings(&self) -> Settings {
        Settings::named(&self.namespace, &self.names)
    }

    /// In which form reports are kept.
    pub(crate) fn report_form(&self) -> ReportForm {
        ReportForm { names: self.names.clone(), open: self.open_reports }
    }

    /// Whether policies of Kyverno's groups are run, besides those of Kiln's own.
    pub(crate) fn runs_kyverno(&self) -> bool {
        self.names.stands_for_kyverno()
    }
}
