//! Randomness that is none: everything follows from a text.

use std::cell::Cell;
use std::time::SystemTime;

use kiln_gotemplate::AmbientSources;
use sha2::{Digest, Sha256};

use crate::options::Release;

/// Sources for charts that use random functions: the same text and release give the same values every time. Who knows
/// the text knows the values. The time is the beginning of 1970.
#[derive(Debug)]
pub struct SeededSources {
    key: [u8; 32],
    count: Cell<u64>,
    used: Cell<bool>,
}

impl SeededSources {
    /// Sources that follow from a text, different ones for each release.
    pub fn new(seed: &str, release: &Release) -> Self {
        let mut hash = Sha256::new();
        for part in [seed, &release.namespace, &release.name] {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        SeededSources { key: hash.finalize().into(), count: Cell::new(0), used: Cell::new(false) }
    }

    /// Whether a template asked for the time or a random value.
    pub fn was_used(&self) -> bool {
        self.used.get()
    }
}

impl AmbientSources for SeededSources {
    fn now(&self) -> Option<SystemTime> {
        self.used.set(true);
        Some(SystemTime::UNIX_EPOCH)
    }

    fn random(&self) -> Option<u64> {
        self.used.set(true);
        let count = self.count.get();
        self.count.set(count.wrapping_add(1));
        let digest =
            Sha256::new().chain_update(self.key).chain_update(count.to_le_bytes()).finalize();
        digest.first_chunk().copied().map(u64::from_le_bytes)
    }
}
