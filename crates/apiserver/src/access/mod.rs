//! Who a client is and what it may do: authentication, RBAC, and the reviews that clients ask with.

pub(crate) mod access_reviews;
pub(crate) mod authorization;
pub(crate) mod escalation;
pub(crate) mod tokens;
