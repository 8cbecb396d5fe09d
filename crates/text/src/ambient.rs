//! What an expression or a template cannot compute: the time, chance, and the addresses of names.

use std::net::IpAddr;
use std::time::SystemTime;

/// Where `time_now`, `now`, `random`, `uuidv4`, `is_external_url` and the like get what they need.
///
/// Every method refuses unless it is written, so that an evaluation is a pure function of its input
/// until a host decides otherwise. One trait for all languages: a rule that uses two of them sees one clock.
pub trait AmbientSources {
    /// The present time.
    fn now(&self) -> Option<SystemTime> {
        None
    }

    /// 64 random bits, new ones at every call.
    fn random(&self) -> Option<u64> {
        None
    }

    /// The addresses of a host name; `None` when names are not resolved here.
    ///
    /// # Errors
    /// When the name has no address, in words.
    fn resolve(&self, host: &str) -> Option<Result<Vec<IpAddr>, String>> {
        let _ = host;
        None
    }
}

/// Sources that refuse everything.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoAmbientSources;

impl AmbientSources for NoAmbientSources {}
