//! Time and chance of a world: one clock that jumps, one seed.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use kiln_text::ambient::AmbientSources;

/// The lock of something that one thread uses: a panic elsewhere leaves it as it is.
pub(crate) fn locked<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A source of chance that gives the same numbers for the same seed.
// SplitMix64.
#[derive(Clone, Debug)]
pub struct Chance(u64);

impl Chance {
    pub fn new(seed: u64) -> Self {
        Chance(seed)
    }

    /// The next number.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`, which is not zero.
    pub fn below(&mut self, n: u64) -> u64 {
        self.draw() % n.max(1)
    }

    /// Whether the one case of `n` came.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// One of several, of which there is at least one.
    pub fn pick<'t, T>(&mut self, from: &'t [T]) -> Option<&'t T> {
        let at = self.below(u64::try_from(from.len()).unwrap_or(1));
        from.get(usize::try_from(at).unwrap_or(0))
    }
}

/// The clock, in milliseconds since 1970, and the chance of a world.
#[derive(Debug)]
pub(crate) struct Ambience {
    now: AtomicU64,
    chance: Mutex<Chance>,
}

impl Ambience {
    pub(crate) fn new(now: u64, seed: u64) -> Self {
        Ambience { now: AtomicU64::new(now), chance: Mutex::new(Chance::new(seed)) }
    }

    pub(crate) fn now(&self) -> u64 {
        self.now.load(Ordering::Relaxed)
    }

    /// Puts the clock forward; it never goes back.
    pub(crate) fn jump_to(&self, time: u64) {
        self.now.fetch_max(time, Ordering::Relaxed);
    }

    pub(crate) fn draw(&self) -> u64 {
        locked(&self.chance).draw()
    }

    /// Decides something by chance.
    pub(crate) fn decide<T>(&self, decide: impl FnOnce(&mut Chance) -> T) -> T {
        decide(&mut locked(&self.chance))
    }
}

impl AmbientSources for Ambience {
    fn now(&self) -> Option<SystemTime> {
        Some(UNIX_EPOCH + Duration::from_millis(Ambience::now(self)))
    }

    fn random(&self) -> Option<u64> {
        Some(self.draw())
    }
}
