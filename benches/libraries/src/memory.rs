//! A counter of live memory.

use std::alloc::System;
use std::hint::black_box;

use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

use crate::Outcome;

#[global_allocator]
static MEMORY: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// The memory that is live because of what the call made.
pub fn live<T>(make: impl FnOnce() -> T) -> Outcome {
    let region = Region::new(MEMORY);
    let made = black_box(make());
    let change = region.change();
    drop(made);
    Outcome {
        live_bytes: Some(change.bytes_allocated.saturating_sub(change.bytes_deallocated)),
        ..Outcome::default()
    }
}
