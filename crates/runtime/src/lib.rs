//! Rules on a live cluster: the only crate that talks to an API server.
//!
//! ```text
//! API server ─▶ watch ─▶ drive ─▶ Controller ─▶ drive ─▶ calls ─▶ API server
//!      │                   ▲  ▲
//!      ├─ registry ────────┘  │ hints
//!      └─ AdmissionReview ─▶ serve
//! ```
//!
//! | module | holds |
//! |---|---|
//! | `options` | what a user decides about a running process |
//! | `client` | the connection: credentials, and the one way that requests go out and answers come in |
//! | `discovery` | which kinds a cluster serves |
//! | [`calls`], [`path`] | of [`kiln_replica`]: carries out [`kiln_cluster::Call`]s, builds every address at an API server |
//! | `watch` | follows a kind for as long as the process lives |
//! | `policy_store` | the policies, exceptions and configuration that are stored, compiled, for all parts |
//! | `globals` | what the entries of the global context hold |
//! | `controller_loop`, `tasks` | owns the controller: gives it events, carries out its calls |
//! | `cleanup` | deletes objects whose time has come, by policies on schedules and by the TTL label |
//! | `claim_keys` | the keys that prove which claims the engine wrote |
//! | `lease`, `election` | which of several processes acts, and until when it may write (leader election) |
//! | `supervisor` | what becomes of parts that panic |
//! | `status`, `events` | tells users how policies are and what rules did |
//! | `scan`, `reporter` | checks the objects that are there; keeps reports about what rules found |
//! | `native_policies` | keeps ValidatingAdmissionPolicies of policies that ask for them |
//! | `uninstall` | takes an installation off a cluster |
//! | `reader`, `plan` | read access for commands that change nothing; what rules would do |
//! | `health`, `metrics`, `kyverno_metrics`, `process_metrics` | what operators ask |
//! | `serve` | the HTTPS server |
//!
//! # Who runs where
//!
//! ```text
//! thread `lease`       Term: renews the Lease ──────────────▶ fence: until when may be written
//!                                                               │
//! thread `controller`  drive: Controller::poll, evaluations ─▶ calls ─▶ API server
//!                        ▲ channels: watches, answers, hints
//! runtime              watches, calls, registry, server …     each part under `supervisor`
//! threads `reviews`    evaluations at admission
//! ```
//!
//! What rules compute, they compute on threads that nothing else waits for: an evaluation that takes long holds up
//! the controller, and neither a renewal, nor a review, nor a probe.
//!
//! Nothing is decided here: what a rule wants is the engine's business, what follows from it the
//! controller's.

mod claim_keys;
mod cleanup;
pub mod client;
mod controller_loop;
pub mod discovery;
mod election;
pub mod events;
mod globals;
pub mod health;
mod kyverno_metrics;
mod lease;
pub mod metrics;
mod native_policies;
pub mod options;
mod plan;
pub mod policy_store;
mod process_metrics;
pub mod reader;
pub mod reporter;
mod run;
mod scan;
pub mod serve;
pub mod state;
mod status;
mod supervisor;
mod tasks;
mod uninstall;
pub mod watch;

pub use client::{Client, ConnectError};
pub use kiln_controller::Waiting;
pub use kiln_controller::dry_run::{Applied, Denied, DryRunResult, NotApplied, Planned};
pub use kiln_controller::provenance;
pub use kiln_engine::CARRIES;
use kiln_replica::author_access;
pub use kiln_replica::author_access::Rights;
pub use kiln_replica::{calls, path};
pub use lease::id as lease_id;
pub use options::{Only, RuntimeOptions};
pub use plan::{PlanInput, RuleEnvironment, plan, take_refused};
pub use reader::LiveReader;
pub use run::{RunError, logs, run, run_blocking, run_seen};
pub use state::{ActivityState, AppState, Clients, NewsChannels, NextDeletions, PartProgress};
pub use uninstall::{Uninstall, uninstall, webhook_configurations};
