//! Admission requests: those that wait for their change in memory, those that are stored as UpdateRequests, and what the
//! status of an UpdateRequest tells users.

pub(crate) mod observed_requests;
pub(crate) mod request_inbox;
pub(crate) mod update_request_status;
