//! What an evaluation is given: what happened, the objects it may read, external data, what it may
//! cost and what is kept from it.

pub mod author;
pub(crate) mod eval_env;
pub(crate) mod event;
pub(crate) mod external_data;
pub(crate) mod globals;
pub(crate) mod host_allowlist;
pub(crate) mod limits;
pub(crate) mod observed_request;
pub(crate) mod resource_filter;
pub(crate) mod view;
