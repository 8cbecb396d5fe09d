//! From a change to the calls that answer it.
//!
//! `dispatch` says which keys a change is about, `triggers` and `rescan` which objects fire a rule; `desired` has the engine
//! `evaluate` it, `decide` compares with the cache and makes a `plan`, `ensure` turns its steps into calls; `call_results`
//! takes their answers, `retry` says what becomes of the key.

pub(crate) mod call_results;
pub(crate) mod compare;
pub(crate) mod decide;
pub(crate) mod desired;
pub(crate) mod dispatch;
pub(crate) mod downstreams;
pub(crate) mod ensure;
pub(crate) mod evaluate;
pub(crate) mod plan;
pub(crate) mod rescan;
pub(crate) mod retry;
pub(crate) mod triggers;
