//! The reconciler: compares desired with actual objects and decides on writes. A state machine without I/O.
//!
//! A host carries out the calls of [`Controller::poll`], gives back their results, passes on watch events
//! and admission requests, says which policies are stored ([`StoredPolicy`], compiled by the host) and what time it is.
//! Nothing else goes in, so every run can be replayed.
//!
//! ```text
//! stored policies ─▶ records ─▶ rules ─┐
//! watches ─▶ cache ─▶ difference ─▶ work queue (rule, trigger) ─▶ decide ─▶ plan ─▶ calls
//! requests ─▶ observed requests ─┘           ▲                     engine         │
//!                                            └──────── call results ◀────────────┘
//! ```
//!
//! **Desired** is what the engine makes of every trigger that is one; **actual** is what carries the claim
//! of its rule and trigger. A key is looked at whenever something changed that either depends on, and only
//! the difference is written: one write for a changed object, none for one that is as it should be.
//! Every replacement and deletion names the version it was decided on, a creation that there is none, and an
//! application (server-side apply) its own fields. Nothing is deleted that carries no claim of the rule and
//! the trigger, nothing is ever written to a source, and a failed evaluation deletes nothing.
//!
//! # Machines
//!
//! [`Controller`] is put together from machines that know nothing of each other. Each takes events, says what is to be
//! called (`poll`) and when it is to be asked again (`next_deadline`), and takes answers (`on_reply`):
//!
//! | machine | noun |
//! |---|---|
//! | `cache` | objects that watches delivered, and kinds that are to be listed |
//! | `policy_set` | policies as they are stored, their records, the rules that act |
//! | `work_queue`, `work` | keys that wait; jobs, what they write and what they wait for |
//! | `downstreams` | what is known of single downstreams: edits, corrections, what a server adds |
//! | `checkpoint_keeper` | how far changes were seen |
//! | `observed_requests`, `request_inbox` | requests that wait for their change; requests that are stored |
//! | `update_request_status`, `reports` | what users read |
//! | `lookups` | what rules ask besides objects |
//! | `outbox` | calls with the purpose of their answers; events |
//!
//! What needs several of them is a decision (`decide`, `desired`, `ensure`, `triggers`): a function of the whole that
//! changes as little as possible.
//!
//! # Which objects are triggers
//!
//! An object that changed after its rule came, and matches: that is what its revision says, against the
//! revision that brought the rule. Older ones count when the rule runs for existing objects, or when a claim
//! of the rule says that they did. So a restart needs no list of triggers.
//!
//! # What a claim is worth
//!
//! Any user can write labels and annotations, so claims are signed ([`ClaimKeys`]). A signed one says what made its trigger
//! one: operation and user. One that is not signed (Kyverno wrote it, an older version, any user; or the key is lost) is
//! matched by rule and trigger and nothing more: the rule runs for the trigger as for an object that was there before,
//! without a user, and of what it makes only the object that carries the claim is written. It is deleted only if the
//! rule could have made it, and it never makes a change the engine's own.
//!
//! # What is remembered, where, how much, and what if it is lost
//!
//! | memory | where | bound | when it is lost |
//! |---|---|---|---|
//! | claim: rule, trigger, source, operation, user and the trigger as they left it, pattern, life of the policy, signature | labels and annotations of the downstream object | one per object | the object has no owner: it is never deleted, and adopted when its rule wants it |
//! | keys that claims are signed with | a Secret of the host's | eight | claims count as unsigned until their objects are written again |
//! | record: since when each rule acts, how it leaves what it made, what is still to be run for or removed | a ConfigMap per policy, written before anything is done | one per policy, a few lines per rule | the policy counts as new since its last change: existing objects are run for again; what a policy deleted meanwhile made stays |
//! | checkpoint: how far changes were seen, for rules that do not synchronise; which changes are ignored; which downstreams in a user's name have ended | one ConfigMap, at most one write per second | a line per kind, 2,000 waiting triggers, 2,000 that are skipped, 2,000 ends | triggers since the rule came are run for again: what is missing is made, what is there stays |
//! | cache | process | objects of the kinds that rules are triggered by, make or read | listed again |
//! | keys, queue, timers | process | one per synchronised trigger and rule, and one per unserved one | found again from cache, claims and checkpoint |
//! | observed requests that rules cannot do without: who sent what, requests that store nothing, excluded users | UpdateRequests, written before the API server is answered | one per request, gone when it is served, when its change does not show for [`Settings::hint_life`] although its kind is watched, or after [`Settings::carrier_life`] | a rule that asks for the user does not fire; requests that store nothing are gone |
//! | other observed requests | process | [`Settings::hints`], [`Settings::hint_life`] | some waiting |
//! | what a server adds to objects | process | one per object that differs from what was sent | one trial write (dry run) per such object |
//! | what services answered | process | 1,000, for 30 seconds | asked again |
//! | where objects were that others deleted and rules want | process | one per such object | what is there instead stays, unless the rule takes over what others made |
//! | corrections of contested objects | process | one per such object | the count begins again |
//! | results for reports | reports of the triggers, which the host keeps; a hash of what was told | one per key | told again, and compared with the report |
//! | other UpdateRequests | cluster | one per key that waits, failed or was skipped | nothing: they are a window, not the work |
//!
//! # Errors
//!
//! Gone: dropped. Forbidden: parked, with a [`Condition`] and a request that users can read, until roles
//! change, something of the kind goes through, or its time has come. Conflict: read
//! again and decided anew. Invalid: failed, after three retries. Unavailable: tried again, less and less
//! often. What is missing (a source, a namespace) is waited for. A panic while a key is decided on is a mistake in Kiln: it
//! fails that key, as an evaluation that fails does, keeps no other from its work, and is counted.

mod cache;
mod controller;
pub mod dry_run;
mod few;
mod lookups;
mod outbox;
mod ownership;
mod policies;
mod reconcile;
mod reports;
mod requests;
mod rights;
mod settings;
mod work_queue;

pub use controller::{CallRequest, Controller, ControllerEvent};
pub use lookups::{AccessCheck, Lookup, LookupQuestion, LookupResult, ServiceQuestion};
pub use ownership::provenance;
pub use ownership::signature::{ClaimKey, ClaimKeys};
pub use policies::stored_policies::{CompilePolicy, PolicyFeed, PolicySnapshot, StoredPolicy};
pub use reconcile::evaluate::{Engine, Evaluate};
pub use reports::{TriggerReport, TriggerResult};
pub use settings::{RequestSettings, RetrySettings, RuleSettings, Settings};
pub use work_queue::{Condition, Waiting, WorkKey};
