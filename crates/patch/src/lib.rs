//! Patches on [`kiln_value::Value`]: one engine for each kind of patch, with the differences between
//! kustomize, Kyverno, KubeMod and the API server as named fields of its rules.
//!
//! | module | holds |
//! |---|---|
//! | `json6902` | JSON Patch: [`JsonPatch`], [`JsonPatchRules`] |
//! | `merge7396` | merge patch: [`merge_patch`], [`MergeRules`] |
//! | `structured` | structured merge: [`structured_merge`], [`Atomic`] |
//! | `strategic` | strategic merge: [`strategic_merge`], [`StrategicRules`] |
//! | `apply` | server-side apply: [`apply::apply`], [`apply::Managers`] |
//! | `client_apply` | what `kubectl apply` makes of a live object: [`client_side_apply`] |
//! | `diff` | the difference between two values, as a JSON patch: [`diff()`] |
//!
//! An edit copies the spine from the root to what it changes and nothing else: a small patch on a
//! large object costs what the patch costs.

pub mod apply;
mod client_apply;
mod diff;
mod json6902;
mod merge7396;
mod strategic;
mod structured;

pub use client_apply::client_side_apply;
pub use diff::diff;
pub use json6902::{Action, JsonPatch, JsonPatchError, JsonPatchProblem, JsonPatchRules};
pub use json6902::{JsonPatchOperation, Pointer, WholeDocument};
pub use merge7396::{MergeRules, merge_patch};
pub use strategic::strategic_merge_into_written;
pub use strategic::{ListMerge, Merged, NewValues, StrategicMergeError, StrategicProblem};
pub use strategic::{StrategicRules, TextScalars, WrittenScalars, strategic_merge};
pub use structured::{Atomic, StructuredError, structured_merge};
