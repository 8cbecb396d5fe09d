//! What a cluster asks before it stores an object, answered without I/O.
//!
//! ```text
//! bytes ─▶ review::Request ─┬─▶ hooks: mutate ─▶ patch, warnings, refusal
//!                           ├─▶ hooks: observe ─▶ hint for the controller, always allowed
//!                           ├─▶ hooks: validate ─▶ refusal, warnings, results; audits come after the answer
//!                           └─▶ policies: check ─▶ questions of access ─▶ allowed or refused
//! rules, settings ─▶ hooks ─▶ webhooks ─▶ webhook configurations to publish
//! ConfigMap ─▶ settings
//! ```
//!
//! A host brings the bytes in and out, asks the questions of access, stores webhook configurations.
//! Rules are evaluated by the engine; nothing is matched or patched here.
//!
//! | module | holds |
//! |---|---|
//! | [`settings`], `setting_values` | the ConfigMap that users set things with; the texts of its keys as values |
//! | [`reporting`] | its part about policy reports and the scan of stored objects |
//! | [`review`] | the wire: AdmissionReviews in and out |
//! | [`hooks`], `hook_group` | which rules answer at which path, and what they answer |
//! | [`simulate`] | the same for a simulated write, for commands that only report |
//! | [`validation`] | what rules that check objects answer, and in which words |
//! | [`shadows`] | policies that are evaluated beside others, without effect |
//! | [`webhooks`], `named_resources` | the webhook configurations that the rules need |
//! | [`native_policies`] | policies in the form that the API server runs itself |
//! | [`policies`], [`access`] | whether a policy may be stored, and the rights that it needs |
//! | [`authors`] | who stored a policy, and whether that matters |

pub mod access;
pub mod authors;
mod hook_group;
pub mod hooks;
mod named_resources;
pub mod native_policies;
mod needs;
pub mod policies;
pub mod reporting;
pub mod review;
mod setting_values;
pub mod settings;
pub mod shadows;
pub mod simulate;
pub mod validation;
pub mod webhooks;

pub use hooks::{Hook, HookCall, Hooks, Purpose, Reviewed};
pub use kiln_equivalence::DifferenceKind;
pub use reporting::Reporting;
pub use review::{BadReview, Response, ReviewRequest};
pub use setting_values::SettingError;
pub use settings::Settings;
pub use shadows::ShadowResult;
pub use simulate::SimulatedWrite;
pub use validation::ValidationResult;
