//! The clock and the random numbers of this machine, for commands that evaluate expressions and rules.
//!
//! Evaluation is pure and takes both as arguments; this is the one place of the command line that asks the system. What CEL
//! asks for is beside its command, in `commands/eval`.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::time::SystemTime;

use kiln_jmespath::AmbientSources;

/// The clock and the random numbers of this machine. Names are not resolved: an expression makes no network traffic.
pub(crate) struct SystemEnv;

impl AmbientSources for SystemEnv {
    fn now(&self) -> Option<SystemTime> {
        Some(SystemTime::now())
    }

    fn random(&self) -> Option<u64> {
        // Every `RandomState` has new keys, so this is random without another dependency.
        Some(RandomState::new().hash_one(()))
    }
}
