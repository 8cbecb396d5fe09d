//! What a template cannot compute: the time and chance.

use std::time::SystemTime;

/// Where `now`, `uuidv4`, `randAlpha` and the like get what they need.
///
/// Every method refuses unless it is written, so that a rendering is a pure function of its data until a host decides
/// otherwise.
pub trait Sources {
    /// The present time.
    fn now(&self) -> Option<SystemTime> {
        None
    }

    /// 64 random bits, new ones at every call.
    fn random(&self) -> Option<u64> {
        None
    }
}

/// Sources that refuse everything.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoSources;

impl Sources for NoSources {}
