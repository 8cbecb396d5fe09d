//! Admission requests: those that wait for their change in memory, those that are stored as UpdateRequests, and what the
//! status of an UpdateRequest tells users.

pub(crate) mod observed_requests;
pub(crate) mod request_inbox;
pub(crate) mod update_request_status;

use observed_requests::Hints;
use request_inbox::RequestInbox;
use update_request_status::StatusWriter;

/// The machines that are about admission requests.
#[derive(Default)]
pub(crate) struct Requests {
    /// Requests that wait for their change to be seen.
    pub(crate) observed: Hints,
    /// UpdateRequests that hold requests.
    pub(crate) inbox: RequestInbox,
    /// UpdateRequests that users read.
    pub(crate) status: StatusWriter,
}
