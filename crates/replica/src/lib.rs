//! What one process of `kiln run` decides, without connections, clocks and threads.
//!
//! `kiln-runtime` gives these parts a connection, a clock and tasks of their own; `kiln-world` gives them an API server in the
//! same thread and a clock that jumps. So both do the same. What is asked of an API server goes through [`api::Api`].
//!
//! | module | holds |
//! |---|---|
//! | `api` | the way to an API server, and what its failures mean |
//! | `path`, `calls` | addresses, and [`kiln_cluster::Call`]s carried out at them |
//! | `watch_news` | what is watched, and what a watch tells |
//! | `policy_store` | policies, exceptions and configuration as they are stored, compiled: `Registry` |
//! | `webhooks` | webhook configurations, and which policies are registered |
//! | `policy_review`, `ttl_review` | the answers to a policy, and to a TTL label, that is to be stored |
//! | `native_policies` | ValidatingAdmissionPolicies of policies that ask for them |
//! | `status`, `autogen_status` | the status of policies |
//! | `events`, `validation_events` | the events about what rules did |
//! | `report_results` | what reports say, and of which policies |
//! | `scan`, `scan_permissions` | which objects that are there are checked, by which rules, and whether they may be read |
//! | `cleanup` | scheduled deletion: policies, permissions, judgement |
//! | `globals` | the entries of the global context |
//! | `author_access` | whether the author of a policy may do what its rules do |
//! | `claim_keys` | the keys that prove which claims the engine wrote |
//! | `controller_settings` | what the controller is given |
//! | `election`, `lease` | which of several processes acts, and until when |

pub mod api;
pub mod author_access;
mod autogen_status;
pub mod calls;
pub mod claim_keys;
pub mod cleanup;
pub mod controller_settings;
pub mod election;
pub mod events;
pub mod globals;
pub mod lease;
pub mod native_policies;
pub mod path;
pub mod policy_review;
pub mod policy_store;
pub mod report_results;
pub mod scan;
pub mod scan_permissions;
pub mod status;
pub mod ttl_review;
mod validation_events;
pub mod watch_news;
pub mod webhooks;
