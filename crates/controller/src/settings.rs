//! What a host decides about a controller.

use kiln_engine::author::Authors;
use kiln_engine::{EvaluationLimits, ResourceFilter, usual_protected_namespaces};
use kiln_object::{EngineNames, Gvk};
use kiln_value::Str;

use crate::ownership::signature::ClaimKeys;

/// What a host decides about a controller. Times are in milliseconds.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where the controller keeps its records and UpdateRequests.
    pub namespace: Str,
    /// The user that the controller's calls are made as.
    pub user: Str,
    /// How many keys are worked on at once.
    pub workers: usize,
    /// How often everything is listed again, so that lost events heal.
    pub resync: u64,
    /// How often the checkpoint is written at most.
    pub checkpoint: u64,
    /// Roles and bindings are followed while something is forbidden, so that it goes on when they change.
    pub follow_rights: bool,
    /// What claims on objects are signed with.
    pub claim_keys: ClaimKeys,
    pub retry: RetrySettings,
    pub requests: RequestSettings,
    pub rules: RuleSettings,
}

/// When work is tried again that could not be done, or is undone by others.
#[derive(Clone, Copy, Debug)]
pub struct RetrySettings {
    /// The first wait after a failure; each further one is twice as long.
    pub backoff: u64,
    /// The longest wait after a failure.
    pub longest_backoff: u64,
    /// The longest wait of work that the cluster forbids, before it is tried again.
    pub park: u64,
    /// How often work is tried again that fails by itself.
    pub retries: u32,
    /// How long a deleted object stays away before it is made again: the user who deletes it sees it go.
    pub made_again_after: u64,
    /// How many times within a minute an object is reverted before the controller backs off.
    pub corrections: u32,
}

/// How long admission requests are waited for, and what UpdateRequests show.
#[derive(Clone, Debug)]
pub struct RequestSettings {
    /// The kind of requests in which work waits.
    pub kind: Gvk,
    /// How long a request waits for the object it was about.
    pub hint_life: u64,
    /// How long a request that is written down waits for rules, kinds and rights.
    pub carrier_life: u64,
    /// How many requests wait at most that are not stored.
    pub hints: usize,
    /// How long a change waits for the request behind it, which may say that it is ignored. None for
    /// clusters that exclude no users.
    pub patience: u64,
    /// How long a failed UpdateRequest stays readable.
    pub failed_request_life: u64,
    /// How long work waits before an UpdateRequest shows it.
    pub pending_after: u64,
    /// The same for work that waits for something which is not there: a source, or a namespace.
    pub missing_after: u64,
}

/// What rules see, may do, and may cost.
#[derive(Clone, Debug)]
pub struct RuleSettings {
    /// Objects that fire no rule: kind, namespace and name, with wildcards.
    pub filters: Vec<ResourceFilter>,
    /// Whose policies are held to the rights of those who stored them, where that is written down.
    pub authors: Authors,
    /// Namespaces that objects cannot choose for what rules write, with wildcards.
    pub protected_namespaces: Vec<Str>,
    /// Rules may ask services; whom exactly, the host decides.
    pub services: bool,
    /// What one evaluation may cost.
    pub limits: EvaluationLimits,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            namespace: "kyverno".into(),
            user: "system:serviceaccount:kyverno:kyverno-background-controller".into(),
            workers: 8,
            resync: 600_000,
            checkpoint: 1_000,
            follow_rights: true,
            claim_keys: ClaimKeys::default(),
            retry: RetrySettings::default(),
            requests: RequestSettings::default(),
            rules: RuleSettings::default(),
        }
    }
}

impl Default for RetrySettings {
    fn default() -> Self {
        RetrySettings {
            backoff: 500,
            longest_backoff: 60_000,
            park: 60_000,
            retries: 3,
            made_again_after: 0,
            corrections: 5,
        }
    }
}

impl Default for RequestSettings {
    fn default() -> Self {
        RequestSettings {
            kind: EngineNames::default().update_request(),
            hint_life: 60_000,
            carrier_life: 86_400_000,
            hints: 10_000,
            patience: 0,
            failed_request_life: 60_000,
            pending_after: 5_000,
            missing_after: 500,
        }
    }
}

impl Default for RuleSettings {
    fn default() -> Self {
        RuleSettings {
            filters: ResourceFilter::usual("kyverno"),
            authors: Authors::All,
            protected_namespaces: usual_protected_namespaces("kyverno"),
            services: false,
            limits: EvaluationLimits::default(),
        }
    }
}
