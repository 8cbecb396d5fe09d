//! The engine for browsers: calls of the web application in, answers out, both as JSON.

use std::cell::RefCell;
use std::time::{Duration, SystemTime};

use kiln_jmespath::AmbientSources;
use kiln_studio::playground::Playground;
use wasm_bindgen::prelude::wasm_bindgen;

thread_local! {
    /// A worker has one page.
    static PAGE: RefCell<Playground> = RefCell::default();
}

/// The clock and the chance of the page: WebAssembly has neither.
struct PageSources {
    now: SystemTime,
    random: std::cell::Cell<u64>,
}

impl AmbientSources for PageSources {
    fn now(&self) -> Option<SystemTime> {
        Some(self.now)
    }

    fn random(&self) -> Option<u64> {
        // SplitMix64: the page gives one random number for each call, and rules may want several.
        let state = self.random.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
        self.random.set(state);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        Some(mixed ^ (mixed >> 31))
    }
}

/// Answers a call. `milliseconds` is the time since 1970, `random` a random number.
#[wasm_bindgen]
pub fn call(request: &str, milliseconds: f64, random: u64) -> String {
    let since = Duration::from_millis(milliseconds.max(0.0) as u64);
    let sources = PageSources { now: SystemTime::UNIX_EPOCH + since, random: random.into() };
    PAGE.with_borrow_mut(|page| page.call(request, &sources))
}
